/* train_scores.h: the evaluator of a run: where it gets its chains, when it gets a checkpoint, and
 * the end at a target (eval_child.h). Only the first of several ranks has one. */
#ifndef FM_TRAINER_TRAIN_SCORES_H
#define FM_TRAINER_TRAIN_SCORES_H

#include "trainer/app/train/train_run.h"

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_scores_create(fm_train_run *run, fm_error *reterr);
/* Ends the evaluator and its server, if there are any, and frees the part. */
void fm_train_scores_destroy(fm_train_run *run);

/* Steps between evaluations; 0 = never. */
uint64_t fm_train_eval_every(const fm_train_run *run);
/* Whether the checkpoint of that step is evaluated. */
bool fm_train_is_evaluated(const fm_train_run *run, uint64_t step);

/* Checks the score that the batch schedule waits for, if it does: `rises` says whether it is among
 * `rising`, the scores of this work of which more is better. Another program may write the scores.
 * FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_check_awaited_score(const fm_train_run *run, bool rises,
                                                   const char *rising, fm_error *reterr);
/* Refuses settings of the evaluator that contradict each other. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_scores_check(const fm_train_run *run, fm_error *reterr);

/* Starts the evaluator, once the outputs are open. `data` is the address of the server of samples.
 * FM_ERR_NOT_FOUND when its server has other chains, and the errors of connecting and starting. */
FM_MUST_USE fm_status fm_train_scores_start(fm_train_run *run, const char *data, fm_error *reterr);
/* Hands the checkpoint of that place over, where it is to be evaluated. */
void fm_train_scores_offer(fm_train_run *run, fm_checkpoint_place saved);
/* Looks after the evaluator, and asks the run to stop at its target. */
void fm_train_scores_look(fm_train_run *run);
/* Waits for the last scores where the run ended well, reports the target and ends the evaluator. */
void fm_train_scores_end(fm_train_run *run, fm_status status);
/* Whether all steps were made and no score reached --stop-at. */
bool fm_train_has_missed_target(const fm_train_run *run);

#endif
