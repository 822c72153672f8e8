/* resume.h: saves a run's whole state to a checkpoint and resumes from one: parameters, optimiser,
 * settings, the batch in hand and the position in the data stream. */
#ifndef FM_TRAINER_RESUME_H
#define FM_TRAINER_RESUME_H

#include "proto/base/hash.h"
#include "proto/token.h"
#include "trainer/app/settings/train_config.h"
#include "trainer/app/train/batch_sums.h"
#include "trainer/app/train/identity.h"
#include "trainer/app/train/skipped.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/optim/optimizer.h"

/* The progress of a run; parameters and optimiser hold the rest of its state. */
typedef struct fm_train_state {
    fm_checkpoint_place place; /* n_sample: of the batch in hand, skipped ones included */
    fm_token token;            /* the samples that are done with */
    fm_sha256 snapshot;        /* that the run trains on; all zero = not known */
    fm_batch_sums sums;        /* of the batch in hand */
    fm_skipped skipped;
    char history[FM_HISTORY_BYTES]; /* deliberate changes, a line each */
} fm_train_state;

typedef struct fm_resume_options {
    const char *folder;  /* folder of the run; holds its checkpoints */
    uint32_t keep_last;  /* number of newest checkpoints to keep, >= 1; 0 = keep all */
    uint64_t keep_every; /* keep those whose step is a multiple, too; 0 = none */
    uint64_t seed;       /* seed of the run */
    const fm_train_config *config;
    const char *identity;      /* text of fm_identity_format */
    const char *const *change; /* [n_change] settings that may differ from the checkpoint's */
    uint32_t n_change;
} fm_resume_options;

/* Saves the state and removes checkpoints that need not be kept, which are never removed before the
 * new one is complete. No sample may be queued. */
FM_MUST_USE fm_status fm_resume_save(const fm_resume_options *options,
                                     const fm_optimizer *optimizer, const fm_train_state *state,
                                     fm_error *reterr);

/* Loads the newest whole checkpoint of the folder into the parameters, the optimiser and *state,
 * which is unchanged on failure. A damaged checkpoint is logged and skipped. FM_ERR_NOT_FOUND if
 * there is none, and only then. FM_ERR_CORRUPT if all are damaged. FM_ERR_USAGE if the run has
 * another seed, or differs in what fm_identity_check compares. */
FM_MUST_USE fm_status fm_resume_load(const fm_resume_options *options, fm_optimizer *optimizer,
                                     fm_train_state *state, fm_error *reterr);

#endif
