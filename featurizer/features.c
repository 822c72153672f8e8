/* features.c: see features.h. */
#include "featurizer/features.h"

#include "featurizer/structure.h"

fm_status fm_features_structure(const fm_mmcif *mmcif, const char *author_id,
                                const fm_features_options *options, fm_arena *arena,
                                fm_part_sequence *ret_sequence, fm_part_structure *ret_structure,
                                fm_error *reterr) {
    (void)arena; /* the parts borrow from the parsed file */
    const fm_mmcif_options reading = {.compat_openfold = options->compat_openfold,
                                      .is_predicted = options->is_predicted};
    return fm_structure_from_mmcif(mmcif, &reading, author_id, ret_sequence, ret_structure, reterr);
}

fm_status fm_structure_file_parse(fm_bytes text, bool is_pdb, const fm_features_options *options,
                                  fm_arena *arena, fm_structure_file *ret_file, fm_error *reterr) {
    ret_file->is_pdb = is_pdb;
    if (is_pdb) {
        const fm_pdb_options reading = {.compat_openfold = options->compat_openfold};
        return fm_pdb_parse(text, &reading, arena, &ret_file->pdb, reterr);
    }
    if (options->compat_openfold && options->is_predicted) {
        return fm_fail(
            reterr, FM_ERR_UNSUPPORTED,
            "the predicted structure is an mmCIF file; --compat openfold reads predictions as PDB "
            "files only");
    }
    const fm_mmcif_options reading = {.compat_openfold = options->compat_openfold,
                                      .is_predicted = options->is_predicted};
    return fm_mmcif_parse(text, &reading, arena, &ret_file->mmcif, reterr);
}

uint32_t fm_structure_file_n_chain(const fm_structure_file *file) {
    return file->is_pdb ? file->pdb.n_chain : file->mmcif.n_chain;
}

const char *fm_structure_file_chain_id(const fm_structure_file *file, uint32_t chain) {
    return file->is_pdb ? file->pdb.chains[chain].id : file->mmcif.chains[chain].author_id;
}

fm_status fm_structure_file_features(const fm_structure_file *file, const char *author_id,
                                     const fm_features_options *options, fm_arena *arena,
                                     fm_part_sequence *ret_sequence,
                                     fm_part_structure *ret_structure, fm_error *reterr) {
    if (file->is_pdb) {
        const fm_pdb_options reading = {.compat_openfold = options->compat_openfold};
        return fm_structure_from_pdb(&file->pdb, &reading, author_id, ret_sequence, ret_structure,
                                     reterr);
    }
    if (!author_id && file->mmcif.n_chain != 1) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the file has %u protein chains, so one of them must be named",
                       file->mmcif.n_chain);
    }
    if (!author_id) author_id = file->mmcif.chains[0].author_id;
    return fm_features_structure(&file->mmcif, author_id, options, arena, ret_sequence,
                                 ret_structure, reterr);
}

fm_status fm_features_msa(const fm_part_sequence *sequence, const fm_msa_input *inputs,
                          size_t n_input, const fm_features_options *options, fm_arena *arena,
                          fm_part_msa *ret_msa, fm_msa_report *ret_report, fm_error *reterr) {
    const fm_msa_options msa_options = {.compat_openfold = options->compat_openfold};
    const fm_bytes query = {(const uint8_t *)sequence->sequence, sequence->n_res};
    fm_part_msa msa;
    fm_status status =
        fm_msa_build(inputs, n_input, query, &msa_options, arena, &msa, ret_report, reterr);
    if (status) return status;
    if (msa.n_res != sequence->n_res) {
        return fm_fail(
            reterr, FM_ERR_DATA,
            "the alignments have %u columns, but the structure's sequence has %u residues",
            msa.n_res, sequence->n_res);
    }
    *ret_msa = msa;
    return FM_OK;
}
