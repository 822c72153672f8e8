/* weighted_averaging.h: MSA pair-weighted averaging (AF3-10).
 *
 *     m_si += dropout(W_o (sigmoid(g_si) * sum_j softmax_j(b_ij) v_sj))
 *
 * v and g are linear in LayerNorm(m), and b in LayerNorm(z). No layer has a bias. The averaging
 * weights are those of an attention without queries and keys, and are the same for all rows s.
 * Masked j have weight 0. All rows s share one dropout mask. m [N_seq, N, c_m], mask [N_seq, N], z
 * [N, N, c_z]. m may be split along N_seq. Saved: v g, b, the gated averages, the log-sum-exp. */
#ifndef FM_TRAINER_WEIGHTED_AVERAGING_H
#define FM_TRAINER_WEIGHTED_AVERAGING_H

#include "trainer/autograd/tape.h"

typedef struct fm_averaging_weights {
    fm_param_ref norm;   /* [2, c_m] */
    fm_param_ref vg;     /* [2 * N_head * c_head, c_m]: v, then g */
    fm_param_ref norm_z; /* [2, c_z] */
    fm_param_ref bias; /* [N_head, c_z]; FM_PARAM_NONE, as norm_z: z is b itself, [N, N, N_head] */
    fm_param_ref out;  /* [c_m, N_head * c_head] */
    int64_t n_head, c_head;
} fm_averaging_weights;

/* Adds the node. Returns the new m, or the bare update when !residual. */
fm_tensor_ref fm_op_weighted_averaging(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_averaging_weights *weights, bool residual,
                                       double dropout);

#endif
