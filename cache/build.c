/* build.c: the build job from start to CURRENT: what is known already, the threads, and the new
 * generation. See build.h and docs/formats/store.md. */
#include "cache/build_hits.h"

#include "cache/lock.h"
#include "cache/snapshot.h"
#include "cache/snapshot_encode.h"
#include "proto/base/file.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { PROGRESS_MS = 200, SEQUENCE_HEADER_BYTES = 64 };

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- the folder */

/* CACHE/name into out. */
static fm_status path_in(const char *cache, const char *name, char out[PATH_MAX],
                         fm_error *reterr) {
    int n = snprintf(out, PATH_MAX, "%s/%s", cache, name);
    if (n > 0 && n < PATH_MAX) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
}

/* Removes what a killed build left half written in a folder of the cache: files of ours, known by
 * their names, "<prefix>...tmp..."; nothing else, for the folder may be the user's, too. */
static void remove_leftovers(const char *cache, const char *folder, const char *prefix_letters) {
    char path[PATH_MAX];
    if (path_in(cache, folder, path, NULL)) return;
    DIR *dir = opendir(path);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        const char *tmp = strstr(entry->d_name, ".tmp");
        size_t prefix = strspn(entry->d_name, prefix_letters);
        if (tmp && prefix >= strlen("CURRENT")) unlinkat(dirfd(dir), entry->d_name, 0);
    }
    if (dir) closedir(dir);
}

/* The highest number of a manifest in the folder: where CURRENT was removed or lost, generations
 * that are there are left as they are. */
static uint64_t highest_generation(const char *cache) {
    char path[PATH_MAX];
    uint64_t highest = 0;
    if (path_in(cache, "generations", path, NULL)) return 0;
    DIR *dir = opendir(path);
    for (struct dirent *entry = dir ? readdir(dir) : NULL; entry; entry = readdir(dir)) {
        char *end;
        unsigned long long number = strtoull(entry->d_name, &end, 10);
        if (strcmp(end, ".manifest") == 0 && number > highest) highest = number;
    }
    if (dir) closedir(dir);
    return highest;
}

/* -- what is known already */

static bool shard_is_there(const char *cache, const fm_shard_info *shard) {
    char path[PATH_MAX];
    struct stat info;
    return fm_shard_path(cache, &shard->hash, path, sizeof path) && stat(path, &info) == 0 &&
           (uint64_t)info.st_size == shard->bytes;
}

static fm_status add_shard(build_state *state, const fm_shard_info *shard, fm_error *reterr) {
    if (!fm_build_grow((void **)&state->shard, state->n_shard, &state->max_shard, sizeof *shard)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of shards");
    }
    state->shard[state->n_shard++] = *shard;
    return FM_OK;
}

/* Shards that are gone take their blobs with them: those parts are made again. */
static fm_status take_generation(build_state *state, const fm_generation *base, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < base->n_shard && !status; i++) {
        status = add_shard(state, &base->shard[i], reterr);
    }
    for (uint32_t i = 0; i < base->n_blob && !status; i++) {
        if (shard_is_there(state->options->cache, &base->shard[base->blob[i].shard])) {
            fm_build_add_blob(state, &base->blob[i]);
        }
    }
    for (uint32_t i = 0; i < base->n_note && !status; i++) {
        fm_build_add_note(state, &base->note[i].key, base->note[i].value, false);
    }
    return status;
}

static fm_status take_blob(void *context, const fm_sha256 *hash, uint64_t offset, fm_bytes packed,
                           fm_error *reterr) {
    build_state *state = context;
    fm_reader reader = fm_reader_of(packed.data, packed.size); /* checked when it was sealed */
    (void)fm_read_u32(&reader);
    (void)fm_read_u16(&reader);
    fm_blob_entry entry = {.hash = *hash,
                           .offset = offset,
                           .stored_bytes = (uint32_t)packed.size,
                           .shard = state->n_shard};
    entry.kind = fm_read_u16(&reader);
    entry.decoded_bytes = (uint32_t)fm_read_u64(&reader);
    if (reader.failed) return fm_fail(reterr, FM_ERR_CORRUPT, "a blob without a header");
    fm_build_add_blob(state, &entry);
    return FM_OK;
}

static fm_status take_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    (void)reterr;
    fm_build_add_note(context, key, value, false);
    return FM_OK;
}

static bool is_known_shard(const build_state *state, const fm_sha256 *hash) {
    for (uint32_t i = 0; i < state->n_shard; i++) {
        if (memcmp(&state->shard[i].hash, hash, sizeof *hash) == 0) return true;
    }
    return false;
}

/* Sealed shards that no generation names: a killed build's. A damaged one is left alone. */
static fm_status take_other_shards(build_state *state, fm_error *reterr) {
    char path[PATH_MAX];
    struct dirent **entries;
    fm_status status = path_in(state->options->cache, "shards", path, reterr);
    if (status) return status;
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        fm_sha256 hash;
        fm_shard_info info;
        const fm_shard_visitor visitor = {state, take_blob, take_note};
        const char *name = entries[i]->d_name;
        if (!status && strlen(name) == FM_SHA256_HEX - 1 + strlen(".lmdb") &&
            fm_sha256_parse(name, FM_SHA256_HEX - 1, &hash) == FM_OK &&
            !is_known_shard(state, &hash) &&
            fm_shard_path(state->options->cache, &hash, path, sizeof path) &&
            fm_shard_walk(path, &hash, &visitor, &info, NULL) == FM_OK) {
            status = add_shard(state, &info, reterr);
        }
        free(entries[i]);
    }
    if (n >= 0) free(entries);
    return status;
}

static fm_status take_known(build_state *state, fm_arena *arena, fm_generation *ret_base,
                            fm_error *reterr) {
    fm_generation base = {0};
    fm_status status =
        fm_generation_read(state->options->cache, FM_GENERATION_ALL, arena, &base, reterr);
    if (status == FM_ERR_NOT_FOUND) status = FM_OK;
    if (status) return status;
    status = take_generation(state, &base, reterr);
    state->n_base_shard = state->n_shard;
    if (!status) status = take_other_shards(state, reterr);
    if (!status && state->failed) {
        *reterr = state->error;
        status = state->failed;
    }
    if (!status) *ret_base = base;
    return status;
}

/* -- threads */

static void tell_progress(build_state *state, double begun) {
    const fm_build_options *options = state->options;
    fm_build_progress progress = state->progress;
    progress.stored_bytes = state->written_bytes;
    progress.seconds = now_seconds() - begun;
    uint32_t n = options->single_sequence ? progress.n_structure : progress.n_chain;
    progress.done = options->single_sequence ? progress.structures_done : progress.chains_done;
    progress.done = n ? progress.done / n : 1.0;
    if (options->stop && *options->stop) state->ending = true;
    if (!options->progress) return;
    pthread_mutex_unlock(&state->lock);
    options->progress(options->progress_context, &progress);
    pthread_mutex_lock(&state->lock);
}

static void wait_for_workers(build_state *state, double begun) {
    pthread_mutex_lock(&state->lock);
    double told = now_seconds();
    while (state->n_working) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += PROGRESS_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&state->changed, &state->lock, &until);
        if (now_seconds() - told < PROGRESS_MS * 1e-3) continue;
        tell_progress(state, begun);
        told = now_seconds();
    }
    tell_progress(state, begun);
    pthread_mutex_unlock(&state->lock);
}

static fm_status run_threads(build_state *state, double begun, fm_error *reterr) {
    uint32_t n_job = state->options->n_job, n_started = 0;
    pthread_t *thread = calloc((size_t)n_job + 1, sizeof *thread);
    if (!thread) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u threads", n_job);
    bool writing = pthread_create(&thread[n_job], NULL, fm_build_writer, state) == 0;
    state->n_working = writing ? n_job : 0;
    for (uint32_t i = 0; i < n_job && writing; i++) {
        if (pthread_create(&thread[i], NULL, fm_build_worker, state) != 0) break;
        n_started++;
    }
    pthread_mutex_lock(&state->lock);
    if (writing) state->n_working -= n_job - n_started;
    pthread_mutex_unlock(&state->lock);
    if (n_started) wait_for_workers(state, begun);
    for (uint32_t i = 0; i < n_started; i++)
        pthread_join(thread[i], NULL);
    pthread_mutex_lock(&state->lock);
    state->no_more = true;
    pthread_cond_broadcast(&state->changed);
    pthread_mutex_unlock(&state->lock);
    if (writing) pthread_join(thread[n_job], NULL);
    free(thread);
    if (!n_started) return fm_fail(reterr, FM_ERR_NOMEM, "cannot start %u threads", n_job);
    if (state->failed) *reterr = state->error;
    return state->failed;
}

/* -- the new generation */

static int compare_results(const void *a, const void *b) {
    return strcmp(((const build_result *)a)->name, ((const build_result *)b)->name);
}

/* Blobs, notes and shards all begin with the hash they are sorted by; so does a bare hash. */
static int compare_hashes(const void *a, const void *b) {
    return memcmp(a, b, sizeof(fm_sha256));
}

_Static_assert(offsetof(fm_blob_entry, hash) == 0 && offsetof(fm_note_entry, key) == 0 &&
                   offsetof(fm_shard_info, hash) == 0,
               "sorted by the hash in front");

/* The blobs that the results name, sorted by hash, and the shards they lie in. */
static fm_status gather_blobs(const build_state *state, fm_arena *arena, fm_generation *generation,
                              fm_error *reterr) {
    uint8_t *used = fm_arena_calloc(arena, state->n_blob, 1);
    fm_blob_entry *blob = fm_arena_alloc_array(arena, state->n_blob, sizeof *blob);
    uint32_t *place = fm_arena_alloc_array(arena, state->n_shard, sizeof *place);
    fm_shard_info *shard = fm_arena_calloc(arena, state->n_shard, sizeof *shard);
    if (!used || !blob || !place || !shard) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < state->n_result; i++) {
        for (int k = 0; k < FM_N_PART && !state->result[i].reason; k++) {
            if (!state->result[i].has[k]) continue;
            uint32_t *at = fm_hash_map_find(&state->blob_of, &state->result[i].part[k]);
            assert(at);
            used[*at] = 1;
        }
        for (uint32_t k = 0; k < state->result[i].n_named && !state->result[i].reason; k++) {
            uint32_t *at = fm_hash_map_find(&state->blob_of, &state->result[i].named[k]);
            assert(at);
            used[*at] = 1;
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

/* Chains in the order of names; results are sorted. */
static fm_status gather_chains(const build_state *state, fm_arena *arena, fm_generation *generation,
                               uint32_t **ret_weight, fm_error *reterr) {
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
        const build_result *result = &state->result[i];
        if (result->reason) continue;
        chain[n].name_at = name_bytes;
        size_t length = strlen(result->name) + 1;
        memcpy(names + name_bytes, result->name, length);
        name_bytes += length;
        for (int k = 0; k < FM_N_PART; k++) {
            chain[n].part[k] =
                result->has[k] ? position_of(generation, &result->part[k]) : FM_NO_PART;
        }
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

static fm_status gather_lists(const build_state *state, fm_arena *arena, fm_generation *generation,
                              fm_error *reterr) {
    fm_note_entry *note = fm_arena_alloc_array(arena, state->n_note, sizeof *note);
    fm_refusal *refused = fm_arena_alloc_array(arena, state->n_result, sizeof *refused);
    if (!note || !refused) return fm_arena_full(arena, reterr);
    uint32_t n_note = 0, n_refused = 0;
    for (uint32_t i = 0; i < state->n_note; i++) {
        const build_note *from = &state->note[i];
        if (from->used) {
            note[n_note++] = (fm_note_entry){from->key, {from->value, from->value_bytes}};
        }
    }
    if (n_note) qsort(note, n_note, sizeof *note, compare_hashes);
    for (uint32_t i = 0; i < state->n_result; i++) {
        const build_result *result = &state->result[i];
        if (result->reason) refused[n_refused++] = (fm_refusal){result->name, result->reason};
    }
    generation->note = note;
    generation->n_note = n_note;
    generation->refused = refused;
    generation->n_refused = n_refused;
    return FM_OK;
}

/* A name may come twice (a chain's and a whole structure's): the first stays. */
static void sort_results(build_state *state) {
    uint32_t kept = 0;
    if (state->n_result) {
        qsort(state->result, state->n_result, sizeof *state->result, compare_results);
    }
    for (uint32_t i = 0; i < state->n_result; i++) {
        if (kept && strcmp(state->result[i].name, state->result[kept - 1].name) == 0) {
            free(state->result[i].name);
            free(state->result[i].reason);
            free(state->result[i].named);
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
    for (uint32_t i = 0; i < a->n_shard; i++) {
        if (memcmp(&a->shard[i].hash, &b->shard[i].hash, sizeof(fm_sha256)) != 0) return false;
    }
    return true;
}

static fm_status publish(build_state *state, const fm_generation *base, fm_arena *arena,
                         fm_generation *ret_generation, bool *ret_published, fm_error *reterr) {
    uint64_t before = base->number ? base->number : highest_generation(state->options->cache);
    fm_generation generation = {.number = before + 1};
    uint32_t *weight;
    sort_results(state);
    fm_status status = gather_blobs(state, arena, &generation, reterr);
    if (!status) status = gather_chains(state, arena, &generation, &weight, reterr);
    if (!status) status = gather_lists(state, arena, &generation, reterr);
    if (status) return status;
    *ret_generation = generation;
    *ret_published = false;
    if (generation.n_chain == 0) {
        return fm_fail(reterr, FM_ERR_DATA, "not one chain could be made; nothing is published");
    }
    status = fm_generation_hash_lists(&generation, arena, reterr);
    if (!status && base->number && is_same(&generation, base)) {
        generation.number = base->number;
        *ret_generation = generation;
        return FM_OK;
    }
    fm_bytes snapshot;
    if (!status) status = fm_snapshot_encode_all(&generation, weight, arena, &snapshot, reterr);
    if (!status) {
        status = fm_generation_publish(state->options->cache, &generation, snapshot, arena, reterr);
    }
    if (status) return status;
    *ret_generation = generation;
    *ret_published = true;
    return FM_OK;
}

/* -- report */

static fm_status list_refusals(const build_state *state, fm_arena *arena, fm_build_report *report,
                               fm_error *reterr) {
    const char **lines = fm_arena_alloc_array(arena, state->n_result, sizeof *lines);
    if (!lines) return fm_arena_full(arena, reterr);
    uint32_t n = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const build_result *result = &state->result[i];
        if (!result->reason) continue;
        size_t size = strlen(result->name) + strlen(result->reason) + 2;
        char *line = fm_arena_alloc(arena, size);
        if (!line) return fm_arena_full(arena, reterr);
        snprintf(line, size, "%s\t%s", result->name, result->reason);
        lines[n++] = line;
    }
    report->refusal = lines;
    report->n_refusal = n;
    return FM_OK;
}

static void count_results(const build_state *state, fm_build_report *report) {
    for (uint32_t i = 0; i < state->n_result; i++) {
        const build_result *result = &state->result[i];
        if (result->reason) {
            report->n_refused++;
            report->refused[(uint32_t)result->status % FM_N_STATUS]++;
        } else if (result->reused) {
            report->n_reused++;
        } else {
            report->n_built++;
        }
    }
    report->input_bytes = state->progress.input_bytes;
    report->written_bytes = state->written_bytes;
    report->problem = state->source->problem;
    report->n_problem = state->source->n_problem;
    report->n_without_hits = state->n_without_hits;
    report->n_no_protein = state->n_no_protein;
    report->single_sequence = state->options->single_sequence;
}

static void count_generation(const fm_generation *generation, fm_build_report *report) {
    report->n_chain = generation->n_chain;
    report->generation = generation->number;
    report->content = generation->content;
    for (uint32_t i = 0; i < generation->n_blob; i++) {
        const fm_blob_entry *blob = &generation->blob[i];
        report->stored_bytes += blob->stored_bytes;
        report->decoded_bytes += blob->decoded_bytes;
        report->part_stored[blob->kind - 1] += blob->stored_bytes;
        report->part_decoded[blob->kind - 1] += blob->decoded_bytes;
    }
}

/* -- the job */

static void init_state(build_state *state, const fm_source *source,
                       const fm_build_options *options) {
    *state = (build_state){.source = source, .options = options};
    state->last = &state->first;
    pthread_mutex_init(&state->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&state->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        state->progress.n_structure += structure->n_chain || options->single_sequence;
    }
    state->progress.n_chain = source->n_chain;
}

static void fini_state(build_state *state) {
    for (uint32_t i = 0; i < state->n_result; i++) {
        free(state->result[i].name);
        free(state->result[i].reason);
        free(state->result[i].named);
    }
    fm_build_templates_destroy(state->templates);
    for (uint32_t i = 0; i < state->n_note; i++)
        free(state->note[i].value);
    free(state->result);
    free(state->note);
    free(state->blob);
    free(state->shard);
    fm_hash_map_fini(&state->blob_of);
    fm_hash_map_fini(&state->note_of);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
}

static fm_status run_locked(build_state *state, fm_arena *arena, fm_build_report *ret_report,
                            fm_error *reterr) {
    double begun = now_seconds();
    const char *cache = state->options->cache;
    fm_build_report report = {0};
    fm_generation base, generation = {0};
    char unsealed[PATH_MAX];
    if (!path_in(cache, "build/shard.tmp", unsealed, NULL)) unlink(unsealed);
    remove_leftovers(cache, "generations", "0123456789");
    remove_leftovers(cache, ".", "CURENT");
    fm_status status = take_known(state, arena, &base, reterr);
    if (!status) status = fm_build_templates_create(state, &state->templates, reterr);
    if (status) return status;
    status = run_threads(state, begun, reterr);
    if (status) return status;
    if (state->ending) {
        status =
            fm_fail(reterr, FM_ERR_CANCELLED, "stopped; what was done is kept, run again to go on");
        sort_results(state);
        report.generation = base.number;
        report.n_chain = base.n_chain;
    } else {
        status = publish(state, &base, arena, &generation, &report.published, reterr);
        if (!status) count_generation(&generation, &report);
    }
    if (status && status != FM_ERR_CANCELLED && status != FM_ERR_DATA) return status;
    count_results(state, &report);
    fm_status listed = list_refusals(state, arena, &report, status ? NULL : reterr);
    report.seconds = now_seconds() - begun;
    *ret_report = report;
    return status ? status : listed;
}

fm_status fm_build_run(const fm_source *source, const fm_build_options *options, fm_arena *arena,
                       fm_build_report *ret_report, fm_error *reterr) {
    assert(options->n_job >= 1);
    fm_error error;
    int lock = -1;
    fm_status status = fm_cache_lock(options->cache, &lock, &error);
    if (!status) {
        build_state state;
        init_state(&state, source, options);
        status = run_locked(&state, arena, ret_report, &error);
        fini_state(&state);
        close(lock);
    }
    if (status && reterr) *reterr = error;
    return status;
}
