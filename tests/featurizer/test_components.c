/* test_components.c: chemical components from text, their canonical form, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/components_code.h"
#include "proto/base/file.h"
#include "proto/chem/element.h"
#include "proto/limits.h"
#include "tests/testing/testing.h"

#include <stdio.h>
#include <string.h>

#define ATOMS                                                                                      \
    "loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n_chem_comp_atom.charge\n"        \
    "_chem_comp_atom.pdbx_leaving_atom_flag\n_chem_comp_atom.pdbx_stereo_config\n"                 \
    "_chem_comp_atom.pdbx_model_Cartn_x_ideal\n_chem_comp_atom.pdbx_model_Cartn_y_ideal\n"         \
    "_chem_comp_atom.pdbx_model_Cartn_z_ideal\n"
#define BONDS                                                                                      \
    "loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n_chem_comp_bond.value_order\n"   \
    "_chem_comp_bond.pdbx_aromatic_flag\n"

/* Bonds come before atoms here, and a hydrogen stands between the heavy atoms. */
static const char two[] =
    "data_ZZ\n_chem_comp.id ZZ\n_chem_comp.type 'L-peptide linking'\n"
    "_chem_comp.one_letter_code s\n_chem_comp.pdbx_initial_date 1999-07-08\n"
    "_chem_comp.name\n;A LONG\n\xc3\xa9 NAME\n;\n_chem_comp.formula 'C2 H1 O1'\n"
    "_chem_comp.formula_weight 41.5\n" BONDS "O C1 DOUB Y\nC1 H1 SING N\nC1 \"C2'\" SING N\n" ATOMS
    "C1 C 0 N S 1.5 2 -3\nH1 H 0 Y N ? ? ?\n\"C2'\" C -1 Y ? ? ? ?\n"
    "O O ? N N 0 0 0\n"
    "data_MG\n_chem_comp.id MG\n_chem_comp.type NON-POLYMER\n"
    "_chem_comp_atom.atom_id MG\n_chem_comp_atom.type_symbol MG\n"
    "_chem_comp_atom.charge 2\n";

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)256 << 20, NULL);
}
static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_status parse(const char *text, fm_components *ret_set, fm_error *reterr) {
    return fm_components_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, &arena, ret_set,
                               reterr);
}

static void components_are_read(void **state) {
    (void)state;
    fm_components set;
    fm_error error;
    if (parse(two, &set, &error)) fail_msg("%s", error.message);
    assert_int_equal(set.n, 2);
    assert_string_equal(set.items[0].id, "MG");
    assert_null(fm_components_find(&set, "ZZZ"));
    assert_null(fm_components_find(&set, "LONGER_THAN_AN_ID"));
    const fm_component *mg = fm_components_find(&set, "MG"), *zz = fm_components_find(&set, "ZZ");
    assert_int_equal(mg->n_atom, 1);
    assert_int_equal(mg->atoms[0].element, 12);
    assert_int_equal(mg->atoms[0].charge, 2);
    assert_int_equal(mg->molecule, FM_MOLECULE_LIGAND);
    assert_int_equal(mg->one_letter, 0);
    assert_string_equal(mg->date, "");
    assert_int_equal(zz->molecule, FM_MOLECULE_PROTEIN);
    assert_int_equal(zz->one_letter, 's');
    assert_string_equal(zz->date, "1999-07-08");
    assert_string_equal(zz->type, "L-peptide linking");
    assert_string_equal(zz->name, "A LONG\xc3\xa9 NAME");
    assert_string_equal(zz->formula, "C2 H1 O1");
    assert_true(zz->weight == 41.5f && mg->weight == 0);
    assert_string_equal(mg->type, "NON-POLYMER");
    assert_string_equal(mg->name, "");
    assert_int_equal(zz->n_atom, 3);
    assert_int_equal(zz->atoms[0].n_hydrogen, 1);
    assert_int_equal(zz->atoms[0].stereo, 'S');
    assert_true(zz->atoms[0].has_ideal && zz->atoms[0].ideal[2] == -3.0f);
    assert_false(zz->atoms[0].has_model || zz->atoms[1].has_ideal);
    assert_true(zz->atoms[1].is_leaving && !zz->atoms[0].is_leaving);
    assert_int_equal(zz->atoms[1].charge, -1);
    assert_int_equal(fm_component_find_atom(zz, "O"), 2);
    assert_int_equal(fm_component_find_atom(zz, "H1"), -1);
    assert_int_equal(zz->n_bond, 2);
    assert_true(zz->bonds[0].a == 0 && zz->bonds[0].b == 1);
    assert_int_equal(zz->bonds[0].order, FM_BOND_SINGLE);
    assert_true(zz->bonds[1].a == 0 && zz->bonds[1].b == 2);
    assert_int_equal(zz->bonds[1].order, FM_BOND_AROMATIC_DOUBLE);
}

/* The hash covers content, not the order of blocks; the file gives the same set. */
static void the_form_does_not_depend_on_the_order(void **state) {
    (void)state;
    const char *second = strstr(two, "data_MG");
    char swapped[sizeof two];
    snprintf(swapped, sizeof swapped, "%s%.*s", second, (int)(second - two), two);
    fm_components set, other, again;
    fm_error error;
    fm_bytes file = {0};
    if (parse(two, &set, &error) || parse(swapped, &other, &error)) fail_msg("%s", error.message);
    assert_memory_equal(set.hash.bytes, other.hash.bytes, FM_SHA256_BYTES);
    assert_int_equal(fm_components_pack(&set, &arena, &file, &error), FM_OK);
    if (fm_components_read(file, &arena, &again, &error)) fail_msg("%s", error.message);
    assert_memory_equal(set.hash.bytes, again.hash.bytes, FM_SHA256_BYTES);
    assert_int_equal(again.items[1].bonds[1].b, 2);

    /* No change of a byte gives another set. */
    uint8_t *damaged = fm_arena_alloc(&arena, file.size);
    assert_non_null(damaged);
    for (size_t i = 0; i < file.size; i++) {
        memcpy(damaged, file.data, file.size);
        damaged[i] ^= 4;
        fm_status status =
            fm_components_unpack((fm_bytes){damaged, file.size}, &arena, &again, &error);
        if (!status) assert_memory_equal(set.hash.bytes, again.hash.bytes, FM_SHA256_BYTES);
    }
    for (size_t size = 0; size < file.size; size++) {
        assert_int_not_equal(
            fm_components_unpack((fm_bytes){file.data, size}, &arena, &again, &error), FM_OK);
    }
}

/* A file without words is read, keeps its hash, and is written as it was. */
static void files_of_version_1_are_read(void **state) {
    (void)state;
    fm_components set, old, again;
    fm_error error;
    fm_bytes file = {0}, same = {0}, form = {0};
    if (parse(two, &set, &error)) fail_msg("%s", error.message);
    assert_true(set.has_words);
    set.has_words = false;
    assert_int_equal(fm_components_encode(&set, &arena, &form, &error), FM_OK);
    assert_int_equal(form.data[0], 1);
    assert_int_equal(fm_components_pack(&set, &arena, &file, &error), FM_OK);
    if (fm_components_read(file, &arena, &old, &error)) fail_msg("%s", error.message);
    assert_false(old.has_words);
    assert_memory_not_equal(old.hash.bytes, set.hash.bytes, FM_SHA256_BYTES);
    assert_string_equal(old.items[1].type, "");
    assert_string_equal(old.items[1].name, "");
    assert_int_equal(old.items[1].molecule, FM_MOLECULE_PROTEIN);
    assert_int_equal(fm_components_pack(&old, &arena, &same, &error), FM_OK);
    assert_int_equal(same.size, file.size);
    assert_memory_equal(same.data, file.data, file.size);
    set.has_words = true;
    assert_int_equal(fm_components_pack(&set, &arena, &file, &error), FM_OK);
    if (fm_components_read(file, &arena, &again, &error)) fail_msg("%s", error.message);
    assert_string_equal(again.items[1].name, set.items[1].name);
    assert_string_equal(again.items[1].type, set.items[1].type);
    assert_true(again.items[1].weight == 41.5f);
}

static void what_is_not_valid_has_its_place(void **state) {
    (void)state;
#define HEAD "data_A\n_chem_comp.id A\n"
    static const struct {
        const char *text, *message;
        uint64_t line, column;
    } cases[] = {
        {"\n", "no component in the file", 1, 1},
        {"_chem_comp.id A\n", "found '_chem_comp.id' before the first data_", 1, 1},
        {"data_A\n_chem_comp.type X\n", "_chem_comp.id is '', expected 1 to 7 letters", 1, 1},
        {HEAD "data_B\n_chem_comp.id A\n", "the component A comes twice", 4, 15},
        {"data_A\n_chem_comp.id ABCDEFGH\n", "_chem_comp.id is 'ABCDEFGH', expected 1 to 7 letters",
         2, 15},
        {HEAD "_chem_comp.formula_weight -1\n",
         "_chem_comp.formula_weight is '-1', expected a number from 0 on", 3, 27},
        {HEAD "_chem_comp.name '\xff'\n",
         "_chem_comp.name has 1 bytes, expected at most 4096 of UTF-8", 3, 18},
        {HEAD ATOMS "C Q 0 N N 0 0 0\n",
         "_chem_comp_atom.type_symbol is 'Q', expected the symbol of an element", 12, 3},
        {HEAD ATOMS "C C x N N 0 0 0\n",
         "_chem_comp_atom.charge is 'x', expected a whole number from -128 to 127", 12, 5},
        {HEAD ATOMS "C C 0 N N 0 ? 0\n",
         "_chem_comp_atom.pdbx_model_Cartn_y_ideal is '?', expected a number", 12, 13},
        {HEAD ATOMS "C C 0 N N 0 0 0\nC C 0 N N 0 0 0\n", "the component A has the atom C twice", 2,
         15},
        {HEAD ATOMS "C C 0 N N 0 0 0\n" BONDS "C C SING N\n", "a bond of the atom C with itself",
         18, 3},
        {HEAD ATOMS "C C 0 N N 0 0 0\nD H 0 N N 0 0 0\n" BONDS "C E SING N\n",
         "a bond of E, which is no atom of the component A", 19, 3},
        {HEAD ATOMS "C C 0 N N 0 0 0\nD N 0 N N 0 0 0\n" BONDS "C D SING N\nD C DOUB N\n",
         "the component A has a bond twice", 2, 15},
        {HEAD ATOMS "C C 0 N N 0 0\n", "a row of 7 values, expected 8", 12, 1},
        {HEAD "loop_\n1 2\n", "a loop without names of columns", 3, 1},
        {"data_A\nloop_\n_chem_comp.id\nA\nB\n",
         "a second row of _chem_comp, expected a data block for each component", 5, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_components set;
        fm_error error;
        assert_int_equal(parse(cases[i].text, &set, &error), FM_ERR_FORMAT);
        assert_string_equal(error.message, cases[i].message);
        if (error.line != cases[i].line || error.column != cases[i].column) {
            fail_msg("%s: at %zu:%zu", error.message, (size_t)error.line, (size_t)error.column);
        }
    }
}

static void more_atoms_than_the_limit_are_refused(void **state) {
    (void)state;
    size_t room = 1 << 20, n = 0;
    char *text = fm_arena_alloc(&arena, room);
    assert_non_null(text);
    n += (size_t)snprintf(text, room, HEAD ATOMS);
    for (uint32_t i = 0; i <= FM_LIMIT_COMPONENT_ATOM; i++)
        n += (size_t)snprintf(text + n, room - n, "C%u C 0 N N 0 0 0\n", i);
    fm_components set;
    fm_error error;
    assert_int_equal(parse(text, &set, &error), FM_ERR_LIMIT);
    assert_string_equal(error.message, "the component has more than 8192 atoms");
}

static void elements_have_numbers(void **state) {
    (void)state;
    static const struct {
        const char *symbol;
        uint8_t number;
    } cases[] = {{"H", 1},
                 {"D", 1},
                 {"Se", 34},
                 {"SE", 34},
                 {"zn", 30},
                 {"U", 92},
                 {"OG", 118},
                 {"X", 0},
                 {"P", 15},
                 {"W", 74},
                 {"CQ", FM_ELEMENT_NONE},
                 {"", FM_ELEMENT_NONE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(
            fm_element_from_symbol((const uint8_t *)cases[i].symbol, strlen(cases[i].symbol)),
            cases[i].number);
    }
}

/* A part of the PDB's dictionary. */
static void the_reference_dictionary_is_read(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        fprintf(stderr, "skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    char path[4096];
    fm_components set, again;
    fm_error error;
    fm_bytes text = {0}, file = {0};
    fm_test_reference_path(path, sizeof path, "complex/components/components.cif");
    if (fm_file_read_text(&arena, path, FM_LIMIT_INPUT_BYTES, &text, &error) ||
        fm_components_parse(text, &arena, &set, &error) ||
        fm_components_pack(&set, &arena, &file, &error) ||
        fm_components_read(file, &arena, &again, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(set.n, 441);
    assert_memory_equal(set.hash.bytes, again.hash.bytes, FM_SHA256_BYTES);
    const fm_component *alanine = fm_components_find(&again, "ALA");
    assert_int_equal(alanine->n_atom, 6);
    assert_int_equal(alanine->n_bond, 5);
    assert_int_equal(alanine->one_letter, 'A');
    assert_int_equal(alanine->atoms[0].n_hydrogen, 2);
    assert_true(alanine->atoms[5].is_leaving);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(components_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_form_does_not_depend_on_the_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(files_of_version_1_are_read, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_valid_has_its_place, set_up, tear_down),
        cmocka_unit_test_setup_teardown(more_atoms_than_the_limit_are_refused, set_up, tear_down),
        cmocka_unit_test(elements_have_numbers),
        cmocka_unit_test_setup_teardown(the_reference_dictionary_is_read, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
