/* slot_linear.h: applies one linear layer per slot of a token to the same input. Atom k of a
 * residue uses matrix k (AF3-31).
 *
 *     y_kn = x_n W_k           W [n_slot, c, c_out], not transposed */
#ifndef FM_TRAINER_SLOT_LINEAR_H
#define FM_TRAINER_SLOT_LINEAR_H

#include "trainer/autograd/tape.h"

/* x [n, c]. Returns y [n_slot * n, c_out], slot by slot. */
fm_tensor_ref fm_op_slot_linear(fm_tape *tape, const char *name, fm_tensor_ref x, fm_param_ref w,
                                int64_t n_slot, int64_t c_out);

#endif
