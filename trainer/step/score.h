/* score.h: structure metrics of the sample that was computed last. */
#ifndef FM_TRAINER_SCORE_H
#define FM_TRAINER_SCORE_H

#include "trainer/metrics/structure_metrics.h"
#include "trainer/step/step.h"

/* Scores the predicted crop of the sample that fm_trainer_add_sample has just taken against its
 * known atoms. It downloads the last cycle's atoms [N_res, 14, 3] and computes on the host. The
 * model must have a structure module. FM_ERR_LIMIT when the trainer's tables are full. */
FM_MUST_USE fm_status fm_trainer_score(fm_trainer *trainer, const fm_features *features,
                                       fm_structure_scores *ret_scores, fm_error *reterr);

#endif
