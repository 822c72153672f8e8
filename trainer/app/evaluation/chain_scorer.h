/* chain_scorer.h: scores a model on every chain of a snapshot. It receives the chains (plan eval:
 * whole, without masking), runs them in the order of their lengths, and fills a table.
 *
 *     fm_chain_scorer_open      a model of a checkpoint's sizes, and a server of chains
 *     fm_chain_scorer_load      the values of a checkpoint of these sizes
 *     fm_chain_scorer_run       all chains
 *
 * `foldmill eval` does this once; the evaluator beside a training run does it for each checkpoint.
 * If all chains fit into the memory for them, they stay there decoded, and later runs receive
 * nothing. Otherwise each run receives them again in pieces. Results do not depend on the
 * pieces. */
#ifndef FM_TRAINER_CHAIN_SCORER_H
#define FM_TRAINER_CHAIN_SCORER_H

#include "trainer/app/settings/train_config.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/metrics/eval_table.h"

#include "proto/credentials.h"

typedef struct fm_chain_scorer fm_chain_scorer;

typedef struct fm_chain_scorer_options {
    const char *url;
    fm_credentials credentials;
    const char *agent;    /* for the server's log */
    const char *snapshot; /* the name that must be served; NULL: any */
    const char *device, *dtype;
    fm_checkpoint_set set;
    uint64_t seed;       /* of the draws of MSA rows */
    uint32_t n_cycle;    /* 0: max_cycle of the checkpoint's settings */
    uint32_t max_length; /* longer chains are refused; 0: as long as a sample can be */
    uint64_t wait_ms, data_timeout_s;
    uint64_t memory_bytes;    /* for chains on the host */
    double memory_budget_gib; /* of the device; 0: what it has */
} fm_chain_scorer_options;

/* Opens the device, a model of the sizes of the checkpoint at `path` and the server. The texts of
 * the options must outlive it. FM_ERR_CANCELLED when a signal asked to stop. FM_ERR_UNSUPPORTED for
 * a model without a structure module, and the errors of reading the checkpoint and of connecting:
 * another snapshot is FM_ERR_NOT_FOUND. */
FM_MUST_USE fm_status fm_chain_scorer_open(const fm_chain_scorer_options *options, const char *path,
                                           fm_chain_scorer **ret_scorer, fm_error *reterr);
void fm_chain_scorer_close(fm_chain_scorer *scorer);

/* Loads a checkpoint's values. *ret_step is its step. FM_ERR_CORRUPT also for another model. */
FM_MUST_USE fm_status fm_chain_scorer_load(fm_chain_scorer *scorer, const char *path,
                                           uint64_t *ret_step, fm_error *reterr);

/* Called after each chain: n_done of n_chain, share (0..1) of the estimated work. */
typedef void fm_chain_scorer_report(void *context, const fm_eval_chain *chain, uint32_t n_done,
                                    uint32_t n_chain, double share);

/* Scores all chains. Chains that fail have their reason in the table, which the caller releases
 * also after a failure. FM_ERR_CANCELLED when a signal asked to stop; FM_ERR_NOMEM, and the errors
 * of a connection that could not be made again. `report` may be NULL. */
FM_MUST_USE fm_status fm_chain_scorer_run(fm_chain_scorer *scorer, fm_chain_scorer_report *report,
                                          void *context, fm_eval_table *ret_table,
                                          fm_error *reterr);

const char *fm_chain_scorer_get_snapshot(const fm_chain_scorer *scorer);
const fm_sha256 *fm_chain_scorer_get_snapshot_hash(const fm_chain_scorer *scorer);
uint32_t fm_chain_scorer_n_chain(const fm_chain_scorer *scorer);
uint32_t fm_chain_scorer_n_cycle(const fm_chain_scorer *scorer);
/* Writes a description of the model and its memory. */
void fm_chain_scorer_describe(const fm_chain_scorer *scorer, char *out, size_t out_bytes);

#endif
