/* concat.h: tensors side by side along the last axis. */
#ifndef FM_TRAINER_CONCAT_H
#define FM_TRAINER_CONCAT_H

#include "trainer/autograd/tape.h"

/* parts[0 .. n_part-1], [.., c_i] with equal leading axes. Returns [.., sum of c_i]. */
fm_tensor_ref fm_op_concat(fm_tape *tape, const char *name, const fm_tensor_ref *parts, int n_part);

#endif
