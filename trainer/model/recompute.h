/* recompute.h: what backward computes again instead of keeping it, and the order in which the
 * automatic choice takes the blocks of a model to it. */
#ifndef FM_TRAINER_RECOMPUTE_H
#define FM_TRAINER_RECOMPUTE_H

#include <stdint.h>

/* Where ranks split a sublayer into several nodes, its projections and operands are outputs of
 * nodes. Only FM_RECOMPUTE_BLOCK computes those again. */
typedef enum fm_recompute_policy {
    FM_RECOMPUTE_NONE,
    FM_RECOMPUTE_HIDDEN,      /* the transitions' hidden layers */
    FM_RECOMPUTE_PROJECTIONS, /* those, and q k v g of attentions */
    FM_RECOMPUTE_OPERANDS,    /* those, and what triangle multiplications and outer products keep */
    FM_RECOMPUTE_BLOCK,       /* whole blocks of every stack */
    FM_RECOMPUTE_AUTO         /* an fm_recompute_order says which of these each block has */
} fm_recompute_policy;

enum { FM_RECOMPUTE_STACKS = 8 };

/* One stage of an order: it takes the blocks of a stack to a policy, the first block first. */
typedef struct fm_recompute_stage {
    int32_t stack;
    fm_recompute_policy policy;
} fm_recompute_stage;

/* FM_RECOMPUTE_AUTO takes some number of steps in this order. Each step takes one block to the
 * policy of a stage, and the stages follow each other. A stack's policies must rise from stage to
 * stage. After all steps every block has its stack's last policy. */
typedef struct fm_recompute_order {
    int32_t n_block[FM_RECOMPUTE_STACKS];
    const fm_recompute_stage *stage;
    int32_t n_stage;
} fm_recompute_order;

/* The number of steps of an order. */
int32_t fm_recompute_order_steps(const fm_recompute_order *order);
/* The policy of block `index` of a stack after `steps` steps. */
fm_recompute_policy fm_recompute_order_policy(const fm_recompute_order *order, int32_t steps,
                                              int32_t stack, int32_t index);

/* How a description of a step names a policy, other than FM_RECOMPUTE_AUTO, that all blocks have:
 * "none", "hidden layers", ... */
const char *fm_recompute_policy_words(fm_recompute_policy policy);

#endif
