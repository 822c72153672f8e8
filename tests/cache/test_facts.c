/* test_facts.c: the table of facts gives the same answers as the parts, also in caches without
 * one. */
#include "tests/cache/prediction_case.h"

#include "cache/store/generation.h"
#include "cache/snapshot/snapshot_select.h"

static const fm_select_rules everything = {.max_unknown = UINT32_MAX, .max_single_percent = 100};

static fm_store *open_store(cache_case *test) {
    fm_store *store;
    fm_status status = fm_store_open(test->cache, &store, &test->error);
    if (status) print_error("%s\n", test->error.message);
    assert_int_equal(status, FM_OK);
    return store;
}

/* Publishes the current generation again, with other facts, or with none (NULL). */
static void republish(cache_case *test, const fm_chain_facts *facts) {
    fm_generation generation;
    fm_bytes all;
    assert_int_equal(
        fm_generation_read(test->cache, FM_GENERATION_ALL, &test->arena, &generation, &test->error),
        FM_OK);
    assert_int_equal(
        fm_generation_read_all(test->cache, &generation, &test->arena, &all, &test->error), FM_OK);
    generation.facts = facts;
    generation.number++;
    assert_int_equal(
        fm_generation_publish(test->cache, &generation, all, &test->arena, &test->error), FM_OK);
}

static const fm_chain_facts *read_facts(cache_case *test) {
    fm_store *store = open_store(test);
    const fm_chain_facts *facts;
    assert_int_equal(fm_store_read_facts(store, &test->arena, &facts, &test->error), FM_OK);
    fm_store_close(store);
    return facts;
}

/* The lines of a selection as one text. */
static char *select_text(cache_case *test, const fm_select_rules *rules, fm_select_report *report) {
    fm_store *store = open_store(test);
    fm_snapshot_text text = {0};
    char *out = fm_arena_calloc(&test->arena, 1, 8192);
    assert_non_null(out);
    fm_status status = fm_snapshot_select(store, rules, &test->arena, &text, report, &test->error);
    assert_true(!status || status == FM_ERR_DATA);
    size_t at = 0;
    for (uint32_t i = 0; !status && i < text.n_line; i++) {
        at += (size_t)snprintf(out + at, 8192 - at, "%u %s\n", text.line[i].weight,
                               text.line[i].name);
    }
    fm_store_close(store);
    return out;
}

static void test_as_the_parts(void **state) {
    (void)state;
    cache_case test;
    const fm_select_rules cases[] = {
        {.max_unknown = 0, .max_single_percent = 100},
        {.max_unknown = UINT32_MAX, .max_single_percent = 15},
        {.max_unknown = UINT32_MAX, .max_single_percent = 100, .max_resolution = 2.0},
        {.max_unknown = UINT32_MAX, .max_single_percent = 100, .need_resolution = true},
        {.max_unknown = UINT32_MAX, .max_single_percent = 100, .until = "2010-06-01"},
        {.max_unknown = UINT32_MAX, .max_single_percent = 100, .from = "2010-06-01"},
        {.max_unknown = UINT32_MAX, .max_single_percent = 100, .no_predicted = true},
        {.max_unknown = 1, .max_single_percent = 20, .max_resolution = 2.5, .min_length = 30},
    };
    enum { N_CASE = sizeof cases / sizeof cases[0] };
    fm_select_report report;
    const char *expected[N_CASE];
    setup_case(&test, 16);
    const fm_build_report built = build(&test);
    uint32_t n_partial = 0;
    for (int i = 0; i < N_CASE; i++) {
        expected[i] = select_text(&test, &cases[i], &report);
        assert_int_equal(report.n_read, 0);
        n_partial += report.n[FM_SELECT_TAKEN] && report.n[FM_SELECT_TAKEN] < built.n_chain;
    }
    assert_true(n_partial >= 5);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    /* A cache without facts: the parts give the same answers. */
    republish(&test, NULL);
    assert_int_equal(run_shell("head -1 %s/generations/00000002.manifest | "
                               "grep -qx 'foldmill generation 1' && "
                               "test ! -e %s/generations/00000002.facts",
                               test.cache, test.cache),
                     0);
    assert_null(read_facts(&test));
    assert_int_equal(verify(&test, test.cache), FM_OK);
    for (int i = 0; i < N_CASE; i++) {
        assert_string_equal(select_text(&test, &cases[i], &report), expected[i]);
        assert_true(report.n_read > 0);
    }
    /* A build over it adds the table and makes nothing else. */
    const fm_build_report again = build(&test);
    assert_true(again.published);
    assert_int_equal(again.n_built, 0);
    assert_same_content(built, again);
    assert_non_null(read_facts(&test));
    for (int i = 0; i < N_CASE; i++) {
        assert_string_equal(select_text(&test, &cases[i], &report), expected[i]);
        assert_int_equal(report.n_read, 0);
    }
    assert_false(build(&test).published);
    teardown_case(&test);
}

/* Also without the notes: the structures are parsed again. */
static void test_facts_are_rebuilt(void **state) {
    (void)state;
    cache_case test;
    fm_generation generation;
    fm_bytes all;
    setup_case(&test, 4);
    const fm_build_report built = build(&test);
    assert_int_equal(
        fm_generation_read(test.cache, FM_GENERATION_ALL, &test.arena, &generation, &test.error),
        FM_OK);
    assert_int_equal(
        fm_generation_read_all(test.cache, &generation, &test.arena, &all, &test.error), FM_OK);
    fm_note_entry *note = fm_arena_alloc_array(&test.arena, generation.n_note, sizeof *note);
    uint32_t n = 0;
    for (uint32_t i = 0; i < generation.n_note; i++) {
        if (generation.note[i].value.size != FM_FACTS_BYTES) note[n++] = generation.note[i];
    }
    assert_int_equal(generation.n_note - n, built.n_chain);
    generation.note = note;
    generation.n_note = n;
    generation.number++;
    generation.facts = NULL;
    assert_int_equal(fm_generation_publish(test.cache, &generation, all, &test.arena, &test.error),
                     FM_OK);
    const fm_build_report again = build(&test);
    assert_int_equal(again.n_built, 0);
    assert_same_content(built, again);
    const fm_chain_facts *facts = read_facts(&test);
    for (uint32_t i = 0; i < built.n_chain; i++)
        assert_true(facts[i].flags & FM_FACTS_KNOWN);
    teardown_case(&test);
}

static void test_damage(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    setup_case(&test, 4);
    (void)build(&test);
    const fm_chain_facts *facts = read_facts(&test);
    fm_chain_facts lying[4];
    memcpy(lying, facts, sizeof lying);
    lying[2].n_unknown ^= 1;
    republish(&test, lying);
    assert_int_equal(verify(&test, test.cache), FM_ERR_CORRUPT);
    assert_non_null(strstr(test.error.message, "the table of facts says something else"));
    memcpy(lying, facts, sizeof lying);
    lying[1].resolution += 1.0f;
    republish(&test, lying);
    assert_int_equal(verify(&test, test.cache), FM_ERR_CORRUPT);
    /* One changed byte of the file. */
    assert_int_equal(run_shell("printf x | dd of=%s/generations/00000003.facts bs=1 seek=30 "
                               "conv=notrunc 2>/dev/null",
                               test.cache),
                     0);
    fm_store *store = open_store(&test);
    fm_snapshot_text text;
    assert_int_equal(
        fm_snapshot_select(store, &everything, &test.arena, &text, &report, &test.error),
        FM_ERR_CORRUPT);
    assert_non_null(strstr(test.error.source, "00000003.facts"));
    fm_store_close(store);
    teardown_case(&test);
}

static void test_rows(void **state) {
    (void)state;
    static const fm_chain_facts good = {.flags = FM_FACTS_KNOWN | FM_FACTS_LISTED,
                                        .n_res = 100,
                                        .n_unknown = 3,
                                        .n_most = 20,
                                        .cluster_size = 7,
                                        .resolution = 1.5f,
                                        .release_date = "2001-02-03"};
    static const fm_chain_facts bad[] = {
        {.flags = FM_FACTS_KNOWN},
        {.flags = 8 | FM_FACTS_KNOWN, .n_res = 9, .n_most = 1},
        {.flags = FM_FACTS_KNOWN, .n_res = 9, .n_most = 10},
        {.flags = FM_FACTS_KNOWN, .n_res = 9, .n_unknown = 2, .n_most = 1},
        {.flags = FM_FACTS_KNOWN, .n_res = 9, .n_most = 1, .resolution = -1.0f},
        {.flags = FM_FACTS_KNOWN, .n_res = 9, .n_most = 1, .release_date = "yesterday!"},
        {.n_res = 9},
    };
    uint8_t row[FM_FACTS_BYTES], again[FM_FACTS_BYTES];
    fm_chain_facts found;
    fm_facts_encode_row(&good, row);
    assert_int_equal(fm_facts_decode_row((fm_bytes){row, sizeof row}, &found, NULL), FM_OK);
    fm_facts_encode_row(&found, again);
    assert_memory_equal(row, again, sizeof row);
    assert_string_equal(found.release_date, "2001-02-03");
    assert_int_equal(found.cluster_size, 7);
    assert_int_equal(fm_facts_decode_row((fm_bytes){row, sizeof row - 1}, &found, NULL),
                     FM_ERR_CORRUPT);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fm_facts_encode_row(&bad[i], row);
        assert_int_equal(fm_facts_decode_row((fm_bytes){row, sizeof row}, &found, NULL),
                         FM_ERR_CORRUPT);
    }
}

/* The names of chains say their datasets; lists and clusters may omit the prefix. */
static void test_datasets(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    char predicted[200], line[64];
    setup_case(&test, 4);
    (void)build(&test);
    uint32_t n = make_predictions(&test);
    snprintf(predicted, sizeof predicted, "%s/predicted", test.folder);
    assert_int_equal(run_shell("rm -r %s", test.cache), 0);
    const fm_source_options both[] = {{.dataset = test.data, .name = "pdb"},
                                      {.dataset = predicted, .name = "afdb", .is_predicted = true}};
    const fm_build_options how = {.cache = test.cache, .n_job = 2};
    fm_source source;
    fm_build_report built;
    assert_int_equal(fm_source_scan(both, 2, &test.arena, &source, &test.error), FM_OK);
    assert_int_equal(fm_build_run(&source, &how, &test.arena, &built, &test.error), FM_OK);
    const char *const afdb = "afdb";
    fm_select_rules rules = everything;
    rules.dataset = &afdb;
    rules.n_dataset = 1;
    char *text = select_text(&test, &rules, &report);
    assert_int_equal(report.n[FM_SELECT_TAKEN], n);
    assert_int_equal(report.n[FM_SELECT_DATASET], n);
    assert_non_null(strstr(text, " afdb:P0\n"));
    rules = everything;
    rules.no_predicted = true;
    text = select_text(&test, &rules, &report);
    assert_int_equal(report.n[FM_SELECT_PREDICTED], n);
    assert_null(strstr(text, "afdb"));
    /* "P0 pdb:<first>" in a list, "P1 P2" in a cluster. */
    fm_names names;
    fm_clusters clusters;
    char *first = strdup(strchr(text, ' ') + 1);
    *strchr(first, '\n') = '\0';
    snprintf(line, sizeof line, "P0 %s nobody", first);
    assert_int_equal(
        fm_names_parse((fm_bytes){(uint8_t *)line, strlen(line)}, &test.arena, &names, &test.error),
        FM_OK);
    rules = everything;
    rules.only = &names;
    text = select_text(&test, &rules, &report);
    assert_int_equal(report.n[FM_SELECT_TAKEN], 2);
    assert_int_equal(report.n_unlisted, 1);
    assert_int_equal(fm_clusters_parse((fm_bytes){(const uint8_t *)"P1 P2\n", 6}, &test.arena,
                                       &clusters, &test.error),
                     FM_OK);
    rules = everything;
    rules.clusters = &clusters;
    rules.only_clustered = true;
    text = select_text(&test, &rules, &report);
    assert_int_equal(report.n[FM_SELECT_TAKEN], 2);
    assert_non_null(strstr(text, "afdb:P1"));
    free(first);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_the_parts), cmocka_unit_test(test_facts_are_rebuilt),
        cmocka_unit_test(test_damage),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_datasets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
