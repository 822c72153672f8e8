/* complex.c: see complex.h. */
#include "trainer/loss/complex.h"

#include "trainer/loss/complex_terms.h"

#include <assert.h>
#include <math.h>

/* Radii of lDDT, and weights in the mean square error that are added to 1. */
static const double RADIUS = 15, NUCLEOTIDE_RADIUS = 30;
static const double NUCLEOTIDE_WEIGHT = 5, LIGAND_WEIGHT = 10;

/* -- noise levels */

double fm_complex_scale(double sigma, double sigma_data) {
    double product = sigma * sigma_data;
    return (sigma * sigma + sigma_data * sigma_data) / (product * product);
}

/* -- the state */

void fm_complex_declare_targets(fm_state *state, const fm_kernels *kernels, int64_t n_token,
                                int64_t n_atom, int64_t n_bond, int64_t n_sample,
                                fm_complex_targets *ret_targets) {
    fm_element acc = kernels->acc;
    n_bond = n_bond ? n_bond : 1;
    const int64_t atoms[] = {n_atom, 3}, tokens[] = {n_token, 3}, bonds[] = {n_bond, 2};
    const int64_t structure[] = {1, n_atom, 3}, terms[] = {FM_COMPLEX_STRUCTURE_TERMS};
    const int64_t rest[] = {FM_COMPLEX_TERMS - FM_COMPLEX_STRUCTURE_TERMS};
    *ret_targets = (fm_complex_targets){
        .n_token = n_token, .n_atom = n_atom, .n_bond = n_bond, .n_sample = n_sample};
    ret_targets->position = fm_state_add(state, "true positions", acc, 2, atoms);
    ret_targets->mask = fm_state_add(state, "resolved atoms", acc, 1, atoms);
    ret_targets->weight = fm_state_add(state, "weights of atoms", acc, 1, atoms);
    ret_targets->radius = fm_state_add(state, "radii of atoms", acc, 1, atoms);
    ret_targets->partner = fm_state_add(state, "partners of atoms", acc, 1, atoms);
    ret_targets->atoms = fm_state_add(state, "atoms", acc, 1, atoms);
    ret_targets->known = fm_state_add(state, "classes of atoms", FM_ELEMENT_I32, 1, atoms);
    ret_targets->bond = fm_state_add(state, "bonds", FM_ELEMENT_I32, 2, bonds);
    ret_targets->bond_length = fm_state_add(state, "bond lengths", acc, 1, bonds);
    ret_targets->bond_weight = fm_state_add(state, "bond weights", acc, 1, bonds);
    ret_targets->token_atom = fm_state_add(state, "token atoms", FM_ELEMENT_I32, 1, tokens);
    ret_targets->token_position = fm_state_add(state, "token positions", acc, 2, tokens);
    ret_targets->token_mask = fm_state_add(state, "resolved tokens", acc, 1, tokens);
    ret_targets->token_position_f32 =
        fm_state_add(state, "token positions", FM_ELEMENT_F32, 2, tokens);
    ret_targets->token_mask_f32 = fm_state_add(state, "resolved tokens", FM_ELEMENT_F32, 1, tokens);
    ret_targets->frame = fm_state_add(state, "token frames", FM_ELEMENT_I32, 2, tokens);
    ret_targets->centre = fm_state_add(state, "token centres", FM_ELEMENT_I32, 1, tokens);
    ret_targets->scale = fm_state_add(state, "scales of samples", acc, 1, &n_sample);
    ret_targets->structure = fm_state_add(state, "structure of the rollout", acc, 3, structure);
    ret_targets->factors = fm_state_add(state, "loss factors", FM_ELEMENT_F64, 1, terms);
    ret_targets->confidence_factors =
        fm_state_add(state, "confidence factors", FM_ELEMENT_F64, 1, rest);
}

/* -- labels */

typedef struct target_writer {
    const fm_complex_labels *labels;
    const fm_complex_targets *to;
    fm_state_put *put;
    void *context;
} target_writer;

static void put(const target_writer *w, int32_t tensor, int64_t at, double value) {
    w->put(w->context, tensor, at, value);
}

static void write_atom(const target_writer *w, int64_t l) {
    const fm_complex_labels *from = w->labels;
    const fm_complex_targets *to = w->to;
    bool inside = l < from->n_atom;
    double mask = inside ? (double)from->coordinate_mask[l] : 0, nucleotide = 0, ligand = 0;
    double partner = 0;
    if (inside) {
        nucleotide = (double)(from->is_dna[l] + from->is_rna[l]);
        ligand = (double)from->is_ligand[l];
        partner = (double)from->plddt_m_rep_atom_mask[l] * (1 - ligand);
    }
    for (int64_t axis = 0; axis < 3; axis++)
        put(w, to->position, 3 * l + axis, inside ? (double)from->coordinate[3 * l + axis] : 0);
    put(w, to->mask, l, mask);
    put(w, to->weight, l, mask * (1 + NUCLEOTIDE_WEIGHT * nucleotide + LIGAND_WEIGHT * ligand));
    put(w, to->radius, l, nucleotide > 0 ? NUCLEOTIDE_RADIUS : RADIUS);
    put(w, to->partner, l, partner);
    put(w, to->atoms, l, inside);
    put(w, to->known, l, mask);
}

/* Returns the atom of token i that `mask` marks, or -1. `first` is the token's first atom. */
static int64_t marked_atom(const fm_complex_labels *from, const int64_t *mask, int64_t i,
                           int64_t first) {
    for (int64_t l = first; l < from->n_atom && from->atom_to_token_idx[l] == i; l++) {
        if (mask[l]) return l;
    }
    return -1;
}

static void write_token(const target_writer *w, int64_t i, int64_t first) {
    const fm_complex_labels *from = w->labels;
    const fm_complex_targets *to = w->to;
    bool inside = i < from->n_token;
    int64_t atom = inside ? marked_atom(from, from->distogram_rep_atom_mask, i, first) : -1;
    double mask = atom < 0 ? 0 : (double)from->coordinate_mask[atom];
    put(w, to->token_atom, i, (double)atom);
    put(w, to->token_mask, i, mask);
    put(w, to->token_mask_f32, i, mask);
    for (int64_t axis = 0; axis < 3; axis++) {
        double x = atom < 0 ? 0 : (double)from->coordinate[3 * atom + axis];
        bool has_frame = inside && from->has_frame[i];
        put(w, to->token_position, 3 * i + axis, x);
        put(w, to->token_position_f32, 3 * i + axis, x);
        put(w, to->frame, 3 * i + axis,
            has_frame ? (double)from->frame_atom_index[3 * i + axis] : -1);
    }
    int64_t centre = inside ? marked_atom(from, from->pae_rep_atom_mask, i, first) : -1;
    put(w, to->centre, i, (double)centre);
}

int64_t fm_complex_count_bonds(const fm_complex_labels *labels) {
    int64_t n = labels->n_atom, count = 0;
    for (int64_t a = 0; a < n; a++)
        for (int64_t b = a + 1; b < n; b++)
            count += labels->bond_mask[a * n + b] != 0;
    return count;
}

static void write_bonds(const target_writer *w) {
    const fm_complex_labels *from = w->labels;
    const fm_complex_targets *to = w->to;
    int64_t n = from->n_atom, p = 0;
    for (int64_t a = 0; a < n; a++) {
        for (int64_t b = a + 1; b < n; b++) {
            if (!from->bond_mask[a * n + b]) continue;
            assert(p < to->n_bond);
            double square = 0;
            for (int axis = 0; axis < 3; axis++) {
                double d =
                    (double)from->coordinate[3 * a + axis] - (double)from->coordinate[3 * b + axis];
                square += d * d;
            }
            put(w, to->bond, 2 * p, (double)a);
            put(w, to->bond, 2 * p + 1, (double)b);
            put(w, to->bond_length, p, sqrt(square));
            put(w, to->bond_weight, p++,
                (double)from->coordinate_mask[a] * (double)from->coordinate_mask[b]);
        }
    }
    for (; p < to->n_bond; p++) {
        put(w, to->bond, 2 * p, -1);
        put(w, to->bond, 2 * p + 1, -1);
        put(w, to->bond_length, p, 0);
        put(w, to->bond_weight, p, 0);
    }
}

void fm_complex_write_labels(const fm_complex_labels *labels, const fm_complex_targets *targets,
                             fm_state_put *put_value, void *context) {
    const target_writer w = {labels, targets, put_value, context};
    assert(labels->n_token <= targets->n_token && labels->n_atom <= targets->n_atom);
    for (int64_t l = 0; l < targets->n_atom; l++)
        write_atom(&w, l);
    for (int64_t i = 0, first = 0; i < targets->n_token; i++) {
        while (first < labels->n_atom && labels->atom_to_token_idx[first] < i)
            first++;
        write_token(&w, i, first);
    }
    write_bonds(&w);
}
