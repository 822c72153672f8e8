/* af3_ranks.h: runs a comparison with the reference on ranks that share its sample (DAP). */
#ifndef FM_TESTS_TRAINER_AF3_RANKS_H
#define FM_TESTS_TRAINER_AF3_RANKS_H

#include "trainer/dist/comm_shm.h"

#include <stdbool.h>

/* Where the ranks are. */
typedef struct af3_ranks {
    int32_t dap;         /* 1: one rank */
    fm_meeting *meeting; /* of ranks that are processes; NULL for threads of this process */
} af3_ranks;

/* Runs one rank and returns whether everything agrees; `groups` is NULL for one rank. *ret_hash
 * receives the hash of its results. */
typedef bool (*af3_rank_work)(const void *context, const fm_groups *groups,
                              const fm_kernels *kernels, uint64_t *ret_hash);

/* Runs all ranks, or the rank of this process. Returns whether everything agrees on every rank of
 * this process, and whether all ranks have the same hash, which *ret_hash receives. */
bool af3_ranks_run(const af3_ranks *ranks, const fm_kernels *kernels, af3_rank_work work,
                   const void *context, uint64_t *ret_hash);

#endif
