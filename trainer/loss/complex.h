/* complex.h: writes AlphaFold 3's labels of one complex to the state, where its losses read them
 * (complex_terms.h). */
#ifndef FM_TRAINER_LOSS_COMPLEX_H
#define FM_TRAINER_LOSS_COMPLEX_H

#include "trainer/loss/diffusion_losses.h"

/* Labels as host arrays, with the names, types and shapes of the stored features. */
typedef struct fm_complex_labels {
    int64_t n_token, n_atom;
    const float *coordinate;                    /* [n_atom, 3] Å; 0 where not resolved */
    const float *coordinate_mask;               /* [n_atom] */
    const int64_t *is_dna, *is_rna, *is_ligand; /* [n_atom] */
    /* [n_atom]: 1 for one atom of each token, or at most one */
    const int64_t *distogram_rep_atom_mask, *pae_rep_atom_mask, *plddt_m_rep_atom_mask;
    const int64_t *atom_to_token_idx; /* [n_atom], ascending */
    const int64_t *bond_mask; /* [n_atom, n_atom]: bonds of polymers and ligands, symmetric */
    const int64_t *frame_atom_index; /* [n_token, 3] */
    const int64_t *has_frame;        /* [n_token] */
    double resolution;               /* Å */
} fm_complex_labels;

/* Returns the weight of a sample of noise level sigma: (sigma^2 + d^2) / (sigma d)^2, where d is
 * sigma_data. */
double fm_complex_scale(double sigma, double sigma_data);

/* Where the state holds the labels. */
typedef struct fm_complex_targets {
    int64_t n_token, n_atom, n_bond, n_sample;
    int32_t position, mask, weight, radius; /* acc; see fm_atom_truth */
    int32_t partner, atoms;                 /* acc [n_atom]: of lDDT; 1 for atoms, 0 for padding */
    int32_t known;                          /* i32 [n_atom]: 1 where resolved */
    int32_t bond, bond_length, bond_weight;
    int32_t token_atom;                         /* i32 [N]: the atom of the distogram; -1: none */
    int32_t token_position, token_mask;         /* acc [N, 3], [N]: of that atom */
    int32_t token_position_f32, token_mask_f32; /* the same in f32 */
    int32_t frame, centre;                      /* i32 [N, 3], [N] */
    int32_t scale;                              /* acc [S]: fm_complex_scale of each sample */
    int32_t structure;                          /* acc [1, n_atom, 3]: the rollout's result */
    /* f64 [4] each: the factors of the terms of the structures, and of the confidence head */
    int32_t factors, confidence_factors;
} fm_complex_targets;

/* Declares the tensors for at most n_bond bonds. */
void fm_complex_declare_targets(fm_state *state, const fm_kernels *kernels, int64_t n_token,
                                int64_t n_atom, int64_t n_bond, int64_t n_sample,
                                fm_complex_targets *ret_targets);

/* Returns the number of bonds in the labels, each counted once. */
int64_t fm_complex_count_bonds(const fm_complex_labels *labels);

/* Writes all elements of the targets except the factors (complex_terms.h), scale and structure.
 * Labels may be smaller than the recorded shapes; the remaining elements are padding. Asserts that
 * the bonds fit. */
void fm_complex_write_labels(const fm_complex_labels *labels, const fm_complex_targets *targets,
                             fm_state_put *put_value, void *context);

#endif
