/* test_stored_sample.c: stored samples of complexes: what is read, and that everything that does
 * not fit the format is refused with the array, what was found and what was expected. */
#include "tests/testing/complex_sample.h"
#include "tests/trainer/common/golden.h"
#include "trainer/step/af3/stored.h"

static fm_status check(const fm_test_complex *c, fm_af3_features *features, fm_error *error) {
    static fm_arena arena;
    if (!arena.base) assert_int_equal(fm_arena_init(&arena, (size_t)1 << 24, NULL), FM_OK);
    return fm_stored_sample_check(&c->npz, &arena, features, error);
}

static void a_whole_sample_is_read(void **state) {
    (void)state;
    fm_test_complex c;
    fm_af3_features f;
    fm_error error = {.message = ""};
    fm_test_complex_make(&c, 1);
    if (check(&c, &f, &error)) fail_msg("%s", error.message);
    assert_int_equal(f.sample.n_token, FM_TEST_TOKENS);
    assert_int_equal(f.sample.n_atom, FM_TEST_ATOMS);
    assert_int_equal(f.sample.n_msa, FM_TEST_ROWS);
    assert_int_equal(f.sample.n_template, FM_TEST_TEMPLATES);
    assert_ptr_equal(f.labels.atom_to_token_idx, f.sample.atom_to_token_idx);
    assert_int_equal(fm_complex_count_bonds(&f.labels), 1);
    assert_true(f.labels.resolution == 2);
    assert_int_equal(f.number[4], 1);
    assert_int_equal(f.n_orders, 1);
    assert_int_equal(f.orders[0].n_order, 2);
    assert_int_equal(f.orders[0].order[2], 1);
    fm_test_complex_free(&c);
}

/* Templates, numbers and orders may be absent, and names may have the prefix of reference files. */
static void some_arrays_are_optional(void **state) {
    (void)state;
    fm_test_complex c;
    fm_af3_features f;
    fm_error error = {.message = ""};
    fm_test_complex_make(&c, 1);
    for (size_t i = 0; i < c.npz.n_array; i++) {
        const char *name = c.array[i].name;
        bool is_optional = strncmp(name, "template_", 9) == 0 || !strcmp(name, "token_number") ||
                           strncmp(name, "atom_order", 10) == 0;
        if (is_optional) c.array[i].name = "another";
    }
    fm_test_complex_find(&c, "ref_pos")->name = "in/ref_pos";
    if (check(&c, &f, &error)) fail_msg("%s", error.message);
    assert_int_equal(f.sample.n_template, 0);
    assert_null(f.number);
    assert_int_equal(f.n_orders, 0);
    assert_non_null(f.sample.ref_pos);
    fm_test_complex_free(&c);
}

/* Arrays of no templates are as good as none, as long as all of them have none. */
static void no_templates_may_be_stored(void **state) {
    (void)state;
    fm_test_complex c;
    fm_af3_features f;
    fm_error error = {.message = ""};
    fm_test_complex_make(&c, 1);
    fm_npy *last = NULL;
    for (size_t i = 0; i < c.npz.n_array; i++) {
        if (strncmp(c.array[i].name, "template_", 9) != 0) continue;
        last = &c.array[i];
        last->shape[0] = last->count = 0;
    }
    if (check(&c, &f, &error)) fail_msg("%s", error.message);
    assert_int_equal(f.sample.n_template, 0);
    last->shape[0] = FM_TEST_TEMPLATES;
    assert_int_equal(check(&c, &f, &error), FM_ERR_DATA);
    assert_non_null(strstr(error.message, "found shape [2, 8, 8]"));
    fm_test_complex_free(&c);
}

/* Only the compact form has templates as atoms. In the whole form nothing checks their mask. */
static void a_prediction_takes_no_atoms_of_the_whole_form(void **state) {
    (void)state;
    static const uint64_t of_atoms[] = {FM_TEST_TEMPLATES, FM_TEST_TOKENS, 4, 3};
    fm_test_complex c;
    fm_af3_features f;
    fm_arena arena;
    fm_error error = {.message = ""};
    fm_test_complex_make(&c, 1);
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 24, NULL), FM_OK);
    assert_int_equal(fm_stored_sample_check_predicted(&c.npz, &arena, &f, &error), FM_OK);
    assert_non_null(f.sample.template_distogram);
    fm_npy *atoms = fm_test_complex_find(&c, "template_unit_vector");
    atoms->name = "template_atoms";
    memcpy(atoms->shape, of_atoms, sizeof of_atoms);
    atoms->count = FM_TEST_TEMPLATES * FM_TEST_TOKENS * 12;
    fm_test_complex_find(&c, "template_distogram")->name = "another";
    assert_int_equal(fm_stored_sample_check_predicted(&c.npz, &arena, &f, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "template_distogram: the array is missing");
    fm_arena_fini(&arena);
    fm_test_complex_free(&c);
}

static void refuse(const fm_test_complex *c, const char *message) {
    fm_af3_features f;
    fm_error error = {.message = ""};
    assert_int_equal(check(c, &f, &error), FM_ERR_DATA);
    bool is_said = strstr(error.message, message) != NULL;
    if (!is_said) fail_msg("found: %s\nexpected: %s", error.message, message);
}

static void values_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *array;
        uint64_t at;
        double value;
        const char *message;
    } cases[] = {
        {"restype", 3, NAN, "restype[3]: found nan, expected -1000000 to 1000000"},
        {"profile", 0, INFINITY, "profile[0]: found inf"},
        {"coordinate", 5, 2e5, "coordinate[5]: found 200000, expected -100000 to 100000"},
        {"coordinate_mask", 2, 0.5, "coordinate_mask[2]: found 0.5, expected 0 or 1"},
        {"msa", 7, 32, "msa[7]: found 32, expected 0 to 31"},
        {"msa", 7, -1, "msa[7]: found -1, expected 0 to 31"},
        {"template_aatype", 1, 40, "template_aatype[1]: found 40"},
        {"template_unit_vector", 1, 3, "template_unit_vector[1]: found 3"},
        {"asym_id", 4, 0, "asym_id[4]: found 0, expected the tokens of a chain side by side"},
        {"asym_id", 0, 5e9, "asym_id[0]: found 5e+09"},
        {"entity_id", 1, 4, "entity_id[1]: found 4, expected one molecule in each chain"},
        {"atom_to_token_idx", 0, 1, "atom_to_token_idx[0]: found 1"},
        {"atom_to_token_idx", 5, 4, "atom_to_token_idx[5]: found 4"},
        {"atom_to_token_idx", 5, 0, "atom_to_token_idx[5]: found 0"},
        {"atom_to_token_idx", 13, 9, "atom_to_token_idx[13]: found 9"},
        {"atom_to_token_idx", 13, 6, "a slot that no other atom of the token has"},
        {"atom_to_tokatom_idx", 1, 24, "atom_to_tokatom_idx[1]: found 24, expected 0 to 23"},
        {"atom_to_tokatom_idx", 1, 0, "a slot that no other atom of the token has"},
        {"ref_space_uid", 1, -1, "ref_space_uid[1]: found -1"},
        {"ref_element", 0, 1, "ref_element: found 2 ones in row 0, expected at most 1"},
        {"ref_atom_name_chars", 9, 1, "ref_atom_name_chars: found 2 ones in row 0"},
        {"token_bonds", 3, 1, "token_bonds: elements [0, 3] and [3, 0] differ"},
        {"bond_mask", 3, 1, "bond_mask: elements [0, 3] and [3, 0] differ"},
        {"distogram_rep_atom_mask", 0, 0, "found 0 atoms of token 0, expected exactly one"},
        {"distogram_rep_atom_mask", 1, 1, "found 2 atoms of token 0, expected exactly one"},
        {"pae_rep_atom_mask", 3, 1, "found 2 atoms of token 1, expected at most one"},
        {"frame_atom_index", 1, 14, "frame_atom_index[1]: found 14, expected 0 to 13"},
        {"frame_atom_index", 1, -1, "frame_atom_index[1]: found -1, expected 0 to 13"},
        {"resolution", 0, -1, "resolution[0]: found -1"},
        {"resolution", 0, NAN, "resolution[0]: found nan"},
        {"token_number", 2, 1, "token_number[2]: found 1, expected more than the token before"},
        {"atom_order", 0, 1, "atom_order[0]: found 1, expected the given order"},
        {"atom_order", 3, 1, "atom_order[3]: found 1, expected each atom of the group once"},
        {"atom_order", 3, 7, "atom_order[3]: found 7"},
        {"atom_order_first", 0, 13, "found a group of 2 atoms from 13"},
        {"atom_order_first", 0, -1, "found a group of 2 atoms from -1"},
        {"atom_order_size", 0, 65, "found a group of 65 atoms"},
        {"atom_order_count", 0, 3, "with 3 orders"},
        {"atom_order_count", 0, 1, "atom_order: found 4 numbers, expected 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_test_complex c;
        fm_test_complex_make(&c, 1);
        fm_test_complex_set(fm_test_complex_find(&c, cases[i].array), cases[i].at, cases[i].value);
        refuse(&c, cases[i].message);
        fm_test_complex_free(&c);
    }
}

/* Every required array is checked, and every type and shape. */
static void arrays_types_and_shapes_are_checked(void **state) {
    (void)state;
    fm_test_complex c;
    fm_test_complex_make(&c, 1);
    for (size_t i = 0; i < c.npz.n_array; i++) {
        fm_npy *array = &c.array[i], before = *array;
        char type[64];
        snprintf(type, sizeof type, "%s: found type <f8, expected %s", before.name, before.dtype);
        snprintf(array->dtype, sizeof array->dtype, "<f8");
        refuse(&c, type);
        *array = before;
        array->rank++;
        array->shape[array->rank - 1] = 1;
        refuse(&c, before.name);
        *array = before;
        array->shape[0]++;
        array->name = before.name;
        fm_af3_features f;
        fm_error error = {.message = ""};
        assert_int_equal(check(&c, &f, &error), FM_ERR_DATA);
        *array = before;
        bool is_optional = !strcmp(before.name, "token_number") ||
                           !strcmp(before.name, "atom_order") ||
                           !strcmp(before.name, "template_aatype");
        if (is_optional) continue;
        array->name = "another";
        refuse(&c, "the array is missing");
        *array = before;
    }
    fm_test_complex_free(&c);
}

static void sizes_are_bounded(void **state) {
    (void)state;
    fm_test_complex c;
    fm_test_complex_make(&c, 1);
    fm_test_complex_find(&c, "asym_id")->shape[0] = FM_STORED_TOKENS + 1;
    refuse(&c, "asym_id: found length 4097, expected 1 to 4096");
    fm_test_complex_find(&c, "asym_id")->shape[0] = 0;
    refuse(&c, "asym_id: found length 0, expected 1 to 4096");
    fm_test_complex_find(&c, "asym_id")->shape[0] = FM_TEST_TOKENS;
    fm_test_complex_find(&c, "msa")->shape[0] = (uint64_t)1 << 40;
    refuse(&c, "msa: found length 1099511627776");
    fm_test_complex_free(&c);
}

static void errors_name_the_file(void **state) {
    (void)state;
    char folder[512], path[600];
    fm_test_complex c;
    fm_stored_sample sample;
    fm_error error = {.message = ""};
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/a.npz", folder);
    fm_test_complex_make(&c, 1);
    fm_test_complex_write(&c, path);
    assert_int_equal(fm_stored_sample_read(path, &sample, &error), FM_OK);
    assert_int_equal(sample.features.sample.n_token, FM_TEST_TOKENS);
    fm_stored_sample_release(&sample);
    fm_test_complex_set(fm_test_complex_find(&c, "msa"), 0, 99);
    fm_test_complex_write(&c, path);
    assert_int_equal(fm_stored_sample_read(path, &sample, &error), FM_ERR_DATA);
    assert_string_equal(error.source, path);
    assert_string_equal(error.message, "msa[0]: found 99, expected 0 to 31");
    fm_test_complex_free(&c);
    fm_test_remove_tree(folder);
}

/* A file of the reference is a sample. */
static void files_of_the_reference_are_samples(void **state) {
    (void)state;
    golden file = {0};
    golden_open(&file, "af3/af3.npz");
    fm_af3_features f;
    fm_error error = {.message = ""};
    if (fm_stored_sample_check(&file.npz, &file.arena, &f, &error)) fail_msg("%s", error.message);
    assert_int_equal(f.sample.n_token, 25);
    assert_int_equal(f.sample.n_atom, 206);
    assert_null(f.number);
    golden_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_sample_is_read),
        cmocka_unit_test(some_arrays_are_optional),
        cmocka_unit_test(no_templates_may_be_stored),
        cmocka_unit_test(a_prediction_takes_no_atoms_of_the_whole_form),
        cmocka_unit_test(values_are_checked),
        cmocka_unit_test(arrays_types_and_shapes_are_checked),
        cmocka_unit_test(sizes_are_bounded),
        cmocka_unit_test(errors_name_the_file),
        cmocka_unit_test(files_of_the_reference_are_samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
