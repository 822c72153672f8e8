/* parity_ways.h: what the ranks of a parity program communicate through: they are threads on a CPU,
 * processes on a CPU, or processes with a GPU each. */
#ifndef FM_TESTS_TRAINER_PARITY_WAYS_H
#define FM_TESTS_TRAINER_PARITY_WAYS_H

#include "tests/testing/local_groups.h"
#include "trainer/app/device/device_groups.h"
#include "trainer/dist/comm_shm.h"

#include <string.h>

/* Limits in seconds: for a run and a meeting of ranks with a GPU each, for those on a CPU, and for
 * a rank to come to an exchange of GPUs. */
enum { GPU_RANKS_S = 110, CPU_RANKS_S = 3600, WAIT_S = 20 };

/* The communicators of one process; all NULL for one rank. */
typedef struct ways {
    fm_local_groups *local;
    fm_device_groups device;
    fm_board *board;
    fm_shm_groups *shm;
} ways;

/* Whether the ranks are processes: those with a GPU each, and those of comm_shm. */
static inline bool are_processes(const char *device, const char *backend, int32_t n_rank) {
    return n_rank > 1 && (strcmp(device, "cpu") != 0 || strcmp(backend, "shm") == 0);
}

static inline unsigned ranks_s(const char *device) {
    return strcmp(device, "cpu") == 0 ? CPU_RANKS_S : GPU_RANKS_S;
}

/* Opens the groups of the ranks of this process. meeting: of ranks that are processes; NULL for
 * threads. Fills ret_groups[*ret_n_rank], with NULL for a single rank. */
static inline fm_status open_ways(ways *w, const fm_layout *layout, const char *backend,
                                  const fm_kernels *kernels, fm_meeting *meeting,
                                  const fm_groups **ret_groups, int *ret_n_rank, fm_error *error) {
    fm_status status = FM_OK;
    *ret_n_rank = meeting ? 1 : fm_layout_ranks(layout);
    if (meeting && strcmp(backend, "shm") == 0) {
        status = fm_board_open(meeting, CPU_RANKS_S, &w->board, error);
        if (status) return status;
        status = fm_shm_groups_open(layout, kernels, meeting, w->board, NULL, CPU_RANKS_S, &w->shm,
                                    error);
        if (!status) ret_groups[0] = fm_shm_groups_get(w->shm);
    } else if (meeting) {
        status = fm_device_groups_create(layout, kernels, meeting, backend, WAIT_S, NULL,
                                         &w->device, error);
        ret_groups[0] = w->device.groups;
    } else if (*ret_n_rank > 1) {
        status = fm_local_groups_create(layout, kernels, &w->local, error);
        for (int r = 0; r < *ret_n_rank && !status; r++)
            ret_groups[r] = fm_local_groups_get(w->local, r);
    }
    return status;
}

/* Whether an exchange between GPUs has failed. */
static inline fm_status check_ways(const ways *w, fm_error *error) {
    return w->device.groups ? w->device.groups->check(w->device.groups, error) : FM_OK;
}

/* Call it after GPUs have ended their work and before the memory of other ranks is released. */
static inline void close_ways(ways *w) {
    fm_device_groups_destroy(&w->device);
    fm_shm_groups_close(w->shm);
    fm_board_close(w->board);
    fm_local_groups_destroy(w->local);
}

#endif
