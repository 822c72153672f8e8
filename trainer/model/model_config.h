/* model_config.h: every size and rate of the model, and the values of two sets of sizes.
 *
 * Shapes here are the recorded (padded) ones; a smaller sample is padded to them and masked. */
#ifndef FM_TRAINER_CONFIG_H
#define FM_TRAINER_CONFIG_H

#include "trainer/model/recompute.h"

#include <stdbool.h>
#include <stdint.h>

struct fm_groups;

/* The position of the outer product mean in a block (A6 and its two relatives). */
typedef enum fm_block_order {
    FM_ORDER_ORIGINAL,    /* after the MSA transition, before the triangles (AlphaFold2) */
    FM_ORDER_OUTER_FIRST, /* at the start of the block (AlphaFold-Multimer) */
    FM_ORDER_PARALLEL     /* at the end; MSA and pair updates both read the input of the block */
} fm_block_order;

/* The structure module and its heads (A20, A29, 1.9.7). */
typedef struct fm_structure_config {
    int32_t n_iteration;               /* 8, with shared weights; 0: no structure module */
    int64_t c_s, c_z;                  /* set by fm_model_config_structure */
    int64_t n_head, c_head, n_qk, n_v; /* 12, 16, 4, 8 */
    int64_t c_angle;                   /* 128 */
    int32_t n_angle_block;             /* 2 */
    int64_t c_plddt, n_plddt_bin;      /* 128, 50 */
    int64_t n_aligned_error_bin;       /* 64; 0: no such head */
    double dropout;                    /* 0.1 */
    double position_scale;             /* 10 Å */
} fm_structure_config;

/* What a model does as the reference does, where that is a quirk. */
typedef enum fm_compat {
    FM_COMPAT_NONE,     /* masked template angles are 0 */
    FM_COMPAT_OPENFOLD, /* they are the reference's rounding noise */
} fm_compat;

typedef struct fm_model_config {
    int64_t n_res, n_seq; /* N_res of the crop; MSA rows = clusters */
    int64_t n_extra;      /* rows of the extra MSA */
    int32_t n_block;
    int64_t c_m, c_z, c_s;
    int64_t n_head_msa, c_head_msa;   /* row and column attention */
    int64_t n_head_pair, c_head_pair; /* triangle attention */
    int64_t c_outer, c_triangle;      /* hidden widths */
    int64_t transition_factor;
    int32_t n_extra_block; /* 0 = no extra MSA stack */
    int64_t c_e;           /* its channels; it has n_head_msa heads */
    int64_t c_head_extra, c_outer_extra, c_triangle_extra;
    int64_t n_template; /* 0 = no template embedders */
    int32_t n_template_block;
    int64_t c_t; /* channels of the template pair stack */
    int64_t n_head_template, c_head_template, c_triangle_template, template_transition_factor;
    int64_t n_head_pointwise, c_head_pointwise; /* template pointwise attention */
    bool global_column; /* set by fm_model_config_extra for the blocks of the extra MSA stack */
    double dropout_msa, dropout_pair;
    int64_t relpos_k, n_distogram_bin;
    int64_t n_recycle_bin; /* distance classes of recycled pseudo-beta atoms, A32 */
    fm_block_order order;
    fm_compat compat;
    fm_recompute_policy recompute;
    int32_t recompute_steps; /* of FM_RECOMPUTE_AUTO, see fm_model_config_order */
    /* The number of blocks, the first ones in the order of fm_model_config_blocks, that do not keep
     * the rows that one sublayer normalises for the next. Backward makes these rows again from
     * those that are kept, whatever the policy (derived outputs, autograd/tape.h). */
    int32_t norm_blocks;
    bool drops_norms; /* set by fm_model_config_block: the block is one of them */
    fm_structure_config structure;
    /* The ranks that share a sample (trainer/dist/groups.h); NULL: one rank. The sizes above are
     * then multiples of the number of parts that they are split into (fm_split_pad). */
    const struct fm_groups *groups;
    /* Of the device (fm_kernels.axis_multiple); 0 counts as 1. fm_split_pad rounds up to it too. */
    int64_t axis_multiple;
} fm_model_config;

/* The structure module's sizes, with the channels of its inputs filled in. */
static inline fm_structure_config fm_model_config_structure(const fm_model_config *config) {
    fm_structure_config structure = config->structure;
    structure.c_s = config->c_s;
    structure.c_z = config->c_z;
    return structure;
}

/* Describes the blocks of the extra MSA stack (A18) as Evoformer blocks with other widths and
 * global column attention. */
static inline fm_model_config fm_model_config_extra(const fm_model_config *config) {
    fm_model_config extra = *config;
    extra.n_seq = config->n_extra;
    extra.c_m = config->c_e;
    extra.c_head_msa = config->c_head_extra;
    extra.c_outer = config->c_outer_extra;
    extra.c_triangle = config->c_triangle_extra;
    extra.global_column = true;
    return extra;
}

/* Rows of m in the Evoformer: the clusters, and one row of torsion angles per template. */
static inline int64_t fm_model_config_rows(const fm_model_config *config) {
    return config->n_seq + config->n_template;
}

/* The number of blocks of all stacks. What is not kept is left out in this order: extra MSA, whose
 * activations are the largest, Evoformer, templates. The template stack counts once per
 * template; where all templates share their nodes, the first template's blocks are those of all. */
static inline int32_t fm_model_config_blocks(const fm_model_config *config) {
    return config->n_extra_block + config->n_block +
           (int32_t)config->n_template * config->n_template_block;
}

/* FM_RECOMPUTE_AUTO goes through all blocks once for each policy, as if they were one stack. The
 * order is that of the time that it takes to compute a byte again. */
static inline fm_recompute_order fm_model_config_order(const fm_model_config *config) {
    static const fm_recompute_stage stages[] = {{0, FM_RECOMPUTE_HIDDEN},
                                                {0, FM_RECOMPUTE_PROJECTIONS},
                                                {0, FM_RECOMPUTE_OPERANDS},
                                                {0, FM_RECOMPUTE_BLOCK}};
    return (fm_recompute_order){.n_block = {fm_model_config_blocks(config)},
                                .stage = stages,
                                .n_stage = sizeof stages / sizeof stages[0]};
}

/* The config of block number `index` of all stacks, with its own recompute policy and norms. */
static inline fm_model_config fm_model_config_block(const fm_model_config *config, int32_t index) {
    fm_model_config block = *config;
    block.drops_norms = index < config->norm_blocks;
    if (config->recompute == FM_RECOMPUTE_AUTO) {
        const fm_recompute_order order = fm_model_config_order(config);
        block.recompute = fm_recompute_order_policy(&order, config->recompute_steps, 0, index);
    }
    return block;
}

#endif
