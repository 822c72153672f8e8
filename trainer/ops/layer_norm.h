/* layer_norm.h: LayerNorm as a node, in the three kinds of AlphaFold 3.
 *
 *     wide    y = hat(x) * gamma + beta      weights [2, c]
 *     scale   y = hat(x) * gamma             weights [c]
 *     plain   y = hat(x)                     no weights
 *
 * Backward makes the statistics of each row again from x, so the node saves nothing. */
#ifndef FM_TRAINER_LAYER_NORM_H
#define FM_TRAINER_LAYER_NORM_H

#include "trainer/autograd/tape.h"

typedef enum fm_norm_kind { FM_NORM_WIDE, FM_NORM_SCALE, FM_NORM_PLAIN } fm_norm_kind;

/* x [.., c]. weights: FM_PARAM_NONE for plain. Returns y, of the shape of x. */
fm_tensor_ref fm_op_layer_norm(fm_tape *tape, const char *name, fm_tensor_ref x,
                               fm_param_ref weights, fm_norm_kind kind);

#endif
