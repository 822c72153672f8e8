/* cast.h: a tensor of one kernel table of a tape to the other, where an island begins or ends. */
#ifndef FM_TRAINER_CAST_H
#define FM_TRAINER_CAST_H

#include "trainer/autograd/tape.h"

/* x, any shape, in the act type of what is recorded now (autograd/tape.h, islands); its gradient
 * goes back in x's own type. x itself where that is its type already, or FM_TENSOR_NONE. */
fm_tensor_ref fm_op_cast(fm_tape *tape, const char *name, fm_tensor_ref x);

#endif
