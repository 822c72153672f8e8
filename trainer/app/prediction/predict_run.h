/* predict_run.h: predicts chains with one or several models and seeds, and writes the results.
 *
 * Models run one after the other. Each model runs its seeds in turn, and each seed the chains in
 * the order of their lengths. A prediction's files are OUT/CHAIN/CHAIN_MODEL_seed-S with the
 * endings
 *
 *     .cif, .pdb        the structure
 *     _scores.json      its confidences, with ColabFold's keys
 *     _pae.json, .svg   the aligned errors in the layout of the AlphaFold database, and drawn
 *     _trace.svg        the path of the chain
 *     _run.json         its inputs, weights, settings and times; written last
 *
 * A distillation writes data/CHAIN.cif, or rejected/CHAIN.cif for a mean pLDDT below the limit, and
 * CHAIN_scores.json and CHAIN_run.json in confidences. These folders are in OUT, or for the chain
 * DATASET:CHAIN in OUT/DATASET. The names of files are those of trainer/predict/chain_file.h. */
#ifndef FM_TRAINER_PREDICT_RUN_H
#define FM_TRAINER_PREDICT_RUN_H

#include "trainer/app/prediction/predict_model.h"
#include "trainer/app/samples/chains.h"
#include "trainer/predict/results.h"

enum {
    FM_PREDICT_MOST_MODELS = 64,
    FM_PREDICT_MOST_SEEDS = 1024,
    FM_PREDICT_RUN_BYTES = 4 << 20 /* most of a _run.json */
};

/* The progress of a command. */
typedef struct fm_predict_pace {
    uint64_t n_done, n_all, n_resumed; /* predictions; n_resumed: an earlier command made them */
    double elapsed_s; /* since the first chain began, models loaded since then included */
    double left_s;    /* estimate; NAN before the first prediction is made */
} fm_predict_pace;

typedef struct fm_predict_outputs fm_predict_outputs; /* predict_outputs.h */

typedef struct fm_predict_run_options {
    fm_chains_options chains; /* seed, cycles and rows are filled in for each model */
    uint32_t n_model, n_seed;
    const fm_predict_model_options *model; /* [n_model] */
    const fm_predict_model *looked;        /* [n_model] by fm_predict_model_look */
    const char *const *model_name;         /* [n_model] different from each other */
    const uint64_t *seed;                  /* [n_seed] */
    uint32_t n_recycle;                    /* cycles after the first one */
    bool only_computes; /* another rank of the same chains writes and removes files */
    const char *out;
    const char *software; /* version of this program */
    bool resumes;         /* keeps predictions whose _run.json has the same inputs */
    bool writes_pdb;
    const fm_predict_outputs *outputs;
    double least_plddt; /* of outputs that select: structures of a lower mean are rejected */
    /* Refused inputs, for the summary. */
    const fm_refused_input *refused; /* [n_refused] */
    uint32_t n_refused;
    /* Called once for each chain for the output of `foldmill inspect --as-input`, or NULL. The
     * function may be NULL; then nothing is known about chains. It may return FM_ERR_CANCELLED and
     * FM_ERR_NOMEM. */
    fm_status (*about)(void *context, const char *chain, fm_json **ret_about, fm_error *reterr);
    void *about_context;
    /* Called before each chain. Returns FM_ERR_CANCELLED when the run has to stop, or another error
     * that ends it. NULL: the run stops when a signal has asked for it. */
    fm_status (*may_begin)(void *context, fm_error *reterr);
    void *may_begin_context;
    /* Called before the first chain of a model, before a chain is computed, and after each
     * prediction. Each may be NULL. The command that starts ranks calls only the last. */
    void (*on_model)(void *context, uint32_t model, const fm_predict_model *loaded);
    void (*on_chain)(void *context, const fm_result_chain *chain, const fm_result_run *run,
                     const fm_predict_pace *pace);
    void (*on_result)(void *context, const fm_result_chain *chain, const fm_result_run *run,
                      const fm_result *result, const fm_predict_pace *pace);
    void *context;
} fm_predict_run_options;

/* Predicts all chains. An error of one chain is stored in its result. Returns FM_ERR_CANCELLED when
 * a signal asked to stop, and finished predictions stay. Otherwise it returns errors of models, of
 * the server and of writing. The caller releases *ret_results, also after a failure. */
FM_MUST_USE fm_status fm_predict_run(const fm_predict_run_options *options, fm_results *ret_results,
                                     fm_error *reterr);

/* Makes the table of n_chain chains and of all models and seeds, unless it exists. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_predict_make_results(const fm_predict_run_options *options,
                                              uint32_t n_chain, fm_results *results,
                                              fm_error *reterr);

#endif
