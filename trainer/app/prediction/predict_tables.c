/* predict_tables.c: see predict_tables.h. */
#include "trainer/app/prediction/predict_tables.h"

#include "proto/base/json_text.h"
#include "trainer/app/prediction/predict_outputs.h"
#include "trainer/predict/text_file.h"

#include <stdio.h>

fm_status fm_predict_write_kept(const fm_predict_run_options *options, const fm_results *r,
                                fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_text_file file;
    fm_status status = fm_predict_file(options, "chains.txt", path, sizeof path, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < r->n_chain; i++) {
        const fm_result *result = &r->chain[i].result[0];
        if (!result->is_done || result->status) continue;
        if (result->mean_plddt >= options->least_plddt) fprintf(file.out, "%s\n", r->chain[i].name);
    }
    return fm_text_file_commit(&file, path, reterr);
}

fm_status fm_predict_write_rankings(const fm_predict_run_options *options, const fm_results *r,
                                    fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < r->n_chain && !status; i++) {
        const fm_result_chain *chain = &r->chain[i];
        if (!chain->name || fm_results_find_best(r, chain) == UINT32_MAX) continue;
        status =
            fm_predict_path(options, chain->name, NULL, "/ranking.json", path, sizeof path, reterr);
        if (!status) status = fm_results_write_ranking(r, chain, path, reterr);
    }
    return status;
}

fm_status fm_predict_write_tables(const fm_predict_run_options *options, const fm_results *r,
                                  fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_status status = options->outputs->write_lists(options, r, reterr);
    if (!status) status = fm_predict_file(options, "summary.csv", path, sizeof path, reterr);
    if (status) return status;
    return fm_results_write_summary(r, options->refused, options->n_refused, path, reterr);
}

fm_status fm_predict_write_timings(const fm_predict_run_options *options, const fm_results *r,
                                   double inputs_s, double all_s, fm_error *reterr) {
    char path[FM_PREDICT_PATH_BYTES];
    fm_text_file file;
    fm_json_writer json;
    fm_status status = fm_predict_file(options, "timings.json", path, sizeof path, reterr);
    if (!status) status = fm_text_file_open(&file, reterr);
    if (status) return status;
    fm_json_begin(&json, file.out);
    fm_json_put_f64(&json, "inputs_s", inputs_s, 4);
    fm_json_put_f64(&json, "all_s", all_s, 4);
    fm_json_open_array(&json, "predictions");
    for (uint32_t i = 0; i < r->n_chain; i++) {
        for (uint32_t k = 0; k < r->n_run; k++) {
            const fm_result *result = &r->chain[i].result[k];
            if (!result->is_done || result->status) continue;
            fm_json_open_object(&json, NULL);
            fm_json_put_string(&json, "chain", r->chain[i].name);
            fm_json_put_string(&json, "prediction", r->run[k].name);
            fm_json_put_u64(&json, "residues", r->chain[i].n_res);
            fm_json_put_u64(&json, "cycles", result->n_cycle);
            fm_json_put_f64(&json, "record_s", result->record_s, 4);
            fm_json_put_f64(&json, "run_s", result->run_s, 4);
            fm_json_put_bool(&json, "kept", result->is_resumed);
            fm_json_close(&json);
        }
    }
    fm_json_close(&json);
    fm_json_end(&json);
    return fm_text_file_commit(&file, path, reterr);
}
