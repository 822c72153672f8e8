/* test_processes.c: the shell commands and programs that tests start (tests/testing/testing.h)
 * leave no process behind. */
#include "tests/testing/in_folder.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Whether the process whose number is in the file `pid` has ended, also where nobody has waited for
 * it. It is given a minute. */
static bool has_ended(void) {
    return fm_test_shell(folder, "for i in $(seq 3000); do "
                                 "grep -qs '^State:.[RSDT]' /proc/$(cat pid)/status || exit 0; "
                                 "sleep 0.02; done; exit 1") == 0;
}

static void a_shell_takes_its_background_along(void **state) {
    (void)state;
    assert_int_equal(fm_test_shell(folder, "sleep 1000 & echo $! >pid; exit 7"), 7);
    assert_true(has_ended());
    assert_int_equal(fm_test_shell_format(folder, "sh -c 'exit %d'", 143), 143);
}

static void a_program_runs_until_it_is_stopped(void **state) {
    (void)state;
    pid_t pid = fm_test_start(folder, "sleep 1000");
    assert_int_equal(fm_test_shell_format(folder, "echo %d >pid; test -e /proc/%d", pid, pid), 0);
    assert_int_equal(fm_test_stop(pid, SIGTERM), 128 + SIGTERM);
    assert_true(has_ended());
    pid = fm_test_start(folder, "sh -c 'trap \"exit 5\" TERM; >ready; "
                                "while :; do sleep 0.02; done'");
    assert_int_equal(fm_test_shell(folder, "until [ -e ready ]; do sleep 0.02; done"), 0);
    assert_int_equal(fm_test_stop(pid, SIGTERM), 5);
}

/* A test that is killed cannot clean up. */
static void a_program_ends_with_its_test(void **state) {
    (void)state;
    pid_t test = fork();
    assert_true(test >= 0);
    if (test == 0) {
        char command[64];
        pid_t pid = fm_test_start(folder, "sleep 1000");
        snprintf(command, sizeof command, "echo %d >pid.part; mv pid.part pid", (int)pid);
        _exit(fm_test_shell(folder, command) == 0 && pause() == 0);
    }
    assert_int_equal(fm_test_shell(folder, "until [ -e pid ]; do sleep 0.02; done"), 0);
    assert_int_equal(fm_test_stop(test, SIGKILL), 128 + SIGKILL);
    assert_true(has_ended());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_shell_takes_its_background_along, make_folder, tear_down),
        cmocka_unit_test_setup_teardown(a_program_runs_until_it_is_stopped, make_folder, tear_down),
        cmocka_unit_test_setup_teardown(a_program_ends_with_its_test, make_folder, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
