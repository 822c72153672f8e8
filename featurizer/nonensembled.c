/* nonensembled.c: see nonensembled.h. */
#include "featurizer/nonensembled.h"

#include "featurizer/structure.h"
#include "proto/chem/atom14.h"
#include "proto/chem/frames.h"
#include "proto/chem/torsions.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

typedef struct builder {
    fm_arena *arena;
    fm_array *arrays; /* [FM_NONENSEMBLED_N_ARRAY] */
    size_t n;
    bool full; /* an array did not fit */
} builder;

/* Lists an array whose data exists already. */
static void add_borrowed(builder *b, const char *key, const char *dtype, size_t rank,
                         const uint64_t *shape, const void *data) {
    assert(b->n < FM_NONENSEMBLED_N_ARRAY && rank <= FM_ARRAY_RANK);
    fm_array *array = &b->arrays[b->n++];
    *array = (fm_array){.key = key, .dtype = dtype, .rank = rank, .data = data};
    for (size_t i = 0; i < rank; i++)
        array->shape[i] = shape[i];
}

/* Lists an array and returns its memory for the caller to fill. When the arena is full, it returns
 * NULL and sets b->full. The last character of dtype is the element's size in bytes. */
static void *add(builder *b, const char *key, const char *dtype, size_t rank,
                 const uint64_t *shape) {
    size_t count = 1;
    for (size_t i = 0; i < rank; i++)
        count *= (size_t)shape[i];
    void *data = fm_arena_alloc_array(b->arena, count, (size_t)(dtype[2] - '0'));
    if (!data) b->full = true;
    add_borrowed(b, key, dtype, rank, shape, data);
    return data;
}

static float *add_floats(builder *b, const char *key, size_t rank, const uint64_t *shape) {
    return add(b, key, "<f4", rank, shape);
}

static void fill_ones(float *out, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = 1.0f;
}

static void widen(int64_t *out, const uint8_t *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = from[i];
}

static void to_floats(float *out, const uint8_t *from, size_t n) {
    for (size_t i = 0; i < n; i++)
        out[i] = from[i];
}

/* -- sequence */

static fm_status make_aatype(const fm_part_sequence *sequence, fm_arena *arena,
                             const uint8_t **ret_aatype, fm_error *reterr) {
    uint8_t *aatype = fm_arena_alloc(arena, sequence->n_res);
    if (!aatype) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < sequence->n_res; i++) {
        aatype[i] = fm_restype_from_letter(sequence->sequence[i]);
        if (aatype[i] != FM_HHBLITS_NONE) continue;
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, i + 1, i,
                          "the sequence has byte 0x%02x, expected a letter A-Z",
                          (uint8_t)sequence->sequence[i]);
    }
    *ret_aatype = aatype;
    return FM_OK;
}

static void add_sequence(builder *b, const uint8_t *aatype, uint64_t n_res) {
    int64_t *ids = add(b, "aatype", "<i8", 1, &n_res);
    int64_t *between = add(b, "between_segment_residues", "<i8", 1, &n_res);
    int64_t *index = add(b, "residue_index", "<i8", 1, &n_res);
    int64_t *length = add(b, "seq_length", "<i8", 0, NULL);
    float *mask = add_floats(b, "seq_mask", 1, &n_res);
    if (b->full) return;
    widen(ids, aatype, n_res);
    memset(between, 0, n_res * sizeof *between);
    for (uint64_t i = 0; i < n_res; i++)
        index[i] = (int64_t)i;
    *length = (int64_t)n_res;
    fill_ones(mask, n_res);
}

static void add_atom14_masks(builder *b, const fm_atom37 *chain) {
    const uint64_t places[] = {chain->n_res, FM_N_ATOM14}, atoms[] = {chain->n_res, FM_N_ATOM37};
    const size_t n14 = chain->n_res * FM_N_ATOM14, n37 = chain->n_res * FM_N_ATOM37;
    int64_t *to_atom37 = add(b, "residx_atom14_to_atom37", "<i8", 2, places);
    int64_t *to_atom14 = add(b, "residx_atom37_to_atom14", "<i8", 2, atoms);
    const fm_atom14_masks masks = {
        .atom14_atom_exists = add_floats(b, "atom14_atom_exists", 2, places),
        .atom37_atom_exists = add_floats(b, "atom37_atom_exists", 2, atoms),
        .residx_atom14_to_atom37 = fm_arena_alloc(b->arena, n14),
        .residx_atom37_to_atom14 = fm_arena_alloc(b->arena, n37),
    };
    b->full |= !masks.residx_atom14_to_atom37 || !masks.residx_atom37_to_atom14;
    if (b->full) return;
    fm_atom14_list_masks(chain, &masks);
    widen(to_atom37, masks.residx_atom14_to_atom37, n14);
    widen(to_atom14, masks.residx_atom37_to_atom14, n37);
}

/* -- alignment */

/* Divides the counts by N_seq in single precision, as the reference does. */
static void fill_profile(float *out, const fm_part_msa *msa) {
    for (size_t i = 0; i < msa->n_res; i++) {
        for (size_t id = 0; id < FM_N_HHBLITS; id++) {
            out[i * FM_N_HHBLITS + fm_restype_from_hhblits[id]] =
                (float)msa->profile[i * FM_N_HHBLITS + id] / (float)msa->n_seq;
        }
    }
}

static void add_msa(builder *b, const fm_part_msa *msa) {
    const uint64_t cells[] = {msa->n_seq, msa->n_res}, profile[] = {msa->n_res, FM_N_HHBLITS};
    const size_t n_cell = (size_t)msa->n_seq * msa->n_res;
    int64_t *ids = add(b, "msa", "<i8", 2, cells);
    int64_t *n_seq = add(b, "num_alignments", "<i8", 0, NULL);
    float *deletions = add_floats(b, "deletion_matrix", 2, cells);
    float *mask = add_floats(b, "msa_mask", 2, cells);
    float *row_mask = add_floats(b, "msa_row_mask", 1, cells);
    float *frequencies = add_floats(b, "hhblits_profile", 2, profile);
    if (b->full) return;
    for (size_t i = 0; i < n_cell; i++) {
        ids[i] = fm_restype_from_hhblits[msa->msa[i]];
        deletions[i] = msa->deletion_matrix[i];
    }
    *n_seq = msa->n_seq;
    fill_ones(mask, n_cell);
    fill_ones(row_mask, msa->n_seq);
    fill_profile(frequencies, msa);
}

/* -- structure */

static void add_atom14(builder *b, const fm_atom37 *chain) {
    const uint64_t shape[] = {chain->n_res, FM_N_ATOM14, 3};
    const fm_atom14_truth truth = {
        .atom14_gt_exists = add_floats(b, "atom14_gt_exists", 2, shape),
        .atom14_gt_positions = add_floats(b, "atom14_gt_positions", 3, shape),
        .atom14_alt_gt_positions = add_floats(b, "atom14_alt_gt_positions", 3, shape),
        .atom14_alt_gt_exists = add_floats(b, "atom14_alt_gt_exists", 2, shape),
        .atom14_atom_is_ambiguous = add_floats(b, "atom14_atom_is_ambiguous", 2, shape),
    };
    if (!b->full) fm_atom14_ground_truth(chain, &truth);
}

static void add_frames(builder *b, const fm_atom37 *chain) {
    const uint64_t shape[] = {chain->n_res, FM_N_RIGID_GROUP, 4, 4};
    const uint64_t backbone[] = {chain->n_res, 4, 4};
    const fm_rigid_groups groups = {
        .rigidgroups_gt_frames = add_floats(b, "rigidgroups_gt_frames", 4, shape),
        .rigidgroups_gt_exists = add_floats(b, "rigidgroups_gt_exists", 2, shape),
        .rigidgroups_group_exists = add_floats(b, "rigidgroups_group_exists", 2, shape),
        .rigidgroups_group_is_ambiguous = add_floats(b, "rigidgroups_group_is_ambiguous", 2, shape),
        .rigidgroups_alt_gt_frames = add_floats(b, "rigidgroups_alt_gt_frames", 4, shape),
    };
    float *tensor = add_floats(b, "backbone_rigid_tensor", 3, backbone);
    float *mask = add_floats(b, "backbone_rigid_mask", 1, backbone);
    if (b->full) return;
    fm_rigid_list_groups(chain, &groups);
    fm_rigid_list_backbone(chain, tensor, mask);
}

static void add_torsions(builder *b, const fm_atom37 *chain) {
    const uint64_t shape[] = {chain->n_res, FM_N_TORSION, 2}, chi[] = {chain->n_res, FM_N_CHI, 2};
    const fm_torsions torsions = {
        .torsion_angles_sin_cos = add_floats(b, "torsion_angles_sin_cos", 3, shape),
        .alt_torsion_angles_sin_cos = add_floats(b, "alt_torsion_angles_sin_cos", 3, shape),
        .torsion_angles_mask = add_floats(b, "torsion_angles_mask", 2, shape),
    };
    float *chi_angles = add_floats(b, "chi_angles_sin_cos", 3, chi);
    float *chi_mask = add_floats(b, "chi_mask", 2, chi);
    if (b->full) return;
    fm_torsions_list(chain, &torsions);
    for (size_t i = 0; i < chain->n_res; i++) {
        size_t from = i * FM_N_TORSION + FM_TORSION_CHI1, to = i * FM_N_CHI;
        memcpy(chi_angles + to * 2, torsions.torsion_angles_sin_cos + from * 2,
               FM_N_CHI * 2 * sizeof *chi_angles);
        memcpy(chi_mask + to, torsions.torsion_angles_mask + from, FM_N_CHI * sizeof *chi_mask);
    }
}

static void add_structure(builder *b, const fm_part_structure *structure, const uint8_t *aatype) {
    const uint64_t atoms[] = {structure->n_res, FM_N_ATOM37, 3};
    const size_t n_atom = (size_t)structure->n_res * FM_N_ATOM37;
    uint8_t *present = fm_arena_alloc(b->arena, n_atom);
    float *mask = add_floats(b, "all_atom_mask", 2, atoms);
    float *resolution = add_floats(b, "resolution", 0, NULL);
    float *is_distillation = add_floats(b, "is_distillation", 0, NULL);
    float *beta = add(b, "pseudo_beta", "<f4", 2, (uint64_t[]){structure->n_res, 3});
    float *beta_mask = add_floats(b, "pseudo_beta_mask", 1, atoms);
    b->full |= !present;
    if (b->full) return;
    add_borrowed(b, "all_atom_positions", "<f4", 3, atoms, structure->all_atom_positions);
    fm_structure_list_mask(structure, present);
    to_floats(mask, present, n_atom);
    *resolution = structure->resolution;
    *is_distillation = structure->is_distillation;
    const fm_atom37 chain = {structure->n_res, aatype, structure->all_atom_positions, present};
    fm_atom14_pseudo_beta(&chain, beta, beta_mask);
    add_atom14(b, &chain);
    add_frames(b, &chain);
    add_torsions(b, &chain);
}

/* -- templates */

/* Computes pseudo-beta and torsions one template at a time, because the torsions of a template's
 * first residue must not reach into the template before it. */
static void add_template_geometry(builder *b, const fm_template_features *templates,
                                  const uint8_t *aatype, uint64_t n_res) {
    const uint64_t beta_shape[] = {templates->n_templ, n_res, 3};
    const uint64_t shape[] = {templates->n_templ, n_res, FM_N_TORSION, 2};
    float *beta = add_floats(b, "template_pseudo_beta", 3, beta_shape);
    float *beta_mask = add_floats(b, "template_pseudo_beta_mask", 2, beta_shape);
    fm_torsions torsions = {
        .torsion_angles_sin_cos = add_floats(b, "template_torsion_angles_sin_cos", 4, shape),
        .alt_torsion_angles_sin_cos =
            add_floats(b, "template_alt_torsion_angles_sin_cos", 4, shape),
        .torsion_angles_mask = add_floats(b, "template_torsion_angles_mask", 3, shape),
    };
    if (b->full) return;
    for (size_t t = 0; t < templates->n_templ; t++) {
        const size_t first = t * n_res, step = n_res * FM_N_TORSION;
        const fm_atom37 chain = {n_res, aatype + first,
                                 templates->template_all_atom_positions + first * FM_N_ATOM37 * 3,
                                 templates->template_all_atom_mask + first * FM_N_ATOM37};
        fm_atom14_pseudo_beta(&chain, beta + first * 3, beta_mask + first);
        fm_torsions_list(&chain, &torsions);
        torsions.torsion_angles_sin_cos += step * 2;
        torsions.alt_torsion_angles_sin_cos += step * 2;
        torsions.torsion_angles_mask += step;
    }
}

static void add_templates(builder *b, const fm_template_features *templates, uint64_t n_res) {
    const uint64_t n_templ = templates->n_templ, sum_probs[] = {n_templ, 1};
    const uint64_t atoms[] = {n_templ, n_res, FM_N_ATOM37, 3};
    const size_t n_residue = n_templ * n_res;
    uint8_t *aatype = fm_arena_alloc(b->arena, n_residue);
    int64_t *ids = add(b, "template_aatype", "<i8", 2, atoms);
    float *mask = add_floats(b, "template_all_atom_mask", 3, atoms);
    float *template_mask = add_floats(b, "template_mask", 1, &n_templ);
    b->full |= !aatype;
    if (b->full) return;
    add_borrowed(b, "template_all_atom_positions", "<f4", 4, atoms,
                 templates->template_all_atom_positions);
    add_borrowed(b, "template_sum_probs", "<f4", 2, sum_probs, templates->template_sum_probs);
    for (size_t i = 0; i < n_residue; i++)
        aatype[i] = fm_restype_from_hhblits[templates->template_aatype[i]];
    widen(ids, aatype, n_residue);
    to_floats(mask, templates->template_all_atom_mask, n_residue * FM_N_ATOM37);
    fill_ones(template_mask, n_templ);
    add_template_geometry(b, templates, aatype, n_res);
}

static fm_status check_n_res(const fm_nonensembled_input *input, fm_error *reterr) {
    uint32_t n_res = input->sequence->n_res;
    if (input->msa && input->msa->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the alignment has %u columns, but the sequence has %u residues",
                       input->msa->n_res, n_res);
    }
    if (input->structure && input->structure->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the structure has %u residues, but the sequence has %u",
                       input->structure->n_res, n_res);
    }
    if (input->templates && input->templates->n_res != n_res) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the templates have %u residues, but the sequence has %u",
                       input->templates->n_res, n_res);
    }
    return FM_OK;
}

fm_status fm_nonensembled_list_arrays(const fm_nonensembled_input *input, fm_arena *arena,
                                      fm_array ret_arrays[FM_NONENSEMBLED_N_ARRAY], size_t *ret_n,
                                      fm_error *reterr) {
    static const float no_values[1] = {0};
    static const uint8_t no_ids[1] = {0};
    static const fm_template_features none = {.template_aatype = no_ids,
                                              .template_all_atom_positions = no_values,
                                              .template_all_atom_mask = no_ids,
                                              .template_sum_probs = no_values};
    const uint8_t *aatype;
    builder b = {.arena = arena, .arrays = ret_arrays};
    fm_status status = check_n_res(input, reterr);
    if (!status) status = make_aatype(input->sequence, arena, &aatype, reterr);
    if (status) return status;
    const fm_atom37 chain = {.n_res = input->sequence->n_res, .aatype = aatype};
    add_sequence(&b, aatype, chain.n_res);
    add_atom14_masks(&b, &chain);
    if (input->msa) add_msa(&b, input->msa);
    if (input->structure) add_structure(&b, input->structure, aatype);
    add_templates(&b, input->templates ? input->templates : &none, chain.n_res);
    if (b.full) return fm_arena_full(arena, reterr);
    *ret_n = b.n;
    return FM_OK;
}
