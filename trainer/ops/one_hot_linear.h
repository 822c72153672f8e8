/* one_hot_linear.h: a linear layer without bias on one-hot features. The features are given by
 * their classes, so each result is a column of W. */
#ifndef FM_TRAINER_ONE_HOT_LINEAR_H
#define FM_TRAINER_ONE_HOT_LINEAR_H

#include "trainer/ops/linear.h"

/* classes u8 [..]; a class that is not below n_class gives zeros. w [c_out, n_class]. Returns
 * [.., c_out], split as the classes are. */
fm_tensor_ref fm_op_one_hot_linear(fm_tape *tape, const char *name, fm_tensor_ref classes,
                                   int64_t n_class, const fm_linear_weights *weights);

#endif
