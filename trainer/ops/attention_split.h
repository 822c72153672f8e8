/* attention_split.h: an attention sublayer with bias (attention.h) in three nodes, for arrays that
 * are split over ranks along the axis that is not attended:
 *
 *     bias      b = Linear(LayerNorm(x)) of this rank's part, by query      -> gathered by the
 * caller project   q k v g = Linear(LayerNorm(x))                              while that is under
 * way core      y = x + dropout(W_o (gate * attention(q, k, v, gathered bias)) + b_o)
 *
 * The same numbers as the one node gives, and the same draws. */
#ifndef FM_TRAINER_ATTENTION_SPLIT_H
#define FM_TRAINER_ATTENTION_SPLIT_H

#include "trainer/ops/attention.h"

/* This rank's queries of the bias: [N_res/D, N_res, N_head] by query and key. From z
 * [N_res/D, N_res, c_z] for rows and starting nodes, from [N_res, N_res/D, c_z] for ending nodes.
 */
fm_tensor_ref fm_op_attention_bias(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref z,
                                   const fm_attention_weights *weights);

/* [n0, n1, 4 N_head c_head], split as x is. */
fm_tensor_ref fm_op_attention_project(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_attention_weights *weights);

/* bias [N_res, N_res, N_head] by query and key; mask as x is split. Returns the new x. Saved: the
 * gated output and the rows' log-sum-exp. */
fm_tensor_ref fm_op_attention_core(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref x,
                                   fm_tensor_ref qkvg, fm_tensor_ref mask, fm_tensor_ref bias,
                                   const fm_attention_weights *weights, double dropout);

#endif
