/* batch_schedule.h: how many samples a step has, as a function of the step: --batch-schedule.
 *
 *     128@0,256@5000             128 samples, and 256 from step 5000 on (the steps before it count)
 *     128@0,256@lddt_ca>=0.8     256 once an evaluation has that score, from the next step on
 *
 * The stream of samples is that of the first batch B for the whole run, so sample i never changes.
 * All batches are multiples of B: a step of k * B samples uses k consecutive steps of the stream,
 * each with its own number of cycles. Which samples a step uses follows from the steps at which
 * batches change. The step that a score decided follows from the number of samples that a
 * checkpoint has used. So nothing else has to be stored. */
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

/* Returns the schedule in which all steps have `batch` samples. */
fm_batch_schedule fm_batch_schedule_of(uint32_t batch);

/* Reads --batch-schedule. The first stage must be at step 0, and steps must rise. Batches must be
 * multiples of the first, and only the last stage may have a score. FM_ERR_USAGE with the
 * column. */
FM_MUST_USE fm_status fm_batch_schedule_parse(const char *text, fm_batch_schedule *ret_schedule,
                                              fm_error *reterr);

/* Returns the samples of step `step`, which counts from 0. */
uint32_t fm_batch_at(const fm_batch_schedule *schedule, uint64_t step);
/* Returns the samples of all steps before `step`. */
uint64_t fm_batch_before(const fm_batch_schedule *schedule, uint64_t step);

/* Whether the last stage still waits for its score. */
bool fm_batch_is_waiting(const fm_batch_schedule *schedule);
/* Lets the waiting last stage begin at `step`. */
void fm_batch_begin_last(fm_batch_schedule *schedule, uint64_t step);

/* If the last stage waits for a score, finds where it began in a run that has used `n_used` samples
 * in `step` whole steps. FM_ERR_USAGE when no step gives that number. */
FM_MUST_USE fm_status fm_batch_find_last(fm_batch_schedule *schedule, uint64_t step,
                                         uint64_t n_used, fm_error *reterr);

#endif
