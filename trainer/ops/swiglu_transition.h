/* swiglu_transition.h: the transition sublayer of AlphaFold 3 (AF3-11).
 *
 *     y = x (+) W2 (swish(a) * b)          a | b = W1 LayerNorm(x), [.., 2 hidden], one projection
 *
 * It has no biases, no mask and no dropout. Inputs [rows..., c]: pair [N, N, c_z] or single [1, N,
 * c_s]; hidden = 4 c in the Pairformer. Saved, kept or recomputed as the caller says: what the
 * kernel needs for backward. That is nothing where one kernel makes the whole sublayer, and else
 * the projection, 8 times the size of x. */
#ifndef FM_TRAINER_SWIGLU_TRANSITION_H
#define FM_TRAINER_SWIGLU_TRANSITION_H

#include "trainer/autograd/tape.h"

typedef struct fm_swiglu_transition_weights {
    fm_param_ref norm;   /* [2, c]: gamma, beta */
    fm_param_ref w1, w2; /* [2 hidden, c]: of a, then of b; [c, hidden] */
    int64_t hidden;
} fm_swiglu_transition_weights;

/* Adds the node. Returns the residual sum y, or the bare update when !residual. */
fm_tensor_ref fm_op_swiglu_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_swiglu_transition_weights *weights, bool residual,
                                      fm_keep keep);

#endif
