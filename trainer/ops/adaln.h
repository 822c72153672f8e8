/* adaln.h: AdaLN (AF3-26): a LayerNorm whose scale and shift come from a conditioning signal:
 *
 *     n = hat(s) * gamma,   y = sigmoid(gate(n)) * hat(a) + shift(n)
 *
 * hat is LayerNorm without weights. Several samples, [S, .., c], may share one s [.., c_s]. Saved:
 * the gate's argument; backward makes n again. */
#ifndef FM_TRAINER_ADALN_H
#define FM_TRAINER_ADALN_H

#include "trainer/ops/linear.h"

typedef struct fm_adaln_weights {
    fm_param_ref norm_s;           /* [c_s]: gamma */
    fm_linear_weights gate, shift; /* [c, c_s]; only the gate has a bias */
} fm_adaln_weights;

/* a is [.., c], with a multiple of the rows of s [.., c_s]. Returns y, of the shape of a. */
fm_tensor_ref fm_op_adaln(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref s,
                          const fm_adaln_weights *weights);

/* The same with the gate's argument and the shift given, both [.., c]. It has no gradient. */
fm_tensor_ref fm_op_adaln_given(fm_tape *tape, const char *name, fm_tensor_ref a,
                                fm_tensor_ref gate, fm_tensor_ref shift);

#endif
