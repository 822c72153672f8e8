/* test_pdb.c: structures in the PDB format in both readings, and what is refused where. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "featurizer/structure.h"

static fm_arena arena;
static fm_error error;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)64 << 20, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static const fm_pdb_options options[2] = {{.compat_openfold = false}, {.compat_openfold = true}};

static fm_status parse(const char *text, bool compat, fm_pdb *pdb) {
    fm_arena_reset(&arena);
    memset(&error, 0, sizeof error);
    return fm_pdb_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, &options[compat], &arena,
                        pdb, &error);
}

/* Asserts that both readings give that sequence. */
static void both_read(const char *text, const char *sequence) {
    fm_pdb pdb;
    for (int compat = 0; compat < 2; compat++) {
        assert_int_equal(parse(text, compat, &pdb), FM_OK);
        assert_string_equal(pdb.sequence, sequence);
        assert_int_equal(pdb.n_res, strlen(sequence));
    }
}

static void reads(const char *text, bool compat, const char *sequence) {
    fm_pdb pdb;
    fm_status status = parse(text, compat, &pdb);
    if (status) fail_msg("%s", error.message);
    assert_string_equal(pdb.sequence, sequence);
}

static void refuses(const char *text, bool compat, fm_status expected, uint64_t line,
                    uint64_t at_column, const char *message) {
    fm_pdb pdb;
    assert_int_equal(parse(text, compat, &pdb), expected);
    assert_string_equal(error.message, message);
    assert_int_equal(error.line, line);
    assert_int_equal(error.column, at_column);
}

/*            1234567890123456789012345678901234567890123456789012345678901234567890 */
#define N_A1 "ATOM      1  N   GLY A   1      16.192  -4.014 -14.999  1.00 59.92           N\n"
#define C_A1 "ATOM      2  CA  GLY A   1      15.125  -4.784 -14.381  1.00 49.92           C\n"
#define C_A2 "ATOM      3  CA  SER A   2       1.000   2.000   3.000  1.00 50.00           C\n"
#define C_B1 "ATOM      4  CA  TRP B   1       4.000   5.000   6.000  1.00 90.00           C\n"
#define WATER "HETATM    5  O   HOH A 101       4.000   5.000   6.000  1.00 90.00           O\n"
#define SE_A3 "HETATM    6 SE   MSE A   3       7.000   8.000   9.000  1.00 90.00          SE\n"

static void a_chain_with_confidence(void **state) {
    (void)state;
    fm_pdb pdb;
    fm_part_sequence sequence;
    fm_part_structure structure;
    uint8_t mask[2 * FM_N_ATOM37];
    both_read("REMARK 1\nMODEL     1\n" N_A1 C_A1 C_A2 "TER\nENDMDL\nEND   \n", "GS");
    assert_int_equal(parse(N_A1 C_A1 C_A2, false, &pdb), FM_OK);
    assert_int_equal(pdb.n_atom, 3);
    assert_int_equal(fm_structure_from_pdb(&pdb, &options[0], NULL, &sequence, &structure, &error),
                     FM_OK);
    assert_int_equal(structure.is_distillation, 1);
    assert_true(structure.confidence[0] == 59.92f && structure.confidence[1] == 50.0f);
    assert_true(structure.all_atom_positions[0] == 16.192f);
    assert_true(structure.all_atom_positions[FM_N_ATOM37 * 3 + 3 + 2] == 3.0f);
    assert_int_equal(structure.all_atom_mask[FM_N_ATOM37 + FM_ATOM37_CA], 1);
    fm_structure_list_mask(&structure, mask);
    assert_int_equal(mask[FM_ATOM37_N] + mask[FM_ATOM37_CA], 2);
    assert_int_equal(mask[FM_N_ATOM37 + FM_ATOM37_CA], 0); /* 50 is not above 50 */
}

static void chains_are_distinguished(void **state) {
    (void)state;
    fm_pdb pdb;
    fm_part_sequence sequence;
    fm_part_structure structure;
    both_read(C_A1 C_B1 C_A2, "GSW"); /* chain by chain */
    assert_int_equal(parse(C_A1 C_B1 C_A2, true, &pdb), FM_OK);
    assert_int_equal(pdb.n_chain, 2);
    assert_int_equal(pdb.chains[1].first, 2);
    assert_true(pdb.all_atom_positions[(2 * FM_N_ATOM37 + 1) * 3] == 4.0f);
    assert_int_equal(fm_structure_from_pdb(&pdb, &options[1], NULL, &sequence, &structure, &error),
                     FM_OK);
    assert_int_equal(sequence.n_res, 3);
    assert_int_equal(fm_structure_from_pdb(&pdb, &options[1], "B", &sequence, &structure, &error),
                     FM_OK);
    assert_int_equal(sequence.n_res, 1);
    assert_int_equal(sequence.sequence[0], 'W');
    assert_true(structure.all_atom_positions[3] == 4.0f && structure.confidence[0] == 90.0f);
    assert_int_equal(fm_structure_from_pdb(&pdb, &options[0], NULL, &sequence, &structure, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message,
                        "the file has the chains A, B, so one of them must be named");
    assert_int_equal(fm_structure_from_pdb(&pdb, &options[1], "C", &sequence, &structure, &error),
                     FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "no chain 'C'; the file has A, B");
}

static void components_that_are_no_amino_acids(void **state) {
    (void)state;
    fm_pdb pdb;
    reads(C_A1 WATER, false, "G");
    reads(C_A1 WATER, true, "GX"); /* a water's O has a known name */
    reads(C_A1 SE_A3, false, "GM");
    assert_int_equal(parse(C_A1 SE_A3, false, &pdb), FM_OK);
    assert_int_equal(pdb.all_atom_mask[FM_N_ATOM37 + FM_ATOM37_SD], 1);
    reads(C_A1 SE_A3, true, "G"); /* no SE in that reading */
    /* calcium: its name is in other columns, which the reference ignores */
    reads(C_A1 "HETATM    9 CA    CA A 301       4.000   5.000   6.000  1.00 90.00\n", false, "G");
    reads(C_A1 "HETATM    9 CA    CA A 301       4.000   5.000   6.000  1.00 90.00\n", true, "GX");
}

static void of_alternatives_the_highest_occupancy(void **state) {
    (void)state;
    static const char *const text =
        "ATOM      2  CA AGLY A   1       1.000   0.000   0.000  0.40 60.00\n"
        "ATOM      2  CA BGLY A   1       2.000   0.000   0.000  0.60 70.00\n"
        "ATOM      2  CA CGLY A   1       3.000   0.000   0.000  0.60 80.00\n";
    static const char *const blank_first =
        "ATOM      2  CA  GLY A   1       1.000   0.000   0.000  0.50 60.00\n"
        "ATOM      2  CA BGLY A   1       2.000   0.000   0.000  0.50 70.00\n";
    fm_pdb pdb;
    for (int compat = 0; compat < 2; compat++) {
        assert_int_equal(parse(text, compat, &pdb), FM_OK);
        assert_true(pdb.all_atom_positions[3] == 2.0f && pdb.confidence[0] == 70.0f);
        assert_int_equal(parse(blank_first, compat, &pdb), FM_OK);
        assert_true(pdb.all_atom_positions[3] == (compat ? 2.0f : 1.0f));
    }
    assert_int_equal(parse(C_A1 C_A1, true, &pdb), FM_OK); /* the first stays */
    refuses(C_A1 C_A1, false, FM_ERR_DATA, 2, 13, "atom CA of residue 1 occurs twice");
}

static void refusals_name_their_place(void **state) {
    (void)state;
    static const char *const inserted =
        C_A1 "ATOM      2  CA  GLY A   1B      1.000   0.000   0.000  0.40 60.00\n";
    static const char *const lower =
        C_A1 "ATOM      2  CA  GLY a   1       1.000   0.000   0.000  0.40 60.00\n";
    reads(inserted, false, "GG");
    refuses(inserted, true, FM_ERR_DATA, 2, 27,
            "residue 1 has the insertion code B, which the reference refuses");
    reads(lower, false, "GG");
    refuses(lower, true, FM_ERR_DATA, 2, 22, "the chain's id is 'a'; the reference reads only A-Z");
    reads("MODEL 1\n" C_A1 "ENDMDL\nMODEL 2\n" C_A1, false, "G");
    refuses("MODEL 1\n" C_A1 "ENDMDL\nMODEL 2\n" C_A1, true, FM_ERR_DATA, 4, 1,
            "a second model begins; the reference reads only files with one model");
    refuses(C_A1 C_A2 C_A1, true, FM_ERR_DATA, 3, 23,
            "residue 1 of chain A occurs already in line 1");
    refuses("ATOM      2  CA  GLY A   1       1.0x0   0.000   0.000  0.40 60.00\n", true,
            FM_ERR_FORMAT, 1, 31, "the x coordinate is '1.0x0', expected a number");
    refuses("ATOM      2  CA  GLY A   1       1.000   0.000\n", false, FM_ERR_FORMAT, 1, 47,
            "the z coordinate is '', expected a number");
    refuses("ATOM      2  CA  GLY A  1.       1.000   0.000   0.000  0.40 60.00\n", false,
            FM_ERR_FORMAT, 1, 23, "the residue number is '1.', expected a whole number");
    refuses("ATOM      2  CA  GLY A   1       1.000   0.000   0.000  0.40160.00\n", false,
            FM_ERR_DATA, 1, 61, "the B factor is 160, expected a confidence of 0 to 100");
    reads("ATOM      2  CA  GLY A   1       1.000   0.000   0.000\n", true, "G");
    refuses("ATOM      2  CA  GLY A   1       1.000   0.000   0.000\n", false, FM_ERR_FORMAT, 1, 61,
            "the B factor is '', expected a number");
    refuses("REMARK\n", false, FM_ERR_DATA, 1, 1,
            "the file has no residue with coordinates (no ATOM record)");
    refuses("", true, FM_ERR_DATA, 1, 1,
            "the file has no residue with coordinates (no ATOM record)");
}

static void lines_end_in_any_way(void **state) {
    (void)state;
    both_read("REMARK\rATOM      2  CA  GLY A   1       1.000   0.000   0.000  1.00 60.00\r\n",
              "G");
    reads(C_A1 "END\n" C_A2, false, "G");
    reads(C_A1 "END\n" C_A2, true, "GS");
    both_read(C_A1 "END   \n" C_A2, "G");
    both_read("END   \n" C_A1, "G");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_with_confidence),
        cmocka_unit_test(chains_are_distinguished),
        cmocka_unit_test(components_that_are_no_amino_acids),
        cmocka_unit_test(of_alternatives_the_highest_occupancy),
        cmocka_unit_test(refusals_name_their_place),
        cmocka_unit_test(lines_end_in_any_way),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
