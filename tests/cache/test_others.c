/* test_others.c: a build or merge into a cache that holds other chains never drops them
 * silently. */
#include "tests/cache/cache_case.h"

/* Two datasets in one folder: data (from setup_case) and other, without a chain in common. */
static void setup(cache_case *test, char other[180]) {
    setup_case(test, 4);
    snprintf(other, 180, "%s/other", test->folder);
    assert_int_equal(
        run_shell("$FM_BIN/foldmill synth --chains 4 --seed 77 --max-length 50 "
                  "--depth 40 --quiet -o %s >/dev/null && "
                  "for f in %s/alignments/*; do test -e %s/alignments/$(basename $f) && "
                  "rm -r $f; done; ls %s/alignments | wc -l | grep -q '^3$'",
                  other, other, test->data, other),
        0);
}

static fm_status build_named(cache_case *test, const char *const dataset[2],
                             fm_build_options options, fm_build_report *report) {
    fm_source source;
    const fm_source_options from = {.dataset = dataset[1], .name = dataset[0]};
    options.cache = test->cache;
    options.n_job = 2;
    assert_int_equal(fm_source_scan(&from, 1, &test->arena, &source, &test->error), FM_OK);
    fm_status status = fm_build_run(&source, &options, &test->arena, report, &test->error);
    if (!status) assert_int_equal(verify(test, test->cache), FM_OK);
    return status;
}

static const fm_build_options check, add = {.others = FM_BUILD_OTHERS_ADD},
                                     replace = {.others = FM_BUILD_OTHERS_REPLACE};

#define assert_counts(report, chains, added, kept, left)                                           \
    do {                                                                                           \
        assert_int_equal((report).n_chain, chains);                                                \
        assert_int_equal((report).n_added, added);                                                 \
        assert_int_equal((report).n_kept, kept);                                                   \
        assert_int_equal((report).n_left, left);                                                   \
    } while (0)

static void named_datasets_stand_beside_each_other(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    fm_build_report report, both;
    setup(&test, other);
    const char *const a[] = {"a", test.data}, *const b[] = {"b", other};
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_counts(report, 4, 4, 0, 0);
    assert_int_equal(build_named(&test, b, check, &both), FM_OK);
    assert_counts(both, 7, 3, 4, 0);
    /* Nothing is made again, whichever of them is built. */
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_counts(report, 7, 0, 3, 0);
    assert_int_equal(report.n_reused, 4);
    assert_false(report.published);
    assert_same_content(report, both);
    /* Another folder of the same name, which lacks the chains. */
    const char *const wrong[] = {"a", other};
    assert_int_equal(build_named(&test, wrong, check, &report), FM_ERR_EXISTS);
    assert_non_null(strstr(test.error.message, "--add"));
    assert_non_null(strstr(test.error.message, "--replace"));
    assert_non_null(strstr(test.error.message, test.data));
    assert_int_equal(build_named(&test, wrong, replace, &report), FM_OK);
    assert_counts(report, 6, 3, 3, 4);
    assert_int_equal(build_named(&test, a, add, &report), FM_OK);
    assert_counts(report, 10, 4, 6, 0);
    teardown_case(&test);
}

static void an_unnamed_dataset_is_the_same_or_refused(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    fm_build_report first, report;
    setup(&test, other);
    const char *const a[] = {NULL, test.data}, *const b[] = {NULL, other};
    assert_int_equal(build_named(&test, a, check, &first), FM_OK);
    assert_int_equal(build_named(&test, b, check, &report), FM_ERR_EXISTS);
    assert_non_null(strstr(test.error.message, "--add keeps them beside the new ones, --replace"));
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_false(report.published);
    assert_int_equal(build_named(&test, b, add, &report), FM_OK);
    assert_counts(report, 7, 3, 4, 0);
    /* The cache is of both now: neither drops the other. */
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_counts(report, 7, 0, 3, 0);
    assert_int_equal(build_named(&test, a, replace, &report), FM_OK);
    assert_counts(report, 4, 0, 0, 3);
    assert_same_content(report, first);
    /* The dataset may move, and lose chains where it is. */
    assert_int_equal(run_shell("mv %s %s-moved", test.data, test.data), 0);
    char moved[200];
    snprintf(moved, sizeof moved, "%s-moved", test.data);
    const char *const c[] = {NULL, moved};
    assert_int_equal(build_named(&test, c, check, &report), FM_OK);
    assert_counts(report, 4, 0, 0, 0);
    assert_false(report.is_inferred);
    assert_int_equal(run_shell("cd %s/alignments && rm -r $(ls | head -1)", moved), 0);
    assert_int_equal(build_named(&test, c, check, &report), FM_OK);
    assert_counts(report, 3, 0, 0, 1);
    teardown_case(&test);
}

/* Named datasets stay beside one without a name, which only --replace ends. */
static void with_and_without_names(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    fm_build_report report;
    setup(&test, other);
    const char *const a[] = {"a", test.data}, *const b[] = {NULL, other};
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_int_equal(build_named(&test, b, check, &report), FM_ERR_EXISTS);
    assert_int_equal(build_named(&test, b, add, &report), FM_OK);
    assert_counts(report, 7, 3, 4, 0);
    assert_int_equal(build_named(&test, b, check, &report), FM_OK);
    assert_counts(report, 7, 0, 4, 0);
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_counts(report, 7, 0, 3, 0);
    assert_int_equal(build_named(&test, b, replace, &report), FM_OK);
    assert_counts(report, 3, 0, 0, 4);
    teardown_case(&test);
}

/* A refused chain of another dataset stays refused; its reason is not lost. */
static void refusals_stay(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    fm_build_report report;
    fm_store *store;
    setup(&test, other);
    assert_int_equal(run_shell("cd %s/alignments && for f in $(ls | head -1)/*.a3m; do "
                               "echo broken > $f; done",
                               test.data),
                     0);
    const char *const a[] = {"a", test.data}, *const b[] = {"b", other};
    assert_int_equal(build_named(&test, a, check, &report), FM_OK);
    assert_int_equal(report.n_refused, 1);
    assert_int_equal(build_named(&test, b, check, &report), FM_OK);
    assert_int_equal(report.n_refused, 0);
    assert_int_equal(fm_store_open(test.cache, &store, &test.error), FM_OK);
    assert_int_equal(fm_store_get_info(store)->n_refused, 1);
    fm_store_close(store);
    teardown_case(&test);
}

/* What the user sees; a cache of an older foldmill, which records no dataset, is inferred. */
static void the_command_says_it(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    setup(&test, other);
    assert_int_equal(run_shell("cd %s && F=\"$FM_BIN/foldmill build\" && "
                               "$F data --cache c -q > /dev/null && "
                               "! $F other --cache c -q 2> err && grep -q -- '--replace' err && "
                               "! $F other --cache c -n > /dev/null 2> err && "
                               "grep -q -- '--add' err && "
                               "$F other --cache c -q --add > out && "
                               "grep -q '3 chains added, 4 of other datasets kept, 0 left' out && "
                               "$F data --cache c -q --replace --json > out && "
                               "grep -q '\"left\": *3' out",
                               test.folder),
                     0);
    assert_int_equal(run_shell("cd %s && $FM_BIN/foldmill build data --cache c --add --replace "
                               "2> err; test $? = 2",
                               test.folder),
                     0);
    /* A merge records no dataset, as an older foldmill. */
    assert_int_equal(
        run_shell("cd %s && F=\"$FM_BIN/foldmill\" && "
                  "$F build data --cache w -q --catalogue jobs > /dev/null && "
                  "$F merge --catalogue jobs --cache m > /dev/null && "
                  "! $F build other --cache m -q 2> err && grep -q -- --replace err && "
                  "(cd data/alignments && rm -r $(ls | head -1)) && "
                  "$F build data --cache m -q > out && "
                  "grep -q 'noted .*does not record' out && "
                  "grep -q ' 1 left that' out && $F build data --cache m -q > out && "
                  "! grep -q 'does not record' out",
                  test.folder),
        0);
    teardown_case(&test);
}

/* A merge has the rules of a build. The job of every case is made of data, or of a part of it. */
static void a_merge_drops_nothing_silently(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    setup(&test, other);
    const char *const jobs = "cd %s && F=\"$FM_BIN/foldmill\" && C=\"--catalogue jobs\" && ";
    char begin[400];
    snprintf(begin, sizeof begin, jobs, test.folder);
    /* Of another dataset without a name: refused before a shard is taken. */
    assert_int_equal(
        run_shell("%s $F build data --cache w -q $C > /dev/null && "
                  "$F build other --cache m -q > /dev/null && ls m/shards > before && "
                  "{ $F merge $C --cache m 2> err; test $? = 1; } && "
                  "grep -q '3 chains of .*/other, and 3 of them are not in this job; --add' err && "
                  "grep -q -- '--replace leaves them out' err && ls m/shards | cmp - before && "
                  "{ $F merge $C --cache m --add --replace 2> /dev/null; test $? = 2; }",
                  begin),
        0);
    assert_int_equal(
        run_shell("%s cp -r m r && $F merge $C --cache m --add > out && "
                  "grep -q '4 chains added, 3 of other datasets kept, 0 left' out && "
                  "$F verify --cache m > /dev/null && $F merge $C --cache m --add > out && "
                  "grep -q 'as before' out && $F build other --cache m --add -q > out && "
                  "grep -q '0 built, 3 reused' out && grep -q 'generation 2 with 7' out && "
                  "$F merge $C --cache r --replace --json > out && "
                  "grep -q '\"added\": *4' out && grep -q '\"left\": *3' out",
                  begin),
        0);
    /* Datasets with names stand beside each other. */
    assert_int_equal(
        run_shell("%s $F build --dataset b=other --cache n -q > /dev/null && "
                  "$F build --dataset a=data --cache v -q $C --job named > /dev/null && "
                  "$F merge $C --job named --cache n > out && "
                  "grep -q '4 chains added, 3 of other datasets kept, 0 left' out && "
                  "$F verify --cache n > /dev/null && "
                  "$F build --dataset b=other --cache n -q > out && "
                  "grep -q '0 built, 3 reused' out && grep -q 'generation 2 with 7' out",
                  begin),
        0);
    /* The dataset that the cache was built from, and of which a chain has left. */
    assert_int_equal(
        run_shell("%s $F build data --cache s -q > /dev/null && cp -r data less && "
                  "(cd less/alignments && rm -r $(ls | head -1)) && "
                  "$F build less --cache u -q $C --job less > /dev/null && "
                  "$F merge $C --job less --cache s > out && "
                  "grep -q '0 chains added, 0 of other datasets kept, 1 left that the job' out && "
                  "$F build data --cache s -q > out && grep -q 'with 4 chains' out",
                  begin),
        0);
    teardown_case(&test);
}

/* Items that are whole structures: their chains are known by the structure's name. */
static void a_merge_knows_the_chains_of_structures(void **state) {
    (void)state;
    cache_case test;
    char other[180];
    setup(&test, other);
    assert_int_equal(
        run_shell("cd %s && F=\"$FM_BIN/foldmill\" && C=\"--catalogue jobs\" && "
                  "rm -r data/alignments/* && "
                  "$F build data --cache w -q --single-sequence $C > /dev/null && "
                  "$F build data --cache m -q --single-sequence > /dev/null && "
                  "$F merge $C --cache m > out && grep -q 'generation 2 with 4 ' out && "
                  "(cd other/mmcifs && for f in *; do mv $f 8${f#?}; done) && "
                  "$F build other --cache r -q --single-sequence > /dev/null && "
                  "{ $F merge $C --cache r 2> err; test $? = 1; } && grep -q -- --add err",
                  test.folder),
        0);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(named_datasets_stand_beside_each_other),
        cmocka_unit_test(an_unnamed_dataset_is_the_same_or_refused),
        cmocka_unit_test(with_and_without_names),
        cmocka_unit_test(refusals_stay),
        cmocka_unit_test(the_command_says_it),
        cmocka_unit_test(a_merge_drops_nothing_silently),
        cmocka_unit_test(a_merge_knows_the_chains_of_structures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
