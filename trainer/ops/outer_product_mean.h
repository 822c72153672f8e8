/* outer_product_mean.h: the MSA speaks to the pair array (A10).
 *
 *     z_ij += W vec(mean_s a_si (x) b_sj) + bias,   a, b linear in LayerNorm(m), masked
 *
 * The mean divides by 1e-3 + the number of sequences in which both positions are unmasked.
 * m [N_seq, N_res, c_m], mask [N_seq, N_res], z [N_res, N_res, c_z]. No dropout.
 * Saved: a and b, masked. */
#ifndef FM_TRAINER_OUTER_PRODUCT_MEAN_H
#define FM_TRAINER_OUTER_PRODUCT_MEAN_H

#include "trainer/autograd/tape.h"

typedef struct fm_outer_weights {
    fm_param_ref norm;          /* [2, c_m]; FM_PARAM_NONE: m is normalised already */
    fm_param_ref ab, ab_bias;   /* [2c, c_m], [2c]: a, then b */
    fm_param_ref out, out_bias; /* [c_z, c*c], [c_z] */
    int64_t c, c_z;
} fm_outer_weights;

/* Adds the node; z FM_TENSOR_NONE: the bare update. Returns the new z. */
fm_tensor_ref fm_op_outer_product_mean(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_outer_weights *weights);

#endif
