/* `foldmill synth` as a user runs it: exit codes, the tree it writes, a larger dataset holding the
 * smaller one, and its structures read by gemmi where that is installed. */
#include "tests/testing/testing.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static char folder[512];

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* Runs a shell command; `%s` stands for the test's folder, as often as it occurs. */
static int run(const char *command) {
    char text[4096];
    size_t at = 0;
    for (const char *c = command; *c; c++) {
        bool here = c[0] == '%' && c[1] == 's';
        int n = snprintf(text + at, sizeof text - at, "%.*s", here ? 512 : 1, here ? folder : c);
        at += (size_t)n;
        assert_true(at < sizeof text);
        c += here;
    }
    int status = system(text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void wrong_usage_is_reported_with_exit_code_2(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --help | grep -q -- --chains"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth 2>/dev/null"), 2);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth -o %s/x --chains 0 2>/dev/null"), 2);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth -o %s/x --min-length 90 --max-length 80 2>%s/err"), 2);
    assert_int_equal(run("grep -q 'min-length: found 90, expected at most' %s/err"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth -o %s/x --min-depth 5000 2>%s/err"), 2);
    assert_int_equal(run("grep -q 'min-depth: found 5000, expected at most --depth 2000' %s/err"),
                     0);
    assert_int_equal(run("test ! -e %s/x"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth -o %s/err/x --chains 1 2>/dev/null"), 1);
}

static void a_folder_of_others_is_left_alone(void **state) {
    (void)state;
    assert_int_equal(run("mkdir %s/full && echo mine > %s/full/mine"), 0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 1 -o %s/full 2>/dev/null"), 2);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 1 -o %s/full --force 2>%s/err"), 1);
    assert_int_equal(run("grep -q 'has other files (mine) and no synth.json' %s/err"), 0);
    assert_int_equal(run("test $(ls %s/full) = mine && grep -q mine %s/full/mine"), 0);
    /* A structure of the Protein Data Bank may have the name of a drawn one. */
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 1 -o %s/own >/dev/null && "
                         "mkdir -p %s/real/mmcifs && for f in %s/own/mmcifs/*; do "
                         "echo real > %s/real/mmcifs/${f##*/}; done"),
                     0);
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 1 -o %s/real --force 2>%s/err"), 1);
    assert_int_equal(run("grep -q real %s/real/mmcifs/* && test ! -e %s/real/alignments"), 0);
}

/* Files of two seeds would be a dataset that no options give. */
static void only_a_dataset_of_the_same_options_is_extended(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 2 --depth 30 -o %s/a >/dev/null && "
                         "cp -r %s/a %s/before"),
                     0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --chains 2 --depth 30 --seed 1 --force -o %s/a 2>%s/err"),
        1);
    assert_int_equal(
        run("grep -q 'synth.json: the folder has a dataset of other options' %s/err && "
            "diff -r %s/a %s/before"),
        0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --chains 4 --depth 30 --force -o %s/a >/dev/null && "
            "\"$FM_BIN\"/foldmill synth --chains 4 --depth 30 -o %s/whole >/dev/null && "
            "diff -r %s/a %s/whole"),
        0);
}

/* A limit on the size of files simulates a full disk. */
static void a_partly_written_file_is_removed(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/whole >/dev/null"),
                     0);
    assert_int_equal(run("(ulimit -f 60; trap '' XFSZ; "
                         "exec \"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/cut 2>%s/err)"),
                     1);
    assert_int_equal(run("grep -q 'cannot write: File too large' %s/err"), 0);
    assert_int_equal(
        run("cd %s/cut && test $(find . -type f | wc -l) -gt 0 && "
            "find . -type f -exec cmp {} ../whole/{} \\; 2>&1 | grep . >&2; test $? = 1"),
        0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/cut 2>%s/err >/dev/null"), 2);
    assert_int_equal(run("grep -q -- '--force, which completes a stopped synth' %s/err"), 0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/cut --force >/dev/null && "
            "diff -r %s/cut %s/whole"),
        0);
}

/* A process that is killed within a file, here by the signal of the same limit, leaves no file cut
 * short under its name, and --force removes what is left beside it. */
static void a_kill_cuts_no_file_short(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/whole >/dev/null"),
                     0);
    assert_int_equal(run("(ulimit -c 0; ulimit -f 60; "
                         "exec \"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/cut) 2>%s/err; "
                         "test $? -gt 128"),
                     0);
    assert_int_equal(run("find %s/cut -type f -name '*.tmp.*' | grep -q ."), 0);
    assert_int_equal(run("cd %s/cut && for f in $(find . -type f ! -name '*.tmp.*'); do "
                         "cmp $f ../whole/$f || exit 1; done"),
                     0);
    assert_int_equal(
        run("\"$FM_BIN\"/foldmill synth --seed 6 --chains 4 -o %s/cut --force >/dev/null && "
            "diff -r %s/cut %s/whole"),
        0);
}

static void a_larger_dataset_holds_the_smaller_one(void **state) {
    (void)state;
    const char *command =
        "\"$FM_BIN\"/foldmill synth --seed 5 --depth 50 --chains 4 -o %s/small && "
        "\"$FM_BIN\"/foldmill synth --seed 5 --depth 50 --chains 9 -o %s/large && "
        "\"$FM_BIN\"/foldmill synth --seed 5 --depth 50 --chains 9 -o %s/again";
    assert_int_equal(run(command), 0);
    assert_int_equal(run("test $(ls %s/small/alignments | wc -l) = 4"), 0);
    assert_int_equal(run("test $(ls %s/large/alignments | wc -l) = 9"), 0);
    assert_int_equal(run("test -z \"$(diff -r %s/small %s/large | grep -v '^Only in %s/large')\""),
                     0);
    assert_int_equal(run("diff -r %s/large %s/again"), 0);
    assert_int_equal(run("cd %s/large/alignments && for d in *; do "
                         "test -s $d/bfd_uniclust_hits.a3m -a -s $d/mgnify_hits.a3m -a "
                         "-s $d/uniref90_hits.a3m -a -s $d/pdb70_hits.hhr -a "
                         "-s ../mmcifs/${d%_*}.cif || exit 1; done"),
                     0);
}

static void stockholm_files_are_written_on_request(void **state) {
    (void)state;
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 2 --stockholm --depth 30 -o %s/sto"),
                     0);
    assert_int_equal(run("cd %s/sto/alignments && for d in *; do "
                         "head -1 $d/mgnify_hits.sto | grep -q '^# STOCKHOLM 1.0' && "
                         "tail -1 $d/uniref90_hits.sto | grep -q '^//' && "
                         "test -s $d/bfd_uniclust_hits.a3m || exit 1; done"),
                     0);
}

static void gemmi_reads_the_structures(void **state) {
    (void)state;
    if (run("command -v gemmi >/dev/null") != 0) {
        fprintf(stderr, "skipped: gemmi is not installed\n");
        skip();
    }
    assert_int_equal(run("\"$FM_BIN\"/foldmill synth --chains 16 --seed 9 --depth 20 -o %s/g"), 0);
    assert_int_equal(run("for f in %s/g/mmcifs/*.cif; do gemmi validate $f && "
                         "gemmi convert $f %s/out.pdb || exit 1; done"),
                     0);
    /* The sequence gemmi reads from the entities is the alignments' query. */
    assert_int_equal(
        run("cd %s/g/alignments && for d in *_A; do q=$(sed -n 2p $d/bfd_uniclust_hits.a3m); "
            "awk '/^_entity_poly.pdbx_strand_id/{on=1} on' ../mmcifs/${d%_*}.cif | tr -d '\\n;' | "
            "grep -q \"$q\" || exit 1; done"),
        0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(wrong_usage_is_reported_with_exit_code_2, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(a_folder_of_others_is_left_alone, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(only_a_dataset_of_the_same_options_is_extended, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(a_partly_written_file_is_removed, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_kill_cuts_no_file_short, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_larger_dataset_holds_the_smaller_one, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(stockholm_files_are_written_on_request, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(gemmi_reads_the_structures, make_folder, drop_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
