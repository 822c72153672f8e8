/* predict_print.c: see predict_print.h. */
#include "trainer/app/prediction/predict_print.h"

#include "trainer/predict/chain_file.h"

#include <math.h>
#include <stdio.h>

enum { N_SHOWN = 10 };

void fm_predict_print_best(const fm_results *results) {
    for (uint32_t i = 0; i < results->n_chain && i < N_SHOWN; i++) {
        const fm_result_chain *chain = &results->chain[i];
        uint32_t run = fm_results_find_best(results, chain);
        if (!chain->name || run == UINT32_MAX) continue;
        const fm_result *best = &chain->result[run];
        printf("%-20s %5u residues  pLDDT %5.1f", chain->name, chain->n_res, best->mean_plddt);
        if (isfinite(best->ptm)) printf("  pTM %.3f", best->ptm);
        printf("  %s\n", results->run[run].name);
    }
    if (results->n_chain <= N_SHOWN) return;
    printf("and %u more; summary.csv has all\n", results->n_chain - N_SHOWN);
}

void fm_predict_print_pages(const char *out, const fm_results *results) {
    char name[FM_CHAIN_FILE_MOST + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < results->n_chain; i++) {
        const fm_result_chain *chain = &results->chain[i];
        if (!chain->name || fm_results_find_best(results, chain) == UINT32_MAX) continue;
        if (n++ == 0) fm_chain_file_name(chain->name, name);
    }
    if (n == 1) printf("page      %s/%s/%s.html\n", out, name, name);
    if (n > 1) printf("pages     %s/CHAIN/CHAIN.html\n", out);
}

void fm_predict_print_kept(const fm_results *results, double least_plddt) {
    uint32_t n_kept = 0, n_done = 0;
    for (uint32_t i = 0; i < results->n_chain; i++) {
        const fm_result *result = &results->chain[i].result[0];
        n_done += result->is_done && !result->status;
        n_kept += result->is_done && !result->status && result->mean_plddt >= least_plddt;
    }
    printf("kept      %u of %u structures: mean pLDDT at least %g\n", n_kept, n_done, least_plddt);
}

void fm_predict_print_failed(const char *program, const fm_results *results) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < results->n_chain; i++) {
        for (uint32_t k = 0; k < results->n_run; k++) {
            const fm_result *result = &results->chain[i].result[k];
            if (!result->is_done || !result->status || n++ >= N_SHOWN) continue;
            fprintf(stderr, "%s: %s, %s: %s\n", program, results->chain[i].name,
                    results->run[k].name, result->why);
        }
    }
    if (n > N_SHOWN) {
        fprintf(stderr, "%s: and %llu more; summary.csv names them all\n", program,
                (unsigned long long)n - N_SHOWN);
    }
}

double fm_predict_hourly_rate(const fm_predict_pace *pace) {
    double n = (double)(pace->n_done - pace->n_resumed);
    return pace->elapsed_s > 0 ? n / pace->elapsed_s * 3600 : 0;
}

const char *fm_predict_format_pace(const fm_predict_pace *pace, char out[64]) {
    const double minute = 60, hour = 3600;
    double left = pace->left_s;
    out[0] = '\0';
    if (!isfinite(left) || pace->n_done == pace->n_all) return out;
    int n = snprintf(out, 64, "  %.0f an hour, ", fm_predict_hourly_rate(pace));
    if (left < 2 * minute) {
        snprintf(out + n, 64 - (size_t)n, "%.0f s left", left);
    } else if (left < 2 * hour) {
        snprintf(out + n, 64 - (size_t)n, "%.0f min left", left / minute);
    } else {
        snprintf(out + n, 64 - (size_t)n, "%.1f h left", left / hour);
    }
    return out;
}
