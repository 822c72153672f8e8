/* fourier.h: the embedding of noise levels (AF3-22): y[r, i] = cos(2 pi (x[r] w[i] + b[i])).
 *
 * w and b are drawn once and never trained. Nothing has a gradient. */
#ifndef FM_TRAINER_FOURIER_H
#define FM_TRAINER_FOURIER_H

#include "trainer/autograd/tape.h"

/* x act [rows], w and b act [c]: tensors of the state. Returns act [rows, c]. */
fm_tensor_ref fm_op_fourier(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref w, fm_tensor_ref b);

#endif
