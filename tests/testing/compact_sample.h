/* compact_sample.h: the compact form of a small sample of a complex (complex_sample.h). */
#ifndef FM_TESTS_COMPACT_SAMPLE_H
#define FM_TESTS_COMPACT_SAMPLE_H

#include "tests/testing/complex_sample.h"

/* Both own their arrays: fm_test_complex_free. */
typedef struct fm_test_compact {
    fm_test_complex whole, compact;
} fm_test_compact;

static inline fm_npy *fm_test_compact_add(fm_test_compact *f, const char *name, const char *dtype,
                                          size_t item, size_t rank, const uint64_t *shape) {
    fm_npy *array = &f->compact.array[f->compact.npz.n_array++];
    *array = (fm_npy){.name = name, .item_bytes = item, .rank = rank, .count = 1};
    memcpy(array->dtype, dtype, strlen(dtype) + 1);
    for (size_t k = 0; k < rank; k++)
        array->count *= array->shape[k] = shape[k];
    void *data = calloc(array->count + 1, item);
    assert(data);
    array->data = data;
    return array;
}

static inline double fm_test_whole_value(const fm_npy *array, uint64_t i) {
    return array->item_bytes == 4 ? (double)((const float *)array->data)[i]
                                  : (double)((const int64_t *)array->data)[i];
}

static inline void fm_test_compact_set(fm_npy *array, uint64_t i, int value) {
    void *data = (void *)(uintptr_t)array->data;
    if (array->item_bytes == 4) {
        ((int32_t *)data)[i] = value;
    } else if (array->item_bytes == 2) {
        ((int16_t *)data)[i] = (int16_t)value;
    } else {
        ((int8_t *)data)[i] = (int8_t)value;
    }
}

/* The same numbers in a smaller type. */
static inline void fm_test_compact_narrow(fm_test_compact *f, const char *name, const char *dtype,
                                          size_t item) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    fm_npy *to = fm_test_compact_add(f, name, dtype, item, from->rank, from->shape);
    for (uint64_t i = 0; i < to->count; i++)
        fm_test_compact_set(to, i, (int)fm_test_whole_value(from, i));
}

static inline void fm_test_compact_copy(fm_test_compact *f, const char *name) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    fm_npy *to = fm_test_compact_add(f, name, from->dtype, 4, from->rank, from->shape);
    memcpy((void *)(uintptr_t)to->data, from->data, from->count * 4);
}

/* The place of the 1 in each row of the last axis. */
static inline void fm_test_compact_find_ones(fm_test_compact *f, const char *name) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    uint64_t n = from->shape[from->rank - 1];
    fm_npy *to = fm_test_compact_add(f, name, "|u1", 1, from->rank - 1, from->shape);
    for (uint64_t i = 0; i < from->count; i++)
        if (fm_test_whole_value(from, i) == 1) fm_test_compact_set(to, i / n, (int)(i % n));
}

static inline void fm_test_compact_list_pairs(fm_test_compact *f, const char *name,
                                              const char *compact) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    uint64_t n = from->shape[0];
    fm_npy *to = fm_test_compact_add(f, compact, "<i4", 4, 2, (uint64_t[]){n, 2});
    uint64_t n_pair = 0;
    for (uint64_t i = 0; i < n * n; i++) {
        if (fm_test_whole_value(from, i) != 1 || i / n > i % n) continue;
        fm_test_compact_set(to, 2 * n_pair, (int)(i / n));
        fm_test_compact_set(to, 2 * n_pair++ + 1, (int)(i % n));
    }
    to->shape[0] = n_pair;
    to->count = 2 * n_pair;
}

/* Makes both forms, without symmetries. */
static inline void fm_test_compact_make(fm_test_compact *f, uint64_t seed) {
    *f = (fm_test_compact){.compact = {.npz = {0}}};
    fm_test_complex_make(&f->whole, seed);
    static const char *const numbers[] = {"asym_id",          "entity_id",     "sym_id",
                                          "residue_index",    "token_index",   "token_number",
                                          "frame_atom_index", "ref_space_uid", "atom_to_token_idx"};
    static const char *const bytes[] = {"has_frame",
                                        "msa",
                                        "atom_to_tokatom_idx",
                                        "ref_mask",
                                        "is_rna",
                                        "is_dna",
                                        "is_ligand",
                                        "distogram_rep_atom_mask",
                                        "pae_rep_atom_mask",
                                        "plddt_m_rep_atom_mask",
                                        "coordinate_mask",
                                        "template_aatype"};
    static const char *const copies[] = {"profile", "deletion_mean", "ref_pos", "coordinate",
                                         "resolution"};
    static const char *const ones[] = {"restype", "ref_element", "ref_atom_name_chars"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        fm_test_compact_narrow(f, numbers[i], "<i4", 4);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        fm_test_compact_narrow(f, bytes[i], "|u1", 1);
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        fm_test_compact_copy(f, copies[i]);
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        fm_test_compact_find_ones(f, ones[i]);
    fm_test_compact_narrow(f, "ref_charge", "|i1", 1);
    fm_test_compact_list_pairs(f, "token_bonds", "token_bonds_pairs");
    fm_test_compact_list_pairs(f, "bond_mask", "bond_mask_pairs");
    fm_test_compact_add(f, "deletion", "|u1", 1, 2, (uint64_t[]){FM_TEST_ROWS, FM_TEST_TOKENS});
    fm_test_compact_add(f, "template_atoms", "<f4", 4, 4,
                        (uint64_t[]){FM_TEST_TEMPLATES, FM_TEST_TOKENS, 4, 3});
    fm_test_compact_add(f, "template_atom_mask", "|u1", 1, 2,
                        (uint64_t[]){FM_TEST_TEMPLATES, FM_TEST_TOKENS});
    f->compact.npz.arrays = f->compact.array;
}

/* Two residues, of which only the first has two orders; both are of two atoms. */
static inline void fm_test_compact_add_symmetries(fm_test_compact *f) {
    fm_npy *first = fm_test_compact_add(f, "atom_perm/first_atom", "<i4", 4, 1, (uint64_t[]){3});
    fm_npy *count = fm_test_compact_add(f, "atom_perm/count", "<i4", 4, 1, (uint64_t[]){2});
    fm_npy *data = fm_test_compact_add(f, "atom_perm/data", "<i2", 2, 1, (uint64_t[]){6});
    static const int block[] = {0, 1, 1, 0, 0, 1};
    for (int i = 1; i <= 2; i++)
        fm_test_compact_set(first, (uint64_t)i, 2 * i);
    fm_test_compact_set(count, 0, 2);
    fm_test_compact_set(count, 1, 1);
    for (uint64_t i = 0; i < 6; i++)
        fm_test_compact_set(data, i, block[i]);
}

#endif
