/* store.h: stores the leading elements of a tensor in a tensor of the state, for the next recycling
 * cycle, or adds them to a sum over several draws of MSA rows. All tensors are act; there is no
 * gradient. */
#ifndef FM_TRAINER_STORE_H
#define FM_TRAINER_STORE_H

#include "trainer/autograd/tape.h"

/* to = x[0 .. count of `to`); `to` is a tensor of the state. */
void fm_op_store(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref to);

/* sum += x[0 .. count of `sum`); `sum` is a tensor of the state. */
void fm_op_store_sum(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref sum);

/* Returns x with the mean of n draws in its leading elements: (sum + x) / n, where `sum` is that of
 * the n - 1 draws before. The other elements of x must not be read any more. */
fm_tensor_ref fm_op_average(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref sum,
                            int32_t n);

#endif
