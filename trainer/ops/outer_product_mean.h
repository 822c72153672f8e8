/* outer_product_mean.h: the outer product mean (A10), which updates the pairs from the MSA.
 *
 *     z_ij += W vec(mean_s a_si (x) b_sj) + bias,   a, b linear in LayerNorm(m), masked
 *
 * The mean divides by 1e-3 + the number of sequences in which both positions are unmasked. m
 * [N_seq, N_res, c_m], mask [N_seq, N_res], z [N_res, N_res, c_z]. There is no dropout.
 *
 * On arrays that are split over D ranks, m along its residues and z along axis 0, the sublayer is
 * two nodes, which give the same numbers:
 *
 *     operands   a_si and b_sj of this rank's residues; then b is gathered by the caller
 *     core       z_ij += W vec(mean_s a_si (x) b_sj) + bias for this rank's i and all j */
#ifndef FM_TRAINER_OUTER_PRODUCT_MEAN_H
#define FM_TRAINER_OUTER_PRODUCT_MEAN_H

#include "trainer/autograd/tape.h"

typedef struct fm_outer_weights {
    fm_param_ref norm;          /* [2, c_m]; FM_PARAM_NONE: m is normalised already */
    fm_param_ref ab, ab_bias;   /* [2c, c_m], [2c]: a, then b */
    fm_param_ref out, out_bias; /* [c_z, c*c], [c_z] */
    int64_t c, c_z;
    fm_keep keep_operands;
} fm_outer_weights;

/* Adds the node, which saves a and b, kept or recomputed as keep_operands says. Returns the new z,
 * or the bare update where z is FM_TENSOR_NONE. */
fm_tensor_ref fm_op_outer_product_mean(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_outer_weights *weights);

typedef struct fm_outer_operands {
    fm_tensor_ref a, b; /* [N_seq, N_res/D, c] */
} fm_outer_operands;

/* m [N_seq, N_res/D, c_m]. Saves nothing. */
fm_outer_operands fm_op_outer_operands(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       const fm_outer_weights *weights);

/* b gathered: [N_seq, N_res, c]. mask [N_seq, N_res/D] of this rank's residues, whole_mask of all.
 * z [N_res/D, N_res, c_z]. Returns the new z, or the bare update, split over `part`, where z is
 * FM_TENSOR_NONE. */
fm_tensor_ref fm_op_outer_core(fm_tape *tape, const char *name, const fm_outer_operands *operands,
                               fm_tensor_ref mask, fm_tensor_ref whole_mask, fm_tensor_ref z,
                               const fm_outer_weights *weights, fm_part part);

#endif
