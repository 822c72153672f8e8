/* results.c: see results.h. */
#include "trainer/predict/results.h"

#include "proto/base/csv.h"
#include "proto/base/json_text.h"
#include "trainer/predict/text_file.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fm_status fm_results_make(fm_results *ret_results, uint32_t n_chain, uint32_t n_run,
                          fm_error *reterr) {
    fm_results r = {.n_chain = n_chain, .n_run = n_run};
    r.chain = calloc(n_chain + 1, sizeof *r.chain);
    r.run = calloc(n_run, sizeof *r.run);
    r.all = calloc((size_t)n_chain * n_run + 1, sizeof *r.all);
    if (!r.chain || !r.run || !r.all) {
        fm_results_release(&r);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %llu predictions",
                       (unsigned long long)n_chain * n_run);
    }
    for (uint32_t i = 0; i < n_chain; i++)
        r.chain[i].result = r.all + (size_t)i * n_run;
    *ret_results = r;
    return FM_OK;
}

void fm_results_release(fm_results *r) {
    for (uint32_t i = 0; r->chain && i < r->n_chain; i++) {
        free(r->chain[i].name);
        fm_json_free(r->chain[i].about);
    }
    free(r->chain);
    free(r->run);
    free(r->all);
    *r = (fm_results){.chain = NULL};
}

void fm_results_name_run(fm_results *r, uint32_t run, const char *model, uint64_t seed) {
    r->run[run].model = model;
    r->run[run].seed = seed;
    snprintf(r->run[run].name, sizeof r->run[run].name, "%s_seed-%llu", model,
             (unsigned long long)seed);
}

fm_status fm_results_name_chain(fm_result_chain *chain, const char *name, fm_error *reterr) {
    if (chain->name) return FM_OK;
    chain->name = strdup(name);
    return chain->name ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a name");
}

/* Insertion keeps equal ones in the order of the runs. */
uint32_t fm_results_rank(const fm_results *r, const fm_result_chain *chain, uint32_t *ret_order) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < r->n_run; k++) {
        const fm_result *here = &chain->result[k];
        if (!here->is_done || here->status) continue;
        uint32_t at = n++;
        for (; at > 0 && chain->result[ret_order[at - 1]].mean_plddt < here->mean_plddt; at--)
            ret_order[at] = ret_order[at - 1];
        ret_order[at] = k;
    }
    return n;
}

uint32_t fm_results_find_best(const fm_results *r, const fm_result_chain *chain) {
    uint32_t best = UINT32_MAX;
    for (uint32_t k = 0; k < r->n_run; k++) {
        const fm_result *here = &chain->result[k];
        if (!here->is_done || here->status) continue;
        bool is_better = best == UINT32_MAX || here->mean_plddt > chain->result[best].mean_plddt;
        if (is_better) best = k;
    }
    return best;
}

uint64_t fm_results_n_failed(const fm_results *r) {
    uint64_t n = 0;
    for (size_t i = 0; i < (size_t)r->n_chain * r->n_run; i++)
        n += r->all[i].is_done && r->all[i].status;
    return n;
}

/* The seeds of a model are together in the table. */
static bool has_one_structure(const fm_results *r, const fm_result_chain *chain) {
    uint32_t n_pair = 0;
    for (uint32_t k = 1; k < r->n_run; k++) {
        const fm_result *last = &chain->result[k - 1], *here = &chain->result[k];
        if (r->run[k].model != r->run[k - 1].model) continue;
        if (!here->structure || here->structure != last->structure) return false;
        n_pair++;
    }
    return n_pair > 0;
}

uint32_t fm_results_n_same(const fm_results *r) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n_chain; i++)
        n += has_one_structure(r, &r->chain[i]);
    return n;
}

/* -- ranking.json */

static void put_values(fm_json_writer *json, const char *key, const fm_results *r,
                       const fm_result_chain *chain, const uint32_t *order, uint32_t n,
                       bool is_plddt) {
    fm_json_open_object(json, key);
    for (uint32_t k = 0; k < n; k++) {
        const fm_result *here = &chain->result[order[k]];
        fm_json_put_f64(json, r->run[order[k]].name, is_plddt ? here->mean_plddt : here->ptm, 4);
    }
    fm_json_close(json);
}

fm_status fm_results_write_ranking(const fm_results *r, const fm_result_chain *chain,
                                   const char *path, fm_error *reterr) {
    fm_text_file file;
    fm_json_writer json;
    uint32_t *order = malloc(r->n_run * sizeof *order);
    if (!order) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a ranking");
    uint32_t n = fm_results_rank(r, chain, order);
    fm_status status = fm_text_file_open(&file, reterr);
    if (!status) {
        bool has_ptm = n && isfinite(chain->result[order[0]].ptm);
        fm_json_begin(&json, file.out);
        fm_json_put_string(&json, "chain", chain->name);
        fm_json_put_u64(&json, "residues", chain->n_res);
        put_values(&json, "plddts", r, chain, order, n, true);
        if (has_ptm) put_values(&json, "ptms", r, chain, order, n, false);
        fm_json_open_array(&json, "order");
        for (uint32_t k = 0; k < n; k++)
            fm_json_put_string(&json, NULL, r->run[order[k]].name);
        fm_json_close(&json);
        fm_json_end(&json);
        status = fm_text_file_commit(&file, path, reterr);
    }
    free(order);
    return status;
}

/* -- summary.csv */

static void put_row(FILE *out, const fm_results *r, const fm_result_chain *chain, uint32_t run,
                    uint32_t rank) {
    const fm_result *result = &chain->result[run];
    const double none = NAN;
    bool is_good = !result->status;
    fm_csv_put(out, chain->name);
    fprintf(out, ",%u,%u,%u,", chain->n_res, chain->n_seq, chain->n_templ);
    fm_csv_put(out, r->run[run].model);
    fprintf(out, ",%llu,", (unsigned long long)r->run[run].seed);
    if (is_good) fprintf(out, "%u", rank);
    fm_csv_put_number(out, is_good ? result->mean_plddt : none, 4);
    fm_csv_put_number(out, is_good ? result->ptm : none, 4);
    fm_csv_put_number(out, is_good ? result->max_pae : none, 2);
    if (is_good) {
        fprintf(out, ",%u", result->n_cycle);
    } else {
        fputc(',', out);
    }
    fm_csv_put_number(out, is_good ? result->ca_change : none, 4);
    fm_csv_put_number(out, is_good ? result->record_s : none, 4);
    fm_csv_put_number(out, is_good ? result->run_s : none, 4);
    fputc(',', out);
    fm_csv_put(out, is_good ? "" : result->why);
    fputc('\n', out);
}

static void put_chain(FILE *out, const fm_results *r, const fm_result_chain *chain,
                      uint32_t *order) {
    uint32_t n = fm_results_rank(r, chain, order);
    for (uint32_t k = 0; k < n; k++)
        put_row(out, r, chain, order[k], k + 1);
    for (uint32_t run = 0; run < r->n_run; run++)
        if (chain->result[run].is_done && chain->result[run].status) put_row(out, r, chain, run, 0);
}

fm_status fm_results_write_summary(const fm_results *r, const fm_refused_input *refused,
                                   uint32_t n_refused, const char *path, fm_error *reterr) {
    fm_text_file file;
    uint32_t *order = malloc(r->n_run * sizeof *order);
    if (!order) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a summary");
    fm_status status = fm_text_file_open(&file, reterr);
    if (!status) {
        fputs("chain,n_res,n_seq,n_templ,model,seed,rank,mean_plddt,ptm,max_pae,cycles,ca_change,"
              "record_s,run_s,failed\n",
              file.out);
        for (uint32_t i = 0; i < r->n_chain; i++)
            if (r->chain[i].name) put_chain(file.out, r, &r->chain[i], order);
        for (uint32_t i = 0; i < n_refused; i++) {
            fm_csv_put(file.out, refused[i].name);
            fputs(",,,,,,,,,,,,,,", file.out);
            fm_csv_put(file.out, refused[i].why);
            fputc('\n', file.out);
        }
        status = fm_text_file_commit(&file, path, reterr);
    }
    free(order);
    return status;
}
