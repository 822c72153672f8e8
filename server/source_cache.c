/* source_cache.c: see source_cache.h. */
#include "server/source_cache.h"

#include "cache/export/chain_features.h"
#include "cache/export/complex_load.h"
#include "cache/snapshot/pins.h"
#include "featurizer/complex/chooser.h"
#include "featurizer/complex/draw.h"
#include "featurizer/sample/sample.h"
#include "proto/base/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SNAPSHOT_ARENA_BYTES = 1 << 30, /* address space while the file is read */
    N_KIND = FM_SAMPLE_OF_COMPLEX + 1,
};

static const size_t ROWS_ARENA_BYTES = (size_t)4 << 30; /* address space of the complexes' rows */

/* The items of one kind in the snapshot, in its order. Arrays are owned. */
typedef struct item_list {
    uint32_t n;
    uint32_t *item, *weight, *place; /* [n] place: in the snapshot */
    uint8_t *share_of;               /* [n]; NULL without shares */
    fm_chooser_shares shares;        /* n = 0: none */
} item_list;

typedef struct fm_cache_source {
    fm_sample_source source;
    const fm_store *store;
    fm_sha256 hash;
    uint32_t n_item;                       /* of both kinds */
    item_list items[N_KIND];               /* by fm_sample_kind */
    uint32_t share[FM_LIMIT_N_SHARE];      /* their numbers */
    int held;                              /* descriptor of fm_snapshot_hold, or -1 */
    fm_chooser *choosers[FM_N_PLAN_ORDER]; /* by the order of a plan; made at first use */
    /* Of a snapshot with complexes. */
    fm_complex_chooser *complex_choosers[FM_N_PLAN_ORDER]; /* likewise */
    fm_complex_reader *reader;
    fm_arena arena; /* of the rows */
    const fm_complex_row *rows;
    uint32_t n_row;
} fm_cache_source;

typedef struct cache_plan {
    const fm_cache_source *cache;
    const fm_chooser *chooser;                 /* of chains */
    const fm_complex_chooser *complex_chooser; /* of complexes */
    fm_plan plan;
    fm_wire_open params;
} cache_plan;

/* -- plans */

static void change(uint32_t *field, uint32_t wanted) {
    if (wanted) *field = wanted;
}

/* Makes the client's changes, and returns the bytes of the largest sample. */
static size_t change_plan(fm_plan *plan, const fm_wire_open *params) {
    const bool is_complex = plan->kind == FM_SAMPLE_OF_COMPLEX;
    change(&plan->global_batch, params->global_batch);
    change(&plan->crop_size, params->crop_size);
    change(is_complex ? &plan->max_msa : &plan->max_msa_clusters, params->max_msa_clusters);
    change(is_complex ? &plan->max_atoms : &plan->max_extra_msa, params->max_extra_msa);
    change(&plan->max_cycle, params->max_cycle);
    change(&plan->max_template_date, params->max_template_date);
    return is_complex
               ? fm_sample_max_complex_bytes(plan->crop_size, plan->max_atoms, plan->max_msa,
                                             plan->max_templates, plan->max_cycle)
               : fm_sample_max_bytes(plan->crop_size, plan->max_msa_clusters, plan->max_extra_msa,
                                     plan->max_templates, plan->max_cycle);
}

static fm_status find_plan(const fm_cache_source *cache, const fm_wire_open *params,
                           fm_plan *ret_plan, size_t *ret_max_bytes, fm_error *reterr) {
    static const char *const words[N_KIND] = {"chains", "complexes"};
    fm_plan plan;
    fm_status status = fm_plan_find(params->plan, &plan, reterr);
    if (status) return status;
    size_t max_bytes = change_plan(&plan, params);
    status = fm_plan_check(&plan, reterr);
    if (status) return status;
    if (cache->items[plan.kind].n == 0) {
        return fm_fail(reterr, FM_ERR_NOT_FOUND,
                       "the plan %s samples %s, and the snapshot %s has none, but %u %s", plan.name,
                       words[plan.kind], cache->source.snapshot_name, cache->n_item,
                       words[!plan.kind]);
    }
    if (max_bytes > FM_LIMIT_FRAME_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "a sample of this plan can have %zu bytes, and a frame holds at most %zu",
                       max_bytes, FM_LIMIT_FRAME_BYTES);
    }
    *ret_plan = plan;
    *ret_max_bytes = max_bytes;
    return FM_OK;
}

static fm_status find_chooser(fm_cache_source *cache, const fm_plan *plan, fm_error *reterr) {
    const item_list *items = &cache->items[plan->kind];
    const fm_chooser_shares *shares = items->shares.n ? &items->shares : NULL;
    const bool is_complex = plan->kind == FM_SAMPLE_OF_COMPLEX;
    fm_chooser **chooser = &cache->choosers[plan->order];
    fm_complex_chooser **complex_chooser = &cache->complex_choosers[plan->order];
    if (is_complex ? *complex_chooser != NULL : *chooser != NULL) return FM_OK;
    if (shares && plan->order == FM_ORDER_SHUFFLED) {
        fm_log(FM_LOG_WARN, "shares_unused",
               "snapshot=%s plan=%s why=\"the plan takes every %s once in each pass, whatever the "
               "share of its dataset\"",
               cache->source.snapshot_name, plan->name, is_complex ? "complex" : "chain");
    }
    if (!is_complex) {
        return fm_chooser_create(plan, items->n, items->weight, shares, chooser, reterr);
    }
    const fm_complex_choice choice = {.rows = cache->rows,
                                      .items = items->item,
                                      .n_row = cache->n_row,
                                      .n_item = items->n,
                                      .shares = shares};
    return fm_complex_chooser_create(plan, &choice, complex_chooser, reterr);
}

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    fm_cache_source *cache = context;
    fm_plan plan;
    size_t max_bytes;
    fm_status status = find_plan(cache, params, &plan, &max_bytes, reterr);
    if (status) return status;
    status = find_chooser(cache, &plan, reterr);
    if (status) return status;
    cache_plan *made = malloc(sizeof *made);
    if (!made) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a plan");
    *made = (cache_plan){cache, cache->choosers[plan.order], cache->complex_choosers[plan.order],
                         plan, *params};
    const bool is_complex = plan.kind == FM_SAMPLE_OF_COMPLEX;
    *ret_plan = made;
    *ret_facts =
        (fm_source_facts){.global_batch = plan.global_batch,
                          .crop_size = plan.crop_size,
                          .max_msa_clusters = is_complex ? plan.max_msa : plan.max_msa_clusters,
                          .max_extra_msa = is_complex ? plan.max_atoms : plan.max_extra_msa,
                          .max_cycle = plan.max_cycle,
                          .epoch_samples = plan.epoch_samples,
                          .max_template_date = plan.max_template_date,
                          .max_sample_bytes = max_bytes};
    return FM_OK;
}

static void close_plan(void *plan) {
    free(plan);
}

/* -- samples */

/* What sample `index` is of. */
typedef struct chosen {
    uint32_t item, place;         /* place: in the snapshot */
    const fm_complex_row *record; /* of a complex */
} chosen;

static chosen choose(const cache_plan *from, uint64_t index) {
    const item_list *items = &from->cache->items[from->plan.kind];
    uint32_t at;
    const fm_complex_row *record = NULL;
    if (from->plan.kind == FM_SAMPLE_OF_COMPLEX) {
        record = fm_complex_chooser_record(from->complex_chooser, from->params.seed, index, &at);
    } else {
        at = fm_chooser_chain(from->chooser, from->params.seed, index);
    }
    return (chosen){items->item[at], items->place[at], record};
}

static fm_status draw_complex(const cache_plan *from, uint64_t index, const chosen *of,
                              const fm_sample_templates *templates, uint32_t n_cycle,
                              fm_arena *scratch, fm_sample *ret_sample, fm_error *reterr) {
    fm_complex complex;
    fm_status status = fm_complex_load(from->cache->reader, of->item, scratch, &complex, reterr);
    if (status) return status;
    const fm_complex_request request = {.plan = &from->plan,
                                        .complex = &complex,
                                        .record = of->record,
                                        .templates = templates,
                                        .seed = from->params.seed,
                                        .index = index,
                                        .place = of->place,
                                        .n_cycle = n_cycle};
    return fm_complex_sample_draw(&request, scratch, ret_sample, reterr);
}

static fm_status draw_chain(const cache_plan *from, uint64_t index, const chosen *of,
                            const fm_sample_templates *templates, uint32_t n_cycle,
                            fm_arena *scratch, fm_sample *ret_sample, fm_error *reterr) {
    fm_record record;
    fm_status status = fm_store_load(from->cache->store, of->item, scratch, &record, reterr);
    if (status) return status;
    return fm_sample_make(&(fm_sample_request){.plan = &from->plan,
                                               .record = &record,
                                               .templates = templates,
                                               .seed = from->params.seed,
                                               .index = index,
                                               .chain = of->place,
                                               .n_cycle = n_cycle},
                          scratch, ret_sample, reterr);
}

static fm_status make_sample(const cache_plan *from, uint64_t index, const chosen *of,
                             fm_arena *scratch, fm_sample *ret_sample, fm_error *reterr) {
    const fm_plan *plan = &from->plan;
    const uint32_t n_cycle =
        plan->always_max_cycle
            ? plan->max_cycle
            : fm_wire_open_cycles(&from->params, plan->global_batch, plan->max_cycle, index);
    fm_template_reader reader = {.store = from->cache->store, .arena = scratch};
    const fm_sample_templates templates = {fm_template_reader_load, &reader};
    return (plan->kind == FM_SAMPLE_OF_COMPLEX ? draw_complex : draw_chain)(
        from, index, of, &templates, n_cycle, scratch, ret_sample, reterr);
}

/* Puts the chain or complex in front of an error, which often names only a file. */
static fm_status name_item(const cache_plan *from, const chosen *of, fm_status status,
                           fm_error *reterr) {
    if (!reterr) return status;
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(reterr, text, sizeof text);
    return fm_fail(reterr, status, "%s %s: %s", of->record ? "complex" : "chain",
                   fm_store_chain_name(from->cache->store, of->item), text);
}

static fm_status make(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr) {
    const cache_plan *from = plan;
    const chosen of = choose(from, index);
    fm_sample sample;
    fm_status status = make_sample(from, index, &of, scratch, &sample, reterr);
    if (status) return name_item(from, &of, status, reterr);
    size_t bytes = fm_sample_encoded_bytes(&sample);
    assert(bytes <= capacity);
    fm_sample_encode(&sample, out);
    *ret_bytes = bytes;
    return FM_OK;
}

static const char *name_of(const void *plan, uint64_t index) {
    const cache_plan *from = plan;
    return fm_store_chain_name(from->cache->store, choose(from, index).item);
}

/* -- opening and closing */

/* Makes the list of a kind, out of the arena, which also has the text of the file. */
static fm_status list_items(fm_cache_source *cache, const fm_snapshot *read, fm_sample_kind kind,
                            fm_error *reterr) {
    static const fm_stored_kind stored[N_KIND] = {FM_STORED_CHAIN, FM_STORED_COMPLEX};
    item_list *list = &cache->items[kind];
    for (uint32_t i = 0; i < read->n_chain; i++)
        list->n += fm_store_item_kind(cache->store, read->chain[i]) == stored[kind];
    const size_t bytes = ((size_t)list->n + 1) * sizeof(uint32_t);
    list->item = malloc(bytes);
    list->weight = malloc(bytes);
    list->place = malloc(bytes);
    list->share_of = read->shares.n ? malloc((size_t)list->n + 1) : NULL;
    if (!list->item || !list->weight || !list->place || (read->shares.n && !list->share_of)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a snapshot");
    }
    list->shares = (fm_chooser_shares){read->shares.n, cache->share, list->share_of};
    for (uint32_t i = 0, n = 0; i < read->n_chain; i++) {
        if (fm_store_item_kind(cache->store, read->chain[i]) != stored[kind]) continue;
        list->item[n] = read->chain[i];
        list->weight[n] = read->weight[i];
        list->place[n] = i;
        if (read->shares.n) list->share_of[n] = read->share_of[i];
        n++;
    }
    return FM_OK;
}

/* Copies what a source needs of a snapshot. */
static fm_status keep(fm_cache_source *cache, const fm_snapshot *read, fm_error *reterr) {
    cache->hash = read->hash;
    cache->n_item = read->n_chain;
    for (uint32_t k = 0; k < read->shares.n; k++)
        cache->share[k] = read->shares.share[k].billionths;
    fm_status status = FM_OK;
    for (int kind = 0; kind < N_KIND && !status; kind++)
        status = list_items(cache, read, (fm_sample_kind)kind, reterr);
    return status;
}

/* What clients hear as the number of chains: those that the plans of whole chains go through. */
static uint32_t count_items(const fm_cache_source *cache) {
    const uint32_t n_chain = cache->items[FM_SAMPLE_OF_CHAIN].n;
    return n_chain ? n_chain : cache->items[FM_SAMPLE_OF_COMPLEX].n;
}

/* Reads what all plans of complexes need. */
static fm_status open_complexes(fm_cache_source *cache, fm_error *reterr) {
    if (cache->items[FM_SAMPLE_OF_COMPLEX].n == 0) return FM_OK;
    fm_status status = fm_arena_init(&cache->arena, ROWS_ARENA_BYTES, reterr);
    if (!status) status = fm_complex_reader_create(cache->store, &cache->reader, reterr);
    if (status) return status;
    return fm_store_read_complex_rows(cache->store, &cache->arena, &cache->rows, &cache->n_row,
                                      reterr);
}

static fm_status read_snapshot(fm_cache_source *cache, const char *name, fm_error *reterr) {
    fm_arena arena;
    fm_snapshot read;
    fm_status status = fm_arena_init(&arena, SNAPSHOT_ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_snapshot_open(cache->store, name, &arena, &read, reterr);
    if (!status) status = keep(cache, &read, reterr);
    fm_arena_fini(&arena);
    if (!status) status = open_complexes(cache, reterr);
    return status ? status : fm_snapshot_hold(cache->store, name, &cache->held, reterr);
}

fm_status fm_cache_source_open(const fm_store *store, const char *name, const char *shown,
                               fm_sample_source **ret_source, fm_error *reterr) {
    if (strlen(shown) > FM_LIMIT_NAME_BYTES) {
        return fm_fail(reterr, FM_ERR_USAGE, "a snapshot's name has at most %u bytes",
                       FM_LIMIT_NAME_BYTES);
    }
    fm_cache_source *cache = calloc(1, sizeof *cache);
    if (!cache) return fm_fail(reterr, FM_ERR_NOMEM, "no memory to open a snapshot");
    cache->store = store;
    cache->held = -1;
    cache->source.context = cache;
    fm_status status = read_snapshot(cache, name, reterr);
    if (status) {
        fm_cache_source_close(&cache->source);
        return status;
    }
    cache->source = (fm_sample_source){.context = cache,
                                       .snapshot = cache->hash,
                                       .n_chain = count_items(cache),
                                       .generation = fm_store_get_info(store)->generation,
                                       .open = open_plan,
                                       .make = make,
                                       .close = close_plan,
                                       .name = name_of};
    fm_wire_text(cache->source.snapshot_name, sizeof cache->source.snapshot_name, shown);
    *ret_source = &cache->source;
    return FM_OK;
}

void fm_cache_source_close(fm_sample_source *source) {
    if (!source) return;
    fm_cache_source *cache = source->context;
    for (size_t i = 0; i < FM_N_PLAN_ORDER; i++) {
        fm_chooser_destroy(cache->choosers[i]);
        fm_complex_chooser_destroy(cache->complex_choosers[i]);
    }
    if (cache->held >= 0) close(cache->held);
    for (int kind = 0; kind < N_KIND; kind++) {
        free(cache->items[kind].item);
        free(cache->items[kind].weight);
        free(cache->items[kind].place);
        free(cache->items[kind].share_of);
    }
    fm_complex_reader_destroy(cache->reader);
    fm_arena_fini(&cache->arena);
    free(cache);
}
