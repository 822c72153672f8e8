/* comm_local.h: a communicator whose ranks are threads of one process. All parallel code is tested
 * with it on a CPU.
 *
 * A group has a ring of slots; exchange number t of every rank uses slot t modulo the ring's size.
 * `begin` stores its message in the slot and returns at once. `finish` has three stages: it waits
 * until all ranks have begun, reads the other ranks' buffers, and waits until all ranks have read.
 * After that, each rank may reuse its buffers. All ranks begin and finish the same exchanges in the
 * same order. */
#ifndef FM_TESTING_COMM_LOCAL_H
#define FM_TESTING_COMM_LOCAL_H

#include "proto/base/status.h"
#include "trainer/dist/comm.h"

enum {
    FM_COMM_LOCAL_RANKS = 16, /* ranks of a group, at most */
    FM_COMM_LOCAL_SLOTS = 64  /* exchanges begun and not finished, at most */
};

typedef struct fm_comm_group fm_comm_group;

/* Creates a group of `size` ranks, 1 .. FM_COMM_LOCAL_RANKS. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_comm_group_create(int32_t size, const fm_kernels *kernels,
                                           fm_comm_group **ret_group, fm_error *reterr);

/* Call it after every rank's thread has ended. NULL is allowed. */
void fm_comm_group_destroy(fm_comm_group *group);

/* Returns the communicator of one rank, for one thread; it is valid as long as the group. */
fm_comm *fm_comm_group_get_rank(fm_comm_group *group, int32_t rank);

#endif
