/* test_job_prepare.c: what a job becomes: atoms that leave, bonds, tokens, alignments, components
 * of the user and what cannot be prepared. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/job/molfile.h"
#include "tests/featurizer/job_case.h"

static job_case test;
static char names[256];

static int set_up(void **state) {
    (void)state;
    job_case_init(&test);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&test.arena);
    return 0;
}

static void must_prepare(const char *text, bool compat, const char *const *files) {
    fm_status status = job_case_prepare(&test, "x.yaml", text, compat, files);
    if (status) fprintf(stderr, "%s\n", test.message);
    assert_int_equal(status, FM_OK);
}

#define ATOMS(residue) job_case_atoms(&test, residue, names)

static void atoms_leave_with_bonds(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMG}\n  - ligand: {id: B, ccd: SUG}\n"
                 "  - ligand: {id: C, ccd: SUG}\n  - dna: {id: D, sequence: AA}\n"
                 "constraints:\n  - bond: {atom1: [A, 2, CB], atom2: [B, 1, C1]}\n",
                 false, NULL);
    assert_string_equal(ATOMS(0), "N CA C O");
    assert_string_equal(ATOMS(2), "N CA C O OXT");
    assert_string_equal(ATOMS(3), "C1 C2");    /* bonded */
    assert_string_equal(ATOMS(4), "C1 C2 O1"); /* free */
    assert_string_equal(ATOMS(5), "OP3 P OP1 C1' O3' C4");
    assert_string_equal(ATOMS(6), "P OP1 C1' O3' C4");
    assert_true(job_case_bonded(&test, 0, "C", 1, "N"));
    assert_true(job_case_bonded(&test, 1, "CB", 3, "C1"));
    assert_true(job_case_bonded(&test, 5, "O3'", 6, "P"));
    const fm_assembly *a = &test.prepared->assembly;
    assert_int_equal(a->n_token, 3 + 2 + 3 + 2);
    assert_int_equal(a->chains[3].molecule, FM_MOLECULE_DNA);
    assert_int_equal(a->chains[2].sym_id, 0);
    assert_int_equal(a->chains[2].entity_id, 2);
}

static void caps_are_bonded(void **state) {
    (void)state;
    static const char text[] =
        "sequences:\n  - protein:\n      id: A\n      sequence: XGX\n      modifications:\n"
        "        - {position: 1, ccd: ACE}\n        - {position: 3, ccd: NME}\n";
    must_prepare(text, false, NULL);
    assert_string_equal(ATOMS(1), "N CA C O");
    assert_true(job_case_bonded(&test, 0, "C", 1, "N"));
    assert_true(job_case_bonded(&test, 1, "C", 2, "N"));
    assert_int_equal(test.prepared->assembly.n_token, 3 + 1 + 2);
    must_prepare(text, true, NULL);
    assert_string_equal(ATOMS(1), "N CA C O OXT");
}

static void selenomethionine_is_methionine(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMG, modifications: [{position: 2, "
                 "ccd: MSE}]}\n",
                 false, NULL);
    const fm_assembly *a = &test.prepared->assembly;
    assert_string_equal(a->residues[1].name, "MET");
    assert_string_equal(a->residues[1].component->id, "MSE");
    assert_string_equal(ATOMS(1), "N CA C O CB SD");
    assert_int_equal(a->atoms[9].element, 16);
    assert_int_equal(a->n_token, 3);
    assert_int_equal(test.prepared->names.residue_letter[1], 'M');
    assert_string_equal(
        test.prepared->names.component_id[test.prepared->names.residue_component[1]], "MET");
}

static void entities_rank_as_text(void **state) {
    (void)state;
    char text[1024] = "sequences:\n";
    for (int i = 0; i < 11; i++) {
        char row[64];
        snprintf(row, sizeof row, "  - ligand: {id: C%d, ccd: ZN}\n", i);
        strcat(text, row);
    }
    must_prepare(text, false, NULL);
    const fm_assembly *a = &test.prepared->assembly;
    assert_int_equal(a->chains[9].entity_id, 1); /* entity 10 comes before entity 2 */
    assert_int_equal(a->chains[1].entity_id, 3);
}

static void alignments_are_read(void **state) {
    (void)state;
    static const char *const files[] = {"m.a3m", ">q\nGMGMG\n>a\nGMGM-\n>b\nGMGM-\n", NULL};
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG, msa: m.a3m}\n", false, files);
    const fm_array *msa = job_case_array(&test, "features/msa");
    assert_int_equal(msa->shape[0], 3); /* the query twice, and one of two equal rows */
    assert_int_equal(msa->shape[1], 5);
    assert_int_equal(((const uint8_t *)msa->data)[14], 31);
}

static void far_bonds_are_token_bonds(void **state) {
    (void)state;
    must_prepare("sequences:\n  - protein: {id: A, sequence: GMGMG}\nconstraints:\n"
                 "  - bond: {atom1: [A, 2, SD], atom2: [A, 4, SD]}\n",
                 false, NULL);
    const fm_array *pairs = job_case_array(&test, "features/token_bonds_pairs");
    assert_int_equal(pairs->shape[0], 1);
    assert_int_equal(((const int32_t *)pairs->data)[0], 1);
    assert_int_equal(((const int32_t *)pairs->data)[1], 3);
    assert_int_equal(test.warnings.n, 3); /* and two components without coordinates */
    assert_non_null(strstr(test.warnings.texts[2], "a bond between two residues of polymers"));
}

/* -- the user's components */

#define MOLFILE_HEAD "name\n  prog              3D\n\n"
#define MOLFILE                                                                                    \
    MOLFILE_HEAD "  4  3  0  0  0  0  0  0  0  0999 V2000\n"                                       \
                 "    0.0000    0.0000    0.0000 C   0  0  0\n"                                    \
                 "    1.5000    0.0000    0.0000 O   0  0  0\n"                                    \
                 "    0.0000    1.5000    0.0000 N   0  3  0\n"                                    \
                 "    0.0000    0.0000    1.0000 H   0  0  0\n"                                    \
                 "  1  2  2  0\n  1  3  1  0\n  1  4  1  0\n"                                      \
                 "M  CHG  1   2  -1\nM  END\n$$$$\n"

static void molfiles_are_components(void **state) {
    (void)state;
    const fm_bytes text = {(const uint8_t *)MOLFILE, sizeof MOLFILE - 1};
    fm_component component = {0};
    assert_int_equal(fm_molfile_parse(text, "l01", &test.arena, &component, NULL), FM_OK);
    assert_string_equal(component.id, "l01");
    assert_int_equal(component.n_atom, 3);
    assert_int_equal(component.n_bond, 2);
    assert_string_equal(component.atoms[2].name, "N1");
    assert_int_equal(component.atoms[0].n_hydrogen, 1);
    assert_int_equal(component.atoms[1].charge, -1);
    assert_int_equal(component.atoms[2].charge, 0); /* M  CHG replaces all */
    assert_int_equal(component.bonds[0].order, FM_BOND_DOUBLE);
    assert_true(component.atoms[1].has_ideal && component.atoms[1].ideal[0] > 1.4f);
    static const char *const files[] = {"x.sdf", MOLFILE, NULL};
    static const char job[] =
        "[{\"name\":\"n\",\"sequences\":[{\"ligand\":{\"ligand\":\"FILE_x.sdf\"}}]}]";
    fm_status status = job_case_prepare(&test, "x.json", job, false, files);
    assert_int_equal(status, FM_OK);
    assert_string_equal(ATOMS(0), "C1 O1 N1");
}

static void bad_molfiles_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"a\nb\n", "found the end, expected a molecule"},
        {"a\n  prog              2D\n\n  1  0  0 0 0 0 0 0 0 0999 V2000\n", "two dimensions"},
        {MOLFILE_HEAD "  0  0  0     0  0  0  0  0  0999 V3000\n", "found V3000, expected V2000"},
        {MOLFILE_HEAD "  x  0\n", "4:1: found 'x', expected a whole number from 1 to 999"},
        {MOLFILE_HEAD "  1  0\n", "found the end, expected an atom"},
        {MOLFILE_HEAD "  1  0\n    0.0000    0.0000    0.0000 Qq\n", "found no element"},
        {MOLFILE_HEAD "  1  0\n    0.0000    x         0.0000 C \n", "found no coordinate"},
        {MOLFILE_HEAD "  1  1\n    0.0000    0.0000    0.0000 C \n  1  2  1\n",
         "found '2', expected a whole number from 1 to 1"},
        {MOLFILE_HEAD "  1  0\n    0.0000    0.0000    0.0000 C \n", "expected 'M  END'"},
        {MOLFILE "name\n", "found a second molecule"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const fm_bytes text = {(const uint8_t *)rows[i].text, strlen(rows[i].text)};
        fm_component component;
        fm_status status = fm_molfile_parse(text, "l01", &test.arena, &component, &test.error);
        assert_true(job_case_note(&test, status));
        if (!strstr(test.message, rows[i].message)) fprintf(stderr, "%s\n", test.message);
        assert_non_null(strstr(test.message, rows[i].message));
    }
}

/* A component of the user replaces the dictionary's. */
static void user_components_come_first(void **state) {
    (void)state;
    static const char text[] =
        "{\"name\":\"n\",\"modelSeeds\":[1],\"dialect\":\"alphafold3\",\"version\":3,"
        "\"sequences\":[{\"ligand\":{\"id\":\"A\",\"ccdCodes\":[\"SUG\"]}}],\"userCCDPath\":\"u\"}";
    static const char component[] =
        "data_SUG\n_chem_comp.id SUG\n_chem_comp.type NON-POLYMER\n"
        "_chem_comp_atom.atom_id X1\n_chem_comp_atom.type_symbol N\n"
        "_chem_comp_atom.model_Cartn_x 1\n_chem_comp_atom.model_Cartn_y 2\n"
        "_chem_comp_atom.model_Cartn_z 3\n";
    const char *files[] = {"u", component, NULL};
    assert_int_equal(job_case_prepare(&test, "x.json", text, false, files), FM_OK);
    assert_string_equal(ATOMS(0), "X1");
    assert_int_equal(((const uint8_t *)job_case_array(&test, "features/ref_mask")->data)[0], 1);
    assert_int_equal(job_case_prepare(&test, "x.json", text, true, files), FM_OK);
    assert_int_equal(((const uint8_t *)job_case_array(&test, "features/ref_mask")->data)[0], 0);
    files[1] = "data_SUG\n_chem_comp.id SUG\nx\n";
    assert_true(job_case_prepare(&test, "x.json", text, false, files));
    assert_non_null(strstr(test.message, "u:3:1: found 'x'"));
}

/* -- what cannot be prepared */

static void bad_jobs_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
    } rows[] = {
        {"sequences:\n  - ligand: {id: A, ccd: SUX}\n",
         "2:26: sequences[0].ligand.ccd: found the component SUX at residue 1, which is not among "
         "the 10 components"},
        {"sequences:\n  - protein: {id: A, sequence: GMG}\n  - ligand: {id: B, ccd: SUG}\n"
         "constraints:\n  - bond: {atom1: [A, 1, OXT], atom2: [B, 1, C1]}\n",
         "found the atom OXT of GLY 1 in chain A, which leaves with a bond of the polymer, "
         "expected "
         "one of N CA C O"},
        {"sequences:\n  - ligand: {id: B, ccd: [SUG, SUG]}\n"
         "constraints:\n  - bond: {atom1: [B, 1, C9], atom2: [B, 2, C1]}\n",
         "4:26: constraints[0].bond.atom1[2]: found the atom C9 of SUG 1 in chain B"},
        {"sequences:\n  - ligand: {id: B, ccd: [SUG, GOL]}\n"
         "constraints:\n  - bond: {atom1: [B, 1, O1], atom2: [B, 2, C1]}\n"
         "  - bond: {atom1: [B, 1, C1], atom2: [B, 2, O1]}\n",
         "found a bond of the atom O1, which leaves with another bond"},
        {"sequences:\n  - protein: {id: A, sequence: GMGMG, msa: none.a3m}\n",
         "none.a3m: no such file"},
        {"sequences:\n  - protein: {id: A, sequence: GMGMG, msa: m.a3m}\n", "m.a3m:2:2: "},
    };
    static const char *const files[] = {"m.a3m", ">q\nGGGMG\n", NULL};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_true(job_case_prepare(&test, "x.yaml", rows[i].text, false, files));
        if (!strstr(test.message, rows[i].message)) fprintf(stderr, "%s\n", test.message);
        assert_non_null(strstr(test.message, rows[i].message));
    }
}

static void alignments_are_needed(void **state) {
    (void)state;
    const fm_job_options options = {.max_row = 64, .n_template = 4};
    assert_int_equal(
        job_case_read(&test, "x.yaml", "sequences:\n  - protein: {id: A, sequence: GMGMG}\n"),
        FM_OK);
    fm_status status = fm_job_prepare(test.jobs.jobs, &test.components, NULL, &options, &test.arena,
                                      &test.warnings, test.prepared, &test.error);
    assert_int_equal(job_case_note(&test, status), FM_ERR_NOT_FOUND);
    assert_non_null(strstr(test.message, "chain A has no alignment; foldmill does not search"));
}

/* A complex is refused for its tokens before anything is made of it. */
static void large_jobs_are_refused(void **state) {
    (void)state;
    size_t before = fm_arena_mark(&test.arena);
    assert_int_equal(
        job_case_prepare(&test, "x.json",
                         "[{\"name\":\"n\",\"sequences\":[{\"ion\":{\"ion\":\"ZN\",\"count\":"
                         "10000}}]}]",
                         false, NULL),
        FM_ERR_LIMIT);
    assert_non_null(strstr(test.message, "found at least 10000 tokens, expected at most 5120"));
    assert_true(fm_arena_mark(&test.arena) - before < (size_t)4 << 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(atoms_leave_with_bonds),
        cmocka_unit_test(caps_are_bonded),
        cmocka_unit_test(selenomethionine_is_methionine),
        cmocka_unit_test(entities_rank_as_text),
        cmocka_unit_test(alignments_are_read),
        cmocka_unit_test(far_bonds_are_token_bonds),
        cmocka_unit_test(molfiles_are_components),
        cmocka_unit_test(bad_molfiles_are_refused),
        cmocka_unit_test(user_components_come_first),
        cmocka_unit_test(bad_jobs_are_refused),
        cmocka_unit_test(alignments_are_needed),
        cmocka_unit_test(large_jobs_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
