/* test_templates.c: templates from hand-made hits and structures: differences between the readings,
 * every fault, the filters, the order, realigning. */
#include "featurizer/templates.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define TEMPLATE "SEFKVTVCFGRTRVVVPCGDGRMKVFSLIQQ"

/* -- a structure of one or two chains under the id 1abc */

typedef struct fixture {
    fm_arena arena;
    fm_template_chain chain[2];
    fm_template_entry entry;
    const char *successor; /* of 9old */
    const char *listed;    /* date of every id; NULL = none */
    char asked[8];         /* the last id that was requested */
    const char *rows[2];   /* the rows that the external aligner returns */
} fixture;

/* The number of atoms of each residue of every chain. */
static uint8_t atoms_per_residue[64];

static fm_status give_entry(void *context, const char *id, const fm_template_entry **ret_entry,
                            fm_error *reterr) {
    fixture *f = context;
    strcpy(f->asked, id);
    if (strcmp(id, "2bad") == 0) return fm_fail(reterr, FM_ERR_FORMAT, "bad");
    if (strcmp(id, "2dsk") == 0) return fm_fail(reterr, FM_ERR_IO, "disk");
    if (strcmp(id, "1abc") != 0) return fm_fail(reterr, FM_ERR_NOT_FOUND, "none");
    *ret_entry = &f->entry;
    return FM_OK;
}

static fm_status give_structure(void *context, const char *id, uint32_t chain,
                                fm_sha256 *ret_identity, fm_error *reterr) {
    (void)context;
    (void)id;
    (void)reterr;
    *ret_identity = fm_sha256_of("chain", 4 + chain);
    return FM_OK;
}

static bool give_date(void *context, const char *id, char ret_date[FM_RELEASE_DATE]) {
    const fixture *f = context;
    (void)id;
    if (f->listed) strcpy(ret_date, f->listed);
    return f->listed != NULL;
}

static const char *give_successor(void *context, const char *id) {
    const fixture *f = context;
    return strcmp(id, "9old") == 0 ? f->successor : NULL;
}

static fm_status give_rows(void *context, fm_bytes hit, fm_bytes chain, fm_arena *arena,
                           const char **ret_hit_row, const char **ret_chain_row,
                           size_t *ret_n_column, fm_error *reterr) {
    const fixture *f = context;
    (void)hit;
    (void)chain;
    (void)arena;
    if (!f->rows[0]) return fm_fail(reterr, FM_ERR_NOT_FOUND, "no program");
    *ret_hit_row = f->rows[0];
    *ret_chain_row = f->rows[1];
    *ret_n_column = strlen(f->rows[0]);
    return FM_OK;
}

static fm_template_source source_of(fixture *f) {
    return (fm_template_source){f,         give_entry,     give_structure,
                                give_date, give_successor, give_rows};
}

static void set_chain(fixture *f, int i, const char *id, const char *sequence) {
    f->chain[i] =
        (fm_template_chain){id, (uint32_t)strlen(sequence), sequence, atoms_per_residue, false};
}

static int set_up(void **state) {
    fixture *f = calloc(1, sizeof *f);
    *state = f;
    memset(atoms_per_residue, 5, sizeof atoms_per_residue);
    if (!f || fm_arena_init(&f->arena, (size_t)1 << 30, NULL)) return 1;
    set_chain(f, 0, "A", TEMPLATE);
    f->entry = (fm_template_entry){"2001-02-03", 1, f->chain};
    return 0;
}

static int tear_down(void **state) {
    fixture *f = *state;
    fm_arena_fini(&f->arena);
    free(f);
    return 0;
}

/* -- hits */

/* Makes a hit from two rows of equal length, counting from the given positions. */
static fm_hit make_hit(fixture *f, const char *name, const char *query, int first_query,
                       const char *letters, int first_letter) {
    uint32_t n = (uint32_t)strlen(query);
    int32_t *indices_query = fm_arena_alloc_array(&f->arena, n, 4);
    int32_t *indices_hit = fm_arena_alloc_array(&f->arena, n, 4);
    assert_true(indices_query && indices_hit && strlen(letters) == n);
    for (uint32_t i = 0; i < n; i++) {
        indices_query[i] = query[i] == '-' ? -1 : first_query++;
        indices_hit[i] = letters[i] == '-' ? -1 : first_letter++;
    }
    return (fm_hit){.index = 1,
                    .name = {(const uint8_t *)name, strlen(name)},
                    .aligned_cols = 20,
                    .sum_probs = 10,
                    .n_query = n,
                    .n_hit = n,
                    .n_column = n,
                    .query = query,
                    .hit = letters,
                    .indices_query = indices_query,
                    .indices_hit = indices_hit};
}

static fm_status try_map(fixture *f, const char *query, const fm_hit *hit, bool compat,
                         fm_template_hit *ret_hit, fm_error *error) {
    const fm_part_sequence sequence = {(uint32_t)strlen(query), query};
    const fm_hits hits = {1, hit};
    const fm_template_source source = source_of(f);
    fm_part_hits part;
    fm_bytes bytes;
    fm_status status =
        fm_templates_map(&sequence, &hits, 1, compat, &source, &f->arena, &part, error);
    if (status) return status;
    *ret_hit = part.hit[0];
    assert_int_equal(fm_part_hits_encode(&part, &f->arena, &bytes, NULL), FM_OK);
    return FM_OK;
}

static fm_template_hit map(fixture *f, const char *query, const fm_hit *hit, bool compat) {
    fm_template_hit mapped;
    assert_int_equal(try_map(f, query, hit, compat, &mapped, NULL), FM_OK);
    return mapped;
}

static void expect_run(const fm_template_hit *hit, uint32_t i, int query, int template, int size) {
    assert_true(i < hit->n_run);
    assert_int_equal(hit->run_query[i], query);
    assert_int_equal(hit->run_template[i], template);
    assert_int_equal(hit->run_size[i], size);
}

static void maps_letters_onto_the_chain(void **state) {
    fixture *f = *state;
    fm_hit hit = make_hit(f, "1ABC_A thing", "EF-WWTV", 3, "EFKV-TV", 1);
    for (int compat = 0; compat < 2; compat++) {
        fm_template_hit mapped = map(f, "MMMEFWWTVM", &hit, compat);
        assert_int_equal(mapped.fault, FM_HIT_MAPPED);
        assert_string_equal(mapped.name, "1abc_A");
        assert_string_equal(mapped.release_date, "2001-02-03");
        assert_string_equal(mapped.listed_date, "");
        assert_int_equal(mapped.n_letter, 6);
        assert_false(mapped.in_query);
        assert_int_equal(mapped.n_run, 3);
        expect_run(&mapped, 0, 3, 1, 2);
        expect_run(&mapped, 1, 5, 4, 1);
        expect_run(&mapped, 2, 7, 5, 2);
        assert_memory_equal(mapped.letters, "EFVTV", 5);
    }
}

static void the_default_keeps_the_indices_of_repeats(void **state) {
    fixture *f = *state;
    set_chain(f, 0, "A", "GGAVLKMGGAVLKMWW");
    fm_hit hit = make_hit(f, "1abc_A", "AVLKM", 7, "AVLKM", 9);
    fm_template_hit mapped = map(f, "CCAVLKMAVLKMCC", &hit, false);
    expect_run(&mapped, 0, 7, 9, 5);
    mapped = map(f, "CCAVLKMAVLKMCC", &hit, true); /* the first place of both */
    expect_run(&mapped, 0, 2, 2, 5);
}

static void other_query_letters(void **state) {
    fixture *f = *state;
    fm_hit hit = make_hit(f, "1abc_A", "EFKVT", 2, "EFKVT", 1);
    assert_int_equal(map(f, "MMMMMMMMMM", &hit, false).fault, FM_HIT_NOT_QUERY);
    fm_template_hit mapped = map(f, "MMMMMMMMMM", &hit, true);
    assert_int_equal(mapped.n_run, 2); /* starts at -1, which is the last residue */
    expect_run(&mapped, 0, 0, 2, 4);
    expect_run(&mapped, 1, 9, 1, 1);
    mapped = map(f, "MMXXKVTMMM", &hit, false); /* X matches any */
    expect_run(&mapped, 0, 2, 1, 5);
}

static void looks_in_other_chains_and_with_wildcards(void **state) {
    fixture *f = *state;
    set_chain(f, 1, "B", "MMMMWEFKVTVCFW");
    f->entry.n_chain = 2;
    fm_hit hit = make_hit(f, "1abc_A", "WEFKVT", 0, "WEFKVT", 0);
    for (int compat = 0; compat < 2; compat++) {
        set_chain(f, 0, "A", TEMPLATE);
        fm_template_hit mapped = map(f, "WEFKVT", &hit, compat);
        assert_string_equal(mapped.name, "1abc_B");
        expect_run(&mapped, 0, 0, 4, 6);
        assert_true(mapped.in_query);
    }
    set_chain(f, 1, "B", "MMMMWXFKVTVCFW");
    hit = make_hit(f, "1abc_A", "WEFXVT", 0, "WEFXVT", 0);
    fm_template_hit mapped = map(f, "WEFXVT", &hit, true);
    assert_memory_equal(mapped.letters, "WEFXVT", 6); /* the hit's letters */
    mapped = map(f, "WEFXVT", &hit, false);
    assert_memory_equal(mapped.letters, "WEFKVT", 6); /* the chain's letters where known */
    expect_run(&mapped, 0, 0, 4, 6);
}

/* Three letters of the hit are not in the chain. */
#define LONGER "SEFKVTVCFGRTRWWWVVVPCGDGRMKVFSLIQQ"

static void realigned_letters_without_a_residue(void **state) {
    fixture *f = *state;
    fm_hit hit = make_hit(f, "1abc_A", LONGER, 0, LONGER, 0);
    fm_template_hit mapped = map(f, LONGER, &hit, false);
    assert_int_equal(mapped.n_run, 2);
    expect_run(&mapped, 0, 0, 0, 13);
    expect_run(&mapped, 1, 16, 13, 18);
    assert_memory_equal(mapped.letters, TEMPLATE, sizeof TEMPLATE - 1);
    fm_error error;
    assert_int_equal(try_map(f, LONGER, &hit, true, &mapped, &error), FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "no program");
    f->rows[0] = LONGER;
    f->rows[1] = "SEFKVTVCFGRTR---VVVPCGDGRMKVFSLIQQ";
    mapped = map(f, LONGER, &hit, true); /* copies of the last residue */
    assert_int_equal(mapped.n_run, 5);
    expect_run(&mapped, 1, 13, 30, 1);
    expect_run(&mapped, 3, 15, 30, 1);
    assert_memory_equal(mapped.letters, "SEFKVTVCFGRTRQQQVVV", 19);
    f->rows[1] = "SEFKVTVCFGRTR---VVVPCGDGRMKVFSLIQA"; /* not the chain */
    assert_int_equal(map(f, LONGER, &hit, true).fault, FM_HIT_NO_SEQUENCE);
}

static void too_different_to_realign(void **state) {
    fixture *f = *state;
    static const char other[] = "SEFKWWWWFGRTRVVVPCGDGRMKVFSLIQQ"; /* 4 of 31 letters differ */
    fm_hit hit = make_hit(f, "1abc_A", other, 0, other, 0);
    assert_int_equal(map(f, other, &hit, false).fault, FM_HIT_NO_SEQUENCE);
    f->rows[0] = other;
    f->rows[1] = TEMPLATE;
    assert_int_equal(map(f, other, &hit, true).fault, FM_HIT_NO_SEQUENCE);
    static const char near[] = "SEFKWWWCFGRTRVVVPCGDGRMKVFSLIQQ"; /* 3 of 31 */
    hit = make_hit(f, "1abc_Z", near, 0, near, 0);
    f->rows[0] = near;
    assert_int_equal(map(f, near, &hit, false).fault, FM_HIT_MAPPED); /* the only chain */
    assert_int_equal(map(f, near, &hit, true).fault, FM_HIT_NO_SEQUENCE);
    hit.name.data = (const uint8_t *)"1abc_A";
    assert_int_equal(map(f, near, &hit, true).fault, FM_HIT_MAPPED);
}

static void faults_are_kept(void **state) {
    fixture *f = *state;
    fm_hit hit = make_hit(f, "2non_A", "EFKVT", 0, "EFKVT", 0);
    fm_template_hit mapped = map(f, "EFKVT", &hit, false);
    assert_int_equal(mapped.fault, FM_HIT_NO_FILE);
    assert_string_equal(mapped.name, "2non_A");
    hit.name.data = (const uint8_t *)"2bad_A";
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_BAD_FILE);
    hit.name.data = (const uint8_t *)"2dsk_A";
    fm_error error;
    assert_int_equal(try_map(f, "EFKVT", &hit, false, &mapped, &error), FM_ERR_IO);
    hit.name.data = (const uint8_t *)"!\x01name";
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_BAD_NAME);
    assert_int_equal(try_map(f, "EFKVT", &hit, true, &mapped, &error), FM_ERR_DATA);
    hit.name.data = (const uint8_t *)"1abc_A";
    f->chain[0].far_apart = true;
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_FAR_APART);
    f->chain[0].n_atom = NULL;
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_NO_ATOMS);
    static const uint8_t four[64] = {[3] = 4};
    set_chain(f, 0, "A", TEMPLATE);
    f->chain[0].n_atom = four;
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_FEW_ATOMS);
    memset(f->entry.release_date, 0, sizeof f->entry.release_date);
    assert_int_equal(map(f, "EFKVT", &hit, true).fault, FM_HIT_NO_DATE);
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_FEW_ATOMS);
    f->entry.n_chain = 0;
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_BAD_FILE);
}

static void obsolete_ids_are_replaced(void **state) {
    fixture *f = *state;
    f->successor = "1abc";
    f->listed = "1999-09-09";
    fm_hit hit = make_hit(f, "9old_A", "EFKVT", 0, "EFKVT", 0);
    for (int compat = 0; compat < 2; compat++) {
        fm_template_hit mapped = map(f, "EFKVT", &hit, compat);
        assert_string_equal(mapped.name, "1abc_A");
        assert_string_equal(mapped.listed_date, "1999-09-09");
    }
    f->successor = "too long";
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_NO_FILE);
}

/* The reference knows four characters alone. */
static void extended_ids_are_short_ones(void **state) {
    fixture *f = *state;
    fm_hit hit = make_hit(f, "PDB_00001ABC_A", "EFKVT", 0, "EFKVT", 0);
    fm_template_hit mapped = map(f, "EFKVT", &hit, false);
    assert_int_equal(mapped.fault, FM_HIT_MAPPED);
    assert_string_equal(mapped.name, "1abc_A");
    /* The id of more than four characters has no short form. */
    hit = make_hit(f, "pdb_10001abc_A", "EFKVT", 0, "EFKVT", 0);
    assert_int_equal(map(f, "EFKVT", &hit, false).fault, FM_HIT_BAD_NAME);
}

/* -- ranking and choosing */

/* Makes a mapped hit on the first `n_letter` residues. */
static fm_template_hit ranked(double sum_probs, const char *letters) {
    static const uint16_t zero[] = {0}, size[] = {12};
    return (fm_template_hit){.name = "1abc_A",
                             .release_date = "2001-02-03",
                             .sum_probs = sum_probs,
                             .aligned_cols = 12,
                             .n_letter = 12,
                             .n_run = 1,
                             .run_query = zero,
                             .run_template = zero,
                             .run_size = size,
                             .letters = letters};
}

static uint32_t rank_of(fixture *f, const fm_template_hit *hit, uint32_t n, bool compat,
                        const char *max_date, uint32_t *order) {
    const fm_part_hits part = {100, n, hit};
    const fm_template_options options = {compat, max_date, 4, false};
    uint32_t *found, n_found;
    assert_int_equal(fm_templates_rank(&part, &options, &f->arena, &found, &n_found, NULL), FM_OK);
    memcpy(order, found, n_found * sizeof *found);
    return n_found;
}

static void ranks_what_passes(void **state) {
    fixture *f = *state;
    uint32_t order[8];
    fm_template_hit hit[6];
    for (int i = 0; i < 6; i++)
        hit[i] = ranked(i % 3, "ACDEFGHIKLMN");
    assert_int_equal(rank_of(f, hit, 6, false, NULL, order), 6);
    const uint32_t expected[] = {2, 5, 1, 4, 0, 3};
    assert_memory_equal(order, expected, sizeof expected);
    hit[0].sum_probs = (double)NAN; /* counts as 0 */
    assert_int_equal(rank_of(f, hit, 6, true, NULL, order), 6);
    assert_memory_equal(order, expected, sizeof expected);
    hit[0].aligned_cols = 10;                     /* a tenth of the query is too little */
    hit[1].n_letter = 9;                          /* too short */
    hit[2].n_letter = 96, hit[2].in_query = true; /* the query itself */
    hit[3].n_letter = 95, hit[3].in_query = true; /* not quite the query */
    hit[4].n_letter = 200;                        /* long, but not in the query */
    strcpy(hit[5].release_date, "2020-01-01");
    assert_int_equal(rank_of(f, hit, 6, false, "2020-01-01", order), 3);
    assert_int_equal(rank_of(f, hit, 6, false, "2019-12-31", order), 2);
    assert_int_equal(rank_of(f, hit, 6, true, "2019-12-31", order), 3); /* listed dates */
    strcpy(hit[5].listed_date, "2020-01-01");
    assert_int_equal(rank_of(f, hit, 6, true, "2019-12-31", order), 2);
    hit[5].listed_date[0] = hit[5].release_date[0] = 0; /* not known */
    assert_int_equal(rank_of(f, hit, 6, false, "2019-12-31", order), 2);
    assert_int_equal(rank_of(f, hit, 6, false, NULL, order), 3);
    hit[4].fault = FM_HIT_FEW_ATOMS;
    assert_int_equal(rank_of(f, hit, 6, false, NULL, order), 2);
    assert_int_equal(rank_of(f, hit, 6, true, NULL, order), 3);
}

static void chooses_different_ones(void **state) {
    fixture *f = *state;
    fm_template_hit hit[5];
    for (int i = 0; i < 5; i++)
        hit[i] = ranked(1, i < 2 ? "ACDEFGHIKLMN" : i < 4 ? "ACDEFGHIKLMM" : "CCDEFGHIKLMM");
    const fm_part_hits part = {100, 5, hit};
    fm_template_options options = {.compat_openfold = true, .max_templates = 2};
    const uint32_t order[] = {0, 1, 2, 3, 4};
    uint32_t *chosen, n;
    fm_arena *arena = &f->arena;
    assert_int_equal(fm_templates_choose(&part, order, 5, &options, arena, &chosen, &n, NULL), 0);
    assert_int_equal(n, 2);
    assert_int_equal(chosen[0], 0);
    assert_int_equal(chosen[1], 2);
    options.max_templates = 4;
    strcpy(hit[0].release_date, "2020-01-01");
    options.max_date = "2019-01-01"; /* the file's date is checked again */
    assert_int_equal(fm_templates_choose(&part, order, 5, &options, arena, &chosen, &n, NULL), 0);
    assert_int_equal(n, 3);
    assert_int_equal(chosen[0], 1);
    hit[2].fault = FM_HIT_NO_FILE; /* the reference stops */
    fm_error error;
    assert_int_equal(fm_templates_choose(&part, order, 5, &options, arena, &chosen, &n, &error),
                     FM_ERR_NOT_FOUND);
    assert_string_equal(error.message, "template 1abc_A: no structure file of that id");
    hit[2].fault = FM_HIT_NO_DATE;
    assert_int_equal(fm_templates_choose(&part, order, 5, &options, arena, &chosen, &n, &error),
                     FM_ERR_DATA);
    options.compat_openfold = false;
    assert_int_equal(fm_templates_choose(&part, order, 5, &options, arena, &chosen, &n, NULL), 0);
    assert_int_equal(n, 3);
}

/* -- coordinates */

static fm_status give_part(void *context, const fm_sha256 *identity,
                           const fm_part_structure **ret_structure, fm_error *reterr) {
    (void)identity;
    (void)reterr;
    *ret_structure = context;
    return FM_OK;
}

static void centres_on_the_whole_chain(void **state) {
    fixture *f = *state;
    static float positions[13 * 37 * 3];
    static uint8_t mask[13 * 37];
    for (int i = 0; i < 13; i++) {
        mask[i * 37 + 1] = 1;
        positions[(i * 37 + 1) * 3] = (float)i;
    }
    fm_part_structure structure = {
        .n_res = 13, .all_atom_positions = positions, .all_atom_mask = mask};
    const fm_template_hit hit = ranked(2.5, "ACDEFGHIKLMB");
    const fm_part_hits part = {14, 1, &hit};
    const uint32_t chosen[] = {0};
    fm_template_features features;
    for (int keep = 0; keep < 2; keep++) {
        assert_int_equal(fm_templates_featurize(&part, chosen, 1, keep, give_part, &structure,
                                                &f->arena, &features, NULL),
                         FM_OK);
        assert_memory_equal(features.template_sequence, "ACDEFGHIKLMB--", 14);
        assert_int_equal(features.template_aatype[11], 2); /* B is D */
        assert_int_equal(features.template_aatype[12], 21);
        assert_true(features.template_sum_probs[0] == 2.5f);
        for (int i = 0; i < 14; i++) {
            float x = features.template_all_atom_positions[(i * 37 + 1) * 3];
            assert_true(x == (i < 12 ? (float)i - (keep ? 0.0f : 6.0f) : 0.0f));
            assert_int_equal(features.template_all_atom_mask[i * 37 + 1], i < 12);
            assert_true(features.template_all_atom_positions[i * 37 * 3] == 0.0f);
        }
    }
    structure.n_res = 11;
    fm_error error;
    assert_int_equal(fm_templates_featurize(&part, chosen, 1, false, give_part, &structure,
                                            &f->arena, &features, &error),
                     FM_ERR_CORRUPT);
}

/* -- aligning */

static void expect_places(fixture *f, const char *hit, const char *chain, uint32_t n_same,
                          const int32_t *expected) {
    fm_template_alignment found;
    fm_bytes a = {(const uint8_t *)hit, strlen(hit)}, b = {(const uint8_t *)chain, strlen(chain)};
    assert_int_equal(fm_template_align(a, b, &f->arena, &found, NULL), FM_OK);
    assert_int_equal(found.n_same, n_same);
    assert_memory_equal(found.place, expected, a.size * sizeof *expected);
}

static void aligns_with_free_ends(void **state) {
    fixture *f = *state;
    expect_places(f, "WCHKW", "AAWCHKWAA", 5, (int32_t[]){2, 3, 4, 5, 6});
    expect_places(f, "AAWCHKWAA", "WCHKW", 5, (int32_t[]){-1, -1, 0, 1, 2, 3, 4, -1, -1});
    expect_places(f, "WCHRW", "AAWCHKWAA", 4, (int32_t[]){2, 3, 4, 5, 6});
    expect_places(f, "WWCCHHKKWW", "WWCCHGGHKKWW", 10, (int32_t[]){0, 1, 2, 3, 4, 7, 8, 9, 10, 11});
    expect_places(f, "WWCCHGGHKKWW", "WWCCHHKKWW", 10,
                  (int32_t[]){0, 1, 2, 3, 4, -1, -1, 5, 6, 7, 8, 9});
    fm_template_alignment found;
    const fm_bytes long_one = {(const uint8_t *)"", (size_t)10000};
    fm_error error;
    assert_int_equal(fm_template_align(long_one, long_one, &f->arena, &found, &error),
                     FM_ERR_LIMIT);
}

static void rows_of_a_program_are_checked(void **state) {
    fixture *f = *state;
    const fm_bytes hit = {(const uint8_t *)"ACD", 3}, chain = {(const uint8_t *)"ACE", 3};
    fm_template_alignment found;
    assert_int_equal(
        fm_template_alignment_of(hit, chain, "A-CD", "ACE-", 4, &f->arena, &found, NULL), FM_OK);
    assert_memory_equal(found.place, ((int32_t[]){0, 2, -1}), 12);
    assert_int_equal(found.n_same, 1);
    static const char *const bad[][2] = {{"ACD-", "ACD-"}, {"AC--", "ACE-"}, {"ACDD", "ACE-"}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            fm_template_alignment_of(hit, chain, bad[i][0], bad[i][1], 4, &f->arena, &found, NULL),
            FM_ERR_DATA);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(maps_letters_onto_the_chain),
        TEST(the_default_keeps_the_indices_of_repeats),
        TEST(other_query_letters),
        TEST(looks_in_other_chains_and_with_wildcards),
        TEST(realigned_letters_without_a_residue),
        TEST(too_different_to_realign),
        TEST(faults_are_kept),
        TEST(obsolete_ids_are_replaced),
        TEST(extended_ids_are_short_ones),
        TEST(ranks_what_passes),
        TEST(chooses_different_ones),
        TEST(centres_on_the_whole_chain),
        TEST(aligns_with_free_ends),
        TEST(rows_of_a_program_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
