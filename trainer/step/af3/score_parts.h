/* score_parts.h: compares the parts of a structure that a rollout has sampled with the true ones:
 * chains of each kind, interfaces and ligands, as `foldmill score` does. */
#ifndef FM_TRAINER_STEP_AF3_SCORE_PARTS_H
#define FM_TRAINER_STEP_AF3_SCORE_PARTS_H

#include "trainer/metrics/complex_metrics.h"
#include "trainer/step/af3/features.h"

/* Means over the chains, interfaces or ligands of a complex (complex_metrics.h). */
typedef enum fm_part_score {
    FM_PART_PROTEIN_LDDT,
    FM_PART_RNA_LDDT,
    FM_PART_DNA_LDDT,
    FM_PART_INTERFACE_LDDT, /* of all kinds */
    FM_PART_DOCKQ,
    FM_PART_POCKET_RMSD, /* Å */
    FM_N_PART_SCORE,
} fm_part_score;

/* "rollout_protein_lddt", ...: keys of eval.jsonl. */
extern const char *const fm_part_score_names[FM_N_PART_SCORE];

typedef struct fm_part_scores {
    fm_mean_score of[FM_N_PART_SCORE]; /* by fm_part_score; n is 0 and the mean NAN where none */
} fm_part_scores;

/* Scores a structure against the labels of the features, whose equivalent chains and atoms are
 * exchanged as the comparison needs it. `made` has the tokens and positions of the structure; the
 * features have token numbers. Uses `scratch` and rewinds it. FM_ERR_LIMIT if it is too small. */
FM_MUST_USE fm_status fm_af3_score_parts(const fm_af3_features *features,
                                         const fm_labelled_complex *made, fm_arena *scratch,
                                         fm_part_scores *ret_scores, fm_error *reterr);

/* Adds the chains, interfaces and ligands of another complex to a sum, which begins with zeros. */
void fm_part_scores_add(fm_part_scores *sum, const fm_part_scores *other);

#endif
