/* augment.h: nodes that move whole structures (AF3-19) and draw the random numbers of noisy
 * structures. They have no gradient. */
#ifndef FM_TRAINER_AUGMENT_H
#define FM_TRAINER_AUGMENT_H

#include "trainer/autograd/tape.h"

/* One rotation by rows, one translation and one noise for each of S structures of n atoms. */
typedef struct fm_structure_draws {
    fm_tensor_ref rotation; /* act [S, 9] */
    fm_tensor_ref offset;   /* act [S, 3], standard normal */
    fm_tensor_ref noise;    /* act [S, n, 3], standard normal */
} fm_structure_draws;

/* Draws the numbers from the seed and the clock of the tape. In sampling (FM_DRAW_SAMPLING) the
 * tape has a clock for each structure, one behind the other, and a structure's numbers depend on
 * its own clock alone. */
fm_structure_draws fm_op_draw_structures(fm_tape *tape, fm_draw_structures of, int64_t n_sample,
                                         int64_t n_atom);

/* Computes (x - centre) R^T + t, [S, n, 3]. x is act [S, n, 3], or [n, 3] for all samples. mask is
 * act [n], or FM_TENSOR_NONE for all atoms. The centre is the mean over the atoms of the mask, and
 * the result is 0 for the others. */
fm_tensor_ref fm_op_augment(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref mask,
                            const fm_structure_draws *draws);

#endif
