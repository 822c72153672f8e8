/* build_known.c: reads what a cache has already: its generation, and sealed shards that no
 * generation names. See build_state.h. */
#include "cache/build/build_state.h"

#include "proto/base/directory.h"
#include "proto/limits.h"

#include <stdlib.h>
#include <string.h>

/* *ret_there: the shard's file exists and has its size. */
static fm_status look_for_shard(const char *cache, const fm_shard_info *shard, bool *ret_there,
                                fm_error *reterr) {
    char path[PATH_MAX];
    fm_path_kind kind;
    uint64_t bytes;
    if (!fm_shard_path(cache, &shard->hash, path, sizeof path)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_status status = fm_path_size(path, &kind, &bytes, reterr);
    *ret_there = !status && kind == FM_PATH_FILE && bytes == shard->bytes;
    return status;
}

static fm_status add_shard(fm_build_state *state, const fm_shard_info *shard, fm_error *reterr) {
    if (!fm_build_grow((void **)&state->shard, state->n_shard, &state->max_shard, sizeof *shard)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of shards");
    }
    state->shard[state->n_shard++] = *shard;
    return FM_OK;
}

/* The position of a shard in the state's list; n_shard = it is not known. */
static uint32_t find_shard(const fm_build_state *state, const fm_sha256 *hash) {
    uint32_t at = 0;
    while (at < state->n_shard && memcmp(&state->shard[at].hash, hash, sizeof *hash) != 0)
        at++;
    return at;
}

/* Parts whose blobs are not added are made again. */
fm_status fm_build_take_generation(fm_build_state *state, const fm_generation *base,
                                   fm_arena *arena, fm_error *reterr) {
    fm_status status = FM_OK;
    bool *there = fm_arena_calloc(arena, base->n_shard, sizeof *there);
    uint32_t *place = fm_arena_calloc(arena, base->n_shard, sizeof *place);
    if (!there || !place) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < base->n_shard && !status; i++) {
        place[i] = find_shard(state, &base->shard[i].hash);
        if (place[i] == state->n_shard) status = add_shard(state, &base->shard[i], reterr);
        if (!status) {
            status = look_for_shard(state->options->cache, &base->shard[i], &there[i], reterr);
        }
    }
    for (uint32_t i = 0; i < base->n_blob && !status; i++) {
        fm_blob_entry blob = base->blob[i];
        if (!there[blob.shard]) continue;
        blob.shard = place[blob.shard];
        fm_build_add_blob(state, &blob);
    }
    for (uint32_t i = 0; i < base->n_note && !status; i++)
        fm_build_borrow_note(state, &base->note[i].key, base->note[i].value);
    return status;
}

static fm_status take_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                           fm_error *reterr) {
    (void)reterr;
    fm_build_state *state = context;
    const fm_blob_entry entry = {.hash = *hash,
                                 .offset = blob->offset,
                                 .stored_bytes = blob->stored_bytes,
                                 .decoded_bytes = blob->decoded_bytes,
                                 .kind = blob->kind,
                                 .shard = state->n_shard};
    fm_build_add_blob(state, &entry);
    return FM_OK;
}

static fm_status take_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    (void)reterr;
    fm_build_add_note(context, key, value, false);
    return FM_OK;
}

fm_status fm_build_take_shard(fm_build_state *state, const fm_sha256 *hash, fm_error *reterr) {
    char path[PATH_MAX];
    fm_shard_info info;
    const fm_shard_visitor visitor = {state, take_blob, take_note};
    if (!fm_shard_path(state->options->cache, hash, path, sizeof path)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    fm_status status = fm_shard_walk(path, hash, &visitor, &info, reterr);
    return status ? status : add_shard(state, &info, reterr);
}

/* Reads sealed shards that no generation names, from a killed build. A damaged one is ignored. */
static fm_status take_other_shards(fm_build_state *state, fm_arena *arena, fm_error *reterr) {
    char path[PATH_MAX];
    fm_name_list names;
    fm_status status = fm_build_path(state->options->cache, "shards", path, reterr);
    if (status) return status;
    status = fm_directory_list(path, false, FM_LIMIT_N_CHAIN, arena, &names, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK; /* the first build */
    for (size_t i = 0; i < names.n && !status; i++) {
        fm_sha256 hash;
        fm_shard_info info;
        const fm_shard_visitor visitor = {state, take_blob, take_note};
        const char *name = names.name[i];
        if (strlen(name) == FM_SHA256_HEX - 1 + strlen(".lmdb") &&
            !fm_sha256_parse(name, FM_SHA256_HEX - 1, &hash) &&
            find_shard(state, &hash) == state->n_shard &&
            fm_shard_path(state->options->cache, &hash, path, sizeof path) &&
            !fm_shard_walk(path, &hash, &visitor, &info, NULL)) {
            status = add_shard(state, &info, reterr);
        }
    }
    free(names.name);
    return status;
}

fm_status fm_build_take_known(fm_build_state *state, fm_arena *arena, fm_generation *ret_base,
                              fm_error *reterr) {
    fm_generation base = {0};
    fm_status status =
        fm_generation_read(state->options->cache, FM_GENERATION_ALL, arena, &base, reterr);
    if (status == FM_ERR_NOT_FOUND) status = FM_OK;
    if (status) return status;
    status = fm_build_take_generation(state, &base, arena, reterr);
    if (!status) status = take_other_shards(state, arena, reterr);
    if (!status && state->failed) {
        *reterr = state->error;
        status = state->failed;
    }
    if (!status) *ret_base = base;
    return status;
}
