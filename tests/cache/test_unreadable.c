/* test_unreadable.c: entries of a dataset that cannot be read stop the one thing that needs
 * them: a chain is refused with the reason, a list or a folder of the layout ends the build,
 * and what nobody needs is reported. Nothing counts as "not there", and no pipe is opened. */
#include "tests/cache/cache_case.h"

#include "cache/snapshot/gc.h"
#include "proto/base/file.h"

#include <unistd.h>

static char first[64]; /* the first chain of the dataset */

static void setup(cache_case *test) {
    setup_case(test, 4);
    assert_int_equal(run_shell("ls %s/alignments | head -1 > %s/first", test->data, test->folder),
                     0);
    char path[256];
    fm_bytes text;
    snprintf(path, sizeof path, "%s/first", test->folder);
    assert_int_equal(fm_file_read(&test->arena, path, sizeof first - 1, &text, NULL), FM_OK);
    snprintf(first, sizeof first, "%.*s", (int)text.size - 1, (const char *)text.data);
}

/* Builds; the first chain alone is refused, for a reason with this text. --dry-run counts it,
 * too. */
static void expect_one_refused(cache_case *test, const char *reason) {
    fm_build_report report = build(test);
    assert_int_equal(report.n_refused, 1);
    assert_int_equal(report.refused[FM_ERR_IO], 1);
    assert_int_equal(report.n_chain, 3);
    assert_int_equal(strncmp(report.refusal[0], first, strlen(first)), 0);
    if (!strstr(report.refusal[0], reason)) fail_msg("%s", report.refusal[0]);
    assert_int_equal(run_shell("timeout 20 $FM_BIN/foldmill build %s --dry-run > %s/plan",
                               test->data, test->folder),
                     0);
    assert_int_equal(run_shell("grep -q 'chain %s.*refused: .*%s' %s/plan && "
                               "grep -q 'total 1 chain and ' %s/plan",
                               first, reason, test->folder, test->folder),
                     0);
}

static void alignment_files(void **state) {
    (void)state;
    static const struct {
        const char *make, *reason;
    } cases[] = {
        {"ln -s nowhere", "a symbolic link that leads nowhere"},
        {"mkdir", "not a regular file but a folder"},
        {"mkfifo", "not a regular file but a device"},
        {"ln -s /dev/zero", "not a regular file but a device"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cache_case test;
        setup(&test);
        assert_int_equal(
            run_shell("%s %s/alignments/%s/extra.a3m", cases[i].make, test.data, first), 0);
        expect_one_refused(&test, cases[i].reason);
        assert_int_equal(run_shell("rm -rf %s/alignments/%s/extra.a3m", test.data, first), 0);
        assert_int_equal(build(&test).n_refused, 0);
        /* The same as a file of template hits, and one that is not wanted. */
        assert_int_equal(run_shell("%s %s/alignments/%s/pdb_hits.sto && %s %s/alignments/%s/notes",
                                   cases[i].make, test.data, first, cases[i].make, test.data,
                                   first),
                         0);
        expect_one_refused(&test, cases[i].reason);
        teardown_case(&test);
    }
}

/* Folders of chains, of OpenProteinSet's a3m/, and files of a flat folder. */
static void folders_of_chains(void **state) {
    (void)state;
    cache_case test;
    setup(&test);
    assert_int_equal(run_shell("cd %s/alignments && mv %s ../kept && ln -s gone %s && "
                               "ln -s gone README",
                               test.data, first, first),
                     0);
    expect_one_refused(&test, "a symbolic link that leads nowhere");
    fm_build_report report = build(&test);
    assert_int_equal(report.n_source_refusal, 1);
    assert_int_equal(report.source_refusal[0].reason, FM_SOURCE_UNREADABLE);
    assert_string_equal(report.source_refusal[0].name, "README");
    assert_int_equal(run_shell("cd %s/alignments && rm %s README && mv ../kept %s && "
                               "ln -s gone %s/a3m",
                               test.data, first, first, first),
                     0);
    expect_one_refused(&test, "a symbolic link that leads nowhere");
    assert_int_equal(
        run_shell("cd %s/alignments && rm -r %s && ln -s gone %s.a3m", test.data, first, first), 0);
    expect_one_refused(&test, "a symbolic link that leads nowhere");
    teardown_case(&test);
}

static void structures(void **state) {
    (void)state;
    static const char *const makes[] = {"ln -s nowhere", "mkdir", "mkfifo"};
    for (size_t i = 0; i < 3; i++) {
        cache_case test;
        fm_build_report report;
        setup(&test);
        assert_int_equal(run_shell("cd %s/mmcifs && rm %.4s.cif && %s %.4s.cif && "
                                   "mkfifo unrelated && ln -s gone ab",
                                   test.data, first, makes[i], first),
                         0);
        report = build(&test);
        assert_true(report.n_refused >= 1); /* the entry may have several chains */
        assert_int_equal(report.refused[FM_ERR_IO], report.n_refused);
        assert_int_equal(report.n_chain + report.n_refused, 4);
        uint32_t n = 0;
        for (uint32_t k = 0; k < report.n_source_refusal; k++)
            n += report.source_refusal[k].reason == FM_SOURCE_UNREADABLE;
        assert_int_equal(n, 2);
        assert_int_equal(run_shell("timeout 20 $FM_BIN/foldmill build %s --dry-run | "
                                   "grep -q 'total %u chains* and 2 inputs refused'",
                                   test.data, report.n_refused),
                         0);
        teardown_case(&test);
    }
}

/* What the whole dataset needs ends the scan, with its path. */
static void what_the_scan_needs(void **state) {
    (void)state;
    static const char *const names[] = {
        "mmcifs",           "alignments", "chain_data_cache.json",
        "obsolete.dat",     "pdb_mmcif",  "duplicate_pdb_chains.txt",
        "mmcif_cache.json", "uniclust30"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        cache_case test;
        fm_source source;
        setup(&test);
        if (strcmp(names[i], "pdb_mmcif") == 0) {
            assert_int_equal(run_shell("mv %s/mmcifs %s/elsewhere", test.data, test.data), 0);
        }
        assert_int_equal(
            run_shell("cd %s && rm -rf %s && ln -s gone %s", test.data, names[i], names[i]), 0);
        fm_status status = fm_source_scan(&(fm_source_options){.dataset = test.data}, 1,
                                          &test.arena, &source, &test.error);
        if (status != FM_ERR_IO) fail_msg("%s: status %d", names[i], (int)status);
        assert_non_null(strstr(test.error.message, "a symbolic link that leads nowhere"));
        assert_non_null(strstr(test.error.source, names[i]));
        teardown_case(&test);
    }
}

/* -- gc and lost CURRENT */

static fm_status collect(cache_case *test, fm_gc_report *report) {
    return fm_gc_run(test->cache, &(fm_gc_options){0}, &test->arena, report, &test->error);
}

/* gc believes no list that lacks the generation in force, or a pinned one. */
static void gc_refuses_an_incomplete_list(void **state) {
    (void)state;
    cache_case test;
    fm_gc_report report;
    setup(&test);
    build(&test);
    assert_int_equal(run_shell("cd %s && mkdir pins && ln -s gone pins/mine && "
                               "ls shards > ../shards",
                               test.cache),
                     0);
    assert_int_equal(collect(&test, &report), FM_ERR_IO);
    assert_int_equal(run_shell("cd %s && rm pins/mine && mv generations/00000001.manifest m && "
                               "mkdir generations/00000001.manifest",
                               test.cache),
                     0);
    assert_int_not_equal(collect(&test, &report), FM_OK);
    assert_int_equal(run_shell("cd %s && rmdir generations/00000001.manifest && "
                               "mv m generations/00000001.manifest && ls shards | cmp - ../shards",
                               test.cache),
                     0);
    assert_int_equal(collect(&test, &report), FM_OK);
    assert_int_equal(report.n_generation_kept, 1);
    assert_int_equal(verify(&test, test.cache), FM_OK);
    teardown_case(&test);
}

/* Generations that exist stay as they are, whether CURRENT is lost or was put back. */
static void no_manifest_is_written_over(void **state) {
    (void)state;
    cache_case test;
    setup(&test);
    assert_int_equal(build(&test).generation, 1);
    assert_int_equal(run_shell("rm -r %s/alignments/%s", test.data, first), 0);
    assert_int_equal(build(&test).generation, 2);
    assert_int_equal(run_shell("cd %s && cp -r generations ../before && rm CURRENT", test.cache),
                     0);
    fm_build_report report = build(&test);
    assert_int_equal(report.generation, 3);
    assert_true(report.published);
    assert_int_equal(run_shell("cd %s/generations && for f in ../../before/*; do "
                               "cmp $f $(basename $f) || exit 1; done",
                               test.cache),
                     0);
    assert_int_equal(run_shell("cd %s && echo 1 > CURRENT", test.cache), 0);
    assert_int_equal(build(&test).generation, 4);
    assert_int_equal(run_shell("cd %s/generations && for f in ../../before/*; do "
                               "cmp $f $(basename $f) || exit 1; done",
                               test.cache),
                     0);
    teardown_case(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alignment_files),
        cmocka_unit_test(folders_of_chains),
        cmocka_unit_test(structures),
        cmocka_unit_test(what_the_scan_needs),
        cmocka_unit_test(gc_refuses_an_incomplete_list),
        cmocka_unit_test(no_manifest_is_written_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
