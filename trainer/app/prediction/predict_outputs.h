/* predict_outputs.h: what a command makes of its predictions: where their files are, which are
 * written, and what is listed and printed at the end. `foldmill predict` ranks the predictions of
 * each chain; `foldmill distill` sorts them into structures to train on and rejected ones. */
#ifndef FM_TRAINER_PREDICT_OUTPUTS_H
#define FM_TRAINER_PREDICT_OUTPUTS_H

#include "trainer/app/prediction/predict_run.h"

enum { FM_PREDICT_PATH_BYTES = 4096 };

struct fm_predict_outputs {
    int number; /* part of the digest of a prediction, as it was made for these outputs */
    /* Structures of a mean pLDDT below options->least_plddt have another path, and a chain that
     * fails keeps no file of an earlier command: what is left is a dataset. */
    bool selects;
    bool has_pictures; /* also aligned errors, and .pdb where the options ask for it */
    bool says_rate;    /* the last line has the predictions of an hour */
    /* Find the path of a file, or of a structure. FM_ERR_USAGE if a path does not fit. */
    fm_status (*find_path)(const fm_predict_run_options *options, const char *chain,
                           const fm_result_run *run, const char *ending,
                           char out[FM_PREDICT_PATH_BYTES], fm_error *reterr);
    fm_status (*find_structure)(const fm_predict_run_options *options, const char *chain,
                                const fm_result_run *run, bool is_kept,
                                char out[FM_PREDICT_PATH_BYTES], fm_error *reterr);
    /* Makes the folders of a chain's files. */
    fm_status (*make_folders)(const fm_predict_run_options *options, const char *chain,
                              fm_error *reterr);
    /* Writes the lists beside summary.csv; and the pages of all chains, or NULL for none. */
    fm_status (*write_lists)(const fm_predict_run_options *options, const fm_results *results,
                             fm_error *reterr);
    fm_status (*write_pages)(const fm_predict_run_options *options, const fm_results *results,
                             fm_error *reterr);
    void (*print)(const fm_predict_run_options *options, const fm_results *results);
};

extern const fm_predict_outputs fm_predict_ranked, fm_predict_distilled;

/* Writes the path of a file beside the folders of chains, "OUT/" + leaf. Returns FM_ERR_USAGE if
 * the path does not fit. */
FM_MUST_USE fm_status fm_predict_file(const fm_predict_run_options *options, const char *leaf,
                                      char *out, size_t out_bytes, fm_error *reterr);
/* Writes the path of a ranked prediction's file, "OUT/CHAIN/CHAIN_MODEL_seed-S" + ending. With run
 * NULL it is "OUT/CHAIN" + ending. Errors as above. */
FM_MUST_USE fm_status fm_predict_path(const fm_predict_run_options *options, const char *chain,
                                      const fm_result_run *run, const char *ending, char *out,
                                      size_t out_bytes, fm_error *reterr);

#endif
