/* test_complexes_shared.c: complexes that several workers build, over a file and over a real
 * PostgreSQL. The merged cache is the one that a single process makes. */
#include "tests/cache/complexes_case.h"

#include "proto/base/rng.h"
#include "tests/testing/postgresql.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Writes the components, and what one process makes of the dataset into the cache "one". */
static void build_alone(const complexes_case *test, int expected_code) {
    write_text(test->base.folder, "components.cif", components_text);
    assert_int_equal(run_shell("cd %s && { $FM_BIN/foldmill build data --complexes --components "
                               "components.cif --cache one -q >one.out; test $? = %d; } && "
                               "$FM_BIN/foldmill verify --cache one | grep content >content",
                               test->base.folder, expected_code),
                     0);
}

/* The merged cache holds what one process made. */
static void assert_same_as_one(const complexes_case *test, const char *cache) {
    assert_int_equal(
        run_shell("cd %s && $FM_BIN/foldmill verify --cache %s | grep content | cmp - content && "
                  "for f in facts records all refused; do "
                  "cmp one/generations/00000001.$f %s/generations/00000001.$f || exit 1; done",
                  test->base.folder, cache, cache),
        0);
}

/* One process finds nothing to do in the merged cache, whose notes are its own. */
static void assert_nothing_is_left(const complexes_case *test, const char *cache) {
    assert_int_equal(run_shell("cd %s && $FM_BIN/foldmill build data --complexes --cache %s -q "
                               ">again; grep -q ' 0 built' again && grep -q 'as before' again",
                               test->base.folder, cache),
                     0);
}

/* One of two workers has the components in its cache. Lists of clusters hold for what is merged,
 * and a file without a complex is refused by its name. */
static void workers_share_a_file(void **state) {
    (void)state;
    complexes_case test;
    char path[300];
    set_up(&test);
    write_entries(&test, 6);
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/mmcifs/%dlon.cif", test.base.data, 3 + i);
        write_protein(path, "2012-02-02", (float)i / 8, 12);
    }
    write_text(test.base.data, "clusters-by-entity-40.txt", "9ZZZ_1 3LON_1\n");
    write_text(test.base.data, "mmcifs/4bad.cif", "data_T\n_cell.length_a 1\n");
    build_alone(&test, 3);
    assert_int_equal(
        run_shell("cd %s && $FM_BIN/foldmill components components.cif --cache a >out && "
                  "{ $FM_BIN/foldmill build data --complexes --cache a -q -j 1 --catalogue c "
                  ">out-a & first=$!; $FM_BIN/foldmill build data --complexes --components "
                  "components.cif --cache b -q -j 1 --catalogue c >out-b; wait $first; }; "
                  "grep -q '^job  *build: 29 done, 0 refused' out-a out-b && "
                  "{ $FM_BIN/foldmill merge --catalogue c --cache merged >out; test $? = 3; } && "
                  "grep -q 'noted  *1 of 2 proteins of complexes in no list' out",
                  test.base.folder),
        0);
    assert_same_as_one(&test, "merged");
    assert_nothing_is_left(&test, "merged");
    /* Of shards alone the same. Other components are another job. */
    assert_int_equal(
        run_shell("cd %s && $FM_BIN/foldmill catalogue rebuild --catalogue d --from a --from b "
                  ">out && { $FM_BIN/foldmill merge --catalogue d --cache anew >out; "
                  "test $? = 3; } && printf 'data_XE\n_chem_comp.id XE\n_chem_comp.type "
                  "NON-POLYMER\n' >>components.cif && ! $FM_BIN/foldmill build data --complexes "
                  "--components components.cif --cache e -q --catalogue c 2>err && "
                  "grep -q 'was begun with other options' err",
                  test.base.folder),
        0);
    assert_same_as_one(&test, "anew");
    tear_down(&test);
}

/* The list of a structure's chains is a note of its complex, also where all have alignments. */
static void single_sequences_leave_nothing_to_do(void **state) {
    (void)state;
    complexes_case test;
    set_up(&test);
    write_text(test.base.folder, "components.cif", components_text);
    assert_int_equal(
        run_shell(
            "cd %s && build=\"$FM_BIN/foldmill build data --complexes --single-sequence -q\" && "
            "$build --components components.cif --cache one >out && "
            "$build --components components.cif --cache a --catalogue c >out && "
            "$FM_BIN/foldmill merge --catalogue c --cache merged >out && "
            "$FM_BIN/foldmill verify --cache one | grep content >content && "
            "$FM_BIN/foldmill verify --cache merged | grep content | cmp - content && "
            "$build --cache merged >again && grep -q ' 0 built' again && "
            "grep -q 'as before' again",
            test.base.folder),
        0);
    tear_down(&test);
}

/* Alignments that cannot be read, not even by the last try, cost their complex alone. */
static void a_file_that_cannot_be_read(void **state) {
    (void)state;
    complexes_case test;
    set_up(&test);
    assert_int_equal(
        run_shell("cd %s/alignments/1abc_R && rm * && ln -s gone rfam_hits.a3m", test.base.data),
        0);
    build_alone(&test, 3);
    assert_int_equal(
        run_shell("cd %s && { $FM_BIN/foldmill build data --complexes --components components.cif "
                  "--cache a -q --catalogue c --attempts 2 --pause 0.05 >out; test $? = 3; } && "
                  "$FM_BIN/foldmill catalogue status --catalogue c --json --all >st && "
                  "python3 -c \"import json; s = json.load(open('st')); "
                  "assert [i['attempt'] for i in s['items']] == [2, 1], s\" && "
                  "{ $FM_BIN/foldmill merge --catalogue c --cache merged >out; test $? = 3; }",
                  test.base.folder),
        0);
    assert_same_as_one(&test, "merged");
    tear_down(&test);
}

/* -- PostgreSQL, and workers that are killed */

static pid_t start_worker(const complexes_case *test, int number, const char *url) {
    char program[400], components[300], cache[300], data[300];
    snprintf(program, sizeof program, "%s/foldmill", getenv("FM_BIN"));
    snprintf(components, sizeof components, "%s/components.cif", test->base.folder);
    snprintf(cache, sizeof cache, "%s/w%d", test->base.folder, number);
    snprintf(data, sizeof data, "%s", test->base.data);
    char address[256];
    snprintf(address, sizeof address, "%s", url);
    char *const arguments[] = {program,       "build",       data,      "--cache", cache,
                               "--complexes", "-q",          "-j",      "1",       "--components",
                               components,    "--catalogue", address,   "--lease", "0.6",
                               "--heartbeat", "0.15",        "--pause", "0.05",    "--attempts",
                               "1000",        NULL};
    pid_t child;
    assert_int_equal(posix_spawn(&child, program, NULL, NULL, arguments, environ), 0);
    return child;
}

static void workers_are_killed(void **state) {
    (void)state;
    enum { N_WORKER = 3, N_KILL = 8 };
    complexes_case test;
    fm_test_postgresql server;
    pid_t worker[N_WORKER];
    int n_killed = 0, status;
    bool has_libpq = run_shell("$FM_BIN/foldmill catalogue migrate --catalogue "
                               "postgresql:///x?host=/nowhere 2>&1 | "
                               "grep -q 'built without libpq'") != 0;
    if (!has_libpq || !fm_test_postgresql_create(&server)) {
        print_message("skipped: no PostgreSQL, or built without libpq\n");
        skip();
    }
    set_up(&test);
    write_entries(&test, 400);
    build_alone(&test, 0);
    assert_int_equal(run_shell("cd %s && $FM_BIN/foldmill catalogue migrate --catalogue '%s' >out",
                               test.base.folder, server.url),
                     0);
    for (int i = 0; i < N_WORKER; i++)
        worker[i] = start_worker(&test, i, server.url);
    for (uint32_t i = 0; i < N_KILL; i++) {
        fm_philox_counter draw = fm_philox(7, (fm_philox_counter){{i, 0, 0, 0}});
        int victim = (int)(draw.word[1] % N_WORKER);
        nanosleep(&(struct timespec){0, (long)(5 + draw.word[0] % 60) * 1000000L}, NULL);
        kill(worker[victim], SIGKILL);
        assert_int_equal(waitpid(worker[victim], &status, 0), worker[victim]);
        n_killed += WIFSIGNALED(status);
        worker[victim] = start_worker(&test, victim, server.url);
    }
    for (int i = 0; i < N_WORKER; i++) {
        assert_int_equal(waitpid(worker[i], &status, 0), worker[i]);
        assert_int_equal(status, 0);
    }
    assert_true(n_killed >= N_KILL / 2);
    assert_int_equal(run_shell("$FM_BIN/foldmill catalogue status --catalogue '%s' --json --all | "
                               "python3 -c \"import json, sys; s = json.load(sys.stdin); "
                               "assert s['done'] == 26 == len(s['items']), s; print(26, 'entries, "
                               "', sum(i['attempt'] - 1 for i in s['items']), 'attempts lost')\"",
                               server.url),
                     0);
    assert_int_equal(run_shell("cd %s && $FM_BIN/foldmill merge --catalogue '%s' --cache merged "
                               ">out && grep -q '26 complexes' out",
                               test.base.folder, server.url),
                     0);
    assert_same_as_one(&test, "merged");
    assert_nothing_is_left(&test, "merged");
    fm_test_postgresql_destroy(&server);
    tear_down(&test);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_share_a_file),
        cmocka_unit_test(single_sequences_leave_nothing_to_do),
        cmocka_unit_test(a_file_that_cannot_be_read),
        cmocka_unit_test(workers_are_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
