/* train_options.h: the command line of `foldmill train`. */
#ifndef FM_TRAINER_TRAIN_OPTIONS_H
#define FM_TRAINER_TRAIN_OPTIONS_H

#include "proto/credentials.h"

typedef struct fm_train_options {
    const char *data, *cache, *samples, *eval_samples, *snapshot, *preset, *config, *from, *out,
        *tensorboard, *order, *device, *dtype, *bad_samples;
    fm_credentials credentials;
    uint64_t steps, seed, ahead, wait_ms, full_wait_s, data_timeout_s, jobs;
    uint64_t checkpoint_every, keep_last, keep_every; /* steps, files, steps; 0 = never */
    double checkpoint_minutes;                        /* 0 = never */
    uint64_t bad_sample_budget;
    uint64_t eval_every, eval_wait_s; /* steps, 0: as the configuration says */
    const char *eval_snapshot, *eval_data, *eval_device, *eval_dtype, *stop_at;
    bool eval_share;
    fm_option_list skip_sample, change;
    uint64_t ranks, gpus, dap, bp; /* 0: as the configuration says */
    const char *meet, *replay;
    const char *batch_schedule; /* NULL: the configuration's batch */
    bool crosses_hosts;         /* ranks of a sample may be on several */
    uint64_t patience_s;        /* for a rank that gives no sign */
    bool dry_run;               /* says what the run would be, and ends */
    bool supervises;            /* starts the run again when it fails, */
    uint64_t restarts;          /* so often at most */
    bool quiet, resume, show_config, help_config, stop_on_divergence, check_samples;
    bool skips_bad; /* follows from bad_samples */
    /* The command line as it was given, for advice. */
    int argc;
    char **argv;
} fm_train_options;

extern const char fm_train_program[];

/* Reads the command line; *set is filled with the defaults first. FM_ERR_CANCELLED: help was asked
 * for and is printed. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_options_parse(fm_train_options *set, int argc, char **argv,
                                             fm_error *reterr);

/* Reads the number of a sample, as --skip-sample takes it. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_train_options_index(const char *text, uint64_t *ret_index,
                                             fm_error *reterr);

/* Writes the command that goes on with this run, with one more argument; cut off with "..." when
 * it does not fit. */
void fm_train_options_advise(const fm_train_options *set, const char *more, char *out,
                             size_t out_bytes);

#endif
