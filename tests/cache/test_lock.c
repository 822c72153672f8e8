/* test_lock.c: the lock of a cache, and what a failed holder removes: the folders that locking
 * made, and nothing else. Holders exclude each other also while the lock's file comes and goes. */
#include "cache/store/lock.h"
#include "proto/base/directory.h"
#include "tests/testing/testing.h"

#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_PROCESS = 4, N_TURN = 200 };

static char folder[256];

#define run(...) fm_test_shell_format(folder, __VA_ARGS__)

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_test_remove_tree(folder);
    return 0;
}

static void a_failure_leaves_what_others_made(void **state) {
    (void)state;
    char cache[300];
    fm_cache_lock lock, other;
    fm_error error;
    snprintf(cache, sizeof cache, "%s/a/b", folder);
    assert_int_equal(fm_cache_lock_alone(cache, &lock, &error), FM_OK);
    assert_int_equal(fm_cache_lock_alone(cache, &other, &error), FM_ERR_EXISTS);
    assert_int_equal(fm_cache_lock_shared(cache, &other, &error), FM_ERR_EXISTS);
    fm_cache_unlock(&lock, true);
    assert_int_equal(run("test ! -e a"), 0);
    /* Of two workers the second to go removes the rest. */
    assert_int_equal(fm_cache_lock_shared(cache, &lock, &error), FM_OK);
    assert_int_equal(fm_cache_lock_shared(cache, &other, &error), FM_OK);
    assert_int_equal(lock.slot, 1);
    assert_int_equal(other.slot, 2);
    fm_cache_unlock(&lock, true);
    assert_int_equal(run("test -e a/b/build/lock"), 0);
    fm_cache_unlock(&other, false);
    assert_int_equal(run("test -e a/b/build/lock"), 0);
    /* The folder was there before. */
    assert_int_equal(fm_cache_lock_alone(cache, &lock, &error), FM_OK);
    fm_cache_unlock(&lock, true);
    assert_int_equal(run("test -e a/b/build/lock && rm -r a"), 0);
    /* A shard that was sealed stays, and its folders. */
    assert_int_equal(fm_cache_lock_alone(cache, &lock, &error), FM_OK);
    assert_int_equal(run("mkdir a/b/shards a/b/generations && touch a/b/shards/x"), 0);
    fm_cache_unlock(&lock, true);
    assert_int_equal(run("test -e a/b/shards/x && ! test -e a/b/build && ! test -e "
                         "a/b/generations"),
                     0);
}

static void a_renamed_cache_stays_locked(void **state) {
    (void)state;
    char cache[300], path[400], shown[400], wanted[400];
    fm_cache_lock lock, other;
    fm_error error;
    snprintf(cache, sizeof cache, "%s/a", folder);
    assert_int_equal(fm_cache_lock_shared(cache, &lock, &error), FM_OK);
    assert_int_equal(run("mv a b"), 0);
    assert_int_equal(fm_cache_lock_alone(cache, &other, &error), FM_OK);
    /* The first holder still is where it began, and its name for people is the present one. */
    snprintf(wanted, sizeof wanted, "%s/b/x", folder);
    snprintf(path, sizeof path, "%s/x", fm_held_folder_path(&lock.cache));
    fm_held_folder_show(path, shown, sizeof shown);
    assert_string_equal(shown, wanted);
    fm_fail_in(&error, FM_ERR_IO, path, "no");
    assert_string_equal(error.source, wanted);
    /* It removes its own files, not those of the other. */
    fm_cache_unlock(&lock, true);
    assert_int_equal(run("test -e a/build/lock && ! test -e b/build/lock"), 0);
    fm_cache_unlock(&other, true);
    assert_int_equal(run("! test -e a"), 0);
}

/* Takes the lock N_TURN times; `holders` counts who has it. */
static int take_turns(const char *cache, unsigned process, atomic_uint *holders) {
    for (unsigned n = 0; n < N_TURN;) {
        fm_cache_lock lock;
        fm_error error;
        fm_status status = fm_cache_lock_alone(cache, &lock, &error);
        if (status == FM_ERR_EXISTS) {
            sched_yield();
            continue;
        }
        if (status) return 2;
        if (atomic_fetch_add(holders, 1) != 0) return 3;
        atomic_fetch_sub(holders, 1);
        fm_cache_unlock(&lock, (n++ + process) % 3 != 0);
    }
    return 0;
}

static void holders_exclude_each_other(void **state) {
    (void)state;
    char cache[300];
    pid_t child[N_PROCESS];
    snprintf(cache, sizeof cache, "%s/cache", folder);
    atomic_uint *holders =
        mmap(NULL, sizeof *holders, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(holders != MAP_FAILED);
    for (unsigned i = 0; i < N_PROCESS; i++) {
        child[i] = fork();
        assert_true(child[i] >= 0);
        if (child[i] == 0) {
            fm_test_die_with_parent();
            _exit(take_turns(cache, i, holders));
        }
    }
    for (unsigned i = 0; i < N_PROCESS; i++) {
        int status;
        assert_int_equal(waitpid(child[i], &status, 0), child[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(munmap(holders, sizeof *holders), 0);
}

/* A link in the place of the lock, or of its folder, is not followed: its target is neither made
 * nor locked nor changed. */
static void links_are_not_followed(void **state) {
    (void)state;
    char cache[300];
    fm_cache_lock lock;
    fm_error error;
    snprintf(cache, sizeof cache, "%s/cache", folder);
    assert_int_equal(run("mkdir -p cache/build && ln -s ../../made cache/build/lock"), 0);
    assert_int_equal(fm_cache_lock_alone(cache, &lock, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is a symbolic link"));
    assert_int_equal(fm_cache_lock_shared(cache, &lock, &error), FM_ERR_IO);
    assert_int_equal(run("test ! -e made && test -L cache/build/lock"), 0);
    assert_int_equal(run("rm -r cache/build && mkdir -p other && ln -s ../other cache/build"), 0);
    assert_int_equal(fm_cache_lock_alone(cache, &lock, &error), FM_ERR_IO);
    assert_non_null(strstr(error.message, "is a symbolic link"));
    assert_int_equal(run("test -L cache/build && test -d other && test -z \"$(ls other)\""), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_failure_leaves_what_others_made, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_renamed_cache_stays_locked, set_up, tear_down),
        cmocka_unit_test_setup_teardown(holders_exclude_each_other, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_are_not_followed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
