/* af3_keep.h: a CPU kernel table whose dropout uses given masks instead of drawn ones.
 *
 * The number of a node's draw, from 0, chooses its mask. A mask has the elements that the dropout
 * shares: [1, n1, c] or [n0, 1, c]. Sublayers that are one entry of the table are composed of its
 * other entries, and so reach this dropout too. */
#ifndef FM_TESTS_TRAINER_AF3_KEEP_H
#define FM_TESTS_TRAINER_AF3_KEEP_H

#include "trainer/backend/kernels.h"

enum { AF3_KEEP_MASKS = 8 };

/* Returns a table like `kernels`. mask[i] has the 0s and 1s of draw i; they must outlive the table,
 * which is the only one of its kind in the process. */
const fm_kernels *af3_keep_table(const fm_kernels *kernels, const double *const *mask, int n_mask);

#endif
