/* test_lists.c: lists beside a dataset: dates and replaced ids of templates, facts of chains. */
#include "tests/cache/cache_case.h"

#include "cache/store/generation.h"
#include "cache/snapshot/snapshot_select.h"
#include "cache/source/source_parts.h"

static fm_store *open_store(cache_case *test) {
    fm_store *store;
    assert_int_equal(fm_store_open(test->cache, &store, &test->error), FM_OK);
    return store;
}

static void write_text(cache_case *test, const char *name, const char *text) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s", test->data, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* Counts the chains that have a hit of that id; *ret_dated: all those hits have that listed
 * date. */
static uint32_t count_hits(cache_case *test, const char *id, const char *date, bool *ret_dated) {
    fm_store *store = open_store(test);
    uint32_t n_chain = fm_store_get_info(store)->n_chain, n = 0;
    *ret_dated = true;
    for (uint32_t i = 0; i < n_chain; i++) {
        fm_record record;
        bool has = false;
        assert_int_equal(fm_store_load(store, i, &test->arena, &record, &test->error), FM_OK);
        for (uint32_t h = 0; record.hits && h < record.hits->n_hit; h++) {
            if (strncmp(record.hits->hit[h].name, id, 4) != 0) continue;
            *ret_dated &= strcmp(record.hits->hit[h].listed_date, date) == 0;
            has = true;
        }
        n += has;
    }
    fm_store_close(store);
    return n;
}

/* A new date changes the hits that name its id, and nothing else. */
static void test_dates(void **state) {
    (void)state;
    cache_case test;
    bool dated;
    setup_case(&test, 6);
    const fm_build_report first = build(&test);
    uint32_t n = count_hits(&test, "9a14", "", &dated);
    assert_true(dated && n > 0 && n < first.n_chain);
    write_text(&test, "mmcif_cache.json",
               "{\"9A14\": {\"release_date\": \"2001-02-03\", \"seqs\": [\"AA\"], \"x\": {}}, "
               "\"9zzz\": {\"release_date\": \"1999-01-01\"}}");
    const fm_build_report second = build(&test);
    assert_int_equal(second.n_built, n);
    assert_int_equal(second.n_reused, first.n_chain - n);
    assert_other_content(first, second);
    assert_int_equal(count_hits(&test, "9a14", "2001-02-03", &dated), n);
    assert_true(dated);
    assert_int_equal(second.part_decoded[FM_PART_MSA - 1], first.part_decoded[FM_PART_MSA - 1]);
    /* A new date of an id that no hit names changes nothing; one that a hit names does. */
    write_text(&test, "mmcif_cache.json",
               "{\"9a14\": {\"release_date\": \"2001-02-03\"}, "
               "\"9zzz\": {\"release_date\": \"1999-12-31\"}}");
    const fm_build_report third = build(&test);
    assert_false(third.published);
    assert_int_equal(third.n_built, 0);
    write_text(&test, "mmcif_cache.json", "{\"9a14\": {\"release_date\": \"2001-02-04\"}}");
    assert_int_equal(build(&test).n_built, n);
    assert_int_equal(count_hits(&test, "9a14", "2001-02-04", &dated), n);
    assert_true(dated);
    /* Without the list the content is as before. */
    assert_int_equal(run_shell("rm %s/mmcif_cache.json", test.data), 0);
    const fm_build_report last = build(&test);
    assert_same_content(first, last);
    teardown_case(&test);
}

static uint32_t count_mapped(cache_case *test, const char *id) {
    fm_store *store = open_store(test);
    uint32_t n = 0;
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        fm_record record;
        assert_int_equal(fm_store_load(store, i, &test->arena, &record, &test->error), FM_OK);
        for (uint32_t h = 0; record.hits && h < record.hits->n_hit; h++) {
            const fm_template_hit *hit = &record.hits->hit[h];
            n += !hit->fault && strncmp(hit->name, id, 4) == 0;
        }
    }
    fm_store_close(store);
    return n;
}

/* An id without a file is replaced by its last replacement. */
static void test_obsolete(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 6);
    (void)build(&test);
    uint32_t n = count_mapped(&test, "9a14");
    assert_true(n > 0);
    /* The structure gets another name, so its own chain goes. */
    assert_int_equal(run_shell("cd %s && mv mmcifs/9a14.cif mmcifs/9bbb.cif && rm -r "
                               "alignments/9a14_*",
                               test.data),
                     0);
    (void)build(&test);
    assert_int_equal(count_mapped(&test, "9a14"), 0);
    assert_int_equal(count_mapped(&test, "9bbb"), 0);
    assert_int_equal(run_shell("mkdir %s/pdb_mmcif", test.data), 0);
    write_text(&test, "pdb_mmcif/obsolete.dat",
               " LIST OF OBSOLETE COORDINATE ENTRIES AND SUCCESSORS\n"
               "OBSLTE    31-JUL-94 9A14     9AAA\n"
               "OBSLTE    31-JUL-95 9AAA     9BBB     9CCC\n");
    const fm_build_report replaced = build(&test);
    assert_true(replaced.n_built > 0 && replaced.n_reused > 0);
    uint32_t n_after = count_mapped(&test, "9bbb");
    assert_true(n_after > 0 && n_after <= n);
    /* The date of the replacement is looked up, and is in the key. */
    write_text(&test, "mmcif_cache.json", "{\"9bbb\": {\"release_date\": \"2020-01-01\"}}");
    bool dated;
    assert_int_equal(build(&test).n_built, replaced.n_built);
    (void)count_hits(&test, "9bbb", "2020-01-01", &dated);
    assert_true(dated);
    teardown_case(&test);
}

static void test_obsolete_text(void **state) {
    (void)state;
    static const char text[] = "OBSLTE    31-JUL-94 116L     216L\n"
                               "OBSLTE    31-JUL-94 216L     316L\r\n"
                               "OBSLTE    29-JAN-96 125D\n"
                               "OBSLTE    29-JAN-96 1AAA     1BBB\n"
                               "OBSLTE    29-JAN-96 1BBB     1CCC\n"
                               "OBSLTE    29-JAN-96 1CCC     1BBB\n"
                               "obslte    29-JAN-96 9xxx     9yyy\n"
                               "OBSLTE    29-JAN-96 ....     9yyy\n"
                               "OBSLTE    01-JAN-00 2XYZ     3XYZ";
    cache_case test = {0};
    fm_obsolete_list list;
    assert_int_equal(fm_arena_init(&test.arena, 1 << 24, NULL), FM_OK);
    assert_int_equal(fm_source_parse_obsolete((fm_bytes){(const uint8_t *)text, sizeof text - 1},
                                              &test.arena, &list, &test.error),
                     FM_OK);
    assert_int_equal(list.n, 6);
    fm_source_dataset dataset = {.prefix = "", .obsolete = list};
    const fm_source source = {.n_dataset = 1, .dataset = &dataset};
    assert_string_equal(fm_source_successor(&source, "116l"), "316l");
    assert_string_equal(fm_source_successor(&source, "216l"), "316l");
    assert_string_equal(fm_source_successor(&source, "2xyz"), "3xyz");
    assert_null(fm_source_successor(&source, "125d"));
    assert_null(fm_source_successor(&source, "1aaa")); /* its replacements form a circle */
    assert_null(fm_source_successor(&source, "9xxx"));
    assert_null(fm_source_successor(&source, "116l2"));
    fm_arena_fini(&test.arena);
}

/* A list in the forms that editors give it has what it has without them. */
static void test_obsolete_forms(void **state) {
    (void)state;
    static const struct {
        fm_bytes text;
        fm_status status;
    } cases[] = {
#define TEXT(literal) {(const uint8_t *)(literal), sizeof(literal) - 1}
        {TEXT("\xef\xbb\xbfOBSLTE    31-JUL-94 116L     216L\n"), FM_OK},
        {TEXT("OBSLTE    31-JUL-94 116L     216L\r\n"), FM_OK},
        {TEXT("OBSLTE    31-JUL-94 116L     216L\rOBSLTE    29-JAN-96 125D\r"), FM_OK},
        {TEXT("OBSLTE    31-JUL-94 116L     216L\0"), FM_OK},
        {TEXT(" LIST OF OBSOLETE COORDINATE ENTRIES AND SUCCESSORS\n"
              "OBSLTE    31-JUL-94 116L     216L"),
         FM_OK},
        {TEXT("version https://git-lfs.github.com/spec/v1\nsize 1\n"), FM_ERR_FORMAT},
        {TEXT("{\"116l\": \"216l\"}\n"), FM_ERR_FORMAT},
#undef TEXT
    };
    cache_case test = {0};
    assert_int_equal(fm_arena_init(&test.arena, 1 << 24, NULL), FM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_obsolete_list list;
        assert_int_equal(fm_source_parse_obsolete(cases[i].text, &test.arena, &list, &test.error),
                         cases[i].status);
        if (cases[i].status) continue;
        fm_source_dataset dataset = {.prefix = "", .obsolete = list};
        const fm_source source = {.n_dataset = 1, .dataset = &dataset};
        assert_string_equal(fm_source_successor(&source, "116l"), "216l");
    }
    fm_arena_fini(&test.arena);
}

static fm_status read_text(cache_case *test, const char *text, fm_listing *listing) {
    char path[300];
    write_text(test, "list.json", text);
    snprintf(path, sizeof path, "%s/list.json", test->data);
    return fm_source_read_listing(path, false, &test->arena, listing, &test->error);
}

static void test_listings(void **state) {
    (void)state;
    cache_case test = {0};
    fm_listing listing;
    fm_test_make_folder(test.data, sizeof test.data);
    assert_int_equal(fm_arena_init(&test.arena, 1 << 26, NULL), FM_OK);
    assert_int_equal(read_text(&test,
                               "{\"b_A\": {\"release_date\": \"2000-01-01\", \"resolution\": 2.5,"
                               " \"cluster_size\": 3, \"seq\": \"AC\"},\n"
                               " \"a_A\": {\"release_date\": null, \"resolution\": null, "
                               "\"cluster_size\": -1, \"deep\": [{\"release_date\": 4}]},\n"
                               " \"c_A\": {\"release_date\": \"today\", \"resolution\": -1, "
                               "\"cluster_size\": 1e3},\n"
                               " \"b_A\": {\"cluster_size\": 9}, \"d_A\": {}}",
                               &listing),
                     FM_OK);
    assert_int_equal(listing.n, 4);
    const fm_listed *b = fm_listing_find(&listing, "b_A"); /* the later one */
    assert_non_null(b);
    assert_int_equal(b->cluster_size, 9);
    assert_string_equal(b->release_date, "");
    for (int i = 0; i < 3; i++) {
        const char *const names[] = {"a_A", "c_A", "d_A"};
        const fm_listed *none = fm_listing_find(&listing, names[i]);
        assert_non_null(none);
        assert_true(!none->release_date[0] && !none->cluster_size && none->resolution == 0.0f);
    }
    assert_null(fm_listing_find(&listing, "e_A"));
    static const struct {
        const char *text;
        unsigned line;
    } bad[] = {{"[]", 1}, {"{\n\"a\": 5}", 2}, {"{\"a\": {}\n,", 2}, {"{\"a b\": {}}", 1}, {"", 1}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(read_text(&test, bad[i].text, &listing), FM_ERR_FORMAT);
        assert_int_equal(test.error.line, bad[i].line);
        assert_non_null(strstr(test.error.source, "list.json"));
    }
    fm_arena_fini(&test.arena);
    fm_test_remove_tree(test.data);
}

/* Cluster sizes reach the facts and the weights, and no part is made again. */
static void test_chain_data(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 4);
    const fm_build_report first = build(&test);
    fm_store *store = open_store(&test);
    fm_snapshot_text text;
    fm_select_report report;
    char list[600];
    const fm_select_rules rules = {
        .max_unknown = UINT32_MAX, .max_single_percent = 100, .weights = FM_WEIGHTS_AF2};
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &text, &report, &test.error),
                     FM_ERR_USAGE);
    snprintf(list, sizeof list,
             "{\"%s\": {\"cluster_size\": 4, \"resolution\": 77.0, \"release_date\": "
             "\"1901-01-01\"}, \"%s\": {\"cluster_size\": -1}}",
             fm_store_chain_name(store, 1), fm_store_chain_name(store, 2));
    fm_store_close(store);
    assert_int_equal(run_shell("mkdir %s/data_caches", test.data), 0);
    write_text(&test, "data_caches/chain_data_cache.json", list);
    const fm_build_report second = build(&test);
    assert_int_equal(second.n_built, 0);
    assert_true(second.published);
    assert_same_content(first, second);
    store = open_store(&test);
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &text, &report, &test.error),
                     FM_OK);
    assert_int_equal(text.line[1].weight * 4, text.line[0].weight);
    assert_int_equal(text.line[2].weight, text.line[0].weight);
    /* The file's values win; the list fills values that the file lacks. */
    const fm_chain_facts *facts;
    fm_record record;
    assert_int_equal(fm_store_read_facts(store, &test.arena, &facts, &test.error), FM_OK);
    assert_int_equal(fm_store_load(store, 1, &test.arena, &record, &test.error), FM_OK);
    assert_int_equal(facts[1].cluster_size, 4);
    bool has_date = record.structure->release_date[0];
    bool has_resolution = record.structure->resolution > 0.0f;
    assert_string_equal(facts[1].release_date,
                        has_date ? record.structure->release_date : "1901-01-01");
    assert_true(facts[1].resolution == (has_resolution ? record.structure->resolution : 77.0f));
    assert_int_equal(facts[1].flags & FM_FACTS_LISTED,
                     has_date && has_resolution ? 0 : FM_FACTS_LISTED);
    fm_store_close(store);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    assert_false(build(&test).published);
    teardown_case(&test);
}

/* The reference's own lists. */
static void test_golden_lists(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        print_message("skipped: FM_REFERENCE_DATA is not set\n");
        skip();
    }
    cache_case test = {0};
    char path[300];
    fm_listing listing;
    assert_int_equal(fm_arena_init(&test.arena, 1 << 26, NULL), FM_OK);
    fm_test_reference_path(path, sizeof path, "golden/formats/chain_data_cache.json");
    assert_int_equal(fm_source_read_listing(path, false, &test.arena, &listing, &test.error),
                     FM_OK);
    assert_int_equal(listing.n, 22);
    assert_string_equal(fm_listing_find(&listing, "1psm_A")->release_date, "1995-02-07");
    assert_int_equal(fm_listing_find(&listing, "2crb_A")->cluster_size, 2);
    fm_test_reference_path(path, sizeof path, "golden/formats/mmcif_cache.json");
    assert_int_equal(fm_source_read_listing(path, true, &test.arena, &listing, &test.error), FM_OK);
    assert_int_equal(listing.n, 8);
    assert_string_equal(fm_listing_find(&listing, "2crb")->release_date, "2005-11-20");
    fm_arena_fini(&test.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dates),         cmocka_unit_test(test_obsolete),
        cmocka_unit_test(test_obsolete_text), cmocka_unit_test(test_obsolete_forms),
        cmocka_unit_test(test_listings),      cmocka_unit_test(test_chain_data),
        cmocka_unit_test(test_golden_lists),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
