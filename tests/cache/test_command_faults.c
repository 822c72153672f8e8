/* test_command_faults.c: each call of a command fails once (fault_shim.c): build, gc, merge,
 * snapshot and export. After the failure the cache is whole, and the exit code says whether the
 * work was done. The same command, run again, gives the same result as an undisturbed run.
 *
 * A share of the calls is tried; FM_TEST_FAULTS=all tries each. */
#include "tests/cache/cache_case.h"

#include <sys/wait.h>
#include <unistd.h>

enum { STEP = 6, CALLS_MAX = 5000 };

/* One command. The texts are shell commands that run in the folder of the case and work on w/. */
typedef struct command_case {
    const char *prepare; /* makes w/cache and the other inputs; no call fails */
    const char *command; /* the command whose calls fail */
    const char *check;   /* succeeds after any exit: nothing that existed before is lost */
    const char *result;  /* prints what the command made, which is the same after each success */
    bool may_be_partial; /* exit code 3 is accepted: an input that fails is refused */
} command_case;

static char folder[160];
static unsigned step = STEP;

static int run_here(const char *environment, const char *command) {
    char text[4096];
    int n = snprintf(text, sizeof text,
                     "cd '%s' && F=\"$FM_BIN/foldmill\" && export F && %s timeout 60 sh -c '%s'",
                     folder, environment, command);
    assert_true(n > 0 && (size_t)n < sizeof text);
    int status = system(text);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void must_run(const command_case *test, const char *command, unsigned n) {
    int code = run_here("", command);
    if (code == 0) return;
    run_here("", "cat err fired >&2");
    fail_msg("'%s', call %u: '%s' gives %d", test->command, n, command, code);
}

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    const command_case none = {.command = "the preparation"};
    if (getenv("FM_TEST_FAULTS")) step = 1;
    must_run(&none,
             "mkdir w few kept && $F synth --chains 4 --seed 3 --max-length 60 --depth 40 --quiet "
             "-o w/data > /dev/null && cp -r w/data/mmcifs few && mkdir few/alignments && "
             "cp -r $(ls -d w/data/alignments/* | head -2) few/alignments && "
             "$F build few --cache base -q > /dev/null && "
             "$F snapshot create mine --cache base > /dev/null && "
             "$F snapshot pin mine --cache base > /dev/null && cp -r base old && "
             "$F build w/data --cache base -q > /dev/null && "
             "cp -r w/data more && rm -r more/alignments/$(ls more/alignments | head -1) && "
             "$F build more --cache base -q --replace > /dev/null && "
             "$F build w/data --cache worker -q --catalogue jobs > /dev/null",
             0);
    return 0;
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* Lets call n fail; false when the command makes fewer calls. */
static bool disturb(const command_case *test, unsigned n, unsigned *n_failed) {
    char environment[1024], command[1024];
    must_run(test, test->prepare, n);
    snprintf(environment, sizeof environment,
             "rm -f fired; FM_FAULT_AT=%u FM_FAULT_ROOT='%s/w/' FM_FAULT_LOG='%s/fired' "
             "SHIM=\"$FM_BIN/../tests/libfm_fault_shim.so\"",
             n, folder, folder);
    snprintf(command, sizeof command, "export ROOT=%s/w; LD_PRELOAD=$SHIM %s > out 2> err", folder,
             test->command);
    int code = run_here(environment, command);
    if (run_here("", "test -e fired") != 0) {
        assert_int_equal(code, 0);
        return false;
    }
    if (code != 0 && code != 1 && !(code == 3 && test->may_be_partial)) {
        run_here("", "cat err fired >&2");
        fail_msg("'%s', call %u: exit code %d", test->command, n, code);
    }
    *n_failed += code != 0;
    if (code) must_run(test, "test -s err || test -s out", n); /* it says why */
    must_run(test, test->check, n);
    snprintf(command, sizeof command, "export ROOT=%s/w; %s > out 2> err", folder, test->command);
    if (code == 0) must_run(test, test->result, n);
    if (code != 0) must_run(test, command, n);
    must_run(test, test->result, n);
    return true;
}

static void disturb_all(const command_case *test) {
    char command[1024];
    unsigned n = 1, n_tried = 0, n_failed = 0;
    must_run(test, "rm -rf expected", 0);
    must_run(test, test->prepare, 0);
    snprintf(command, sizeof command, "export ROOT=%s/w; %s > out 2> err", folder, test->command);
    must_run(test, command, 0);
    must_run(test, test->result, 0); /* keeps what it finds as `expected` */
    for (; n < CALLS_MAX && disturb(test, n, &n_failed); n += step)
        n_tried++;
    print_message("%s: %u of about %u calls failed, %u with an error\n", test->command, n_tried, n,
                  n_failed);
    assert_true(n < CALLS_MAX && n_tried >= 3 && n_failed >= 2);
}

#define SAME(what)                                                                                 \
    "(" what ") > found 2>&1 && { test -e expected || cp found expected; } && cmp found expected"

static void test_build(void **state) {
    (void)state;
    disturb_all(&(command_case){
        .prepare = "rm -rf w/cache && cp -r old w/cache",
        .command = "$F build $ROOT/data --cache $ROOT/cache -q -j 1",
        .check = "$F verify --cache w/cache > /dev/null && $F verify --cache w/cache --help > "
                 "/dev/null && $F snapshot list --cache w/cache | grep -q \"mine .* pinned\"",
        .result = SAME("$F verify --cache w/cache | grep content"),
        .may_be_partial = true});
}

static void test_gc(void **state) {
    (void)state;
    disturb_all(&(command_case){
        .prepare = "rm -rf w/cache && cp -r base w/cache",
        .command = "$F gc --cache $ROOT/cache",
        .check = "$F verify --cache w/cache > /dev/null && cd w/cache && "
                 "for s in $(sed -n \"s/^shard \\\\([0-9a-f]*\\\\).*/\\\\1/p\" "
                 "generations/00000001.manifest generations/0000000$(cat CURRENT).manifest); do "
                 "test -s shards/$s.lmdb || exit 1; done",
        .result = SAME("cd w/cache && ls generations shards pins CURRENT")});
}

static void test_merge(void **state) {
    (void)state;
    disturb_all(&(command_case){
        .prepare = "rm -rf w/cache w/jobs && cp -r old w/cache && cp -r jobs w/jobs",
        .command = "$F merge --catalogue $ROOT/jobs --cache $ROOT/cache",
        .check = "$F verify --cache w/cache > /dev/null",
        .result = SAME("$F verify --cache w/cache | grep content")});
}

static void test_snapshot(void **state) {
    (void)state;
    disturb_all(
        &(command_case){.prepare = "rm -rf w/cache && cp -r base w/cache",
                        .command = "$F snapshot create new --cache $ROOT/cache",
                        .check = "$F verify --cache w/cache > /dev/null && "
                                 "$F snapshot list --cache w/cache | grep -q \"mine .* pinned\" && "
                                 "{ test ! -e w/cache/snapshots/new || "
                                 "$F snapshot show new --cache w/cache > /dev/null; }",
                        .result = SAME("cat w/cache/snapshots/new")});
}

static void test_export(void **state) {
    (void)state;
    disturb_all(&(command_case){
        .prepare = "rm -rf w/cache w/x.npz && cp -r base w/cache",
        .command = "$F export --cache $ROOT/cache --chain $(ls more/alignments | head -1) -o "
                   "$ROOT/x.npz",
        .check = "test ! -e w/x.npz || python3 -c \"import zipfile; "
                 "assert zipfile.ZipFile(\\\"w/x.npz\\\").testzip() is None\"",
        .result = SAME("sha256sum < w/x.npz")});
}

int main(void) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    fprintf(stderr, "skipped: a sanitizer must be the first library of the program\n");
    return FM_TEST_SKIPPED;
#endif
    if (access("/dev/shm", W_OK) == 0) setenv("TMPDIR", "/dev/shm", 0);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_build),  cmocka_unit_test(test_gc),
        cmocka_unit_test(test_merge),  cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_export),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
