/* global_attention.h: global column attention of the extra MSA (A19).
 *
 *     x_i   = mean over unmasked s of LayerNorm(m_si)
 *     q_i^h = W_q x_i,   k_si, v_si = W LayerNorm(m_si)  (one key and one value for all heads)
 *     o_i^h = softmax_s(q_i^h k_si / sqrt(c) + mask) v_si
 *     m_si += W_o concat_h(sigmoid(g_si^h) * o_i^h) + b_o
 *
 * There is one query per column, so the cost is linear in N_seq, which is in the thousands. m
 * [N_seq, N_res, c], mask [N_seq, N_res]; every rank has all of N_seq. There is no dropout. Saved:
 * k v g, kept or recomputed as the caller says; q, o, log-sum-exp. */
#ifndef FM_TRAINER_GLOBAL_ATTENTION_H
#define FM_TRAINER_GLOBAL_ATTENTION_H

#include "trainer/autograd/tape.h"

typedef struct fm_global_attention_weights {
    fm_param_ref norm;          /* [2, c] */
    fm_param_ref q;             /* [N_head * c_head, c] */
    fm_param_ref kvg;           /* [2 * c_head + N_head * c_head, c] */
    fm_param_ref gate_bias;     /* [N_head * c_head], preceded by 2 c_head zeros */
    fm_param_ref out, out_bias; /* [c, N_head * c_head], [c] */
    int64_t n_head, c_head;
    fm_keep keep_kvg;
} fm_global_attention_weights;

/* Adds the node. Returns the new m, or the bare update when !residual. */
fm_tensor_ref fm_op_global_attention(fm_tape *tape, const char *name, fm_tensor_ref m,
                                     fm_tensor_ref mask, const fm_global_attention_weights *weights,
                                     bool residual);

#endif
