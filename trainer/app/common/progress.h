/* progress.h: shows people how a run goes: one line on standard error that a terminal
 * rewrites at each step. Without a terminal, a new line is written after every few steps. */
#ifndef FM_TRAINER_PROGRESS_H
#define FM_TRAINER_PROGRESS_H

#include "trainer/metrics/metrics.h"

typedef struct fm_progress {
    uint64_t n_step; /* of the whole run */
    bool quiet, terminal;
} fm_progress;

fm_progress fm_progress_of(uint64_t n_step, bool quiet);

void fm_progress_say(const fm_progress *progress, const fm_metrics_step *step);

/* Cuts a line to the terminal's width, because one that wraps cannot be erased, and replaces its
 * control characters. */
void fm_progress_cut(char *line);

/* Ends the line of a run that ended after `step`, before its last step. */
void fm_progress_end(const fm_progress *progress, uint64_t step);

#endif
