/* snapshot_select.c: one pass over the chains in the order of names, so the lines come out sorted.
 * See snapshot_select.h.
 *
 * Cheap rules are applied first: names, dataset and length need only the index. Rules about the
 * content ask the table of facts, and the parts only where a chain has no facts (check_content).
 * "Apart" marks the clusters of the other snapshot once, then looks up each chain's cluster
 * (touched). */
#include "cache/snapshot/snapshot_select.h"

#include "cache/snapshot/snapshot.h"
#include "cache/store/store_open.h"
#include "proto/base/bisect.h"
#include "proto/limits.h"

#include <string.h>

enum { SEQUENCE_HEADER_BYTES = 64, AF2_SHIFT = 22 };

const char *fm_select_reason_text(fm_select_reason reason) {
    switch (reason) {
    case FM_SELECT_TAKEN: return "taken";
    case FM_SELECT_NOT_LISTED: return "not in the list";
    case FM_SELECT_EXCLUDED: return "excluded by name";
    case FM_SELECT_DATASET: return "of another dataset";
    case FM_SELECT_LENGTH: return "too short or too long";
    case FM_SELECT_NO_CLUSTER: return "in no cluster";
    case FM_SELECT_SHARED: return "shares a cluster with the other snapshot";
    case FM_SELECT_UNKNOWN: return "too many unknown residues";
    case FM_SELECT_SINGLE: return "one residue too frequent";
    case FM_SELECT_RESOLUTION: return "resolution too coarse, or none";
    case FM_SELECT_DATE: return "outside the dates, or without one";
    case FM_SELECT_PREDICTED: return "predicted";
    case FM_N_SELECT: break;
    }
    return "unknown";
}

const char *fm_select_weights_text(fm_select_weights weights) {
    switch (weights) {
    case FM_WEIGHTS_UNIFORM: return "uniform";
    case FM_WEIGHTS_LENGTH: return "length";
    case FM_WEIGHTS_AF2: return "af2";
    }
    return "unknown";
}

fm_select_rules fm_select_everything(void) {
    return (fm_select_rules){.max_unknown = UINT32_MAX, .max_single_percent = 100};
}

/* The supplement accepts a chain with probability max(min(N_res, 512), 256) / 512, divided by the
 * size of its cluster: the weights af2 are that, as whole numbers. Unknown residues count as a kind
 * of residue in the rule of 80 %. Predicted structures have no resolution, so they pass. */
fm_status fm_select_recipe(const char *name, fm_select_rules *rules, fm_error *reterr) {
    if (strcmp(name, "af2-train") != 0) {
        return fm_fail(reterr, FM_ERR_USAGE, "no recipe is called '%.64s'; there is: af2-train",
                       name);
    }
    rules->recipe = "af2-train";
    rules->max_resolution = 9.0;
    rules->max_single_percent = 80;
    rules->weights = FM_WEIGHTS_AF2;
    return FM_OK;
}

uint32_t fm_select_weight(fm_select_weights weights, uint32_t n_res, uint32_t cluster_size) {
    if (weights == FM_WEIGHTS_UNIFORM) return 1;
    uint32_t length = fm_snapshot_weight(n_res);
    if (weights == FM_WEIGHTS_LENGTH) return length;
    uint64_t weight = ((uint64_t)length << AF2_SHIFT) / (cluster_size ? cluster_size : 1);
    return weight ? (uint32_t)weight : 1;
}

/* -- clusters of a snapshot */

/* The clusters that a snapshot has chains of, and its names. */
typedef struct touched {
    const fm_snapshot_text *text;
    const fm_clusters *clusters; /* may be NULL */
    uint8_t *cluster;            /* [n_cluster] */
} touched;

static fm_status touch(const fm_snapshot_text *text, const fm_clusters *clusters, fm_arena *arena,
                       touched *ret_touched, fm_error *reterr) {
    uint32_t n = clusters ? clusters->n_cluster : 0;
    uint8_t *cluster = fm_arena_calloc(arena, n, 1);
    if (!cluster) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < text->n_line && n; i++) {
        uint32_t at = fm_clusters_find(clusters, text->line[i].name);
        if (at != FM_NO_CLUSTER) cluster[at] = 1;
    }
    *ret_touched = (touched){text, clusters, cluster};
    return FM_OK;
}

static int order_of_line(const void *array, uint32_t i, const void *name) {
    const fm_snapshot_text *text = array;
    return strcmp(text->line[i].name, name);
}

static bool is_touched(const touched *by, const char *name) {
    uint32_t line;
    uint32_t at = by->clusters ? fm_clusters_find(by->clusters, name) : FM_NO_CLUSTER;
    return (at != FM_NO_CLUSTER && by->cluster[at]) ||
           fm_bisect(by->text, by->text->n_line, order_of_line, name, &line);
}

fm_status fm_snapshot_shared(const fm_snapshot_text *a, const fm_snapshot_text *b,
                             const fm_clusters *clusters, fm_arena *arena, uint32_t *ret_n,
                             const char **ret_first, fm_error *reterr) {
    touched by;
    fm_status status = touch(b, clusters, arena, &by, reterr);
    if (status) return status;
    *ret_n = 0;
    *ret_first = NULL;
    for (uint32_t i = 0; i < a->n_line; i++) {
        if (!is_touched(&by, a->line[i].name)) continue;
        if (!*ret_first) *ret_first = a->line[i].name;
        ++*ret_n;
    }
    return FM_OK;
}

/* -- rules */

typedef struct selecting {
    const fm_store *store;
    const fm_select_rules *rules;
    const fm_chain_facts *facts; /* [n_chain]; NULL = the cache has none */
    touched apart;
    fm_arena *arena;
    uint32_t n_read;
} selecting;

static fm_select_reason check_facts(const fm_select_rules *rules, const fm_chain_facts *facts) {
    double resolution = (double)facts->resolution;
    const char *date = facts->release_date;
    if (facts->n_unknown > rules->max_unknown) return FM_SELECT_UNKNOWN;
    if ((uint64_t)facts->n_most * 100 > (uint64_t)rules->max_single_percent * facts->n_res) {
        return FM_SELECT_SINGLE;
    }
    if (rules->need_resolution && resolution <= 0) return FM_SELECT_RESOLUTION;
    if (rules->max_resolution > 0 && resolution > rules->max_resolution) {
        return FM_SELECT_RESOLUTION;
    }
    if (facts->flags & FM_FACTS_PREDICTED) { /* was never released, so no date excludes it */
        return rules->no_predicted ? FM_SELECT_PREDICTED : FM_SELECT_TAKEN;
    }
    if (rules->from && strcmp(date, rules->from) < 0) return FM_SELECT_DATE;
    if (rules->until && (!date[0] || strcmp(date, rules->until) > 0)) return FM_SELECT_DATE;
    return FM_SELECT_TAKEN;
}

static fm_status read_part(const selecting *job, uint32_t chain, fm_part_kind kind,
                           fm_bytes *ret_bytes, fm_error *reterr) {
    fm_store_part place;
    *ret_bytes = (fm_bytes){0};
    if (!fm_store_get_part(job->store, chain, kind, &place)) return FM_OK;
    return fm_store_read_blob(job->store, place.blob, job->arena, ret_bytes, reterr);
}

/* Makes the facts from the parts, for caches without a table. */
static fm_status read_facts(selecting *job, uint32_t chain, bool needs_structure,
                            fm_chain_facts *ret_facts, fm_error *reterr) {
    size_t mark = fm_arena_mark(job->arena);
    fm_part_sequence sequence;
    fm_part_structure structure;
    fm_bytes bytes;
    fm_status status = read_part(job, chain, FM_PART_SEQUENCE, &bytes, reterr);
    if (!status) status = fm_part_sequence_decode(bytes, job->arena, &sequence, reterr);
    bytes = (fm_bytes){0};
    if (!status && needs_structure) {
        status = read_part(job, chain, FM_PART_STRUCTURE, &bytes, reterr);
    }
    if (!status && bytes.size) {
        status = fm_part_structure_decode(bytes, job->arena, &structure, reterr);
    }
    if (!status) *ret_facts = fm_facts_of(&sequence, bytes.size ? &structure : NULL);
    fm_arena_rewind(job->arena, mark);
    job->n_read++;
    return status;
}

/* Applies the rules that need more than the chain's name and length. */
static fm_status check_content(selecting *job, uint32_t chain, fm_select_reason *reason,
                               fm_error *reterr) {
    const fm_select_rules *rules = job->rules;
    bool letters = rules->max_unknown != UINT32_MAX || rules->max_single_percent < 100;
    bool structure = rules->max_resolution > 0 || rules->need_resolution || rules->from ||
                     rules->until || rules->no_predicted;
    if (!letters && !structure) return FM_OK;
    fm_chain_facts facts = {0};
    fm_status status = FM_OK;
    if (job->facts) facts = job->facts[chain];
    if (!(facts.flags & FM_FACTS_KNOWN)) status = read_facts(job, chain, structure, &facts, reterr);
    if (!status) *reason = check_facts(rules, &facts);
    return status;
}

static bool is_listed(const fm_names *names, const char *name) {
    return fm_names_has(names, name) || fm_names_has(names, fm_name_in_dataset(name));
}

static bool is_of_dataset(const fm_select_rules *rules, const char *name) {
    size_t length = (size_t)(fm_name_in_dataset(name) - name);
    if (rules->shares.n && fm_shares_find(&rules->shares, name) == FM_NO_SHARE) return false;
    for (uint32_t i = 0; i < rules->n_dataset; i++) {
        size_t size = strlen(rules->dataset[i]);
        if (length == size + 1 && memcmp(name, rules->dataset[i], size) == 0) return true;
    }
    return rules->n_dataset == 0;
}

/* The length of a complex is its number of tokens, which only its facts have. */
static uint32_t length_of(const selecting *job, uint32_t chain) {
    fm_store_part part;
    if (!fm_store_get_part(job->store, chain, FM_PART_SEQUENCE, &part)) {
        return job->facts ? job->facts[chain].n_res : 0;
    }
    return (uint32_t)(part.decoded_bytes - SEQUENCE_HEADER_BYTES);
}

static fm_status check_chain(selecting *job, uint32_t chain, uint32_t cluster,
                             fm_select_reason *ret_reason, fm_error *reterr) {
    const fm_select_rules *rules = job->rules;
    const char *name = fm_store_chain_name(job->store, chain);
    uint32_t n_res = length_of(job, chain);
    fm_select_reason reason = FM_SELECT_TAKEN;
    fm_status status = FM_OK;
    if (rules->only && !is_listed(rules->only, name)) {
        reason = FM_SELECT_NOT_LISTED;
    } else if (rules->exclude && is_listed(rules->exclude, name)) {
        reason = FM_SELECT_EXCLUDED;
    } else if (!is_of_dataset(rules, name)) {
        reason = FM_SELECT_DATASET;
    } else if (n_res < rules->min_length || (rules->max_length && n_res > rules->max_length)) {
        reason = FM_SELECT_LENGTH;
    } else if (rules->only_clustered && cluster == FM_NO_CLUSTER) {
        reason = FM_SELECT_NO_CLUSTER;
    } else if (rules->apart && is_touched(&job->apart, name)) {
        reason = FM_SELECT_SHARED;
    } else {
        status = check_content(job, chain, &reason, reterr);
    }
    *ret_reason = reason;
    return status;
}

/* Counts the names in the list that no chain has, with its dataset's prefix or without. */
static fm_status count_unlisted(const selecting *job, uint32_t *ret_n, fm_error *reterr) {
    const fm_names *only = job->rules->only;
    uint32_t n_chain = fm_store_get_info(job->store)->n_chain, n = 0;
    *ret_n = 0;
    if (!only) return FM_OK;
    uint8_t *seen = fm_arena_calloc(job->arena, only->n, 1);
    if (!seen) return fm_arena_full(job->arena, reterr);
    for (uint32_t chain = 0; chain < n_chain; chain++) {
        const char *name = fm_store_chain_name(job->store, chain);
        uint32_t whole = fm_names_find(only, name);
        uint32_t bare = fm_names_find(only, fm_name_in_dataset(name));
        if (whole != FM_NO_NAME) seen[whole] = 1;
        if (bare != FM_NO_NAME) seen[bare] = 1;
    }
    for (uint32_t i = 0; i < only->n; i++)
        n += !seen[i];
    *ret_n = n;
    return FM_OK;
}

/* Members of the chain's cluster, for its weight; 1 when unknown. */
static uint32_t cluster_size(const selecting *job, uint32_t chain, uint32_t cluster) {
    if (job->rules->clusters) {
        return cluster == FM_NO_CLUSTER ? 1 : job->rules->clusters->size[cluster];
    }
    return job->facts && job->facts[chain].cluster_size ? job->facts[chain].cluster_size : 1;
}

static bool has_sizes(const selecting *job) {
    uint32_t n_chain = fm_store_get_info(job->store)->n_chain;
    for (uint32_t i = 0; job->facts && i < n_chain; i++) {
        if (job->facts[i].cluster_size) return true;
    }
    return false;
}

static fm_status check_shares(const fm_snapshot_text *text, fm_error *reterr) {
    bool has_chain[FM_LIMIT_N_SHARE] = {false};
    for (uint32_t i = 0; i < text->n_line && text->shares.n; i++)
        has_chain[fm_shares_find(&text->shares, text->line[i].name)] = true;
    for (uint32_t k = 0; k < text->shares.n; k++) {
        if (has_chain[k]) continue;
        const char *dataset = text->shares.share[k].dataset;
        return fm_fail(
            reterr, FM_ERR_DATA,
            "no chain of dataset '%s' is left, so it cannot have a share; no snapshot is "
            "made",
            dataset);
    }
    return FM_OK;
}

fm_status fm_snapshot_select(const fm_store *store, const fm_select_rules *rules, fm_arena *arena,
                             fm_snapshot_text *ret_text, fm_select_report *ret_report,
                             fm_error *reterr) {
    selecting job = {.store = store, .rules = rules, .arena = arena};
    fm_select_report report = {0};
    uint32_t n_chain = fm_store_get_info(store)->n_chain, n = 0;
    fm_snapshot_line *line = fm_arena_alloc_array(arena, n_chain, sizeof *line);
    if (!line) return fm_arena_full(arena, reterr);
    fm_status status = FM_OK;
    status = fm_store_read_facts(store, arena, &job.facts, reterr);
    if (!status && rules->weights == FM_WEIGHTS_AF2 && !rules->clusters && !has_sizes(&job)) {
        return fm_fail(
            reterr, FM_ERR_USAGE,
            "the weights af2 need sizes of clusters, and the cache knows none: name a "
            "file of clusters, build with a chain_data_cache.json, or choose the weights "
            "length");
    }
    if (!status && rules->apart) {
        status = touch(rules->apart, rules->clusters, arena, &job.apart, reterr);
    }
    for (uint32_t chain = 0; chain < n_chain && !status; chain++) {
        const char *name = fm_store_chain_name(store, chain);
        uint32_t cluster =
            rules->clusters ? fm_clusters_find(rules->clusters, name) : FM_NO_CLUSTER;
        fm_select_reason reason;
        status = check_chain(&job, chain, cluster, &reason, reterr);
        if (status) break;
        report.n[reason]++;
        if (reason != FM_SELECT_TAKEN) continue;
        uint32_t size = cluster_size(&job, chain, cluster);
        line[n++] =
            (fm_snapshot_line){fm_select_weight(rules->weights, length_of(&job, chain), size),
                               fm_store_chain_hash(store, chain), name};
    }
    if (status) return status;
    status = count_unlisted(&job, &report.n_unlisted, reterr);
    if (status) return status;
    report.n_read = job.n_read;
    *ret_report = report;
    *ret_text = (fm_snapshot_text){n, line, rules->shares};
    if (!n && !rules->shares.n) {
        return fm_fail(reterr, FM_ERR_DATA, "no chain is left; no snapshot is made");
    }
    return check_shares(ret_text, reterr);
}
