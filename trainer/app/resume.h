/* resume.h: a run's whole state to a checkpoint and back: parameters and optimiser, settings, place
 * in the data stream. */
#ifndef FM_TRAINER_RESUME_H
#define FM_TRAINER_RESUME_H

#include "proto/base/hash.h"
#include "proto/token.h"
#include "trainer/app/train_config.h"
#include "trainer/step/step.h"

typedef struct fm_resume_options {
    const char *folder;  /* of the run; checkpoints lie in it */
    uint32_t keep_last;  /* the newest so many are kept, >= 1 */
    uint64_t keep_every; /* and those whose step is a multiple; 0 = none */
    uint64_t seed;       /* of the run */
    fm_sha256 snapshot;  /* of the server, to be saved; all zero = not known */
    const fm_train_config *config;
} fm_resume_options;

/* Makes the run's folder and holds it for this process until *ret_fd is closed: FM_ERR_EXISTS when
 * another trains into it. Where the file system knows no locks nobody is kept out. */
FM_MUST_USE fm_status fm_resume_lock(const char *folder, int *ret_fd, fm_error *reterr);

/* Saves the state after update `step` and removes checkpoints that need not be kept. Samples of an
 * update that was not made are left out: `token` must do so too. */
FM_MUST_USE fm_status fm_resume_save(const fm_resume_options *options, const fm_trainer *trainer,
                                     uint64_t step, const fm_token *token, fm_error *reterr);

/* Begins a new run with a checkpoint's parameters and average: moments are 0, no step is made. The
 * checkpoint must be of a model of the same sizes; its other settings do not matter.
 * FM_ERR_CORRUPT, FM_ERR_NOT_FOUND, FM_ERR_IO. */
FM_MUST_USE fm_status fm_resume_begin_from(const char *path, fm_trainer *trainer, fm_error *reterr);

/* Takes over the newest whole checkpoint of the folder: trainer, *ret_step, *ret_token and the
 * snapshot that it was trained on (all zero where the file does not say). One that is damaged is
 * logged and passed over. FM_ERR_NOT_FOUND when there is none, FM_ERR_CORRUPT when all are damaged;
 * FM_ERR_USAGE when it is of a run with another seed or other settings, naming the first line that
 * differs. */
FM_MUST_USE fm_status fm_resume_load(const fm_resume_options *options, fm_trainer *trainer,
                                     uint64_t *ret_step, fm_token *ret_token,
                                     fm_sha256 *ret_snapshot, fm_error *reterr);

#endif
