/* reshape.h: copies a tensor and adds or removes a leading axis of one sample. The copy may be
 * updated in place without changing the original. */
#ifndef FM_TRAINER_RESHAPE_H
#define FM_TRAINER_RESHAPE_H

#include "trainer/autograd/tape.h"

/* x [..]; returns [1, ..]. */
fm_tensor_ref fm_op_lift(fm_tape *tape, const char *name, fm_tensor_ref x);
/* x [1, ..]; returns [..]. */
fm_tensor_ref fm_op_lower(fm_tape *tape, const char *name, fm_tensor_ref x);

#endif
