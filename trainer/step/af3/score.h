/* score.h: compares the structure that a rollout has sampled with the true one, for evaluations. */
#ifndef FM_TRAINER_STEP_AF3_SCORE_H
#define FM_TRAINER_STEP_AF3_SCORE_H

#include "proto/base/arena.h"
#include "trainer/loss/complex.h"
#include "trainer/step/af3/score_parts.h"

typedef struct fm_af3_score {
    bool is_known;      /* the truth has enough known atoms; else the scores are 0 */
    double rmsd;        /* Å, over all known atoms, after superposition */
    double mirror_rmsd; /* Å, the same from the mirror image of the truth */
    double lddt; /* 0 to 1, of all known atoms: true distances below 15 Å, kept within 0.5, 1, 2
                      and 4 Å */
    fm_part_scores parts; /* of fm_af3_score_parts; no counts where the features lack numbers */
} fm_af3_score;

/* Scores x [n_atom, 3] Å against the coordinates of the labels, all but the parts. Uses `scratch`
 * and rewinds it. FM_ERR_LIMIT if it is too small. */
FM_MUST_USE fm_status fm_af3_score_structure(const fm_complex_labels *labels, const double *x,
                                             fm_arena *scratch, fm_af3_score *ret_score,
                                             fm_error *reterr);

#endif
