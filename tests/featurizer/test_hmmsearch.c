/* test_hmmsearch.c: the hmmsearch parser: the reference's values bit for bit, and each refusal with
 * its place. */
#include "featurizer/parse/hmmsearch.h"
#include "proto/base/file.h"
#include "tests/testing/arrays.h"
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>

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

static fm_bytes of_text(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

/* Returns the sequence of the chain in whose folder `source` is, from the manifest's items. */
static fm_bytes read_query(const fm_test_manifest *manifest, const char *source) {
    char chain[64] = {0};
    const char *slash = strrchr(source, '/'), *start = slash;
    while (start > source && start[-1] != '/')
        start--;
    snprintf(chain, sizeof chain, "%.*s", (int)(slash - start), start);
    for (size_t i = 0; i < fm_test_manifest_count(manifest); i++) {
        const fm_test_item *item = fm_test_manifest_item(manifest, i);
        const char *query = fm_test_item_text(manifest, i, "query");
        if (!query || !item->source || strcmp(item->kind, "templates") != 0) continue;
        if (!strcmp(strrchr(item->source, '/') + 1, chain)) return of_text(query);
    }
    return of_text("");
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
        if (strcmp(item->kind, "parse_hmmsearch_sto") != 0) continue;
        char relative[400], path[512];
        snprintf(relative, sizeof relative, "golden/%s", item->source);
        fm_test_reference_path(path, sizeof path, relative);
        fm_arena_reset(*state);
        fm_bytes text, query = read_query(manifest, item->source);
        fm_hits hits;
        fm_array arrays[FM_HITS_N_ARRAY];
        assert_true(query.size > 0);
        assert_int_equal(fm_file_read_text(*state, path, 1 << 28, &text, NULL), FM_OK);
        assert_int_equal(fm_hmmsearch_parse(text, query, true, *state, &hits, NULL), FM_OK);
        assert_int_equal(fm_hits_list_arrays(&hits, *state, arrays, NULL), FM_OK);
        for (size_t k = 0; k < item->n_array; k++)
            n_same += fm_test_listed_agrees(&item->array[k], arrays, FM_HITS_N_ARRAY);
        n_array += item->n_array;
        n_item++;
        assert_int_equal(fm_hmmsearch_parse(text, query, false, *state, &hits, NULL), FM_OK);
        assert_int_equal(hits.n_hit, item->array[0].shape[0]); /* the default also reads them */
    }
    fm_test_manifest_close(manifest);
    fm_test_golden_line("parse_hmmsearch_sto", n_array, n_same);
    assert_int_equal(n_item, 7);
    assert_int_equal(n_same, n_array);
}

static fm_status parse(const char *text, bool compat, fm_arena *arena, fm_hits *ret_hits,
                       fm_error *error) {
    fm_arena_reset(arena);
    return fm_hmmsearch_parse(of_text(text), of_text("ACDEF"), compat, arena, ret_hits, error);
}

static void reads_rows_and_descriptions(void **state) {
    static const char text[] = "# STOCKHOLM 1.0\n#=GF ID q\n"
                               "#=GS 1abc_A/3-8 DE [subseq from] mol:protein length:9  A thing\n"
                               "#=GS 2xyz_B/1-3 AC other\n"
                               "#=GS 2xyz_B/1-3 DE mol:na length:3\n"
                               "#=GS 3def_CC/1-1 DE mol:protein length:12\n"
                               "1abc_A/3-8  AC..dK-\n2xyz_B/1-3  ACG----\n3def_CC/1-1 --...-D\n\n"
                               "1abc_A/3-8  kE\n2xyz_B/1-3  --\n3def_CC/1-1 .-\n//\n";
    fm_hits hits;
    for (int compat = 0; compat < 2; compat++) {
        assert_int_equal(parse(text, compat, *state, &hits, NULL), FM_OK);
        assert_int_equal(hits.n_hit, 2);
        const fm_hit *hit = &hits.hit[0];
        assert_int_equal(hit->index, 1);
        assert_memory_equal(hit->name.data, "1abc_A/", hit->name.size + 1);
        assert_int_equal(hit->aligned_cols, 4);
        assert_true(isnan(hit->sum_probs));
        assert_int_equal(hit->n_hit, 7);
        assert_memory_equal(hit->hit, "ACDK-KE", 7);
        assert_int_equal(hit->n_column, 5);
        const int32_t columns[] = {2, 3, 5, -1, 7}, query[] = {0, 1, 2, 3, 4};
        assert_memory_equal(hit->indices_hit, columns, sizeof columns);
        assert_int_equal(hit->n_query, 5);
        assert_memory_equal(hit->indices_query, query, sizeof query);
        assert_memory_equal(hit->query, "ACDEF", 5);
        assert_int_equal(hits.hit[1].index, 3);
        assert_int_equal(hits.hit[1].aligned_cols, 1);
    }
}

static void refuses_with_a_place(void **state) {
    static const struct {
        const char *text;
        bool compat;
        uint64_t line, column;
        const char *message;
    } cases[] = {
        {"#=GS only\n1abc_A/1-2 AC\n", false, 1, 10,
         "found an annotation without a name and a feature, expected '#=GS name DE text'"},
        {"#=GS x DE mol:protein length:2\nx AC\n", false, 2, 1,
         "row 'x': a protein's name must be id_chain/first-last"},
        {"#=GS 1abc_A/x-2 DE mol:protein length:2\n1abc_A/x-2 AC\n", false, 2, 1,
         "row '1abc_A/x-2': a protein's name must be id_chain/first-last"},
        {"#=GS 1abc_A/1-2 DE mol:protein\n1abc_A/1-2 AC\n", true, 2, 1,
         "row '1abc_A/1-2': its description has no 'protein length:' with a number"},
        {"#=GS 1abc_A/1-2 DE mol:protein length:2\n1abc_A/1-2 A!\n", false, 2, 1,
         "row '1abc_A/1-2': its sequence has a byte other than letters, '-' and '.'"},
        {"# STOCKHOLM 1.0\n#=GS 1abc_A/1-2 DE mol:protein length:2\n1abc_A/1-2 AC\n", false, 4, 1,
         "found the end of the file, expected \"//\", which ends an alignment; the file was cut "
         "off"},
        {"#=GS 1abc_A/1-3 DE mol:protein length:3\n1abc_A/1-3 A-C\n", false, 2, 1,
         "row '1abc_A/1-3': its letters end at another position than its name says; the file was "
         "cut off or changed"},
        {"word letters\n", false, 1, 1,
         "the file has no row of a protein and is no result of hmmsearch, expected a first line "
         "\"# STOCKHOLM 1.0\""},
        {"version https://git-lfs.github.com/spec/v1\nsize 12345\n", false, 1, 1,
         "found a pointer of Git LFS, expected the file for which it stands; fetch it, for example "
         "with git lfs pull"},
        {"1abc_A/1-2\n", false, 1, 11,
         "found a name without a sequence, expected a name and a sequence"},
        {"#=GS 1ABC_A/1-2 DE mol:protein length:2\n1ABC_A/1-2 AC\n", true, 2, 1,
         "row '1ABC_A/1-2': a protein's name must be id_chain/first-last"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_hits hits;
        fm_error error;
        assert_int_equal(parse(cases[i].text, cases[i].compat, *state, &hits, &error),
                         FM_ERR_FORMAT);
        assert_string_equal(error.message, cases[i].message);
        assert_int_equal(error.line, cases[i].line);
        assert_int_equal(error.column, cases[i].column);
    }
}

static void only_compat_needs_a_length(void **state) {
    fm_hits hits;
    assert_int_equal(
        parse("#=GS 1ABC_A/1-2 DE mol:protein\n1ABC_A/1-2 AC\n", false, *state, &hits, NULL),
        FM_OK);
    assert_int_equal(hits.n_hit, 1);
}

static void nothing_is_no_hits(void **state) {
    fm_hits hits;
    assert_int_equal(parse("", false, *state, &hits, NULL), FM_OK);
    assert_int_equal(hits.n_hit, 0);
    assert_int_equal(parse("# STOCKHOLM 1.0\n//\n", true, *state, &hits, NULL), FM_OK);
    assert_int_equal(hits.n_hit, 0);
    assert_int_equal(parse("row ACD\n", true, *state, &hits, NULL), FM_OK);
    assert_int_equal(hits.n_hit, 0); /* without a description it is not protein */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_rows_and_descriptions), cmocka_unit_test(refuses_with_a_place),
        cmocka_unit_test(only_compat_needs_a_length),  cmocka_unit_test(nothing_is_no_hits),
        cmocka_unit_test(equals_the_golden_files),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
