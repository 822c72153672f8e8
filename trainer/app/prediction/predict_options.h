/* predict_options.h: the command lines of `foldmill predict` and `foldmill distill`. Both share one
 * table of options, and each uses some of its rows. */
#ifndef FM_TRAINER_PREDICT_OPTIONS_H
#define FM_TRAINER_PREDICT_OPTIONS_H

#include "proto/credentials.h"
#include "proto/limits.h"
#include "trainer/app/prediction/predict_outputs.h"
#include "trainer/app/prediction/predict_group.h"

/* What one of the commands is. */
typedef struct fm_predict_command_kind {
    const char *program; /* "foldmill predict" or "foldmill distill" */
    const char *arguments, *summary, *description;
    int most_inputs;          /* files on the command line; 0: it takes none */
    bool predicts_once;       /* each chain, with one model and one seed */
    const char *const *lacks; /* options of the table that it does not have; NULL ends the list */
    const fm_predict_outputs *outputs;
} fm_predict_command_kind;

extern const fm_predict_command_kind fm_predict_command, fm_distill_command;

typedef struct fm_predict_settings {
    const fm_predict_command_kind *command;
    double min_plddt;
    fm_option_list weights, chains;
    const char *out, *alignments, *templates, *cache, *data, *snapshot, *seeds, *set, *device,
        *dtype, *date, *components;
    fm_credentials credentials;
    uint64_t recycles; /* FM_PREDICT_NOT_GIVEN: as the network has it */
    /* Of complexes; 0: not given. */
    uint64_t steps, samples, msa_rows;
    uint64_t max_length, n_cluster, n_extra, wait_ms, data_timeout_s, memory_mib, jobs;
    double device_gib, recycle_tol;
    bool resume, pdb, dropout, single_sequence, quiet;
    uint64_t n_rank, gpus, dap, ensemble, threads;
    fm_predict_ranks_options ranks;
    uint32_t date_rule;
    bool has_seeds; /* given on the command line */
    uint32_t n_seed;
    uint64_t seed[FM_PREDICT_MOST_SEEDS];
    uint32_t n_input;
    char **input;
    char name[FM_PREDICT_MOST_MODELS][FM_LIMIT_NAME_BYTES + 1]; /* of the models */
} fm_predict_settings;

#define FM_PREDICT_NOT_GIVEN UINT64_MAX

/* What a command begins with. */
fm_predict_settings fm_predict_settings_default(const fm_predict_command_kind *command);

/* Recycling cycles after the first of AlphaFold2's network. */
uint64_t fm_predict_settings_recycles(const fm_predict_settings *set);

/* Reads and checks the command line into *set, which holds the defaults. `input` points into argv,
 * whose words are moved. FM_ERR_CANCELLED: help was asked for and is printed. FM_ERR_USAGE. */
FM_MUST_USE fm_status fm_predict_settings_parse(fm_predict_settings *set, int argc, char **argv,
                                                fm_error *reterr);

#endif
