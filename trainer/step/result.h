/* result.h: what a step of either network says about one sample. */
#ifndef FM_TRAINER_STEP_RESULT_H
#define FM_TRAINER_STEP_RESULT_H

#include "trainer/loss/complex_terms.h"
#include "trainer/loss/terms.h"

/* The most loss terms that a network has. */
enum {
    FM_RESULT_TERMS =
        (int)FM_LOSS_TERMS > (int)FM_COMPLEX_TERMS ? (int)FM_LOSS_TERMS : (int)FM_COMPLEX_TERMS
};

/* The terms are those of the network's list, in its order (loss/terms.h, loss/complex_terms.h), and
 * unweighted; 0 where the model does not have one, and behind the last. A part is what a term adds
 * to the loss. `loss` is the value that is differentiated, the sum of the parts. */
typedef struct fm_sample_result {
    double loss;
    double term[FM_RESULT_TERMS], part[FM_RESULT_TERMS];
    double gradient_norm; /* before clipping; 0 without a gradient */
    uint64_t done_ns;     /* the device's clock at its end; 0: not taken */
} fm_sample_result;

#endif
