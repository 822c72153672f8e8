/* groups.h: which ranks work together.
 *
 *     rank = (dp * B + bp) * D + dap         D = ranks of DAP, B = of BP (1 or 2), P = of DP
 *
 *     dap     the D ranks that hold the parts of one sample's arrays
 *     bp      the B ranks that hold the same part and run the two branches of a block
 *     sample  the B * D ranks of one sample: their parameter gradients are summed
 *     dp      the P ranks that have the same place in their sample's group: what they have summed
 *             over their samples is summed over these
 *
 * Neighbouring ranks share a sample, since DAP and BP talk most: on one host, that is. */
#ifndef FM_TRAINER_GROUPS_H
#define FM_TRAINER_GROUPS_H

#include "proto/base/status.h"
#include "trainer/dist/comm.h"
#include "trainer/tensor/tensor.h"

typedef struct fm_layout {
    int32_t dap, bp, dp; /* sizes, >= 1 */
} fm_layout;

/* A rank's places: in the groups that it is in, and which of the groups of each kind that is. */
typedef struct fm_rank_place {
    int32_t rank, dap, bp, dp;             /* dp also numbers the rank's sample group */
    int32_t sample;                        /* its rank among the ranks of its sample */
    int32_t dap_group, bp_group, dp_group; /* numbers of its groups, from 0 */
} fm_rank_place;

static inline int32_t fm_layout_ranks(const fm_layout *layout) {
    return layout->dap * layout->bp * layout->dp;
}

/* FM_ERR_USAGE naming the size that is not possible. */
FM_MUST_USE fm_status fm_layout_check(const fm_layout *layout, fm_error *reterr);

fm_rank_place fm_layout_place(const fm_layout *layout, int32_t rank);

/* What a rank's model and optimiser talk through. NULL where the group is of one rank. */
typedef struct fm_groups fm_groups;
struct fm_groups {
    fm_layout layout;
    fm_rank_place place;
    fm_comm *dap, *bp, *sample, *dp;
};

/* The part of split arrays that a rank has; groups NULL: all. */
static inline fm_part fm_groups_part(const fm_groups *groups) {
    return groups ? (fm_part){groups->place.dap, groups->layout.dap} : (fm_part){0, 1};
}

/* Ranks that share a sample; each has 1/n of the loss as its objective, so that sums over ranks are
 * the sample's gradients. */
static inline int32_t fm_groups_sample_ranks(const fm_groups *groups) {
    return groups ? groups->layout.dap * groups->layout.bp : 1;
}

/* All communicators of a layout, ranks as threads (comm_local.h). */
typedef struct fm_local_groups fm_local_groups;

/* FM_ERR_USAGE as fm_layout_check, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_local_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                             fm_local_groups **ret_groups, fm_error *reterr);
/* After every rank's thread has ended; NULL is fine. */
void fm_local_groups_destroy(fm_local_groups *groups);
/* Of one rank; lives as long as the groups. */
const fm_groups *fm_local_groups_get(const fm_local_groups *groups, int32_t rank);

#endif
