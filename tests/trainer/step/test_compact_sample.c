/* test_compact_sample.c: the compact form of a stored sample gives the same arrays as the whole
 * form, and what does not fit it is refused by name. */
#include "tests/testing/compact_sample.h"
#include "proto/complex_sample.h"
#include "tests/trainer/common/golden.h"
#include "trainer/backend/cpu_threads.h"
#include "trainer/step/af3/stored.h"

#include <math.h>

typedef struct fixture {
    fm_test_compact both;
    fm_arena arena;
} fixture;

static int set_up(void **state) {
    static fixture f;
    fm_test_compact_make(&f.both, 1);
    fm_test_compact_add_symmetries(&f.both);
    *state = &f;
    return fm_arena_init(&f.arena, (size_t)1 << 30, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_test_complex_free(&f->both.whole);
    fm_test_complex_free(&f->both.compact);
    fm_arena_fini(&f->arena);
    return 0;
}

static void both_forms_are_equal(void **state) {
    fixture *f = *state;
    fm_npz whole;
    fm_error error = {.message = ""};
    uint32_t n_left_out = 9;
    assert_true(fm_complex_sample_is_compact(&f->both.compact.npz));
    assert_false(fm_complex_sample_is_compact(&f->both.whole.npz));
    if (fm_complex_sample_expand(&f->both.compact.npz, &f->arena, &whole, &n_left_out, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(n_left_out, 0);
    assert_int_equal(whole.n_array, f->both.whole.npz.n_array);
    for (size_t i = 0; i < whole.n_array; i++) {
        const fm_npy *ours = &whole.arrays[i],
                     *theirs = fm_test_complex_find(&f->both.whole, ours->name);
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
    fm_npy *deletion = fm_test_complex_find(&f->both.compact, "deletion");
    fm_test_compact_set(deletion, 3, 3);
    *(float *)(uintptr_t)fm_test_complex_find(&f->both.compact, "resolution")->data = -1;
    fm_test_complex_find(&f->both.compact, "restype")->name = "features/restype";
    if (fm_stored_sample_check(&f->both.compact.npz, &f->arena, &features, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(features.sample.n_token, FM_TEST_TOKENS);
    assert_true(features.sample.has_deletion[3] == 1 && features.sample.has_deletion[4] == 0);
    assert_true(features.sample.deletion_value[3] == 0.5f); /* atan(1) of pi / 2 */
    assert_true(features.labels.resolution == 0);
    assert_int_equal(features.n_orders, 1);
    assert_int_equal(features.orders[0].order[2], 1);
}

enum { T_PAIRS = FM_TEST_TEMPLATES * FM_TEST_TOKENS * FM_TEST_TOKENS * FM_AF3_TEMPLATE_PAIR };

static void put_value(void *context, int32_t tensor, int64_t at, double value) {
    (void)tensor;
    ((double *)context)[at] = value;
}

static void write_pairs(fixture *f, const fm_af3_sample *sample, double *values) {
    const fm_af3_writer to = {put_value, values};
    memset(values, 0, T_PAIRS * sizeof *values);
    assert_int_equal(fm_af3_write_templates(sample, FM_TEST_TOKENS, 0, &to, &f->arena, NULL),
                     FM_OK);
}

/* A prediction computes the features of template pairs from the atoms, on any number of threads,
 * and has the bits of a sample that is expanded whole. */
static void a_prediction_has_the_same_templates(void **state) {
    fixture *f = *state;
    fm_af3_features whole, predicted;
    static double expected[T_PAIRS], found[T_PAIRS];
    const fm_npy *atoms = fm_test_complex_find(&f->both.compact, "template_atoms");
    const fm_npy *mask = fm_test_complex_find(&f->both.compact, "template_atom_mask");
    for (uint64_t i = 0; i < atoms->count; i++)
        ((float *)(uintptr_t)atoms->data)[i] = (float)(i * 7919 % 400) / 10;
    for (uint64_t i = 0; i < mask->count; i++)
        ((uint8_t *)(uintptr_t)mask->data)[i] = i % 3 ? 15 : 9;
    assert_int_equal(fm_stored_sample_check(&f->both.compact.npz, &f->arena, &whole, NULL), FM_OK);
    assert_int_equal(
        fm_stored_sample_check_predicted(&f->both.compact.npz, &f->arena, &predicted, NULL), FM_OK);
    assert_null(predicted.labels.bond_mask);
    assert_null(predicted.sample.template_distogram);
    write_pairs(f, &whole.sample, expected);
    for (int n = 1; n <= 3; n += 2) {
        fm_cpu_use_threads(n);
        write_pairs(f, &predicted.sample, found);
        assert_memory_equal(expected, found, sizeof found);
    }
    fm_cpu_use_threads(1);
    double sum = 0;
    for (int i = 0; i < T_PAIRS; i++)
        sum += found[i] * found[i];
    assert_true(sum > 2 * FM_TEST_TOKENS * FM_TEST_TOKENS * FM_TEST_TEMPLATES);
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
        fm_npy *array = fm_test_complex_find(&f->both.compact, of_atoms[i]);
        array->count = array->count / array->shape[0] * ATOMS;
        array->shape[0] = ATOMS;
        free((void *)(uintptr_t)array->data);
        void *data = calloc(array->count, array->item_bytes);
        assert_non_null(data);
        array->data = data;
    }
    fm_npy *data = fm_test_complex_find(&f->both.compact, "atom_perm/data");
    free((void *)(uintptr_t)data->data);
    int16_t *block = calloc(2 * ATOMS, sizeof *block);
    assert_non_null(block);
    data->data = block;
    data->count = data->shape[0] = 2 * ATOMS;
    fm_test_compact_set(fm_test_complex_find(&f->both.compact, "atom_perm/first_atom"), 1, ATOMS);
    fm_test_compact_set(fm_test_complex_find(&f->both.compact, "atom_perm/first_atom"), 2, ATOMS);
    assert_int_equal(
        fm_complex_sample_expand(&f->both.compact.npz, &f->arena, &whole, &n_left_out, NULL),
        FM_OK);
    assert_int_equal(n_left_out, 1);
    assert_int_equal(fm_npz_find(&whole, "atom_order_first")->count, 0);
}

static void refused(fixture *f, const char *expected) {
    fm_af3_features features;
    fm_error error = {.message = ""};
    fm_status status = fm_stored_sample_check(&f->both.compact.npz, &f->arena, &features, &error);
    assert_int_equal(status, FM_ERR_DATA);
    assert_string_equal(error.message, expected);
}

static void faults_are_named(void **state) {
    fixture *f = *state;
    fm_npy *array = fm_test_complex_find(&f->both.compact, "restype");
    fm_test_compact_set(array, 2, 32);
    refused(f, "restype[2]: found 32, expected 0 to 31");
    fm_test_compact_set(array, 2, 0);
    array = fm_test_complex_find(&f->both.compact, "token_bonds_pairs");
    fm_test_compact_set(array, 1, 8);
    refused(f, "token_bonds_pairs[1]: found 8, expected 1 to 7");
    fm_test_compact_set(array, 1, 6);
    refused(f, "token_bonds_pairs[0]: found 6, expected 0 to 5");
    fm_test_compact_set(array, 0, -1);
    refused(f, "token_bonds_pairs[0]: found -1, expected 0 to 5");
    fm_test_compact_set(array, 0, 5);
    array = fm_test_complex_find(&f->both.compact, "atom_perm/first_atom");
    fm_test_compact_set(array, 2, 15);
    refused(f, "atom_perm/first_atom[2]: found 15, expected 2 to 14");
    fm_test_compact_set(array, 2, 3);
    refused(f, "atom_perm/data: found 6 numbers, expected 5");
    fm_test_compact_set(array, 2, 4);
    fm_test_compact_set(fm_test_complex_find(&f->both.compact, "atom_perm/data"), 1, 2);
    refused(f, "atom_order[2]: found 2, expected each atom of the group once");
    fm_test_compact_set(fm_test_complex_find(&f->both.compact, "atom_perm/data"), 1, 1);
    array = fm_test_complex_find(&f->both.compact, "deletion");
    snprintf(array->dtype, sizeof array->dtype, "<u2");
    refused(f, "deletion: found type <u2, expected |u1");
    snprintf(array->dtype, sizeof array->dtype, "|u1");
    array->shape[0] = 6;
    refused(f, "deletion: found shape [6, 8], expected [5, 8]");
    array->name = "deletions";
    refused(f, "deletion: the array is missing");
    array = fm_test_complex_find(&f->both.compact, "asym_id");
    array->shape[0] = 4097;
    refused(f, "asym_id: found length 4097, expected 1 to 4096");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(both_forms_are_equal, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_trainer_reads_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_prediction_has_the_same_templates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(large_groups_are_left_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(faults_are_named, set_up, tear_down),
    };
    return cmocka_run_group_tests_name("compact_sample", tests, NULL, NULL);
}
