/* update_norm.h: the end of one sublayer together with the LayerNorm that the next one begins with:
 *
 *     y = x + dropout(update),   n = LayerNorm(y)
 *
 * one pass over memory each way; the next sublayer is recorded on n, with its own norm's weights
 * absent (FM_PARAM_NONE). Backward makes y's mean and deviation again from y; n is kept. */
#ifndef FM_TRAINER_UPDATE_NORM_H
#define FM_TRAINER_UPDATE_NORM_H

#include "trainer/autograd/tape.h"

/* A value of a residual stream, and what LayerNorm makes of it for the sublayer that reads it next;
 * n FM_TENSOR_NONE: the sublayer normalises x itself. */
typedef struct fm_normed {
    fm_tensor_ref x, n;
} fm_normed;

/* What a sublayer reads. */
static inline fm_tensor_ref fm_normed_input(const fm_normed *of) {
    return of->n != FM_TENSOR_NONE ? of->n : of->x;
}

/* Adds the node. x and update [n0, n1, c]; update is the output of the node recorded last, which
 * has neither residual nor dropout: the mask is drawn by that node's number. norm [2, c] of the
 * next sublayer, FM_PARAM_NONE: no n. */
fm_normed fm_op_update_norm(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref update,
                            double dropout, fm_shared_axis shared, fm_param_ref norm);

#endif
