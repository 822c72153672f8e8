/* linear_update.h: the last linear layer of a sublayer, the end of the sublayer, and the LayerNorm
 * of the sublayer that reads its result next, in one node:
 *
 *     y = x + dropout(from W^T + bias),   n = LayerNorm(y)
 *
 * The next sublayer is recorded on n, with its own norm weights absent (FM_PARAM_NONE). n is kept,
 * or made again of y; backward computes the mean and deviation of y again from y. */
#ifndef FM_TRAINER_LINEAR_UPDATE_H
#define FM_TRAINER_LINEAR_UPDATE_H

#include "trainer/ops/call.h"

/* A value x of a residual stream, and n, its LayerNorm for the sublayer that reads it next; n
 * FM_TENSOR_NONE: that sublayer normalises x itself. `later` is the same for the sublayer that
 * reads x after that one, where the first does not change x. */
typedef struct fm_normed {
    fm_tensor_ref x, n, later;
} fm_normed;

static inline fm_normed fm_not_normed(fm_tensor_ref x) {
    return (fm_normed){x, FM_TENSOR_NONE, FM_TENSOR_NONE};
}

/* Returns the value for its next reader, when one has read it. */
static inline fm_normed fm_normed_read(fm_normed of) {
    return (fm_normed){of.x, of.later, FM_TENSOR_NONE};
}

/* Returns the input of a sublayer. */
static inline fm_tensor_ref fm_normed_input(const fm_normed *of) {
    return of->n != FM_TENSOR_NONE ? of->n : of->x;
}

typedef struct fm_linear_update_weights {
    fm_param_ref w, bias; /* [c, c_in], [c]; bias FM_PARAM_NONE: none */
    fm_param_ref next;    /* [2, c]: the norm of the next sublayer; FM_PARAM_NONE: no n */
    /* Backward gives the node of `from` the gradient of the update in place of that of `from`, and
     * that node multiplies it by w (fm_attention_opens). Needs dropout and c_in = c. */
    bool passes_update;
} fm_linear_update_weights;

/* Adds the node. x [n0, n1, c] or [n_group, n0, n1, c], from [.., c_in]. `from` must be the output
 * of the node recorded last, which has neither residual nor dropout; the mask is drawn by the
 * number of that node. */
fm_normed fm_op_linear_update(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref from,
                              const fm_linear_update_weights *weights, double dropout,
                              fm_shared_axis shared);

/* -- the end of a node */

/* For nodes with input 0 x, output 0 y = x + dropout(update), and output 1 n, if they have one.
 * Adds the outputs: n only with `next`, which is then the node's last parameter. */
fm_normed fm_update_end_outputs(fm_tape *tape, fm_node *node, fm_param_ref next);
/* Prepares the gradient of x in a node that adds nothing to it: where it has a separate buffer and
 * no earlier writer, it starts at 0, and the tape adds the residual's gradient. */
void fm_update_end_begin_residual(fm_run *run, const fm_node *node, const fm_update *update);

#endif
