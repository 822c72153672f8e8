/* build_shared.c: a shared build from start to end. See build_shared.h. */
#include "cache/build/build_shared.h"

#include "cache/build/build_hits.h"
#include "cache/build/build_shared_state.h"
#include "cache/store/lock.h"
#include "proto/base/file.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

enum {
    FIRST_CLAIMS_PER_JOB = 2,
    START_TRIES = 60, /* tries to reach the catalogue */
    START_PAUSE_MS = 500,
};

/* "host:pid:random": no two processes have the same name, even if a pid is used again. */
static void name_worker(char out[256]) {
    char host[128] = "";
    uint32_t random = 0;
    if (gethostname(host, sizeof host - 1) != 0) snprintf(host, sizeof host, "unknown");
    if (getrandom(&random, sizeof random, 0) != sizeof random) random = (uint32_t)getppid();
    snprintf(out, 256, "%s:%ld:%08x", host, (long)getpid(), random);
}

/* Makes the folder, as fm_dir_make_noting, and names its absolute path, which other processes can
 * use. */
static fm_status name_folder(const char *folder, char out[PATH_MAX], size_t *ret_existed,
                             fm_error *reterr) {
    fm_status status = fm_dir_make_noting(folder, ret_existed, reterr);
    if (status) return status;
    if (realpath(folder, out)) return FM_OK;
    return fm_fail_in(reterr, FM_ERR_IO, folder, "cannot name the folder: %s", strerror(errno));
}

/* -- results */

/* Drops the results of items that were lost, or that failed and will be tried again. */
static void drop_void_results(fm_shared_build *self) {
    fm_build_state *state = &self->state;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < state->n_result; i++) {
        fm_build_result *result = &state->result[i];
        fm_shared_stage stage = self->item[result->item].stage;
        if (stage == FM_SHARED_DONE || stage == FM_SHARED_REFUSED) {
            state->result[kept++] = *result;
        } else {
            fm_build_free_result(result);
        }
    }
    state->n_result = kept;
}

/* -- the job */

static fm_status run_threads(fm_shared_build *self, fm_error *reterr) {
    fm_build_state *state = &self->state;
    pthread_t talker;
    if (pthread_create(&talker, NULL, fm_shared_talk, self) != 0) {
        return fm_fail(reterr, FM_ERR_NOMEM, "cannot start a thread");
    }
    fm_status status = fm_build_run_threads(state, reterr);
    pthread_mutex_lock(&state->lock);
    self->workers_gone = true;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&state->lock);
    pthread_join(talker, NULL);
    if (!status && state->failed) {
        *reterr = state->error;
        status = state->failed;
    }
    if (!status && !self->finished) {
        status = fm_fail(reterr, FM_ERR_CANCELLED,
                         "stopped; what was done is kept, the rest is left to other workers");
    }
    return status;
}

/* Opens the catalogue and begins or joins the job. It tries again, because a server may be
 * restarting. */
static fm_status open_catalogue(fm_shared_build *self, const fm_catalogue_options *options,
                                fm_error *reterr) {
    const fm_build_options *build = self->state.options;
    for (int i = 0;; i++) {
        fm_status status = FM_OK;
        if (!self->catalogue) {
            status = fm_catalogue_open(self->share->where, options, &self->catalogue, reterr);
        }
        if (!status) {
            status = fm_catalogue_begin(self->catalogue, &self->items.listing, self->share->mode,
                                        reterr);
        }
        bool stopped = build->stop && *build->stop;
        if (status == FM_ERR_CLOSED && stopped) {
            return fm_fail(reterr, FM_ERR_CANCELLED,
                           "stopped before the catalogue could be reached; nothing was done");
        }
        if (status != FM_ERR_CLOSED || i == START_TRIES) return status;
        if (i == 0 && self->share->waiting) self->share->waiting(reterr);
        nanosleep(&(struct timespec){0, START_PAUSE_MS * 1000000L}, NULL);
    }
}

/* Reads what the worker's cache has, and lists the items, which depend on the components. */
static fm_status take_inputs(fm_shared_build *self, fm_arena *arena, fm_error *reterr) {
    fm_build_state *state = &self->state;
    fm_generation base;
    fm_status status = fm_build_take_known(state, arena, &base, reterr);
    if (!status) status = fm_build_take_components(state, &base, arena, reterr);
    return status ? status : fm_build_list_items(state, arena, &self->items, reterr);
}

static fm_status run_opened(fm_shared_build *self, fm_arena *arena, fm_build_report *ret_report,
                            fm_error *reterr) {
    fm_build_state *state = &self->state;
    fm_status status = fm_build_templates_create(state, &state->templates, reterr);
    if (status) return status;
    status = run_threads(self, reterr);
    if (status && status != FM_ERR_CANCELLED) return status;
    drop_void_results(self);
    fm_build_sort_results(state);
    fm_build_report report = {0};
    fm_status listed = fm_build_report_results(state, arena, &report, status ? NULL : reterr);
    report.seconds = fm_build_seconds(state);
    *ret_report = report;
    return status ? status : listed;
}

static void init(fm_shared_build *self, const fm_source *source, const fm_build_options *options,
                 const fm_build_share *share) {
    *self = (fm_shared_build){.share = share, .suspect = FM_BUILD_NO_ITEM};
    fm_build_state_init(&self->state, source, options);
    fm_shared_feed_init(self);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&self->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    self->claim_size = FIRST_CLAIMS_PER_JOB * options->n_job;
}

static void fini(fm_shared_build *self) {
    for (uint32_t i = 0; i < self->n_item; i++)
        free(self->item[i].reason);
    free(self->item);
    free(self->recorded);
    fm_shared_free_tasks(self->first);
    fm_shared_free_tasks(self->working);
    fm_hash_map_fini(&self->item_of);
    fm_catalogue_close(self->catalogue);
    pthread_cond_destroy(&self->wake);
    fm_build_state_fini(&self->state);
}

static fm_status run_locked(const fm_source *source, const fm_build_options *options,
                            const fm_build_share *share, fm_arena *arena,
                            fm_build_report *ret_report, fm_build_share_report *ret_shared,
                            fm_error *reterr) {
    fm_shared_build self;
    char folder[PATH_MAX];
    init(&self, source, options, share);
    name_worker(self.report.worker);
    fm_catalogue_options opened = share->catalogue;
    opened.worker = self.report.worker;
    opened.cache = folder;
    const char *place = share->publish ? share->publish : options->cache;
    size_t existed;
    fm_status status = name_folder(place, folder, &existed, reterr);
    if (!status) status = take_inputs(&self, arena, reterr);
    if (!status) status = open_catalogue(&self, &opened, reterr);
    if (!status) status = run_opened(&self, arena, ret_report, reterr);
    if (status) fm_dir_unmake(place, existed);
    *ret_shared = self.report;
    fini(&self);
    return status;
}

fm_status fm_build_run_shared(const fm_source *source, const fm_build_options *options,
                              const fm_build_share *share, fm_arena *arena,
                              fm_build_report *ret_report, fm_build_share_report *ret_shared,
                              fm_error *reterr) {
    fm_build_options own = *options;
    fm_cache_lock lock;
    fm_error error;
    fm_status status = fm_cache_lock_shared(options->cache, &lock, &error);
    if (!status) {
        own.slot = lock.slot;
        own.cache = fm_held_folder_path(&lock.cache);
        status = run_locked(source, &own, share, arena, ret_report, ret_shared, &error);
        fm_cache_unlock(&lock, status);
    }
    if (status && reterr) *reterr = error;
    return status;
}
