/* transition.h: the transition sublayers: MSA transition (A9) and pair transition (A15).
 *
 *     y = x (+) W2 relu(W1 LayerNorm(x) + b1) + b2          hidden = factor * c
 *
 * There is no mask and no dropout. Inputs [rows..., c]: [N_seq, N_res, c_m] or [N_res, N_res, c_z].
 * Saved: the hidden activations, kept or recomputed as the caller says, since they are `factor`
 * times the size of x. A tape without gradients has none. */
#ifndef FM_TRAINER_TRANSITION_H
#define FM_TRAINER_TRANSITION_H

#include "trainer/ops/linear_update.h"

typedef struct fm_transition_weights {
    fm_param_ref norm;           /* [2, c]: gamma, beta; FM_PARAM_NONE: x is normalised already */
    fm_param_ref w1, b1, w2, b2; /* [hidden, c], [hidden], [c, hidden], [c] */
    int64_t hidden;
} fm_transition_weights;

/* Adds the node. Returns the residual sum y, or the bare update when !residual. */
fm_tensor_ref fm_op_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                               const fm_transition_weights *weights, bool residual,
                               fm_keep keep_hidden);

/* The same with the residual and the LayerNorm of the sublayer that reads y next, in one node. The
 * transition reads x.n where there is one; weights->norm is then FM_PARAM_NONE. next [2, c];
 * FM_PARAM_NONE: no n. later: the same of the sublayer that reads y after that one. */
fm_normed fm_op_transition_update(fm_tape *tape, const char *name, fm_normed x,
                                  const fm_transition_weights *weights, fm_keep keep_hidden,
                                  fm_param_ref next, fm_param_ref later);

#endif
