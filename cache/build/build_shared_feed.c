/* build_shared_feed.c: the tasks of a shared build: hands claimed items to workers, and decides
 * what became of them. See build_shared.h. */
#include "cache/build/build_shared_state.h"

#include "cache/build/item_note.h"

#include <stdlib.h>
#include <string.h>

/* -- tasks */

void fm_shared_free_tasks(fm_shared_task *task) {
    while (task) {
        fm_shared_task *next = task->next;
        free(task->item);
        free(task->chain);
        free(task);
        task = next;
    }
}

static fm_shared_task *new_task(const fm_shared_build *self, uint32_t structure, uint32_t max) {
    fm_shared_task *task = calloc(1, sizeof *task);
    if (!task) return NULL;
    task->item = calloc(max + (size_t)1, sizeof *task->item);
    task->chain = calloc(max + (size_t)1, sizeof *task->chain);
    if (!task->item || !task->chain) {
        fm_shared_free_tasks(task);
        return NULL;
    }
    task->task.structure = &self->state.source->structure[structure];
    return task;
}

static const fm_build_target *target_of(const fm_shared_build *self, uint32_t item) {
    return &self->items.target[self->item[item].entry];
}

/* Makes a task of a structure with its complex and all its chains, which are one item. */
static fm_shared_task *make_whole(const fm_shared_build *self, uint32_t structure, uint32_t item) {
    uint32_t n = self->state.source->structure[structure].n_chain;
    fm_shared_task *task = new_task(self, structure, n);
    if (!task) return NULL;
    fm_build_task *inner = &task->task;
    for (uint32_t i = 0; i <= n; i++)
        task->item[i] = item;
    inner->n_chain = n;
    inner->chain = inner->structure->chain;
    inner->item = task->item;
    inner->singles = self->state.options->single_sequence;
    inner->complex = true;
    task->n_item = 1;
    return task;
}

/* Makes one task of the items [first, *end), which all belong to one structure. */
static fm_shared_task *make_task(const fm_shared_build *self, uint32_t first, uint32_t *ret_end) {
    uint32_t structure = target_of(self, first)->structure, end = first;
    uint32_t singles = FM_BUILD_NO_ITEM;
    const fm_source_structure *source = &self->state.source->structure[structure];
    if (fm_build_has_complex(&self->state, source)) {
        *ret_end = first + 1;
        return make_whole(self, structure, first);
    }
    while (end < self->n_item && target_of(self, end)->structure == structure)
        end++;
    fm_shared_task *task = new_task(self, structure, end - first);
    if (!task) return NULL;
    fm_build_task *inner = &task->task;
    for (uint32_t i = first; i < end; i++) {
        const fm_build_target *target = target_of(self, i);
        if (target->chain == FM_BUILD_STRUCTURE) {
            singles = i;
            continue;
        }
        task->chain[inner->n_chain] = inner->structure->chain[target->chain];
        task->item[inner->n_chain++] = i;
    }
    inner->singles = singles != FM_BUILD_NO_ITEM;
    if (inner->singles) task->item[inner->n_chain] = singles;
    inner->chain = task->chain;
    inner->item = task->item;
    task->n_item = end - first;
    *ret_end = end;
    return task;
}

bool fm_shared_enqueue(fm_shared_build *self, uint32_t first) {
    fm_shared_task **last = &self->first;
    while (*last)
        last = &(*last)->next;
    while (first < self->n_item) {
        uint32_t end = first;
        fm_shared_task *task = make_task(self, first, &end);
        if (!task) return false;
        *last = task;
        last = &task->next;
        self->n_queued += task->n_item;
        first = end;
    }
    pthread_cond_broadcast(&self->state.changed);
    return true;
}

/* -- callbacks */

/* False when all items of a task were lost while it waited. Lock held. */
static bool has_work(const fm_shared_build *self, const fm_shared_task *task) {
    for (uint32_t i = 0; i < task->n_item; i++) {
        if (self->item[task->item[i]].stage == FM_SHARED_HELD) return true;
    }
    return false;
}

static bool next_task(void *context, fm_build_task *ret_task) {
    fm_shared_build *self = context;
    fm_build_state *state = &self->state;
    fm_shared_task *task = NULL;
    pthread_mutex_lock(&state->lock);
    while (!task && !state->ending) {
        while (!self->first && !self->finished && !state->ending)
            pthread_cond_wait(&state->changed, &state->lock);
        if (!self->first || state->ending) break;
        task = self->first;
        self->first = task->next;
        self->n_queued -= task->n_item;
        task->next = NULL;
        if (has_work(self, task)) break;
        fm_shared_free_tasks(task);
        task = NULL;
    }
    if (task) {
        task->task.first_result = state->n_result;
        for (uint32_t i = 0; i < task->n_item; i++) {
            fm_shared_item *item = &self->item[task->item[i]];
            if (item->stage == FM_SHARED_HELD) item->stage = FM_SHARED_WORKING;
        }
        self->n_working += task->n_item;
        task->next = self->working;
        self->working = task;
        *ret_task = task->task;
    }
    pthread_mutex_unlock(&state->lock);
    return task != NULL;
}

/* True when another try may succeed: the content of a file stays, but reading it may work again. */
static bool is_passing(fm_status status) {
    return status == FM_ERR_IO || status == FM_ERR_NOMEM;
}

/* Collects the item's results. Returns their number; *ret_list is on the heap and borrows from the
 * state. Lock held. */
static uint32_t gather(const fm_shared_build *self, const fm_build_task *task, uint32_t item,
                       fm_build_result **ret_list) {
    const fm_build_state *state = &self->state;
    uint32_t n = 0;
    fm_build_result *list = calloc(state->n_result - task->first_result + 1, sizeof *list);
    for (uint32_t i = task->first_result; list && i < state->n_result; i++) {
        if (state->result[i].item == item) list[n++] = state->result[i];
    }
    *ret_list = list;
    return n;
}

/* Finds the refusal of a chain; of the results of a structure, one that could not be read this
 * time. The last try takes a structure without it, if anything of it was made. */
static const fm_build_result *find_failure(const fm_build_result *list, uint32_t n, bool is_chain,
                                           bool is_last) {
    const fm_build_result *failure = NULL;
    uint32_t n_made = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_failed = list[i].reason && (is_chain || is_passing(list[i].status));
        if (is_failed && !failure) failure = &list[i];
        n_made += !list[i].reason;
    }
    return is_last && n_made ? NULL : failure;
}

/* Decides what became of the item. Returns its note, on the heap, if it was made. Lock held. */
static fm_bytes close_item(fm_shared_build *self, const fm_build_task *task, uint32_t position) {
    fm_shared_item *item = &self->item[position];
    bool is_chain = target_of(self, position)->chain != FM_BUILD_STRUCTURE;
    bool is_last = item->failures + 1 >= self->catalogue->options.max_failures;
    fm_bytes bytes = {0};
    fm_build_result *list;
    fm_error error;
    if (item->stage != FM_SHARED_WORKING) return bytes;
    uint32_t n = gather(self, task, position, &list);
    const fm_build_result *failure = list ? find_failure(list, n, is_chain, is_last) : NULL;
    const fm_catalogue_entry *entry = &self->items.listing.entry[item->entry];
    const fm_item_note note = {.job = self->catalogue->options.job,
                               .item = entry->name,
                               .options = self->items.listing.options,
                               .source = entry->source,
                               .attempt = item->lease.attempt,
                               .n_result = n,
                               .result = list};
    item->first_result = task->first_result;
    item->n_result = self->state.n_result - task->first_result;
    item->n_chain = n;
    if (failure) {
        item->reason = strdup(failure->reason);
        item->final = !is_passing(failure->status);
        item->stage = item->reason ? FM_SHARED_FAILED : FM_SHARED_UNDONE;
    } else if (self->state.ending || (is_chain && n == 0) || !list ||
               fm_item_note_encode(&note, &bytes, &error)) {
        item->stage = FM_SHARED_UNDONE; /* an incomplete item is done again, by any worker */
    } else {
        fm_sha256 key = fm_item_note_key(note.job, note.item, note.attempt);
        item->stage = FM_SHARED_MADE;
        item->note_shard = FM_BUILD_NO_SHARD;
        item->checked_at = UINT32_MAX;
        if (!fm_hash_map_add(&self->item_of, &key, position)) item->stage = FM_SHARED_UNDONE;
    }
    free(list);
    return bytes;
}

static void drop_working(fm_shared_build *self, const fm_build_task *task) {
    fm_shared_task **at = &self->working;
    while (*at && (*at)->item != task->item)
        at = &(*at)->next;
    fm_shared_task *done = *at;
    if (!done) return;
    *at = done->next;
    done->next = NULL;
    self->n_working -= done->n_item;
    fm_shared_free_tasks(done);
}

static void end_task(void *context, const fm_build_task *task) {
    fm_shared_build *self = context;
    fm_build_state *state = &self->state;
    uint32_t n = task->n_chain + (task->singles || task->complex);
    for (uint32_t i = task->complex ? task->n_chain : 0; i < n; i++) {
        uint32_t position = task->item[i];
        pthread_mutex_lock(&state->lock);
        fm_bytes note = close_item(self, task, position);
        const fm_shared_item item = self->item[position];
        pthread_mutex_unlock(&state->lock);
        if (item.stage == FM_SHARED_MADE && note.data) {
            const char *name = self->items.listing.entry[item.entry].name;
            fm_sha256 key =
                fm_item_note_key(self->catalogue->options.job, name, item.lease.attempt);
            fm_build_push(state, true, &key, note);
        }
        free((void *)(uintptr_t)note.data);
    }
    pthread_mutex_lock(&state->lock);
    drop_working(self, task);
    if (self->n_queued < fm_shared_low_water(self)) pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&state->lock);
}

static void note_sealed(void *context, const fm_sha256 *key, uint32_t shard) {
    fm_shared_build *self = context;
    pthread_mutex_lock(&self->state.lock);
    const uint32_t *position = fm_hash_map_find(&self->item_of, key);
    if (position) self->item[*position].note_shard = shard;
    pthread_mutex_unlock(&self->state.lock);
}

void fm_shared_feed_init(fm_shared_build *self) {
    self->feed = (fm_build_feed){self, next_task, end_task, note_sealed};
    self->state.feed = &self->feed;
}
