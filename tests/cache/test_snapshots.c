/* test_snapshots.c: snapshots by rules, lists of names, clusters, pins, and the removal of what
 * nothing names. */
#include "tests/cache/cache_case.h"

#include "cache/snapshot/gc.h"
#include "cache/snapshot/pins.h"
#include "cache/snapshot/selection.h"
#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_select.h"

#include <sys/wait.h>
#include <unistd.h>

static fm_bytes bytes_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

static void test_names(void **state) {
    (void)state;
    static const char *const good[] = {
        "b_A a_A\n\n c_A\ta_A", "[\"b_A\", \"a_A\",\"c_A\"]",
        " {\"c_A\": {\"x\": [1, \"y\"]}, \"a_A\": \"q\", \"b_A\": 1}",
        "\xef\xbb\xbf b_A\r\na_A\r\nc_A\r\n", "\xef\xbb\xbf[\"b_A\", \"a_A\",\"c_A\"]"};
    static const char *const bad[] = {"a \001b",   "[\"a\", 7]", "[[\"a\"]]", "[\"a b\"]",
                                      "{\"\": 1}", "[\"a\"",     "[\"a\"] x"};
    fm_arena arena;
    fm_names names;
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(fm_names_parse(bytes_of(good[i]), &arena, &names, &error), FM_OK);
        assert_int_equal(names.n, 3);
        assert_string_equal(names.name[0], "a_A");
        assert_string_equal(names.name[2], "c_A");
        assert_true(fm_names_has(&names, "b_A"));
        assert_false(fm_names_has(&names, "b_a"));
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(fm_names_parse(bytes_of(bad[i]), &arena, &names, &error), FM_ERR_FORMAT);
    assert_int_equal(fm_names_parse(bytes_of(""), &arena, &names, &error), FM_OK);
    assert_int_equal(names.n, 0);
    fm_arena_fini(&arena);
}

static void test_clusters(void **state) {
    (void)state;
    fm_arena arena;
    fm_clusters clusters;
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    assert_int_equal(fm_clusters_parse(bytes_of("1ABC_A 2DEF_B\n\n1abc_a 3GHI_C 1ABC_A\n4jkl_D"),
                                       &arena, &clusters, &error),
                     FM_OK);
    assert_int_equal(clusters.n_cluster, 3);
    assert_int_equal(clusters.size[0], 2);
    assert_int_equal(clusters.size[1], 3);
    assert_int_equal(fm_clusters_find(&clusters, "1ABC_A"), 0);
    assert_int_equal(fm_clusters_find(&clusters, "1abc_a"), 1);
    assert_int_equal(fm_clusters_find(&clusters, "1abc_A"), 0); /* by letters: the first */
    assert_int_equal(fm_clusters_find(&clusters, "2def_B"), 0);
    assert_int_equal(fm_clusters_find(&clusters, "4JKL_D"), 2);
    assert_int_equal(fm_clusters_find(&clusters, "4JKL_E"), FM_NO_CLUSTER);
    assert_int_equal(fm_clusters_parse(bytes_of(""), &arena, &clusters, &error), FM_OK);
    assert_int_equal(fm_clusters_find(&clusters, "x"), FM_NO_CLUSTER);
    assert_int_equal(fm_clusters_parse(bytes_of("a b\nc \177"), &arena, &clusters, &error),
                     FM_ERR_FORMAT);
    assert_int_equal(error.line, 2);
    fm_arena_fini(&arena);
}

static void test_weights(void **state) {
    (void)state;
    assert_int_equal(fm_select_weight(FM_WEIGHTS_UNIFORM, 99, 7), 1);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_LENGTH, 99, 7), 256);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_LENGTH, 300, 7), 300);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_AF2, 2000, 1), 2147483648u);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_AF2, 300, 7), (300ull << 22) / 7);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_AF2, 300, 0), 300u << 22);
    assert_int_equal(fm_select_weight(FM_WEIGHTS_AF2, 1, UINT32_MAX), 1);
}

static fm_store *open_store(cache_case *test) {
    fm_store *store;
    assert_int_equal(fm_store_open(test->cache, &store, &test->error), FM_OK);
    return store;
}

static const fm_select_rules everything = {.max_unknown = UINT32_MAX, .max_single_percent = 100};

static uint32_t select_with(cache_case *test, const fm_store *store, fm_select_rules rules,
                            fm_select_report *report) {
    fm_snapshot_text text;
    fm_status status = fm_snapshot_select(store, &rules, &test->arena, &text, report, &test->error);
    return status ? 0 : text.n_line;
}

/* Each rule, against the same question asked of the loaded chains. */
static void test_rules(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    setup_case(&test, 16);
    build(&test);
    fm_store *store = open_store(&test);
    uint32_t n_chain = fm_store_get_info(store)->n_chain, n_long = 0, n_early = 0, n_fine = 0;
    uint32_t n_single = 0;
    for (uint32_t i = 0; i < n_chain; i++) {
        fm_record record;
        uint32_t count[256] = {0}, most = 0;
        assert_int_equal(fm_store_load(store, i, &test.arena, &record, &test.error), FM_OK);
        const fm_part_structure *structure = record.structure;
        n_long += record.sequence->n_res >= 40 && record.sequence->n_res <= 50;
        n_early += structure->release_date[0] && strcmp(structure->release_date, "2010-06-01") <= 0;
        n_fine += structure->resolution > 0 && structure->resolution <= 2.0f;
        for (uint32_t k = 0; k < record.sequence->n_res; k++) {
            uint32_t here = ++count[(uint8_t)record.sequence->sequence[k]];
            if (here > most) most = here;
        }
        n_single += most * 100 <= 15 * record.sequence->n_res;
    }
    fm_select_rules rules = everything;
    assert_int_equal(select_with(&test, store, rules, &report), n_chain);
    rules.min_length = 40;
    rules.max_length = 50;
    assert_int_equal(select_with(&test, store, rules, &report), n_long);
    assert_int_equal(report.n[FM_SELECT_LENGTH], n_chain - n_long);
    rules = everything;
    rules.until = "2010-06-01";
    assert_int_equal(select_with(&test, store, rules, &report), n_early);
    rules = everything;
    rules.from = "2010-06-02";
    assert_int_equal(select_with(&test, store, rules, &report), n_chain - n_early);
    rules = everything;
    rules.max_resolution = 2.0;
    rules.need_resolution = true;
    assert_int_equal(select_with(&test, store, rules, &report), n_fine);
    rules = everything;
    rules.max_single_percent = 15;
    assert_int_equal(select_with(&test, store, rules, &report), n_single);
    assert_true(n_long && n_long < n_chain && n_fine < n_chain && n_single < n_chain);
    rules = everything;
    rules.min_length = 60000;
    assert_int_equal(select_with(&test, store, rules, &report), 0);
    assert_int_equal(test.error.status, FM_ERR_DATA);
    fm_store_close(store);
    teardown_case(&test);
}

/* Of two processes that write one name at a time, one succeeds. */
static void write_at_a_time(const fm_store *store, const fm_snapshot_text *one,
                            const fm_snapshot_text *other, fm_arena *arena) {
    for (int i = 0; i < 20; i++) {
        char name[16];
        fm_sha256 hash;
        int code;
        snprintf(name, sizeof name, "both%d", i);
        pid_t child = fork();
        assert_true(child >= 0);
        fm_status status = fm_snapshot_write(store, name, child ? one : other, arena, &hash, NULL);
        if (child == 0) _exit((int)status);
        assert_int_equal(waitpid(child, &code, 0), child);
        assert_true(WIFEXITED(code));
        fm_status its = (fm_status)WEXITSTATUS(code);
        assert_true(!status != !its);
        assert_int_equal(status ? status : its, FM_ERR_EXISTS);
    }
}

/* A training set that shares no cluster with an evaluation set. */
static void test_disjoint_clusters(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    fm_snapshot_text eval, train, all;
    fm_clusters clusters;
    fm_names names;
    char text[600];
    const char *first;
    uint32_t n_shared;
    fm_sha256 hash;
    setup_case(&test, 8);
    build(&test);
    fm_store *store = open_store(&test);
    snprintf(text, sizeof text, "%s %s %s\n%s %s\n", fm_store_chain_name(store, 0),
             fm_store_chain_name(store, 3), fm_store_chain_name(store, 5),
             fm_store_chain_name(store, 1), fm_store_chain_name(store, 2));
    assert_int_equal(fm_clusters_parse(bytes_of(text), &test.arena, &clusters, &test.error), FM_OK);
    snprintf(text, sizeof text, "[\"%s\", \"none_A\", \"%s\"]", fm_store_chain_name(store, 3),
             fm_store_chain_name(store, 7));
    assert_int_equal(fm_names_parse(bytes_of(text), &test.arena, &names, &test.error), FM_OK);
    fm_select_rules rules = everything;
    rules.only = &names;
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &eval, &report, &test.error),
                     FM_OK);
    assert_int_equal(eval.n_line, 2);
    assert_int_equal(report.n_unlisted, 1);
    rules = everything;
    rules.clusters = &clusters;
    rules.weights = FM_WEIGHTS_AF2;
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &all, &report, &test.error),
                     FM_OK);
    assert_int_equal(all.line[0].weight, (256u << 22) / 3);
    assert_int_equal(all.line[1].weight, (256u << 22) / 2);
    assert_int_equal(all.line[4].weight, 256u << 22);
    rules.apart = &eval;
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &train, &report, &test.error),
                     FM_OK);
    assert_int_equal(train.n_line, 4); /* not 0, 3, 5 (a cluster) and 7 (itself) */
    assert_int_equal(
        fm_snapshot_shared(&train, &eval, &clusters, &test.arena, &n_shared, &first, &test.error),
        FM_OK);
    assert_int_equal(n_shared, 0);
    assert_null(first);
    assert_int_equal(
        fm_snapshot_shared(&all, &eval, &clusters, &test.arena, &n_shared, &first, &test.error),
        FM_OK);
    assert_int_equal(n_shared, 4);
    assert_string_equal(first, fm_store_chain_name(store, 0));
    /* A written snapshot opens as it was made, and is never overwritten. */
    fm_snapshot opened;
    assert_int_equal(fm_snapshot_write(store, "train", &train, &test.arena, &hash, &test.error),
                     FM_OK);
    assert_int_equal(fm_snapshot_open(store, "train", &test.arena, &opened, &test.error), FM_OK);
    assert_memory_equal(&opened.hash, &hash, sizeof hash);
    assert_int_equal(opened.n_chain, 4);
    assert_int_equal(opened.weight[0], train.line[0].weight);
    assert_int_equal(fm_snapshot_write(store, "train", &train, &test.arena, &hash, &test.error),
                     FM_OK);
    assert_int_equal(fm_snapshot_write(store, "train", &eval, &test.arena, &hash, &test.error),
                     FM_ERR_EXISTS);
    write_at_a_time(store, &train, &eval, &test.arena);
    static const char *const bad[] = {"all", "../x", ".x", "a b", "", "x.tmp.1"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fm_snapshot_write(store, bad[i], &eval, &test.arena, &hash, &test.error),
                         FM_ERR_USAGE);
    }
    fm_store_close(store);
    teardown_case(&test);
}

/* The longest name can be written, pinned and deleted. */
static void test_long_names(void **state) {
    (void)state;
    cache_case test;
    fm_select_rules rules = everything;
    fm_select_report report;
    fm_snapshot_text all;
    fm_sha256 hash;
    char name[FM_SNAPSHOT_NEW_NAME_BYTES + 2];
    setup_case(&test, 4);
    build(&test);
    fm_store *store = open_store(&test);
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &all, &report, &test.error),
                     FM_OK);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(fm_snapshot_write(store, name, &all, &test.arena, &hash, &test.error),
                     FM_ERR_USAGE);
    assert_non_null(strstr(test.error.message, "at most 240 bytes"));
    name[sizeof name - 2] = '\0';
    assert_int_equal(fm_snapshot_write(store, name, &all, &test.arena, &hash, &test.error), FM_OK);
    assert_int_equal(fm_pin_write(store, name, &test.error), FM_OK);
    assert_int_equal(fm_pin_remove(store, name, &test.error), FM_OK);
    assert_int_equal(fm_snapshot_delete(store, name, &test.error), FM_OK);
    fm_store_close(store);
    teardown_case(&test);
}

/* What cannot be read is not taken for absent: neither a snapshot nor a pin is replaced then. The
 * link stands for a file on a disk that is not mounted now. */
static void test_unreadable(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    fm_snapshot_text all;
    fm_sha256 hash;
    setup_case(&test, 4);
    build(&test);
    fm_store *store = open_store(&test);
    assert_int_equal(
        fm_snapshot_select(store, &everything, &test.arena, &all, &report, &test.error), FM_OK);
    assert_int_equal(
        run_shell("cd %s && mkdir snapshots && ln -s ../away snapshots/mine", test.cache), 0);
    assert_int_equal(fm_snapshot_write(store, "mine", &all, &test.arena, &hash, &test.error),
                     FM_ERR_IO);
    assert_int_equal(run_shell("cd %s && test -L snapshots/mine && rm snapshots/mine", test.cache),
                     0);
    assert_int_equal(fm_snapshot_write(store, "mine", &all, &test.arena, &hash, &test.error),
                     FM_OK);
    assert_int_equal(run_shell("cd %s && mkdir pins && ln -s ../away pins/mine", test.cache), 0);
    assert_int_equal(fm_pin_write(store, "mine", &test.error), FM_ERR_IO);
    assert_int_equal(run_shell("cd %s && test -L pins/mine && rm pins/mine", test.cache), 0);
    /* A damaged pin keeps no generation, and is replaced. */
    assert_int_equal(run_shell("echo x > %s/pins/mine", test.cache), 0);
    assert_int_equal(fm_pin_write(store, "mine", &test.error), FM_OK);
    fm_store_close(store);
    teardown_case(&test);
}

/* Shares are decimals that add up to 1, in any order. */
static void test_share_words(void **state) {
    (void)state;
    fm_arena arena;
    fm_shares shares;
    fm_error error;
    char text[FM_SHARE_TEXT_BYTES];
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    static const char *const good[] = {"pdb=0.25", "=0.000000001", "distillation=0.749999999"};
    assert_int_equal(fm_shares_parse(good, 3, &arena, &shares, &error), FM_OK);
    assert_int_equal(shares.n, 3);
    assert_string_equal(shares.share[0].dataset, "");
    assert_int_equal(shares.share[0].billionths, 1);
    assert_string_equal(shares.share[1].dataset, "distillation");
    assert_int_equal(shares.share[1].billionths, 749999999);
    assert_int_equal(fm_shares_find(&shares, "pdb:1abc_A"), 2);
    assert_int_equal(fm_shares_find(&shares, "1abc_A"), 0);
    assert_int_equal(fm_shares_find(&shares, "pd:1abc_A"), FM_NO_SHARE);
    assert_int_equal(fm_shares_find(&shares, "pdbx:1abc_A"), FM_NO_SHARE);
    fm_share_format(250000000, text);
    assert_string_equal(text, "0.25");
    fm_share_format(FM_SHARE_ONE, text);
    assert_string_equal(text, "1");
    fm_share_format(123456789, text);
    assert_string_equal(text, "0.123456789");
    static const struct {
        const char *words[2], *message;
    } bad[] = {
        {{"pdb", "x=1"}, "found 'pdb', expected a dataset's name"},
        {{"pdb=.5", "x=0.5"}, "found 'pdb=.5'"},
        {{"pdb=0.5x", "x=0.5"}, "found 'pdb=0.5x'"},
        {{"pdb=0", "x=1"}, "found 'pdb=0'"},
        {{"pdb=-0.5", "x=0.5"}, "found 'pdb=-0.5'"},
        {{"pdb=1.5", "x=0.5"}, "found 'pdb=1.5'"},
        {{"pdb=0.1234567890", "x=0.5"}, "of at most 9 places"},
        {{"p:b=0.5", "x=0.5"}, "found 'p:b=0.5'"},
        {{"pdb=0.5", "pdb=0.5"}, "the dataset 'pdb' is named twice"},
        {{"pdb=0.25", "x=0.5"}, "the shares add up to 0.750000000, expected 1"},
        {{"pdb=1", "x=0.5"}, "the shares add up to 1.500000000, expected 1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fm_shares_parse(bad[i].words, 2, &arena, &shares, &error), FM_ERR_USAGE);
        if (!strstr(error.message, bad[i].message)) fail_msg("%s", error.message);
    }
    fm_arena_fini(&arena);
}

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Both formats survive a round trip byte by byte; what is not canonical is refused with its
 * line. */
static void test_share_files(void **state) {
    (void)state;
    fm_arena arena;
    fm_snapshot_text text;
    fm_bytes again;
    fm_error error;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    static const char *const good[] = {
        "foldmill snapshot 1\nchains 2\n3 " HASH " a:1abc_A\n0 " HASH " b:1abc_A\n",
        "foldmill snapshot 2\nshares 1\nshare 1000000000\nchains 1\n3 " HASH " 1abc_A\n",
        "foldmill snapshot 2\nshares 3\nshare 1\nshare 2 a\nshare 999999997 b\nchains 3\n"
        "3 " HASH " 1abc_A\n3 " HASH " a:1abc_A\n4 " HASH " b:1abc_A\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_int_equal(fm_snapshot_decode(bytes_of(good[i]), &arena, &text, &error), FM_OK);
        assert_int_equal(fm_snapshot_encode(&text, &arena, &again, &error), FM_OK);
        assert_int_equal(again.size, strlen(good[i]));
        assert_memory_equal(again.data, good[i], again.size);
    }
    assert_int_equal(text.shares.n, 3);
    assert_string_equal(text.shares.share[2].dataset, "b");
    static const struct {
        const char *text;
        uint64_t line;
    } bad[] = {
        {"foldmill snapshot 3\nchains 1\n3 " HASH " a\n", 1},
        {"foldmill snapshot 2\nchains 1\n3 " HASH " a\n", 1},
        {"foldmill snapshot 2\nshares 0\nchains 1\n3 " HASH " a\n", 1},
        {"foldmill snapshot 2\nshares 1\nshare 999999999\nchains 1\n3 " HASH " a\n", 1},
        {"foldmill snapshot 2\nshares 1\nshare 1000000000 \nchains 1\n3 " HASH " a\n", 1},
        {"foldmill snapshot 2\nshares 1\nshare 1000000000 a:\nchains 1\n3 " HASH " a:b\n", 1},
        {"foldmill snapshot 2\nshares 2\nshare 1 b\nshare 999999999 a\nchains 2\n"
         "3 " HASH " a:1\n3 " HASH " b:1\n",
         1},
        {"foldmill snapshot 2\nshares 1\nshare 1000000000 a\nchains 2\n3 " HASH " a:1\n"
         "3 " HASH " b:1\n",
         6},
        {"foldmill snapshot 2\nshares 2\nshare 1 a\nshare 999999999 b\nchains 2\n"
         "3 " HASH " a:1\n0 " HASH " b:1\n",
         4},
        {"foldmill snapshot 2\nshares 1\nshare 1000000000 a\nchains 1\n3 " HASH " a:1\nx\n", 6},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(fm_snapshot_decode(bytes_of(bad[i].text), &arena, &text, &error),
                         FM_ERR_CORRUPT);
        assert_int_equal(error.line, bad[i].line);
    }
    fm_arena_fini(&arena);
}

/* The record of a selection survives a round trip, and goes with its snapshot alone. */
static void test_records(void **state) {
    (void)state;
    cache_case test;
    fm_select_report report;
    fm_snapshot_text text;
    fm_selection record, again;
    fm_sha256 hash, other = {{1}};
    setup_case(&test, 4);
    build(&test);
    fm_store *store = open_store(&test);
    fm_select_rules rules = fm_select_everything();
    assert_int_equal(fm_select_recipe("af2", &rules, &test.error), FM_ERR_USAGE);
    assert_int_equal(fm_select_recipe("af2-train", &rules, &test.error), FM_OK);
    rules.weights = FM_WEIGHTS_LENGTH;
    rules.min_length = 1;
    rules.until = "1900-01-01";
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &text, &report, &test.error),
                     FM_ERR_DATA);
    rules.until = "2900-01-01";
    assert_int_equal(fm_snapshot_select(store, &rules, &test.arena, &text, &report, &test.error),
                     FM_OK);
    assert_int_equal(fm_snapshot_write(store, "mine", &text, &test.arena, &hash, &test.error),
                     FM_OK);
    assert_int_equal(fm_selection_read(store, "mine", &hash, &test.arena, &again, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(fm_selection_describe(&rules, &report, &test.arena, &record, &test.error),
                     FM_OK);
    record.snapshot = hash;
    record.generation = 1;
    assert_int_equal(fm_selection_write(store, "mine", &record, &test.arena, &test.error), FM_OK);
    assert_int_equal(fm_selection_read(store, "mine", &other, &test.arena, &again, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(fm_selection_read(store, "mine", &hash, &test.arena, &again, &test.error),
                     FM_OK);
    static const char *const words[] = {
        "at least 1 residues", "no kind of residue (X is one) above 80 %",
        "resolution at most 9 Å, where there is one",
        "released until 2900-01-01; predicted structures are exempt"};
    assert_int_equal(again.n_rule, 4);
    for (uint32_t i = 0; i < 4; i++) {
        assert_string_equal(again.rule[i].words, words[i]);
        assert_int_equal(again.rule[i].n_excluded, 0);
    }
    assert_string_equal(again.recipe, "af2-train");
    assert_string_equal(again.weights, "length");
    assert_int_equal(again.n_chain, fm_store_get_info(store)->n_chain);
    assert_int_equal(run_shell("echo x >> %s/selections/mine", test.cache), 0);
    assert_int_equal(fm_selection_read(store, "mine", &hash, &test.arena, &again, &test.error),
                     FM_ERR_CORRUPT);
    assert_int_equal(fm_snapshot_delete(store, "mine", &test.error), FM_OK);
    assert_int_equal(run_shell("test ! -e %s/selections/mine", test.cache), 0);
    fm_store_close(store);
    teardown_case(&test);
}

static uint64_t generation_for(cache_case *test, const char *name) {
    uint64_t number = 0;
    assert_int_equal(fm_store_number_for(test->cache, name, &number, &test->error), FM_OK);
    return number;
}

/* Builds and removals keep what a pin names; the rest goes. */
static void test_pins_and_gc(void **state) {
    (void)state;
    cache_case test;
    fm_gc_report report;
    setup_case(&test, 5);
    fm_build_report first = build(&test);
    fm_store *store = open_store(&test);
    assert_int_equal(fm_pin_write(store, "nothing", &test.error), FM_ERR_NOT_FOUND);
    assert_int_equal(fm_pin_write(store, "all", &test.error), FM_OK);
    assert_int_equal(
        run_shell("cd %s/alignments && for d in *; do sed -n 1,2p $d/mgnify_hits.a3m | "
                  "tr A-Y C | sed 's/^>.*/>new/' >> $d/mgnify_hits.a3m; done; "
                  "echo x > %s/shards/mine; echo x > %s/shards/%064d.lmdb",
                  test.data, test.cache, test.cache, 7),
        0);
    fm_build_report second = build(&test);
    assert_other_content(first, second);
    const fm_gc_options dry = {.dry_run = true}, plain = {0};
    assert_int_equal(fm_gc_run(test.cache, &dry, &test.arena, &report, &test.error), FM_OK);
    assert_int_equal(report.n_shard_removed, 1);
    assert_int_equal(run_shell("test -e %s/shards/%064d.lmdb", test.cache, 7), 0);
    assert_int_equal(fm_gc_run(test.cache, &plain, &test.arena, &report, &test.error), FM_OK);
    assert_int_equal(report.n_generation_kept, 2);
    assert_int_equal(report.n_generation_removed, 0);
    assert_int_equal(report.n_shard_removed, 1);
    assert_int_equal(run_shell("test -e %s/shards/mine && test ! -e %s/shards/%064d.lmdb",
                               test.cache, test.cache, 7),
                     0);
    /* The pinned generation is complete: made current again, it verifies. */
    assert_int_equal(run_shell("cp -r %s %s/old && echo 1 > %s/old/CURRENT", test.cache,
                               test.folder, test.folder),
                     0);
    char old[200];
    snprintf(old, sizeof old, "%s/old", test.folder);
    assert_int_equal(verify(&test, old), FM_OK);
    /* A pinned snapshot is served from its generation even when a newer one is current. */
    fm_store *pinned;
    assert_int_equal(generation_for(&test, "all"), 1);
    assert_int_equal(fm_store_open_generation(test.cache, 1, &pinned, &test.error), FM_OK);
    assert_memory_equal(&fm_store_get_info(pinned)->content, &first.content, 32);
    fm_store_close(pinned);
    assert_int_equal(generation_for(&test, "other"), 2);
    /* Pinned to another generation; unpinned; removed, while an open reader reads on. */
    fm_store *now = open_store(&test);
    assert_int_equal(fm_pin_write(now, "all", &test.error), FM_ERR_EXISTS);
    assert_int_equal(fm_pin_remove(now, "all", &test.error), FM_OK);
    assert_int_equal(fm_pin_remove(now, "all", &test.error), FM_ERR_NOT_FOUND);
    const fm_gc_options newest = {.keep_newest = 1};
    assert_int_equal(fm_gc_run(test.cache, &newest, &test.arena, &report, &test.error), FM_OK);
    assert_int_equal(report.n_generation_kept, 2);
    assert_int_equal(fm_gc_run(test.cache, &plain, &test.arena, &report, &test.error), FM_OK);
    assert_int_equal(report.n_generation_removed, 1);
    for (uint32_t i = 0; i < fm_store_get_info(store)->n_chain; i++) {
        fm_record record;
        assert_int_equal(fm_store_load(store, i, &test.arena, &record, &test.error), FM_OK);
    }
    assert_int_equal(verify(&test, test.cache), FM_OK);
    fm_build_report third = build(&test);
    assert_same_content(second, third);
    assert_false(third.published);
    fm_store_close(now);
    fm_store_close(store);
    teardown_case(&test);
}

/* A pin of a missing generation stops the removal. */
static void test_gc_refuses(void **state) {
    (void)state;
    cache_case test;
    fm_gc_report report;
    setup_case(&test, 2);
    const fm_gc_options plain = {0};
    assert_int_equal(fm_gc_run(test.cache, &plain, &test.arena, &report, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(run_shell("test ! -e %s", test.cache), 0);
    build(&test);
    assert_int_equal(run_shell("mkdir %s/pins && echo 9 > %s/pins/lost && "
                               "echo x > %s/shards/%064d.lmdb",
                               test.cache, test.cache, test.cache, 7),
                     0);
    assert_int_equal(fm_gc_run(test.cache, &plain, &test.arena, &report, &test.error),
                     FM_ERR_CORRUPT);
    assert_non_null(strstr(test.error.message, "lost"));
    fm_store *store;
    assert_int_equal(generation_for(&test, "lost"), 9);
    assert_int_equal(fm_store_open_generation(test.cache, 9, &store, &test.error),
                     FM_ERR_NOT_FOUND);
    assert_int_equal(run_shell("test -e %s/shards/%064d.lmdb", test.cache, 7), 0);
    teardown_case(&test);
}

/* A folder of shards behind a link may be that of another cache, which has other shards in it. */
static void test_gc_follows_no_links(void **state) {
    (void)state;
    cache_case test;
    fm_gc_report report;
    setup_case(&test, 2);
    const fm_gc_options plain = {0};
    build(&test);
    assert_int_equal(run_shell("mkdir %s/other && mv %s/shards %s/other && "
                               "echo x > %s/other/shards/%064d.lmdb && "
                               "ln -s ../other/shards %s/shards",
                               test.folder, test.cache, test.folder, test.folder, 7, test.cache),
                     0);
    assert_int_equal(fm_gc_run(test.cache, &plain, &test.arena, &report, &test.error), FM_ERR_IO);
    assert_non_null(strstr(test.error.message, "nothing is removed"));
    assert_int_equal(run_shell("test -e %s/other/shards/%064d.lmdb", test.folder, 7), 0);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_clusters),
        cmocka_unit_test(test_weights),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_disjoint_clusters),
        cmocka_unit_test(test_long_names),
        cmocka_unit_test(test_unreadable),
        cmocka_unit_test(test_share_words),
        cmocka_unit_test(test_share_files),
        cmocka_unit_test(test_records),
        cmocka_unit_test(test_pins_and_gc),
        cmocka_unit_test(test_gc_refuses),
        cmocka_unit_test(test_gc_follows_no_links),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
