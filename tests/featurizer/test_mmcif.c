/* test_mmcif.c: both readings of small mmCIF entries: where atoms are placed, and every refusal
 * with its line and column. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#include "proto/chem/residue.h"
#include "proto/limits.h"
#include "tests/featurizer/mmcif_text.h"

static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)1 << 30, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_mmcif read_text(const char *text, bool compat) {
    fm_mmcif mmcif;
    fm_error error;
    uint64_t line, column;
    fm_arena_reset(&arena);
    fm_status status = mmcif_text_parse(&arena, text, compat, &mmcif, &error, &line, &column);
    if (status) {
        fprintf(stderr, "%llu:%llu: %s\n", (unsigned long long)error.line,
                (unsigned long long)error.column, error.message);
    }
    assert_int_equal(status, FM_OK);
    return mmcif;
}

static void refuse(const char *text, bool compat, fm_status expected, const char *message) {
    fm_mmcif mmcif;
    fm_error error = {0};
    uint64_t line, column;
    fm_arena_reset(&arena);
    fm_status status = mmcif_text_parse(&arena, text, compat, &mmcif, &error, &line, &column);
    assert_int_equal(status, expected);
    assert_string_equal(error.message, message);
    assert_int_equal(error.line, line);
    assert_int_equal(error.column, column);
}

/* Returns the x of an atom, or -1000 when its mask is 0. */
static float x_of(const fm_mmcif_chain *chain, uint32_t res, const char *name) {
    size_t at = (size_t)res * FM_N_ATOM37 + fm_atom37_from_name(name, strlen(name));
    return chain->all_atom_mask[at] ? chain->all_atom_positions[at * 3] : -1000.0f;
}

/* -- both readings */

static void an_entry_has_header_and_chain(void **state) {
    (void)state;
    static const char text[] = ENTRY ATOM("N", "ALA", "1", "1.25") ATOM("CA", "ALA", "1", "2.25")
        ATOM("H", "ALA", "1", "9.9") ATOM("CA", "ARG", "3", "-0.000") "# end\n";
    for (int compat = 0; compat < 2; compat++) {
        fm_mmcif mmcif = read_text(text, compat);
        assert_string_equal(mmcif.method, "x-ray diffraction");
        assert_string_equal(mmcif.release_date, "1999-12-31");
        assert_true(mmcif.resolution == 0.0);
        assert_int_equal(mmcif.n_atom, 4);
        assert_int_equal(mmcif.n_chain, 1);
        const fm_mmcif_chain *chain = &mmcif.chains[0];
        assert_string_equal(chain->author_id, "X");
        assert_string_equal(chain->label_id, "A");
        assert_string_equal(chain->sequence, "AMR");
        assert_int_equal(chain->n_res, 3);
        assert_null(chain->fault);
        assert_true(x_of(chain, 0, "N") == 1.25f && x_of(chain, 0, "CA") == 2.25f);
        assert_true(chain->all_atom_positions[1] == 2.5f && chain->all_atom_positions[2] == -3.5f);
        assert_true(chain->is_missing[0] == 0 && chain->is_missing[1] == 1);
        int n_atom = 0;
        for (int i = 0; i < 3 * FM_N_ATOM37; i++)
            n_atom += chain->all_atom_mask[i];
        assert_int_equal(n_atom, 3);
        float zero = -0.0f; /* minus zero stays minus zero */
        assert_memory_equal(&chain->all_atom_positions[(2 * FM_N_ATOM37 + 1) * 3], &zero, 4);
    }
}

static void order_and_form_of_categories_are_free(void **state) {
    (void)state;
    static const char pairs[] =
        HEAD "_atom_site.label_atom_id CA\n_atom_site.group_PDB ATOM\n_atom_site.id 1\n"
             "_atom_site.label_alt_id .\n_atom_site.label_comp_id SER\n_atom_site.label_asym_id A\n"
             "_atom_site.label_seq_id 1\n_atom_site.pdbx_PDB_ins_code ?\n_atom_site.Cartn_z 3\n"
             "_atom_site.Cartn_y 2\n_atom_site.Cartn_x\n;1.5\n;\n_atom_site.occupancy '1.0'\n"
             "_atom_site.B_iso_or_equiv 5\n_atom_site.auth_seq_id 7\n_atom_site.auth_asym_id Q\n"
             "_atom_site.pdbx_PDB_model_num 1\n"
             "_entity_poly_seq.entity_id 1\n_entity_poly_seq.num 1\n_entity_poly_seq.mon_id SER\n"
             "_struct_asym.id A\n_struct_asym.entity_id 1\n"
             "_chem_comp.id SER\n_chem_comp.type 'L-peptide linking'\n"
             "_pdbx_audit_revision_history.revision_date 2020-02-02\n";
    for (int compat = 0; compat < 2; compat++) {
        fm_mmcif mmcif = read_text(pairs, compat);
        assert_int_equal(mmcif.n_chain, 1);
        assert_string_equal(mmcif.chains[0].author_id, "Q");
        assert_string_equal(mmcif.chains[0].sequence, "S");
        assert_true(x_of(&mmcif.chains[0], 0, "CA") == 1.5f);
        mmcif = read_text(HEAD SITE ATOM("CA", "ALA", "1", "1.5") THREE ASYMS COMPS DATES, compat);
        assert_true(x_of(&mmcif.chains[0], 0, "CA") == 1.5f);
    }
}

static void selenium_and_arginine_are_corrected(void **state) {
    (void)state;
    static const char text[] = ENTRY ROW("HETATM", "SE", ".", "MSE", "2", "4.5", "1.00")
        ROW("HETATM", "CA", ".", "MSE", "2", "5.5", "1.00") ATOM("SE", "ALA", "1", "3.5")
            ATOM("CD", "ARG", "3", "0.0") ATOM("NH1", "ARG", "3", "9.0")
                ATOM("NH2", "ARG", "3", "1.0");
    for (int compat = 0; compat < 2; compat++) {
        fm_mmcif mmcif = read_text(text, compat);
        assert_true(x_of(&mmcif.chains[0], 1, "SD") == 4.5f);
        assert_true(x_of(&mmcif.chains[0], 0, "SD") == -1000.0f);
        assert_true(x_of(&mmcif.chains[0], 2, "NH1") == 1.0f);
        assert_true(x_of(&mmcif.chains[0], 2, "NH2") == 9.0f);
    }
    fm_mmcif mmcif = read_text(ENTRY ATOM("CD", "ARG", "3", "0.0") ATOM("NH1", "ARG", "3", "1.0")
                                   ATOM("NH2", "ARG", "3", "1.0"),
                               false);
    assert_true(x_of(&mmcif.chains[0], 2, "NH1") == 1.0f); /* equal distances: unchanged */
}

static void the_highest_occupancy_is_taken(void **state) {
    (void)state;
    static const char text[] = ENTRY ROW("ATOM", "CA", "A", "ALA", "1", "1.0", "0.30")
        ROW("ATOM", "CA", "B", "ALA", "1", "2.0", "0.40")
            ROW("ATOM", "CA", "C", "ALA", "1", "3.0", "0.40")
                ROW("ATOM", "N", ".", "ALA", "1", "4.0", "0.50")
                    ROW("ATOM", "N", "B", "ALA", "1", "5.0", "0.50");
    fm_mmcif mmcif = read_text(text, false);
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 2.0f);
    assert_true(x_of(&mmcif.chains[0], 0, "N") == 4.0f);
    mmcif = read_text(text, true);
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 2.0f);
    assert_true(x_of(&mmcif.chains[0], 0, "N") == 5.0f); /* not the blank one */
}

static void resolution_is_the_first_that_is_a_number(void **state) {
    (void)state;
    static const struct {
        const char *items;
        double resolution;
    } cases[] = {
        {"_refine.ls_d_res_high 1.9\n_reflns.d_resolution_high 2.1\n", 1.9},
        {"_refine.ls_d_res_high .\n_em_3d_reconstruction.resolution 3.4\n", 3.4},
        {"_refine.ls_d_res_high ?\n_reflns.d_resolution_high 2.1\n", 2.1},
        {"loop_\n_refine.ls_d_res_high\n2.5\n1.5\n", 2.5},
        {"_refine.ls_d_res_high none\n", 0.0},
    };
    for (size_t i = 0; i < 2 * sizeof cases / sizeof cases[0]; i++) {
        char text[4096];
        snprintf(text, sizeof text, "%s%s%s", HEAD DATES COMPS ASYMS THREE, cases[i / 2].items,
                 SITE ATOM("CA", "ALA", "1", "1.0"));
        assert_true(read_text(text, i % 2).resolution == cases[i / 2].resolution);
    }
}

static void only_protein_chains_are_listed_in_order(void **state) {
    (void)state;
    static const char text[] = HEAD DATES COMPS POLY
        "2 1 SER\n1 1 ALA\n3 1 DA\n4 1 ALA\n"
        "loop_\n_struct_asym.id\n_struct_asym.entity_id\nA 1\nB 2\nC 3\nD 2\n" SITE
        "ATOM 1 CA . ALA A 1 ? 1 2 3 1 9 1 K 1\nATOM 1 CA . SER B 1 ? 4 2 3 1 9 1 L 1\n"
        "ATOM 1 C1 . DA C 1 ? 1 2 3 1 9 1 M 1\nATOM 1 CA . SER D 1 ? 5 2 3 1 9 1 N 1\n";
    for (int compat = 0; compat < 2; compat++) {
        fm_mmcif mmcif = read_text(text, compat);
        assert_int_equal(mmcif.n_chain, 3);
        assert_string_equal(mmcif.chains[0].author_id, "L");
        assert_string_equal(mmcif.chains[1].author_id, "N");
        assert_string_equal(mmcif.chains[2].author_id, "K");
        assert_true(x_of(&mmcif.chains[1], 0, "CA") == 5.0f);
        const fm_mmcif_chain *chain;
        fm_error error;
        assert_int_equal(fm_mmcif_find_chain(&mmcif, "K", &chain, &error), FM_OK);
        assert_ptr_equal(chain, &mmcif.chains[2]);
        assert_int_equal(fm_mmcif_find_chain(&mmcif, "M", &chain, &error), FM_ERR_NOT_FOUND);
        assert_string_equal(error.message, "no protein chain 'M'; the file has L N K");
    }
}

/* -- differences between the readings */

#define MICRO                                                                                      \
    HEAD DATES COMPS ASYMS POLY                                                                    \
        "1 1 ALA\n1 2 ALA\n1 2 SER\n1 3 ARG\n" SITE ATOM("CA", "ALA", "1", "1.0")                  \
            ROW("ATOM", "CA", "A", "ALA", "2", "2.0", "0.4")                                       \
                ROW("ATOM", "CA", "B", "SER", "2", "2.5", "0.6") ATOM("CA", "ARG", "3", "3.0")

static void microheterogeneity_is_one_residue_or_shifts(void **state) {
    (void)state;
    fm_mmcif mmcif = read_text(MICRO, false);
    assert_string_equal(mmcif.chains[0].sequence, "AAR");
    assert_true(x_of(&mmcif.chains[0], 1, "CA") == 2.0f);
    assert_true(x_of(&mmcif.chains[0], 2, "CA") == 3.0f);
    mmcif = read_text(MICRO, true);
    assert_string_equal(mmcif.chains[0].sequence, "AASR");
    assert_true(x_of(&mmcif.chains[0], 1, "CA") == 2.5f); /* the component that comes last */
    assert_true(x_of(&mmcif.chains[0], 2, "CA") == 3.0f); /* arginine's, at serine */
    assert_int_equal(mmcif.chains[0].is_missing[3], 1);
}

static void the_first_model_is_read(void **state) {
    (void)state;
    static const char text[] = ENTRY "ATOM 1 CA . ALA A 1 ? 1.0 2 3 1 9 1 X 2\n"
                                     "ATOM 1 CA . ALA A 1 ? 7.0 2 3 1 9 1 X 3\n"
                                     "ATOM 1 CB . ALA A 1 ? 8.0 2 3 1 9 1 X 2\n";
    fm_mmcif mmcif = read_text(text, false);
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 1.0f);
    assert_true(x_of(&mmcif.chains[0], 0, "CB") == 8.0f);
    refuse(HEAD DATES COMPS "loop_\n_struct_asym.id\n_struct_asym.entity_id\n^A 1\n" THREE SITE
                            "ATOM 1 CA . ALA A 1 ? 1.0 2 3 1 9 1 X 2\n",
           true, FM_ERR_DATA, "protein chain A has no atom in model 1");
    /* Residues of model 1 are looked up in the first model. */
    mmcif = read_text(ENTRY "ATOM 1 CA . ALA A 1 ? 1.0 2 3 1 9 1 X 2\n"
                            "ATOM 1 CA . ALA A 1 ? 7.0 2 3 1 9 1 X 1\n"
                            "ATOM 1 CA . ARG A 3 ? 8.0 2 3 1 9 3 X 1\n",
                      true);
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 1.0f);
    assert_non_null(mmcif.chains[0].fault);
}

#define FEW                                                                                        \
    "loop_\n_atom_site.label_atom_id\n_atom_site.label_comp_id\n_atom_site.label_asym_id\n"        \
    "_atom_site.label_seq_id\n_atom_site.CARTN_X\n_atom_site.Cartn_y\n_atom_site.cartn_z\n"

static void unneeded_items_may_be_missing(void **state) {
    (void)state;
    static const char text[] = HEAD ASYMS THREE FEW "CA ALA A 1 1.5(3) 2 3\nCB ALA A 1 2.5 2 3\n";
    fm_mmcif mmcif = read_text(text, false);
    assert_string_equal(mmcif.chains[0].author_id, "A");
    assert_string_equal(mmcif.release_date, "");
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 1.5f);
    refuse(HEAD DATES ASYMS THREE "^" FEW "CA ALA A 1 1.5 2 3\n", true, FM_ERR_DATA,
           "the file has no _atom_site.pdbx_PDB_model_num");
    /* Without _struct_asym the atoms name their entity. */
    mmcif = read_text(HEAD THREE FEW "_atom_site.label_entity_id\nO HOH W . 1 2 3 2\n"
                                     "CA ALA C 1 1.5 2 3 1\nCA ALA B 1 2.5 2 3 1\n",
                      false);
    assert_int_equal(mmcif.n_chain, 2);
    assert_string_equal(mmcif.chains[0].author_id, "C");
    /* An unset occupancy is 1. */
    mmcif = read_text(ENTRY ROW("ATOM", "CA", "A", "ALA", "1", "1.0", "0.9")
                          ROW("ATOM", "CA", "B", "ALA", "1", "2.0", "?"),
                      false);
    assert_true(x_of(&mmcif.chains[0], 0, "CA") == 2.0f);
}

static void blocks_and_save_frames_are_distinguished(void **state) {
    (void)state;
    fm_mmcif mmcif = read_text(
        "data_first\n_exptl.method other\n" ENTRY ATOM(
            "CA", "ALA", "1", "1.0") "data_last\n_exptl.method 'another'\n_exptl.method twice\n",
        false);
    assert_string_equal(mmcif.method, "x-ray diffraction");
    mmcif = read_text("data_T\nsave_frame\n_exptl.method other\nloop_\n_chem_comp.id\nX\nsave_\n"
                      "_exptl.method this\n" COMPS ASYMS THREE SITE ATOM("CA", "ALA", "1", "1.0"),
                      false);
    assert_string_equal(mmcif.method, "this");
}

/* -- refusals */

static void contradictions_are_refused(void **state) {
    (void)state;
    refuse(ENTRY ATOM("CA", "^SER", "1", "1.0"), false, FM_ERR_DATA,
           "residue 1 of chain A is SER here and ALA in _entity_poly_seq");
    refuse(ENTRY ATOM("CA", "ALA", "^4", "1.0"), false, FM_ERR_DATA,
           "chain A has no residue 4 in _entity_poly_seq");
    refuse(ENTRY ROW("ATOM", "CA", ".", "ALA", "^.", "1.0", "1"), false, FM_ERR_DATA,
           "label_seq_id of an atom of chain A is '.', expected an integer");
    refuse(ENTRY ATOM("CA", "ALA", "1", "1.0") ATOM("^CA", "ALA", "1", "1.0"), false, FM_ERR_DATA,
           "atom CA of residue 1 occurs twice without alternative locations");
    refuse(HEAD COMPS ASYMS POLY "1 2 ALA\n1 1 ^ALA\n" SITE ATOM("CA", "ALA", "1", "1.0"), false,
           FM_ERR_DATA, "_entity_poly_seq.num goes down from 2 to 1");
    refuse(HEAD COMPS "loop_\n_struct_asym.id\n_struct_asym.entity_id\nA 1\n^A 1\n" THREE SITE ATOM(
               "CA", "ALA", "1", "1.0"),
           false, FM_ERR_DATA, "chain 'A' occurs twice in _struct_asym");
    refuse("^" HEAD COMPS ASYMS SITE ATOM("CA", "ALA", "1", "1.0"), false, FM_ERR_DATA,
           "the file has no _entity_poly_seq, which says the sequences of its chains; programs "
           "that write models leave it out; take the PDB's file, or add the sequences, for example "
           "with gemmi");
    refuse("^" HEAD ASYMS POLY "1 1 DA\n" SITE ATOM("P", "DA", "1", "1.0"), false, FM_ERR_NOT_FOUND,
           "the file has no protein chain (_entity_poly_seq, _chem_comp and _struct_asym name "
           "none)");
    refuse("^" ENTRY "ATOM 1 CA . ALA B 1 ? 1 2 3 1 9 1 X 1\n", false, FM_ERR_NOT_FOUND,
           "no protein chain of the file has an atom");
    refuse("^data_T\n", false, FM_ERR_DATA, "the file has no _atom_site.label_atom_id");
    refuse(HEAD COMPS ASYMS
           "loop_\n_entity_poly_seq.entity_id\n_entity_poly_seq.num\n1 1\n^2 1\n" SITE ATOM(
               "CA", "ALA", "1", "1.0"),
           false, FM_ERR_DATA,
           "the columns of _entity_poly_seq do not have the same number of values");
}

static void broken_values_are_refused(void **state) {
    (void)state;
    refuse(ENTRY ATOM("CA", "ALA", "1", "^1.0x"), false, FM_ERR_FORMAT,
           "_atom_site.Cartn_x is '1.0x', expected a number");
    refuse(ENTRY ATOM("CA", "ALA", "1", "^nan"), false, FM_ERR_FORMAT,
           "_atom_site.Cartn_x is 'nan', expected a number");
    refuse(ENTRY ATOM("CA", "ALA", "1", "^1e39"), false, FM_ERR_FORMAT,
           "_atom_site.Cartn_x is '1e39', expected a number");
    refuse(ENTRY ROW("ATOM", "CA", ".", "ALA", "1", "1.0", "^full"), false, FM_ERR_FORMAT,
           "_atom_site.occupancy is 'full', expected a number");
    refuse(HEAD COMPS ASYMS POLY "1 ^one ALA\n" SITE ATOM("CA", "ALA", "1", "1.0"), false,
           FM_ERR_FORMAT, "_entity_poly_seq.num is 'one', expected an integer");
    refuse(HEAD
           "_pdbx_audit_revision_history.revision_date ^13-07-2011\n" COMPS ASYMS THREE SITE ATOM(
               "CA", "ALA", "1", "1.0"),
           false, FM_ERR_FORMAT, "the revision date is '13-07-2011', expected YYYY-MM-DD");
}

static void broken_cif_is_refused(void **state) {
    (void)state;
    refuse("^_a 1\n", false, FM_ERR_FORMAT, "expected data_ at the start of a CIF file");
    refuse(HEAD "^_a.b\n_c.d 1\n", false, FM_ERR_FORMAT, "_a.b has no value");
    refuse(HEAD "_a.b 1 ^2\n", false, FM_ERR_FORMAT, "found '2', expected a data name");
    refuse(HEAD "^loop_\n1 2\n", false, FM_ERR_FORMAT, "found loop_ without data names");
    refuse(HEAD "loop_\n_a.b\n_a.c\n1 2\n^3\n", false, FM_ERR_FORMAT,
           "the row of a loop ends after 1 values, but the loop has 2 columns");
    refuse(HEAD "^_entry.id T\n", false, FM_ERR_FORMAT,
           "_entry.id occurs a second time in its block");
    refuse(ENTRY ATOM("CA", "ALA", "1", "1.0") "loop_\n^_atom_site.id\n1\n", false, FM_ERR_FORMAT,
           "_atom_site.id occurs a second time in its block");
    refuse(HEAD "_a.b ^'open\n", false, FM_ERR_FORMAT, "the quote ' is not closed on its line");
}

static void the_reference_refuses_more(void **state) {
    (void)state;
    refuse(ENTRY "ATOM 1 CA . ALA A 1 ? 1 2 3 1 ^? 1 X 1\n", true, FM_ERR_FORMAT,
           "_atom_site.B_iso_or_equiv is '?', expected a number");
    refuse(ENTRY ROW("ATOM", "CA", ".", "ALA", "1", "1.0", "^?"), true, FM_ERR_FORMAT,
           "_atom_site.occupancy is '?', expected a number");
    refuse(ENTRY "ATOM 1 CA . ALA A 1 ? 1 2 3 1 9 ^1A X 1\n", true, FM_ERR_FORMAT,
           "_atom_site.auth_seq_id is '1A', expected an integer");
    refuse(ENTRY "ATOM 1 CA . ALA A ^. ? 1 2 3 1 9 1 X 1\n", true, FM_ERR_FORMAT,
           "_atom_site.label_seq_id is '.', expected an integer");
    refuse(ENTRY ATOM("CA", "ALA", "1", "1.0") ATOM("^CA", "ALA", "1", "1.0"), true, FM_ERR_DATA,
           "an atom without an alternative location occurs a second time");
    refuse(ENTRY "HETATM 1 O . HOH W . ? 1 2 3 1 9 5 X 1\n" ATOM(
               "CA", "ALA", "1", "1.0") "HETATM 1 O . ^HOH W . ? 1 2 3 1 9 5 X 1\n",
           true, FM_ERR_DATA, "residue HOH 5 is a hetero residue and occurs a second time");
    refuse(ENTRY ATOM("CA", "ALA", "1", "1.0") "ATOM 1 CA B ^SER A 1 ? 1 2 3 1 9 1 X 1\n", true,
           FM_ERR_DATA,
           "residue SER 1 is an alternative to a residue that has atoms without an alternative "
           "location");
    refuse(ENTRY "ATOM 1 CA A ALA A 1 ? 1 2 3 1 9 1 X 1\nATOM 1 CA B SER A 1 ? 1 2 3 1 9 1 X 1\n"
                 "ATOM 1 N A ^ALA A 1 ? 1 2 3 1 9 1 X 1\n",
           true, FM_ERR_DATA, "residue ALA 1 is continued after its alternative");
    refuse(ENTRY "ATOM 1 CA A ALA A 1 ? 1 2 3 1 9 1 X 1\nATOM 1 ^CA . SER A 1 ? 1 2 3 1 9 1 X 1\n",
           true, FM_ERR_DATA,
           "found an atom without an alternative location in one of several alternatives of a "
           "residue");
    refuse(HEAD DATES "loop_\n_chem_comp.id\n_chem_comp.type\nALA 'L-peptide linking'\n" ASYMS POLY
                      "1 1 ALA\n1 2 ^ARG\n" SITE ATOM("CA", "ALA", "1", "1.0"),
           true, FM_ERR_DATA, "component 'ARG' is not in _chem_comp");
    refuse("^data_T\n_exptl.method X\n" COMPS ASYMS THREE SITE ATOM("CA", "ALA", "1", "1.0"), true,
           FM_ERR_DATA, "the file has neither a revision date nor _entry.id");
    refuse(HEAD DATES COMPS
           "loop_\n_struct_asym.id\n_struct_asym.entity_id\nA 1\n^B 1\n" THREE SITE ATOM(
               "CA", "ALA", "1", "1.0") "ATOM 1 CA . ALA B 1 ? 1 2 3 1 9 9 X 1\n",
           true, FM_ERR_DATA, "two protein chains have the author id X");
}

/* -- bounds */

static void any_arena_is_enough_or_refused(void **state) {
    (void)state;
    static const char text[] = MICRO;
    size_t n_refused = 0;
    for (int compat = 0; compat < 2; compat++) {
        for (size_t bytes = 4096; bytes < ((size_t)2 << 20); bytes += 9999) {
            fm_arena small;
            fm_mmcif mmcif;
            fm_error error;
            uint64_t line, column;
            assert_int_equal(fm_arena_init(&small, bytes, NULL), FM_OK);
            fm_status status =
                mmcif_text_parse(&small, text, compat, &mmcif, &error, &line, &column);
            assert_true(!status || status == FM_ERR_LIMIT);
            if (status) n_refused++;
            fm_arena_fini(&small);
        }
    }
    assert_true(n_refused > 0);
}

static void chains_longer_than_the_limit_are_refused(void **state) {
    (void)state;
    size_t room = (size_t)4 << 20, at = 0;
    char *text = malloc(room);
    assert_non_null(text);
    at += (size_t)snprintf(text, room, "%s", HEAD DATES COMPS ASYMS POLY);
    for (uint32_t i = 1; i <= FM_LIMIT_N_RES + 1; i++)
        at += (size_t)snprintf(text + at, room - at, "1 %u %sALA\n", i, i == 1 ? "^" : "");
    at += (size_t)snprintf(text + at, room - at, "%s", SITE ATOM("CA", "ALA", "1", "1.0"));
    assert_true(at < room);
    refuse(text, false, FM_ERR_LIMIT, "the chain has 65536 residues, the limit is 65535");
    refuse(text, true, FM_ERR_LIMIT, "the chain has 65536 residues, the limit is 65535");
    free(text);
}

static void wide_loops_and_many_alternatives_are_refused(void **state) {
    (void)state;
    static char text[32768];
    size_t at = (size_t)snprintf(text, sizeof text, "%sloop_\n", HEAD);
    for (uint32_t i = 0; i <= FM_LIMIT_CIF_COLUMN; i++) {
        const char *mark = i == FM_LIMIT_CIF_COLUMN ? "^" : "";
        at += (size_t)snprintf(text + at, sizeof text - at, "%s_a.b%u\n", mark, i);
    }
    refuse(text, false, FM_ERR_LIMIT, "the loop has more than 512 columns");
    refuse(text, true, FM_ERR_LIMIT, "the loop has more than 512 columns");
    at = (size_t)snprintf(text, sizeof text, "%s", HEAD DATES COMPS ASYMS POLY);
    for (uint32_t i = 0; i <= FM_LIMIT_ALTERNATIVE; i++) {
        const char *mark = i == FM_LIMIT_ALTERNATIVE ? "^" : "";
        at += (size_t)snprintf(text + at, sizeof text - at, "1 1 %sALA\n", mark);
    }
    snprintf(text + at, sizeof text - at, "%s", SITE ATOM("CA", "ALA", "1", "1.0"));
    refuse(text, false, FM_ERR_LIMIT, "found more than 64 alternatives of residue 1");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_entry_has_header_and_chain),
        cmocka_unit_test(order_and_form_of_categories_are_free),
        cmocka_unit_test(selenium_and_arginine_are_corrected),
        cmocka_unit_test(the_highest_occupancy_is_taken),
        cmocka_unit_test(resolution_is_the_first_that_is_a_number),
        cmocka_unit_test(only_protein_chains_are_listed_in_order),
        cmocka_unit_test(microheterogeneity_is_one_residue_or_shifts),
        cmocka_unit_test(the_first_model_is_read),
        cmocka_unit_test(unneeded_items_may_be_missing),
        cmocka_unit_test(blocks_and_save_frames_are_distinguished),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(broken_values_are_refused),
        cmocka_unit_test(broken_cif_is_refused),
        cmocka_unit_test(the_reference_refuses_more),
        cmocka_unit_test(any_arena_is_enough_or_refused),
        cmocka_unit_test(wide_loops_and_many_alternatives_are_refused),
        cmocka_unit_test(chains_longer_than_the_limit_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
