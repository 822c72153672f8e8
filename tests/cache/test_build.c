/* test_build.c: a build gives the same content in every way it can run, makes nothing twice, and
 * refuses broken chains. */
#include "tests/cache/cache_case.h"

#include "cache/store/refusals.h"

static void test_jobs_shards_and_order(void **state) {
    (void)state;
    cache_case test;
    fm_build_report one, other;
    char cache[200], data[200];
    setup_case(&test, 12);
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){.n_job = 1}, &one),
                     FM_OK);
    assert_int_equal(one.n_chain, 12);
    assert_int_equal(one.n_built, 12);
    assert_true(one.published);
    snprintf(cache, sizeof cache, "%s/four", test.folder);
    const fm_build_options four = {.n_job = 4, .shard_bytes = 4096};
    assert_int_equal(build_with(&test, test.data, cache, four, &other), FM_OK);
    assert_same_content(one, other);
    assert_int_equal(verify(&test, cache), FM_OK);
    /* The same files, created in reverse order, some of them links. */
    snprintf(data, sizeof data, "%s/again", test.folder);
    snprintf(cache, sizeof cache, "%s/shuffled", test.folder);
    assert_int_equal(
        run_shell("mkdir -p %s/alignments %s/mmcifs && cd %s && "
                  "for f in $(ls -r alignments); do cp -r alignments/$f %s/alignments; "
                  "done && for f in $(ls -r mmcifs); do ln -s %s/mmcifs/$f %s/mmcifs; "
                  "done",
                  data, data, test.data, data, test.data, data),
        0);
    assert_int_equal(build_with(&test, data, cache, (fm_build_options){.n_job = 3}, &other), FM_OK);
    assert_same_content(one, other);
    teardown_case(&test);
}

static void test_nothing_new(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 5);
    fm_build_report first = build(&test), second = build(&test);
    assert_true(first.published);
    assert_false(second.published);
    assert_int_equal(second.generation, first.generation);
    assert_int_equal(second.n_reused, 5);
    assert_int_equal(second.n_built, 0);
    assert_int_equal(second.written_bytes, 0);
    assert_same_content(first, second);
    teardown_case(&test);
}

static void test_growth_and_change(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 4);
    fm_build_report four = build(&test);
    assert_int_equal(
        run_shell("\"$FM_BIN\"/foldmill synth --chains 9 --seed 3 --max-length 60 --depth "
                  "60 --quiet --force -o %s >/dev/null",
                  test.data),
        0);
    fm_build_report nine = build(&test);
    assert_int_equal(nine.n_reused + nine.n_built, 9);
    assert_true(nine.n_reused >= 3); /* a structure may have gained a chain */
    assert_int_equal(nine.generation, 2);
    assert_other_content(four, nine);
    /* A new row in one alignment: one MSA is made again, and again when the row is removed. */
    assert_int_equal(run_shell("cd %s/alignments && set -- * && cp $1/mgnify_hits.a3m %s/kept && "
                               "sed -n 1,2p $1/mgnify_hits.a3m | tr A-Y C | sed 's/^>.*/>new/' >> "
                               "$1/mgnify_hits.a3m",
                               test.data, test.folder),
                     0);
    fm_build_report changed = build(&test);
    assert_int_equal(changed.n_built, 1);
    assert_int_equal(changed.n_reused, 8);
    assert_other_content(changed, nine);
    assert_int_equal(run_shell("cd %s/alignments && set -- * && cp %s/kept $1/mgnify_hits.a3m",
                               test.data, test.folder),
                     0);
    fm_build_report back = build(&test);
    assert_int_equal(back.n_built, 1); /* the generation in between does not name it */
    assert_same_content(back, nine);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

static void test_gzip_is_the_same(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 3);
    fm_build_report plain = build(&test);
    assert_int_equal(run_shell("gzip -r %s", test.data), 0);
    fm_build_report gz = build(&test);
    assert_int_equal(run_shell("cd %s/alignments && for f in */*.a3m.gz; do zcat $f > ${f%%.gz}; "
                               "done",
                               test.data),
                     0);
    fm_build_report both = build(&test);
    assert_same_content(plain, both);
    assert_int_equal(both.n_reused, 3);
    assert_int_equal(gz.n_reused, 3);
    assert_false(gz.published);
    assert_same_content(plain, gz);
    teardown_case(&test);
}

/* Broken alignments, a query that is not the chain's, an empty folder. */
static void break_alignments(cache_case *test) {
    assert_int_equal(
        run_shell("cd %s/alignments && set -- * && printf '>q\\nACD\\n>bad\\nAC\\n' > "
                  "$1/mgnify_hits.a3m && printf '>q\\nACDEFGHIKL\\n' > $2/uniref90_hits.a3m && "
                  "rm $2/bfd* $2/mgnify* && rm -r $3 && mkdir $3 && mkdir none_A && mkdir 'x y_A'",
                  test->data),
        0);
}

static void test_refusals(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    fm_refusals refusals;
    setup_case(&test, 8);
    build(&test);
    break_alignments(&test);
    report = build(&test);
    assert_int_equal(report.n_chain, 5);
    assert_int_equal(report.n_refused, 3);
    assert_int_equal(report.n_refusal, 3);
    assert_non_null(strstr(report.refusal[0], "/mgnify_hits.a3m:"));
    assert_non_null(strstr(report.refusal[1], "/uniref90_hits.a3m"));
    assert_non_null(strstr(report.refusal[2], "found no file, expected an alignment"));
    assert_int_equal(report.n_source_refusal, 2);
    assert_int_equal(fm_refusals_read(test.cache, &test.arena, &refusals, &test.error), FM_OK);
    assert_int_equal(refusals.n, 3);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    /* A truncated structure refuses all its chains. */
    assert_int_equal(run_shell("cd %s/mmcifs && set -- * && shift 3 && head -c 900 $1 > cut && "
                               "mv cut $1",
                               test.data),
                     0);
    report = build(&test);
    assert_true(report.n_refused > 3);
    /* Only who asks for it gets a chain without alignments as a single sequence, and a count. */
    assert_int_equal(build_with(&test, test.data, test.cache,
                                (fm_build_options){.single_sequence = true}, &report),
                     FM_OK);
    assert_true(report.n_without_alignments >= 1);
    /* Nothing left: nothing is published. */
    uint64_t generation = report.generation;
    assert_int_equal(run_shell("cd %s/mmcifs && for f in *; do echo junk > $f; done", test.data),
                     0);
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){0}, &report),
                     FM_ERR_DATA);
    assert_int_equal(report.n_chain, 0);
    fm_store *store;
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(fm_store_get_info(store)->generation, generation);
    fm_store_close(store);
    teardown_case(&test);
}

static void test_query_of_other_letters(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 2);
    /* Two letters exchanged in the sequence of every alignment's first record. */
    assert_int_equal(run_shell("cd %s/alignments && set -- * && for f in $1/*.a3m; do "
                               "sed -i '2y/ACDEFGHIKLMNPQRSTVWY/CADEFGHIKLMNPQRSTVWY/' $f; done",
                               test.data),
                     0);
    report = build(&test);
    assert_int_equal(report.n_refused, 1);
    assert_non_null(strstr(report.refusal[0], ".a3m:2:"));
    assert_non_null(strstr(report.refusal[0], "query has"));
    /* In one file of several. */
    assert_int_equal(run_shell("cd %s/alignments && set -- * && cp -r $2 %s/kept && "
                               "sed -i '2y/ACDEFGHIKLMNPQRSTVWY/CADEFGHIKLMNPQRSTVWY/' "
                               "$2/mgnify_hits.a3m",
                               test.data, test.folder),
                     0);
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){0}, &report),
                     FM_ERR_DATA);
    assert_int_equal(report.n_refused, 2);
    assert_non_null(strstr(report.refusal[1], "/mgnify_hits.a3m:2:"));
    assert_int_equal(run_shell("cd %s/alignments && set -- * && rm -r $2 && cp -r %s/kept $2",
                               test.data, test.folder),
                     0);
    /* The reference takes alignments as they are. */
    const fm_build_options compat = {.features = {.compat_openfold = true}};
    assert_int_equal(build_with(&test, test.data, test.cache, compat, &report), FM_OK);
    assert_int_equal(report.n_refused, 0);
    teardown_case(&test);
}

static void test_stop_and_continue(void **state) {
    (void)state;
    cache_case test;
    fm_build_report fresh, stopped;
    char cache[200];
    setup_case(&test, 10);
    snprintf(cache, sizeof cache, "%s/fresh", test.folder);
    assert_int_equal(build_with(&test, test.data, cache, (fm_build_options){0}, &fresh), FM_OK);
    volatile sig_atomic_t stop = 1;
    const fm_build_options stopping = {.stop = &stop, .shard_bytes = 4096};
    /* The flag is checked a few times per second, so some chains may be done. */
    fm_status status = build_with(&test, test.data, test.cache, stopping, &stopped);
    assert_int_equal(status, FM_ERR_CANCELLED);
    assert_int_equal(stopped.generation, 0);
    fm_build_report end = build(&test);
    assert_same_content(end, fresh);
    assert_int_equal(end.n_chain, 10);
    assert_int_equal(end.n_reused, stopped.n_built);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

/* A build uses sealed shards without a generation, as a kill between the two leaves them. */
static void test_orphans(void **state) {
    (void)state;
    cache_case test;
    setup_case(&test, 6);
    fm_build_report first = build(&test);
    assert_int_equal(run_shell("rm -r %s/CURRENT %s/generations; echo x > %s/build/shard.tmp; "
                               "echo junk > %s/shards/%064d.lmdb",
                               test.cache, test.cache, test.cache, test.cache, 0),
                     0);
    fm_build_report again = build(&test);
    assert_int_equal(again.n_reused, 6);
    assert_int_equal(again.written_bytes, 0);
    assert_same_content(first, again);
    /* Without CURRENT, existing generations stay, and a new one is made of the shards. */
    assert_int_equal(run_shell("rm %s/CURRENT; echo x > %s/mine.tmp", test.cache, test.cache), 0);
    again = build(&test);
    assert_int_equal(again.generation, 2);
    assert_same_content(first, again);
    assert_int_equal(run_shell("test -e %s/mine.tmp", test.cache), 0);
    /* The parts of a lost shard are made again. */
    assert_int_equal(run_shell("rm %s/shards/*", test.cache), 0);
    fm_store *store;
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_ERR_CORRUPT);
    fm_build_report mended = build(&test);
    assert_int_equal(mended.n_built, 6);
    assert_same_content(first, mended);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

static void test_single_sequences(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 6);
    assert_int_equal(run_shell("rm -r %s/alignments", test.data), 0);
    assert_int_equal(build_with(&test, test.data, test.cache, (fm_build_options){0}, &report),
                     FM_ERR_DATA);
    const fm_build_options single = {.single_sequence = true};
    assert_int_equal(build_with(&test, test.data, test.cache, single, &report), FM_OK);
    assert_int_equal(report.n_refused, 0);
    assert_true(report.n_chain >= 6);
    uint32_t n = report.n_chain;
    assert_int_equal(build_with(&test, test.data, test.cache, single, &report), FM_OK);
    assert_int_equal(report.n_reused, n);
    assert_false(report.published);
    teardown_case(&test);
}

/* Counts the chains of `id` whose MSA is the same blob as that of the chain with the same letter in
 * another entry. */
static uint32_t count_shared(const fm_store *store, const char *id) {
    uint32_t n_shared = 0, n = fm_store_get_info(store)->n_chain;
    for (uint32_t i = 0; i < n; i++) {
        const char *name = fm_store_chain_name(store, i);
        bool found = false;
        for (uint32_t j = 0; j < n && strncmp(name, id, strlen(id)) == 0; j++) {
            fm_store_part a, b;
            found |= j != i && fm_store_get_part(store, i, FM_PART_MSA, &a) &&
                     fm_store_get_part(store, j, FM_PART_MSA, &b) && a.blob == b.blob &&
                     strcmp(strchr(fm_store_chain_name(store, j), '_'), strchr(name, '_')) == 0;
        }
        n_shared += found;
    }
    return n_shared;
}

/* One chain under two names, as in copies of a crystal: its MSA is stored once. */
static void test_parts_shared_by_content(void **state) {
    (void)state;
    cache_case test;
    fm_store *store;
    setup_case(&test, 3);
    fm_build_report three = build(&test);
    assert_int_equal(
        run_shell("cd %s && a=$(ls alignments | head -1) && id=${a%%%%_*} && "
                  "sed s/$id/9zzz/ mmcifs/$id.cif > mmcifs/9zzz.cif && "
                  "for f in alignments/${id}_*; do cp -r $f alignments/9zzz_${f##*_}; done",
                  test.data),
        0);
    fm_build_report more = build(&test), fresh;
    assert_true(more.n_chain > three.n_chain);
    assert_int_equal(more.n_refused, 0);
    assert_int_equal(more.stored_bytes, three.stored_bytes);
    assert_int_equal(run_shell("rm -r %s", test.cache), 0);
    /* Also when several workers make it at the same time. */
    const fm_build_options four = {.n_job = 4};
    assert_int_equal(build_with(&test, test.data, test.cache, four, &fresh), FM_OK);
    assert_int_equal(fresh.stored_bytes, three.stored_bytes);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(count_shared(store, "9zzz_"), more.n_chain - three.n_chain);
    fm_store_close(store);
    teardown_case(&test);
}

/* Only one build at a time in a cache: a second one, begun while the first runs, is refused. */
static void build_within(void *context, const fm_build_progress *progress) {
    (void)progress;
    cache_case *test = context;
    fm_build_report report;
    cache_case other = *test;
    assert_int_equal(fm_arena_init(&other.arena, (size_t)1 << 28, NULL), FM_OK);
    assert_int_equal(build_with(&other, test->data, test->cache, (fm_build_options){0}, &report),
                     FM_ERR_EXISTS);
    fm_arena_fini(&other.arena);
}

static void test_lock(void **state) {
    (void)state;
    cache_case test;
    fm_build_report report;
    setup_case(&test, 2);
    const fm_build_options options = {.progress = build_within, .progress_context = &test};
    assert_int_equal(build_with(&test, test.data, test.cache, options, &report), FM_OK);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_jobs_shards_and_order),
        cmocka_unit_test(test_nothing_new),
        cmocka_unit_test(test_growth_and_change),
        cmocka_unit_test(test_gzip_is_the_same),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_query_of_other_letters),
        cmocka_unit_test(test_stop_and_continue),
        cmocka_unit_test(test_orphans),
        cmocka_unit_test(test_single_sequences),
        cmocka_unit_test(test_parts_shared_by_content),
        cmocka_unit_test(test_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
