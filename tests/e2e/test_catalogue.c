/* Several workers build one dataset as users run them, over a file and over a real PostgreSQL;
 * workers are killed, stopped and disconnected. The shards are merged, and the catalogue is
 * rebuilt. */
#include "tests/testing/postgresql.h"
#include "tests/testing/testing.h"

#include "proto/base/rng.h"
#include "proto/base/status.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[256], program[512];
static fm_test_postgresql server;

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

static int make_folder(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return run("$FOLDMILL synth --chains 24 --seed 4 --max-length 80 --depth 100 --quiet -o data > "
               "/dev/null && echo \"{\\\"$(ls data/alignments | head -1)\\\": "
               "{\\\"release_date\\\": \\\"2001-02-03\\\", \\\"resolution\\\": 1.5, "
               "\\\"cluster_size\\\": 7}}\" > data/chain_data_cache.json && "
               "$FOLDMILL build data --cache plain -q > /dev/null && "
               "$FOLDMILL verify --cache plain | grep content > content");
}

static int drop_folder(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

/* The cache holds what one process made of the dataset. */
static void assert_same_as_plain(const char *cache) {
    assert_int_equal(run("$FOLDMILL verify --cache %s | grep content | cmp - content", cache), 0);
}

static void workers_share_a_file(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache a -q -j 1 --catalogue c/file > out-a & "
                         "first=$!; $FOLDMILL build data --cache b -q -j 1 --catalogue c/file > "
                         "out-b && wait $first"),
                     0);
    assert_int_equal(run("grep -q '^job  *build: 24 done, 0 refused' out-a out-b"), 0);
    assert_int_equal(run("$FOLDMILL merge --catalogue c/file --cache merged > out && "
                         "grep -q ' 0 were there, .* linked, 0 copied' out"),
                     0);
    assert_same_as_plain("merged");
    /* Without a reader the cache is merged all the same, and what was not printed is an error. */
    assert_int_equal(run("{ sleep 0.2; $FOLDMILL merge --catalogue c/file --cache unread 2>err; "
                         "echo $? >code; } "
                         "| : ; until test -s code; do sleep 0.1; done; test $(cat code) = 1 && "
                         "grep -q 'cannot write the results to standard output' err && "
                         "$FOLDMILL verify --cache unread >log"),
                     0);
    assert_int_equal(run("for f in facts all refused; do "
                         "cmp plain/generations/00000001.$f merged/generations/00000001.$f || "
                         "exit 1; done"),
                     0);
    /* Nothing is made again over the merged cache, and nothing is to be merged again. */
    assert_int_equal(run("$FOLDMILL build data --cache merged -q > out && "
                         "grep -q '0 built, 24 reused' out && grep -q 'as before' out"),
                     0);
    assert_int_equal(run("$FOLDMILL merge --catalogue c/file --cache merged | grep -q 'as before'"),
                     0);
    /* Workers of one folder, and their merge in it. */
    assert_int_equal(run("for i in 1 2 3; do $FOLDMILL build data --cache d -q -j 1 --job in-place "
                         "--catalogue c/file > out-$i & done; wait; "
                         "$FOLDMILL merge --catalogue c/file --job in-place --cache d > out && "
                         "grep -q ' 0 linked, 0 copied' out"),
                     0);
    assert_same_as_plain("d");
}

static void options_that_make_no_sense(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache a -q --job x 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL build data --cache a -q --catalogue c/f --job 'a b' 2> err"),
                     2);
    assert_int_equal(
        run("$FOLDMILL build data --cache a -q --catalogue c/f --lease 1 --heartbeat 2 "
            "2> /dev/null"),
        2);
    assert_int_equal(run("$FOLDMILL merge --cache a 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL merge --cache a --catalogue c/f 2> err; "
                         "grep -q 'cannot open the catalogue.*build --catalogue makes one' err && "
                         "! test -e c/f"),
                     0);
    assert_int_equal(run("$FOLDMILL catalogue status --catalogue c/f 2> /dev/null"), 1);
    assert_int_equal(run("$FOLDMILL catalogue status 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL catalogue nonsense --catalogue c/f 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL catalogue rebuild --catalogue c/f 2> /dev/null"), 2);
    assert_int_equal(run("$FOLDMILL catalogue migrate --catalogue c/f 2> /dev/null"), 2);
    /* Nobody builds alone where workers are, nor the other way round. */
    assert_int_equal(run("mkdir -p a/build && flock a/build/lock $FOLDMILL build data --cache a -q "
                         "--catalogue c/f 2> err; grep -q 'another build is at work' err"),
                     0);
}

/* What a failed command made for a cache is removed again, and nothing else is. */
static void failures_leave_nothing(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL merge --cache new/a/b --catalogue c/none 2> /dev/null; "
                         "test $? = 1 && ! test -e new"),
                     0);
    assert_int_equal(run("$FOLDMILL merge --cache new/a --catalogue "
                         "'postgresql://127.0.0.1:1/nothing' 2> /dev/null; "
                         "test $? = 1 && ! test -e new"),
                     0);
    assert_int_equal(run("mkdir -p folder && $FOLDMILL build data --cache new/a -q "
                         "--publish new/b/c --catalogue folder 2> /dev/null; "
                         "test $? = 1 && ! test -e new"),
                     0);
    /* Not one chain can be made. */
    assert_int_equal(run("mkdir -p bare && cp -r data/mmcifs bare/ && "
                         "$FOLDMILL build bare --cache new/a -q > /dev/null 2>&1; "
                         "test $? = 1 && ! test -e new"),
                     0);
    /* Existing folders and the files of others stay. */
    assert_int_equal(run("mkdir -p old && $FOLDMILL merge --cache old --catalogue c/none "
                         "2> /dev/null; test -d old && ! test -e old/build && "
                         "mkdir -p old/build && touch old/build/mine && "
                         "$FOLDMILL merge --cache old --catalogue c/none 2> /dev/null; "
                         "test -e old/build/mine && test -e old/build/lock"),
                     0);
}

/* The catalogue records what a worker refuses, with the reason, and the merged cache has the same
 * refusals as one that was built alone. */
static void refusals(void **state) {
    (void)state;
    assert_int_equal(run("cd data/alignments && set -- * && echo junk > $2/mgnify_hits.a3m && "
                         "echo junk > $5/uniref90_hits.a3m"),
                     0);
    assert_int_equal(run("$FOLDMILL build data --cache one -q > /dev/null"), 3);
    assert_int_equal(run("$FOLDMILL build data --cache a -q --catalogue c > out"), 3);
    assert_int_equal(run("grep -q '22 done, 2 refused' out"), 0);
    assert_int_equal(run("$FOLDMILL catalogue status --catalogue c --job other 2> err"), 1);
    assert_int_equal(run("grep -q \"there is no job 'other'\" err"), 0);
    assert_int_equal(run("$FOLDMILL catalogue status --catalogue c > out && "
                         "grep -q '^refused      2' out && grep -q 'mgnify_hits.a3m:1' out"),
                     0);
    assert_int_equal(
        run("$FOLDMILL catalogue status --catalogue c --json | python3 -c \"import json, "
            "sys; s = json.load(sys.stdin); assert s['done'] == 22 and "
            "len(s['items']) == 2 and all('a3m' in i['reason'] for i in s['items'])"
            "\""),
        0);
    assert_int_equal(run("$FOLDMILL merge --catalogue c --job none --cache none 2> err; "
                         "grep -q \"nothing in job 'none'\" err"),
                     0);
    assert_int_equal(run("$FOLDMILL merge --catalogue c --cache merged > out"), 3);
    assert_int_equal(
        run("cmp one/generations/00000001.refused merged/generations/00000001.refused"), 0);
    /* Mended, with the list as it was: only --again looks at what was refused or done. */
    assert_int_equal(run("cd data/alignments && set -- * && cp $1/mgnify_hits.a3m kept && "
                         "sed -n 1,2p $2/bfd*.a3m > $2/mgnify_hits.a3m && rm kept"),
                     0);
    assert_int_equal(run("$FOLDMILL build data --cache a -q --catalogue c > out"), 3);
    assert_int_equal(run("$FOLDMILL build data --cache a -q --catalogue c --again > out"), 3);
    assert_int_equal(run("grep -q '23 done, 1 refused' out && "
                         "grep -q '^chains    1 built, 22 reused' out"),
                     0);
}

static void single_sequences(void **state) {
    (void)state;
    assert_int_equal(run("cd data/alignments && set -- * && rm -r $1 $2 $3 $4 $5 $6 $7 $8"), 0);
    assert_int_equal(run("$FOLDMILL build data --cache one -q --single-sequence > /dev/null && "
                         "$FOLDMILL verify --cache one | grep content > content"),
                     0);
    assert_int_equal(run("$FOLDMILL build data --cache a -q -j 2 --single-sequence --catalogue c > "
                         "out && $FOLDMILL merge --catalogue c --cache merged > out && "
                         "grep -q 'with [2-9][0-9] chains' out"),
                     0);
    assert_same_as_plain("merged");
    assert_int_equal(run("$FOLDMILL build data --cache b -q --catalogue c 2> err"), 1);
    assert_int_equal(run("grep -q 'was begun with other options' err"), 0);
}

/* Sealed shards elsewhere; the worker's own disk is gone. Then the catalogue, too. */
static void published_and_made_anew(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL build data --cache a -q --publish pub --catalogue c > out && "
                         "rm -r a && $FOLDMILL merge --catalogue c --cache m > out"),
                     0);
    assert_same_as_plain("m");
    assert_int_equal(
        run("rm c c-lock && $FOLDMILL catalogue rebuild --catalogue c --from pub > out && "
            "grep -q '^done         24' out && "
            "$FOLDMILL build data --cache e -q --catalogue c > out && "
            "grep -q ': 0 items' out && "
            "$FOLDMILL merge --catalogue c --cache n > /dev/null"),
        0);
    assert_same_as_plain("n");
    /* A shard that is gone: rebuilt without it, its chains are built again. */
    assert_int_equal(run("rm pub/shards/*; $FOLDMILL merge --catalogue c --cache o 2> err"), 1);
    assert_int_equal(run("grep -q 'is neither there nor in a cache of --from' err"), 0);
    assert_int_equal(run("test ! -e o/CURRENT && rm c c-lock && "
                         "$FOLDMILL build data --cache e -q --catalogue c > out && "
                         "$FOLDMILL merge --catalogue c --cache o > /dev/null"),
                     0);
    assert_same_as_plain("o");
    /* A shard that is damaged is seen before anything of it is used. */
    assert_int_equal(run("for f in e/shards/*; do printf x | dd of=$f bs=1 seek=9000 conv=notrunc "
                         "2> /dev/null; done; $FOLDMILL merge --catalogue c --cache p 2> err"),
                     1);
    assert_int_equal(run("grep -q 'SHA-256' err && test ! -e p/CURRENT && "
                         "$FOLDMILL catalogue rebuild --catalogue d --from e 2> err; "
                         "grep -q 'no shard has an item' err"),
                     0);
}

static void a_worker_that_is_asked_to_stop(void **state) {
    (void)state;
    assert_int_equal(run("$FOLDMILL synth --chains 24 --seed 5 --depth 2000 --quiet -o deep > "
                         "/dev/null && $FOLDMILL build deep --cache whole -q > /dev/null && "
                         "$FOLDMILL verify --cache whole | grep content > content"),
                     0);
    int code = run("$FOLDMILL build deep --cache s -q -j 1 --catalogue c > out 2> err & "
                   "pid=$!; for i in $(seq 600); do test -e s/build/shard-1.tmp && break; kill -0 "
                   "$pid || break; "
                   "sleep 0.05; done; kill -TERM $pid 2> /dev/null; wait $pid");
    assert_true(code == 143 || code == 0);
    /* It gave back what it had not done: others need not wait for its leases. */
    if (code == 143) {
        assert_int_equal(
            run("grep -q 'stopped' err && $FOLDMILL catalogue status --catalogue c > st "
                "&& grep -q '^being built  0$' st"),
            0);
        /* The signal may have come when the last chain was done. */
        int merged = run("$FOLDMILL merge --catalogue c --cache part > out 2> err");
        assert_true(merged == 0 || merged == 1);
        if (merged) assert_int_equal(run("grep -q 'items that are not done' err"), 0);
    }
    assert_int_equal(run("$FOLDMILL build deep --cache t -q --catalogue c > out && "
                         "$FOLDMILL merge --catalogue c --cache m > /dev/null"),
                     0);
    assert_same_as_plain("m");
}

/* -- PostgreSQL, and everything that can happen to workers */

enum { N_WORKER = 4, N_KILL = 9 };

static pid_t start_worker(int number, const char *url) {
    char cache[32], out[32];
    snprintf(cache, sizeof cache, "w%d", number);
    snprintf(out, sizeof out, "out-%d", number);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        fm_test_die_with_parent();
        if (chdir(folder) != 0 || !freopen(out, "a", stdout) || !freopen(out, "a", stderr)) {
            _exit(9);
        }
        /* Small shards, short leases: much can go wrong in a short time. */
        execl(program, program, "build", "big", "--cache", cache, "-q", "-j", "1", "--shard-mb",
              "1", "--catalogue", url, "--lease", "1.5", "--heartbeat", "0.3", "--pause", "0.05",
              "--attempts", "1000", (char *)NULL);
        _exit(9);
    }
    return child;
}

static void sleep_ms(uint32_t ms) {
    nanosleep(&(struct timespec){ms / 1000, (long)(ms % 1000) * 1000000L}, NULL);
}

/* Kills the worker, unless it has ended, and starts it again on the same cache. */
static bool kill_worker(pid_t *worker, int number, const char *url) {
    int status;
    kill(*worker, SIGKILL);
    assert_int_equal(waitpid(*worker, &status, 0), *worker);
    if (!WIFSIGNALED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    *worker = start_worker(number, url);
    return WIFSIGNALED(status);
}

/* The signal comes while the worker tries to reach a database that is not there. */
static void a_worker_that_waits_can_be_stopped(void **state) {
    (void)state;
    int code = run("$FOLDMILL build data --cache away --catalogue 'postgresql:///x?host=/nowhere' "
                   "-q >out 2>err & pid=$!; for i in $(seq 600); do grep -q 'trying again' err && "
                   "break; kill -0 $pid || break; sleep 0.05; done; kill -TERM $pid 2>kill.err; "
                   "wait $pid");
    if (run("grep -q 'was built without libpq' err") == 0) {
        print_message("skipped: this foldmill was built without libpq\n");
        skip();
    }
    assert_int_equal(code, 143);
    assert_int_equal(run("grep -q 'stopped before the catalogue could be reached; nothing was "
                         "done' err && ! test -e away"),
                     0);
}

static void workers_die_stop_and_are_cut_off(void **state) {
    (void)state;
    pid_t worker[N_WORKER];
    uint32_t n_killed = 0;
    const char *url = server.url;
    bool has_libpq =
        run("$FOLDMILL catalogue migrate --catalogue postgresql:///x?host=/nowhere 2>&1 | "
            "grep -q 'built without libpq'") != 0;
    if (!server.pid || !has_libpq) {
        print_message("skipped: no PostgreSQL, or built without libpq\n");
        skip();
    }
    assert_int_equal(
        run("$FOLDMILL synth --chains 100 --seed 8 --max-length 80 --depth 300 --quiet "
            "-o big > /dev/null && $FOLDMILL build big --cache one -q > /dev/null && "
            "$FOLDMILL verify --cache one | grep content > content && "
            "$FOLDMILL catalogue migrate --catalogue '%s' > out && "
            "grep -q 'migrations applied' out",
            url),
        0);
    for (int i = 0; i < N_WORKER; i++)
        worker[i] = start_worker(i, url);
    for (uint32_t i = 0; i < N_KILL; i++) {
        fm_philox_counter draw = fm_philox(4, (fm_philox_counter){{i, 0, 0, 0}});
        sleep_ms(i ? 30 + draw.word[0] % 250 : 60);
        if (i == 3) kill(worker[0], SIGSTOP); /* past its lease: goes on below */
        if (i == 6) {
            fm_test_postgresql_stop(&server, draw.word[2] % 2);
            sleep_ms(200);
            fm_test_postgresql_start(&server);
        }
        uint32_t victim = 1 + draw.word[1] % (N_WORKER - 1);
        n_killed += kill_worker(&worker[victim], (int)victim, url);
    }
    sleep_ms(500);
    kill(worker[0], SIGCONT);
    for (int i = 0; i < N_WORKER; i++) {
        int status;
        assert_int_equal(waitpid(worker[i], &status, 0), worker[i]);
        if (status) (void)!run("cat out-%d >&2", i);
        assert_int_equal(status, 0);
    }
    assert_true(n_killed >= 1);
    assert_int_equal(run("$FOLDMILL catalogue status --catalogue '%s' --json --all > st && "
                         "python3 -c \"import json; s = json.load(open('st')); "
                         "assert s['done'] == 100 == len(s['items']), s; "
                         "assert s['pending'] == s['leased'] == s['refused'] == 0; "
                         "assert sum(w['done'] for w in s['workers']) == 100; "
                         "print(100, 'chains by', len(s['workers']), 'workers,', "
                         "sum(i['attempt'] - 1 for i in s['items']), 'attempts lost')\"",
                         url),
                     0);
    assert_int_equal(run("$FOLDMILL merge --catalogue '%s' --cache merged > out && "
                         "grep -q 'with 100 chains' out && "
                         "$FOLDMILL build big --cache merged -q | grep -q '0 built, 100 reused'",
                         url),
                     0);
    assert_same_as_plain("merged");
    /* And the catalogue is not missed: it can be made of what the workers left. */
    assert_int_equal(
        run("$FOLDMILL catalogue rebuild --catalogue '%s' --job build --from w0 --from w1 "
            "--from w2 --from w3 > out && grep -q '^done         100' out && "
            "$FOLDMILL catalogue rebuild --catalogue anew --from w0 --from w1 --from w2 "
            "--from w3 > out && $FOLDMILL build big --cache x -q --catalogue anew > out "
            "&& grep -q ': 0 items' out && $FOLDMILL merge --catalogue anew --cache y > "
            "/dev/null",
            url),
        0);
    assert_same_as_plain("y");
}

static int start_server(void **state) {
    (void)state;
    (void)!fm_test_postgresql_create(&server);
    return make_folder(state);
}

static int stop_server(void **state) {
    fm_test_postgresql_destroy(&server);
    return drop_folder(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(workers_share_a_file, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(options_that_make_no_sense, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(failures_leave_nothing, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(refusals, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(single_sequences, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(published_and_made_anew, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_worker_that_is_asked_to_stop, make_folder, drop_folder),
        cmocka_unit_test_setup_teardown(a_worker_that_waits_can_be_stopped, make_folder,
                                        drop_folder),
        cmocka_unit_test_setup_teardown(workers_die_stop_and_are_cut_off, start_server,
                                        stop_server),
    };
    snprintf(program, sizeof program, "%s/foldmill", getenv("FM_BIN"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
