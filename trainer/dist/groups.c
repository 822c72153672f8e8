/* groups.c: see groups.h. */
#include "trainer/dist/groups.h"

#include "trainer/dist/board.h"

#include <assert.h>

fm_status fm_layout_check(const fm_layout *layout, fm_error *reterr) {
    if (layout->dap < 1 || layout->dap > FM_LAYOUT_DAP) {
        return fm_fail(reterr, FM_ERR_USAGE, "dap = %d, expected 1 to %d", (int)layout->dap,
                       FM_LAYOUT_DAP);
    }
    if (layout->bp < 1 || layout->bp > 2) {
        return fm_fail(reterr, FM_ERR_USAGE, "bp = %d: a block has two branches, expected 1 or 2",
                       (int)layout->bp);
    }
    if (layout->dp < 1 || layout->dp > FM_LAYOUT_RANKS / (layout->dap * layout->bp)) {
        return fm_fail(reterr, FM_ERR_USAGE, "dp = %d with dap %d and bp %d, expected 1 to %d",
                       (int)layout->dp, (int)layout->dap, (int)layout->bp,
                       FM_LAYOUT_RANKS / (int)(layout->dap * layout->bp));
    }
    return FM_OK;
}

fm_rank_place fm_layout_place(const fm_layout *layout, int32_t rank) {
    assert(rank >= 0 && rank < fm_layout_ranks(layout));
    int32_t dap = rank % layout->dap, bp = rank / layout->dap % layout->bp;
    int32_t sample = rank % (layout->dap * layout->bp), dp = rank / (layout->dap * layout->bp);
    return (fm_rank_place){.rank = rank,
                           .dap = dap,
                           .bp = bp,
                           .dp = dp,
                           .sample = sample,
                           .dap_group = rank / layout->dap,
                           .bp_group = dp * layout->dap + dap,
                           .dp_group = sample};
}

void fm_groups_note(const fm_groups *groups, uint64_t step, uint32_t cycle) {
    if (!groups || !groups->entry) return;
    atomic_store(&groups->entry->step, step);
    atomic_store(&groups->entry->cycle, cycle);
}

void fm_groups_note_prediction(const fm_groups *groups, uint32_t cycle) {
    if (!groups || !groups->entry) return;
    if (cycle == 0) atomic_fetch_add(&groups->entry->step, 1);
    atomic_store(&groups->entry->cycle, cycle);
}

fm_status fm_groups_share(const fm_groups *groups, const fm_groups_memory *memory, int n,
                          fm_error *reterr) {
    fm_status status = FM_OK;
    if (!groups || !groups->share) return FM_OK;
    for (int i = 0; i < n && !status; i++) {
        if (!memory[i].bytes) continue;
        status = groups->share(groups, memory[i].memory, (size_t)memory[i].bytes, reterr);
    }
    return status;
}

void fm_groups_unshare(const fm_groups *groups) {
    if (groups && groups->unshare) groups->unshare(groups);
}
