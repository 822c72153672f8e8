/* test_hhr.c: the HHR parser: the reference's values bit for bit, and each refusal with its
 * place. */
#include "featurizer/parse/hhr.h"
#include "proto/base/file.h"
#include "tests/testing/arrays.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state) {
    fm_arena *arena = calloc(1, sizeof *arena);
    *state = arena;
    return !arena || fm_arena_init(arena, (size_t)1 << 30, NULL);
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    free(*state);
    return 0;
}

/* -- golden */

static fm_status parse_file(const char *relative, bool compat, fm_arena *arena, fm_hits *ret_hits,
                            fm_error *error) {
    char path[512];
    fm_bytes text;
    fm_arena_reset(arena);
    fm_status status = fm_file_read_text(arena, fm_test_reference_path(path, sizeof path, relative),
                                         1 << 28, &text, error);
    assert_int_equal(status, FM_OK);
    return fm_hhr_parse(text, compat, arena, ret_hits, error);
}

static void equals_the_golden_files(void **state) {
    fm_test_manifest *manifest = fm_test_manifest_open();
    if (!manifest) {
        print_message("skipped: no reference data\n");
        skip();
    }
    size_t n_item = 0, n_array = 0, n_same = 0;
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        if (strcmp(item->kind, "parse_hhr") != 0) continue;
        char relative[400];
        snprintf(relative, sizeof relative, "golden/%s", item->source);
        fm_hits hits;
        fm_error error;
        fm_array arrays[FM_HITS_N_ARRAY];
        assert_int_equal(parse_file(relative, true, *state, &hits, &error), FM_OK);
        assert_int_equal(fm_hits_list_arrays(&hits, *state, arrays, NULL), FM_OK);
        for (size_t k = 0; k < item->n_array; k++)
            n_same += fm_test_listed_agrees(&item->array[k], arrays, FM_HITS_N_ARRAY);
        n_array += item->n_array;
        n_item++;
    }
    fm_test_manifest_close(manifest);
    fm_test_golden_line("parse_hhr", n_array, n_same);
    assert_int_equal(n_item, 11);
    assert_int_equal(n_same, n_array);
}

static void agrees_with_the_digests(void **state) {
    fm_test_digests digests;
    if (!fm_test_digests_open(&digests, "digests.tsv")) {
        print_message("skipped: no reference data\n");
        skip();
    }
    size_t n_agree = 0, n_disagree = 0;
    const char *parsed = "";
    fm_hits hits = {0};
    fm_array arrays[FM_HITS_N_ARRAY];
    fm_status status = FM_OK;
    for (size_t r = 0; r < digests.n_row; r++) {
        const fm_test_digest *row = &digests.row[r];
        if (strcmp(row->kind, "parse_hhr") != 0) continue;
        if (strcmp(parsed, row->path) != 0) {
            char relative[400];
            snprintf(relative, sizeof relative, "dev/%s", row->path);
            fm_error error;
            status = parse_file(relative, true, *state, &hits, &error);
            if (!status) status = fm_hits_list_arrays(&hits, *state, arrays, &error);
            parsed = row->path;
        }
        bool expects_error = strcmp(row->array.key, "ERROR") == 0;
        bool agree = expects_error
                         ? status
                         : !status && fm_test_listed_agrees(&row->array, arrays, FM_HITS_N_ARRAY);
        if (!agree) print_message("%s %s\n", row->path, row->array.key);
        n_agree += agree;
        n_disagree += !agree;
    }
    printf("digests: %zu agree, %zu disagree: parse_hhr in digests.tsv\n", n_agree, n_disagree);
    fm_test_digests_close(&digests);
    assert_int_equal(n_disagree, 0);
    assert_true(n_agree > 0);
}

/* -- hand-made */

#define SUMMARY                                                                                    \
    "Probab=99.8  E-value=4.4e-29  Score=113.5  Aligned_cols=4  Identities=100%  Similarity=1.5  " \
    "Sum_probs=3.9"
#define HIT_UP_TO_BLOCKS "Query q\n\nNo 3  \n>1ABC_A thing\n" SUMMARY "  Template_Neff=10.1\n\n"

static fm_status parse(const char *text, bool compat, fm_arena *arena, fm_hits *ret_hits,
                       fm_error *error) {
    fm_arena_reset(arena);
    return fm_hhr_parse((fm_bytes){(const uint8_t *)text, strlen(text)}, compat, arena, ret_hits,
                        error);
}

static void positions_restart_in_each_block(void **state) {
    fm_hits hits;
    fm_error error;
    fm_status status = parse(HIT_UP_TO_BLOCKS "Q query             5 A-CD    7 (84)\n"
                                              "Q Consensus         5 ~~~~    7 (84)\n"
                                              "T 1ABC_A           11 AB-D   13 (70)\n\n"
                                              "Q query             8 E    8 (84)\r\n"
                                              "T 1ABC_A           14 F   14 (70)\r\n",
                             true, *state, &hits, &error);
    assert_int_equal(status, FM_OK);
    assert_int_equal(hits.n_hit, 1);
    const fm_hit *hit = &hits.hit[0];
    assert_int_equal(hit->index, 3);
    assert_int_equal(hit->aligned_cols, 4);
    assert_true(hit->sum_probs == 3.9);
    assert_memory_equal(hit->name.data, "1ABC_A thing", hit->name.size);
    assert_int_equal(hit->n_query, 5);
    assert_int_equal(hit->n_hit, 5);
    assert_memory_equal(hit->query, "A-CDE", 5);
    assert_memory_equal(hit->hit, "AB-DF", 5);
    const int32_t query[] = {4, -1, 5, 6, 7}, template[] = {10, 11, -1, 12, 13};
    assert_memory_equal(hit->indices_query, query, sizeof query);
    assert_memory_equal(hit->indices_hit, template, sizeof template);
}

static void refuses_with_a_place(void **state) {
    static const struct {
        const char *text;
        uint64_t line, column;
        const char *message;
    } cases[] = {
        {"No x\n", 1, 4, "expected 'No' and the number of a hit"},
        {"No 1\n", 1, 5, "the file ends after a hit's number, expected its name"},
        {"No 1\n>a\n", 2, 3, "the file ends after a hit's name, expected its summary line"},
        {"No 1\n>a\nProbab=1\n", 3, 1,
         "the hit's summary line has no number after 'Aligned_cols='"},
        {HIT_UP_TO_BLOCKS "Q query             x ACD    7 (84)\n", 7, 21,
         "expected the first position of the line"},
        {HIT_UP_TO_BLOCKS "Q query             5 AcD    7 (84)\n", 7, 24,
         "expected letters A-Z and '-', then the last position of the line"},
        {HIT_UP_TO_BLOCKS "Q query             5 ACD    7\n", 7, 31,
         "expected ' (length)' after the last position"},
        {HIT_UP_TO_BLOCKS "Q query             5 ACD    9 (84)\n", 7, 18,
         "the letters end at position 7, but the line says 9"},
        {HIT_UP_TO_BLOCKS
         "Q query             5 ACD    7 (84)\nT t                 1 AC     2 (84)\n",
         8, 18, "the template line has 2 columns, but its query line has 3"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_hits hits;
        fm_error error;
        assert_int_equal(parse(cases[i].text, false, *state, &hits, &error), FM_ERR_FORMAT);
        assert_string_equal(error.message, cases[i].message);
        assert_int_equal(error.line, cases[i].line);
        assert_int_equal(error.column, cases[i].column);
    }
}

static void only_compat_needs_every_value(void **state) {
    const char *text = "No 1\n>a\n" SUMMARY "\nQ q                   1 ACDE    4 (9)\n"
                       "T a                   1 ACDE    4 (9)\n";
    fm_hits hits;
    fm_error error;
    assert_int_equal(parse(text, false, *state, &hits, &error), FM_OK);
    assert_int_equal(hits.n_hit, 1);
    assert_int_equal(parse(text, true, *state, &hits, &error), FM_ERR_FORMAT);
    assert_string_equal(error.message,
                        "the hit's summary line has no number after 'Template_Neff='");
}

#define HEAD "Query q\nCommand hhsearch -B 1\n\n No Hit\n  1 1ABC_A\n\n"
#define HIT(number, columns)                                                                       \
    "No " number "\n>1ABC_A thing\nAligned_cols=" columns " Sum_probs=3.9\n\n"                     \
    "Q q                   1 AC-DE    4 (9)\nT 1ABC_A              3 ACD-E    6 (9)\n\n"           \
    "Q q                   5 F    5 (9)\nT 1ABC_A              7 F    7 (9)\n\n"

/* Every place at which the file can be cut off within a hit is refused, but only by default. */
static void refuses_what_was_cut_off(void **state) {
    static const char whole[] = HEAD HIT("1", "4");
    fm_hits hits;
    fm_error error;
    char text[sizeof whole];
    assert_int_equal(parse(whole, false, *state, &hits, &error), FM_OK);
    assert_int_equal(hits.n_hit, 1);
    for (size_t n = 1; n < sizeof whole - 3; n++) {
        memcpy(text, whole, n);
        text[n] = '\0';
        fm_status status = parse(text, false, *state, &hits, &error);
        if (status != FM_ERR_FORMAT) fail_msg("%zu: %s", n, text);
    }
    assert_int_equal(parse(HIT("1", "5"), true, *state, &hits, &error), FM_ERR_FORMAT);
}

static void refuses_contradictions(void **state) {
    static const struct {
        const char *text, *message;
        uint64_t line;
    } cases[] = {
        {HEAD HIT("1", "5"), "the summary says Aligned_cols=5, but the hit's lines pair 4 residues",
         9},
        {HEAD HIT("2", "4"), "found hit 2, expected hit 1", 7},
        {HEAD HIT("1", "4") HIT("2", "4"), "the file ends after 2 hits, its table lists 1", 26},
        {"Query q\n No Hit\n 1 a\n 2 b\n\n" HIT("1", "4"),
         "the file ends after 1 hit, its table lists 2; the file was cut off", 15},
        {"No 1\n>a\nAligned_cols=2 Sum_probs=1\nQ q                   1 A    1 (9)\n"
         "T a                   1 A    1 (9)\nQ q                   3 A    3 (9)\n",
         "found first position 3, expected 2, as the line before ends at 1", 6},
        {"No 1\n>a\nAligned_cols=2 Sum_probs=1\nQ q                   1 A    1 (9)\n"
         "T a                   1 A    1 (9)\nQ q                   2 A    2 (8)\n",
         "found length 8, expected that of the hit's other lines and at least the last position, 2",
         6},
        {"No 1\n>a\nAligned_cols=2 Sum_probs=1\n",
         "the summary says Aligned_cols=2, but the hit's lines pair 0 residues", 3},
    };
    fm_hits hits;
    fm_error error;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(parse(cases[i].text, false, *state, &hits, &error), FM_ERR_FORMAT);
        assert_memory_equal(error.message, cases[i].message, strlen(cases[i].message));
        assert_int_equal(error.line, cases[i].line);
    }
    /* The reference skips a sequence that is called as a row of another kind begins. */
    assert_int_equal(
        parse("No 1\n>a\nAligned_cols=1 Sum_probs=1\nQ Consensus_1         1 A    1 (9)\n"
              "T ss_pred_x           1 A    1 (9)\n",
              false, *state, &hits, &error),
        FM_OK);
    assert_int_equal(hits.hit[0].n_hit, 1);
    /* hh-suite writes a hit of one pair without lines, and may write fewer hits than lines of the
     * table when it is told so */
    assert_int_equal(parse("No 1\n>a\nAligned_cols=1 Sum_probs=1\n", false, *state, &hits, &error),
                     FM_OK);
    assert_int_equal(parse("Query q\nCommand hhsearch -B 1\n No Hit\n 1 a\n 2 b\n\n" HIT("1", "4"),
                           false, *state, &hits, &error),
                     FM_OK);
    assert_int_equal(hits.n_hit, 1);
}

static void nothing_is_no_hits(void **state) {
    fm_hits hits;
    fm_error error;
    assert_int_equal(parse("", false, *state, &hits, &error), FM_OK);
    assert_int_equal(hits.n_hit, 0);
    assert_int_equal(parse("Query q\n No Hit\n\n", false, *state, &hits, &error), FM_OK);
    assert_int_equal(hits.n_hit, 0);
    assert_int_equal(parse("\n\n", false, *state, &hits, &error), FM_OK);
}

static void another_file_is_not_an_empty_search(void **state) {
    fm_hits hits;
    fm_error error;
    assert_int_equal(parse("\n>a\nACDE\n", false, *state, &hits, &error), FM_ERR_FORMAT);
    assert_int_equal(error.line, 2);
    assert_int_equal(error.column, 1);
    assert_non_null(strstr(error.message, "expected a first line that begins with 'Query'"));
    assert_int_equal(parse("\n>a\nACDE\n", true, *state, &hits, &error), FM_OK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(positions_restart_in_each_block),
        cmocka_unit_test(refuses_with_a_place),
        cmocka_unit_test(only_compat_needs_every_value),
        cmocka_unit_test(refuses_what_was_cut_off),
        cmocka_unit_test(refuses_contradictions),
        cmocka_unit_test(nothing_is_no_hits),
        cmocka_unit_test(another_file_is_not_an_empty_search),
        cmocka_unit_test(equals_the_golden_files),
        cmocka_unit_test(agrees_with_the_digests),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
