/* diffusion_losses.h: AlphaFold 3's losses on denoised structures and on the logits of its
 * confidence head (section 4.3 of the supplement). Each loss is one node with a scalar result.
 *
 * Structures are act [S, n_atom, 3] Å. The truth and its masks are tensors of the state. */
#ifndef FM_TRAINER_DIFFUSION_LOSSES_H
#define FM_TRAINER_DIFFUSION_LOSSES_H

#include "trainer/autograd/tape.h"

/* The true structure. All are tensors of the state, act. */
typedef struct fm_atom_truth {
    fm_tensor_ref position; /* [n_atom, 3] Å; 0 where not known */
    fm_tensor_ref mask;     /* [n_atom]: 1 where known */
    fm_tensor_ref weight;   /* [n_atom]: mask times weight in the square error and alignment */
    fm_tensor_ref radius;   /* [n_atom] Å: 15, or 30 for atoms of nucleotides */
} fm_atom_truth;

/* Returns the truth superposed on each structure of x with the weights (AF3-28), [S, n_atom, 3]. It
 * has no gradient. */
fm_tensor_ref fm_op_align_truth(fm_tape *tape, fm_tensor_ref x, const fm_atom_truth *truth);

/* scale act [S]: the weight of each sample's noise level. Returns the loss, acc [1]. */
fm_tensor_ref fm_op_mse_loss(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref aligned,
                             const fm_atom_truth *truth, fm_tensor_ref scale);

/* Bonds between polymers and ligands: bond i32 [n_bond, 2], < 0 for none; length and weight act
 * [n_bond]; the weight is 1 where both atoms are known. Each bond is listed once. */
typedef struct fm_bonds {
    fm_tensor_ref bond, length, weight;
} fm_bonds;
fm_tensor_ref fm_op_bond_loss(fm_tape *tape, fm_tensor_ref x, const fm_bonds *bonds,
                              fm_tensor_ref scale);

/* Records the smooth lDDT loss (AF3-27). Returns the loss, acc [1]. */
fm_tensor_ref fm_op_smooth_lddt_loss(fm_tape *tape, fm_tensor_ref x, const fm_atom_truth *truth);

/* -- confidence */

/* Each function records the cross entropy of logits [B, .., n_bin] of B structures and returns the
 * loss, acc [1]. The classes follow from the structure x, act [B, n_atom, 3], without a gradient.
 */

/* Pairs of representative atoms: x act [B, N, 3], truth and mask of the same atoms. */
fm_tensor_ref fm_op_pde_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                             fm_tensor_ref truth, fm_tensor_ref mask);
/* frame i32 [N, 3], < 0 for tokens without a frame; centre i32 [N]. */
fm_tensor_ref fm_op_pae_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                             const fm_atom_truth *truth, fm_tensor_ref frame, fm_tensor_ref centre);
/* partner act [n_atom]: 1 for the atoms that others are measured against. */
fm_tensor_ref fm_op_atom_plddt_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                                    const fm_atom_truth *truth, fm_tensor_ref partner);
/* The same with classes from the host, for the question whether an atom is resolved. logits are
 * [.., n_bin]; target, i32, and weight, act, have one element for each row. */
fm_tensor_ref fm_op_class_loss(fm_tape *tape, const char *name, fm_tensor_ref logits,
                               fm_tensor_ref target, fm_tensor_ref weight);
/* logits [N, N, n_bin], truth and mask f32 [N, 3], [N] of the representative atoms. */
fm_tensor_ref fm_op_distance_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref position,
                                  fm_tensor_ref mask, float first, float last);

#endif
