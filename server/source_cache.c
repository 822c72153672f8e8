/* source_cache.c: see source_cache.h. */
#include "server/source_cache.h"

#include "cache/export/chain_features.h"
#include "cache/snapshot/pins.h"
#include "featurizer/sample/sample.h"
#include "proto/base/log.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SNAPSHOT_ARENA_BYTES = 1 << 30 }; /* address space while the file is read */

typedef struct fm_cache_source {
    fm_sample_source source;
    const fm_store *store;
    fm_snapshot snapshot;                  /* its arrays are owned; without shares */
    fm_chooser_shares shares;              /* n = 0: none; of_chain is owned */
    uint32_t share[FM_LIMIT_N_SHARE];      /* its numbers */
    int held;                              /* descriptor of fm_snapshot_hold, or -1 */
    fm_chooser *choosers[FM_N_PLAN_ORDER]; /* by the order of a plan; made at first use */
} fm_cache_source;

typedef struct cache_plan {
    const fm_cache_source *cache;
    const fm_chooser *chooser;
    fm_plan plan;
    fm_wire_open params;
} cache_plan;

/* -- plans */

static void change(uint32_t *field, uint32_t wanted) {
    if (wanted) *field = wanted;
}

static fm_status find_plan(const fm_wire_open *params, fm_plan *ret_plan, size_t *ret_max_bytes,
                           fm_error *reterr) {
    fm_plan plan;
    fm_status status = fm_plan_find(params->plan, &plan, reterr);
    if (status) return status;
    if (plan.kind != FM_SAMPLE_OF_CHAIN) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the plan %s samples complexes, of which the "
                       "snapshot has none",
                       plan.name);
    }
    change(&plan.global_batch, params->global_batch);
    change(&plan.crop_size, params->crop_size);
    change(&plan.max_msa_clusters, params->max_msa_clusters);
    change(&plan.max_extra_msa, params->max_extra_msa);
    change(&plan.max_cycle, params->max_cycle);
    change(&plan.max_template_date, params->max_template_date);
    status = fm_plan_check(&plan, reterr);
    if (status) return status;
    size_t max_bytes = fm_sample_max_bytes(plan.crop_size, plan.max_msa_clusters,
                                           plan.max_extra_msa, plan.max_templates, plan.max_cycle);
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
    if (cache->choosers[plan->order]) return FM_OK;
    if (cache->shares.n && plan->order == FM_ORDER_SHUFFLED) {
        fm_log(FM_LOG_WARN, "shares_unused",
               "snapshot=%s plan=%s why=\"the plan takes every chain once in each pass, whatever "
               "the share of its dataset\"",
               cache->source.snapshot_name, plan->name);
    }
    return fm_chooser_create(plan, cache->snapshot.n_chain, cache->snapshot.weight,
                             cache->shares.n ? &cache->shares : NULL, &cache->choosers[plan->order],
                             reterr);
}

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    fm_cache_source *cache = context;
    fm_plan plan;
    size_t max_bytes;
    fm_status status = find_plan(params, &plan, &max_bytes, reterr);
    if (status) return status;
    status = find_chooser(cache, &plan, reterr);
    if (status) return status;
    cache_plan *made = malloc(sizeof *made);
    if (!made) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a plan");
    *made = (cache_plan){cache, cache->choosers[plan.order], plan, *params};
    *ret_plan = made;
    *ret_facts = (fm_source_facts){.global_batch = plan.global_batch,
                                   .crop_size = plan.crop_size,
                                   .max_msa_clusters = plan.max_msa_clusters,
                                   .max_extra_msa = plan.max_extra_msa,
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

static fm_status make_sample(const cache_plan *from, uint64_t index, uint32_t chain,
                             fm_arena *scratch, fm_sample *ret_sample, fm_error *reterr) {
    const fm_cache_source *cache = from->cache;
    fm_record record;
    fm_status status =
        fm_store_load(cache->store, cache->snapshot.chain[chain], scratch, &record, reterr);
    if (status) return status;
    const fm_plan *plan = &from->plan;
    uint32_t n_cycle =
        plan->always_max_cycle
            ? plan->max_cycle
            : fm_wire_open_cycles(&from->params, plan->global_batch, plan->max_cycle, index);
    fm_template_reader reader = {.store = cache->store, .arena = scratch};
    const fm_sample_templates templates = {fm_template_reader_load, &reader};
    return fm_sample_make(&(fm_sample_request){.plan = &from->plan,
                                               .record = &record,
                                               .templates = &templates,
                                               .seed = from->params.seed,
                                               .index = index,
                                               .chain = chain,
                                               .n_cycle = n_cycle},
                          scratch, ret_sample, reterr);
}

/* Puts the chain in front of an error, which often names only a file. */
static fm_status name_chain(const fm_cache_source *cache, uint32_t chain, fm_status status,
                            fm_error *reterr) {
    if (!reterr) return status;
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(reterr, text, sizeof text);
    return fm_fail(reterr, status, "chain %s: %s",
                   fm_store_chain_name(cache->store, cache->snapshot.chain[chain]), text);
}

static fm_status make(const void *plan, uint64_t index, fm_arena *scratch, uint8_t *out,
                      size_t capacity, size_t *ret_bytes, fm_error *reterr) {
    const cache_plan *from = plan;
    const fm_cache_source *cache = from->cache;
    uint32_t chain = fm_chooser_chain(from->chooser, from->params.seed, index);
    fm_sample sample;
    fm_status status = make_sample(from, index, chain, scratch, &sample, reterr);
    if (status) return name_chain(cache, chain, status, reterr);
    size_t bytes = fm_sample_encoded_bytes(&sample);
    assert(bytes <= capacity);
    fm_sample_encode(&sample, out);
    *ret_bytes = bytes;
    return FM_OK;
}

static const char *name_of(const void *plan, uint64_t index) {
    const cache_plan *from = plan;
    uint32_t chain = fm_chooser_chain(from->chooser, from->params.seed, index);
    return fm_store_chain_name(from->cache->store, from->cache->snapshot.chain[chain]);
}

/* -- opening and closing */

/* Copies the arrays that a source needs out of the arena, which also has the text of the file. */
static fm_status keep(fm_cache_source *cache, const fm_snapshot *read, fm_error *reterr) {
    uint32_t n_share = read->shares.n;
    size_t bytes = (size_t)read->n_chain * sizeof *read->chain;
    uint32_t *chain = malloc(bytes), *weight = malloc(bytes);
    uint8_t *share_of = n_share ? malloc(read->n_chain) : NULL;
    cache->snapshot = (fm_snapshot){
        .hash = read->hash, .n_chain = read->n_chain, .chain = chain, .weight = weight};
    cache->shares = (fm_chooser_shares){n_share, cache->share, share_of};
    if (!chain || !weight || (n_share && !share_of)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a snapshot");
    }
    memcpy(chain, read->chain, bytes);
    memcpy(weight, read->weight, bytes);
    if (n_share) memcpy(share_of, read->share_of, read->n_chain);
    for (uint32_t k = 0; k < n_share; k++)
        cache->share[k] = read->shares.share[k].billionths;
    return FM_OK;
}

static fm_status read_snapshot(fm_cache_source *cache, const char *name, fm_error *reterr) {
    fm_arena arena;
    fm_snapshot read;
    fm_status status = fm_arena_init(&arena, SNAPSHOT_ARENA_BYTES, reterr);
    if (status) return status;
    status = fm_snapshot_open(cache->store, name, &arena, &read, reterr);
    if (!status) status = keep(cache, &read, reterr);
    fm_arena_fini(&arena);
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
                                       .snapshot = cache->snapshot.hash,
                                       .n_chain = cache->snapshot.n_chain,
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
    for (size_t i = 0; i < FM_N_PLAN_ORDER; i++)
        fm_chooser_destroy(cache->choosers[i]);
    if (cache->held >= 0) close(cache->held);
    free((void *)cache->snapshot.chain);
    free((void *)cache->snapshot.weight);
    free((void *)cache->shares.of_chain);
    free(cache);
}
