/* metrics.h: reports each training step: one JSON object per line in metrics.jsonl, and a progress
 * line for people.
 *
 * A JSON line is written with one write(2), so a reader who follows the file never sees half a
 * line. Lines that cannot be written wait in memory (appender.h). Numbers that are not finite are
 * written as null. */
#ifndef FM_TRAINER_METRICS_H
#define FM_TRAINER_METRICS_H

#include "proto/base/status.h"

#include <stdbool.h>

enum { FM_METRICS_TERMS = 12, FM_METRICS_SCORES = 7 };

typedef struct fm_metrics_step {
    uint64_t step;      /* updates of the parameters, from 1 */
    uint64_t index;     /* index of the step's first sample */
    const char *sample; /* chain of the step's first sample */
    uint32_t n_cycle;
    double loss; /* weighted sum of the terms; mean over the step's samples */
    uint32_t n_term;
    struct {
        const char *name;
        double value; /* unweighted */
        double part;  /* what it adds to the loss: the parts add up to it */
    } term[FM_METRICS_TERMS];
    /* Scores of the predicted structures, mean over the step's samples; most steps have none. */
    uint32_t n_score;
    struct {
        const char *name;
        double value;
    } score[FM_METRICS_SCORES];
    double grad_norm, learning_rate;
    double step_s, data_wait_s; /* seconds; step_s includes the wait */
    double left_s;              /* estimated seconds to the end of the run; < 0 = not known */
    /* Bytes of memory: what the trainer takes; what all processes use of its device, and what is
     * free there. 0 = not known. */
    uint64_t memory_bytes, device_used_bytes, device_free_bytes;
} fm_metrics_step;

typedef struct fm_metrics fm_metrics;

/* Opens `path` for appending; creates it if missing. FM_ERR_IO. */
FM_MUST_USE fm_status fm_metrics_open(const char *path, fm_metrics **ret_metrics, fm_error *reterr);

/* The lines that stay in a file, and the step of the last one, 0 where there is none. */
typedef struct fm_metrics_kept {
    uint64_t n, last;
} fm_metrics_kept;

/* Removes the lines after step `last`, so a resumed run writes each step once, and lines that are
 * damaged or cut off. A missing file is fine. FM_ERR_IO. */
FM_MUST_USE fm_status fm_metrics_truncate(const char *path, uint64_t last,
                                          fm_metrics_kept *ret_kept, fm_error *reterr);

/* Closes the file; lines that are still in memory are lost. */
void fm_metrics_close(fm_metrics *metrics);

/* Appends the step's line. FM_ERR_IO: the disk did not take it; the line waits in memory and is
 * written with a later one or with fm_metrics_sync. FM_ERR_NOMEM: it is lost. */
FM_MUST_USE fm_status fm_metrics_write(fm_metrics *metrics, const fm_metrics_step *step,
                                       fm_error *reterr);

/* Writes the lines that wait in memory, and syncs the file. FM_ERR_IO. */
FM_MUST_USE fm_status fm_metrics_sync(fm_metrics *metrics, fm_error *reterr);

/* Writes the progress line to `out`, for example "step 12/200  loss 8.213  0.084 s/step  ETA
 * 0:00:16  data wait 0.2 ms  (distogram 1.713  masked_msa 6.500)". The terms are shown with what
 * they add to the loss. If there are scores, the first one follows the loss. The most important
 * numbers come first: the line has as many whole fields as fit into `columns` (0 = no limit).
 * n_step 0 = a run without end. */
void fm_metrics_format(const fm_metrics_step *step, uint64_t n_step, size_t columns, char *out,
                       size_t out_bytes);

#endif
