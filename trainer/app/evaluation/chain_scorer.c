/* chain_scorer.c: see chain_scorer.h. Chains come in pieces, ordered by length (chains.h). Rows of
 * the table are by the chain's number. */
#include "trainer/app/evaluation/chain_scorer.h"

#include "trainer/app/common/stop.h"
#include "trainer/app/device/choose_device.h"
#include "trainer/app/samples/chains.h"
#include "trainer/app/samples/sample_features.h"
#include "trainer/app/settings/network.h"
#include "trainer/infer/infer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NOTE_BYTES = 1 << 20 };

struct fm_chain_scorer {
    fm_chain_scorer_options options;
    fm_train_config config;
    fm_infer *infer;
    fm_chains *chains;
    uint32_t n_cycle;
    fm_arena arena; /* of one chain's run */
};

/* -- opening */

/* The model's sizes are those of the settings that the checkpoint stores. */
static fm_status read_config(fm_chain_scorer *scorer, const char *path, fm_error *reterr) {
    fm_arena arena;
    fm_checkpoint_state state;
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    status = fm_checkpoint_peek_named(path, &arena, &state, reterr);
    if (!status) status = fm_train_config_read_stored(state.config, path, &scorer->config, reterr);
    fm_arena_fini(&arena);
    if (!status) status = fm_network_check_is_af2(&scorer->config, "foldmill eval", reterr);
    if (!status && scorer->config.model.structure.n_iteration == 0) {
        status = fm_fail_in(reterr, FM_ERR_UNSUPPORTED, path,
                            "the model has no structure module ([model] n_structure_iteration = "
                            "0), so there are no structures to score");
    }
    return status;
}

static fm_status open_chains(fm_chain_scorer *scorer, fm_error *reterr) {
    const fm_chain_scorer_options *set = &scorer->options;
    const fm_chains_options options = {.url = set->url,
                                       .credentials = set->credentials,
                                       .agent = set->agent,
                                       .plan = "eval",
                                       .snapshot = set->snapshot,
                                       .seed = set->seed,
                                       .n_cycle = scorer->n_cycle,
                                       .max_msa_clusters =
                                           (uint32_t)scorer->config.data.max_msa_clusters,
                                       .max_extra_msa = (uint32_t)scorer->config.data.max_extra_msa,
                                       .max_template_date = scorer->config.data.max_template_date,
                                       .max_length = set->max_length,
                                       .wait_ms = set->wait_ms,
                                       .data_timeout_s = set->data_timeout_s,
                                       .memory_bytes = set->memory_bytes};
    return fm_chains_open(&options, &scorer->chains, reterr);
}

static fm_status create_infer(fm_chain_scorer *scorer, fm_error *reterr) {
    const double gib = 1 << 30;
    fm_infer_options options = {.model = scorer->config.model,
                                .heads = 1u << FM_HEAD_PLDDT,
                                .memory_budget_bytes =
                                    (int64_t)(scorer->options.memory_budget_gib * gib)};
    memcpy(options.weight, scorer->config.loss, sizeof options.weight);
    fm_status status =
        fm_device_find(scorer->options.device, scorer->options.dtype, &options.kernels, reterr);
    return status ? status : fm_infer_create(&options, &scorer->infer, reterr);
}

fm_status fm_chain_scorer_open(const fm_chain_scorer_options *options, const char *path,
                               fm_chain_scorer **ret_scorer, fm_error *reterr) {
    const size_t arena_bytes = (size_t)1 << 36; /* address space */
    fm_chain_scorer *scorer = calloc(1, sizeof *scorer);
    if (!scorer) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an evaluation");
    scorer->options = *options;
    fm_status status = fm_arena_init(&scorer->arena, arena_bytes, reterr);
    if (!status) status = read_config(scorer, path, reterr);
    if (!status) {
        scorer->n_cycle =
            options->n_cycle ? options->n_cycle : (uint32_t)scorer->config.data.max_cycle;
        status = create_infer(scorer, reterr);
    }
    if (!status) status = open_chains(scorer, reterr);
    if (status) {
        fm_chain_scorer_close(scorer);
        return status;
    }
    *ret_scorer = scorer;
    return FM_OK;
}

void fm_chain_scorer_close(fm_chain_scorer *scorer) {
    if (!scorer) return;
    fm_chains_close(scorer->chains);
    fm_infer_destroy(scorer->infer);
    fm_arena_fini(&scorer->arena);
    free(scorer);
}

fm_status fm_chain_scorer_load(fm_chain_scorer *scorer, const char *path, uint64_t *ret_step,
                               fm_error *reterr) {
    fm_arena arena;
    fm_checkpoint_state state = {.step = 0};
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, &arena, &state, reterr);
    if (!status) {
        status = fm_checkpoint_load_set(path, fm_infer_get_params(scorer->infer), &state,
                                        scorer->options.set, reterr);
    }
    *ret_step = state.step;
    fm_arena_fini(&arena);
    return status;
}

/* -- running */

static void describe(const fm_sample *sample, const fm_held_chain *held, fm_eval_chain *row) {
    *row = (fm_eval_chain){.index = held->index, .plddt = NAN};
    if (!sample) {
        snprintf(row->name, sizeof row->name, "chain %llu", (unsigned long long)held->index);
        return;
    }
    const fm_tensor_view *templates = fm_sample_find(sample, FM_T_TEMPLATE_AATYPE, FM_SHARED);
    snprintf(row->name, sizeof row->name, "%s", sample->name);
    row->n_res = sample->n_res_chain;
    row->n_seq = sample->n_seq_chain;
    row->n_templ = templates ? templates->shape[0] : 0;
    row->resolution = round(1000 * (double)sample->resolution) / 1000; /* as entries state it */
}

/* The losses of a chain, without the masked MSA loss, which has no masked position here. */
static void take_losses(const fm_sample_result *losses, const int *term, uint32_t n_term,
                        fm_eval_chain *row) {
    row->loss = losses->loss - losses->part[FM_TERM_MASKED_MSA];
    for (uint32_t t = 0; t < n_term; t++)
        row->term[t] = losses->term[term[t]];
}

/* Lists the terms that the model has. */
static void list_terms(const fm_train_config *config, int *term, fm_eval_table *table) {
    bool has_aligned = config->model.structure.n_aligned_error_bin > 0;
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (i == FM_TERM_MASKED_MSA) continue;
        if (fm_loss_terms[i].needs & FM_LOSS_ALIGNED_ERROR && !has_aligned) continue;
        /* The pLDDT's own loss would have the name of the mean pLDDT. */
        table->term[table->n_term] = i == FM_TERM_PLDDT ? "plddt_loss" : fm_loss_terms[i].name;
        term[table->n_term++] = i;
    }
}

/* Runs and scores a chain. What is wrong with the chain is noted in its row. */
static fm_status run_chain(fm_chain_scorer *scorer, const fm_held_chain *held, const int *term,
                           uint32_t n_term, fm_eval_chain *row, fm_error *reterr) {
    fm_sample sample;
    fm_features features;
    fm_infer_result result;
    fm_arena_reset(&scorer->arena);
    fm_status status =
        held->memory ? fm_chains_decode(held, &scorer->arena, &sample, reterr) : FM_OK;
    if (status) return status; /* it was decoded once already */
    describe(held->memory ? &sample : NULL, held, row);
    if (held->status) {
        fm_eval_refuse_chain(row, held->status, held->why);
        return FM_OK;
    }
    status = fm_features_of(&sample, &features, reterr);
    features.unclamped_fape = false;
    if (!status) status = fm_infer_run(scorer->infer, &features, &scorer->arena, &result, reterr);
    if (!status) {
        const fm_structure_pair pair = {features.n_res, features.aatype, result.atoms, result.truth,
                                        result.known};
        take_losses(&result.losses, term, n_term, row);
        status = fm_eval_score_chain(&pair, result.plddt, &scorer->arena, row, reterr);
    }
    if (status != FM_ERR_DATA && status != FM_ERR_LIMIT) return status;
    fm_eval_refuse_chain(row, status, reterr->message);
    return FM_OK;
}

/* The estimated work of a chain, in any unit. */
static double work_of(const fm_held_chain *held) {
    double n = held->status ? 0 : held->n_res;
    return 1 + n * n / 64;
}

/* What a run has done so far. */
typedef struct run_progress {
    fm_chain_scorer_report *report;
    void *context;
    uint32_t n_done;
} run_progress;

static fm_status run_held(fm_chain_scorer *scorer, run_progress *p, const int *term,
                          fm_eval_table *table, fm_error *reterr) {
    uint32_t n_chain = fm_chains_n(scorer->chains), n_held = fm_chains_n_held(scorer->chains);
    double work = 0, done = 0, before = (double)p->n_done / n_chain;
    double part = (double)n_held / n_chain;
    for (uint32_t i = 0; i < n_held; i++)
        work += work_of(fm_chains_held(scorer->chains, i));
    for (uint32_t i = 0; i < n_held; i++) {
        const fm_held_chain *held = fm_chains_held(scorer->chains, i);
        if (fm_stop_is_asked()) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        fm_eval_chain *row = &table->chain[held->index];
        fm_status status = run_chain(scorer, held, term, table->n_term, row, reterr);
        if (status) return status;
        done += work_of(held);
        p->n_done++;
        if (p->report) p->report(p->context, row, p->n_done, n_chain, before + part * done / work);
    }
    return FM_OK;
}

fm_status fm_chain_scorer_run(fm_chain_scorer *scorer, fm_chain_scorer_report *report,
                              void *context, fm_eval_table *ret_table, fm_error *reterr) {
    int term[FM_LOSS_TERMS];
    run_progress progress = {report, context, 0};
    const uint32_t n_chain = fm_chains_n(scorer->chains);
    fm_status status = fm_eval_table_make(ret_table, n_chain, reterr);
    if (status) return status;
    list_terms(&scorer->config, term, ret_table);
    fm_chains_rewind(scorer->chains);
    while (!status && progress.n_done < n_chain) {
        status = fm_chains_receive(scorer->chains, reterr);
        if (!status) status = run_held(scorer, &progress, term, ret_table, reterr);
    }
    return status;
}

/* -- facts */

const char *fm_chain_scorer_get_snapshot(const fm_chain_scorer *scorer) {
    return fm_chains_get_snapshot(scorer->chains);
}

const fm_sha256 *fm_chain_scorer_get_snapshot_hash(const fm_chain_scorer *scorer) {
    return fm_chains_get_snapshot_hash(scorer->chains);
}

uint32_t fm_chain_scorer_n_chain(const fm_chain_scorer *scorer) {
    return fm_chains_n(scorer->chains);
}

uint32_t fm_chain_scorer_n_cycle(const fm_chain_scorer *scorer) {
    return scorer->n_cycle;
}

void fm_chain_scorer_describe(const fm_chain_scorer *scorer, char *out, size_t out_bytes) {
    fm_infer_describe(scorer->infer, out, out_bytes);
}
