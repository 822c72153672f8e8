/* modulate.h: a conditioning signal scales and moves activations:
 *
 *     y = x0 (+) sigmoid(g) * x + shift
 *
 * With x = LayerNorm(a) and a shift it ends AdaLN (AF3-26). With a residual and without a shift it
 * is the gate that ends the conditioned sublayers (AF3-24, AF3-25). Several samples, [S, .., c],
 * may share one g and shift [.., c], whose gradients are then summed over the samples. */
#ifndef FM_TRAINER_MODULATE_H
#define FM_TRAINER_MODULATE_H

#include "trainer/autograd/tape.h"

/* g is [.., c], and x [.., c] with a multiple of the rows of g. shift has the shape of g, and
 * residual that of x; either may be FM_TENSOR_NONE. Returns y, of the shape of x. */
fm_tensor_ref fm_op_modulate(fm_tape *tape, const char *name, fm_tensor_ref g, fm_tensor_ref x,
                             fm_tensor_ref shift, fm_tensor_ref residual);

#endif
