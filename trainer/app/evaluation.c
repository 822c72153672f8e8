/* evaluation.c: see evaluation.h. Chains are copied out of the loader's slabs as they arrive, until
 * all have arrived or their memory is full. Then they run in the order of their lengths, so that
 * each recorded length is made once. Rows of the table are by the chain's number. */
#include "trainer/app/evaluation.h"

#include "proto/base/log.h"
#include "trainer/app/choose_device.h"
#include "trainer/app/feed.h"
#include "trainer/app/sample_features.h"
#include "trainer/app/stop.h"
#include "trainer/infer/infer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SAMPLE_ALIGN = 64, N_SLAB = 3, NOTE_BYTES = 1 << 20 };

static const uint64_t full_ms = 300000; /* to ask a server again that has no room */

/* A chain in memory, or the reason why it could not be made. */
typedef struct held_chain {
    uint64_t index;
    uint32_t n_res;
    void *memory; /* the encoded sample; NULL: refused */
    size_t bytes;
    fm_status status;
    char why[FM_EVAL_WHY_BYTES];
} held_chain;

struct fm_evaluation {
    fm_evaluation_options options;
    fm_train_config config;
    fm_infer *infer;
    fm_feed feed;
    bool is_open; /* the feed is */
    fm_token token;
    fm_sha256 snapshot_hash;
    char snapshot[FM_LIMIT_NAME_BYTES + 1];
    uint32_t n_chain;
    uint32_t n_cycle, max_length;
    uint32_t n_received; /* of this pass over the snapshot */
    uint32_t n_held;     /* chain[0 .. n_held-1] are in memory */
    held_chain *chain;   /* [n_chain] */
    size_t held_bytes;
    bool has_all;
    fm_arena arena; /* of one chain's run */
};

/* -- opening */

/* The model's sizes are those of the settings that the checkpoint stores. */
static fm_status read_config(fm_evaluation *e, const char *path, fm_error *reterr) {
    fm_arena arena;
    fm_checkpoint_state state;
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, &arena, &state, reterr);
    if (!status) status = fm_train_config_preset("af2-initial", &e->config, reterr);
    if (!status) { /* any preset: the stored text names every key that matters */
        const fm_bytes text = {(const uint8_t *)state.config, strlen(state.config)};
        status = fm_train_config_parse(text, &e->config, reterr);
        if (status) fm_error_in(reterr, path);
    }
    fm_arena_fini(&arena);
    if (!status && e->config.model.structure.n_iteration == 0) {
        status = fm_fail_in(reterr, FM_ERR_UNSUPPORTED, path,
                            "the model has no structure module ([model] n_structure_iteration = "
                            "0), so there are no structures to score");
    }
    return status;
}

/* The longest chain whose sample a frame can hold. */
static uint32_t longest_sample(const fm_evaluation *e) {
    const fm_train_config *c = &e->config;
    enum { TEMPLATES = 4 }; /* of the plan eval */
    uint32_t low = 1, high = FM_LIMIT_N_RES;
    while (low < high) {
        uint32_t middle = low + (high - low + 1) / 2;
        size_t bytes = fm_sample_max_bytes(middle, (uint32_t)c->data.max_msa_clusters,
                                           (uint32_t)c->data.max_extra_msa, TEMPLATES, e->n_cycle);
        if (bytes <= FM_LIMIT_FRAME_BYTES) {
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low;
}

static fm_status open_feed(fm_evaluation *e, fm_error *reterr) {
    const fm_evaluation_options *set = &e->options;
    fm_loader_options options = {
        .supply = {.client = {.url = set->url,
                              .credentials = set->credentials,
                              .agent = set->agent,
                              .snapshot_name = set->snapshot,
                              .snapshot = e->snapshot_hash}},
        .stream = {.crop_size = e->max_length,
                   .max_msa_clusters = (uint32_t)e->config.data.max_msa_clusters,
                   .max_extra_msa = (uint32_t)e->config.data.max_extra_msa,
                   .max_cycle = e->n_cycle,
                   .max_template_date = e->config.data.max_template_date,
                   .seed = set->seed,
                   .n_group = 1,
                   .order = FM_WIRE_STRICT,
                   .policy = FM_WIRE_SKIP},
        .n_slab = N_SLAB,
    };
    fm_wire_text(options.stream.plan, sizeof options.stream.plan, "eval");
    e->token = (fm_token){.watermark = 0};
    e->feed = (fm_feed){.options = options,
                        .wait_ms = (uint32_t)set->wait_ms,
                        .full_ms = full_ms,
                        .timeout_ms = set->data_timeout_s * 1000};
    fm_status status = fm_feed_open(&e->feed, &e->token, reterr);
    if (status) {
        fm_feed_close(&e->feed);
        return status;
    }
    const fm_wire_welcome *server = fm_loader_get_server(e->feed.loader);
    e->is_open = true;
    e->n_received = 0;
    e->n_chain = server->n_chain;
    e->snapshot_hash = server->snapshot;
    snprintf(e->snapshot, sizeof e->snapshot, "%s", server->snapshot_name);
    return FM_OK;
}

static void close_feed(fm_evaluation *e) {
    if (e->is_open) fm_feed_close(&e->feed);
    e->is_open = false;
}

static fm_status create_infer(fm_evaluation *e, fm_error *reterr) {
    const double gib = 1 << 30;
    fm_infer_options options = {.model = e->config.model,
                                .heads = 1u << FM_HEAD_PLDDT,
                                .memory_budget_bytes =
                                    (int64_t)(e->options.memory_budget_gib * gib)};
    memcpy(options.weight, e->config.loss, sizeof options.weight);
    fm_status status =
        fm_device_find(e->options.device, e->options.dtype, &options.kernels, reterr);
    return status ? status : fm_infer_create(&options, &e->infer, reterr);
}

fm_status fm_evaluation_open(const fm_evaluation_options *options, const char *path,
                             fm_evaluation **ret_evaluation, fm_error *reterr) {
    const size_t arena_bytes = (size_t)1 << 36; /* address space */
    fm_evaluation *e = calloc(1, sizeof *e);
    if (!e) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an evaluation");
    e->options = *options;
    fm_status status = fm_arena_init(&e->arena, arena_bytes, reterr);
    if (!status) status = read_config(e, path, reterr);
    if (!status) {
        e->n_cycle = options->n_cycle ? options->n_cycle : (uint32_t)e->config.data.max_cycle;
        uint32_t longest = longest_sample(e);
        e->max_length =
            options->max_length && options->max_length < longest ? options->max_length : longest;
        status = create_infer(e, reterr);
    }
    if (!status) status = open_feed(e, reterr);
    if (!status) {
        e->chain = calloc(e->n_chain, sizeof *e->chain);
        if (!e->chain) {
            status = fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u chains", e->n_chain);
        }
    }
    if (status) {
        fm_evaluation_close(e);
        return status;
    }
    *ret_evaluation = e;
    return FM_OK;
}

static void drop_chains(fm_evaluation *e) {
    for (uint32_t i = 0; i < e->n_held; i++)
        free(e->chain[i].memory);
    e->n_held = 0;
    e->held_bytes = 0;
}

void fm_evaluation_close(fm_evaluation *e) {
    if (!e) return;
    drop_chains(e);
    free(e->chain);
    close_feed(e);
    fm_infer_destroy(e->infer);
    fm_arena_fini(&e->arena);
    free(e);
}

fm_status fm_evaluation_load(fm_evaluation *e, const char *path, uint64_t *ret_step,
                             fm_error *reterr) {
    fm_arena arena;
    fm_checkpoint_state state = {.step = 0};
    fm_status status = fm_arena_init(&arena, NOTE_BYTES, reterr);
    if (status) return status;
    status = fm_checkpoint_peek(path, &arena, &state, reterr);
    if (!status) {
        status = fm_checkpoint_load_set(path, fm_infer_get_params(e->infer), &state, e->options.set,
                                        reterr);
    }
    *ret_step = state.step;
    fm_arena_fini(&arena);
    return status;
}

/* -- receiving */

static void refuse(held_chain *c, fm_status status, const char *why) {
    c->status = status;
    snprintf(c->why, sizeof c->why, "%s", why);
}

/* Takes a chain over from the loader. */
static fm_status hold(fm_evaluation *e, const fm_loaded *loaded, fm_error *reterr) {
    held_chain *c = &e->chain[e->n_held++];
    const fm_sample *sample = loaded->sample;
    *c = (held_chain){.index = loaded->index};
    if (!sample) {
        refuse(c, loaded->why->status, loaded->why->message);
        return FM_OK;
    }
    c->n_res = sample->n_res_chain;
    /* The sample is kept whatever its length: its head names the chain. */
    c->bytes = fm_sample_encoded_bytes(sample);
    size_t rounded = (c->bytes + SAMPLE_ALIGN - 1) / SAMPLE_ALIGN * SAMPLE_ALIGN;
    c->memory = aligned_alloc(SAMPLE_ALIGN, rounded);
    if (!c->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a chain of %.1f MiB",
                       (double)c->bytes / (1 << 20));
    }
    fm_sample_encode(sample, c->memory);
    e->held_bytes += c->bytes;
    if (sample->n_res < sample->n_res_chain) {
        snprintf(c->why, sizeof c->why, "it has %u residues, and at most %u are taken",
                 sample->n_res_chain, e->max_length);
        c->status = FM_ERR_LIMIT;
    }
    return FM_OK;
}

static fm_status next_loaded(fm_evaluation *e, fm_loaded *ret_loaded, fm_error *reterr) {
    fm_status status = fm_feed_next(&e->feed, FM_FEED_ANY, ret_loaded, reterr);
    while (fm_feed_may_reconnect(&e->feed, status)) {
        status = fm_feed_reconnect(&e->feed, &e->token, reterr);
        if (!status) status = fm_feed_next(&e->feed, FM_FEED_ANY, ret_loaded, reterr);
    }
    return status;
}

/* Receives chains until all have come or their memory is used up. */
static fm_status receive(fm_evaluation *e, fm_error *reterr) {
    fm_status status = e->is_open ? FM_OK : open_feed(e, reterr);
    while (!status && e->n_received < e->n_chain &&
           (e->n_held == 0 || e->held_bytes < e->options.memory_bytes)) {
        fm_loaded loaded;
        status = next_loaded(e, &loaded, reterr);
        if (status) break;
        status = loaded.index < e->n_chain
                     ? hold(e, &loaded, reterr)
                     : fm_fail(reterr, FM_ERR_PROTOCOL, "the server sent chain %llu of %u",
                               (unsigned long long)loaded.index, e->n_chain);
        if (!status) status = fm_token_deliver(&e->token, loaded.index, reterr);
        fm_loader_release(e->feed.loader, &loaded);
        e->n_received++;
    }
    if (!status && e->n_received == e->n_chain) {
        close_feed(e);
        e->has_all = e->n_held == e->n_chain;
    }
    return status;
}

/* -- running */

static int compare_lengths(const void *a, const void *b) {
    const held_chain *x = a, *y = b;
    if (x->n_res != y->n_res) return x->n_res < y->n_res ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static void describe(const fm_sample *sample, const held_chain *held, fm_eval_chain *row) {
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
static fm_status run_chain(fm_evaluation *e, const held_chain *held, const int *term,
                           uint32_t n_term, fm_eval_chain *row, fm_error *reterr) {
    fm_sample sample;
    fm_features features;
    fm_infer_result result;
    fm_arena_reset(&e->arena);
    const fm_bytes bytes = {held->memory, held->bytes};
    fm_status status =
        held->memory ? fm_sample_decode(bytes, false, &e->arena, &sample, reterr) : FM_OK;
    if (status) return status; /* it was decoded once already */
    describe(held->memory ? &sample : NULL, held, row);
    if (held->status) {
        fm_eval_refuse_chain(row, held->status, held->why);
        return FM_OK;
    }
    status = fm_features_of(&sample, &features, reterr);
    features.unclamped_fape = false;
    if (!status) status = fm_infer_run(e->infer, &features, &e->arena, &result, reterr);
    if (!status) {
        const fm_structure_pair pair = {features.n_res, features.aatype, result.atoms, result.truth,
                                        result.known};
        take_losses(&result.losses, term, n_term, row);
        status = fm_eval_score_chain(&pair, result.plddt, &e->arena, row, reterr);
    }
    if (status != FM_ERR_DATA && status != FM_ERR_LIMIT) return status;
    fm_eval_refuse_chain(row, status, reterr->message);
    return FM_OK;
}

/* The estimated work of a chain, in any unit. */
static double work_of(const held_chain *held) {
    double n = held->status ? 0 : held->n_res;
    return 1 + n * n / 64;
}

/* What a run has done so far. */
typedef struct run_progress {
    fm_evaluation_report *report;
    void *context;
    uint32_t n_done;
} run_progress;

static fm_status run_held(fm_evaluation *e, run_progress *p, const int *term, fm_eval_table *table,
                          fm_error *reterr) {
    double work = 0, done = 0, before = (double)p->n_done / e->n_chain;
    double part = (double)e->n_held / e->n_chain;
    qsort(e->chain, e->n_held, sizeof *e->chain, compare_lengths);
    for (uint32_t i = 0; i < e->n_held; i++)
        work += work_of(&e->chain[i]);
    for (uint32_t i = 0; i < e->n_held; i++) {
        const held_chain *held = &e->chain[i];
        if (fm_stop_signal()) return fm_fail(reterr, FM_ERR_CANCELLED, "stopped on request");
        fm_eval_chain *row = &table->chain[held->index];
        fm_status status = run_chain(e, held, term, table->n_term, row, reterr);
        if (status) return status;
        done += work_of(held);
        p->n_done++;
        if (p->report) {
            p->report(p->context, row, p->n_done, e->n_chain, before + part * done / work);
        }
    }
    return FM_OK;
}

fm_status fm_evaluation_run(fm_evaluation *e, fm_evaluation_report *report, void *context,
                            fm_eval_table *ret_table, fm_error *reterr) {
    int term[FM_LOSS_TERMS];
    run_progress progress = {report, context, 0};
    fm_status status = fm_eval_table_make(ret_table, e->n_chain, reterr);
    if (status) return status;
    list_terms(&e->config, term, ret_table);
    if (!e->has_all && e->n_received > 0) close_feed(e); /* from the first chain on again */
    while (!status && progress.n_done < e->n_chain) {
        if (!e->has_all) {
            drop_chains(e);
            status = receive(e, reterr);
        }
        if (!status) status = run_held(e, &progress, term, ret_table, reterr);
    }
    return status;
}

/* -- facts */

const fm_train_config *fm_evaluation_get_config(const fm_evaluation *e) {
    return &e->config;
}

const char *fm_evaluation_get_snapshot(const fm_evaluation *e) {
    return e->snapshot;
}

const fm_sha256 *fm_evaluation_get_snapshot_hash(const fm_evaluation *e) {
    return &e->snapshot_hash;
}

uint32_t fm_evaluation_n_chain(const fm_evaluation *e) {
    return e->n_chain;
}

uint32_t fm_evaluation_n_cycle(const fm_evaluation *e) {
    return e->n_cycle;
}

bool fm_evaluation_has_all(const fm_evaluation *e) {
    return e->has_all;
}

void fm_evaluation_describe(const fm_evaluation *e, char *out, size_t out_bytes) {
    fm_infer_describe(e->infer, out, out_bytes);
}
