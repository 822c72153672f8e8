/* predict_inputs.h: where the chains of a prediction come from: a server, a cache, or files, of
 * which `foldmill featurize` makes a cache below the folder of the results. A cache is served by a
 * private server as long as this lives. */
#ifndef FM_TRAINER_PREDICT_INPUTS_H
#define FM_TRAINER_PREDICT_INPUTS_H

#include "proto/base/options.h"

typedef struct fm_predict_inputs_options {
    const char *program;      /* for messages: "foldmill predict" */
    const char *const *input; /* [n_input] files; 0 of them: a cache or a server */
    uint32_t n_input;
    const char *alignments, *templates; /* of files; NULL = beside them, none */
    bool single_sequence;
    const char *cache, *data, *snapshot; /* one of cache and data without files */
    const fm_option_list *chain;         /* of the cache: their names; none = all */
    const char *out;                     /* the folder of the results, which exists */
    uint64_t jobs;                       /* 0: the programs' default */
    bool quiet;
} fm_predict_inputs_options;

typedef struct fm_predict_inputs fm_predict_inputs;

/* Prepares the inputs and starts the server. Inputs that are refused are reported on standard
 * error and counted. FM_ERR_DATA when none is left; FM_ERR_NOT_FOUND for a chain that the cache
 * lacks; FM_ERR_CANCELLED; FM_ERR_USAGE, FM_ERR_IO with the reason. */
FM_MUST_USE fm_status fm_predict_inputs_open(const fm_predict_inputs_options *options,
                                             fm_predict_inputs **ret_inputs, fm_error *reterr);
/* Stops the server and removes the cache that was made. NULL is allowed. */
void fm_predict_inputs_close(fm_predict_inputs *inputs);

const char *fm_predict_inputs_url(const fm_predict_inputs *inputs);
/* The numbers of the chosen chains, in rising order; NULL and 0: all. */
const uint64_t *fm_predict_inputs_only(const fm_predict_inputs *inputs, uint32_t *ret_n);
uint32_t fm_predict_inputs_n_refused(const fm_predict_inputs *inputs);

#endif
