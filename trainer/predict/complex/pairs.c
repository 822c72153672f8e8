/* pairs.c: see pairs.h. */
#include "trainer/predict/complex/pairs.h"

#include "trainer/backend/cpu_threads.h"
#include "trainer/backend/exp.h"
#include "trainer/predict/complex/bins.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BINS = FM_COMPLEX_ERROR_BINS };
#define BIN_WIDTH 0.5 /* Å */

/* -- memory */

fm_status fm_complex_contacts_make(const fm_complex_layout *layout,
                                   fm_complex_contacts *ret_contacts, fm_error *reterr) {
    const size_t n = layout->n_token, k = layout->n_chain;
    fm_complex_contacts contacts = {
        .probability = calloc(n * n, sizeof *contacts.probability),
        .by_chain = calloc(n * k, sizeof *contacts.by_chain),
    };
    if (!contacts.probability || !contacts.by_chain) {
        fm_complex_contacts_release(&contacts);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the contacts of %zu tokens", n);
    }
    *ret_contacts = contacts;
    return FM_OK;
}

void fm_complex_contacts_release(fm_complex_contacts *contacts) {
    free(contacts->probability);
    free(contacts->by_chain);
    *contacts = (fm_complex_contacts){.probability = NULL};
}

fm_status fm_complex_pairs_make(const fm_complex_layout *layout, fm_complex_pairs *ret_pairs,
                                fm_error *reterr) {
    const size_t n = layout->n_token, k = layout->n_chain;
    fm_complex_pairs pairs = {
        .pae = calloc(n * n, sizeof *pairs.pae),
        .pde = calloc(n * n, sizeof *pairs.pde),
        .tm_all = calloc(n, sizeof *pairs.tm_all),
        .tm_other = calloc(n, sizeof *pairs.tm_other),
        .tm_by_chain = calloc(n * k, sizeof *pairs.tm_by_chain),
        .pae_least = calloc(n * k, sizeof *pairs.pae_least),
        .pde_in_contact = calloc(n * k, sizeof *pairs.pde_in_contact),
    };
    if (!pairs.pae || !pairs.pde || !pairs.tm_all || !pairs.tm_other || !pairs.tm_by_chain ||
        !pairs.pae_least || !pairs.pde_in_contact) {
        fm_complex_pairs_release(&pairs);
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the scores of %zu tokens", n);
    }
    *ret_pairs = pairs;
    return FM_OK;
}

void fm_complex_pairs_release(fm_complex_pairs *pairs) {
    free(pairs->pae);
    free(pairs->pde);
    free(pairs->tm_all);
    free(pairs->tm_other);
    free(pairs->tm_by_chain);
    free(pairs->pae_least);
    free(pairs->pde_in_contact);
    *pairs = (fm_complex_pairs){.pae = NULL};
}

/* -- rows on several threads */

typedef struct rows_work {
    void (*run)(const struct rows_work *work, uint32_t row);
    fm_bins_take *take;
    const fm_complex_layout *layout;
    const float *logits; /* of the row `first` */
    const fm_complex_contacts *contacts;
    fm_complex_contacts *ret_contacts;
    fm_complex_pairs *pairs;
    uint32_t first, n_row;
    int n_part;
} rows_work;

static void run_part(void *context, int part) {
    const rows_work *work = context;
    int64_t begin = fm_cpu_part_begin(work->n_row, 1, part, work->n_part);
    int64_t end = fm_cpu_part_begin(work->n_row, 1, part + 1, work->n_part);
    for (int64_t row = begin; row < end; row++)
        work->run(work, work->first + (uint32_t)row);
}

static void run_rows(rows_work *work) {
    int threads = fm_cpu_threads();
    work->take = fm_bins_choose();
    work->n_part = work->n_row < (uint32_t)threads ? (int)work->n_row : threads;
    if (work->n_part > 0) fm_cpu_run_parts(run_part, work, work->n_part);
}

/* The logits of a row of the work. */
static const float *logits_of(const rows_work *work, uint32_t row) {
    return work->logits + (size_t)(row - work->first) * work->layout->n_token * BINS;
}

static void reduce_contact_row(const rows_work *work, uint32_t row) {
    const fm_complex_layout *l = work->layout;
    const float *logits = logits_of(work, row);
    double *probability = work->ret_contacts->probability + (size_t)row * l->n_token;
    double *by_chain = work->ret_contacts->by_chain + (size_t)row * l->n_chain;
    memset(by_chain, 0, l->n_chain * sizeof *by_chain);
    for (uint32_t j = 0; j < l->n_token; j++) {
        fm_bins_means means;
        work->take(logits + (size_t)j * BINS, NULL, NULL, &means);
        probability[j] = means.near;
        by_chain[l->token_chain[j]] += probability[j];
    }
}

static void reduce_pae_row(const rows_work *work, uint32_t row) {
    const fm_complex_layout *l = work->layout;
    const float *logits = logits_of(work, row);
    const int32_t chain = l->token_chain[row];
    const double *whole = l->tm_weight + (size_t)l->n_token * BINS;
    float *pae = work->pairs->pae + (size_t)row * l->n_token;
    double *tm = work->pairs->tm_by_chain + (size_t)row * l->n_chain;
    double *least = work->pairs->pae_least + (size_t)row * l->n_chain, all = 0, other = 0;
    for (uint32_t k = 0; k < l->n_chain; k++) {
        tm[k] = 0;
        least[k] = (double)INFINITY;
    }
    for (uint32_t j = 0; j < l->n_token; j++) {
        const int32_t to = l->token_chain[j];
        uint32_t n = l->chain_tokens[chain] + (to == chain ? 0 : l->chain_tokens[to]);
        fm_bins_means means;
        work->take(logits + (size_t)j * BINS, whole, l->tm_weight + (size_t)n * BINS, &means);
        double mean = means.centre * BIN_WIDTH;
        all += means.first;
        if (to != chain) other += means.first;
        tm[to] += means.second;
        if (!(mean >= least[to])) least[to] = isnan(least[to]) ? least[to] : mean;
        pae[j] = (float)mean;
    }
    work->pairs->tm_all[row] = all;
    work->pairs->tm_other[row] = other;
}

static void reduce_pde_row(const rows_work *work, uint32_t row) {
    const fm_complex_layout *l = work->layout;
    const float *logits = logits_of(work, row);
    const double *contact = work->contacts->probability + (size_t)row * l->n_token;
    float *pde = work->pairs->pde + (size_t)row * l->n_token;
    double *sum = work->pairs->pde_in_contact + (size_t)row * l->n_chain;
    memset(sum, 0, l->n_chain * sizeof *sum);
    for (uint32_t j = 0; j < l->n_token; j++) {
        fm_bins_means means;
        work->take(logits + (size_t)j * BINS, NULL, NULL, &means);
        double mean = means.centre * BIN_WIDTH;
        sum[l->token_chain[j]] += mean * contact[j];
        pde[j] = (float)mean;
    }
}

void fm_complex_reduce_contacts(const fm_complex_layout *layout, const float *logits,
                                uint32_t first, uint32_t n_row, fm_complex_contacts *contacts) {
    run_rows(&(rows_work){.run = reduce_contact_row,
                          .layout = layout,
                          .logits = logits,
                          .ret_contacts = contacts,
                          .first = first,
                          .n_row = n_row});
}

void fm_complex_reduce_pae(const fm_complex_layout *layout, const float *logits, uint32_t first,
                           uint32_t n_row, fm_complex_pairs *pairs) {
    run_rows(&(rows_work){.run = reduce_pae_row,
                          .layout = layout,
                          .logits = logits,
                          .pairs = pairs,
                          .first = first,
                          .n_row = n_row});
}

void fm_complex_reduce_pde(const fm_complex_layout *layout, const float *logits,
                           const fm_complex_contacts *contacts, uint32_t first, uint32_t n_row,
                           fm_complex_pairs *pairs) {
    run_rows(&(rows_work){.run = reduce_pde_row,
                          .layout = layout,
                          .logits = logits,
                          .contacts = contacts,
                          .pairs = pairs,
                          .first = first,
                          .n_row = n_row});
}

void fm_complex_reduce_plddt(const float *logits, uint32_t n, uint32_t n_bin, double *ret_plddt) {
    for (uint32_t a = 0; a < n; a++) {
        const float *row = logits + (size_t)a * n_bin;
        double sum = 0, mean = 0;
        float most = row[0];
        for (uint32_t b = 1; b < n_bin; b++)
            most = row[b] > most ? row[b] : most;
        for (uint32_t b = 0; b < n_bin; b++) {
            double term = fm_exp_f64((double)row[b] - (double)most);
            sum += term;
            mean += term * (b + 0.5) / n_bin;
        }
        ret_plddt[a] = mean / sum;
    }
}
