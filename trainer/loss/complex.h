/* complex.h: writes AlphaFold 3's labels of one complex to the state, and records its eight losses
 * (section 4.3 of the supplement):
 *
 *     of the denoised structures    4 (mse + a_bond bond + w_lddt smooth lDDT)
 *     of the trunk's pairs          0.03 distogram
 *     of the rollout                1e-4 (plddt + pde + resolved + a_pae pae)
 *
 * The recorded terms are unweighted. Their factors are in device memory, so one recording serves
 * all stages of training and all resolutions. */
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

enum {
    FM_COMPLEX_MSE,
    FM_COMPLEX_BOND,
    FM_COMPLEX_SMOOTH_LDDT,
    FM_COMPLEX_DISTOGRAM,
    FM_COMPLEX_STRUCTURE_TERMS, /* the terms before it belong to the last cycle's pass */
    FM_COMPLEX_PLDDT = FM_COMPLEX_STRUCTURE_TERMS,
    FM_COMPLEX_PDE,
    FM_COMPLEX_RESOLVED,
    FM_COMPLEX_PAE,
    FM_COMPLEX_TERMS
};

/* Weights of a stage of training, and the range of resolutions for which the confidence head is
 * trained. */
typedef struct fm_complex_weights {
    double diffusion, bond, smooth_lddt;      /* 4; factors within it: 1, 1 */
    double distogram, confidence, pae;        /* 0.03, 1e-4; factor within it: 1 */
    double least_resolution, most_resolution; /* 0.1, 4 Å */
} fm_complex_weights;

/* Writes the factors of the terms for a complex of this resolution. */
void fm_complex_factors(const fm_complex_weights *weights, double resolution,
                        double factors[FM_COMPLEX_TERMS]);

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

/* Writes all elements of the targets, the factors of the terms included, except scale and
 * structure. Labels may be smaller than the recorded shapes; the remaining elements are padding.
 * Asserts that the bonds fit. */
void fm_complex_write_labels(const fm_complex_labels *labels, const fm_complex_weights *weights,
                             const fm_complex_targets *targets, fm_state_put *put_value,
                             void *context);

/* Records the terms of the last cycle's pass: x [S, n_atom, 3], distogram logits [N, N, n_bin].
 * Writes terms[0 .. FM_COMPLEX_STRUCTURE_TERMS - 1] and returns their weighted sum, acc [1]. */
fm_tensor_ref fm_complex_structure_losses(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref distogram,
                                          const fm_complex_targets *targets, fm_tensor_ref *terms);

/* The logits of the confidence head on the rollout's structure. */
typedef struct fm_complex_logits {
    fm_tensor_ref plddt, pde, resolved, pae; /* [n_atom, 50], [N, N, 64], [n_atom, 2], [N, N, 64] */
} fm_complex_logits;

/* Writes terms[FM_COMPLEX_STRUCTURE_TERMS .. FM_COMPLEX_TERMS - 1] and returns their weighted
 * sum. */
fm_tensor_ref fm_complex_confidence_losses(fm_tape *tape, const fm_complex_logits *logits,
                                           const fm_complex_targets *targets, fm_tensor_ref *terms);

#endif
