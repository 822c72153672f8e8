/* complex_features.c: see complex_features.h. */
#include "tests/bench/complex_features.h"

#include "proto/chem/template_pairs.h"

#include <math.h>
#include <string.h>

enum { N_TYPE = 20, CLASSES = 39 };

/* Allocations of zeros; the first that fails is remembered. */
typedef struct maker {
    fm_arena *arena;
    bool failed;
    uint32_t state; /* of the draws */
} maker;

static void *zeros(maker *m, int64_t count, size_t size) {
    void *memory = fm_arena_calloc(m->arena, (size_t)count, size);
    m->failed |= !memory;
    return memory;
}

static int64_t *integers(maker *m, int64_t count) {
    return zeros(m, count, sizeof(int64_t));
}

static float *floats(maker *m, int64_t count) {
    return zeros(m, count, sizeof(float));
}

/* Returns a number in [-1, 1). */
static float draw(maker *m) {
    m->state = m->state * 1664525u + 1013904223u;
    return (float)(m->state >> 8) / (float)(1 << 23) - 1;
}

/* -- tokens */

static void make_tokens(maker *m, int64_t n, fm_af3_features *f) {
    fm_af3_sample *s = &f->sample;
    int64_t *index = integers(m, n), *zero = integers(m, n), *has_frame = integers(m, n);
    float *types = floats(m, n * FM_AF3_RESTYPES);
    s->asym_id = s->entity_id = s->sym_id = zero;
    s->residue_index = s->token_index = f->number = index;
    s->restype = s->profile = types;
    s->deletion_mean = floats(m, n);
    s->token_bonds = floats(m, n * n);
    f->labels.has_frame = has_frame;
    for (int64_t i = 0; i < n && !m->failed; i++) {
        index[i] = i;
        has_frame[i] = 1;
        types[i * FM_AF3_RESTYPES + i * 7919 % N_TYPE] = 1;
    }
}

static void make_msa(maker *m, int64_t n, int64_t n_row, int64_t n_cycle, fm_af3_features *f) {
    int64_t *msa = integers(m, n_row * n), *rows = integers(m, n_cycle * n_row);
    f->sample.msa = msa;
    f->sample.has_deletion = floats(m, n_row * n);
    f->sample.deletion_value = floats(m, n_row * n);
    f->msa_rows = rows;
    f->n_row = n_row;
    for (int64_t i = 0; i < n_row * n && !m->failed; i++)
        msa[i] = i * 7919 % N_TYPE;
    for (int64_t i = 0; i < n_cycle * n_row && !m->failed; i++)
        rows[i] = i % n_row;
}

static void make_templates(maker *m, int64_t n, int64_t n_template, fm_af3_features *f) {
    fm_af3_sample *s = &f->sample;
    const int64_t pairs = n_template * n * n;
    float *classes = floats(m, pairs * CLASSES), *beta = floats(m, pairs);
    float *unit = floats(m, pairs * 3), *frame = floats(m, pairs);
    s->template_aatype = integers(m, n_template * n);
    s->template_distogram = classes;
    s->template_pseudo_beta_mask = beta;
    s->template_unit_vector = unit;
    s->template_backbone_frame_mask = frame;
    for (int64_t p = 0; p < pairs && !m->failed; p++) {
        classes[p * CLASSES + p % CLASSES] = 1;
        unit[3 * p + p % 3] = 1;
        beta[p] = frame[p] = 1;
    }
}

/* Templates whose atoms are on lines of their own, and all there. */
static void make_template_atoms(maker *m, int64_t n, int64_t n_template, fm_af3_features *f) {
    fm_af3_sample *s = &f->sample;
    const int64_t count = n_template * n;
    float *atoms = floats(m, count * FM_N_TEMPLATE_ATOM * 3);
    uint8_t *mask = zeros(m, count, 1);
    s->template_aatype = integers(m, count);
    s->template_atoms = atoms;
    s->template_atom_mask = mask;
    for (int64_t i = 0; i < count * FM_N_TEMPLATE_ATOM * 3 && !m->failed; i++)
        atoms[i] = 20 * draw(m);
    if (!m->failed) memset(mask, (1 << FM_N_TEMPLATE_ATOM) - 1, (size_t)count);
}

/* -- atoms */

/* The arrays of all atoms that are not all zero. */
typedef struct atom_arrays {
    int64_t *token, *slot, *space, *centre, *frame;
    float *element, *letters, *reference, *mask, *x;
} atom_arrays;

/* Describes atom l, which has the number `slot` in its token. */
static void make_atom(maker *m, const atom_arrays *to, int64_t l, int64_t token, int64_t slot) {
    to->token[l] = to->space[l] = token;
    to->slot[l] = slot;
    to->centre[l] = slot == 0;
    to->mask[l] = 1;
    to->element[l * FM_ATOM_ELEMENTS + 5 + slot % 3] = 1;
    for (int64_t k = 0; k < 4; k++)
        to->letters[(4 * l + k) * FM_ATOM_CHARACTERS + (k ? slot : 35)] = 1;
    for (int64_t k = 0; k < 3; k++)
        to->reference[3 * l + k] = 2 * draw(m);
    if (slot < 3) to->frame[3 * token + slot] = l;
}

/* The CA atoms are 3.8 Å apart in random directions, and the others are near them. */
static void make_positions(maker *m, int64_t n_atom, const int64_t *token, float *x) {
    float at[3] = {0, 0, 0};
    for (int64_t l = 0; l < n_atom; l++) {
        float step[3] = {draw(m), draw(m), draw(m)};
        float length = sqrtf(step[0] * step[0] + step[1] * step[1] + step[2] * step[2]) + 1e-3f;
        bool is_first = l == 0 || token[l] != token[l - 1];
        for (int64_t k = 0; k < 3; k++) {
            at[k] += is_first ? 3.8f * step[k] / length : 0;
            x[3 * l + k] = at[k] + (is_first ? 0 : 1.5f * step[k] / length);
        }
    }
}

static void make_atoms(maker *m, int64_t n, int64_t n_atom, bool predicted, fm_af3_features *f) {
    fm_af3_sample *s = &f->sample;
    fm_complex_labels *labels = &f->labels;
    const atom_arrays to = {.token = integers(m, n_atom),
                            .slot = integers(m, n_atom),
                            .space = integers(m, n_atom),
                            .centre = integers(m, n_atom),
                            .frame = integers(m, 3 * n),
                            .element = floats(m, n_atom * FM_ATOM_ELEMENTS),
                            .letters = floats(m, 4 * n_atom * FM_ATOM_CHARACTERS),
                            .reference = floats(m, 3 * n_atom),
                            .mask = floats(m, n_atom),
                            .x = floats(m, 3 * n_atom)};
    s->atom_to_token_idx = labels->atom_to_token_idx = to.token;
    s->atom_to_tokatom_idx = to.slot;
    s->ref_space_uid = to.space;
    s->ref_charge = floats(m, n_atom);
    s->ref_element = to.element;
    s->ref_atom_name_chars = to.letters;
    s->ref_pos = to.reference;
    s->ref_mask = labels->coordinate_mask = to.mask;
    s->distogram_rep_atom_mask = labels->distogram_rep_atom_mask = to.centre;
    labels->pae_rep_atom_mask = labels->plddt_m_rep_atom_mask = to.centre;
    labels->is_dna = labels->is_rna = labels->is_ligand = integers(m, n_atom);
    if (!predicted) labels->bond_mask = integers(m, n_atom * n_atom);
    labels->frame_atom_index = to.frame;
    labels->coordinate = to.x;
    if (m->failed) return;
    for (int64_t l = 0, before = -1, slot = 0; l < n_atom; l++) {
        int64_t token = l * n / n_atom;
        slot = token == before ? slot + 1 : 0;
        make_atom(m, &to, l, token, slot);
        before = token;
    }
    make_positions(m, n_atom, to.token, to.x);
}

fm_status bench_make_complex(fm_arena *arena, const fm_af3_config *c, uint32_t most_cycles,
                             bool predicted, fm_af3_features *ret_features, fm_error *reterr) {
    maker m = {.arena = arena, .state = 12345};
    *ret_features = (fm_af3_features){.n_cycle = 1};
    fm_af3_sample *s = &ret_features->sample;
    fm_complex_labels *labels = &ret_features->labels;
    s->n_token = labels->n_token = c->n_token;
    s->n_atom = labels->n_atom = c->n_atom;
    s->n_msa = c->n_msa;
    s->n_template = c->n_template;
    labels->resolution = 2;
    make_tokens(&m, c->n_token, ret_features);
    make_msa(&m, c->n_token, c->n_msa, most_cycles, ret_features);
    (predicted ? make_template_atoms : make_templates)(&m, c->n_token, c->n_template, ret_features);
    make_atoms(&m, c->n_token, c->n_atom, predicted, ret_features);
    return m.failed ? fm_arena_full(arena, reterr) : FM_OK;
}
