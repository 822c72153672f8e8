/* blocks.h: the blocks of AlphaFold 3's trunk: Pairformer (17), MSA module (8) and template pair
 * stack (16), and their parameters.
 *
 * Each block is a list of sublayers (model/sublayer.h). All three share the five sublayers that
 * update the pairs. The single representation is [1, N, c_s]. */
#ifndef FM_TRAINER_AF3_BLOCKS_H
#define FM_TRAINER_AF3_BLOCKS_H

#include "trainer/model/af3/config.h"
#include "trainer/model/af3/params.h"
#include "trainer/ops/swiglu_transition.h"
#include "trainer/ops/weighted_averaging.h"

/* The weights of one block. Each of the three stacks uses some of the fields. */
typedef struct fm_af3_block_weights {
    fm_triangle_weights outgoing, incoming;
    fm_attention_weights starting, ending;
    fm_swiglu_transition_weights pair_transition;
    fm_attention_weights single;                    /* Pairformer */
    fm_swiglu_transition_weights single_transition; /* Pairformer */
    fm_outer_weights outer;                         /* MSA module */
    fm_averaging_weights averaging;                 /* MSA module, not in its last block */
    fm_swiglu_transition_weights msa_transition;    /* MSA module, not in its last block */
} fm_af3_block_weights;

/* -- parameters; scopes end in '.' */

/* The SwiGLU transition (11), with the names "layernorm1", "linear_no_bias_a", "linear_no_bias_b"
 * and "linear_no_bias". */
fm_swiglu_transition_weights fm_af3_transition(const fm_scope *scope, int64_t c, int64_t factor);
fm_triangle_weights fm_af3_triangle(const fm_scope *scope, int64_t c_z, int64_t c);
/* Triangle attention. */
fm_attention_weights fm_af3_triangle_attention(const fm_scope *scope, int64_t c_z, int64_t n_head,
                                               int64_t c_head);
/* Attention with pair bias (24), without conditioning. */
fm_attention_weights fm_af3_single_attention(const fm_scope *scope, int64_t c_s, int64_t c_z,
                                             int64_t n_head);
fm_outer_weights fm_af3_outer(const fm_scope *scope, int64_t c_m, int64_t c, int64_t c_z);
fm_averaging_weights fm_af3_averaging(const fm_scope *scope, int64_t c_m, int64_t c_z,
                                      int64_t n_head, int64_t c_head);

fm_af3_block_weights fm_af3_pairformer_weights(const fm_scope *scope, const fm_af3_config *config);
fm_af3_block_weights fm_af3_msa_weights(const fm_scope *scope, const fm_af3_config *config,
                                        bool is_last);
/* A template block has the trunk's hidden sizes. */
fm_af3_block_weights fm_af3_template_weights(const fm_scope *scope, const fm_af3_config *config);

/* -- recording */

/* Tensors that are 1 at tokens and 0 at padding. */
typedef struct fm_af3_masks {
    fm_tensor_ref single; /* act [1, N] */
    fm_tensor_ref pair;   /* act [N, N] */
    fm_tensor_ref msa;    /* act [M, N] */
} fm_af3_masks;

typedef struct fm_af3_pair_of {
    fm_tensor_ref s, z; /* [1, N, c_s] or m [M, N, c_m]; [N, N, c_z] */
} fm_af3_pair_of;

/* The three functions record n_block blocks, each as one segment, with the dropout rates of
 * `config` and its policies of recomputation. `weights` is [n_block]. `stack` is
 * FM_AF3_STACK_PAIRFORMER or FM_AF3_STACK_CONFIDENCE. */
fm_af3_pair_of fm_af3_pairformer(fm_tape *tape, const fm_af3_config *config, int32_t stack,
                                 const fm_af3_block_weights *weights, int32_t n_block,
                                 const fm_af3_masks *masks, fm_af3_pair_of in);
/* in.s is m. With `ends_module` the last of these blocks does not update m, and the returned s is
 * FM_TENSOR_NONE. */
fm_af3_pair_of fm_af3_msa_blocks(fm_tape *tape, const fm_af3_config *config,
                                 const fm_af3_block_weights *weights, int32_t n_block,
                                 bool ends_module, const fm_af3_masks *masks, fm_af3_pair_of in);
/* t [T, N, N, c_template] has all templates, or those of this rank. Each template draws separate
 * dropout masks. Nothing is exchanged. */
fm_tensor_ref fm_af3_template_blocks(fm_tape *tape, const fm_af3_config *config,
                                     const fm_af3_block_weights *weights, int32_t n_block,
                                     fm_tensor_ref pair_mask, fm_tensor_ref t);

#endif
