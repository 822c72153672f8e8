/* complex_terms.h: the terms of AlphaFold 3's loss, as one table (section 4.3 of the supplement). A
 * row is the only place that names a term. It has the term's name in the metrics, the pass whose
 * results it reads, the group whose weight multiplies it, and the function that records it, which
 * is in the file of its op. Configuration, weights, totals, metrics and evaluations follow it.
 *
 *     of the denoised structures    diffusion (mse + bond * its loss + smooth_lddt * its loss)
 *     of the trunk's pairs          distogram * its loss
 *     of the rollout                confidence (plddt + pde + resolved + pae * its loss)
 *
 * To add a term: write its file with fm_complex_loss_NAME, add a row below, give its key a value in
 * presets/af3-initial.ini, and add its inputs to fm_complex_loss_inputs. */
#ifndef FM_TRAINER_LOSS_COMPLEX_TERMS_H
#define FM_TRAINER_LOSS_COMPLEX_TERMS_H

#include "trainer/loss/complex.h"

/* What multiplies a term beside its own weight. */
typedef enum fm_complex_group {
    FM_COMPLEX_ALONE,     /* nothing */
    FM_COMPLEX_DIFFUSION, /* the weight of the denoised structures */
    FM_COMPLEX_CONFIDENCE /* that of the confidence head; 0 for samples that do not train it */
} fm_complex_group;

/* The terms that the pass of the last cycle records, and then those of the pass of the confidence
 * head. KEYED(TERM, name, group, help) has a weight of its own: the key `name` of [af3_loss].
 * FIXED(TERM, name, group) has the weight 1. The enumerator is FM_COMPLEX_<TERM>. Terms are
 * recorded, summed and reported in the order of the rows. */
#define FM_COMPLEX_STRUCTURE_TERM_LIST(FIXED, KEYED)                                               \
    FIXED(MSE, mse, DIFFUSION)                                                                     \
    KEYED(BOND, bond, DIFFUSION, "Weight of the bond loss among them.")                            \
    KEYED(SMOOTH_LDDT, smooth_lddt, DIFFUSION, "Weight of the smooth lDDT loss among them.")       \
    KEYED(DISTOGRAM, distogram, ALONE, "Weight of the distogram loss.")

#define FM_COMPLEX_CONFIDENCE_TERM_LIST(FIXED, KEYED)                                              \
    FIXED(PLDDT, plddt, CONFIDENCE)                                                                \
    FIXED(PDE, pde, CONFIDENCE)                                                                    \
    FIXED(RESOLVED, resolved, CONFIDENCE)                                                          \
    KEYED(PAE, pae, CONFIDENCE, "Weight of the predicted aligned error among them.")

#define FM_COMPLEX_ENUMERATOR(term, ...) FM_COMPLEX_##term,
enum {
    FM_COMPLEX_STRUCTURE_TERM_LIST(FM_COMPLEX_ENUMERATOR, FM_COMPLEX_ENUMERATOR)
        FM_COMPLEX_STRUCTURE_TERMS, /* the terms before it belong to the last cycle's pass */
    FM_COMPLEX_BEFORE_CONFIDENCE = FM_COMPLEX_STRUCTURE_TERMS - 1,
    FM_COMPLEX_CONFIDENCE_TERM_LIST(FM_COMPLEX_ENUMERATOR, FM_COMPLEX_ENUMERATOR) FM_COMPLEX_TERMS
};
#undef FM_COMPLEX_ENUMERATOR

/* The weights of a stage of training: a field for each keyed term, those of the groups, and the
 * range of resolutions for which the confidence head is trained. */
#define FM_COMPLEX_NO_FIELD(...)
#define FM_COMPLEX_FIELD(term, name, group, help) double name;
typedef struct fm_complex_weights {
    FM_COMPLEX_STRUCTURE_TERM_LIST(FM_COMPLEX_NO_FIELD, FM_COMPLEX_FIELD)
    FM_COMPLEX_CONFIDENCE_TERM_LIST(FM_COMPLEX_NO_FIELD, FM_COMPLEX_FIELD)
    double diffusion, confidence;             /* 4, 1e-4 */
    double least_resolution, most_resolution; /* 0.1, 4 Å */
} fm_complex_weights;
#undef FM_COMPLEX_FIELD
#undef FM_COMPLEX_NO_FIELD

/* The logits of the confidence head on the rollout's structure. */
typedef struct fm_complex_logits {
    fm_tensor_ref plddt, pde, resolved, pae; /* [n_atom, 50], [N, N, 64], [n_atom, 2], [N, N, 64] */
} fm_complex_logits;

/* What the terms of a pass read: tensors of its tape, in its island. */
typedef struct fm_complex_loss_inputs {
    fm_tensor_ref x; /* acc [S, n_atom, 3] Å: the denoised structures, or the rollout's, S = 1 */
    fm_atom_truth truth;
    /* Of the last cycle's pass. */
    fm_tensor_ref scale; /* acc [S] */
    fm_bonds bonds;
    fm_tensor_ref distogram;                          /* logits [N, N, n_distogram_bin] */
    fm_tensor_ref token_position_f32, token_mask_f32; /* [N, 3] Å, [N] */
    /* Of the pass of the confidence head. */
    fm_complex_logits logits;
    fm_tensor_ref token_x, token_position, token_mask; /* acc [1, N, 3], [N, 3] Å, [N] */
    fm_tensor_ref partner, known, atoms;               /* acc, i32, acc [n_atom] */
    fm_tensor_ref frame, centre;                       /* i32 [N, 3], [N] */
} fm_complex_loss_inputs;

/* fm_complex_loss_NAME records a term and returns it: acc [1], unweighted. */
#define FM_COMPLEX_DECLARATION(term, name, ...)                                                    \
    fm_tensor_ref fm_complex_loss_##name(fm_tape *tape, const fm_complex_loss_inputs *in);
FM_COMPLEX_STRUCTURE_TERM_LIST(FM_COMPLEX_DECLARATION, FM_COMPLEX_DECLARATION)
FM_COMPLEX_CONFIDENCE_TERM_LIST(FM_COMPLEX_DECLARATION, FM_COMPLEX_DECLARATION)
#undef FM_COMPLEX_DECLARATION

typedef struct fm_complex_term {
    const char *name;
    fm_complex_group group;
    fm_tensor_ref (*record)(fm_tape *tape, const fm_complex_loss_inputs *in);
} fm_complex_term;

extern const fm_complex_term fm_complex_terms[FM_COMPLEX_TERMS];

/* Records the terms of the last cycle's pass: x [S, n_atom, 3], distogram logits [N, N, n_bin].
 * Writes terms[0 .. FM_COMPLEX_STRUCTURE_TERMS - 1] and returns their weighted sum, acc [1]. */
fm_tensor_ref fm_complex_record_structure(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref distogram,
                                          const fm_complex_targets *targets,
                                          fm_tensor_ref terms[FM_COMPLEX_TERMS]);

/* Records the others: those of the confidence head on the rollout's structure. */
fm_tensor_ref fm_complex_record_confidence(fm_tape *tape, const fm_complex_logits *logits,
                                           const fm_complex_targets *targets,
                                           fm_tensor_ref terms[FM_COMPLEX_TERMS]);

/* Writes the factors of the terms for a complex of this resolution. */
void fm_complex_put_factors(const fm_complex_weights *weights, double resolution,
                            double factors[FM_COMPLEX_TERMS]);

/* Writes the factors to the state. */
void fm_complex_write_factors(const fm_complex_weights *weights, double resolution,
                              const fm_complex_targets *targets, fm_state_put *put_value,
                              void *context);

#endif
