/* binned.h: the shared part of the losses of heads over classes of a measured quantity (pLDDT,
 * aligned error). Forward makes the target classes and weights; the loss is the weighted mean of
 * the cross entropy of the logits, which are input 0. The classes have no gradient. */
#ifndef FM_TRAINER_LOSS_BINNED_H
#define FM_TRAINER_LOSS_BINNED_H

#include "trainer/autograd/tape.h"

/* The first member of the attributes of such an op. */
typedef struct fm_binned {
    int64_t rows; /* rows that are scored */
    int32_t n_bin;
    double eps; /* added to the sum of the weights */
} fm_binned;

/* The saved tensors that forward must fill: classes i32 [rows], weights act [rows]. */
enum { FM_BINNED_TARGET, FM_BINNED_WEIGHT };

/* Completes the node; logits [.., n_bin] must be input 0 already. Returns the loss, acc [1]. */
fm_tensor_ref fm_binned_record(fm_tape *tape, fm_node *node);

/* Completes forward; the classes and weights must have been filled. */
void fm_binned_forward(fm_run *run, const fm_node *node);

/* The whole of backward. */
void fm_binned_backward(fm_run *run, const fm_node *node);

#endif
