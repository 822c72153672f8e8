/* memory_budget.h: chooses the least recomputation with which the tapes of a step fit the device's
 * memory. The steps of both models use it. Before anything else, blocks drop their normalised rows
 * (fm_model_config.norm_blocks) where the model has this setting. */
#ifndef FM_TRAINER_STEP_MEMORY_BUDGET_H
#define FM_TRAINER_STEP_MEMORY_BUDGET_H

#include "proto/base/status.h"
#include "trainer/dist/groups.h"
#include "trainer/model/recompute.h"

typedef struct fm_memory_budget {
    const fm_device *device;
    const fm_groups *groups; /* the ranks that must choose the same; NULL: one rank */
    /* Bytes of device memory. 0: no budget is given, and with FM_RECOMPUTE_AUTO this becomes what
     * the device has, where that is known. */
    int64_t *bytes;
    int64_t taken_bytes;         /* what the step has taken of the device before this choice */
    fm_recompute_policy *policy; /* of the model's config */
    int32_t *steps;              /* of the model's config: those of FM_RECOMPUTE_AUTO */
    int32_t most_steps;          /* fm_recompute_order_steps */
    int32_t *norm_blocks;        /* of the model's config; NULL: no such setting */
    int32_t most_norm_blocks;
    void *context; /* of both functions */
    /* Records and plans all tapes anew, with the config as it is. */
    fm_status (*record)(void *context, fm_error *reterr);
    int64_t (*memory_bytes)(const void *context); /* of everything, with these tapes */
} fm_memory_budget;

/* Records the tapes with the policy of the config, and chooses what the policy leaves open:
 *
 *     FM_RECOMPUTE_NONE: the fewest norm_blocks with which the tapes fit, or all if none fit
 *     FM_RECOMPUTE_AUTO: FM_RECOMPUTE_NONE in the same way, where that fits; otherwise no
 *                        norm_blocks, and the fewest steps that fit, or all if none fit. Without
 *                        any budget, FM_RECOMPUTE_BLOCK.
 *
 * FM_ERR_LIMIT when the tapes do not fit the budget; other errors are those of `record`. */
FM_MUST_USE fm_status fm_memory_budget_record(const fm_memory_budget *budget, fm_error *reterr);

#endif
