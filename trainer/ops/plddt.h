/* plddt.h: the pLDDT head (A29:1-3): LayerNorm and three linear layers with ReLU between them.
 * Saved: both hidden layers. Its loss is in trainer/loss. */
#ifndef FM_TRAINER_PLDDT_H
#define FM_TRAINER_PLDDT_H

#include "trainer/autograd/tape.h"

typedef struct fm_plddt_weights {
    fm_param_ref norm;                   /* [2, c_s] */
    fm_param_ref w1, b1, w2, b2, w3, b3; /* [c, c_s], [c]; [c, c], [c]; [n_bin, c], [n_bin] */
    int64_t c, n_bin;                    /* 128, 50 */
} fm_plddt_weights;

/* s [N_res, c_s]. Returns logits [N_res, n_bin]. */
fm_tensor_ref fm_op_plddt_logits(fm_tape *tape, fm_tensor_ref s, const fm_plddt_weights *weights);

#endif
