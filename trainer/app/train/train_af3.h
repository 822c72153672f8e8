/* train_af3.h: AlphaFold 3's network in a run: its step, and the scores of its moving average on
 * held-out files. Its samples come from a folder (train_stored.h) or from a server
 * (train_complexes.h); what these two have in common is here. Each sample is computed at once. */
#ifndef FM_TRAINER_TRAIN_AF3_H
#define FM_TRAINER_TRAIN_AF3_H

#include "trainer/app/train/train_run.h"
#include "trainer/step/af3/step.h"

/* Checks the settings of the network and of evaluations. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_af3_check(const fm_train_run *run, fm_error *reterr);
/* Opens the held-out samples, if there are any, and reads each once. `data` is the address of the
 * server of samples, NULL without one. The errors of fm_held_out_open and fm_held_out_read. */
FM_MUST_USE fm_status fm_train_af3_open(fm_train_run *run, const char *data, fm_error *reterr);
/* Ends the part, however far it came. */
void fm_train_af3_stop(fm_train_run *run);

fm_af3_trainer *fm_train_af3_trainer(const fm_train_run *run);
/* Moves from a slot of a step to this rank's next one. Returns false if it has none in the run, or
 * none in that step. */
bool fm_train_af3_find_next(const fm_train_run *run, uint64_t *step, uint32_t *slot);
/* Computes a sample, and adds its gradient to the batch's sum. The errors of
 * fm_af3_trainer_add_sample. */
FM_MUST_USE fm_status fm_train_af3_compute(fm_train_run *run, const fm_af3_features *features,
                                           fm_sample_result *ret_result, fm_error *reterr);
/* Of a single rank: counts a sample that was computed, and ends its step if it is the last one. */
FM_MUST_USE fm_status fm_train_af3_count(fm_train_run *run, const fm_train_sample *sample,
                                         uint32_t n_cycle, double wait_s,
                                         const fm_sample_result *result, fm_error *reterr);
/* Prints where the held-out files are. */
void fm_train_af3_announce(const fm_train_run *run);
/* Prints what was left out of the samples, and which were skipped. */
void fm_train_af3_summarize(const fm_train_run *run);

/* The functions of fm_train_work that do not depend on the source of samples. */
FM_MUST_USE fm_status fm_train_af3_create(fm_train_run *run, const fm_kernels *kernels,
                                          fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_start(fm_train_run *run, fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_make_up(fm_train_run *run, fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_update(fm_train_run *run, uint32_t n, fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_finish(fm_train_run *run, fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_sync(fm_train_run *run, fm_error *reterr);
FM_MUST_USE fm_status fm_train_af3_queue_next(fm_train_run *run, uint64_t number, bool updates,
                                              fm_error *reterr);
uint64_t fm_train_af3_digest(const fm_train_run *run, bool joint);
const char *fm_train_af3_term_name(int i);
int64_t fm_train_af3_memory_bytes(const fm_train_run *run);
void fm_train_af3_describe(const fm_train_run *run, char *out, size_t out_bytes);

#define FM_TRAIN_AF3_WORK                                                                          \
    .n_term = FM_COMPLEX_TERMS, .term_name = fm_train_af3_term_name,                               \
    .lddt_term = FM_COMPLEX_SMOOTH_LDDT, .create = fm_train_af3_create,                            \
    .start = fm_train_af3_start, .make_up = fm_train_af3_make_up, .update = fm_train_af3_update,   \
    .finish = fm_train_af3_finish, .sync = fm_train_af3_sync,                                      \
    .memory_bytes = fm_train_af3_memory_bytes, .describe = fm_train_af3_describe

#endif
