/* gpu_groups.h: the groups of a rank whose ranks are processes with a GPU each. */
#ifndef FM_TRAINER_GPU_GROUPS_H
#define FM_TRAINER_GPU_GROUPS_H

#include "trainer/dist/cuda/link.h"
#include "trainer/dist/groups.h"

typedef struct fm_gpu_groups fm_gpu_groups;

/* Collective over all ranks of options->meeting, whose number is that of the layout's ranks; the
 * current device is this rank's. The errors of fm_layout_check and of link.h. */
FM_MUST_USE fm_status fm_gpu_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                           const fm_gpu_link_options *options,
                                           fm_gpu_groups **ret_groups, fm_error *reterr);

/* As fm_gpu_link_destroy. NULL is allowed. */
void fm_gpu_groups_destroy(fm_gpu_groups *groups);

const fm_groups *fm_gpu_groups_get(const fm_gpu_groups *groups);

#endif
