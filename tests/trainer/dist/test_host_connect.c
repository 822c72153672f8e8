/* test_host_connect.c: connections between the ranks of several hosts that cannot be made: who is
 * missing and why is said by name, on all ranks. */
#include "tests/trainer/common/processes.h"

#include "trainer/dist/host_connect.h"

#include <sys/resource.h>

enum { RANKS = 4 };

/* Rank 0 is to be connected with all others, and twice with rank 1. */
typedef struct scene {
    bool is_alone;      /* the others do not connect */
    int32_t full;       /* the rank that can open a listener and no more files; -1: none */
    double seconds;     /* of the gathers */
    fm_status status;   /* of all */
    const char *first;  /* what rank 0 says */
    const char *others; /* what the others hear; NULL: not checked */
} scene;

/* Lets this process open one more file and no second one. */
static bool fill_table(void) {
    const int next = dup(STDERR_FILENO);
    if (next < 0 || close(next) < 0) return false;
    const struct rlimit limit = {(rlim_t)next + 1, (rlim_t)next + 1};
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

static int connect_one(const process_task *task) {
    const scene *s = task->context;
    const fm_host_end of_first[] = {{0, 1}, {1, 1}, {0, 2}, {0, 3}}, to_first[] = {{0, 0}, {1, 0}};
    const int32_t n_to_first = task->rank == 1 ? 2 : 1, rank = task->rank;
    int fds[RANKS];
    fm_error error = {.message = ""};
    fm_meeting *meeting;
    fm_board *board;
    setenv("FOLDMILL_HOST", (const char[]){task->hosts[rank], '\0'}, 1);
    if (fm_meeting_open(&meeting, task->address, rank, RANKS, task->wait_s, NULL)) return 1;
    if (fm_board_open(meeting, task->wait_s, &board, NULL)) return 1;
    if (rank == s->full && !fill_table()) return 1;
    const fm_host_end *ends = rank ? to_first : of_first;
    const int32_t n = rank ? n_to_first : 4;
    fm_status status = fm_host_connect(meeting, fm_board_topology(board), ends,
                                       rank && s->is_alone ? 0 : n, s->seconds, fds, &error);
    status = fm_meeting_agree(meeting, status, "exchange", task->wait_s, &error);
    const char *expected = rank ? s->others : s->first;
    const bool ok = status == s->status && (!expected || strcmp(error.message, expected) == 0);
    if (!ok) {
        fprintf(stderr, "rank %d: found %d, '%s', expected %d, '%s'\n", (int)rank, (int)status,
                error.message, (int)s->status, expected ? expected : "any");
    }
    fm_board_close(board);
    fm_meeting_close(meeting);
    return ok ? 0 : 1;
}

static void run(const scene *s) {
    const process_task task = {.layout = {RANKS, 1, 1}, .hosts = "abbc", .context = s};
    assert_int_equal(run_processes(connect_one, task), 0);
}

static void ranks_that_do_not_connect_are_named(void **state) {
    (void)state;
    static const char late[] =
        "rank 1 on b, rank 2 on b and others did not connect to rank 0 on a within 1 s";
    char heard[200];
    snprintf(heard, sizeof heard, "rank 0 cannot exchange: %s", late);
    run(&(scene){true, -1, 2, FM_ERR_CLOSED, late, heard});
}

/* Rank 0 says so at once, and not that others come too late. Of these, some hear it, and some find
 * that rank 0 does not listen any more. */
static void a_rank_that_cannot_accept_says_why(void **state) {
    (void)state;
    run(&(scene){false, 0, 60, FM_ERR_IO,
                 "rank 0 on a cannot accept the connection of another rank: Too many open files",
                 NULL});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_that_do_not_connect_are_named),
        cmocka_unit_test(a_rank_that_cannot_accept_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
