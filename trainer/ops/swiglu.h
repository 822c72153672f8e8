/* swiglu.h: computes swish(a) * b from the two halves of a row, the middle of the conditioned
 * transition (AF3-25). The transition without conditioning is one fused node (swiglu_transition.h).
 */
#ifndef FM_TRAINER_SWIGLU_H
#define FM_TRAINER_SWIGLU_H

#include "trainer/autograd/tape.h"

/* x [.., 2 hidden]: a, then b. Returns [.., hidden]. */
fm_tensor_ref fm_op_swiglu(fm_tape *tape, const char *name, fm_tensor_ref x);

#endif
