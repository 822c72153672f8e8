/* train_step.h: the end of a step: its metrics, its line of progress and the watch for
 * divergence. */
#ifndef FM_TRAINER_TRAIN_STEP_H
#define FM_TRAINER_TRAIN_STEP_H

#include "trainer/app/train/train_run.h"

/* FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_train_steps_create(fm_train_run *run, fm_error *reterr);
/* Opens the metrics at `path`, and TensorBoard's events where they are asked for. The errors of
 * fm_event_file_open and fm_metrics_open. */
FM_MUST_USE fm_status fm_train_steps_open(fm_train_run *run, const char *path, fm_error *reterr);
/* Begins to show progress, unless `quiet`. */
void fm_train_steps_begin(fm_train_run *run, bool quiet);
/* Ends the line of progress. */
void fm_train_steps_end(const fm_train_run *run);
/* Prints the mean losses of the first and of the last steps, if there were any. */
void fm_train_steps_print_losses(const fm_train_run *run);
/* Closes the files and frees the part, if there is one. discards: removes the events. */
void fm_train_steps_destroy(fm_train_run *run, bool discards);

/* Adds the results of a sample that counts. */
void fm_train_add_result(fm_batch_sums *sums, uint64_t index, uint32_t n_cycle, const char *name,
                         double wait_s, const fm_sample_result *result);

/* The learning rate of the update that was queued or made last. */
double fm_train_rate(const fm_train_run *run);

/* All samples of the step have been collected or skipped: reports the step and begins the next.
 * FM_ERR_DATA when the run diverges and is to end then, and the errors of fm_train_work.finish. */
FM_MUST_USE fm_status fm_train_finish_step(fm_train_run *run, double rate, fm_error *reterr);

/* Whether the loss or the gradient's norm is far above what it was. */
bool fm_train_is_diverging(const fm_train_run *run);

/* Writes metrics that still wait in memory, and syncs their files. A checkpoint is written after
 * it: a resumed run begins behind the checkpoint, so the rows before must be on disk. FM_ERR_IO. */
FM_MUST_USE fm_status fm_train_sync_metrics(fm_train_run *run, fm_error *reterr);

/* Seconds since 1970. */
double fm_train_wall_s(void);

#endif
