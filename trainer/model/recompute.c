/* recompute.c: see recompute.h. */
#include "trainer/model/recompute.h"

#include <assert.h>

int32_t fm_recompute_order_steps(const fm_recompute_order *order) {
    int32_t steps = 0;
    for (int32_t i = 0; i < order->n_stage; i++)
        steps += order->n_block[order->stage[i].stack];
    return steps;
}

fm_recompute_policy fm_recompute_order_policy(const fm_recompute_order *order, int32_t steps,
                                              int32_t stack, int32_t index) {
    assert(stack >= 0 && stack < FM_RECOMPUTE_STACKS && index < order->n_block[stack]);
    fm_recompute_policy policy = FM_RECOMPUTE_NONE;
    for (int32_t i = 0; i < order->n_stage; i++) {
        const fm_recompute_stage *stage = &order->stage[i];
        if (stage->stack == stack && index < steps) policy = stage->policy;
        steps -= order->n_block[stage->stack];
    }
    return policy;
}

const char *fm_recompute_policy_words(fm_recompute_policy policy) {
    static const char *const words[] = {[FM_RECOMPUTE_NONE] = "none",
                                        [FM_RECOMPUTE_HIDDEN] = "hidden layers",
                                        [FM_RECOMPUTE_PROJECTIONS] =
                                            "hidden layers and projections",
                                        [FM_RECOMPUTE_BLOCK] = "all blocks"};
    assert(policy < FM_RECOMPUTE_AUTO);
    return words[policy];
}
