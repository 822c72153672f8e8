/* cast.h: casts a tensor from one kernel table of a tape to the other, where an island begins or
 * ends. */
#ifndef FM_TRAINER_CAST_H
#define FM_TRAINER_CAST_H

#include "trainer/autograd/tape.h"

/* Returns x, of any shape, in the act type of the current table (autograd/tape.h, islands); its
 * gradient goes back in x's own type. Returns x itself where it has that type already, or is
 * FM_TENSOR_NONE. */
fm_tensor_ref fm_op_cast(fm_tape *tape, const char *name, fm_tensor_ref x);

/* Returns the table from which tensors are cast: the main one inside an island, else the wide one.
 * NULL: there is no wide one. */
const fm_kernels *fm_cast_source(const fm_tape *tape);

#endif
