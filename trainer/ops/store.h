/* store.h: copies the leading elements of a tensor to a tensor of the state, for the next recycling
 * cycle. */
#ifndef FM_TRAINER_STORE_H
#define FM_TRAINER_STORE_H

#include "trainer/autograd/tape.h"

/* to = x[0 .. count of `to`), both act; `to` is a tensor of the state. There is no gradient. */
void fm_op_store(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref to);

#endif
