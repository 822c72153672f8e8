/* widen.h: a LayerNorm or a linear layer of a tensor of either kernel table, slab by slab.
 *
 * An island (autograd/tape.h) reads z in f32. Cast whole, z would exist twice, once in each type:
 * 32 GiB of bf16 and f32 at 6,600 residues. These nodes cast a slab of rows at a time into the
 * workspace. They have no gradient, and are for tapes that work slab by slab. */
#ifndef FM_TRAINER_WIDEN_H
#define FM_TRAINER_WIDEN_H

#include "trainer/ops/linear.h"

/* y = LayerNorm(x) over the last axis, in the act type of the current table. x is of this type or
 * of that of the tape's other table; y is split as x is. A slab has tape->chunk_bytes. */
fm_tensor_ref fm_op_widen_norm(fm_tape *tape, const char *name, fm_tensor_ref x,
                               fm_param_ref weights);

/* The same for y = x W^T + b: y has the leading axes of x, [.., c_out]. */
fm_tensor_ref fm_op_widen_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                                 const fm_linear_weights *weights);

#endif
