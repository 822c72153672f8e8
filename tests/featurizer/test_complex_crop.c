/* test_complex_crop.c: symmetries, features and crops of a small made complex: limits, failing
 * crops, draws, and what recorded draws must agree with.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/crop_rows.h"
#include "featurizer/complex/features.h"
#include "featurizer/complex/symmetries.h"
#include "featurizer/complex/tokens.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A chain of N_GLY glycines along x, 4 Å apart; beside its start a carbonate and an ion. */
enum { N_GLY = 20, N_RESIDUE = N_GLY + 2, N_ATOM = N_GLY * 4 + 4 + 1 };

#define ATOMS                                                                                      \
    "loop_\n_chem_comp_atom.atom_id\n_chem_comp_atom.type_symbol\n"                                \
    "_chem_comp_atom.pdbx_model_Cartn_x_ideal\n_chem_comp_atom.pdbx_model_Cartn_y_ideal\n"         \
    "_chem_comp_atom.pdbx_model_Cartn_z_ideal\n"
#define BONDS                                                                                      \
    "loop_\n_chem_comp_bond.atom_id_1\n_chem_comp_bond.atom_id_2\n_chem_comp_bond.value_order\n"
static const char dictionary[] =
    "data_GLY\n_chem_comp.id GLY\n_chem_comp.type 'PEPTIDE LINKING'\n"
    "_chem_comp.one_letter_code G\n" ATOMS
    "N N 1 0 0\nCA C 0 0 0\nC C 0 1 0\nO O 0 2 0\nOXT O 1 1 0\n" BONDS
    "N CA SING\nCA C SING\nC O DOUB\nC OXT SING\n"
    "data_CO3\n_chem_comp.id CO3\n_chem_comp.type NON-POLYMER\n" ATOMS
    "C C 0 0 0\nO1 O 1 0 0\nO2 O 0 1 0\nO3 O -1 -1 0\n" BONDS "C O1 DOUB\nC O2 SING\nC O3 SING\n"
    "data_ZN\n_chem_comp.id ZN\n_chem_comp.type NON-POLYMER\n" ATOMS "ZN ZN ? ? ?\n";

typedef struct made {
    fm_arena arena;
    fm_components components;
    fm_assembly assembly;
    fm_assembly_entity entities[3];
    fm_assembly_chain chains[3];
    fm_assembly_residue residues[N_RESIDUE];
    fm_assembly_atom atoms[N_ATOM];
    fm_assembly_bond bonds[N_ATOM];
} made;

static made m;

static void add_residue(const char *name, uint32_t chain, uint32_t n_atom, float x, float y) {
    static const char *const labels[3] = {"A", "B", "C"};
    fm_assembly *a = &m.assembly;
    fm_assembly_residue *residue = &m.residues[a->n_residue];
    const fm_component *component = fm_components_find(&m.components, name);
    if (a->n_chain == chain) {
        m.chains[a->n_chain++] =
            (fm_assembly_chain){.id = labels[chain],
                                .label_asym_id = labels[chain],
                                .entity = chain,
                                .first_residue = a->n_residue,
                                .first_atom = a->n_atom,
                                .asym_id = (int32_t)chain,
                                .mol_id = (int32_t)chain,
                                .entity_mol_id = (int32_t)chain,
                                .molecule = chain ? FM_MOLECULE_LIGAND : FM_MOLECULE_PROTEIN};
    }
    snprintf(residue->name, sizeof residue->name, "%s", name);
    residue->component = component;
    residue->chain = chain;
    residue->first_atom = a->n_atom;
    residue->number = (int32_t)(a->n_residue - m.chains[chain].first_residue + 1);
    residue->ref_space_uid = (int32_t)a->n_residue;
    residue->molecule = m.chains[chain].molecule;
    for (uint32_t i = 0; i < n_atom; i++) {
        fm_assembly_atom *atom = &m.atoms[a->n_atom];
        memcpy(atom->name, component->atoms[i].name, sizeof atom->name);
        atom->position[0] = x + (float)i * 0.1F;
        atom->position[1] = y;
        atom->residue = a->n_residue;
        atom->in_component = (int32_t)i;
        atom->mol_atom_index = (int32_t)(a->n_atom - m.chains[chain].first_atom);
        atom->element = component->atoms[i].element;
        atom->is_resolved = true;
        a->n_atom++;
    }
    a->n_residue++;
}

static int set_up(void **state) {
    (void)state;
    memset(&m, 0, sizeof m);
    fm_error error = {0};
    if (fm_arena_init(&m.arena, (size_t)256 << 20, NULL)) return 1;
    fm_bytes text = {(const uint8_t *)dictionary, sizeof dictionary - 1};
    if (fm_components_parse(text, &m.arena, &m.components, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    for (uint32_t i = 0; i < N_GLY; i++)
        add_residue("GLY", 0, 4, 4.0F * (float)i, 0);
    add_residue("CO3", 1, 4, 0, 5);
    add_residue("ZN", 2, 1, -5, 0);
    m.assembly.entities = m.entities;
    m.assembly.n_entity = 3;
    m.assembly.chains = m.chains;
    m.assembly.residues = m.residues;
    m.assembly.atoms = m.atoms;
    m.assembly.resolution = -1;
    for (uint32_t i = 0; i + 1 < N_GLY; i++)
        m.bonds[m.assembly.n_bond++] = (fm_assembly_bond){4 * i + 2, 4 * i + 4, FM_BOND_SINGLE};
    uint32_t c = 4 * N_GLY;
    m.bonds[m.assembly.n_bond++] = (fm_assembly_bond){c, c + 1, FM_BOND_DOUBLE};
    m.bonds[m.assembly.n_bond++] = (fm_assembly_bond){c, c + 2, FM_BOND_SINGLE};
    m.bonds[m.assembly.n_bond++] = (fm_assembly_bond){c, c + 3, FM_BOND_SINGLE};
    m.assembly.bonds = m.bonds;
    return fm_assembly_tokenize(&m.assembly, m.chains, m.residues, m.atoms, &m.arena, &error);
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&m.arena);
    return 0;
}

static void symmetries_are_listed_ascending(void **state) {
    (void)state;
    fm_symmetries found;
    const fm_component *carbonate = fm_components_find(&m.components, "CO3");
    assert_int_equal(fm_component_symmetries(carbonate, &m.arena, &found, NULL), FM_OK);
    static const uint16_t expected[6][4] = {{0, 1, 2, 3}, {0, 1, 3, 2}, {0, 2, 1, 3},
                                            {0, 2, 3, 1}, {0, 3, 1, 2}, {0, 3, 2, 1}};
    assert_int_equal(found.n, 6);
    assert_false(found.is_cut);
    assert_memory_equal(found.images, expected, sizeof expected);
}

/* Eight loose ions have 40,320 symmetries, of which the first 1,000 are kept. */
static void symmetries_are_cut(void **state) {
    (void)state;
    fm_component_atom atoms[8];
    memset(atoms, 0, sizeof atoms);
    fm_component loose = {.n_atom = 8, .atoms = atoms};
    fm_symmetries found;
    assert_int_equal(fm_component_symmetries(&loose, &m.arena, &found, NULL), FM_OK);
    assert_int_equal(found.n, FM_SYMMETRY_COLUMNS);
    assert_true(found.is_cut);
    for (uint16_t i = 0; i < 8; i++)
        assert_int_equal(found.images[i], i);
}

static void features_of_a_part(void **state) {
    (void)state;
    /* The last glycine, and all of the carbonate but its first oxygen. */
    const uint32_t tokens[] = {N_GLY - 1, N_GLY, N_GLY + 2, N_GLY + 3};
    fm_complex_features f = {0};
    assert_int_equal(fm_complex_features_make(&m.assembly, tokens, 4, NULL, &m.arena, &f, NULL),
                     FM_OK);
    assert_int_equal(f.n_atom, 7);
    assert_int_equal(f.n_token_bond, 2);
    assert_true(f.token_bonds[1].a == 1 && f.token_bonds[1].b == 3);
    assert_int_equal(f.n_bond_mask, 0);
    assert_true(f.frame_atom_index[0][0] == 0 && f.has_frame[0]);
    assert_true(f.frame_atom_index[1][1] == 4 && f.has_frame[1]);
    assert_true(f.restype[0] == 7 && f.restype[1] == 20);
    /* The mean is that of the three atoms. */
    assert_true(f.ref_pos[4][0] == (float)(1.0 / 3.0) && f.ref_pos[4][1] == 0.0F);
    assert_int_equal(f.permutation_count[0], 1); /* OXT is not there */
    assert_int_equal(f.permutation_count[1], 2);
    static const int16_t expected[] = {0, 0, 1, 2, 2, 1};
    assert_memory_equal(f.permutations + 4, expected, sizeof expected);

    const uint32_t ion = N_GLY + 4;
    assert_int_equal(fm_complex_features_make(&m.assembly, &ion, 1, NULL, &m.arena, &f, NULL),
                     FM_OK);
    assert_true(f.ref_mask[0] == 0 && f.has_frame[0] == 0 && f.frame_atom_index[0][1] == 0);
}

/* Draws many crops, and checks each against its request. */
static void check_crops(fm_crop_request request) {
    for (uint64_t index = 0; index < 200; index++) {
        size_t mark = fm_arena_mark(&m.arena);
        fm_sample_draw key = {.seed = 5, .index = index};
        fm_draws draws = fm_draws_philox(&key);
        fm_complex_crop crop = {0}, again = {0};
        uint32_t n_atom = 0;
        fm_status status =
            fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &crop, NULL);
        if (status == FM_ERR_DATA) continue;
        assert_int_equal(status, FM_OK);
        assert_int_equal(
            fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &again, NULL), FM_OK);
        assert_int_equal(crop.n_token, again.n_token);
        assert_memory_equal(crop.tokens, again.tokens, crop.n_token * sizeof *crop.tokens);
        assert_true(crop.n_token <= request.size);
        for (uint32_t i = 0; i < crop.n_token; i++) {
            uint32_t token = crop.tokens[i];
            assert_true(i == 0 || token > crop.tokens[i - 1]);
            n_atom += m.assembly.tokens[token].n_atom;
            if (!request.is_complete || token < N_GLY || token == N_GLY + 4) continue;
            assert_true(i + 4 <= crop.n_token + (token - N_GLY)); /* all of the carbonate */
        }
        assert_true(!request.max_atoms || n_atom <= request.max_atoms);
        assert_int_equal(crop.n_full, n_atom); /* no molecule comes twice here */
        fm_arena_rewind(&m.arena, mark);
    }
}

static void crops_keep_their_limits(void **state) {
    (void)state;
    for (int method = 0; method < FM_N_CROP_METHOD; method++) {
        for (int is_complete = 0; is_complete < 2; is_complete++) {
            fm_crop_request request = {.method = (fm_crop_method)method,
                                       .size = 9,
                                       .is_complete = is_complete != 0,
                                       .n_reference = 1};
            check_crops(request);
            request.max_atoms = 17;
            check_crops(request);
            request.size = 1000;
            check_crops(request);
        }
    }
}

static fm_status crop_with(fm_crop_method method, uint32_t n_reference, fm_error *reterr) {
    fm_sample_draw key = {.seed = 1};
    fm_draws draws = fm_draws_philox(&key);
    fm_crop_request request = {
        .method = method, .size = 8, .n_reference = n_reference, .reference = {0, 1}};
    fm_complex_crop crop;
    return fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &crop, reterr);
}

static void crops_that_fail(void **state) {
    (void)state;
    fm_error error;
    /* Nothing faces the chain any more: one chain is then enough, and two are not. */
    for (uint32_t i = 4 * N_GLY; i < N_ATOM; i++)
        m.atoms[i].position[1] = i + 1 < N_ATOM ? 1e30F : -1e30F;
    assert_int_equal(crop_with(FM_CROP_INTERFACE, 1, &error), FM_OK);
    assert_int_equal(crop_with(FM_CROP_INTERFACE, 2, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "the crop fails: no token of its chains is resolved and "
                                       "within 15 A of another chain");
    for (uint32_t i = 0; i < N_ATOM; i++)
        m.atoms[i].is_resolved = i < 4;
    assert_int_equal(crop_with(FM_CROP_SPATIAL, 2, &error), FM_OK);
    assert_int_equal(crop_with(FM_CROP_CONTIGUOUS, 0, &error), FM_ERR_DATA);
    m.atoms[1].is_resolved = false;
    assert_int_equal(crop_with(FM_CROP_SPATIAL, 2, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "the crop fails: no token of its chains is resolved");
}

/* The carbonate has four tokens, of which a crop of two has a part. */
static void a_crop_without_a_whole_residue_fails(void **state) {
    (void)state;
    fm_error error;
    fm_sample_draw key = {.seed = 1};
    fm_draws draws = fm_draws_philox(&key);
    fm_complex_crop crop;
    fm_crop_request request = {.method = FM_CROP_SPATIAL,
                               .size = 2,
                               .is_complete = true,
                               .n_reference = 1,
                               .reference = {1}};
    assert_int_equal(fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &crop, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "the crop fails: no residue fits into it");
    request.is_complete = false;
    assert_int_equal(fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &crop, &error),
                     FM_OK);
    assert_int_equal(crop.n_token, 2);
}

/* Draws that are not those that the crop asks for are noticed. */
static void recorded_draws_must_be_the_crops(void **state) {
    (void)state;
    static const fm_crop_draw good[] = {{0, 0, N_GLY, 3}}, other[] = {{0, 0, N_GLY + 1, 3}},
                              more[] = {{0, 0, N_GLY, 3}, {0, 0, 1, 0}},
                              twice[] = {{1, 0, 3, 1}, {1, 0, 3, 1}, {1, 0, 3, 0}};
    const struct {
        const fm_crop_draw *draws;
        uint32_t n;
        fm_crop_method method;
        bool is_whole;
    } cases[] = {{good, 1, FM_CROP_SPATIAL, true},      {other, 1, FM_CROP_SPATIAL, false},
                 {more, 2, FM_CROP_SPATIAL, false},     {good, 0, FM_CROP_SPATIAL, false},
                 {twice, 3, FM_CROP_CONTIGUOUS, false}, {good, 1, FM_CROP_CONTIGUOUS, false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_crop_replay replay = {.draws = cases[i].draws, .n = cases[i].n};
        fm_draws draws = fm_crop_replay_draws(&replay);
        fm_crop_request request = {.method = cases[i].method, .size = 4, .n_reference = 1};
        fm_complex_crop crop;
        fm_status status =
            fm_complex_crop_make(&m.assembly, &request, &draws, &m.arena, &crop, NULL);
        assert_true(!status || status == FM_ERR_DATA);
        assert_int_equal(fm_crop_replay_is_whole(&replay), cases[i].is_whole);
        if (cases[i].is_whole) assert_int_equal(crop.reference, 3);
    }
}

static fm_status parse_rows(const char *text, const fm_crop_row **ret_rows, uint32_t *ret_n,
                            fm_error *reterr) {
    fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    return fm_crop_rows_parse(bytes, &m.arena, ret_rows, ret_n, reterr);
}

static void rows_are_replayed(void **state) {
    (void)state;
    const fm_crop_row *rows = NULL;
    fm_complex_crop crop;
    fm_error error = {0};
    uint32_t n = 0;
    assert_int_equal(parse_rows("id\tcrop\tmethod\tsize\tcomplete\tref_asym_id\tn_tokens\tdraws\n"
                                "1abc\t7\t1\t4\t0\t0,1\t4\t0,0,24,3\n"
                                "1abc\t8\t1\t4\t1\t0\t3\t0,0,20,3\n\n"
                                "2abc\t0\t0\t4\t1\t\t4\t\n",
                                &rows, &n, &error),
                     FM_OK);
    assert_int_equal(n, 3);
    assert_string_equal(rows[2].id, "2abc");
    assert_true(rows[0].request.n_reference == 2 && rows[0].request.reference[1] == 1);
    assert_int_equal(fm_crop_row_replay(&rows[0], &m.assembly, &m.arena, &crop, &error), FM_OK);
    assert_int_equal(crop.reference, 3);
    assert_int_equal(fm_crop_row_replay(&rows[1], &m.assembly, &m.arena, &crop, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "crop 8 of 1abc has 4 tokens, expected 3");
    assert_int_equal(error.line, 3);
    assert_int_equal(fm_crop_row_replay(&rows[2], &m.assembly, &m.arena, &crop, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "crop 0 of 2abc asks for other draws than the 0 recorded "
                                       "ones, from draw 1 on");
}

static void rows_that_are_not_valid(void **state) {
    (void)state;
    static const struct {
        const char *text, *message;
        uint64_t column;
    } cases[] = {
        {"a\t0\t0\t4\t1\t\t4\n", "a row of only 7 values, expected 8", 1},
        {"a\t0\t0\t4\t1\t\t4\t\t\n", "a row of more than 8 values, expected 8", 1},
        {"a\t-1\t0\t4\t1\t\t4\t\n", "crop is '-1', expected a number of at least 0", 3},
        {"a\t65536\t0\t4\t1\t\t4\t\n", "crop is '65536', expected a number below 65536", 3},
        {"a\t0\t3\t4\t1\t\t4\t\n", "method is '3', expected 0, 1 or 2", 5},
        {"a\t0\t0\t0\t1\t\t4\t\n", "size is '0', expected a number of at least 1", 7},
        {"a\t0\t0\t4\t2\t\t4\t\n", "complete is '2', expected 0 or 1", 9},
        {"a\t0\t0\t4\t1\t1,2,3\t4\t\n", "ref_asym_id is '1,2,3', expected at most two chains", 11},
        {"a\t0\t0\t4\t1\t1\t4\t0,0,1\n",
         "draws is '0,0,1', expected kind,low,high,value of each draw", 15},
        {"a\t0\t0\t4\t1\t1\t4\t0,0,1,x\n", "draws is 'x', expected a whole number", 21},
        {"a\t0\t0\t4\t1\t1\t4\t0;0,1,0\n", "a separator is ';', expected ','", 16},
        {"\t0\t0\t4\t1\t1\t4\t\n", "id is '', expected 1 to 31 letters", 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const fm_crop_row *rows = NULL;
        fm_error error = {0};
        uint32_t n = 0;
        assert_int_equal(parse_rows(cases[i].text, &rows, &n, &error), FM_ERR_FORMAT);
        assert_string_equal(error.message, cases[i].message);
        assert_int_equal(error.line, 1);
        assert_int_equal(error.column, cases[i].column);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(symmetries_are_listed_ascending, set_up, tear_down),
        cmocka_unit_test_setup_teardown(symmetries_are_cut, set_up, tear_down),
        cmocka_unit_test_setup_teardown(features_of_a_part, set_up, tear_down),
        cmocka_unit_test_setup_teardown(crops_keep_their_limits, set_up, tear_down),
        cmocka_unit_test_setup_teardown(crops_that_fail, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_crop_without_a_whole_residue_fails, set_up, tear_down),
        cmocka_unit_test_setup_teardown(recorded_draws_must_be_the_crops, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_are_replayed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(rows_that_are_not_valid, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
