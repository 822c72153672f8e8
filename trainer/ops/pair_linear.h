/* pair_linear.h: a linear layer of normalised pairs, line by line: for tapes without gradient that
 * work in slabs (fm_tape.chunk_bytes).
 *
 *     y_ij = W LayerNorm(f_ij) + b
 *     f_ij = x_ij,  or x_ij + x_ji,  or x_ij with the encoding of the relative position of ij
 *
 * Whole, f and its norm would exist beside x and y, each in the type of the current table: at 5,120
 * tokens 12 to 25 GiB of f32. */
#ifndef FM_TRAINER_PAIR_LINEAR_H
#define FM_TRAINER_PAIR_LINEAR_H

#include "trainer/ops/layer_norm.h"
#include "trainer/ops/linear.h"

typedef struct fm_pair_linear {
    fm_param_ref norm;
    fm_norm_kind kind;
    bool is_symmetric;             /* f is x_ij + x_ji; x is then whole */
    fm_tensor_ref positions;       /* u8 [4, n, n] (relative_position.h); FM_TENSOR_NONE: none */
    fm_param_ref position_weights; /* [c, 139]: their encoding has as many channels as x */
} fm_pair_linear;

/* x [n, n, c] is of the act type of the current table or of that of the tape's other table; it may
 * be a rank's rows. Returns y [n, n, c_out] in the current one, split as x is. */
fm_tensor_ref fm_op_pair_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                                const fm_pair_linear *features, const fm_linear_weights *weights);

#endif
