/* test_pulse.c: ranks of several hosts notice each other's end. Each rank is a process with a
 * separate board, as if it were alone on its host. */
#include "tests/testing/testing.h"

#include "trainer/app/ranks/pulse.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { SIZE = 3, LOST = 1 };
static const double generous_s = 60, still_s = 3;
static const char own_reason[] = "rank 1 of this host hangs";

/* What the rank LOST does after the ranks have met. */
typedef enum fate { FATE_LEAVES, FATE_IS_KILLED, FATE_IS_STOPPED, FATE_ENDS_THE_RUN } fate;

/* Waits until the run is over; whether its reason names the lost rank, or is what that has said. */
static bool names_the_lost(const fm_board *board, fate what) {
    char name[40];
    for (int i = 0; i < 100 * (int)generous_s && !fm_board_reason(board); i++)
        usleep(10000);
    const char *reason = fm_board_reason(board);
    snprintf(name, sizeof name, "hosts: rank %d (process ", LOST);
    if (reason && what == FATE_ENDS_THE_RUN && strcmp(reason, own_reason) == 0) return true;
    if (reason && what != FATE_ENDS_THE_RUN && strstr(reason, name)) return true;
    fprintf(stderr, "found the reason '%s'\n", reason ? reason : "none");
    return false;
}

/* Every rank is alone on its host. */
static fm_status make_topology(fm_topology *ret_topology) {
    fm_host hosts[SIZE] = {{.id = ""}};
    for (int32_t r = 0; r < SIZE; r++)
        hosts[r] = (fm_host){.id = {(char)('a' + r)}, .name = {(char)('a' + r)}};
    return fm_topology_make(hosts, SIZE, ret_topology, NULL);
}

static void end(fm_board *board, const char *reason) {
    fm_board_end(board, reason);
}

/* One rank; returns its exit status. */
static int run_rank(const char *address, int32_t rank, fate what) {
    fm_meeting *all = NULL, *host = NULL;
    fm_board *board = NULL;
    fm_pulse *pulse = NULL;
    char here[SIZE];
    fm_topology topology = {.n_host = 0};
    fm_status status = make_topology(&topology);
    if (!status) status = fm_meeting_open(&all, address, rank, SIZE, generous_s, NULL);
    if (!status) status = fm_meeting_open(&host, "", 0, 1, generous_s, NULL);
    if (!status) status = fm_board_open(host, generous_s, &board, NULL);
    if (!status) {
        const fm_pulse_options options = {.address = address,
                                          .secret = "a secret of sixteen",
                                          .open_s = generous_s,
                                          .still_s = still_s,
                                          .topology = &topology,
                                          .end = end};
        status = fm_pulse_start(board, rank, SIZE, &options, &pulse, NULL);
    }
    if (status) return 1;
    bool ok = true;
    if (what == FATE_LEAVES) {
        fm_pulse_quieten(pulse);
        ok = !fm_meeting_gather(all, "", 1, here, generous_s, NULL);
        if (rank == LOST) usleep(300000); /* the others are gone by then */
        ok &= !fm_board_reason(board);
    } else if (rank == LOST && what == FATE_ENDS_THE_RUN) {
        fm_board_end(board, own_reason);
    } else if (rank == LOST) {
        raise(what == FATE_IS_KILLED ? SIGKILL : SIGSTOP);
    } else {
        ok = names_the_lost(board, what);
    }
    fm_pulse_stop(pulse);
    fm_board_close(board);
    fm_meeting_close(host);
    fm_meeting_close(all);
    fm_topology_free(&topology);
    return ok ? 0 : 2;
}

static void run_all(const char *address, fate what) {
    const bool is_lost = what == FATE_IS_KILLED || what == FATE_IS_STOPPED;
    pid_t child[SIZE];
    int state;
    for (int32_t r = 0; r < SIZE; r++) {
        child[r] = fork();
        assert_true(child[r] >= 0);
        if (child[r] > 0) continue;
        fm_test_die_with_parent();
        _exit(run_rank(address, r, what));
    }
    for (int32_t r = 0; r < SIZE; r++) {
        if (r == LOST && is_lost) continue;
        assert_int_equal(waitpid(child[r], &state, 0), child[r]);
        assert_int_equal(state, 0);
    }
    if (is_lost) {
        kill(child[LOST], SIGKILL);
        assert_int_equal(waitpid(child[LOST], &state, 0), child[LOST]);
    }
}

static void lost_hosts_are_named(void **state) {
    (void)state;
    char folder[256], address[300];
    fm_test_make_folder(folder, sizeof folder);
    for (fate what = FATE_LEAVES; what <= FATE_ENDS_THE_RUN; what++) {
        snprintf(address, sizeof address, "file:%s/meeting#run", folder);
        run_all(address, what);
        snprintf(address, sizeof address, "unix:%s/meeting", folder);
        run_all(address, what);
    }
    fm_test_remove_tree(folder);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(lost_hosts_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
