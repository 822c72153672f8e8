/* window_attention.h: gated attention of atoms in windows of 32 queries and 128 keys (AF3-7), as
 * one node. Several samples share the pair bias:
 *
 *     u = W_o (sigmoid(g) * softmax(q k^T / sqrt(c) + b) v)
 *
 * q and g are linear in x, and k and v in y. Keys outside the atoms have weight 0. The gradient of
 * b is summed over the samples.
 *
 * Forward reads overlapping windows of k and v in place, by strides. Backward copies the windows,
 * because a key is part of four windows and each needs space for its gradient. */
#ifndef FM_TRAINER_WINDOW_ATTENTION_H
#define FM_TRAINER_WINDOW_ATTENTION_H

#include "trainer/autograd/tape.h"

typedef struct fm_window_attention_weights {
    fm_param_ref qkvg, q_bias, out; /* [4 N_head c_head, c], [N_head c_head], [c, N_head c_head] */
    int64_t n_head, c_head;
} fm_window_attention_weights;

/* x, y [S, n_atom, c]; bias [n_window, 32, 128, N_head]; mask act [n_atom], 0 for padding. Returns
 * u [S, n_atom, c]. */
fm_tensor_ref fm_op_window_attention(fm_tape *tape, const char *name, fm_tensor_ref x,
                                     fm_tensor_ref y, fm_tensor_ref bias, fm_tensor_ref mask,
                                     const fm_window_attention_weights *weights);

#endif
