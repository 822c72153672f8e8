/* local_groups.c: see local_groups.h. */
#include "tests/testing/local_groups.h"

#include <assert.h>
#include <stdlib.h>

struct fm_local_groups {
    fm_layout layout;
    /* Indexed by the number of the group; NULL for groups of one rank. */
    fm_comm_group *dap[FM_COMM_LOCAL_RANKS], *bp[FM_COMM_LOCAL_RANKS];
    fm_comm_group *sample[FM_COMM_LOCAL_RANKS], *dp[FM_COMM_LOCAL_RANKS];
    fm_groups rank[FM_COMM_LOCAL_RANKS];
};

static fm_status create(fm_comm_group **groups, int32_t count, int32_t size,
                        const fm_kernels *kernels, fm_error *reterr) {
    fm_status status = FM_OK;
    for (int32_t i = 0; i < count && size > 1 && !status; i++)
        status = fm_comm_group_create(size, kernels, &groups[i], reterr);
    return status;
}

static fm_comm *rank_of(fm_comm_group *group, int32_t rank) {
    return group ? fm_comm_group_get_rank(group, rank) : NULL;
}

fm_status fm_local_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                                 fm_local_groups **ret_groups, fm_error *reterr) {
    fm_status status = fm_layout_check(layout, reterr);
    if (status) return status;
    if (fm_layout_ranks(layout) > FM_COMM_LOCAL_RANKS) {
        return fm_fail(reterr, FM_ERR_USAGE, "%d ranks as threads, expected 1 to %d",
                       (int)fm_layout_ranks(layout), FM_COMM_LOCAL_RANKS);
    }
    fm_local_groups *all = calloc(1, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the groups of ranks");
    all->layout = *layout;
    int32_t ranks = fm_layout_ranks(layout), of_sample = layout->dap * layout->bp;
    status = create(all->dap, ranks / layout->dap, layout->dap, kernels, reterr);
    if (!status) status = create(all->bp, ranks / layout->bp, layout->bp, kernels, reterr);
    if (!status) status = create(all->sample, layout->dp, of_sample, kernels, reterr);
    if (!status) status = create(all->dp, of_sample, layout->dp, kernels, reterr);
    if (status) {
        fm_local_groups_destroy(all);
        return status;
    }
    for (int32_t r = 0; r < ranks; r++) {
        fm_rank_place place = fm_layout_place(layout, r);
        all->rank[r] = (fm_groups){.layout = *layout,
                                   .place = place,
                                   .dap = rank_of(all->dap[place.dap_group], place.dap),
                                   .bp = rank_of(all->bp[place.bp_group], place.bp),
                                   .sample = rank_of(all->sample[place.dp], place.sample),
                                   .dp = rank_of(all->dp[place.dp_group], place.dp)};
    }
    *ret_groups = all;
    return FM_OK;
}

void fm_local_groups_destroy(fm_local_groups *groups) {
    for (int32_t i = 0; groups && i < FM_COMM_LOCAL_RANKS; i++) {
        fm_comm_group_destroy(groups->dap[i]);
        fm_comm_group_destroy(groups->bp[i]);
        fm_comm_group_destroy(groups->sample[i]);
        fm_comm_group_destroy(groups->dp[i]);
    }
    free(groups);
}

const fm_groups *fm_local_groups_get(const fm_local_groups *groups, int32_t rank) {
    assert(rank >= 0 && rank < fm_layout_ranks(&groups->layout));
    return &groups->rank[rank];
}
