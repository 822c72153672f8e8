/* test_complex_atoms.c: the names of a complex come back from an archive as they were written, and
 * tables that contradict themselves are refused with the array and its place. */
#include "proto/base/file.h"
#include "proto/complex_atoms.h"
#include "tests/testing/complex_names.h"
#include "tests/testing/testing.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static char folder[512], path[600];
static fm_arena arena;

static int setup(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    snprintf(path, sizeof path, "%s/names.npz", folder);
    return fm_arena_init(&arena, (size_t)64 << 20, NULL);
}

static int teardown(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

/* Writes the table and reads it back. */
static fm_status pass(const fm_complex_atoms *atoms, fm_complex_atoms *ret_atoms, fm_error *error) {
    fm_npz_writer *writer;
    fm_bytes bytes;
    fm_npz npz;
    assert_int_equal(fm_npz_writer_create(path, &writer, NULL), FM_OK);
    assert_int_equal(fm_complex_atoms_append(writer, atoms, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
    assert_int_equal(fm_file_read(&arena, path, (size_t)1 << 20, &bytes, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&arena, bytes, &npz, NULL), FM_OK);
    return fm_complex_atoms_read(&npz, &arena, ret_atoms, error);
}

static void expect_texts(const char *const *found, const char *const *expected, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        assert_string_equal(found[i], expected[i]);
}

static void test_comes_back(void **state) {
    (void)state;
    const fm_complex_atoms a = fm_test_complex_names();
    fm_complex_atoms b;
    fm_error error = {.message = ""};
    if (pass(&a, &b, &error)) fail_msg("%s", error.message);
    assert_int_equal(b.n_entity, a.n_entity);
    assert_int_equal(b.n_chain, a.n_chain);
    assert_int_equal(b.n_residue, a.n_residue);
    assert_int_equal(b.n_atom, a.n_atom);
    assert_int_equal(b.n_bond, a.n_bond);
    assert_int_equal(b.n_component, a.n_component);
    assert_int_equal(b.n_component_atom, a.n_component_atom);
    assert_int_equal(b.n_component_bond, a.n_component_bond);
    expect_texts(b.entity_description, a.entity_description, a.n_entity);
    expect_texts(b.chain_id, a.chain_id, a.n_chain);
    expect_texts(b.atom_name, a.atom_name, a.n_atom);
    expect_texts(b.component_id, a.component_id, a.n_component);
    expect_texts(b.component_type, a.component_type, a.n_component);
    expect_texts(b.component_description, a.component_description, a.n_component);
    expect_texts(b.component_formula, a.component_formula, a.n_component);
    expect_texts(b.component_atom_name, a.component_atom_name, a.n_component_atom);
    assert_memory_equal(b.entity_kind, a.entity_kind, a.n_entity);
    assert_memory_equal(b.chain_entity, a.chain_entity, a.n_chain * 4);
    assert_memory_equal(b.residue_chain, a.residue_chain, a.n_residue * 4);
    assert_memory_equal(b.residue_number, a.residue_number, a.n_residue * 4);
    assert_memory_equal(b.residue_component, a.residue_component, a.n_residue * 4);
    assert_memory_equal(b.residue_letter, a.residue_letter, a.n_residue);
    assert_memory_equal(b.atom_residue, a.atom_residue, a.n_atom * 4);
    assert_memory_equal(b.atom_element, a.atom_element, a.n_atom);
    assert_memory_equal(b.atom_charge, a.atom_charge, a.n_atom);
    assert_memory_equal(b.bond, a.bond, a.n_bond * 8);
    assert_memory_equal(b.component_weight, a.component_weight, a.n_component * 4);
    assert_memory_equal(b.component_atom_element, a.component_atom_element, a.n_component_atom);
    assert_memory_equal(b.component_atom_charge, a.component_atom_charge, a.n_component_atom);
    assert_memory_equal(b.component_bond, a.component_bond, a.n_component_bond * 8);
    assert_memory_equal(b.component_bond_order, a.component_bond_order, a.n_component_bond);
    assert_true(fm_complex_is_polymer(&b, 0));
    assert_false(fm_complex_is_polymer(&b, 2));
}

static void expect_refusal(const fm_complex_atoms *atoms, const char *message) {
    fm_complex_atoms read;
    fm_error error = {.message = ""};
    assert_int_equal(pass(atoms, &read, &error), FM_ERR_DATA);
    assert_string_equal(error.message, message);
}

static void test_numbers(void **state) {
    (void)state;
    fm_complex_atoms a = fm_test_complex_names();
    static const uint8_t kinds[] = {0, 4, 3};
    a.entity_kind = kinds;
    expect_refusal(&a, "names/entity_kind[1]: found 4, expected 0 to 3");
    a = fm_test_complex_names();
    static const int32_t entities[] = {0, 1, 3}, same[] = {0, 1, 1};
    a.chain_entity = entities;
    expect_refusal(&a, "names/chain_entity[2]: found 3, expected 0 to 2");
    a.chain_entity = same;
    expect_refusal(&a, "names/chain_entity: found no chain of entity 2, expected one");
    a = fm_test_complex_names();
    static const int32_t numbers[] = {1, 2, 1, 3, 1};
    a.residue_number = numbers;
    expect_refusal(&a, "names/residue_number[3]: found 3, expected 2");
    a = fm_test_complex_names();
    static const uint8_t letters[] = {'G', 'C', '@', '?', '?'};
    a.residue_letter = letters;
    expect_refusal(&a, "names/residue_letter[2]: found 64, expected a capital letter or ?");
    a = fm_test_complex_names();
    static const float weights[] = {75, 121, __builtin_nanf(""), 24};
    a.component_weight = weights;
    expect_refusal(&a, "names/component_weight[2]: found nan, expected 0 to 1000000");
}

static void test_order(void **state) {
    (void)state;
    fm_complex_atoms a = fm_test_complex_names();
    static const int32_t split[] = {0, 1, 0, 1, 2}, few[] = {0, 0, 1, 1, 1};
    a.residue_chain = split;
    expect_refusal(&a, "names/residue_chain[2]: found 0, expected 1 or 2");
    a.residue_chain = few;
    expect_refusal(&a, "names/residue_chain: found rows of 2, expected rows of 3");
    a = fm_test_complex_names();
    static const int32_t turned[] = {4, 2, 8, 9, 12, 13};
    a.bond = turned;
    expect_refusal(&a, "names/bond[0]: found 4 and 2, expected the less first");
    a = fm_test_complex_names();
    static const int32_t across[] = {0, 5};
    a.component_bond = across;
    a.n_component_bond = 1;
    expect_refusal(&a, "names/component_bond[0]: found 0 and 5, expected two of one component, the "
                       "less first");
}

static void test_texts(void **state) {
    (void)state;
    fm_complex_atoms a = fm_test_complex_names();
    static const char *const blank[] = {"A", "B C", "D"}, *const twice[] = {"A", "B", "A"};
    a.chain_id = blank;
    expect_refusal(&a, "names/chain_id[1]: found 3 bytes that are no name, expected 1 to 255 "
                       "letters without blanks");
    a.chain_id = twice;
    expect_refusal(&a, "names/chain_id: found A twice, expected every id once");
    a = fm_test_complex_names();
    static const char *const broken[] = {"a\nb", "", ""};
    a.entity_description = broken;
    expect_refusal(&a, "names/entity_description[0]: found 3 bytes that are no text, expected "
                       "UTF-8 without control bytes");
}

static void test_arrays(void **state) {
    (void)state;
    static const uint8_t kinds[] = {0};
    static const uint64_t one[] = {1};
    fm_npz_writer *writer;
    fm_bytes bytes;
    fm_npz npz;
    fm_complex_atoms read;
    fm_error error;
    assert_int_equal(fm_npz_writer_create(path, &writer, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "names/entity_kind", "|i1", 1, one, kinds, NULL),
                     FM_OK);
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
    assert_int_equal(fm_file_read(&arena, path, (size_t)1 << 20, &bytes, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&arena, bytes, &npz, NULL), FM_OK);
    assert_int_equal(fm_complex_atoms_read(&npz, &arena, &read, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "names/entity_kind: found type |i1, expected |u1");
    npz.n_array = 0;
    assert_int_equal(fm_complex_atoms_read(&npz, &arena, &read, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "names/entity_kind: the array is missing");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_back), cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_order),      cmocka_unit_test(test_texts),
        cmocka_unit_test(test_arrays),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
