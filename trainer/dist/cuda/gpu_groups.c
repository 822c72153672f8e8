/* gpu_groups.c: see gpu_groups.h. */
#include "trainer/dist/cuda/gpu_groups.h"

#include "trainer/dist/topology.h"

#include <assert.h>
#include <stdlib.h>

struct fm_gpu_groups {
    fm_gpu_link *link;
    fm_groups groups;
};

static fm_status share(const fm_groups *groups, void *memory, size_t bytes, fm_error *reterr) {
    return fm_gpu_link_share(groups->link, memory, bytes, reterr);
}

static void unshare(const fm_groups *groups) {
    fm_gpu_link_unshare(groups->link);
}

static fm_status check(const fm_groups *groups, fm_error *reterr) {
    return fm_gpu_link_check(groups->link, reterr);
}

static int64_t least(const fm_groups *groups, int64_t value) {
    return fm_gpu_link_least(groups->link, value);
}

static double waited_s(const fm_groups *groups) {
    return fm_gpu_link_waited_s(groups->link);
}

/* Makes one of this rank's groups. None for one rank. */
static fm_status add(fm_gpu_groups *all, const fm_rank_set *set, const fm_kernels *kernels,
                     fm_comm **ret_comm, fm_error *reterr) {
    int32_t members[FM_LAYOUT_RANKS];
    if (set->size == 1) return FM_OK;
    for (int32_t i = 0; i < set->size; i++)
        members[i] = fm_rank_set_at(set, i);
    return fm_gpu_link_add_group(all->link, members, set->size, kernels, ret_comm, reterr);
}

fm_status fm_gpu_groups_create(const fm_layout *layout, const fm_kernels *kernels,
                               const fm_gpu_link_options *options, fm_gpu_groups **ret_groups,
                               fm_error *reterr) {
    fm_status status = fm_layout_check(layout, reterr);
    if (status) return status;
    assert(fm_layout_ranks(layout) == fm_meeting_size(options->meeting));
    fm_gpu_groups *all = calloc(1, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the groups of ranks");
    status = fm_gpu_link_create(options, &all->link, reterr);
    const int32_t rank = fm_meeting_rank(options->meeting);
    const fm_group_sets sets = fm_layout_sets(layout, rank);
    fm_groups *g = &all->groups;
    if (!status) status = add(all, &sets.dap, kernels, &g->dap, reterr);
    if (!status) status = add(all, &sets.bp, kernels, &g->bp, reterr);
    /* With one of the two the ranks of a sample are those of that group. */
    g->sample = layout->dap > 1 ? g->dap : g->bp;
    if (!status && layout->dap > 1 && layout->bp > 1) {
        status = add(all, &sets.sample, kernels, &g->sample, reterr);
    }
    if (!status) status = add(all, &sets.dp, kernels, &g->dp, reterr);
    if (status) {
        fm_gpu_groups_destroy(all);
        return status;
    }
    g->layout = *layout;
    g->place = fm_layout_place(layout, rank);
    g->link = all->link;
    g->share = share;
    g->unshare = unshare;
    g->check = check;
    g->least = least;
    g->waited_s = waited_s;
    *ret_groups = all;
    return FM_OK;
}

void fm_gpu_groups_destroy(fm_gpu_groups *groups) {
    if (groups) fm_gpu_link_destroy(groups->link);
    free(groups);
}

const fm_groups *fm_gpu_groups_get(const fm_gpu_groups *groups) {
    return &groups->groups;
}
