/* build.c: runs a build job from start to end: reads the existing cache, runs the threads, and
 * publishes the new generation. See build.h and docs/reference/store.md. */
#include "cache/build/build_work.h"

#include "cache/store/lock.h"
#include "proto/base/directory.h"
#include "proto/base/file.h"
#include "proto/limits.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PROGRESS_MS = 200 };

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- the folder */

fm_status fm_build_path(const char *cache, const char *name, char out[PATH_MAX], fm_error *reterr) {
    int n = snprintf(out, PATH_MAX, "%s/%s", cache, name);
    if (n > 0 && n < PATH_MAX) return FM_OK;
    return fm_fail(reterr, FM_ERR_LIMIT, "the cache's path is too long");
}

/* Removes the half-written files of a killed build from a folder of the cache. It removes only
 * names of the form "<prefix>...tmp...", because the folder may also have files of the user. */
static fm_status remove_leftovers(const char *cache, const char *folder, const char *prefix_letters,
                                  fm_arena *arena, fm_error *reterr) {
    char path[PATH_MAX], file[2 * PATH_MAX];
    fm_name_list names;
    size_t mark = fm_arena_mark(arena);
    fm_status status = fm_build_path(cache, folder, path, reterr);
    if (status) return status;
    status = fm_directory_list(path, false, FM_LIMIT_N_CHAIN, arena, &names, reterr);
    if (status == FM_ERR_NOT_FOUND) return FM_OK;
    for (size_t i = 0; i < names.n; i++) {
        const char *tmp = strstr(names.name[i], ".tmp");
        size_t prefix = strspn(names.name[i], prefix_letters);
        snprintf(file, sizeof file, "%s/%s", path, names.name[i]);
        if (tmp && prefix >= strlen("CURRENT")) unlink(file);
    }
    free(names.name);
    fm_arena_rewind(arena, mark);
    return status;
}

/* -- threads */

static void tell_progress(fm_build_state *state) {
    const fm_build_options *options = state->options;
    fm_build_progress progress = state->progress;
    progress.stored_bytes = state->written_bytes;
    progress.seconds = now_seconds() - state->begun;
    bool by_structure = options->single_sequence && !state->feed;
    uint32_t n = by_structure ? progress.n_structure : progress.n_chain;
    progress.done = by_structure ? progress.structures_done : progress.chains_done;
    progress.done = n ? progress.done / n : 1.0;
    if (options->stop && *options->stop) {
        state->ending = true;
        pthread_cond_broadcast(&state->changed); /* workers may wait for tasks */
    }
    if (!options->progress) return;
    pthread_mutex_unlock(&state->lock);
    options->progress(options->progress_context, &progress);
    pthread_mutex_lock(&state->lock);
}

static void wait_for_workers(fm_build_state *state) {
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
        tell_progress(state);
        told = now_seconds();
    }
    tell_progress(state);
    pthread_mutex_unlock(&state->lock);
}

fm_status fm_build_run_threads(fm_build_state *state, fm_error *reterr) {
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
    if (n_started) wait_for_workers(state);
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

/* -- report */

static fm_status list_refusals(const fm_build_state *state, fm_arena *arena,
                               fm_build_report *report, fm_error *reterr) {
    const char **lines = fm_arena_alloc_array(arena, state->n_result, sizeof *lines);
    if (!lines) return fm_arena_full(arena, reterr);
    uint32_t n = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (!result->reason || result->is_kept) continue;
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

static void count_results(const fm_build_state *state, fm_build_report *report) {
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (result->is_kept) {
            report->n_kept += !result->reason;
        } else if (result->reason) {
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
    report->source_refusal = state->source->refusal;
    report->n_source_refusal = state->source->n_refusal;
    report->n_without_alignments = state->n_without_alignments;
    report->n_bare_entity = state->n_bare_entity;
    report->n_without_hits = state->n_without_hits;
    report->n_left_out = state->n_left_out;
    report->n_no_protein = state->n_no_protein;
    report->n_protein = state->n_protein;
    report->n_unclustered = state->n_unclustered;
    report->single_sequence = state->options->single_sequence || state->options->complexes;
}

double fm_build_seconds(const fm_build_state *state) {
    return now_seconds() - state->begun;
}

fm_status fm_build_report_results(const fm_build_state *state, fm_arena *arena,
                                  fm_build_report *report, fm_error *reterr) {
    struct rusage usage;
    count_results(state, report);
    if (getrusage(RUSAGE_SELF, &usage) == 0) report->peak_bytes = (uint64_t)usage.ru_maxrss << 10;
    return list_refusals(state, arena, report, reterr);
}

void fm_build_report_generation(const fm_generation *generation, fm_build_report *report) {
    report->n_chain = generation->n_chain;
    for (uint32_t i = 0; i < generation->n_chain; i++)
        report->n_complex += fm_generation_is_complex(generation, i);
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

void fm_build_state_init(fm_build_state *state, const fm_source *source,
                         const fm_build_options *options) {
    *state = (fm_build_state){.source = source, .options = options};
    state->last = &state->first;
    state->begun = now_seconds();
    pthread_mutex_init(&state->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&state->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    for (uint32_t i = 0; i < source->n_structure; i++) {
        const fm_source_structure *structure = &source->structure[i];
        bool has_complex = options->complexes && fm_source_has_complex(source, structure);
        state->progress.n_structure +=
            structure->n_chain || options->single_sequence || has_complex;
        state->progress.n_chain += has_complex;
    }
    state->progress.n_chain += source->n_chain;
}

void fm_build_state_fini(fm_build_state *state) {
    for (uint32_t i = 0; i < state->n_result; i++)
        fm_build_free_result(&state->result[i]);
    fm_build_templates_destroy(state->templates);
    fm_build_free_chunks(state->chunks);
    free(state->result);
    free(state->note);
    free(state->blob);
    free(state->shard);
    fm_hash_index_fini(&state->blob_of);
    fm_hash_index_fini(&state->note_of);
    pthread_mutex_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
}

static fm_status run_locked(fm_build_state *state, fm_arena *arena, fm_build_report *ret_report,
                            fm_error *reterr) {
    const char *cache = state->options->cache;
    fm_build_report report = {0};
    fm_generation base, generation = {0};
    fm_build_others others;
    char unsealed[PATH_MAX];
    if (!fm_build_path(cache, "build/shard.tmp", unsealed, NULL)) unlink(unsealed);
    fm_status status = remove_leftovers(cache, "build", "shard-0123456789", arena, reterr);
    if (!status) status = remove_leftovers(cache, "generations", "0123456789", arena, reterr);
    if (!status) status = remove_leftovers(cache, ".", "CURENT", arena, reterr);
    if (!status) status = fm_build_take_known(state, arena, &base, reterr);
    if (!status) {
        status =
            fm_build_check_others(state->source, state->options, &base, arena, &others, reterr);
    }
    if (!status) status = fm_build_take_components(state, &base, arena, reterr);
    if (!status) status = fm_build_templates_create(state, &state->templates, reterr);
    if (status) return status;
    report.is_inferred = others.is_inferred;
    status = fm_build_run_threads(state, reterr);
    if (status) return status;
    if (state->ending) {
        status =
            fm_fail(reterr, FM_ERR_CANCELLED, "stopped; what was done is kept, run again to go on");
        fm_build_sort_results(state);
        report.generation = base.number;
        report.n_chain = base.n_chain;
    } else {
        status = fm_build_keep_others(state, &others, &base, arena, reterr);
        if (!status) {
            status = fm_build_publish(state, &base, arena, &generation, &report.published, reterr);
        }
        if (!status) fm_build_report_generation(&generation, &report);
        if (!status) fm_build_count_change(&base, &generation, &report);
    }
    if (status && status != FM_ERR_CANCELLED && status != FM_ERR_DATA) return status;
    fm_status listed = fm_build_report_results(state, arena, &report, status ? NULL : reterr);
    report.seconds = now_seconds() - state->begun;
    *ret_report = report;
    return status ? status : listed;
}

/* Appends advice to an error of the disk. */
static void advise(const char *cache, fm_error *error) {
    char advice[160], path[PATH_MAX];
    fm_path_kind kind = FM_PATH_ABSENT;
    bool has_cache = !fm_build_path(cache, "CURRENT", path, NULL) &&
                     !fm_path_look(path, &kind, NULL) && kind == FM_PATH_FILE;
    snprintf(advice, sizeof advice,
             "; %smake room on the disk or mend it, then run the same command again",
             has_cache ? "the cache is whole as it is: " : "");
    size_t at = strlen(error->message), bytes = strlen(advice) + 1;
    if (at + bytes > sizeof error->message) at = sizeof error->message - bytes;
    memcpy(error->message + at, advice, bytes);
}

fm_status fm_build_check_datasets(const fm_source *source, const fm_build_options *options,
                                  fm_arena *arena, fm_error *reterr) {
    fm_generation base = {0};
    fm_build_others others;
    if (fm_generation_read(options->cache, FM_GENERATION_ALL, arena, &base, NULL)) return FM_OK;
    return fm_build_check_others(source, options, &base, arena, &others, reterr);
}

fm_status fm_build_run(const fm_source *source, const fm_build_options *options, fm_arena *arena,
                       fm_build_report *ret_report, fm_error *reterr) {
    assert(options->n_job >= 1);
    fm_build_options own = *options;
    fm_error error;
    fm_cache_lock lock;
    fm_status status = fm_cache_lock_alone(options->cache, &lock, &error);
    if (!status) {
        fm_build_state state;
        own.cache = fm_held_folder_path(&lock.cache);
        fm_build_state_init(&state, source, &own);
        status = run_locked(&state, arena, ret_report, &error);
        fm_build_state_fini(&state);
        fm_cache_unlock(&lock, status);
    }
    if (status == FM_ERR_IO) advise(options->cache, &error);
    if (status && reterr) *reterr = error;
    return status;
}
