/* test_residue.c: the residue tables agree with each other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "proto/chem/residue.h"

/* [HHblits id] its letter. */
static const char hhblits_letters[] = "ACDEFGHIKLMNPQRSTVWYX-";

static void orders_are_each_others_inverse(void **state) {
    (void)state;
    for (int id = 0; id < FM_N_HHBLITS; id++) {
        int restype = fm_restype_from_hhblits[id];
        assert_int_equal(fm_hhblits_from_restype[restype], id);
        assert_int_equal(fm_restype_letters[restype], hhblits_letters[id]);
    }
}

static void letters_have_their_hhblits_ids(void **state) {
    (void)state;
    for (int id = 0; id < FM_N_HHBLITS; id++)
        assert_int_equal(fm_hhblits_from_letter[(uint8_t)hhblits_letters[id]], id);
    assert_int_equal(fm_hhblits_from_letter['B'], 2);
    assert_int_equal(fm_hhblits_from_letter['Z'], 3);
    assert_int_equal(fm_hhblits_from_letter['U'], 1);
    assert_int_equal(fm_hhblits_from_letter['J'], 20);
    assert_int_equal(fm_hhblits_from_letter['O'], 20);
    int known = 0;
    for (int byte = 0; byte < 256; byte++)
        known += fm_hhblits_from_letter[byte] != FM_HHBLITS_NONE;
    assert_int_equal(known, 27); /* 26 letters and the gap */
}

static void letters_have_their_restypes(void **state) {
    (void)state;
    for (int restype = 0; restype <= FM_RESTYPE_X; restype++)
        assert_int_equal(fm_restype_from_letter(fm_restype_letters[restype]), restype);
    assert_int_equal(fm_restype_from_letter('B'), FM_RESTYPE_X);
    assert_int_equal(fm_restype_from_letter('U'), FM_RESTYPE_X);
    assert_int_equal(fm_restype_from_letter('a'), FM_HHBLITS_NONE);
    assert_int_equal(fm_restype_from_letter('-'), FM_HHBLITS_NONE);
    assert_int_equal(fm_restype_from_letter('\0'), FM_HHBLITS_NONE);
}

static void component_ids_have_their_letters(void **state) {
    (void)state;
    for (int i = 1; i < FM_N_RESIDUE_NAME; i++)
        assert_true(strcmp(fm_residue_names[i - 1].id, fm_residue_names[i].id) < 0);
    for (int i = 0; i < FM_N_RESIDUE_NAME; i++) {
        assert_int_equal(fm_residue_letter(fm_residue_names[i].id, 3), fm_residue_names[i].letter);
        assert_true(fm_restype_from_letter(fm_residue_names[i].letter) < FM_N_RESTYPE);
    }
    for (int restype = 0; restype < FM_N_RESTYPE; restype++) {
        assert_int_equal(fm_residue_letter(fm_restype_names[restype], 3),
                         fm_restype_letters[restype]);
    }
    assert_int_equal(fm_residue_letter("MSE", 3), 'M');
    assert_int_equal(fm_residue_letter("SEP", 3), 'S');
    static const char *const unknown[] = {"SEC", "PYL", "UNK",  "ASX", "GLX",
                                          "A",   "",    "ALAX", "ala"};
    for (size_t i = 0; i < sizeof unknown / sizeof unknown[0]; i++)
        assert_int_equal(fm_residue_letter(unknown[i], strlen(unknown[i])), 'X');
}

static void atom_names_have_their_places(void **state) {
    (void)state;
    for (int atom = 0; atom < FM_N_ATOM37; atom++) {
        assert_int_equal(fm_atom37_from_name(fm_atom37_names[atom], strlen(fm_atom37_names[atom])),
                         atom);
    }
    static const char *const other[] = {"", "H", "P", "SE", "ca", "CA1", "OXT1", "HB2"};
    for (size_t i = 0; i < sizeof other / sizeof other[0]; i++)
        assert_int_equal(fm_atom37_from_name(other[i], strlen(other[i])), FM_ATOM37_NONE);
}

static void residues_have_their_atoms(void **state) {
    (void)state;
    int total = 0;
    for (int restype = 0; restype < FM_N_RESTYPE; restype++) {
        uint64_t atoms = fm_restype_atom37[restype];
        assert_true((atoms & 0x17) == 0x17); /* N CA C O */
        assert_int_equal(atoms >> FM_ATOM37_CB & 1, fm_restype_letters[restype] != 'G');
        assert_int_equal(atoms >> FM_ATOM37_OXT, 0);
        total += __builtin_popcountll(atoms);
    }
    assert_int_equal(total, 167); /* heavy atoms of the 20 amino acids */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(orders_are_each_others_inverse),
        cmocka_unit_test(letters_have_their_hhblits_ids),
        cmocka_unit_test(letters_have_their_restypes),
        cmocka_unit_test(component_ids_have_their_letters),
        cmocka_unit_test(atom_names_have_their_places),
        cmocka_unit_test(residues_have_their_atoms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
