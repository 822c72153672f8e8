/* linear.h: a linear layer over the leading rows of a tensor: y = x[0 .. n_row-1] W^T + b.
 *
 * The single representation is such a layer on the first row of the MSA (A2:13 s_i = Linear(m_1i)).
 * Heads are linear layers, too, inside their losses (trainer/loss). */
#ifndef FM_TRAINER_LINEAR_H
#define FM_TRAINER_LINEAR_H

#include "trainer/autograd/tape.h"

typedef struct fm_linear_weights {
    fm_param_ref w, b; /* [c_out, c_in], [c_out] */
    int64_t c_out;
} fm_linear_weights;

/* Applies the layer to every row: y has the leading axes of x, [.., c_out], and is split as x is.
 */
fm_tensor_ref fm_op_linear_all(fm_tape *tape, const char *name, fm_tensor_ref x,
                               const fm_linear_weights *weights);

/* Applies the layer to one of the slices of x [n, .., c_in], on a tape without gradient: y has the
 * other axes of x, [.., c_out]. */
fm_tensor_ref fm_op_linear_slice(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t slice,
                                 const fm_linear_weights *weights);

/* Adds the node. x [.., c_in]; y [n_row, c_out], n_row <= the rows of x. Where x [.., N, c_in] is
 * split along N, n_row is this rank's part of N: y is [N, c_out], split along axis 0. */
fm_tensor_ref fm_op_linear(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t n_row,
                           const fm_linear_weights *weights);

/* Stores fm_op_linear_all in a tensor of the state with as many elements. It has no gradient. */
void fm_op_store_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                        const fm_linear_weights *weights, fm_tensor_ref to);

#endif
