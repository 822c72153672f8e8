/* train_queue.h: the samples, or the rounds of several ranks, that are queued and not yet
 * collected. */
#ifndef FM_TRAINER_TRAIN_QUEUE_H
#define FM_TRAINER_TRAIN_QUEUE_H

#include "proto/base/status.h"
#include "trainer/step/step.h"

typedef struct fm_train_run fm_train_run;

typedef struct fm_train_flight {
    uint64_t step; /* run->queued_step when it was queued */
    uint32_t slot; /* its position in the batch */
    bool is_last;  /* of its step */
    bool is_scored;
    bool has_sample; /* of several ranks: this one's group has a sample in the round */
    double rate, wait_s;
} fm_train_flight;

typedef struct fm_train_queue {
    fm_train_flight flight[FM_MOST_QUEUED]; /* that of number n is at n % FM_MOST_QUEUED */
    uint64_t n_queued, n_collected;
    /* Collects the oldest one in flight. Set before the first step. */
    fm_status (*collect)(fm_train_run *run, fm_error *reterr);
} fm_train_queue;

/* Collects until at most `left` are in flight. The errors of `collect`. */
FM_MUST_USE fm_status fm_train_drain(fm_train_run *run, uint64_t left, fm_error *reterr);

#endif
