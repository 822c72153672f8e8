/* update_norm.h: the end of one sublayer together with the LayerNorm of the sublayer that reads its
 * result next:
 *
 *     y = x + dropout(update),   n = LayerNorm(y)
 *
 * It is one pass over memory in each direction. The next sublayer is recorded on n, with its own
 * norm weights absent (FM_PARAM_NONE). n is kept; backward computes the mean and deviation of y
 * again from y. */
#ifndef FM_TRAINER_UPDATE_NORM_H
#define FM_TRAINER_UPDATE_NORM_H

#include "trainer/autograd/tape.h"

/* A value x of a residual stream, and n, its LayerNorm for the sublayer that reads it next; n
 * FM_TENSOR_NONE: that sublayer normalises x itself. */
typedef struct fm_normed {
    fm_tensor_ref x, n;
} fm_normed;

/* Returns the input of a sublayer. */
static inline fm_tensor_ref fm_normed_input(const fm_normed *of) {
    return of->n != FM_TENSOR_NONE ? of->n : of->x;
}

/* Adds the node. x and update [n0, n1, c]. update must be the output of the node recorded last,
 * which has neither residual nor dropout; the mask is drawn by the number of that node. norm [2, c]
 * is that of the next sublayer; FM_PARAM_NONE: no n. */
fm_normed fm_op_update_norm(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref update,
                            double dropout, fm_shared_axis shared, fm_param_ref norm);

#endif
