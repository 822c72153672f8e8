/* predict_outputs.c: see predict_outputs.h. */
#include "trainer/app/prediction/predict_outputs.h"

#include "proto/base/file.h"
#include "trainer/app/prediction/predict_pages.h"
#include "trainer/app/prediction/predict_print.h"
#include "trainer/app/prediction/predict_tables.h"
#include "trainer/predict/chain_file.h"

#include <stdio.h>

static fm_status check_fits(const fm_predict_run_options *options, int n, size_t out_bytes,
                            fm_error *reterr) {
    if (n >= 0 && (size_t)n < out_bytes) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_USAGE, options->out, "the path is too long");
}

fm_status fm_predict_file(const fm_predict_run_options *options, const char *leaf, char *out,
                          size_t out_bytes, fm_error *reterr) {
    int n = snprintf(out, out_bytes, "%s/%s", options->out, leaf);
    return check_fits(options, n, out_bytes, reterr);
}

fm_status fm_predict_path(const fm_predict_run_options *options, const char *chain,
                          const fm_result_run *run, const char *ending, char *out, size_t out_bytes,
                          fm_error *reterr) {
    char name[FM_CHAIN_FILE_MOST + 1];
    int n;
    fm_chain_file_name(chain, name);
    if (run) {
        n = snprintf(out, out_bytes, "%s/%s/%s_%s%s", options->out, name, name, run->name, ending);
    } else {
        n = snprintf(out, out_bytes, "%s/%s%s", options->out, name, ending);
    }
    return check_fits(options, n, out_bytes, reterr);
}

/* -- ranked predictions */

static fm_status find_ranked(const fm_predict_run_options *options, const char *chain,
                             const fm_result_run *run, const char *ending,
                             char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    return fm_predict_path(options, chain, run, ending, out, FM_PREDICT_PATH_BYTES, reterr);
}

static fm_status find_ranked_structure(const fm_predict_run_options *options, const char *chain,
                                       const fm_result_run *run, bool is_kept,
                                       char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    (void)is_kept; /* all are */
    return find_ranked(options, chain, run, ".cif", out, reterr);
}

static fm_status make_ranked_folder(const fm_predict_run_options *options, const char *chain,
                                    fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_status status = find_ranked(options, chain, NULL, "", path, reterr);
    return status ? status : fm_dir_make(path, reterr);
}

static void print_ranked(const fm_predict_run_options *options, const fm_results *results) {
    fm_predict_print_best(results);
    fm_predict_print_pages(options->out, results);
}

const fm_predict_outputs fm_predict_ranked = {.number = 0,
                                              .has_pictures = true,
                                              .find_path = find_ranked,
                                              .find_structure = find_ranked_structure,
                                              .make_folders = make_ranked_folder,
                                              .write_lists = fm_predict_write_rankings,
                                              .write_pages = fm_predict_write_pages,
                                              .print = print_ranked};

/* -- distilled ones */

/* Finds the folder of a distilled chain's files: "data", "rejected" or "confidences". `foldmill
 * build` reads each dataset from a separate folder, where names have no prefix. So each dataset
 * gets a folder. */
static fm_status distilled_folder(const fm_predict_run_options *options, const char *chain,
                                  const char *leaf, char out[FM_PREDICT_PATH_BYTES],
                                  fm_error *reterr) {
    const char *root = options->out;
    char dataset[FM_LIMIT_NAME_BYTES + 1], name[FM_CHAIN_FILE_MOST + 1];
    size_t bytes;
    (void)fm_chain_in_dataset(chain, &bytes);
    snprintf(dataset, sizeof dataset, "%.*s", (int)bytes, chain);
    fm_chain_file_name(dataset, name);
    int n = bytes ? snprintf(out, FM_PREDICT_PATH_BYTES, "%s/%s/%s", root, name, leaf)
                  : snprintf(out, FM_PREDICT_PATH_BYTES, "%s/%s", root, leaf);
    return check_fits(options, n, FM_PREDICT_PATH_BYTES, reterr);
}

static fm_status distilled_path(const fm_predict_run_options *options, const char *chain,
                                const char *leaf, const char *ending,
                                char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    char folder[FM_PREDICT_PATH_BYTES], name[FM_CHAIN_FILE_MOST + 1];
    size_t unused;
    fm_status status = distilled_folder(options, chain, leaf, folder, reterr);
    if (status) return status;
    fm_chain_file_name(fm_chain_in_dataset(chain, &unused), name);
    int n = snprintf(out, FM_PREDICT_PATH_BYTES, "%s/%s%s", folder, name, ending);
    return check_fits(options, n, FM_PREDICT_PATH_BYTES, reterr);
}

static fm_status find_distilled(const fm_predict_run_options *options, const char *chain,
                                const fm_result_run *run, const char *ending,
                                char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    (void)run; /* there is one */
    return distilled_path(options, chain, "confidences", ending, out, reterr);
}

static fm_status find_distilled_structure(const fm_predict_run_options *options, const char *chain,
                                          const fm_result_run *run, bool is_kept,
                                          char out[FM_PREDICT_PATH_BYTES], fm_error *reterr) {
    (void)run;
    return distilled_path(options, chain, is_kept ? "data" : "rejected", ".cif", out, reterr);
}

static fm_status make_distilled_folders(const fm_predict_run_options *options, const char *chain,
                                        fm_error *reterr) {
    static const char *const leaves[] = {"data", "rejected", "confidences"};
    char path[FM_PREDICT_PATH_BYTES];
    fm_status status = FM_OK;
    for (size_t i = 0; i < sizeof leaves / sizeof leaves[0] && !status; i++) {
        status = distilled_folder(options, chain, leaves[i], path, reterr);
        if (!status) status = fm_dir_make(path, reterr);
    }
    return status;
}

static void print_distilled(const fm_predict_run_options *options, const fm_results *results) {
    fm_predict_print_kept(results, options->least_plddt);
}

const fm_predict_outputs fm_predict_distilled = {.number = 1,
                                                 .selects = true,
                                                 .says_rate = true,
                                                 .find_path = find_distilled,
                                                 .find_structure = find_distilled_structure,
                                                 .make_folders = make_distilled_folders,
                                                 .write_lists = fm_predict_write_kept,
                                                 .print = print_distilled};
