/* complex_sample.h: a small stored sample of a complex (docs/reference/complex-samples.md): two
 * equal chains of three residues with two atoms each, and a ligand of two atoms. */
#ifndef FM_TESTS_COMPLEX_SAMPLE_H
#define FM_TESTS_COMPLEX_SAMPLE_H

#include "proto/npz.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FM_TEST_TOKENS = 8,
    FM_TEST_ATOMS = 14,
    FM_TEST_ROWS = 5,
    FM_TEST_TEMPLATES = 2,
    FM_TEST_ARRAYS = 48
};

/* Arrays on the heap, which tests may change before they use them. */
typedef struct fm_test_complex {
    fm_npy array[FM_TEST_ARRAYS];
    fm_npz npz;
} fm_test_complex;

/* Adds an array of zeros; extents that are 0 end the shape. */
static inline void *fm_test_complex_add(fm_test_complex *c, const char *name, bool is_float,
                                        uint64_t n0, uint64_t n1, uint64_t n2, uint64_t n3) {
    assert(c->npz.n_array < FM_TEST_ARRAYS);
    fm_npy *array = &c->array[c->npz.n_array++];
    *array = (fm_npy){.name = name, .item_bytes = is_float ? 4 : 8, .shape = {n0, n1, n2, n3}};
    snprintf(array->dtype, sizeof array->dtype, "%s", is_float ? "<f4" : "<i8");
    array->count = 1;
    for (; array->rank < 4 && array->shape[array->rank]; array->rank++)
        array->count *= array->shape[array->rank];
    void *data = aligned_alloc(64, (array->count * array->item_bytes + 127) / 64 * 64);
    assert(data);
    memset(data, 0, array->count * array->item_bytes);
    array->data = data;
    return data;
}

static inline int64_t *fm_test_complex_i8(fm_test_complex *c, const char *name, uint64_t n0,
                                          uint64_t n1) {
    return fm_test_complex_add(c, name, false, n0, n1, 0, 0);
}

static inline float *fm_test_complex_f4(fm_test_complex *c, const char *name, uint64_t n0,
                                        uint64_t n1, uint64_t n2, uint64_t n3) {
    return fm_test_complex_add(c, name, true, n0, n1, n2, n3);
}

/* A number from 0 to 1 that follows from the seed. */
static inline float fm_test_complex_draw(uint64_t *seed) {
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (float)(*seed >> 40) / (float)(1 << 24);
}

static inline void fm_test_complex_tokens(fm_test_complex *c) {
    const uint64_t n = FM_TEST_TOKENS;
    int64_t *asym = fm_test_complex_i8(c, "asym_id", n, 0);
    int64_t *entity = fm_test_complex_i8(c, "entity_id", n, 0);
    int64_t *sym = fm_test_complex_i8(c, "sym_id", n, 0);
    int64_t *residue = fm_test_complex_i8(c, "residue_index", n, 0);
    int64_t *token = fm_test_complex_i8(c, "token_index", n, 0);
    int64_t *number = fm_test_complex_i8(c, "token_number", n, 0);
    int64_t *frame = fm_test_complex_i8(c, "frame_atom_index", n, 3);
    int64_t *has_frame = fm_test_complex_i8(c, "has_frame", n, 0);
    float *restype = fm_test_complex_f4(c, "restype", n, 32, 0, 0);
    float *profile = fm_test_complex_f4(c, "profile", n, 32, 0, 0);
    fm_test_complex_f4(c, "deletion_mean", n, 0, 0, 0);
    float *bonds = fm_test_complex_f4(c, "token_bonds", n, n, 0, 0);
    for (uint64_t i = 0; i < n; i++) {
        asym[i] = i < 3 ? 0 : i < 6 ? 1 : 2;
        entity[i] = i < 6 ? 0 : 1;
        sym[i] = asym[i] == 1;
        residue[i] = number[i] = (int64_t)(i < 6 ? i % 3 : i - 6);
        token[i] = (int64_t)i;
        has_frame[i] = i < 6;
        for (uint64_t k = 0; k < 3; k++) /* its own atoms and the next one */
            frame[3 * i + k] = (int64_t)(i < 6 ? (2 * i + k) % 12 : 0);
        restype[32 * i + (i < 6 ? i % 3 : 20)] = profile[32 * i + i] = 1;
    }
    bonds[6 * n + 7] = bonds[7 * n + 6] = 1;
}

static inline void fm_test_complex_atoms(fm_test_complex *c, uint64_t seed) {
    const uint64_t n = FM_TEST_ATOMS;
    int64_t *token = fm_test_complex_i8(c, "atom_to_token_idx", n, 0);
    int64_t *slot = fm_test_complex_i8(c, "atom_to_tokatom_idx", n, 0);
    int64_t *space = fm_test_complex_i8(c, "ref_space_uid", n, 0);
    int64_t *ligand = fm_test_complex_i8(c, "is_ligand", n, 0);
    int64_t *first = fm_test_complex_i8(c, "distogram_rep_atom_mask", n, 0);
    int64_t *centre = fm_test_complex_i8(c, "pae_rep_atom_mask", n, 0);
    int64_t *polymer = fm_test_complex_i8(c, "plddt_m_rep_atom_mask", n, 0);
    int64_t *bond = fm_test_complex_i8(c, "bond_mask", n, n);
    fm_test_complex_i8(c, "is_rna", n, 0);
    fm_test_complex_i8(c, "is_dna", n, 0);
    float *pos = fm_test_complex_f4(c, "ref_pos", n, 3, 0, 0);
    float *mask = fm_test_complex_f4(c, "ref_mask", n, 0, 0, 0);
    float *element = fm_test_complex_f4(c, "ref_element", n, 128, 0, 0);
    float *letters = fm_test_complex_f4(c, "ref_atom_name_chars", n, 4, 64, 0);
    float *x = fm_test_complex_f4(c, "coordinate", n, 3, 0, 0);
    float *known = fm_test_complex_f4(c, "coordinate_mask", n, 0, 0, 0);
    fm_test_complex_f4(c, "ref_charge", n, 0, 0, 0);
    *fm_test_complex_f4(c, "resolution", 1, 0, 0, 0) = 2;
    for (uint64_t l = 0; l < n; l++) {
        token[l] = (int64_t)(l < 12 ? l / 2 : l - 6);
        slot[l] = l < 12 ? (int64_t)(l % 2) : 0;
        space[l] = token[l] < 6 ? token[l] : 6;
        ligand[l] = l >= 12;
        first[l] = centre[l] = l >= 12 || l % 2 == 0;
        polymer[l] = l < 12 && l % 2 == 0;
        mask[l] = 1;
        known[l] = l != 3; /* one atom is not resolved */
        element[128 * l + 5 + l % 3] = 1;
        for (uint64_t k = 0; k < 4; k++)
            letters[256 * l + 64 * k + (k ? l % 2 : 35)] = 1;
        for (uint64_t k = 0; k < 3; k++) {
            pos[3 * l + k] = 2 * fm_test_complex_draw(&seed) - 1;
            x[3 * l + k] = 12 * fm_test_complex_draw(&seed) - 6;
        }
    }
    bond[1 * n + 12] = bond[12 * n + 1] = 1;
}

static inline void fm_test_complex_others(fm_test_complex *c, uint64_t seed) {
    const uint64_t n = FM_TEST_TOKENS, m = FM_TEST_ROWS, t = FM_TEST_TEMPLATES;
    int64_t *msa = fm_test_complex_i8(c, "msa", m, n);
    for (uint64_t i = 0; i < m * n; i++)
        msa[i] = (int64_t)(31 * fm_test_complex_draw(&seed));
    fm_test_complex_f4(c, "has_deletion", m, n, 0, 0);
    fm_test_complex_f4(c, "deletion_value", m, n, 0, 0);
    int64_t *aatype = fm_test_complex_i8(c, "template_aatype", t, n);
    for (uint64_t i = 0; i < t * n; i++)
        aatype[i] = 31;
    fm_test_complex_f4(c, "template_distogram", t, n, n, 39);
    fm_test_complex_f4(c, "template_pseudo_beta_mask", t, n, n, 0);
    fm_test_complex_f4(c, "template_unit_vector", t, n, n, 3);
    fm_test_complex_f4(c, "template_backbone_frame_mask", t, n, n, 0);
    /* The atoms of the first residue may exchange their labels. */
    int64_t *order = fm_test_complex_i8(c, "atom_order", 4, 0);
    order[1] = order[2] = 1;
    fm_test_complex_i8(c, "atom_order_first", 1, 0);
    *fm_test_complex_i8(c, "atom_order_size", 1, 0) = 2;
    *fm_test_complex_i8(c, "atom_order_count", 1, 0) = 2;
}

static inline void fm_test_complex_make(fm_test_complex *c, uint64_t seed) {
    *c = (fm_test_complex){.npz = {0}};
    fm_test_complex_tokens(c);
    fm_test_complex_atoms(c, seed);
    fm_test_complex_others(c, seed + 1);
    c->npz.arrays = c->array;
}

static inline void fm_test_complex_free(fm_test_complex *c) {
    for (size_t i = 0; i < c->npz.n_array; i++)
        free((void *)(uintptr_t)c->array[i].data);
}

static inline fm_npy *fm_test_complex_find(fm_test_complex *c, const char *name) {
    for (size_t i = 0; i < c->npz.n_array; i++)
        if (!strcmp(c->array[i].name, name)) return &c->array[i];
    assert(!"the sample has no such array");
    return NULL;
}

/* Sets element `at` of an array. */
static inline void fm_test_complex_set(fm_npy *array, uint64_t at, double value) {
    void *data = (void *)(uintptr_t)array->data;
    assert(at < array->count);
    if (array->item_bytes == 4) {
        ((float *)data)[at] = (float)value;
    } else {
        ((int64_t *)data)[at] = (int64_t)value;
    }
}

static inline void fm_test_complex_write(const fm_test_complex *c, const char *path) {
    fm_npz_writer *writer;
    fm_error error;
    fm_status status = fm_npz_writer_create(path, &writer, &error);
    assert(!status);
    for (size_t i = 0; i < c->npz.n_array; i++) {
        const fm_npy *a = &c->array[i];
        status =
            fm_npz_writer_append(writer, a->name, a->dtype, a->rank, a->shape, a->data, &error);
        assert(!status);
    }
    status = fm_npz_writer_finish(writer, &error);
    assert(!status);
    (void)status;
}

/* Makes the sample of a seed and writes it as FOLDER/NAME. */
static inline void fm_test_complex_write_seed(const char *folder, const char *name, uint64_t seed) {
    char path[600];
    fm_test_complex c;
    fm_test_complex_make(&c, seed);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    fm_test_complex_write(&c, path);
    fm_test_complex_free(&c);
}

#endif
