/* test_compact_sample.c: the compact form of a stored sample gives the same arrays as the whole
 * form, and what does not fit it is refused by name. */
#include "tests/testing/complex_sample.h"
#include "proto/complex_sample.h"
#include "tests/trainer/common/golden.h"
#include "trainer/step/af3/stored.h"

#include <math.h>

/* A whole sample and its compact form. */
typedef struct fixture {
    fm_test_complex whole, compact;
    fm_arena arena;
} fixture;

static fm_npy *add(fixture *f, const char *name, const char *dtype, size_t item, size_t rank,
                   const uint64_t *shape) {
    fm_npy *array = &f->compact.array[f->compact.npz.n_array++];
    *array = (fm_npy){.name = name, .item_bytes = item, .rank = rank, .count = 1};
    snprintf(array->dtype, sizeof array->dtype, "%s", dtype);
    for (size_t k = 0; k < rank; k++)
        array->count *= array->shape[k] = shape[k];
    void *data = calloc(array->count + 1, item);
    assert_non_null(data);
    array->data = data;
    return array;
}

static double whole_value(const fm_npy *array, uint64_t i) {
    return array->item_bytes == 4 ? (double)((const float *)array->data)[i]
                                  : (double)((const int64_t *)array->data)[i];
}

static void set(fm_npy *array, uint64_t i, int value) {
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
static void narrow(fixture *f, const char *name, const char *dtype, size_t item) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    fm_npy *to = add(f, name, dtype, item, from->rank, from->shape);
    for (uint64_t i = 0; i < to->count; i++)
        set(to, i, (int)whole_value(from, i));
}

static void copy(fixture *f, const char *name) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    fm_npy *to = add(f, name, from->dtype, 4, from->rank, from->shape);
    memcpy((void *)(uintptr_t)to->data, from->data, from->count * 4);
}

/* The place of the 1 in each row of the last axis. */
static void find_ones(fixture *f, const char *name) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    uint64_t n = from->shape[from->rank - 1];
    fm_npy *to = add(f, name, "|u1", 1, from->rank - 1, from->shape);
    for (uint64_t i = 0; i < from->count; i++)
        if (whole_value(from, i) == 1) set(to, i / n, (int)(i % n));
}

static void list_pairs(fixture *f, const char *name, const char *compact) {
    const fm_npy *from = fm_test_complex_find(&f->whole, name);
    uint64_t n = from->shape[0];
    fm_npy *to = add(f, compact, "<i4", 4, 2, (uint64_t[]){n, 2});
    uint64_t n_pair = 0;
    for (uint64_t i = 0; i < n * n; i++) {
        if (whole_value(from, i) != 1 || i / n > i % n) continue;
        set(to, 2 * n_pair, (int)(i / n));
        set(to, 2 * n_pair++ + 1, (int)(i % n));
    }
    to->shape[0] = n_pair;
    to->count = 2 * n_pair;
}

static void make_compact(fixture *f) {
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
        narrow(f, numbers[i], "<i4", 4);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        narrow(f, bytes[i], "|u1", 1);
    for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
        copy(f, copies[i]);
    for (size_t i = 0; i < sizeof ones / sizeof *ones; i++)
        find_ones(f, ones[i]);
    narrow(f, "ref_charge", "|i1", 1);
    list_pairs(f, "token_bonds", "token_bonds_pairs");
    list_pairs(f, "bond_mask", "bond_mask_pairs");
    add(f, "deletion", "|u1", 1, 2, (uint64_t[]){FM_TEST_ROWS, FM_TEST_TOKENS});
    add(f, "template_atoms", "<f4", 4, 4, (uint64_t[]){FM_TEST_TEMPLATES, FM_TEST_TOKENS, 4, 3});
    add(f, "template_atom_mask", "|u1", 1, 2, (uint64_t[]){FM_TEST_TEMPLATES, FM_TEST_TOKENS});
    f->compact.npz.arrays = f->compact.array;
}

/* Two residues, of which only the first has two orders; both are of two atoms. */
static void add_symmetries(fixture *f) {
    fm_npy *first = add(f, "atom_perm/first_atom", "<i4", 4, 1, (uint64_t[]){3});
    fm_npy *count = add(f, "atom_perm/count", "<i4", 4, 1, (uint64_t[]){2});
    fm_npy *data = add(f, "atom_perm/data", "<i2", 2, 1, (uint64_t[]){6});
    static const int block[] = {0, 1, 1, 0, 0, 1};
    for (int i = 1; i <= 2; i++)
        set(first, (uint64_t)i, 2 * i);
    set(count, 0, 2);
    set(count, 1, 1);
    for (uint64_t i = 0; i < 6; i++)
        set(data, i, block[i]);
}

static int set_up(void **state) {
    static fixture f;
    f = (fixture){.compact = {.npz = {0}}};
    fm_test_complex_make(&f.whole, 1);
    make_compact(&f);
    add_symmetries(&f);
    *state = &f;
    return fm_arena_init(&f.arena, (size_t)1 << 30, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_test_complex_free(&f->whole);
    fm_test_complex_free(&f->compact);
    fm_arena_fini(&f->arena);
    return 0;
}

static void both_forms_are_equal(void **state) {
    fixture *f = *state;
    fm_npz whole;
    fm_error error = {.message = ""};
    uint32_t n_left_out = 9;
    assert_true(fm_complex_sample_is_compact(&f->compact.npz));
    assert_false(fm_complex_sample_is_compact(&f->whole.npz));
    if (fm_complex_sample_expand(&f->compact.npz, &f->arena, &whole, &n_left_out, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(n_left_out, 0);
    assert_int_equal(whole.n_array, f->whole.npz.n_array);
    for (size_t i = 0; i < whole.n_array; i++) {
        const fm_npy *ours = &whole.arrays[i],
                     *theirs = fm_test_complex_find(&f->whole, ours->name);
        assert_string_equal(ours->dtype, theirs->dtype);
        assert_int_equal(ours->rank, theirs->rank);
        assert_memory_equal(ours->shape, theirs->shape, ours->rank * sizeof *ours->shape);
        if (memcmp(ours->data, theirs->data, ours->count * ours->item_bytes) != 0) {
            fail_msg("%s differs", ours->name);
        }
    }
}

static void the_trainer_reads_it(void **state) {
    fixture *f = *state;
    fm_af3_features features;
    fm_error error = {.message = ""};
    fm_npy *deletion = fm_test_complex_find(&f->compact, "deletion");
    set(deletion, 3, 3);
    *(float *)(uintptr_t)fm_test_complex_find(&f->compact, "resolution")->data = -1;
    fm_test_complex_find(&f->compact, "restype")->name = "features/restype";
    if (fm_stored_sample_check(&f->compact.npz, &f->arena, &features, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(features.sample.n_token, FM_TEST_TOKENS);
    assert_true(features.sample.has_deletion[3] == 1 && features.sample.has_deletion[4] == 0);
    assert_true(features.sample.deletion_value[3] == 0.5f); /* atan(1) of pi / 2 */
    assert_true(features.labels.resolution == 0);
    assert_int_equal(features.n_orders, 1);
    assert_int_equal(features.orders[0].order[2], 1);
}

/* A group of more than 64 atoms keeps its labels, and is counted. */
static void large_groups_are_left_out(void **state) {
    fixture *f = *state;
    enum { ATOMS = 70 };
    fm_npz whole;
    uint32_t n_left_out = 0;
    static const char *const of_atoms[] = {"atom_to_token_idx",
                                           "atom_to_tokatom_idx",
                                           "ref_pos",
                                           "ref_charge",
                                           "ref_mask",
                                           "ref_element",
                                           "ref_atom_name_chars",
                                           "ref_space_uid",
                                           "is_rna",
                                           "is_dna",
                                           "is_ligand",
                                           "distogram_rep_atom_mask",
                                           "pae_rep_atom_mask",
                                           "plddt_m_rep_atom_mask",
                                           "coordinate",
                                           "coordinate_mask"};
    for (size_t i = 0; i < sizeof of_atoms / sizeof *of_atoms; i++) {
        fm_npy *array = fm_test_complex_find(&f->compact, of_atoms[i]);
        array->count = array->count / array->shape[0] * ATOMS;
        array->shape[0] = ATOMS;
        free((void *)(uintptr_t)array->data);
        void *data = calloc(array->count, array->item_bytes);
        assert_non_null(data);
        array->data = data;
    }
    fm_npy *data = fm_test_complex_find(&f->compact, "atom_perm/data");
    free((void *)(uintptr_t)data->data);
    int16_t *block = calloc(2 * ATOMS, sizeof *block);
    assert_non_null(block);
    data->data = block;
    data->count = data->shape[0] = 2 * ATOMS;
    set(fm_test_complex_find(&f->compact, "atom_perm/first_atom"), 1, ATOMS);
    set(fm_test_complex_find(&f->compact, "atom_perm/first_atom"), 2, ATOMS);
    assert_int_equal(
        fm_complex_sample_expand(&f->compact.npz, &f->arena, &whole, &n_left_out, NULL), FM_OK);
    assert_int_equal(n_left_out, 1);
    assert_int_equal(fm_npz_find(&whole, "atom_order_first")->count, 0);
}

static void refused(fixture *f, const char *expected) {
    fm_af3_features features;
    fm_error error = {.message = ""};
    fm_status status = fm_stored_sample_check(&f->compact.npz, &f->arena, &features, &error);
    assert_int_equal(status, FM_ERR_DATA);
    assert_string_equal(error.message, expected);
}

static void faults_are_named(void **state) {
    fixture *f = *state;
    fm_npy *array = fm_test_complex_find(&f->compact, "restype");
    set(array, 2, 32);
    refused(f, "restype[2]: found 32, expected 0 to 31");
    set(array, 2, 0);
    array = fm_test_complex_find(&f->compact, "token_bonds_pairs");
    set(array, 1, 8);
    refused(f, "token_bonds_pairs[1]: found 8, expected 1 to 7");
    set(array, 1, 6);
    refused(f, "token_bonds_pairs[0]: found 6, expected 0 to 5");
    set(array, 0, -1);
    refused(f, "token_bonds_pairs[0]: found -1, expected 0 to 5");
    set(array, 0, 5);
    array = fm_test_complex_find(&f->compact, "atom_perm/first_atom");
    set(array, 2, 15);
    refused(f, "atom_perm/first_atom[2]: found 15, expected 2 to 14");
    set(array, 2, 3);
    refused(f, "atom_perm/data: found 6 numbers, expected 5");
    set(array, 2, 4);
    set(fm_test_complex_find(&f->compact, "atom_perm/data"), 1, 2);
    refused(f, "atom_order[2]: found 2, expected each atom of the group once");
    set(fm_test_complex_find(&f->compact, "atom_perm/data"), 1, 1);
    array = fm_test_complex_find(&f->compact, "deletion");
    snprintf(array->dtype, sizeof array->dtype, "<u2");
    refused(f, "deletion: found type <u2, expected |u1");
    snprintf(array->dtype, sizeof array->dtype, "|u1");
    array->shape[0] = 6;
    refused(f, "deletion: found shape [6, 8], expected [5, 8]");
    array->name = "deletions";
    refused(f, "deletion: the array is missing");
    array = fm_test_complex_find(&f->compact, "asym_id");
    array->shape[0] = 4097;
    refused(f, "asym_id: found length 4097, expected 1 to 4096");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_forms_are_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_trainer_reads_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_groups_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(faults_are_named, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("compact_sample", tests, NULL, NULL);
}
