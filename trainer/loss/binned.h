/* binned.h: what the losses of heads over classes of a measured quantity share (pLDDT, aligned
 * error): forward makes target classes and weights, and the loss is the weighted mean of the cross
 * entropy of the logits, which are input 0. Classes have no gradient. */
#ifndef FM_TRAINER_LOSS_BINNED_H
#define FM_TRAINER_LOSS_BINNED_H

#include "trainer/autograd/tape.h"

/* The first member of such an op's attributes. */
typedef struct fm_binned {
    int64_t rows; /* scored */
    int32_t n_bin;
    double eps; /* beside the sum of the weights */
} fm_binned;

/* Saved tensors that forward fills: classes i32 [rows], weights act [rows]. */
enum { FM_BINNED_TARGET, FM_BINNED_WEIGHT };

/* Ends the recording: logits [.., n_bin] must be input 0 already. Returns the loss, acc [1]. */
fm_tensor_ref fm_binned_record(fm_tape *tape, fm_node *node);

/* Ends forward, once classes and weights are there. */
void fm_binned_forward(fm_run *run, const fm_node *node);

/* The whole of backward. */
void fm_binned_backward(fm_run *run, const fm_node *node);

#endif
