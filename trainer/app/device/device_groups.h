/* device_groups.h: the groups of a rank that is a process with a device of its own. */
#ifndef FM_TRAINER_DEVICE_GROUPS_H
#define FM_TRAINER_DEVICE_GROUPS_H

#include "trainer/dist/groups.h"
#include "trainer/dist/meeting.h"

typedef struct fm_device_groups {
    void *context; /* private */
    const fm_groups *groups;
} fm_device_groups;

/* Collective over the ranks of the meeting, which are those of the layout. backend: "peer" (memory
 * of GPUs within a host, NCCL between hosts) or "nccl" (for all groups). wait_s: how long an
 * exchange waits for another rank. run: the run that ends with it, or NULL. FM_ERR_USAGE for other
 * words, FM_ERR_UNSUPPORTED when this build or these devices cannot, FM_ERR_NOMEM, the errors of
 * fm_meeting_gather. Defined in device_groups_cuda.c or, in a build without CUDA, in
 * device_groups_no_cuda.c. */
FM_MUST_USE fm_status fm_device_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                              fm_meeting *meeting, const char *backend,
                                              double wait_s, const fm_run_end *run,
                                              fm_device_groups *ret_groups, fm_error *reterr);

/* Collective unless a rank has failed; call it after the trainer is destroyed. */
void fm_device_groups_destroy(fm_device_groups *groups);

#endif
