/* test_stop.c: the reasons for which a run ends in order: the first one that comes stays. */
#include "tests/testing/testing.h"

#include "trainer/app/common/stop.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static bool is_stopped_for(fm_stop_reason reason, int signal_number) {
    return fm_stop_is_asked() == (reason != FM_STOP_NONE) && fm_stop_get_reason() == reason &&
           fm_stop_signal() == signal_number &&
           fm_cancel_is_asked(&fm_stop_cancel) == fm_stop_is_asked();
}

static bool target_has_no_signal(void) {
    fm_stop_request(FM_STOP_TARGET, 0);
    fm_stop_request(FM_STOP_SIGNAL, SIGINT);
    return is_stopped_for(FM_STOP_TARGET, 0);
}

static bool signal_of_another_rank_stays(void) {
    fm_stop_request(FM_STOP_SIGNAL, SIGHUP);
    fm_stop_request(FM_STOP_TARGET, 0);
    return is_stopped_for(FM_STOP_SIGNAL, SIGHUP);
}

static bool own_signal_stays(void) {
    fm_stop_catch(false);
    if (!is_stopped_for(FM_STOP_NONE, 0)) return false;
    raise(SIGTERM);
    fm_stop_request(FM_STOP_TARGET, 0);
    return is_stopped_for(FM_STOP_SIGNAL, SIGTERM);
}

/* In a process of its own, since a reason stays for the process's life. */
static void assert_in_child(bool (*check)(void)) {
    int end;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(check() ? 0 : 1);
    assert_int_equal(waitpid(child, &end, 0), child);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == 0);
}

static void first_reason_stays(void **state) {
    (void)state;
    assert_in_child(target_has_no_signal);
    assert_in_child(signal_of_another_rank_stays);
    assert_in_child(own_signal_stays);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(first_reason_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
