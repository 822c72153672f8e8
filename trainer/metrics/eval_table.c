/* eval_table.c: rows and means; see eval_table.h. Files are written in eval_files.c and drawn in
 * eval_svg.c. */
#include "trainer/metrics/eval_table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fm_status fm_eval_table_make(fm_eval_table *table, uint32_t n, fm_error *reterr) {
    *table = (fm_eval_table){.n = n, .chain = calloc(n ? n : 1, sizeof *table->chain)};
    if (!table->chain) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u chains", n);
    return FM_OK;
}

void fm_eval_table_release(fm_eval_table *table) {
    free(table->chain);
    *table = (fm_eval_table){.n = 0};
}

void fm_eval_refuse_chain(fm_eval_chain *chain, fm_status status, const char *why) {
    assert(status);
    chain->status = status;
    snprintf(chain->why, sizeof chain->why, "%s", why);
}

/* -- confidence */

static int class_of(double plddt) {
    int class = (int)(plddt / 10);
    return class < 0 ? 0 : class >= FM_EVAL_CLASSES ? FM_EVAL_CLASSES - 1 : class;
}

static void add_residue(fm_eval_confidence *c, double plddt, double lddt) {
    int k = class_of(plddt);
    c->n[k]++;
    c->plddt[k] += plddt;
    c->lddt[k] += lddt;
    c->plddt_squared += plddt * plddt;
    c->lddt_squared += lddt * lddt;
    c->product += plddt * lddt;
}

/* The lDDT of each residue with a known CA atom, beside its pLDDT. */
static fm_status compare_confidence(const fm_structure_pair *pair, const float *plddt,
                                    fm_arena *scratch, fm_eval_confidence *confidence,
                                    fm_error *reterr) {
    size_t n = 0;
    double *predicted = fm_arena_alloc_array(scratch, pair->n_res, 3 * sizeof *predicted);
    double *truth = fm_arena_alloc_array(scratch, pair->n_res, 3 * sizeof *truth);
    double *local = fm_arena_alloc_array(scratch, pair->n_res, sizeof *local);
    uint32_t *residue = fm_arena_alloc_array(scratch, pair->n_res, sizeof *residue);
    if (!predicted || !truth || !local || !residue) return fm_arena_full(scratch, reterr);
    for (size_t i = 0; i < pair->n_res; i++) {
        size_t from = i * FM_N_ATOM14 + FM_ATOM37_CA; /* CA is the second atom in both orders */
        if (!pair->mask[from]) continue;
        for (size_t k = 0; k < 3; k++) {
            predicted[3 * n + k] = (double)pair->predicted[3 * from + k];
            truth[3 * n + k] = (double)pair->truth[3 * from + k];
        }
        residue[n++] = (uint32_t)i;
    }
    fm_lddt(n, predicted, truth, local);
    for (size_t i = 0; i < n; i++)
        if (isfinite(local[i])) add_residue(confidence, (double)plddt[residue[i]], 100 * local[i]);
    return FM_OK;
}

fm_status fm_eval_score_chain(const fm_structure_pair *pair, const float *plddt, fm_arena *scratch,
                              fm_eval_chain *chain, fm_error *reterr) {
    size_t mark = fm_arena_mark(scratch);
    chain->plddt = NAN;
    chain->confidence = (fm_eval_confidence){.product = 0};
    fm_status status = fm_structure_score(pair, scratch, &chain->scores, reterr);
    if (!status && plddt) {
        double sum = 0;
        for (size_t i = 0; i < pair->n_res; i++)
            sum += (double)plddt[i];
        chain->plddt = sum / (double)pair->n_res;
        status = compare_confidence(pair, plddt, scratch, &chain->confidence, reterr);
    }
    fm_arena_rewind(scratch, mark);
    if (!status && !isfinite(chain->scores.lddt_ca)) {
        fm_eval_refuse_chain(chain, FM_ERR_DATA,
                             "it has no two known CA atoms within 15 Å to score against");
    }
    return status;
}

/* -- means */

static void put(fm_eval_summary *s, const char *name, double value) {
    assert(s->n_value < FM_EVAL_VALUES);
    s->value[s->n_value].name = name;
    s->value[s->n_value++].value = value;
}

double fm_eval_value(const fm_eval_summary *s, const char *name) {
    for (uint32_t i = 0; i < s->n_value; i++)
        if (strcmp(s->value[i].name, name) == 0) return s->value[i].value;
    return NAN;
}

static double score_of(const fm_eval_chain *c, int i) {
    const fm_structure_scores *s = &c->scores;
    const double all[] = {s->lddt_ca, s->lddt,   s->rmsd,   s->drmsd,
                          s->tm,      s->gdt_ts, s->gdt_ha, c->plddt};
    return all[i];
}

/* The mean of a score over the chains that have it. */
static double mean_score(const fm_eval_table *table, int score) {
    double sum = 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        double value = score_of(&table->chain[i], score);
        if (table->chain[i].status || !isfinite(value)) continue;
        sum += value;
        n++;
    }
    return n ? sum / n : NAN;
}

/* The mean of a term of the loss; -1: of the loss. */
static double mean_term(const fm_eval_table *table, int term, uint32_t n_chain) {
    double sum = 0;
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        if (!c->status) sum += term < 0 ? c->loss : c->term[term];
    }
    return n_chain ? sum / n_chain : NAN;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static fm_status find_median(const fm_eval_table *table, double *ret_median, fm_error *reterr) {
    uint32_t n = 0;
    double *sorted = malloc((table->n + 1) * sizeof *sorted);
    if (!sorted) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a median");
    for (uint32_t i = 0; i < table->n; i++)
        if (!table->chain[i].status) sorted[n++] = table->chain[i].scores.lddt_ca;
    qsort(sorted, n, sizeof *sorted, compare_doubles);
    *ret_median = !n ? NAN : n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    free(sorted);
    return FM_OK;
}

static void add_confidence(fm_eval_confidence *sum, const fm_eval_confidence *more) {
    for (int k = 0; k < FM_EVAL_CLASSES; k++) {
        sum->n[k] += more->n[k];
        sum->plddt[k] += more->plddt[k];
        sum->lddt[k] += more->lddt[k];
    }
    sum->plddt_squared += more->plddt_squared;
    sum->lddt_squared += more->lddt_squared;
    sum->product += more->product;
}

static void put_confidence(fm_eval_summary *s) {
    const fm_eval_confidence *c = &s->confidence;
    double n = 0, plddt = 0, lddt = 0, error = 0;
    for (int k = 0; k < FM_EVAL_CLASSES; k++) {
        n += (double)c->n[k];
        plddt += c->plddt[k];
        lddt += c->lddt[k];
        error += fabs(c->plddt[k] - c->lddt[k]);
    }
    double xx = c->plddt_squared - plddt * plddt / n, yy = c->lddt_squared - lddt * lddt / n,
           xy = c->product - plddt * lddt / n;
    put(s, "plddt_error", n > 0 ? error / n : NAN);
    put(s, "plddt_correlation", n > 1 && xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN);
}

fm_status fm_eval_summarise(const fm_eval_table *table, fm_eval_summary *ret_summary,
                            fm_error *reterr) {
    static const char *const names[] = {"lddt_ca",  "lddt",   "rmsd_ca", "drmsd_ca",
                                        "tm_score", "gdt_ts", "gdt_ha",  "plddt"};
    fm_eval_summary s = {.n_chain = 0};
    double median;
    for (uint32_t i = 0; i < table->n; i++) {
        const fm_eval_chain *c = &table->chain[i];
        s.n_chain += !c->status;
        s.n_failed += c->status ? 1 : 0;
        if (c->status) continue;
        s.n_residue += c->n_res;
        add_confidence(&s.confidence, &c->confidence);
    }
    for (int i = 0; i < (int)(sizeof names / sizeof names[0]); i++)
        put(&s, names[i], mean_score(table, i));
    fm_status status = find_median(table, &median, reterr);
    if (status) return status;
    put(&s, "lddt_ca_median", median);
    put_confidence(&s);
    put(&s, "loss", mean_term(table, -1, s.n_chain));
    for (uint32_t i = 0; i < table->n_term; i++)
        put(&s, table->term[i], mean_term(table, (int)i, s.n_chain));
    *ret_summary = s;
    return FM_OK;
}
