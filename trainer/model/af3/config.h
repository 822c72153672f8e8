/* config.h: every size and rate of AlphaFold 3's network, and the values of the published model.
 *
 * Numbers such as "5" and "17" are those of the algorithms in the AlphaFold 3 supplement. One
 * complex is one sample: there is no batch axis. */
#ifndef FM_TRAINER_AF3_CONFIG_H
#define FM_TRAINER_AF3_CONFIG_H

#include "trainer/model/model_config.h"

#include <assert.h>

enum {
    FM_AF3_RESTYPES = 32,       /* 20 amino acids, unknown, 5 RNA, 5 DNA, gap */
    FM_AF3_TEMPLATE_PAIR = 108, /* features of a template pair */
    FM_AF3_MSA_FEATURES = 34,   /* 32 classes, has_deletion, deletion_value */
    FM_AF3_TOKEN_FEATURES = 65, /* restype 32, profile 32, deletion_mean */
    FM_AF3_MAX_BLOCK = 64,      /* of any stack */
    FM_AF3_MAX_PARAM = 16384,
};

/* The type to which the operands of the diffusion module's matrix products are rounded. Sums are
 * f32. AUTO is tf32 where the rest of the network has activations of bf16, else f32
 * (docs/reference/numerics.md). */
typedef enum fm_af3_products {
    FM_AF3_PRODUCTS_F32,
    FM_AF3_PRODUCTS_TF32,
    FM_AF3_PRODUCTS_BF16,
    FM_AF3_PRODUCTS_AUTO
} fm_af3_products;

/* The noise of training and the schedule of sampling (18, 20). */
typedef struct fm_af3_noise {
    double sigma_data, p_mean, p_std;                  /* 16, -1.2, 1.5 */
    double s_max, s_min, rho;                          /* 160, 4e-4, 7; in units of sigma_data */
    double gamma0, gamma_min, noise_scale, step_scale; /* 0.8, 1, 1.003, 1.5 */
} fm_af3_noise;

typedef struct fm_af3_config {
    /* The sizes of a sample, as recorded. */
    int64_t n_token, n_atom, n_msa, n_template;
    int64_t n_sample;       /* diffusion samples of a training step */
    int32_t n_rollout_step; /* denoising steps of the rollout */
    int32_t n_cycle;        /* recycling cycles, the one with gradients included */
    /* Channels. */
    int64_t c_s, c_z, c_m;
    int64_t c_token_in; /* of the input embedder's result; c_s_inputs is 65 more */
    int64_t c_token;    /* of the diffusion transformer */
    int64_t c_atom, c_atompair, c_template, c_noise;
    /* Blocks of each stack. */
    int32_t n_pairformer_block, n_msa_block, n_template_block, n_diffusion_block;
    int32_t n_atom_block, n_input_atom_block; /* of the diffusion module, of the input embedder */
    int32_t n_confidence_block;
    /* Heads, and channels of a head where they do not follow from the width. */
    int64_t n_head_single, n_head_token, n_head_atom;
    int64_t n_head_pair, c_head_pair; /* triangle attention */
    int64_t n_head_msa, c_head_msa;   /* pair-weighted averaging */
    int64_t c_triangle, c_outer;      /* hidden widths */
    int64_t transition_factor;        /* pair, single, MSA */
    int64_t narrow_factor;            /* template, conditioning, conditioned transition */
    int64_t max_atoms_per_token;
    int64_t n_distogram_bin, n_pae_bin, n_pde_bin, n_plddt_bin;
    double dropout_msa, dropout_pair;
    fm_af3_noise noise;
    fm_recompute_policy recompute;
    int32_t recompute_steps;        /* of FM_RECOMPUTE_AUTO, see fm_af3_config_order */
    fm_af3_products products;       /* fm_af3_check_products says which a backend has */
    const struct fm_groups *groups; /* the ranks that share a sample; NULL: one rank */
} fm_af3_config;

/* Width of s_inputs: the input embedder's token and the token's features. */
static inline int64_t fm_af3_config_s_inputs(const fm_af3_config *config) {
    return config->c_token_in + FM_AF3_TOKEN_FEATURES;
}

/* The stacks of blocks that backward can compute again. */
enum {
    FM_AF3_STACK_TEMPLATE,
    FM_AF3_STACK_MSA,
    FM_AF3_STACK_PAIRFORMER,
    FM_AF3_STACK_INPUT,     /* atoms of the input embedder */
    FM_AF3_STACK_ATOM,      /* atoms of the diffusion module: encoder, then decoder */
    FM_AF3_STACK_DIFFUSION, /* tokens of the diffusion module */
    FM_AF3_STACK_CONFIDENCE,
    FM_AF3_STACKS
};

/* The order in which FM_RECOMPUTE_AUTO takes the blocks, that of the time that it takes to compute
 * a byte again (docs/notes/performance.md has bytes and times). The confidence head is last: it has
 * a pass of its own, whose memory counts only where little is left of the other one's. */
static inline fm_recompute_order fm_af3_config_order(const fm_af3_config *config) {
    static const fm_recompute_stage stages[] = {{FM_AF3_STACK_TEMPLATE, FM_RECOMPUTE_HIDDEN},
                                                {FM_AF3_STACK_MSA, FM_RECOMPUTE_HIDDEN},
                                                {FM_AF3_STACK_PAIRFORMER, FM_RECOMPUTE_HIDDEN},
                                                {FM_AF3_STACK_TEMPLATE, FM_RECOMPUTE_PROJECTIONS},
                                                {FM_AF3_STACK_MSA, FM_RECOMPUTE_PROJECTIONS},
                                                {FM_AF3_STACK_PAIRFORMER, FM_RECOMPUTE_PROJECTIONS},
                                                {FM_AF3_STACK_TEMPLATE, FM_RECOMPUTE_OPERANDS},
                                                {FM_AF3_STACK_MSA, FM_RECOMPUTE_OPERANDS},
                                                {FM_AF3_STACK_PAIRFORMER, FM_RECOMPUTE_OPERANDS},
                                                {FM_AF3_STACK_ATOM, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_DIFFUSION, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_TEMPLATE, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_PAIRFORMER, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_MSA, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_INPUT, FM_RECOMPUTE_BLOCK},
                                                {FM_AF3_STACK_CONFIDENCE, FM_RECOMPUTE_HIDDEN},
                                                {FM_AF3_STACK_CONFIDENCE, FM_RECOMPUTE_PROJECTIONS},
                                                {FM_AF3_STACK_CONFIDENCE, FM_RECOMPUTE_BLOCK}};
    static_assert((int)FM_AF3_STACKS <= (int)FM_RECOMPUTE_STACKS, "an order has all stacks");
    return (fm_recompute_order){.n_block = {[FM_AF3_STACK_TEMPLATE] = config->n_template_block,
                                            [FM_AF3_STACK_MSA] = config->n_msa_block,
                                            [FM_AF3_STACK_PAIRFORMER] = config->n_pairformer_block,
                                            [FM_AF3_STACK_INPUT] = config->n_input_atom_block,
                                            [FM_AF3_STACK_ATOM] = 2 * config->n_atom_block,
                                            [FM_AF3_STACK_DIFFUSION] = config->n_diffusion_block,
                                            [FM_AF3_STACK_CONFIDENCE] = config->n_confidence_block},
                                .stage = stages,
                                .n_stage = sizeof stages / sizeof stages[0]};
}

/* The policy of block `index` of a stack. */
static inline fm_recompute_policy fm_af3_config_policy(const fm_af3_config *config, int32_t stack,
                                                       int32_t index) {
    if (config->recompute != FM_RECOMPUTE_AUTO) return config->recompute;
    const fm_recompute_order order = fm_af3_config_order(config);
    return fm_recompute_order_policy(&order, config->recompute_steps, stack, index);
}

#endif
