/* features.c: see features.h. */
#include "featurizer/features.h"

#include "featurizer/structure.h"

fm_status fm_features_structure(const fm_mmcif *mmcif, const char *author_id,
                                const fm_features_options *options, fm_arena *arena,
                                fm_part_sequence *ret_sequence, fm_part_structure *ret_structure,
                                fm_error *reterr) {
    (void)arena; /* the parts borrow from the parsed file */
    const fm_mmcif_options reading = {.compat_openfold = options->compat_openfold};
    return fm_structure_from_mmcif(mmcif, &reading, author_id, ret_sequence, ret_structure, reterr);
}

fm_status fm_features_msa(const fm_part_sequence *sequence, const fm_msa_input *inputs,
                          size_t n_input, const fm_features_options *options, fm_arena *arena,
                          fm_part_msa *ret_msa, fm_error *reterr) {
    const fm_msa_options msa_options = {.compat_openfold = options->compat_openfold};
    const fm_bytes query = {(const uint8_t *)sequence->sequence, sequence->n_res};
    fm_part_msa msa;
    fm_status status =
        fm_msa_build(inputs, n_input, query, &msa_options, arena, &msa, NULL, reterr);
    if (status) return status;
    if (msa.n_res != sequence->n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the alignments have %u columns, the structure's sequence %u residues",
                       msa.n_res, sequence->n_res);
    }
    *ret_msa = msa;
    return FM_OK;
}
