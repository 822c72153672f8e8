/* losses.h: heads with their losses, each one node that ends in a scalar, and their weighted sum.
 *
 *     distogram   -sum over pairs of log p(bin of |x_i - x_j|), mean over known pairs (1.9.8)
 *     masked MSA  cross entropy at masked positions, mean over them (1.9.9)
 *     total       sum over terms of factor * term, with the factors in device memory
 *
 * A head is its linear layer. Its logits are saved for backward and can be read for metrics. Losses
 * and logits are of the acc type where the act type of the kernel table is narrower, so heads
 * always compute in fp32. */
#ifndef FM_TRAINER_LOSSES_H
#define FM_TRAINER_LOSSES_H

#include "trainer/ops/linear.h"

typedef struct fm_distogram_options {
    int32_t n_bin;     /* 64 */
    float first, last; /* Å: 2.3125, 21.6875; the n_bin - 1 boundaries are evenly spaced */
    double eps;        /* 1e-8, added to the sum of the mask */
} fm_distogram_options;

/* z [N_res, N_res, c_z]; pseudo_beta f32 [N_res, 3] in Å, its mask f32 [N_res]. logits_ij are
 * half_ij + half_ji. Returns the loss, acc [1]. */
fm_tensor_ref fm_op_distogram_loss(fm_tape *tape, fm_tensor_ref z, fm_tensor_ref pseudo_beta,
                                   fm_tensor_ref pseudo_beta_mask, const fm_linear_weights *weights,
                                   const fm_distogram_options *options);

/* m [N_seq, N_res, c_m], of which the first N_clust rows are scored: true_msa i32 [N_clust, N_res]
 * 0..22, bert_mask act [N_clust, N_res]. Returns the loss, acc [1]. */
fm_tensor_ref fm_op_masked_msa_loss(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref true_msa,
                                    fm_tensor_ref bert_mask, const fm_linear_weights *weights);

/* Adds the node. terms[0..n_term-1] acc [1]; factors f64 [n_term], a tensor of the state. Returns
 * the sum, acc [1]. */
fm_tensor_ref fm_op_total_loss(fm_tape *tape, const fm_tensor_ref *terms, int n_term,
                               fm_tensor_ref factors);

#endif
