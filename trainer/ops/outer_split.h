/* outer_split.h: the outer product mean (outer_product_mean.h) in two nodes, for an MSA that is
 * split over ranks along its residues and a pair array split along axis 0:
 *
 *     operands   a_si and b_sj of this rank's residues             -> b gathered by the caller
 *     core       z_ij += W vec(mean_s a_si (x) b_sj) + bias         for this rank's i and all j
 *
 * The same numbers as the one node gives. */
#ifndef FM_TRAINER_OUTER_SPLIT_H
#define FM_TRAINER_OUTER_SPLIT_H

#include "trainer/ops/outer_product_mean.h"

typedef struct fm_outer_operands {
    fm_tensor_ref a, b; /* [N_seq, N_res/D, c], and by residue: [N_res/D, N_seq, c] */
} fm_outer_operands;

/* m [N_seq, N_res/D, c_m]. Nothing is saved. */
fm_outer_operands fm_op_outer_operands(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       const fm_outer_weights *weights);

/* b gathered: [N_res, N_seq, c]. mask [N_seq, N_res/D] of this rank's residues, whole_mask of all.
 * z [N_res/D, N_res, c_z]; FM_TENSOR_NONE: the bare update, split over `part`. */
fm_tensor_ref fm_op_outer_core(fm_tape *tape, const char *name, const fm_outer_operands *operands,
                               fm_tensor_ref mask, fm_tensor_ref whole_mask, fm_tensor_ref z,
                               const fm_outer_weights *weights, fm_part part);

#endif
