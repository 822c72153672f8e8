/* build_publish.c: makes a generation of the results of a build. See build_state.h and
 * docs/reference/store.md. */
#include "cache/build/build_work.h"

#include "cache/snapshot/snapshot.h"
#include "cache/snapshot/snapshot_encode.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCE_HEADER_BYTES = 64 };

/* The highest number of a manifest in the folder, whatever CURRENT says: when CURRENT was lost, or
 * put back to an older generation, existing generations stay as they are. Pins may name them. */
static fm_status find_highest(const char *cache, fm_arena *arena, uint64_t *ret_highest,
                              fm_error *reterr) {
    char path[PATH_MAX];
    fm_name_list names;
    *ret_highest = 0;
    fm_status status = fm_build_path(cache, "generations", path, reterr);
    if (status) return status;
    size_t mark = fm_arena_mark(arena);
    status = fm_directory_list(path, false, FM_LIMIT_N_CHAIN, arena, &names, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    for (size_t i = 0; i < names.n; i++) {
        uint64_t number = fm_generation_number_of(names.name[i], "manifest");
        if (number > *ret_highest) *ret_highest = number;
    }
    free(names.name);
    fm_arena_rewind(arena, mark);
    return status;
}

static int compare_results(const void *a, const void *b) {
    return strcmp(((const fm_build_result *)a)->name, ((const fm_build_result *)b)->name);
}

/* Blobs, notes and shards all begin with the hash by which they are sorted; so does a bare hash. */
static int compare_hashes(const void *a, const void *b) {
    return memcmp(a, b, sizeof(fm_sha256));
}

static_assert(offsetof(fm_blob_entry, hash) == 0 && offsetof(fm_note_entry, key) == 0 &&
                  offsetof(fm_shard_info, hash) == 0,
              "sorted by the hash in front");

/* Collects the blobs that the results name, sorted by hash, and the shards that hold them. */
static fm_status gather_blobs(const fm_build_state *state, fm_arena *arena,
                              fm_generation *generation, fm_error *reterr) {
    uint8_t *used = fm_arena_calloc(arena, state->n_blob, 1);
    fm_blob_entry *blob = fm_arena_alloc_array(arena, state->n_blob, sizeof *blob);
    uint32_t *place = fm_arena_alloc_array(arena, state->n_shard, sizeof *place);
    fm_shard_info *shard = fm_arena_calloc(arena, state->n_shard, sizeof *shard);
    if (!used || !blob || !place || !shard) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < state->n_result; i++) {
        for (int k = 0; k < FM_N_PART && !state->result[i].reason; k++) {
            if (!state->result[i].has[k]) continue;
            const fm_blob_entry *at = fm_build_find_blob(state, &state->result[i].part[k]);
            assert(at);
            used[at - state->blob] = 1;
        }
        for (uint32_t k = 0; k < state->result[i].n_named && !state->result[i].reason; k++) {
            const fm_blob_entry *at = fm_build_find_blob(state, &state->result[i].named[k]);
            assert(at);
            used[at - state->blob] = 1;
        }
    }
    uint32_t n_blob = 0, n_shard = 0;
    for (uint32_t i = 0; i < state->n_blob; i++) {
        if (!used[i]) continue;
        assert(state->blob[i].shard < state->n_shard);
        blob[n_blob++] = state->blob[i];
    }
    for (uint32_t i = 0; i < state->n_shard; i++)
        place[i] = FM_NO_PART;
    for (uint32_t i = 0; i < n_blob; i++) {
        if (place[blob[i].shard] == FM_NO_PART) shard[n_shard++] = state->shard[blob[i].shard];
        place[blob[i].shard] = 0;
    }
    if (n_shard) qsort(shard, n_shard, sizeof *shard, compare_hashes);
    for (uint32_t i = 0; i < n_shard; i++) {
        for (uint32_t j = 0; j < state->n_shard; j++) {
            if (!memcmp(&state->shard[j].hash, &shard[i].hash, sizeof(fm_sha256))) place[j] = i;
        }
        shard[i].n_note = 0;
    }
    for (uint32_t i = 0; i < n_blob; i++)
        blob[i].shard = place[blob[i].shard];
    if (n_blob) qsort(blob, n_blob, sizeof *blob, compare_hashes);
    generation->blob = blob;
    generation->n_blob = n_blob;
    generation->shard = shard;
    generation->n_shard = n_shard;
    return FM_OK;
}

static uint32_t position_of(const fm_generation *generation, const fm_sha256 *hash) {
    const fm_blob_entry *found = bsearch(hash, generation->blob, generation->n_blob,
                                         sizeof *generation->blob, compare_hashes);
    assert(found);
    return (uint32_t)(found - generation->blob);
}

/* Collects the chains in the order of names; results are sorted. */
static fm_status gather_chains(const fm_build_state *state, fm_arena *arena,
                               fm_generation *generation, uint32_t **ret_weight, fm_error *reterr) {
    uint32_t n = 0;
    uint64_t name_bytes = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        if (state->result[i].reason) continue;
        n++;
        name_bytes += strlen(state->result[i].name) + 1;
    }
    fm_chain_entry *chain = fm_arena_alloc_array(arena, n, sizeof *chain);
    char *names = fm_arena_alloc(arena, name_bytes);
    uint32_t *weight = fm_arena_alloc_array(arena, n, sizeof *weight);
    if (!chain || !names || !weight) return fm_arena_full(arena, reterr);
    n = 0;
    name_bytes = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (result->reason) continue;
        chain[n].name_at = name_bytes;
        size_t length = strlen(result->name) + 1;
        memcpy(names + name_bytes, result->name, length);
        name_bytes += length;
        for (int k = 0; k < FM_N_PART; k++) {
            chain[n].part[k] =
                result->has[k] ? position_of(generation, &result->part[k]) : FM_NO_PART;
        }
        /* The facts of a complex give its weight later. */
        const fm_blob_entry *sequence = &generation->blob[chain[n].part[FM_PART_SEQUENCE - 1]];
        weight[n++] = fm_snapshot_weight(sequence->decoded_bytes - SEQUENCE_HEADER_BYTES);
    }
    generation->chain = chain;
    generation->n_chain = n;
    generation->names = names;
    generation->name_bytes = name_bytes;
    *ret_weight = weight;
    return FM_OK;
}

/* Adds the facts that a list of the dataset has and the chain's parts lack. */
static void add_listed(const fm_listed *listed, fm_chain_facts *facts) {
    facts->cluster_size = listed->cluster_size;
    if (!facts->release_date[0] && listed->release_date[0]) {
        memcpy(facts->release_date, listed->release_date, sizeof facts->release_date);
        facts->flags |= FM_FACTS_LISTED;
    }
    if (facts->resolution <= 0.0f && listed->resolution > 0.0f) {
        facts->resolution = listed->resolution;
        facts->flags |= FM_FACTS_LISTED;
    }
}

/* Collects the facts of the chains from the notes of their structures. A chain without a note gets
 * an empty row. */
static fm_status gather_facts(fm_build_state *state, fm_arena *arena, fm_generation *generation,
                              fm_error *reterr) {
    fm_chain_facts *facts = fm_arena_calloc(arena, generation->n_chain, sizeof *facts);
    if (!facts) return fm_arena_full(arena, reterr);
    uint32_t n = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (result->reason) continue;
        fm_chain_facts *row = &facts[n++];
        if (result->facts) *row = *result->facts;
        if (result->is_complex || !result->has[FM_PART_STRUCTURE - 1]) continue;
        fm_sha256 key =
            fm_facts_key(&result->part[FM_PART_SEQUENCE - 1], &result->part[FM_PART_STRUCTURE - 1]);
        fm_build_note *note = fm_build_find_note(state, &key);
        if (!note) continue;
        const fm_bytes value = {note->value, note->value_bytes};
        if (result->facts) note->used = true;
        if (result->facts) continue;
        if (fm_facts_decode_row(value, row, NULL)) continue;
        note->used = true;
        if (result->has_listed) add_listed(&result->listed, row);
    }
    generation->facts = facts;
    return FM_OK;
}

/* What the note of a complex says; of one that is kept or merged, its result says it. Rows are in
 * the arena. */
static fm_status find_complex(fm_build_state *state, fm_build_result *result, fm_arena *arena,
                              fm_chain_facts *facts, fm_error *reterr) {
    state->n_protein += result->n_protein;
    state->n_unclustered += result->n_unclustered;
    if (result->is_kept || result->facts) return FM_OK;
    const fm_build_note *note = fm_build_find_note(state, &result->key[0]);
    assert(note); /* made or used with the complex */
    const fm_bytes value = {note->value, note->value_bytes};
    fm_build_complex_note read;
    fm_status status =
        fm_build_read_complex_note(value, state->source, result->name, arena, &read, reterr);
    if (status) return status;
    *facts = read.facts;
    result->rows = read.rows;
    result->n_row = read.n_row;
    state->n_protein += read.n_protein;
    state->n_unclustered += read.n_unclustered;
    return FM_OK;
}

/* Collects facts, weights and records of the complexes; chains have theirs. */
static fm_status gather_complexes(fm_build_state *state, fm_arena *arena, fm_generation *generation,
                                  uint32_t *weight, fm_error *reterr) {
    fm_chain_facts *facts = (fm_chain_facts *)(uintptr_t)generation->facts; /* made here */
    uint64_t n_row = 0;
    uint32_t item = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        fm_build_result *result = &state->result[i];
        if (result->reason) continue;
        uint32_t own = item++;
        if (!result->is_complex) continue;
        fm_status status = find_complex(state, result, arena, &facts[own], reterr);
        if (status) return status;
        weight[own] = fm_snapshot_weight(facts[own].n_res);
        n_row += result->n_row;
    }
    if (n_row > UINT32_MAX) return fm_fail(reterr, FM_ERR_LIMIT, "too many records of complexes");
    fm_complex_row *rows = fm_arena_alloc_array(arena, n_row, sizeof *rows);
    if (!rows) return fm_arena_full(arena, reterr);
    item = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        for (uint32_t k = 0; k < result->n_row && !result->reason; k++) {
            rows[generation->n_row] = result->rows[k];
            rows[generation->n_row++].item = item;
        }
        item += !result->reason;
    }
    generation->rows = rows;
    return FM_OK;
}

static fm_status gather_lists(const fm_build_state *state, fm_arena *arena,
                              fm_generation *generation, fm_error *reterr) {
    fm_note_entry *note = fm_arena_alloc_array(arena, state->n_note, sizeof *note);
    fm_refusal *refused = fm_arena_alloc_array(arena, state->n_result, sizeof *refused);
    if (!note || !refused) return fm_arena_full(arena, reterr);
    uint32_t n_note = 0, n_refused = 0;
    for (uint32_t i = 0; i < state->n_note; i++) {
        const fm_build_note *from = &state->note[i];
        if (from->used) {
            note[n_note++] = (fm_note_entry){from->key, {from->value, from->value_bytes}};
        }
    }
    if (n_note) qsort(note, n_note, sizeof *note, compare_hashes);
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (result->reason) refused[n_refused++] = (fm_refusal){result->name, result->reason};
    }
    generation->note = note;
    generation->n_note = n_note;
    generation->refused = refused;
    generation->n_refused = n_refused;
    return FM_OK;
}

void fm_build_sort_results(fm_build_state *state) {
    uint32_t kept = 0;
    if (state->n_result) {
        qsort(state->result, state->n_result, sizeof *state->result, compare_results);
    }
    for (uint32_t i = 0; i < state->n_result; i++) {
        if (kept && strcmp(state->result[i].name, state->result[kept - 1].name) == 0) {
            fm_build_free_result(&state->result[i]);
        } else {
            state->result[kept++] = state->result[i];
        }
    }
    state->n_result = kept;
}

static bool is_same(const fm_generation *a, const fm_generation *b) {
    if (memcmp(&a->content, &b->content, sizeof a->content) != 0 || a->n_shard != b->n_shard ||
        memcmp(&a->notes_hash, &b->notes_hash, sizeof a->notes_hash) != 0 ||
        memcmp(&a->refused_hash, &b->refused_hash, sizeof a->refused_hash) != 0) {
        return false;
    }
    if (a->has_facts != b->has_facts ||
        (a->has_facts && memcmp(&a->facts_hash, &b->facts_hash, sizeof a->facts_hash) != 0)) {
        return false;
    }
    if (a->n_complex && memcmp(&a->rows_hash, &b->rows_hash, sizeof a->rows_hash) != 0) {
        return false;
    }
    for (uint32_t i = 0; i < a->n_shard; i++) {
        if (memcmp(&a->shard[i].hash, &b->shard[i].hash, sizeof(fm_sha256)) != 0) return false;
    }
    return true;
}

fm_status fm_build_publish(fm_build_state *state, const fm_generation *base, fm_arena *arena,
                           fm_generation *ret_generation, bool *ret_published, fm_error *reterr) {
    uint64_t highest = 0;
    uint32_t *weight;
    fm_status status = find_highest(state->options->cache, arena, &highest, reterr);
    fm_generation generation = {.number = (highest > base->number ? highest : base->number) + 1};
    fm_build_sort_results(state);
    if (!status) status = gather_blobs(state, arena, &generation, reterr);
    if (!status) status = gather_chains(state, arena, &generation, &weight, reterr);
    if (!status) status = gather_facts(state, arena, &generation, reterr);
    if (!status) status = gather_complexes(state, arena, &generation, weight, reterr);
    size_t mark = fm_arena_mark(arena);
    if (!status) status = gather_lists(state, arena, &generation, reterr);
    if (status) return status;
    *ret_generation = generation;
    *ret_published = false;
    bool has_own = false;
    for (uint32_t i = 0; i < state->n_result; i++)
        has_own |= !state->result[i].reason && !state->result[i].is_kept;
    if (state->n_result == 0) {
        return fm_fail(reterr, FM_ERR_DATA,
                       "the dataset has no chain to build: no structure or no folder of "
                       "alignments was found for any; --dry-run shows which files were found");
    }
    if (!has_own) {
        return fm_fail(reterr, FM_ERR_DATA, "not one chain could be made; nothing is published");
    }
    status = fm_generation_hash_lists(&generation, arena, reterr);
    if (!status && base->number && is_same(&generation, base)) {
        generation.number = base->number;
        *ret_generation = generation;
        return FM_OK;
    }
    fm_bytes snapshot;
    if (!status && state->record.size) {
        fm_build_put_note(state, &state->record_key, state->record);
        fm_arena_rewind(arena, mark); /* the lists are made again */
        status = gather_lists(state, arena, &generation, reterr);
    }
    if (!status) status = fm_snapshot_encode_all(&generation, weight, arena, &snapshot, reterr);
    if (!status) {
        status = fm_generation_publish(state->options->cache, &generation, snapshot, arena, reterr);
    }
    if (status) return status;
    *ret_generation = generation;
    *ret_published = true;
    return FM_OK;
}
