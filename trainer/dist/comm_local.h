/* comm_local.h: ranks as threads of one process: how every parallel path is tested on a CPU.
 *
 * A group has a ring of slots; the t-th exchange of every rank uses slot t modulo the ring. `begin`
 * leaves its message in the slot and returns at once. `finish` waits until all ranks have begun,
 * reads the others' buffers, and waits until all have read, so that afterwards each may reuse its
 * own. All ranks begin and finish the same exchanges in the same order. */
#ifndef FM_TRAINER_COMM_LOCAL_H
#define FM_TRAINER_COMM_LOCAL_H

#include "proto/base/status.h"
#include "trainer/dist/comm.h"

enum {
    FM_COMM_LOCAL_RANKS = 16, /* of a group */
    FM_COMM_LOCAL_SLOTS = 64  /* exchanges begun and not finished */
};

typedef struct fm_comm_group fm_comm_group;

/* A group of `size` ranks, 1 .. FM_COMM_LOCAL_RANKS. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_comm_group_create(int32_t size, const fm_kernels *kernels,
                                           fm_comm_group **ret_group, fm_error *reterr);

/* After every rank's thread has ended; NULL is fine. */
void fm_comm_group_destroy(fm_comm_group *group);

/* The communicator of one rank, for one thread; lives as long as the group. */
fm_comm *fm_comm_group_get_rank(fm_comm_group *group, int32_t rank);

#endif
