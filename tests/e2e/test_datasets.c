/* foldmill build with several datasets, as a user runs it. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("$FOLDMILL synth --chains 6 --seed 6 --max-length 60 --depth 40 --quiet -o a "
               "> /dev/null && $FOLDMILL synth --chains 5 --seed 7 --max-length 60 --depth 40 "
               "--quiet -o b > /dev/null");
}

static void several(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build --dataset pdb=a --dataset afdb:predicted=b --dry-run "
                         "> out && test $(grep -c '^chain pdb:' out) = 6 && "
                         "test $(grep -c '^chain afdb:' out) = 5 && "
                         "grep -q '^dataset afdb: predictions' out && "
                         "grep -q '^dataset pdb: experimental structures' out"),
                     0);
    assert_int_equal(run("$FOLDMILL build --dataset pdb=a --dataset afdb:predicted=b --cache c "
                         "--report report.json 2> err > /dev/null && "
                         "grep -q '\"chains\": 11' report.json && "
                         "grep -q '\"dataset\": \"pdb=a afdb=b\"' report.json && "
                         "grep -q '^dataset afdb: predictions' err"),
                     0);
    assert_int_equal(run("chain=afdb:$(ls b/alignments | head -1) && "
                         "$FOLDMILL inspect --cache c --chain $chain > out && "
                         "$FOLDMILL verify --cache c > out"),
                     0);
    assert_int_equal(run("$FOLDMILL snapshot create one --cache c --dataset pdb > out && "
                         "grep -q '^chains    6,' out && "
                         "grep -q '^excluded  5 of another dataset' out && "
                         "$FOLDMILL snapshot create two --cache c --no-predicted > out && "
                         "grep -q '^excluded  5 predicted' out && "
                         "cmp c/snapshots/one c/snapshots/two"),
                     0);
    /* A bare name is that chain of every dataset; 9a14_A is in both. */
    assert_int_equal(run("echo 9a14_A > few && "
                         "$FOLDMILL snapshot create few --cache c --chains few > out && "
                         "grep -q '^chains    2,' out && ! grep -q '^unknown' out && "
                         "echo afdb:9a14_A nobody > few && "
                         "$FOLDMILL snapshot create fewer --cache c --chains few > out && "
                         "grep -q '^chains    1,' out && grep -q '^unknown   1 ' out"),
                     0);
}

/* A dry run reports the needed space, and a build checks it before it writes anything. */
static void room(void **state) {
    (void)state;
    assert_int_equal(
        run("$FOLDMILL build a --dry-run --cache c > out && "
            "grep -q '^space about 0.[0-9] MB for 6 of 6 chains.* GB are free in c' out "
            "&& test ! -e c"),
        0);
    assert_int_equal(run("$FOLDMILL build a --dry-run > out && grep -q '^space about' out && "
                         "! grep -q 'are free' out"),
                     0);
    assert_int_equal(run("$FOLDMILL build a --cache c 2> err > /dev/null && "
                         "grep -q '^space about' err && "
                         "$FOLDMILL build a --cache c --no-space-check -q 2> err > /dev/null && "
                         "test ! -s err && $FOLDMILL build a --dry-run --cache c > out && "
                         "grep -q '^space about 0.0 MB for 0 of 6 chains' out"),
                     0);
}

/* Lists are found, and said. */
static void lists(void **state) {
    (void)state;
    assert_int_equal(run("mkdir a/data_caches && echo '{\"9aaa\": {\"release_date\": "
                         "\"2001-01-01\"}}' > a/data_caches/mmcif_cache.json && "
                         "echo '{\"9aaa_A\": {\"cluster_size\": 2}}' > chains.json && "
                         "echo 'OBSLTE    31-JUL-94 116L     216L' > a/obsolete.dat && "
                         "$FOLDMILL build a --dry-run --chain-data chains.json > out && "
                         "grep -qx 'dates a/data_caches/mmcif_cache.json: 1 id' out && "
                         "grep -qx 'obsolete a/obsolete.dat: 1 id' out && "
                         "grep -qx 'chain data chains.json: 1 chain' out"),
                     0);
    assert_int_equal(run("echo '{\"a\": ' > chains.json && "
                         "$FOLDMILL build a --dry-run --chain-data chains.json > out 2> err"),
                     1);
    assert_int_equal(run("grep -q 'chains.json:2:1: ' err"), 0);
}

static void usage(void **state) {
    (void)state;
    static const char *const wrong[] = {
        "",
        "a --dataset pdb=b",
        "--dataset pdb",
        "--dataset pdb=",
        "--dataset =a",
        "--dataset pdb:strange=a",
        "--dataset 'p b=a'",
        "--dataset pdb=a --dataset pdb=b",
        "--dataset pdb=a --predicted",
        "--dataset pdb=a --structures a/mmcifs",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char command[256];
        snprintf(command, sizeof command, "$FOLDMILL build %s --cache x 2> err > /dev/null",
                 wrong[i]);
        int code = run(command);
        if (code != 2 && code != 1) fail_msg("%s: %d", wrong[i], code);
        assert_int_equal(run("test -s err && test ! -e x/CURRENT"), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(several, set_up, tear_down),
        cmocka_unit_test_setup_teardown(room, set_up, tear_down),
        cmocka_unit_test_setup_teardown(lists, set_up, tear_down),
        cmocka_unit_test_setup_teardown(usage, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
