/* groups.h: says which ranks work together.
 *
 *     rank = (dp * B + bp) * D + dap         D = ranks of DAP, B = of BP (1 or 2), P = of DP
 *
 *     dap     the D ranks that hold the parts of one sample's arrays
 *     bp      the B ranks that hold the same part and run the two branches of a block
 *     sample  the B * D ranks of one sample; their parameter gradients are summed
 *     dp      the P ranks with the same place in their sample's group; the sums over the samples
 *             are summed over these ranks
 *
 * Neighbouring ranks share a sample, because DAP and BP exchange the most data: their ranks should
 * be on one host. */
#ifndef FM_TRAINER_GROUPS_H
#define FM_TRAINER_GROUPS_H

#include "proto/base/status.h"
#include "trainer/dist/comm.h"
#include "trainer/tensor/tensor.h"

enum { FM_LAYOUT_DAP = 16, FM_LAYOUT_RANKS = 4096 }; /* at most */

typedef struct fm_layout {
    int32_t dap, bp, dp; /* sizes, >= 1 */
} fm_layout;

/* A rank's place in each of its groups, and the numbers of these groups. */
typedef struct fm_rank_place {
    int32_t rank, dap, bp, dp;             /* dp is also the number of the rank's sample group */
    int32_t sample;                        /* rank within its sample group */
    int32_t dap_group, bp_group, dp_group; /* numbers of its groups, from 0 */
} fm_rank_place;

static inline int32_t fm_layout_ranks(const fm_layout *layout) {
    return layout->dap * layout->bp * layout->dp;
}

/* Checks the sizes. FM_ERR_USAGE names the size that is not possible. */
FM_MUST_USE fm_status fm_layout_check(const fm_layout *layout, fm_error *reterr);

fm_rank_place fm_layout_place(const fm_layout *layout, int32_t rank);

/* How exchanges between GPUs learn that the run is over, and end it. A thread calls the functions
 * with `context`, which outlives the groups. All NULL: there is nobody to ask. */
typedef struct fm_run_end {
    const char *(*reason)(void *context); /* why the run is over; NULL while it is not */
    void (*end)(void *context, const char *why);
    void *context;
} fm_run_end;

/* The communicators of a rank's model and optimiser; NULL for a group of one rank. */
typedef struct fm_groups fm_groups;
struct fm_groups {
    fm_layout layout;
    fm_rank_place place;
    fm_comm *dap, *bp, *sample, *dp;
    bool is_sliced; /* sums over `dp` are divided among the ranks of a sample (fm_groups_sum) */
    struct fm_board_rank *entry; /* where the rank says what it does (board.h); NULL: nowhere */
    /* What ranks that are processes have beside communicators; NULL for threads of one process. */
    struct fm_gpu_link *link;
    /* Collective: lets the other ranks read this device memory. Everything that an exchange sends
     * must be in memory that was shared. */
    fm_status (*share)(const fm_groups *groups, void *memory, size_t bytes, fm_error *reterr);
    /* Collective, unless a rank has failed: ends what share began. Call it before the memory is
     * released, and after captured exchanges have been. */
    void (*unshare)(const fm_groups *groups);
    /* FM_ERR_CLOSED when an exchange has failed, naming it and the rank that did not come; results
     * since then are not valid. Does not wait. */
    fm_status (*check)(const fm_groups *groups, fm_error *reterr);
    /* Collective: the least of all ranks' values, for decisions that all ranks must make alike. A
     * yes or no is 1 or 0. Returns 0 when the ranks have lost each other. */
    int64_t (*least)(const fm_groups *groups, int64_t value);
    /* Seconds that this rank's exchanges have waited for other ranks since they were made. Waits
     * for the device. */
    double (*waited_s)(const fm_groups *groups);
};

/* The part of split arrays that a rank holds. groups NULL: everything. */
static inline fm_part fm_groups_part(const fm_groups *groups) {
    return groups ? (fm_part){groups->place.dap, groups->layout.dap} : (fm_part){0, 1};
}

/* Number of ranks that share a sample. Each has 1/n of the loss as its objective, so sums over
 * these ranks are the sample's gradients. */
static inline int32_t fm_groups_sample_ranks(const fm_groups *groups) {
    return groups ? groups->layout.dap * groups->layout.bp : 1;
}

/* Returns the least value of all ranks, so that they all make the same decision. Collective where
 * ranks are processes; threads of one process keep their own value. */
static inline int64_t fm_groups_least(const fm_groups *groups, int64_t value) {
    return groups && groups->least ? groups->least(groups, value) : value;
}

/* Reports whether all exchanges so far were completed, as `check` above. */
FM_MUST_USE static inline fm_status fm_groups_check(const fm_groups *groups, fm_error *reterr) {
    return groups && groups->check ? groups->check(groups, reterr) : FM_OK;
}

/* Says what this rank is doing, for the ranks that watch it. `step` counts from 1. */
void fm_groups_note(const fm_groups *groups, uint64_t step, uint32_t cycle);
/* The same for a cycle of a prediction. Cycle 0 begins the rank's next chain. Chains are counted
 * here because every recorded length has a separate trainer. */
void fm_groups_note_prediction(const fm_groups *groups, uint32_t cycle);

/* Device memory that exchanges send from. */
typedef struct fm_groups_memory {
    void *memory;
    int64_t bytes; /* 0: none */
} fm_groups_memory;

/* Collective: lets the other ranks read the memory, if their exchanges need that. Does nothing if
 * groups is NULL. */
FM_MUST_USE fm_status fm_groups_share(const fm_groups *groups, const fm_groups_memory *memory,
                                      int n, fm_error *reterr);
/* Ends what fm_groups_share began. */
void fm_groups_unshare(const fm_groups *groups);

#endif
