/* results.h: the table of one command's predictions, and the files that compare them. A chain has
 * one prediction for each pair of model and seed.
 *
 *     ranking.json    a chain's predictions, best first, with AlphaFold's keys
 *     summary.csv     a row for each prediction and each refused input
 *
 * The best prediction has the highest mean pLDDT. Of equal ones, the first in the table is best. */
#ifndef FM_TRAINER_RESULTS_H
#define FM_TRAINER_RESULTS_H

#include "proto/base/json_tree.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { FM_RESULT_NAME_BYTES = 320, FM_RESULT_WHY_BYTES = 256 };

/* A model with a seed. */
typedef struct fm_result_run {
    const char *model; /* borrowed */
    uint64_t seed;
    char name[FM_RESULT_NAME_BYTES]; /* "MODEL_seed-0" */
} fm_result_run;

typedef struct fm_result {
    bool is_done;    /* the prediction exists, or failed for the reason `why` */
    bool is_resumed; /* an earlier command made it */
    fm_status status;
    char why[FM_RESULT_WHY_BYTES];
    double mean_plddt, ptm, max_pae; /* ptm and max_pae: NAN without an aligned error head */
    uint32_t n_cycle;
    double ca_change;       /* Å between the last two cycles; NAN: not known */
    double record_s, run_s; /* seconds to prepare for the length, and of the prediction */
    uint64_t structure; /* XXH3 of the predicted atoms; 0: not known, as of an earlier command's */
} fm_result;

typedef struct fm_result_chain {
    char *name; /* NULL: not received yet; on the heap */
    /* The output of `foldmill inspect --as-input`; NULL: not known. Freed with the table. */
    fm_json *about;
    uint32_t n_res, n_seq, n_templ;
    fm_result *result; /* [n_run] */
} fm_result_chain;

typedef struct fm_results {
    uint32_t n_chain, n_run;
    fm_result_chain *chain;
    fm_result_run *run;
    fm_result *all; /* [n_chain * n_run] */
} fm_results;

/* An input that was refused before the predictions began. */
typedef struct fm_refused_input {
    char *name, *why;
} fm_refused_input;

/* Makes an empty table. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_results_make(fm_results *ret_results, uint32_t n_chain, uint32_t n_run,
                                      fm_error *reterr);
void fm_results_release(fm_results *results);

/* Sets the name of a run. */
void fm_results_name_run(fm_results *results, uint32_t run, const char *model, uint64_t seed);
/* Sets the name of a chain that has none. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_results_name_chain(fm_result_chain *chain, const char *name,
                                            fm_error *reterr);

/* Lists the runs that predicted the chain, best first, in ret_order [n_run]; returns how many. */
uint32_t fm_results_rank(const fm_results *results, const fm_result_chain *chain,
                         uint32_t *ret_order);

/* The run that predicted the chain best; UINT32_MAX if none did. */
uint32_t fm_results_find_best(const fm_results *results, const fm_result_chain *chain);

/* Counts predictions that failed. */
uint64_t fm_results_n_failed(const fm_results *results);

/* Counts chains of which several seeds of each model gave one and the same structure. */
uint32_t fm_results_n_same(const fm_results *results);

/* FM_ERR_IO, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_results_write_ranking(const fm_results *results,
                                               const fm_result_chain *chain, const char *path,
                                               fm_error *reterr);
/* The rows of refused inputs [n_refused] have a name and the reason only. */
FM_MUST_USE fm_status fm_results_write_summary(const fm_results *results,
                                               const fm_refused_input *refused, uint32_t n_refused,
                                               const char *path, fm_error *reterr);

#endif
