/* arithmetic.h: nodes for sums and other simple functions of whole tensors. Modules without a fused
 * sublayer are composed of them.
 *
 * No node overwrites its inputs, on any tape. */
#ifndef FM_TRAINER_ARITHMETIC_H
#define FM_TRAINER_ARITHMETIC_H

#include "trainer/autograd/tape.h"

/* Returns a + b. b has the shape of a, or that of its last axes, where leading axes of 1 do not
 * count; it is then added to each of the leading slices. */
fm_tensor_ref fm_op_add(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref b);

/* Returns max(x, 0). */
fm_tensor_ref fm_op_relu(fm_tape *tape, const char *name, fm_tensor_ref x);

/* Returns min(max(x, -limit), limit). It has no gradient. */
fm_tensor_ref fm_op_clip(fm_tape *tape, const char *name, fm_tensor_ref x, double limit);

/* x [n, n, c]. Returns x_ij + x_ji. */
fm_tensor_ref fm_op_symmetrise(fm_tape *tape, const char *name, fm_tensor_ref x);

/* x [n, ...]. Returns the sum over the first axis times `scale`, [...]; if x is split over ranks
 * along that axis, the sum of this rank's part. */
fm_tensor_ref fm_op_sum_groups(fm_tape *tape, const char *name, fm_tensor_ref x, double scale);

/* a and b [n, c], or both [1, n, c]. Returns z_ij = a_i + b_j, [n, n, c]. If a is split over ranks
 * along n, the rows of z are. */
fm_tensor_ref fm_op_outer_sum(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref b);

#endif
