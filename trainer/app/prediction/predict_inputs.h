/* predict_inputs.h: the source of a prediction's chains: a server, a cache, or files. `foldmill
 * featurize` prepares files as a cache below the folder of the results. A private server serves a
 * cache until fm_predict_inputs_close. */
#ifndef FM_TRAINER_PREDICT_INPUTS_H
#define FM_TRAINER_PREDICT_INPUTS_H

#include "proto/base/json_tree.h"
#include "proto/base/options.h"
#include "trainer/predict/results.h"

typedef struct fm_predict_inputs_options {
    const char *program;      /* for messages: "foldmill predict" */
    const char *const *input; /* [n_input] files; n_input 0: a cache or a server */
    uint32_t n_input;
    const char *alignments, *templates; /* of files; NULL: beside them; no templates */
    bool single_sequence;
    const char *cache, *data, *snapshot; /* one of cache and data without files */
    const fm_option_list *chain;         /* names of chains of the cache; none: all */
    const char *date;                    /* bound of templates: any, query, YYYY-MM-DD */
    const char *out;                     /* the folder of the results, which exists */
    uint64_t jobs;                       /* 0: the programs' default */
    bool quiet;
    /* The address of the server that another process has started for the same inputs, and stops;
     * NULL: this process starts it. */
    const char *server;
} fm_predict_inputs_options;

typedef struct fm_predict_inputs fm_predict_inputs;

/* Prepares the inputs and starts the server. Refused inputs are reported on standard error and
 * counted. Returns FM_ERR_DATA when all inputs are refused, FM_ERR_NOT_FOUND for a chain that the
 * cache lacks, FM_ERR_CANCELLED, or FM_ERR_USAGE or FM_ERR_IO with the reason. */
FM_MUST_USE fm_status fm_predict_inputs_open(const fm_predict_inputs_options *options,
                                             fm_predict_inputs **ret_inputs, fm_error *reterr);
/* Stops the server and removes the prepared cache. NULL is allowed. */
void fm_predict_inputs_close(fm_predict_inputs *inputs);

const char *fm_predict_inputs_url(const fm_predict_inputs *inputs);
/* The numbers of the chosen chains, in rising order; NULL and 0: all. */
const uint64_t *fm_predict_inputs_only(const fm_predict_inputs *inputs, uint32_t *ret_n);
/* Sets *ret_about to the output of `foldmill inspect --as-input` for a chain; NULL when the command
 * fails, and for the chains of --data. It is meant for fm_predict_run_options.about, with `inputs`
 * as the context. */
FM_MUST_USE fm_status fm_predict_inputs_about(void *inputs, const char *chain, fm_json **ret_about,
                                              fm_error *reterr);
/* The refused inputs [*ret_n], in the order of their names. */
const fm_refused_input *fm_predict_inputs_refused(const fm_predict_inputs *inputs, uint32_t *ret_n);

#endif
