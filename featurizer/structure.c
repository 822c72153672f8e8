/* structure.c: see structure.h. */
#include "featurizer/structure.h"

#include "featurizer/sequence.h"
#include "proto/chem/residue.h"

#include <stdio.h>
#include <string.h>

/* Checks that the chain has something to learn from. Compat takes every chain, as the reference
 * does. */
static fm_status check_content(const fm_part_structure *structure, fm_error *reterr) {
    const size_t n_atom = (size_t)structure->n_res * FM_N_ATOM37;
    float highest = 0;
    if (!memchr(structure->all_atom_mask, 1, n_atom)) {
        return fm_fail(reterr, FM_ERR_DATA, "the chain has no atom of a known name");
    }
    if (!structure->confidence) return FM_OK;
    for (uint32_t i = 0; i < structure->n_res; i++) {
        if (structure->confidence[i] > highest) highest = structure->confidence[i];
    }
    if (highest > 1) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA,
                   "the highest B factor of the prediction is %g, expected pLDDT on 0 to 100",
                   (double)highest);
}

fm_status fm_structure_from_mmcif(const fm_mmcif *mmcif, const fm_mmcif_options *options,
                                  const char *author_id, fm_part_sequence *ret_sequence,
                                  fm_part_structure *ret_structure, fm_error *reterr) {
    const fm_mmcif_chain *chain;
    fm_status status = fm_mmcif_find_chain(mmcif, author_id, &chain, reterr);
    if (status) return status;
    if (chain->fault) {
        return fm_fail(reterr, FM_ERR_DATA, "chain %.40s: %s", author_id, chain->fault);
    }
    if (options->compat_openfold && !mmcif->release_date[0]) {
        return fm_fail(reterr, FM_ERR_DATA, "chain %.40s: the file has no release date", author_id);
    }
    fm_part_structure structure = {
        .n_res = chain->n_res,
        .all_atom_positions = chain->all_atom_positions,
        .all_atom_mask = chain->all_atom_mask,
        .resolution = (float)mmcif->resolution,
        .is_distillation = options->is_predicted,
        .confidence = chain->confidence,
    };
    memcpy(structure.release_date, mmcif->release_date, sizeof structure.release_date);
    status = options->compat_openfold ? FM_OK : check_content(&structure, reterr);
    if (status) return status;
    *ret_structure = structure;
    *ret_sequence = (fm_part_sequence){.n_res = chain->n_res, .sequence = chain->sequence};
    return FM_OK;
}

/* Writes the chains' ids as "A, B, C", cut to fit. */
static void list_pdb_chains(const fm_pdb *pdb, char *out, size_t out_bytes) {
    size_t n = 0;
    for (uint32_t i = 0; i < pdb->n_chain && n + 4 < out_bytes; i++) {
        char id = pdb->chains[i].id[0];
        if (i) n += (size_t)snprintf(out + n, out_bytes - n, ", ");
        out[n++] = id > ' ' && id < 0x7f ? id : '?';
    }
    out[n] = '\0';
}

fm_status fm_structure_from_pdb(const fm_pdb *pdb, const fm_pdb_options *options,
                                const char *chain_id, fm_part_sequence *ret_sequence,
                                fm_part_structure *ret_structure, fm_error *reterr) {
    fm_pdb_chain all = {.first = 0, .n_res = pdb->n_res};
    const fm_pdb_chain *chain = pdb->n_chain == 1 || options->compat_openfold ? &all : NULL;
    char known[80];
    if (chain_id) chain = NULL;
    for (uint32_t i = 0; chain_id && i < pdb->n_chain; i++) {
        if (strcmp(pdb->chains[i].id, chain_id) == 0) chain = &pdb->chains[i];
    }
    if (!chain) {
        list_pdb_chains(pdb, known, sizeof known);
        return chain_id
                   ? fm_fail(reterr, FM_ERR_NOT_FOUND, "no chain '%.40s'; the file has %s",
                             chain_id, known)
                   : fm_fail(reterr, FM_ERR_DATA,
                             "the file has the chains %s, so one of them must be named", known);
    }
    size_t atom = (size_t)chain->first * FM_N_ATOM37;
    *ret_sequence = (fm_part_sequence){chain->n_res, pdb->sequence + chain->first};
    *ret_structure = (fm_part_structure){.n_res = chain->n_res,
                                         .all_atom_positions = pdb->all_atom_positions + atom * 3,
                                         .all_atom_mask = pdb->all_atom_mask + atom,
                                         .is_distillation = 1,
                                         .confidence = pdb->confidence + chain->first};
    return options->compat_openfold ? FM_OK : check_content(ret_structure, reterr);
}

void fm_structure_list_mask(const fm_part_structure *structure, uint8_t *ret_mask) {
    for (size_t i = 0; i < structure->n_res; i++) {
        bool is_sure = fm_structure_is_sure(structure, i);
        for (size_t atom = i * FM_N_ATOM37; atom < (i + 1) * FM_N_ATOM37; atom++)
            ret_mask[atom] = is_sure ? structure->all_atom_mask[atom] : 0;
    }
}

static void add(fm_structure_array *arrays, size_t *n, const char *key, const char *dtype,
                size_t rank, const uint64_t *shape, const void *data) {
    fm_structure_array *array = &arrays[(*n)++];
    *array = (fm_structure_array){.key = key, .dtype = dtype, .rank = rank, .data = data};
    for (size_t i = 0; i < rank; i++)
        array->shape[i] = shape[i];
}

/* Copies in the reference's type of arrays that the part holds by value or in another type: masks
 * and scalars become float. */
typedef struct structure_copies {
    float *mask; /* [N_res, 37] */
    float scalars[2];
    char release_date[FM_RELEASE_DATE];
} structure_copies;

static structure_copies *copy_structure(const fm_part_structure *structure, fm_arena *arena) {
    size_t n_mask = (size_t)structure->n_res * FM_N_ATOM37;
    structure_copies *copies = fm_arena_alloc(arena, sizeof *copies);
    float *mask = fm_arena_alloc_array(arena, n_mask, sizeof *mask);
    uint8_t *present = fm_arena_alloc(arena, n_mask);
    if (!copies || !mask || !present) return NULL;
    fm_structure_list_mask(structure, present);
    for (size_t i = 0; i < n_mask; i++)
        mask[i] = present[i];
    *copies = (structure_copies){.mask = mask,
                                 .scalars = {structure->resolution, structure->is_distillation}};
    memcpy(copies->release_date, structure->release_date, sizeof copies->release_date);
    return copies;
}

fm_status fm_structure_list_arrays(const fm_part_sequence *sequence,
                                   const fm_part_structure *structure, const char *domain_name,
                                   fm_arena *arena,
                                   fm_structure_array ret_arrays[FM_STRUCTURE_N_ARRAY],
                                   size_t *ret_n, fm_error *reterr) {
    fm_sequence_features features;
    fm_status status = fm_sequence_featurize(sequence, arena, &features, reterr);
    if (status) return status;
    structure_copies *copies = copy_structure(structure, arena);
    if (!copies) return fm_arena_full(arena, reterr);
    uint64_t n_res = sequence->n_res, one = 1;
    uint64_t name_bytes = strlen(domain_name), date_bytes = strlen(structure->release_date);
    const uint64_t letters[] = {n_res, FM_N_AATYPE}, atoms[] = {n_res, FM_N_ATOM37, 3};
    fm_structure_array *out = ret_arrays;
    size_t n = 0;
    add(out, &n, "aatype", "<i4", 2, letters, features.aatype);
    add(out, &n, "between_segment_residues", "<i4", 1, &n_res, features.between_segment_residues);
    add(out, &n, "domain_name", "|u1", 1, &name_bytes, domain_name);
    add(out, &n, "residue_index", "<i4", 1, &n_res, features.residue_index);
    add(out, &n, "seq_length", "<i4", 1, &n_res, features.seq_length);
    add(out, &n, "sequence", "|u1", 1, &n_res, sequence->sequence);
    add(out, &n, "all_atom_positions", "<f4", 3, atoms, structure->all_atom_positions);
    add(out, &n, "all_atom_mask", "<f4", 2, atoms, copies->mask);
    add(out, &n, "resolution", "<f4", 1, &one, &copies->scalars[0]);
    if (date_bytes) add(out, &n, "release_date", "|u1", 1, &date_bytes, copies->release_date);
    add(out, &n, "is_distillation", "<f4", 0, NULL, &copies->scalars[1]);
    *ret_n = n;
    return FM_OK;
}
