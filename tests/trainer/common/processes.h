/* processes.h: runs the ranks of a test as processes that communicate through comm_shm, and through
 * comm_hosts where a test says that they are on several hosts. */
#ifndef FM_TESTS_PROCESSES_H
#define FM_TESTS_PROCESSES_H

#include "tests/testing/testing.h"
#include "tests/trainer/common/op_check.h"

#include "trainer/dist/comm_shm.h"

#include <sys/wait.h>
#include <unistd.h>

/* What a rank that is a process has of the others. */
typedef struct process {
    fm_meeting *meeting;
    fm_board *board;
    fm_shm_groups *groups;
} process;

/* What a rank is told. */
typedef struct process_task {
    char address[300]; /* where the ranks meet */
    int32_t rank;
    fm_layout layout;
    fm_shm_options options;
    fm_element element;
    double wait_s;     /* more than any rank takes */
    const char *hosts; /* a letter for the host of each rank; NULL: one host */
    const void *context;
} process_task;

/* What a rank does; it returns its exit status. */
typedef int (*process_work)(const process_task *task);

/* Says why it fails. */
static inline bool open_process(process *p, const process_task *task) {
    fm_error error;
    const char host[2] = {task->hosts ? task->hosts[task->rank] : '\0', '\0'};
    setenv("FOLDMILL_HOST", host, 1); /* "" is as if it were not set */
    fm_status status = fm_meeting_open(&p->meeting, task->address, task->rank,
                                       fm_layout_ranks(&task->layout), task->wait_s, &error);
    if (!status) status = fm_board_open(p->meeting, task->wait_s, &p->board, &error);
    if (!status) {
        status = fm_shm_groups_open(&task->layout, fm_kernels_cpu(task->element), p->meeting,
                                    p->board, &task->options, task->wait_s, &p->groups, &error);
    }
    if (status) fprintf(stderr, "rank %d: %s\n", (int)task->rank, error.message);
    return !status;
}

static inline void close_process(process *p) {
    fm_shm_groups_close(p->groups);
    fm_board_close(p->board);
    fm_meeting_close(p->meeting);
}

/* Runs every rank as a process and returns the number of those whose exit status is not 0. */
static inline int run_processes(process_work work, process_task task) {
    char folder[256];
    fm_test_make_folder(folder, sizeof folder);
    snprintf(task.address, sizeof task.address, "unix:%s/socket", folder);
    task.wait_s = 60;
    int failed = 0, state;
    for (task.rank = 0; task.rank < fm_layout_ranks(&task.layout); task.rank++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child > 0) continue;
        fm_test_die_with_parent();
        _exit(work(&task));
    }
    for (int32_t r = 0; r < fm_layout_ranks(&task.layout); r++) {
        assert_true(wait(&state) > 0);
        failed += state != 0;
    }
    fm_test_remove_tree(folder);
    return failed;
}

/* The ways of delivery, also with random pauses, and with NaN in receive buffers where that is
 * possible. */
static const fm_shm_options process_options[] = {
    {.delivery = FM_DELIVERY_USUAL},
    {.delivery = FM_DELIVERY_USUAL, .spoils = true, .delays = true},
    {.delivery = FM_DELIVERY_AT_BEGIN, .delays = true},
    {.delivery = FM_DELIVERY_AT_FINISH, .spoils = true}};
enum { N_PROCESS_OPTIONS = sizeof process_options / sizeof process_options[0] };

#endif
