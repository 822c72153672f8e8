/* batch_schedule.h: how many samples a step has, as a function of the step: --batch-schedule.
 *
 *     128@0,256@5000             128 samples, from step 5000 on (steps made before it) 256
 *     128@0,256@lddt_ca>=0.8     256 from the next step on once an evaluation has that score
 *
 * The stream of samples is that of the first batch B for the whole run, so sample i never changes.
 * All batches are multiples of B: a step of k * B samples uses k consecutive steps of the stream,
 * each with its own number of cycles. Which samples a step uses follows from the steps at which
 * batches change. A step that a score decides follows, in turn, from how many samples a checkpoint
 * has used, so nothing else has to be stored. */
#ifndef FM_TRAINER_BATCH_SCHEDULE_H
#define FM_TRAINER_BATCH_SCHEDULE_H

#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_BATCH_MOST_STAGES = 16, FM_BATCH_SCORE_BYTES = 32 };

typedef struct fm_batch_schedule {
    uint32_t n;
    struct {
        uint32_t batch;
        uint64_t step; /* steps made before the first of that batch; UINT64_MAX: not yet known */
    } stage[FM_BATCH_MOST_STAGES];
    /* The last stage's score and its least value, where it has one; "" = none. */
    char score[FM_BATCH_SCORE_BYTES];
    double least;
} fm_batch_schedule;

/* The schedule of one batch. */
fm_batch_schedule fm_batch_schedule_of(uint32_t batch);

/* Reads --batch-schedule. Steps rise, batches are multiples of the first, the first stage is at 0,
 * and only the last may have a score. FM_ERR_USAGE with the column. */
FM_MUST_USE fm_status fm_batch_schedule_parse(const char *text, fm_batch_schedule *ret_schedule,
                                              fm_error *reterr);

/* Samples of step `step`, which counts from 0. */
uint32_t fm_batch_at(const fm_batch_schedule *schedule, uint64_t step);
/* Samples of all steps before it. */
uint64_t fm_batch_before(const fm_batch_schedule *schedule, uint64_t step);

/* The last stage waits for its score. */
bool fm_batch_is_waiting(const fm_batch_schedule *schedule);
/* It begins at that step. */
void fm_batch_begin_last(fm_batch_schedule *schedule, uint64_t step);

/* Finds where the last stage of a run began that has used `n_used` samples in `step` whole steps,
 * if it waits for a score. FM_ERR_USAGE when no step gives that number. */
FM_MUST_USE fm_status fm_batch_find_last(fm_batch_schedule *schedule, uint64_t step,
                                         uint64_t n_used, fm_error *reterr);

#endif
