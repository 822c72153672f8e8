/* build_components.c: the set of components of a build, and how it comes into a cache. */
#include "cache/build/build_work.h"

#include "cache/store/blob.h"
#include "cache/store/lock.h"
#include "featurizer/complex/components_code.h"
#include "proto/base/directory.h"
#include "proto/limits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Address space for the names of shards. */
#define NAME_ARENA_BYTES ((size_t)1 << 30)

static fm_status pack(const fm_components *components, fm_arena *arena, size_t *ret_bytes,
                      fm_bytes *ret_packed, fm_error *reterr) {
    fm_bytes form = {0};
    fm_status status = fm_components_encode(components, arena, &form, reterr);
    if (!status && form.size > FM_LIMIT_PART_BYTES) {
        status = fm_fail(reterr, FM_ERR_LIMIT, "the components have %zu bytes, the limit is %zu",
                         form.size, FM_LIMIT_PART_BYTES);
    }
    if (!status) status = fm_blob_pack(form, FM_PART_COMPONENTS, arena, ret_packed, reterr);
    *ret_bytes = form.size;
    return status;
}

/* Gives the set of the options to the writer unless the cache has it. */
static fm_status push_components(fm_build_state *state, fm_arena *arena, fm_error *reterr) {
    const fm_components *components = state->options->components;
    fm_bytes packed = {0};
    size_t bytes = 0, mark = fm_arena_mark(arena);
    state->components = components;
    if (fm_build_knows_blob(state, &components->hash)) return FM_OK;
    fm_status status = pack(components, arena, &bytes, &packed, reterr);
    if (!status && !fm_build_claim_blob(state, &components->hash, FM_PART_COMPONENTS, bytes)) {
        fm_build_push(state, false, &components->hash, packed);
    }
    fm_arena_rewind(arena, mark);
    return status;
}

/* Reads a sealed blob of the cache. */
static fm_status read_components(fm_build_state *state, const fm_blob_entry *entry, fm_arena *arena,
                                 fm_error *reterr) {
    char path[PATH_MAX];
    fm_bytes packed = {0};
    fm_blob blob;
    if (!fm_shard_path(state->options->cache, &state->shard[entry->shard].hash, path,
                       sizeof path)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
    }
    const fm_source_file file = {
        .name = "components", .path = path, .offset = entry->offset, .bytes = entry->stored_bytes};
    fm_status status = fm_source_read(&file, FM_LIMIT_PART_BYTES, arena, &packed, reterr);
    if (!status) status = fm_blob_open(packed, &blob, reterr);
    if (status) return status;
    uint8_t *form = fm_arena_alloc(arena, (size_t)blob.decoded_bytes);
    fm_components *components = fm_arena_alloc(arena, sizeof *components);
    if (!form || !components) return fm_arena_full(arena, reterr);
    status = fm_blob_unpack(&blob, &entry->hash, form, reterr);
    if (!status) {
        status = fm_components_decode((fm_bytes){form, (size_t)blob.decoded_bytes}, arena,
                                      components, reterr);
    }
    if (status) return reterr ? fm_error_in(reterr, path) : status;
    state->components = components;
    return FM_OK;
}

/* Finds the cache's set. One that the generation does not name yet was put there after it. */
static fm_status find_components(const fm_build_state *state, const fm_generation *base,
                                 const fm_blob_entry **ret_entry, fm_error *reterr) {
    uint32_t n[2] = {0}, at;
    const fm_blob_entry *found[2] = {0};
    for (uint32_t i = 0; i < state->n_blob; i++) {
        if (state->blob[i].kind != FM_PART_COMPONENTS) continue;
        bool is_old = base->number && fm_generation_find_blob(base, &state->blob[i].hash, &at);
        found[is_old] = &state->blob[i];
        n[is_old]++;
    }
    *ret_entry = n[0] ? found[0] : found[1];
    if (n[0] == 1 || (n[0] == 0 && n[1] == 1)) return FM_OK;
    if (n[0] || n[1]) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "the cache has %u sets of components; --components FILE says which to use",
                       n[0] + n[1]);
    }
    return fm_fail(reterr, FM_ERR_USAGE,
                   "complexes need the chemical components, and the cache has none; --components "
                   "FILE, or foldmill components FILE --cache DIR before");
}

fm_status fm_build_take_components(fm_build_state *state, const fm_generation *base,
                                   fm_arena *arena, fm_error *reterr) {
    const fm_blob_entry *entry;
    if (!state->options->complexes) return FM_OK;
    if (state->options->components) return push_components(state, arena, reterr);
    fm_status status = find_components(state, base, &entry, reterr);
    return status ? status : read_components(state, entry, arena, reterr);
}

/* -- a set alone */

static fm_status seal_components(const char *cache, const fm_components *components,
                                 fm_arena *arena, fm_error *reterr) {
    const fm_shard_visitor visitor = {0};
    fm_shard_writer *writer;
    fm_shard_info info;
    fm_bytes packed = {0};
    size_t bytes = 0;
    fm_status status = pack(components, arena, &bytes, &packed, reterr);
    if (!status) status = fm_shard_writer_create(cache, 0, &writer, reterr);
    if (status) return status;
    status = fm_shard_writer_put(writer, &components->hash, packed, reterr);
    if (!status) return fm_shard_writer_seal(writer, &visitor, &info, reterr);
    fm_shard_writer_destroy(writer);
    return status;
}

static fm_status put_locked(fm_build_state *state, const fm_components *components, fm_arena *arena,
                            bool *ret_was_there, fm_error *reterr) {
    fm_generation base;
    fm_status status = fm_build_take_known(state, arena, &base, reterr);
    *ret_was_there = !status && fm_build_knows_blob(state, &components->hash);
    if (status || *ret_was_there) return status;
    return seal_components(state->options->cache, components, arena, reterr);
}

fm_status fm_build_put_components(const char *cache, const fm_components *components,
                                  fm_arena *arena, bool *ret_was_there, fm_error *reterr) {
    const fm_source source = {0};
    fm_build_options options = {.n_job = 1};
    fm_cache_lock lock;
    fm_error error;
    fm_status status = fm_cache_lock_alone(cache, &lock, &error);
    if (!status) {
        fm_build_state state;
        options.cache = fm_held_folder_path(&lock.cache);
        fm_build_state_init(&state, &source, &options);
        status = put_locked(&state, components, arena, ret_was_there, &error);
        fm_build_state_fini(&state);
        fm_cache_unlock(&lock, status);
    }
    if (status && reterr) *reterr = error;
    return status;
}

/* -- a cache without a generation */

enum { SHARD_BYTES_MAX = 256 << 20 }; /* larger shards are of builds */

static fm_status expect_components(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                                   fm_error *reterr) {
    (void)context, (void)hash;
    if (blob->kind == FM_PART_COMPONENTS) return FM_OK;
    return fm_fail(reterr, FM_ERR_EXISTS, "found a part of the kind %s", fm_part_name(blob->kind));
}

static bool is_of_components(const char *folder, const char *name) {
    const fm_shard_visitor visitor = {.blob = expect_components};
    char path[PATH_MAX];
    fm_path_kind kind;
    fm_shard_info info;
    uint64_t bytes;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (n < 0 || (size_t)n >= sizeof path || fm_path_size(path, &kind, &bytes, NULL)) return false;
    return bytes <= SHARD_BYTES_MAX && !fm_shard_walk(path, NULL, &visitor, &info, NULL);
}

bool fm_build_has_only_components(const char *cache) {
    char path[PATH_MAX];
    fm_arena arena;
    fm_name_list names = {0};
    if (fm_arena_init(&arena, NAME_ARENA_BYTES, NULL)) return false;
    bool is = !fm_build_path(cache, "shards", path, NULL) &&
              !fm_directory_list(path, false, FM_LIMIT_N_CHAIN, &arena, &names, NULL) && names.n;
    for (size_t i = 0; i < names.n && is; i++)
        is = is_of_components(path, names.name[i]);
    free(names.name);
    fm_arena_fini(&arena);
    return is;
}
