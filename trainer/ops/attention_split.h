/* attention_split.h: an attention sublayer with bias (attention.h) in several nodes, for arrays
 * that are split over ranks along the axis that is not attended:
 *
 *     bias      b = Linear(LayerNorm(z)) of this rank's part of z; the caller gathers it
 *     project   q k v g = Linear(LayerNorm(x)); a triangle attention makes its bias in the same
 *               node, unless it was made before z changed its split axis
 *     core      o = sigmoid(g) * attention(q, k, v, gathered bias)
 *     update    y = x + dropout(W_o o + b_o), by linear_update.h
 *
 * If a norm is FM_PARAM_NONE, z or x is already normalised. The numbers and the draws equal those
 * of the single node. */
#ifndef FM_TRAINER_ATTENTION_SPLIT_H
#define FM_TRAINER_ATTENTION_SPLIT_H

#include "trainer/ops/attention.h"

/* Returns the bias [N_res, N_res, N_head] of this rank's part of z [N_res, N_res, c_z], split as z
 * is, along either axis. */
fm_tensor_ref fm_op_attention_bias(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref z,
                                   const fm_attention_weights *weights);

/* Returns q k v g, [n0, n1, 4 N_head c_head], split as x is. ret_bias: also the bias of x, as
 * above; NULL: not made. */
fm_tensor_ref fm_op_attention_project(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_attention_weights *weights, fm_tensor_ref *ret_bias);

/* bias [N_res, N_res, N_head] as z has it; the mask, or FM_TENSOR_NONE, is split as x is. Returns
 * sigmoid(g) * softmax(..) v, [n0, n1, N_head c_head], which fm_op_linear_update then projects and
 * adds to x; x only gives the shape here. The node draws for the dropout of that update. Saved: the
 * log-sum-exp of the rows. */
fm_tensor_ref fm_op_attention_core(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref x,
                                   fm_tensor_ref qkvg, fm_tensor_ref mask, fm_tensor_ref bias,
                                   const fm_attention_weights *weights);

#endif
