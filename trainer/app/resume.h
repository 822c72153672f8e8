/* resume.h: saves a run's whole state to a checkpoint and resumes from one: parameters, optimiser,
 * settings and position in the data stream. */
#ifndef FM_TRAINER_RESUME_H
#define FM_TRAINER_RESUME_H

#include "proto/base/hash.h"
#include "proto/token.h"
#include "trainer/app/train_config.h"
#include "trainer/step/step.h"

typedef struct fm_resume_options {
    const char *folder;  /* folder of the run; holds its checkpoints */
    uint32_t keep_last;  /* number of newest checkpoints to keep, >= 1 */
    uint64_t keep_every; /* keep those whose step is a multiple, too; 0 = none */
    uint64_t seed;       /* seed of the run */
    fm_sha256 snapshot;  /* snapshot of the server, to save; all zero = not known */
    const fm_train_config *config;
} fm_resume_options;

/* Creates the run's folder and locks it for this process until *ret_fd is closed. FM_ERR_EXISTS if
 * another process trains into it. On a file system without locks, no other process is kept out.
 * FM_ERR_IO. */
FM_MUST_USE fm_status fm_resume_lock(const char *folder, int *ret_fd, fm_error *reterr);

/* Saves the state after update `step` and removes checkpoints that need not be kept. Samples of an
 * update that was not made are not counted; `token` must not count them either. */
FM_MUST_USE fm_status fm_resume_save(const fm_resume_options *options, const fm_trainer *trainer,
                                     uint64_t step, const fm_token *token, fm_error *reterr);

/* Begins a new run with the parameters and the average of a checkpoint; the moments are 0 and no
 * step is made. The checkpoint's model must have the same sizes; its other settings do not matter.
 * FM_ERR_CORRUPT, FM_ERR_NOT_FOUND, FM_ERR_IO. */
FM_MUST_USE fm_status fm_resume_begin_from(const char *path, fm_trainer *trainer, fm_error *reterr);

/* Loads the newest whole checkpoint of the folder into the trainer. Sets *ret_step, *ret_token and
 * *ret_snapshot, the snapshot that the run trains on (all zero if the file does not say). A damaged
 * checkpoint is logged and skipped. FM_ERR_NOT_FOUND if there is none. FM_ERR_CORRUPT if all are
 * damaged. FM_ERR_USAGE if the run has another seed or other settings; the message names the first
 * line that differs. */
FM_MUST_USE fm_status fm_resume_load(const fm_resume_options *options, fm_trainer *trainer,
                                     uint64_t *ret_step, fm_token *ret_token,
                                     fm_sha256 *ret_snapshot, fm_error *reterr);

#endif
