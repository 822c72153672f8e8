/* test_af3_score_parts.c: the scores of the parts of a sampled structure: a moved copy of the
 * truth, a ligand that is out of its pocket, chains of RNA, and sums over complexes. */
#include "trainer/step/af3/score_parts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* Two proteins of four residues with four atoms each, 5 Å apart, and a ligand of four atoms, each
 * of which is a token. */
enum { RESIDUES = 4, PER_RESIDUE = 4, LIGAND = 4, TOKENS = 2 * RESIDUES + LIGAND };
enum { CHAIN = RESIDUES * PER_RESIDUE, ATOMS = 2 * CHAIN + LIGAND, CODES = 4 * 64 };

typedef struct bench {
    int64_t asym[TOKENS], entity[TOKENS], number[TOKENS], residue[TOKENS], first[TOKENS + 1];
    int64_t centre[TOKENS], none[ATOMS], is_ligand[ATOMS], is_rna[ATOMS];
    float truth[3 * ATOMS], x[3 * ATOMS], mask[ATOMS], names[ATOMS * CODES];
    fm_af3_features features;
    fm_labelled_complex made;
    fm_arena scratch;
} bench;

static void put_name(bench *b, int64_t atom, const char *name) {
    for (size_t i = 0; i < strlen(name); i++)
        b->names[atom * CODES + (int64_t)i * 64 + name[i] - ' '] = 1;
}

static void put_token(bench *b, int64_t token, int64_t chain, int64_t number, int64_t n_atom) {
    b->asym[token] = b->entity[token] = chain;
    b->number[token] = number;
    b->residue[token] = chain < 2 ? number + 1 : 1;
    b->first[token + 1] = b->first[token] + n_atom;
    b->centre[token] = b->first[token];
}

static void put_tokens(bench *b) {
    static const char *const backbone[PER_RESIDUE] = {"N", "CA", "C", "O"};
    for (int64_t token = 0; token < 2 * RESIDUES; token++)
        put_token(b, token, token / RESIDUES, token % RESIDUES, PER_RESIDUE);
    for (int64_t k = 0; k < LIGAND; k++)
        put_token(b, 2 * RESIDUES + k, 2, k, 1);
    for (int64_t l = 0; l < ATOMS; l++) {
        b->mask[l] = 1;
        b->is_ligand[l] = l >= 2 * CHAIN;
        put_name(b, l, l < 2 * CHAIN ? backbone[l % PER_RESIDUE] : "CA");
    }
}

/* A helix, beside it another one, and an atom next to every fourth of the first; as the prediction
 * the same turned by 90 degrees and moved. */
static void open_bench(bench *b) {
    memset(b, 0, sizeof *b);
    assert_int_equal(fm_arena_init(&b->scratch, 1 << 20, NULL), FM_OK);
    put_tokens(b);
    for (int64_t l = 0; l < ATOMS; l++) {
        const int64_t i = l < 2 * CHAIN ? l % CHAIN : 4 * (l - 2 * CHAIN);
        const double shift = l < CHAIN ? 0 : l < 2 * CHAIN ? 5 : -3;
        b->truth[3 * l] = (float)(2.3 * cos(1.7 * (double)i) + shift);
        b->truth[3 * l + 1] = (float)(2.3 * sin(1.7 * (double)i));
        b->truth[3 * l + 2] = 1.5f * (float)i;
        b->x[3 * l] = b->truth[3 * l + 1] + 7;
        b->x[3 * l + 1] = -b->truth[3 * l] - 40;
        b->x[3 * l + 2] = b->truth[3 * l + 2] + 3;
    }
    b->features = (fm_af3_features){
        .sample = {.n_token = TOKENS,
                   .n_atom = ATOMS,
                   .residue_index = b->residue,
                   .ref_atom_name_chars = b->names},
        .labels = {.n_token = TOKENS,
                   .n_atom = ATOMS,
                   .coordinate = b->truth,
                   .coordinate_mask = b->mask,
                   .is_dna = b->none,
                   .is_rna = b->is_rna,
                   .is_ligand = b->is_ligand},
        .number = b->number,
    };
    b->made = (fm_labelled_complex){TOKENS,    ATOMS,    b->asym,   b->entity,
                                    b->number, b->first, b->centre, b->x};
}

static fm_part_scores score(bench *b) {
    fm_part_scores s;
    size_t mark = fm_arena_mark(&b->scratch);
    assert_int_equal(fm_af3_score_parts(&b->features, &b->made, &b->scratch, &s, NULL), FM_OK);
    assert_int_equal(fm_arena_mark(&b->scratch), mark);
    return s;
}

static void a_moved_copy_is_the_structure(void **state) {
    (void)state;
    static bench b;
    open_bench(&b);
    fm_part_scores s = score(&b);
    assert_int_equal(s.of[FM_PART_PROTEIN_LDDT].n, 2);
    assert_true(s.of[FM_PART_PROTEIN_LDDT].mean == 1);
    assert_int_equal(s.of[FM_PART_RNA_LDDT].n + s.of[FM_PART_DNA_LDDT].n, 0);
    assert_true(s.of[FM_PART_INTERFACE_LDDT].n >= 2 && s.of[FM_PART_INTERFACE_LDDT].mean == 1);
    assert_int_equal(s.of[FM_PART_DOCKQ].n, 1);
    assert_true(fabs(s.of[FM_PART_DOCKQ].mean - 1) < 1e-6);
    assert_int_equal(s.of[FM_PART_POCKET_RMSD].n, 1);
    assert_true(s.of[FM_PART_POCKET_RMSD].mean < 1e-4);
    fm_arena_fini(&b.scratch);
}

/* The ligand alone is out of place, by 3 Å. */
static void a_ligand_is_scored_in_its_pocket(void **state) {
    (void)state;
    static bench b;
    open_bench(&b);
    for (int64_t l = 2 * CHAIN; l < ATOMS; l++)
        b.x[3 * l + 2] += 3;
    fm_part_scores s = score(&b);
    assert_true(s.of[FM_PART_PROTEIN_LDDT].mean == 1);
    assert_true(fabs(s.of[FM_PART_POCKET_RMSD].mean - 3) < 1e-3);
    assert_true(s.of[FM_PART_INTERFACE_LDDT].mean < 1);
    fm_arena_fini(&b.scratch);
}

static void kinds_of_chains_are_apart(void **state) {
    (void)state;
    static bench b;
    open_bench(&b);
    for (int64_t l = CHAIN; l < 2 * CHAIN; l++)
        b.is_rna[l] = 1;
    fm_part_scores s = score(&b);
    assert_int_equal(s.of[FM_PART_PROTEIN_LDDT].n, 1);
    assert_int_equal(s.of[FM_PART_RNA_LDDT].n, 1);
    assert_int_equal(s.of[FM_PART_DOCKQ].n, 0);
    fm_arena_fini(&b.scratch);
}

/* Every chain counts once, whichever complex it is of. */
static void sums_count_chains(void **state) {
    (void)state;
    fm_part_scores sum = {0}, one = {0}, other = {0};
    one.of[FM_PART_DOCKQ] = (fm_mean_score){1, 0.25};
    other.of[FM_PART_DOCKQ] = (fm_mean_score){3, 0.75};
    other.of[FM_PART_RNA_LDDT] = (fm_mean_score){0, NAN};
    fm_part_scores_add(&sum, &one);
    fm_part_scores_add(&sum, &other);
    assert_int_equal(sum.of[FM_PART_DOCKQ].n, 4);
    assert_true(sum.of[FM_PART_DOCKQ].mean == 0.625);
    assert_int_equal(sum.of[FM_PART_RNA_LDDT].n, 0);
}

static void a_small_arena_is_reported(void **state) {
    (void)state;
    static bench b;
    fm_part_scores s;
    fm_arena small;
    open_bench(&b);
    assert_int_equal(fm_arena_init(&small, 256, NULL), FM_OK);
    assert_int_equal(fm_af3_score_parts(&b.features, &b.made, &small, &s, NULL), FM_ERR_LIMIT);
    fm_arena_fini(&small);
    fm_arena_fini(&b.scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_moved_copy_is_the_structure),
        cmocka_unit_test(a_ligand_is_scored_in_its_pocket),
        cmocka_unit_test(kinds_of_chains_are_apart),
        cmocka_unit_test(sums_count_chains),
        cmocka_unit_test(a_small_arena_is_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
