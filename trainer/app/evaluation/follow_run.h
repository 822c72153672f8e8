/* follow_run.h: `foldmill eval --follow RUN`: the evaluator beside a training run.
 *
 * The run leaves a checkpoint in RUN/eval for each evaluation that is due (eval_child.h). This
 * process takes the oldest one first. It loads it, scores all chains, appends a line to
 * RUN/eval.jsonl and a record to the TensorBoard events of RUN/eval, and removes the checkpoint.
 * Chains stay in memory between evaluations. A line appears whole or not at all, and a checkpoint
 * is removed only after its line is written. So the process may be killed and started again at any
 * time: a step that already has its line is not evaluated again. */
#ifndef FM_TRAINER_FOLLOW_RUN_H
#define FM_TRAINER_FOLLOW_RUN_H

#include "trainer/app/evaluation/chain_scorer.h"

/* Evaluates checkpoints until a signal asks it to stop: FM_ERR_CANCELLED. A damaged checkpoint is
 * logged and removed. Other errors are those of chain_scorer.h and of writing the results. */
FM_MUST_USE fm_status fm_follow_run(const fm_chain_scorer_options *options, const char *run,
                                    fm_error *reterr);

/* Finds the oldest checkpoint in a folder, for both ends of the queue. FM_ERR_NOT_FOUND when there
 * is none. */
FM_MUST_USE fm_status fm_eval_find_oldest(const char *folder, fm_checkpoint_place *ret_place,
                                          uint32_t *ret_n, fm_error *reterr);

#endif
