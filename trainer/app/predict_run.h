/* predict_run.h: predicts chains with one or several models and seeds, and writes what it predicts.
 *
 * Models come one after the other, for each its seeds, for each the chains in the order of their
 * lengths. A prediction's files are OUT/CHAIN/CHAIN_MODEL_seed-S with
 *
 *     .cif, .pdb        the structure
 *     _scores.json      its confidences, with ColabFold's keys
 *     _pae.json         the aligned errors in the layout of the AlphaFold database
 *     _run.json         what it was made from, with its timing; written last
 *
 * and those of distillation OUT/data/CHAIN.cif, OUT/confidences/CHAIN.json and _run.json. */
#ifndef FM_TRAINER_PREDICT_RUN_H
#define FM_TRAINER_PREDICT_RUN_H

#include "trainer/app/chains.h"
#include "trainer/app/predict_model.h"
#include "trainer/predict/results.h"

enum { FM_PREDICT_MOST_MODELS = 64, FM_PREDICT_MOST_SEEDS = 1024 };

typedef struct fm_predict_run_options {
    fm_chains_options chains; /* seed, cycles and rows are filled in for each model */
    uint32_t n_model, n_seed;
    const fm_predict_model_options *model; /* [n_model] */
    const char *const *model_name;         /* [n_model] different from each other */
    const uint64_t *seed;                  /* [n_seed] */
    uint32_t n_recycle;                    /* cycles after the first one */
    const char *out;
    const char *software; /* version of this program */
    bool resumes;         /* predictions whose _run.json is of the same inputs are kept */
    bool writes_pdb;
    bool distils;
    double least_plddt; /* distils: structures of a lower mean are not written */
    /* Called before the first chain of a model, and after each prediction. NULL: not called. */
    void (*on_model)(void *context, uint32_t model, const fm_predict_model *loaded);
    void (*on_result)(void *context, const fm_result_chain *chain, const fm_result_run *run,
                      const fm_result *result, uint32_t n_done, uint32_t n_all);
    void *context;
} fm_predict_run_options;

/* Predicts all chains. What is wrong with a chain is in its result. FM_ERR_CANCELLED when a signal
 * asked to stop: finished predictions stay. Errors of models, of the server and of writing. The
 * caller releases the table, also after a failure. */
FM_MUST_USE fm_status fm_predict_run(const fm_predict_run_options *options, fm_results *ret_results,
                                     fm_error *reterr);

/* Writes the path of a file of a prediction: "OUT/CHAIN/CHAIN_MODEL_seed-S" + ending, or the folder
 * of the chain's files with run NULL: "OUT/CHAIN" + ending. FM_ERR_USAGE if it does not fit. */
FM_MUST_USE fm_status fm_predict_path(const fm_predict_run_options *options, const char *chain,
                                      const fm_result_run *run, const char *ending, char *out,
                                      size_t out_bytes, fm_error *reterr);

#endif
