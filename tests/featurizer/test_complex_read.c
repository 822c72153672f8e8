/* test_complex_read.c: the rules by which a small mmCIF entry becomes an assembly, in both
 * readings, and what is refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "featurizer/complex/components.h"
#include "featurizer/complex/pcg64.h"
#include "featurizer/complex/read.h"
#include "proto/limits.h"
#include "tests/featurizer/complex_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY                                                                                      \
    COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_ASSEMBLY COMPLEX_SITE COMPLEX_CHAIN_A           \
        COMPLEX_LIGANDS

static fm_arena arena;
static fm_components components;
static size_t mark;

static int set_up(void **state) {
    (void)state;
    static const char known[] = COMPLEX_COMPONENTS;
    fm_error error = {0};
    if (fm_arena_init(&arena, (size_t)256 << 20, &error)) return 1;
    if (fm_components_parse((fm_bytes){(const uint8_t *)known, sizeof known - 1}, &arena,
                            &components, &error)) {
        fprintf(stderr, "%s\n", error.message);
        return 1;
    }
    mark = fm_arena_mark(&arena);
    return 0;
}
static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

static fm_status try_read(const char *text, bool compat, fm_assembly *ret_assembly,
                          fm_error *reterr) {
    const fm_assembly_options options = {.compat_protenix = compat};
    fm_arena_rewind(&arena, mark);
    return fm_assembly_read((fm_bytes){(const uint8_t *)text, strlen(text)}, &components, &options,
                            &arena, ret_assembly, reterr);
}

static fm_assembly must_read(const char *text, bool compat) {
    fm_assembly assembly = {0};
    fm_error error = {0};
    if (try_read(text, compat, &assembly, &error)) {
        fail_msg("%llu:%llu: %s", (unsigned long long)error.line, (unsigned long long)error.column,
                 error.message);
    }
    return assembly;
}

/* Expects a refusal whose message has these words. */
static void refuse(const char *text, bool compat, fm_status expected, const char *words) {
    fm_assembly assembly;
    fm_error error = {0};
    assert_int_equal(try_read(text, compat, &assembly, &error), expected);
    if (!strstr(error.message, words)) fail_msg("found '%s', expected %s", error.message, words);
}

/* Returns the text with the first occurrence of `from` replaced. */
static const char *with(const char *text, const char *from, const char *to) {
    static char out[16384];
    const char *at = strstr(text, from);
    assert_non_null(at);
    int n = snprintf(out, sizeof out, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_in_range(n, 1, sizeof out - 1);
    return out;
}

static uint32_t find_atom(const fm_assembly *assembly, uint32_t chain, int32_t number,
                          const char *name) {
    for (uint32_t i = 0; i < assembly->n_atom; i++) {
        const fm_assembly_residue *residue = &assembly->residues[assembly->atoms[i].residue];
        if (residue->chain == chain && residue->number == number &&
            strcmp(assembly->atoms[i].name, name) == 0) {
            return i;
        }
    }
    return UINT32_MAX;
}

static bool are_bonded(const fm_assembly *assembly, uint32_t a, uint32_t b) {
    for (uint32_t i = 0; i < assembly->n_bond; i++) {
        const fm_assembly_bond *bond = &assembly->bonds[i];
        if ((bond->a == a && bond->b == b) || (bond->a == b && bond->b == a)) return true;
    }
    return false;
}

static void chains_are_completed(void **state) {
    (void)state;
    for (int compat = 0; compat < 2; compat++) {
        fm_assembly a = must_read(ENTRY, compat);
        const uint32_t none = UINT32_MAX;
        assert_string_equal(a.chains[0].id, "A");
        assert_string_equal(a.chains[0].auth_asym_id, "X");
        assert_string_equal(a.entities[0].sequence, "GMG");
        assert_string_equal(a.release_date, "2011-07-13");
        assert_true(a.resolution == 1.5F);
        /* The hydrogen is gone, and OXT stays at the end of the chain only. */
        assert_int_equal(find_atom(&a, 0, 1, "HA2"), none);
        assert_int_equal(find_atom(&a, 0, 1, "OXT"), none);
        assert_int_equal(find_atom(&a, 0, 2, "OXT"), none);
        uint32_t last = find_atom(&a, 0, 3, "OXT"), sulphur = find_atom(&a, 0, 2, "SD");
        assert_false(a.atoms[last].is_resolved);
        assert_true(a.atoms[last].position[0] == 0);
        /* Selenomethionine is methionine, at the place of higher occupancy. */
        assert_true(a.atoms[sulphur].is_resolved && a.atoms[sulphur].element == 16);
        assert_true(a.atoms[sulphur].position[1] == 0.5F);
        assert_true(are_bonded(&a, find_atom(&a, 0, 1, "C"), find_atom(&a, 0, 2, "N")));
        assert_true(are_bonded(&a, find_atom(&a, 0, 2, "C"), find_atom(&a, 0, 3, "N")));
    }
}

static void ligands_lose_what_leaves(void **state) {
    (void)state;
    fm_assembly a = must_read(ENTRY, false);
    uint32_t sugar = 0;
    while (strcmp(a.chains[sugar].id, "B") != 0)
        sugar++;
    assert_int_equal(find_atom(&a, sugar, 1, "O1"), UINT32_MAX);
    uint32_t carbon = find_atom(&a, sugar, 1, "C1");
    assert_true(are_bonded(&a, carbon, find_atom(&a, 0, 2, "CB")));
    /* Bonded, chain and sugar are one molecule. */
    assert_int_equal(a.chains[sugar].mol_id, a.chains[0].mol_id);
    assert_int_equal(a.atoms[carbon].mol_atom_index,
                     fm_assembly_chain_end_atom(&a, 0) - a.chains[0].first_atom);
    /* Without the bond it keeps its atom, and no copy has that resolved, so it goes again; the
     * molecules are two. */
    a = must_read(with(ENTRY, "covale A", "metalc A"), false);
    assert_int_not_equal(a.chains[0].mol_id, a.chains[a.n_chain - 1].mol_id);
}

static void operations_make_copies(void **state) {
    (void)state;
    fm_assembly a = must_read(ENTRY, false);
    /* A and A.1 come first, then B and B.1, C and C.1; GOL is a crystallisation aid, and water
     * never counts. */
    static const char *const ids[] = {"A", "A.1", "B", "B.1", "C", "C.1"};
    assert_int_equal(a.n_chain, 6);
    for (uint32_t i = 0; i < 6; i++) {
        assert_string_equal(a.chains[i].id, ids[i]);
        assert_int_equal(a.chains[i].sym_id, i % 2);
        assert_int_equal(a.chains[i].is_expanded, i % 2);
    }
    assert_int_equal(a.chains[1].entity_mol_id, a.chains[0].entity_mol_id);
    const fm_assembly_atom *atom = &a.atoms[find_atom(&a, 1, 1, "O")];
    assert_true(atom->position[0] == 2.8F && atom->position[1] == 6 - 1.2F);
    assert_true(a.n_pair > 0);
    /* A method that is no crystal's keeps the aid. */
    a = must_read(with(ENTRY, "X-RAY DIFFRACTION", "SOLUTION NMR"), false);
    assert_int_equal(a.n_chain, 8);
}

static void products_of_operations_are_applied_from_the_right(void **state) {
    (void)state;
    fm_assembly a = must_read(with(ENTRY, "oper_expression 1,2", "oper_expression (1-2)(2)"), true);
    const fm_assembly_atom *first = &a.atoms[find_atom(&a, 0, 1, "O")];
    const fm_assembly_atom *second = &a.atoms[find_atom(&a, 1, 1, "O")];
    assert_true(first->position[1] == 6 - 1.2F);                           /* 1 after 2 */
    assert_true(second->position[1] > 1.1F && second->position[1] < 1.3F); /* 2 after 2 */
}

static void the_readings_differ(void **state) {
    (void)state;
    fm_assembly assembly;
    fm_error error = {0};
    const char *no_assembly = COMPLEX_HEAD COMPLEX_POLY COMPLEX_CONN COMPLEX_SITE COMPLEX_CHAIN_A;
    /* A file without an assembly is one as it stands. */
    assert_int_equal(must_read(no_assembly, false).n_chain, 1);
    refuse(no_assembly, true, FM_ERR_NOT_FOUND, "no _pdbx_struct_assembly.oligomeric_count");
    /* The reference does not ask whether atoms and sequence agree. */
    const char *other = with(ENTRY, "1 1 GLY\n", "1 1 MET\n");
    assert_int_equal(try_read(other, true, &assembly, &error), FM_OK);
    refuse(other, false, FM_ERR_DATA, "residue 1 is GLY, but _entity_poly_seq says MET");
    /* It knows methods by their exact letters. */
    const char *lower = with(ENTRY, "X-RAY DIFFRACTION", "X-ray diffraction");
    assert_int_equal(must_read(lower, false).n_chain, 6);
    assert_int_equal(must_read(lower, true).n_chain, 8);
    const char *powder = with(ENTRY, "X-RAY DIFFRACTION", "POWDER DIFFRACTION");
    assert_int_equal(must_read(powder, false).n_chain, 6);
    assert_int_equal(must_read(powder, true).n_chain, 8);
}

#define NO_SEQUENCE                                                                                \
    COMPLEX_HEAD "_entity_poly.entity_id 1\n_entity_poly.type 'polypeptide(L)'\n" COMPLEX_ASSEMBLY \
        COMPLEX_SITE "N N . GLY A 1 . X 11 0.0 0 0 1\nC CA . GLY A 1 . X 11 1.4 0 0 1\n"

/* Files that were made of PDB text have polymers without _entity_poly_seq and label_seq_id. */
static void a_polymer_without_a_sequence_has_none(void **state) {
    (void)state;
    fm_assembly a = must_read(NO_SEQUENCE, true);
    assert_int_equal(a.residues[0].molecule, FM_MOLECULE_PROTEIN);
    assert_int_equal(a.entities[0].polymer, FM_POLYMER_PEPTIDE_L);
    assert_int_equal(a.entities[0].n_residue, 0);
    assert_null(a.entities[0].sequence);
    refuse(NO_SEQUENCE, false, FM_ERR_DATA, "chain 'A' has no label_seq_id, but its entity '1'");
}

static void a_resolution_may_have_an_uncertainty(void **state) {
    (void)state;
    assert_true(must_read(with(ENTRY, "1.50", "1.50(2)"), false).resolution == 1.5F);
    assert_true(must_read(with(ENTRY, "1.50", "1.50(2)"), true).resolution == -1);
    assert_true(must_read(with(ENTRY, "1.50", "0"), false).resolution == -1);
}

static void a_date_that_is_not_given_is_none(void **state) {
    (void)state;
    assert_string_equal(must_read(with(ENTRY, "2011-07-13", "?"), false).release_date,
                        "9999-12-31");
    refuse(with(ENTRY, "2011-07-13", "13.7.2011"), false, FM_ERR_FORMAT, "expected YYYY-MM-DD");
}

static void contradictions_are_refused(void **state) {
    (void)state;
    for (int compat = 0; compat < 2; compat++) {
        refuse("", compat, FM_ERR_FORMAT, "");
        refuse("data_T\n", compat, FM_ERR_NOT_FOUND, "no atoms");
        refuse(with(ENTRY, "1 3 GLY", "1 3 XYZ"), compat, FM_ERR_NOT_FOUND,
               "component XYZ of the polymer is not among the components");
        refuse(with(ENTRY, "1 3 GLY", "1 4 GLY"), compat, FM_ERR_DATA, "_entity_poly_seq.num");
        refuse(with(ENTRY, "1 1 GLY\n", "1 2 GLY\n"), compat, FM_ERR_DATA,
               "_entity_poly_seq.num is '2', expected 1");
        refuse(with(ENTRY, "1 1 GLY\n1 2 MSE\n1 3 GLY\n", "9 1 GLY\n"), compat, FM_ERR_DATA,
               "_entity_poly_seq has no row of its entity '1'");
        refuse(with(ENTRY, "N N . MSE A 1 2", "N N . MSE A 1 9"), compat, FM_ERR_DATA,
               "numbers that do not go down");
        refuse(COMPLEX_HEAD COMPLEX_POLY COMPLEX_ASSEMBLY COMPLEX_SITE
               "C CA . GLY A 1 -2147483647 X 11 0 0 0 1\nC CA . GLY A 1 2147483647 X 12 3 0 0 1\n",
               compat, FM_ERR_DATA, "residue -2147483647 is outside its chain's sequence");
        refuse(with(ENTRY, "A 1 1 X 11 0.0", "A 1 1 X 11 zero"), compat, FM_ERR_FORMAT,
               "Cartn_x is 'zero', expected a number");
        refuse(with(ENTRY, "A 1 1 X 11 0.0", "A 1 1 X 11 1e9"), compat, FM_ERR_LIMIT, "Cartn_x");
        refuse(with(ENTRY, "N N . GLY", "Qq N . GLY"), compat, FM_ERR_DATA, "symbol");
        refuse(with(ENTRY, "oper_expression 1,2", "oper_expression 1-3"), compat, FM_ERR_DATA,
               "operation 3 is not in _pdbx_struct_oper_list");
        refuse(with(ENTRY, "oper_expression 1,2", "oper_expression (1)()"), compat, FM_ERR_DATA,
               "empty");
        refuse(with(ENTRY, "gen.assembly_id 1", "gen.assembly_id 2"), compat, FM_ERR_NOT_FOUND,
               "no assembly 1");
        refuse(with(ENTRY, "_entity_poly_seq.num", "_atom_site.id\n_atom_site.label_alt_id"),
               compat, FM_ERR_FORMAT, "the loop has columns of _entity_poly_seq and of _atom_site");
        refuse(with(ENTRY, "polypeptide(L)'", "polypeptide(L)'\n_entity_poly.entity_id 1"), compat,
               FM_ERR_FORMAT, "a second time");
        refuse(with(ENTRY, "O O . GLY A", "C C . GLY A"), compat, FM_ERR_DATA,
               "atom C comes a second time in its residue");
        refuse(with(ENTRY, "C C1 . GOL D", "C C1 . GOL B"), compat, FM_ERR_DATA,
               "continue after those of another chain");
    }
}

/* A ligand that is not among the components keeps all of its rows. */
static void a_residue_of_too_many_atoms_is_refused(void **state) {
    (void)state;
    static const char head[] = COMPLEX_HEAD COMPLEX_SITE, row[] = "C C . XXX A 1 . X 1 0 0 0 1\n";
    size_t n = FM_LIMIT_COMPONENT_ATOM + 1, size = sizeof head - 1 + n * (sizeof row - 1);
    char *text = malloc(size + 1);
    assert_non_null(text);
    memcpy(text, head, sizeof head);
    for (size_t i = 0; i < n; i++)
        memcpy(text + sizeof head - 1 + i * (sizeof row - 1), row, sizeof row);
    refuse(text, false, FM_ERR_LIMIT, "the residue has more than 8192 atoms");
    free(text);
}

/* Ends that name no more than a chain are looked for in all of its residues. */
static void bonds_of_too_many_ends_are_refused(void **state) {
    (void)state;
    static const char head[] =
        COMPLEX_HEAD "loop_\n_struct_conn.conn_type_id\n_struct_conn.ptnr1_label_asym_id\n"
                     "_struct_conn.ptnr1_label_atom_id\n_struct_conn.ptnr2_label_asym_id\n"
                     "_struct_conn.ptnr2_label_atom_id\n";
    enum { N_BOND = 1500, N_ATOM = 3000, LINE = 40 };
    size_t room = sizeof head + sizeof COMPLEX_SITE + (N_BOND + N_ATOM) * (size_t)LINE, n = 0;
    char *text = malloc(room);
    assert_non_null(text);
    n += (size_t)snprintf(text + n, room - n, "%s", head);
    for (int i = 0; i < N_BOND; i++)
        n += (size_t)snprintf(text + n, room - n, "covale A N A N\n");
    n += (size_t)snprintf(text + n, room - n, "%s", COMPLEX_SITE);
    for (int i = 0; i < N_ATOM; i++)
        n += (size_t)snprintf(text + n, room - n, "C C . XXX A 1 . X %d 0 0 0 1\n", i);
    refuse(text, false, FM_ERR_LIMIT, "more than 1024 bonds to look for at each atom");
    free(text);
}

static void the_shuffle_is_numpys(void **state) {
    (void)state;
    /* numpy.random.default_rng(42).shuffle(numpy.arange(10)) */
    uint32_t items[10], expected[10] = {5, 6, 0, 7, 3, 2, 4, 9, 1, 8};
    for (uint32_t i = 0; i < 10; i++)
        items[i] = i;
    fm_pcg64_shuffle(42, items, 10);
    assert_memory_equal(items, expected, sizeof items);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chains_are_completed),
        cmocka_unit_test(ligands_lose_what_leaves),
        cmocka_unit_test(operations_make_copies),
        cmocka_unit_test(products_of_operations_are_applied_from_the_right),
        cmocka_unit_test(the_readings_differ),
        cmocka_unit_test(a_polymer_without_a_sequence_has_none),
        cmocka_unit_test(a_resolution_may_have_an_uncertainty),
        cmocka_unit_test(a_date_that_is_not_given_is_none),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(a_residue_of_too_many_atoms_is_refused),
        cmocka_unit_test(bonds_of_too_many_ends_are_refused),
        cmocka_unit_test(the_shuffle_is_numpys),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
