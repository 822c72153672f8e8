/* build_shared_talk.c: the thread of a shared build that talks to the catalogue. Only this thread
 * waits for the catalogue, so a slow or lost database stops no worker. See build_shared.h.
 *
 * Every ROUND_MS, or when a worker wakes it, the thread runs one round (say_all):
 *
 *     1. heartbeat   Extend the leases of all open items, once per third of a lease. A lease that
 *                    the catalogue no longer holds is lost: the item becomes VOID, and another
 *                    worker makes it.
 *     2. failures    Report items that workers refused or could not read.
 *     3. complete    Find items whose parts and notes are all in sealed shards. Publish and record
 *                    those shards, then complete the items in batches. The order matters: the
 *                    catalogue must know a shard before an item refers to it.
 *     4. claim       Ask for more items when the workers' queue runs low. Each claim that is filled
 *                    doubles the next one, up to a limit.
 *
 * A call that loses the connection ends the round; the next one starts after a pause that doubles.
 * Every call may be repeated, so nothing needs to be undone. The state's lock is never held during
 * a call.
 *
 * Items that failed twice are suspects: they may kill their worker. A suspect is claimed alone and
 * kept aside until all other items are reported, then done and sealed alone, so a crash loses no
 * other item. When the workers have ended, the thread reports the remaining items and returns the
 * other leases. */
#include "cache/build/build_shared_state.h"

#include "cache/store/shard_copy.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    ROUND_MS = 50,       /* between rounds */
    IDLE_MS = 1000,      /* longest pause between claims that may get nothing */
    IDLE_MIN_MS = 20,    /* shortest such pause */
    RETRY_MIN_MS = 100,  /* first pause after a lost connection, doubled by each further one */
    RETRY_MAX_MS = 5000, /* longest such pause */
    CLAIM_MAX = 256,
    CLAIMS_PER_JOB = 16,
    BATCH_MAX = 1000, /* completions in one call */
    LOOK_MS = 10000,  /* between queries of what is left, while there is enough to do */
    SUSPECT_FAILURES = 2,
};

static int64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint32_t heartbeat_ms(const fm_shared_build *self) {
    uint32_t asked = self->share->heartbeat_ms;
    return asked ? asked : self->catalogue->options.lease_ms / 3 + 1;
}

/* -- heartbeat */

/* Lists the positions of open items in list[n_item]. Lock held. */
static uint32_t list_open(fm_shared_build *self, uint32_t *list) {
    uint32_t n = 0;
    while (self->first_open < self->n_item && !fm_shared_is_open(&self->item[self->first_open]))
        self->first_open++;
    for (uint32_t i = self->first_open; i < self->n_item; i++) {
        if (fm_shared_is_open(&self->item[i])) list[n++] = i;
    }
    return n;
}

typedef struct lease_list {
    uint32_t n;
    uint32_t *position;
    fm_catalogue_lease *lease;
    bool *held;
} lease_list;

static void free_leases(lease_list *list) {
    free(list->position);
    free(list->lease);
    free(list->held);
}

/* Lists the leases of all open items. False when memory ran out. */
static bool take_leases(fm_shared_build *self, lease_list *list) {
    fm_build_state *state = &self->state;
    pthread_mutex_lock(&state->lock);
    uint32_t max = self->n_item - self->first_open + 1;
    *list = (lease_list){0, calloc(max, sizeof *list->position), calloc(max, sizeof *list->lease),
                         calloc(max, sizeof *list->held)};
    bool good = list->position && list->lease && list->held;
    if (good) list->n = list_open(self, list->position);
    for (uint32_t i = 0; i < list->n; i++)
        list->lease[i] = self->item[list->position[i]].lease;
    pthread_mutex_unlock(&state->lock);
    return good;
}

static fm_status no_memory(fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of leases");
}

static void lose(fm_shared_build *self, uint32_t position) {
    fm_shared_item *item = &self->item[position];
    if (item->stage != FM_SHARED_HELD) self->report.n_lost++;
    item->stage = FM_SHARED_VOID;
}

static fm_status beat(fm_shared_build *self, fm_error *reterr) {
    lease_list list;
    bool good = take_leases(self, &list);
    fm_status status =
        good ? fm_catalogue_heartbeat(self->catalogue, list.n, list.lease, list.held, reterr)
             : no_memory(reterr);
    pthread_mutex_lock(&self->state.lock);
    for (uint32_t i = 0; i < list.n && !status; i++) {
        fm_shared_item *item = &self->item[list.position[i]];
        if (!list.held[i] && fm_shared_is_open(item)) lose(self, list.position[i]);
    }
    pthread_mutex_unlock(&self->state.lock);
    free_leases(&list);
    if (!status) self->next_heartbeat_ms = now_ms() + heartbeat_ms(self);
    return status;
}

/* Called between blocks of a long copy. Errors are ignored here; the next round reports them. */
static void beat_if_due(void *context) {
    fm_shared_build *self = context;
    if (now_ms() >= self->next_heartbeat_ms) (void)!beat(self, NULL);
}

/* -- failures */

static fm_status tell_failures(fm_shared_build *self, fm_error *reterr) {
    fm_build_state *state = &self->state;
    fm_status status = FM_OK;
    pthread_mutex_lock(&state->lock);
    for (uint32_t i = self->first_open; i < self->n_item && !status; i++) {
        fm_shared_item item = self->item[i];
        if (item.stage != FM_SHARED_FAILED) continue;
        bool taken = false;
        pthread_mutex_unlock(&state->lock);
        status = fm_catalogue_fail(self->catalogue, &item.lease, item.reason, item.final, &taken,
                                   reterr);
        pthread_mutex_lock(&state->lock);
        if (status) break;
        self->item[i].stage = taken && item.final ? FM_SHARED_REFUSED : FM_SHARED_VOID;
        self->next_claim_ms = 0;
    }
    pthread_mutex_unlock(&state->lock);
    return status;
}

/* -- completions */

/* True when every part of the item's results, and its note, is in a sealed shard; marks those
 * shards in `wanted`. Lock held. */
static bool is_sealed(const fm_shared_build *self, const fm_shared_item *item, uint32_t position,
                      bool *wanted) {
    const fm_build_state *state = &self->state;
    if (item->note_shard >= state->n_shard) return false;
    wanted[item->note_shard] = true;
    for (uint32_t i = 0; i < item->n_result; i++) {
        const fm_build_result *result = &state->result[item->first_result + i];
        if (result->item != position || result->reason) continue;
        for (uint32_t k = 0; k < FM_N_PART + result->n_named; k++) {
            if (k < FM_N_PART && !result->has[k]) continue;
            const fm_sha256 *hash =
                k < FM_N_PART ? &result->part[k] : &result->named[k - FM_N_PART];
            const fm_blob_entry *blob = fm_build_find_blob(state, hash);
            assert(blob);
            uint32_t shard = blob->shard;
            if (shard >= state->n_shard) return false;
            wanted[shard] = true;
        }
    }
    return true;
}

typedef struct completing {
    fm_catalogue_completion completion[BATCH_MAX];
    uint32_t position[BATCH_MAX];
    bool taken[BATCH_MAX];
    uint32_t n;
    bool *wanted; /* [n_shard] */
    uint32_t n_shard;
} completing;

/* Finds the items that can be completed now. Lock held. */
static void find_sealed(fm_shared_build *self, completing *batch) {
    fm_build_state *state = &self->state;
    for (uint32_t i = self->first_open; i < self->n_item && batch->n < BATCH_MAX; i++) {
        fm_shared_item *item = &self->item[i];
        if (item->stage != FM_SHARED_MADE || item->checked_at == state->n_shard) continue;
        if (!is_sealed(self, item, i, batch->wanted)) {
            item->checked_at = state->n_shard;
            continue;
        }
        batch->completion[batch->n] = (fm_catalogue_completion){
            item->lease, state->shard[item->note_shard].hash, item->n_chain};
        batch->position[batch->n++] = i;
    }
}

/* Publishes and records a shard, unless that is done. */
static fm_status record_shard(fm_shared_build *self, uint32_t number, fm_error *reterr) {
    const fm_build_state *state = &self->state;
    if (number < self->max_recorded && self->recorded[number]) return FM_OK;
    pthread_mutex_lock(&self->state.lock);
    const fm_shard_info info = state->shard[number];
    pthread_mutex_unlock(&self->state.lock);
    fm_status status = FM_OK;
    fm_shard_came came;
    const fm_shard_tick tick = {beat_if_due, self};
    if (self->share->publish) {
        status = fm_shard_bring(state->options->cache, self->share->publish, &info.hash, info.bytes,
                                &tick, &came, reterr);
    }
    const fm_catalogue_shard shard = {.info = info};
    if (!status) status = fm_catalogue_add_shard(self->catalogue, &shard, reterr);
    if (status) return status;
    if (number >= self->max_recorded) {
        uint32_t max = number + 64;
        bool *grown = realloc(self->recorded, max * sizeof *grown);
        if (!grown) return no_memory(reterr);
        memset(grown + self->max_recorded, 0, (max - self->max_recorded) * sizeof *grown);
        self->recorded = grown;
        self->max_recorded = max;
    }
    self->recorded[number] = true;
    return FM_OK;
}

static fm_status complete_batch(fm_shared_build *self, completing *batch, fm_error *reterr) {
    fm_status status = FM_OK;
    for (uint32_t i = 0; i < batch->n_shard && !status; i++) {
        if (batch->wanted[i]) status = record_shard(self, i, reterr);
    }
    if (!status) {
        status = fm_catalogue_complete(self->catalogue, batch->n, batch->completion, batch->taken,
                                       reterr);
    }
    pthread_mutex_lock(&self->state.lock);
    for (uint32_t i = 0; i < batch->n && !status; i++) {
        fm_shared_item *item = &self->item[batch->position[i]];
        if (!batch->taken[i]) {
            if (fm_shared_is_open(item)) lose(self, batch->position[i]);
        } else {
            item->stage = FM_SHARED_DONE;
            self->report.n_item++;
        }
    }
    pthread_mutex_unlock(&self->state.lock);
    if (!status && batch->n) self->next_claim_ms = 0;
    return status;
}

static fm_status complete_sealed(fm_shared_build *self, fm_error *reterr) {
    fm_build_state *state = &self->state;
    completing *batch = malloc(sizeof *batch);
    fm_status status = batch ? FM_OK : no_memory(reterr);
    for (bool more = batch != NULL; more && !status;) {
        pthread_mutex_lock(&state->lock);
        *batch = (completing){.n = 0, .n_shard = state->n_shard};
        batch->wanted = calloc(state->n_shard + 1, sizeof *batch->wanted);
        if (batch->wanted) find_sealed(self, batch);
        pthread_mutex_unlock(&state->lock);
        more = batch->n == BATCH_MAX;
        status = !batch->wanted ? no_memory(reterr)
                 : batch->n     ? complete_batch(self, batch, reterr)
                                : FM_OK;
        free(batch->wanted);
    }
    free(batch);
    return status;
}

/* -- claims */

static fm_status keep_claims(fm_shared_build *self, const fm_catalogue_claim *claim, uint32_t n,
                             fm_error *reterr) {
    fm_status status = FM_OK;
    uint32_t first = self->n_item;
    for (uint32_t i = 0; i < n && !status; i++) {
        uint32_t entry = fm_build_find_item(&self->items, claim[i].name);
        if (entry == UINT32_MAX) {
            status = fm_fail(reterr, FM_ERR_DATA, "the job has '%s', which this dataset has not",
                             claim[i].name);
        } else if (!fm_build_grow((void **)&self->item, self->n_item, &self->max_item,
                                  sizeof *self->item)) {
            status = no_memory(reterr);
        } else {
            self->item[self->n_item++] = (fm_shared_item){
                .lease = claim[i].lease, .entry = entry, .failures = claim[i].failures};
        }
    }
    if (status) return status;
    if (n == 1 && claim[0].failures >= SUSPECT_FAILURES) {
        self->suspect = first;
        return FM_OK;
    }
    return fm_shared_enqueue(self, first) ? FM_OK : no_memory(reterr);
}

/* Queries the open items, for the progress and, when nothing was due, to see whether the job is
 * finished. */
static fm_status look_what_is_left(fm_shared_build *self, bool is_dry, fm_error *reterr) {
    uint32_t n;
    int64_t due_ms;
    fm_status status = fm_catalogue_left(self->catalogue, &n, &due_ms, reterr);
    if (status) return status;
    pthread_mutex_lock(&self->state.lock);
    self->finished = n == 0;
    self->state.progress.n_chain = self->state.progress.chains_done + n;
    if (n == 0) pthread_cond_broadcast(&self->state.changed);
    pthread_mutex_unlock(&self->state.lock);
    if (due_ms > IDLE_MS) due_ms = IDLE_MS;
    if (due_ms < IDLE_MIN_MS) due_ms = IDLE_MIN_MS;
    self->next_look_ms = now_ms() + LOOK_MS;
    if (is_dry) self->next_claim_ms = now_ms() + due_ms;
    return FM_OK;
}

static fm_status claim(fm_shared_build *self, fm_error *reterr) {
    fm_catalogue_claim *claimed = calloc(self->claim_size, sizeof *claimed);
    uint32_t n = 0, most = self->state.options->n_job * CLAIMS_PER_JOB;
    if (!claimed) return no_memory(reterr);
    fm_status status =
        fm_catalogue_claim_items(self->catalogue, self->claim_size, claimed, &n, reterr);
    if (!status && n) {
        pthread_mutex_lock(&self->state.lock);
        status = keep_claims(self, claimed, n, reterr);
        pthread_mutex_unlock(&self->state.lock);
    }
    if (!status && (n == 0 || now_ms() >= self->next_look_ms)) {
        status = look_what_is_left(self, n == 0, reterr);
    }
    self->is_dry = n == 0;
    free(claimed);
    if (most > CLAIM_MAX) most = CLAIM_MAX;
    if (n == self->claim_size) self->claim_size = 2 * n < most ? 2 * n : most;
    return status;
}

/* -- rounds */

/* A reading of the state, taken under the lock. */
typedef struct outlook {
    bool wants_more, gone;
    uint32_t n_open;
} outlook;

/* Looks at the state. It also asks the writer to seal when no worker is busy and items wait for
 * that. It queues the suspect when no other open item can be lost with it. */
static outlook look(fm_shared_build *self) {
    fm_build_state *state = &self->state;
    outlook seen = {false, false, 0};
    uint32_t n_made = 0;
    pthread_mutex_lock(&state->lock);
    for (uint32_t i = self->first_open; i < self->n_item; i++) {
        seen.n_open += fm_shared_is_open(&self->item[i]);
        n_made += self->item[i].stage == FM_SHARED_MADE;
    }
    bool idle = self->n_queued == 0 && self->n_working == 0;
    bool has_suspect = self->suspect != FM_BUILD_NO_ITEM;
    if (has_suspect && !fm_shared_is_open(&self->item[self->suspect])) {
        self->suspect = FM_BUILD_NO_ITEM;
        has_suspect = false;
    }
    if (idle && n_made && (self->is_dry || has_suspect) && !state->flush) {
        state->flush = true;
        pthread_cond_broadcast(&state->changed);
    } else if (idle && has_suspect && seen.n_open == 1 &&
               self->item[self->suspect].stage == FM_SHARED_HELD) {
        if (!fm_shared_enqueue(self, self->suspect)) {
            self->item[self->suspect].stage = FM_SHARED_UNDONE;
        }
    }
    seen.wants_more = !has_suspect && !self->finished && !state->ending &&
                      self->n_queued < fm_shared_low_water(self);
    seen.gone = self->workers_gone;
    pthread_mutex_unlock(&state->lock);
    return seen;
}

static fm_status say_all(fm_shared_build *self, bool wants_more, fm_error *reterr) {
    fm_status status = FM_OK;
    if (now_ms() >= self->next_heartbeat_ms) status = beat(self, reterr);
    if (!status) status = tell_failures(self, reterr);
    if (!status) status = complete_sealed(self, reterr);
    if (!status && wants_more && now_ms() >= self->next_claim_ms) status = claim(self, reterr);
    return status;
}

/* Gives back the leases of items that were not done. */
static fm_status give_back(fm_shared_build *self, fm_error *reterr) {
    lease_list list;
    fm_status status = take_leases(self, &list) ? FM_OK : no_memory(reterr);
    if (!status) status = fm_catalogue_release(self->catalogue, list.n, list.lease, reterr);
    free_leases(&list);
    return status;
}

/* Plans another try after a lost connection; any other error ends the job. */
static void take_failure(fm_shared_build *self, const fm_error *error) {
    if (error->status != FM_ERR_CLOSED) {
        fm_build_fail(&self->state, error);
        return;
    }
    if (!self->retry_pause_ms) self->report.n_reconnect++;
    uint32_t pause = self->retry_pause_ms ? 2 * self->retry_pause_ms : RETRY_MIN_MS;
    self->retry_pause_ms = pause < RETRY_MAX_MS ? pause : RETRY_MAX_MS;
    self->retry_at_ms = now_ms() + self->retry_pause_ms;
}

static void wait_a_round(fm_shared_build *self) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += ROUND_MS * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    pthread_mutex_lock(&self->state.lock);
    if (!self->workers_gone) pthread_cond_timedwait(&self->wake, &self->state.lock, &until);
    pthread_mutex_unlock(&self->state.lock);
}

void *fm_shared_talk(void *context) {
    fm_shared_build *self = context;
    fm_error error;
    for (bool ended = false; !ended;) {
        outlook seen = look(self);
        fm_status status = FM_OK;
        if (now_ms() >= self->retry_at_ms || seen.gone) {
            status = say_all(self, seen.wants_more, &error);
            if (status) {
                take_failure(self, &error);
            } else {
                self->retry_pause_ms = 0;
            }
        }
        ended = seen.gone;
        if (ended && !status) (void)!give_back(self, &error);
        if (!ended) wait_a_round(self);
    }
    /* Leases that could not be returned expire. */
    (void)!fm_catalogue_count(self->catalogue, &self->report.job, &error);
    return NULL;
}
