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

/* What a conditioning signal gives an AdaLN, both [.., c]. */
typedef struct fm_adaln_signal {
    fm_tensor_ref gate; /* the argument of the gate's sigmoid */
    fm_tensor_ref shift;
} fm_adaln_signal;

/* The same with gate and shift given. Neither it nor the next one has a gradient. */
fm_tensor_ref fm_op_adaln_given(fm_tape *tape, const char *name, fm_tensor_ref a,
                                fm_adaln_signal signal);

/* Returns a + sigmoid(end) update, with which a sublayer ends, and in *ret_y the AdaLN of it, with
 * which the next one begins. update has the shape of a, and end that of the signal. */
fm_tensor_ref fm_op_adaln_after(fm_tape *tape, const char *name, fm_tensor_ref a,
                                fm_tensor_ref update, fm_tensor_ref end, fm_adaln_signal signal,
                                fm_tensor_ref *ret_y);

#endif
