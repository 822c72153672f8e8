/* scale_groups.h: y[s, ..] = factor[s] * x[s, ..]: one factor for each sample, in device memory. */
#ifndef FM_TRAINER_SCALE_GROUPS_H
#define FM_TRAINER_SCALE_GROUPS_H

#include "trainer/autograd/tape.h"

/* x [S, ..]; factor act [S], without a gradient. */
fm_tensor_ref fm_op_scale_groups(fm_tape *tape, const char *name, fm_tensor_ref x,
                                 fm_tensor_ref factor);

#endif
