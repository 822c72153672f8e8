/* structure_losses.h: losses on the predicted structure, each one node that ends in a scalar.
 *
 *     backbone FAPE      A28 over all iterations, between all backbone frames      (1.9.2, A20:17)
 *     side chain FAPE    A28 of the last iteration: all groups, all atoms, with the better naming
 *                        of ambiguous atoms                                        (A26, A20:28)
 *     torsions           A27 over all iterations: chi angles and lengths           (1.9.1, A20:18)
 *     pLDDT              cross entropy of 50 classes of lDDT-Ca                    (1.9.6)
 *     aligned error      cross entropy of 64 classes                               (1.9.7)
 *     resolved           which of 37 atoms the experiment resolved                 (1.9.10)
 *     violations         bonds, angles, clashes                                    (1.9.11)
 *
 * The ground truth is tensors of the state in f32, as the features have them (proto/chem), with
 * positions in Å. Losses are acc [1]. pLDDT, resolved and aligned error count only for structures
 * of 0.1 to 3 Å. For others terms.h sets their factors in the total to 0; the ops here do not check
 * it. */
#ifndef FM_TRAINER_STRUCTURE_LOSSES_H
#define FM_TRAINER_STRUCTURE_LOSSES_H

#include "trainer/ops/linear.h"

typedef struct fm_fape_options {
    double clamp, length_scale; /* 10 Å, 10 Å */
    double eps;                 /* 1e-4 */
    double position_scale;      /* Å in one unit of the frames' translations: 10 */
} fm_fape_options;

/* frames [n_iteration, N_res, 7]; target_frames [N_res, 4, 4], mask [N_res]; clamped [1]: 1 cuts
 * errors at the clamp (nine of ten samples), 0 does not. */
fm_tensor_ref fm_op_backbone_fape(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref target_frames,
                                  fm_tensor_ref mask, fm_tensor_ref clamped,
                                  const fm_fape_options *options);

typedef struct fm_side_chain_truth {
    fm_tensor_ref positions, alt_positions; /* atom14_(alt_)gt_positions [N_res, 14, 3] */
    fm_tensor_ref exists, alt_exists;       /* atom14_(alt_)gt_exists [N_res, 14] */
    fm_tensor_ref is_ambiguous;             /* atom14_atom_is_ambiguous [N_res, 14] */
    fm_tensor_ref frames, alt_frames;       /* rigidgroups_(alt_)gt_frames [N_res, 8, 4, 4] */
    fm_tensor_ref frames_exist;             /* rigidgroups_gt_exists [N_res, 8] */
} fm_side_chain_truth;

/* groups [N_res, 8, 12], atoms [N_res, 14, 3] of the last iteration. */
fm_tensor_ref fm_op_side_chain_fape(fm_tape *tape, fm_tensor_ref groups, fm_tensor_ref atoms,
                                    const fm_side_chain_truth *truth,
                                    const fm_fape_options *options);

typedef struct fm_torsion_truth {
    fm_tensor_ref chi, chi_mask; /* chi_angles_sin_cos [N_res, 4, 2], chi_mask [N_res, 4] */
    fm_tensor_ref seq_mask;      /* f32 [N_res] */
    fm_tensor_ref aatype;        /* u8 [N_res] */
    fm_tensor_ref pi_periodic;   /* u8 [21], a table */
} fm_torsion_truth;

/* angles, unnormalised [n_iteration, N_res, 7, 2]. The loss includes both weights, AlphaFold2's 0.5
 * and 0.01. */
fm_tensor_ref fm_op_torsion_loss(fm_tape *tape, fm_tensor_ref angles, fm_tensor_ref unnormalised,
                                 const fm_torsion_truth *truth, double chi_weight,
                                 double norm_weight);

/* logits [N_res, n_bin]; atoms [N_res, 14, 3] are predicted; ca_positions [N_res, 3] and ca_mask
 * [N_res] are true. */
fm_tensor_ref fm_op_plddt_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref atoms,
                               fm_tensor_ref ca_positions, fm_tensor_ref ca_mask);

/* logits [N_res * N_res, n_bin]; frames [N_res, 7] of the last iteration. */
fm_tensor_ref fm_op_aligned_error_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref frames,
                                       fm_tensor_ref target_frames, fm_tensor_ref mask,
                                       double position_scale);

/* logits [N_res, 37]; resolved is all_atom_mask, exists is atom37_atom_exists, both [N_res, 37]. */
fm_tensor_ref fm_op_resolved_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref resolved,
                                  fm_tensor_ref exists);

typedef struct fm_violation_inputs {
    fm_tensor_ref exists;        /* atom14_atom_exists f32 [N_res, 14] */
    fm_tensor_ref residue_index; /* i32 [N_res] */
    fm_tensor_ref aatype;        /* u8 [N_res] */
    fm_tensor_ref radii, bounds; /* tables [21, 14], [21, 14, 14, 2] */
} fm_violation_inputs;

/* atoms [N_res, 14, 3]; ret_terms acc [4]: bonds, angles at C, at N, clashes; may be NULL. */
fm_tensor_ref fm_op_violation_loss(fm_tape *tape, fm_tensor_ref atoms,
                                   const fm_violation_inputs *inputs, fm_tensor_ref *ret_terms);

#endif
