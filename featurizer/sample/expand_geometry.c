/* expand_geometry.c: see expand_geometry.h. The sample's crop is presented as a short chain to
 * fm_nonensembled_list_arrays, which exports whole chains; those of its arrays that OpenFold's
 * loader keeps are then padded and stacked. */
#include "featurizer/sample/expand_geometry.h"

#include "featurizer/nonensembled.h"
#include "proto/chem/residue.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

static const char *const kept[FM_N_EXPANDED_GEOMETRY] = {
    "atom14_atom_exists",
    "residx_atom14_to_atom37",
    "residx_atom37_to_atom14",
    "atom37_atom_exists",
    "atom14_gt_exists",
    "atom14_gt_positions",
    "atom14_alt_gt_positions",
    "atom14_alt_gt_exists",
    "atom14_atom_is_ambiguous",
    "rigidgroups_gt_frames",
    "rigidgroups_gt_exists",
    "rigidgroups_group_exists",
    "rigidgroups_group_is_ambiguous",
    "rigidgroups_alt_gt_frames",
    "pseudo_beta",
    "pseudo_beta_mask",
    "backbone_rigid_tensor",
    "backbone_rigid_mask",
    "chi_angles_sin_cos",
    "chi_mask",
    "template_aatype",
    "template_all_atom_mask",
    "template_all_atom_positions",
    "template_sum_probs",
    "template_mask",
    "template_pseudo_beta",
    "template_pseudo_beta_mask",
    "template_torsion_angles_sin_cos",
    "template_alt_torsion_angles_sin_cos",
    "template_torsion_angles_mask",
};

/* The parts of the short chain; pointers are into the arena or borrow from the sample. */
typedef struct short_chain {
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_template_features templates; /* n_templ = 0: none */
} short_chain;

static uint8_t *unpack_mask(const fm_tensor_view *bits, size_t n_residue, fm_arena *arena) {
    uint8_t *mask = fm_arena_alloc_array(arena, n_residue, FM_N_ATOM37);
    if (!mask) return NULL;
    for (size_t i = 0; i < n_residue; i++) {
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++)
            mask[i * FM_N_ATOM37 + atom] = ((const uint64_t *)bits->data)[i] >> atom & 1;
    }
    return mask;
}

static fm_status fail_class(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_DATA, "the sample has an id outside its classes");
}

static fm_status take_chain(const fm_sample *sample, fm_arena *arena, short_chain *chain,
                            fm_error *reterr) {
    const fm_tensor_view *aatype = fm_sample_find(sample, FM_T_AATYPE, FM_SHARED);
    const fm_tensor_view *positions = fm_sample_find(sample, FM_T_ALL_ATOM_POSITIONS, FM_SHARED);
    const fm_tensor_view *bits = fm_sample_find(sample, FM_T_ALL_ATOM_MASK, FM_SHARED);
    if (!aatype || !positions || !bits) {
        return fm_fail(reterr, FM_ERR_DATA, "the sample lacks a tensor that expanding needs");
    }
    char *letters = fm_arena_alloc(arena, sample->n_res);
    uint8_t *mask = unpack_mask(bits, sample->n_res, arena);
    if (!letters || !mask) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < sample->n_res; i++) {
        uint8_t restype = ((const uint8_t *)aatype->data)[i];
        if (restype > FM_RESTYPE_X) return fail_class(reterr);
        letters[i] = fm_restype_letters[restype];
    }
    chain->sequence = (fm_part_sequence){sample->n_res, letters};
    chain->structure = (fm_part_structure){.n_res = sample->n_res,
                                           .all_atom_positions = positions->data,
                                           .all_atom_mask = mask,
                                           .resolution = sample->resolution,
                                           .is_distillation = sample->is_distillation};
    return FM_OK;
}

static fm_status take_templates(const fm_sample *sample, fm_arena *arena,
                                fm_template_features *templates, fm_error *reterr) {
    const fm_tensor_view *aatype = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED);
    const fm_tensor_view *positions =
        fm_sample_find(sample, FM_T_TEMPLATE_ALL_ATOM_POSITIONS, FM_SHARED);
    const fm_tensor_view *bits = fm_sample_find(sample, FM_T_TEMPLATE_ALL_ATOM_MASK, FM_SHARED);
    const fm_tensor_view *sums = fm_sample_find(sample, FM_T_TEMPLATE_SUM_PROBS, FM_SHARED);
    if (!aatype || !positions || !bits || !sums) {
        return fm_fail(reterr, FM_ERR_DATA, "the sample lacks a tensor that expanding needs");
    }
    size_t n_residue = aatype->bytes;
    uint8_t *ids = fm_arena_alloc(arena, n_residue), *mask = unpack_mask(bits, n_residue, arena);
    if (!ids || !mask) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n_residue; i++) {
        uint8_t restype = ((const uint8_t *)aatype->data)[i];
        if (restype > FM_RESTYPE_GAP) return fail_class(reterr);
        ids[i] = fm_hhblits_from_restype[restype];
    }
    *templates = (fm_template_features){.n_templ = aatype->shape[0],
                                        .n_res = sample->n_res,
                                        .template_aatype = ids,
                                        .template_all_atom_positions = positions->data,
                                        .template_all_atom_mask = mask,
                                        .template_sum_probs = sums->data};
    return FM_OK;
}

/* Lists all templates of the sample. */
static fm_status list_templates(uint32_t n_templ, fm_arena *arena, fm_expand_templates *ret_list,
                                fm_error *reterr) {
    uint32_t *index = fm_arena_alloc_array(arena, n_templ, sizeof *index);
    if (!index) return fm_arena_full(arena, reterr);
    for (uint32_t t = 0; t < n_templ; t++)
        index[t] = t;
    *ret_list = (fm_expand_templates){.index = index, .n_templ = n_templ};
    return FM_OK;
}

static fm_status check_sizes(const fm_sample *sample, const fm_expand_sizes *sizes,
                             uint32_t n_templ, fm_error *reterr) {
    if (sample->n_res <= sizes->n_res && n_templ <= sizes->n_templ) return FM_OK;
    return fm_fail(reterr, FM_ERR_DATA, "the sample has more than %u residues or %u templates",
                   sizes->n_res, sizes->n_templ);
}

/* Pads and stacks one array of the short chain. */
static fm_status expand_array(const fm_sample *sample, const fm_expand_sizes *sizes,
                              const fm_array *array, fm_expand_templates templates, fm_arena *arena,
                              fm_array *ret_array, fm_error *reterr) {
    bool is_template = strncmp(array->key, "template_", strlen("template_")) == 0;
    templates.has_residues =
        strcmp(array->key, "template_mask") != 0 && strcmp(array->key, "template_sum_probs") != 0;
    return fm_expand_feature(sample, sizes, array, is_template ? &templates : NULL, arena,
                             ret_array, reterr);
}

fm_status fm_expand_geometry(const fm_sample *sample, const fm_expand_sizes *sizes, fm_arena *arena,
                             fm_array ret_arrays[FM_N_EXPANDED_GEOMETRY], fm_error *reterr) {
    short_chain chain = {.templates.n_res = sample->n_res};
    fm_array arrays[FM_NONENSEMBLED_N_ARRAY];
    fm_expand_templates templates = {0};
    size_t n_array = 0, n_kept = 0;
    bool has_templates = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED);
    fm_status status = take_chain(sample, arena, &chain, reterr);
    if (!status && has_templates) status = take_templates(sample, arena, &chain.templates, reterr);
    if (!status) status = check_sizes(sample, sizes, chain.templates.n_templ, reterr);
    if (!status) status = list_templates(chain.templates.n_templ, arena, &templates, reterr);
    const fm_nonensembled_input input = {.sequence = &chain.sequence,
                                         .structure = &chain.structure,
                                         .templates = has_templates ? &chain.templates : NULL};
    if (!status) status = fm_nonensembled_list_arrays(&input, arena, arrays, &n_array, reterr);
    fm_sample whole = *sample; /* the arrays are those of the crop, so nothing is left to crop */
    whole.crop_start = 0;
    for (size_t k = 0; !status && k < FM_N_EXPANDED_GEOMETRY; k++) {
        for (size_t i = 0; !status && i < n_array; i++) {
            if (strcmp(arrays[i].key, kept[k]) != 0) continue;
            status = expand_array(&whole, sizes, &arrays[i], templates, arena,
                                  &ret_arrays[n_kept++], reterr);
        }
    }
    assert(status || n_kept == FM_N_EXPANDED_GEOMETRY);
    return status;
}
