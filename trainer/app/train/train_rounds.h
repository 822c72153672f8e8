/* train_rounds.h: a run of several ranks goes forward in rounds.
 *
 * Ranks that share a sample form a group. Group g of P takes the samples whose slot in the batch is
 * g modulo P, in order, so the batch is the same for every number of ranks. Out of order it takes
 * those of its samples that come first to its first rank; the others of the group ask their feeds
 * for the same. A round has P slots that follow each other; in each, every group that has a sample
 * left in the step adds one:
 *
 *     agree      every rank reports what it has: its next sample, a signal, a lost server. All
 *                decide by the same reports. A rank that still waits for its server says so, and
 *                the round begins again, so that signals are heard meanwhile.
 *     queue      each group queues its sample; a bad one is skipped by all ranks
 *     collect    every rank says what came out, and all add up the results of all groups
 *
 * All ranks therefore hold the same fm_train_state, and rank 0 writes it. The gradients of a batch
 * are summed over the groups when its last round is collected. With several groups, a checkpoint is
 * that of the last whole step: a sum of gradients that is divided over groups would give other bits
 * when it is resumed by fewer. */
#ifndef FM_TRAINER_TRAIN_ROUNDS_H
#define FM_TRAINER_TRAIN_ROUNDS_H

#include "trainer/app/train/train_run.h"

/* Makes the part of a process that is one of several ranks. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_rounds_create(fm_train_run *run, fm_error *reterr);
void fm_train_rounds_destroy(fm_train_run *run);

/* Compares this rank with the others before the first step; `status` is what its preparations came
 * to. */
FM_MUST_USE fm_status fm_train_rounds_compare(fm_train_run *run, fm_status status,
                                              fm_error *reterr);
/* Fails on all ranks when one has failed; `status` is this one's. */
FM_MUST_USE fm_status fm_train_rounds_share(fm_train_run *run, fm_status status, fm_error *reterr);
/* Prepares the first round, once the state is loaded. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_rounds_prepare(fm_train_run *run, fm_error *reterr);
/* Agrees on the next round, and queues or skips its samples. */
FM_MUST_USE fm_status fm_train_rounds_advance(fm_train_run *run, fm_error *reterr);
/* Collects the oldest round in flight. */
FM_MUST_USE fm_status fm_train_rounds_collect(fm_train_run *run, fm_error *reterr);
/* Notes whether all ranks have the error of what they did together after a step; returns it. A
 * process that is the only one may call it, too. */
FM_MUST_USE fm_status fm_train_rounds_agree_to_fail(fm_train_run *run, fm_status status);
/* Whether the error of this rank is that of all. */
bool fm_train_rounds_is_agreed(const fm_train_run *run);

#endif
