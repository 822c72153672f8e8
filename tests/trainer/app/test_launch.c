/* test_launch.c: the ranks that a command starts: where they meet, and that no signal to the
 * command is lost while they start. This program is both the command and its ranks. */
#include "tests/testing/testing.h"

#include "trainer/app/ranks/launch.h"
#include "trainer/app/common/stop.h"
#include "trainer/app/ranks/world.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_RANK = 2, MOST_S = 60, EXIT_OTHER_PLACE = 3, EXIT_NOT_ASKED = 4, EXIT_NO_SECRET = 5 };
static const char place_name[] = "FM_TEST_PLACE", signal_name[] = "FM_TEST_SIGNAL";

/* -- a rank */

/* Waits for the signal that the test has sent to the command; false when it does not come. */
static bool is_asked(int signal_number) {
    fm_stop_catch(false);
    for (int i = 0; i < 100 * MOST_S; i++) {
        bool has_come = signal_number == SIGUSR1 ? fm_stop_take_checkpoint()
                                                 : fm_stop_signal() == signal_number;
        if (has_come) return true;
        usleep(10000);
    }
    return false;
}

static int be_rank(void) {
    const char *meeting = getenv(fm_world_meeting_name), *place = getenv(place_name);
    const char *secret = getenv(fm_world_secret_name);
    if (!secret || strlen(secret) != 64 || strspn(secret, "0123456789abcdef") != 64) {
        return EXIT_NO_SECRET;
    }
    const char *signal_number = getenv(signal_name), *rank = getenv(fm_world_rank_name);
    if (strncmp(meeting, "unix:", 5) != 0 || strncmp(meeting + 5, place, strlen(place)) != 0) {
        return EXIT_OTHER_PLACE;
    }
    int number = signal_number ? atoi(signal_number) : 0;
    /* A request for a checkpoint is passed on to the first rank only. */
    bool expects = number && (number != SIGUSR1 || strcmp(rank, "0") == 0);
    return expects && !is_asked(number) ? EXIT_NOT_ASKED : 0;
}

/* -- the command */

static char folder[256], tmpdir_before[4096];

static fm_status launch(int *ret_code, fm_error *reterr) {
    char name[] = "ranks", *argv[] = {name, NULL};
    const fm_launch_options options = {
        .program = "test", .argc = 1, .argv = argv, .n_rank = N_RANK, .meets = N_RANK};
    return fm_launch(&options, ret_code, reterr);
}

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    const char *before = getenv("TMPDIR");
    snprintf(tmpdir_before, sizeof tmpdir_before, "%s", before ? before : "");
    setenv("TMPDIR", folder, 1);
    setenv(place_name, folder, 1);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    unsetenv(signal_name);
    unsetenv("TMPDIR");
    if (tmpdir_before[0]) setenv("TMPDIR", tmpdir_before, 1);
    fm_test_remove_tree(folder);
    return 0;
}

/* In a process of its own, since a signal that was caught stays so. It was sent before the ranks
 * are started, so that they get it at the earliest instant. */
static int launch_asked(int signal_number) {
    char number[16];
    int code;
    fm_error error;
    snprintf(number, sizeof number, "%d", signal_number);
    setenv(signal_name, number, 1);
    fm_stop_catch(false);
    raise(signal_number);
    fm_status status = launch(&code, &error);
    if (status) fprintf(stderr, "%s\n", error.message);
    return status ? 1 : code;
}

static void no_signal_is_lost_while_ranks_start(void **state) {
    (void)state;
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    for (size_t i = 0; i < 4 * sizeof signals / sizeof signals[0]; i++) {
        int end;
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            fm_test_die_with_parent();
            _exit(launch_asked(signals[i % 4]));
        }
        assert_int_equal(waitpid(child, &end, 0), child);
        assert_true(WIFEXITED(end));
        assert_int_equal(WEXITSTATUS(end), 0);
    }
}

static void ranks_meet_below_tmpdir(void **state) {
    (void)state;
    char path[512];
    int code = 1;
    fm_error error;
    unsetenv(signal_name);
    /* "/foldmill-XXXXXX/meeting1234" and a terminator are left of 96 bytes. */
    for (size_t bytes = 67; bytes <= 68; bytes++) {
        memset(path, 'x', sizeof path);
        memcpy(path, folder, strlen(folder));
        path[strlen(folder)] = '/';
        path[bytes] = '\0';
        assert_int_equal(mkdir(path, 0700), 0);
        setenv("TMPDIR", path, 1);
        setenv(place_name, path, 1);
        if (bytes == 67) {
            assert_int_equal(launch(&code, &error), FM_OK);
            assert_int_equal(code, 0);
        } else {
            assert_int_equal(launch(&code, &error), FM_ERR_USAGE);
            assert_non_null(strstr(error.message, "TMPDIR is too long for a socket: "));
        }
        assert_int_equal(rmdir(path), 0); /* nothing is left in it */
    }
}

int main(void) {
    if (getenv(fm_world_rank_name)) return be_rank();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(no_signal_is_lost_while_ranks_start, set_up, tear_down),
        cmocka_unit_test_setup_teardown(ranks_meet_below_tmpdir, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
