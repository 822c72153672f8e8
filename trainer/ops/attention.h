/* attention.h: the gated self-attention sublayers of the Evoformer and of the Pairformer, over one
 * axis of a 2-D array.
 *
 *     row       MSA row attention with pair bias (A7): along residues, bias from the pair array
 *     column    MSA column attention (A8): along sequences
 *     starting  triangle attention around the starting node (A13): along j of z[i, j]
 *     ending    triangle attention around the ending node (A14): along i of z[i, j]
 *
 *     y = x + dropout(W_o (sigmoid(g) * softmax(q k^T / sqrt(c) + b + mask) v) + b_o)
 *
 * q k v g are linear in LayerNorm(x), made by one fused projection. b is linear in LayerNorm(z), or
 * in LayerNorm(x) for the triangles. Masked keys get -1e9. Dropout shares its mask over axis 0
 * (row, starting) or axis 1 (ending); columns have none.
 *
 * In the Pairformer, `row` is attention with pair bias without conditioning (AF3-24). There x is
 * the single representation as the only row of [1, N, c_s], q has a bias, and the gate and the
 * output have none. `starting` and `ending` (AF3's 14 and 15) have no biases.
 *
 * x [n0, n1, c]: [N_seq, N_res, c_m] or [N_res, N_res, c_z]; mask [n0, n1]; z [N_res, N_res,
 * c_z]. `starting` and `ending` also take several pair arrays with one mask, [n_group, N_res,
 * N_res, c_z]. Saved: q k v g, the gated output, the log-sum-exp of the rows, the bias. q k v g are
 * kept or recomputed as the caller says, since they are four times as large as the output. */
#ifndef FM_TRAINER_ATTENTION_H
#define FM_TRAINER_ATTENTION_H

#include "trainer/autograd/tape.h"

typedef enum fm_axial {
    FM_AXIAL_ROW,
    FM_AXIAL_COLUMN,
    FM_AXIAL_STARTING,
    FM_AXIAL_ENDING
} fm_axial;

typedef struct fm_attention_weights {
    fm_param_ref norm; /* [2, c]; FM_PARAM_NONE: x is normalised already */
    fm_param_ref qkvg; /* [4 * N_head * c_head, c] */
    /* [N_head * c_head] behind 3 * N_head * c_head zeros, or FM_PARAM_NONE. */
    fm_param_ref gate_bias;
    fm_param_ref q_bias;        /* [N_head * c_head] or FM_PARAM_NONE; the Evoformer has none */
    fm_param_ref out, out_bias; /* [c, N_head * c_head], [c]; or FM_PARAM_NONE, see below */
    fm_param_ref bias;          /* [N_head, c_z]; FM_PARAM_NONE in columns */
    fm_param_ref norm_z;        /* [2, c_z]; row only; FM_PARAM_NONE: z is normalised already */
    int64_t n_head, c_head;
    /* `out` belongs to the node behind this one, whose backward passes on the gradient of its
     * update and not that of the gated values (fm_attention_opens). */
    bool opens;
    fm_keep keep_qkvg; /* of fm_op_attention: q k v g are kept for backward, or computed again */
} fm_attention_weights;

/* Whether the backward of such an attention of x can itself multiply the gradient of the update
 * [.., c] by the projection, which saves an array. */
bool fm_attention_opens(const fm_tape *tape, fm_axial axial, fm_tensor_ref x,
                        const fm_attention_weights *weights);

/* Adds the node; z is FM_TENSOR_NONE except for rows. Returns y, or the bare update when !residual.
 * Without `out`, or if it `opens`, it returns sigmoid(g) * softmax(..) v, [.., N_head * c_head],
 * which fm_op_linear_update then projects. */
fm_tensor_ref fm_op_attention(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref x,
                              fm_tensor_ref mask, fm_tensor_ref z,
                              const fm_attention_weights *weights, bool residual, double dropout);

/* The same for tapes without gradient that work slab by slab (fm_tape.chunk_bytes). One node does
 * everything from LayerNorm to residual on x [n0, n1, c]. q has no bias. Returns y. On arrays that
 * are split over ranks, `bias` [N_res, N_res, N_head] is that of fm_op_attention_bias, gathered,
 * and z is FM_TENSOR_NONE; otherwise `bias` is FM_TENSOR_NONE. */
fm_tensor_ref fm_op_attention_chunked(fm_tape *tape, const char *name, fm_axial axial,
                                      fm_tensor_ref x, fm_tensor_ref mask, fm_tensor_ref z,
                                      fm_tensor_ref bias, const fm_attention_weights *weights,
                                      double dropout);

#endif
