/* metrics.h: what a training run says of each step: one JSON object a line (metrics.jsonl), and a
 * line for people.
 *
 * A line is written whole with one write(2), so that a reader who follows the file never sees half
 * of one. Numbers that are not finite are written as null. */
#ifndef FM_TRAINER_METRICS_H
#define FM_TRAINER_METRICS_H

#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_METRICS_TERMS = 12, FM_METRICS_SCORES = 7 };

typedef struct fm_metrics_step {
    uint64_t step;      /* from 1: updates of the parameters */
    uint64_t index;     /* of the step's first sample */
    const char *sample; /* its chain */
    uint32_t n_cycle;
    double loss; /* weighted sum of the terms, mean over the step's samples */
    uint32_t n_term;
    struct {
        const char *name;
        double value; /* unweighted */
    } term[FM_METRICS_TERMS];
    /* Of the predicted structures, mean over the step's samples; none on most steps. */
    uint32_t n_score;
    struct {
        const char *name;
        double value;
    } score[FM_METRICS_SCORES];
    double grad_norm, learning_rate;
    double step_s, data_wait_s; /* seconds; the wait is part of the step */
    double left_s;              /* estimate to the run's end, for the line for people; < 0 = none */
} fm_metrics_step;

typedef struct fm_metrics fm_metrics;

/* Appends to `path` (made when missing). FM_ERR_IO. */
FM_MUST_USE fm_status fm_metrics_open(const char *path, fm_metrics **ret_metrics, fm_error *reterr);

/* Cuts the file behind step `last`, so that a resumed run writes each step once. A missing file is
 * fine. FM_ERR_IO. */
FM_MUST_USE fm_status fm_metrics_truncate(const char *path, uint64_t last, fm_error *reterr);

void fm_metrics_close(fm_metrics *metrics);
FM_MUST_USE fm_status fm_metrics_write(fm_metrics *metrics, const fm_metrics_step *step,
                                       fm_error *reterr);

/* The line for people, e.g. "step 12/200  loss 8.213  0.084 s/step  ETA 0:00:16  data wait 0.2 ms
 * (distogram 3.100  masked_msa 2.500)", with the first of the scores behind the loss where there
 * are any: what matters most comes first, for narrow terminals. n_step 0 = without end. */
void fm_metrics_format(const fm_metrics_step *step, uint64_t n_step, char *out, size_t out_bytes);

#endif
