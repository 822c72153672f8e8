/* build_sample.c: see build_sample.h. */
#include "cache/build/build_sample.h"

#include "cache/build/build_work.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    N_SAMPLE = 64,
    /* Bytes in a shard: small values share pages that are two thirds full; larger ones have pages
     * of their own (LMDB 0.9). */
    PAGE_BYTES = 4096,
    SHARED_MOST = 2000,
    ENTRY_BYTES = 16 + FM_SHA256_BYTES,
    /* Bytes of an entry of a generation's index and of its notes, beside the note's value. */
    INDEX_BYTES = 64,
    NOTE_BYTES = FM_SHA256_BYTES + 4,
    COMPONENT_BYTES = 700, /* of one component in a cache, measured and rounded up */
};

typedef struct sampling {
    fm_build_state state;
    fm_build_feed feed;
    const fm_generation *known;
    fm_space_options space;
    fm_arena *arena;
    uint32_t n_new, every, at; /* structures with new complexes; each `every`-th; the next to see */
    double begun, most;        /* CLOCK_MONOTONIC; seconds */
    fm_build_sample sample;
} sampling;

static double now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* -- tasks */

static bool next_task(void *context, fm_build_task *ret_task) {
    sampling *self = context;
    const fm_source *source = self->state.source;
    if (self->sample.n_structure && now_seconds() - self->begun > self->most) return false;
    for (; self->at < source->n_structure; self->at++) {
        const fm_source_structure *structure = &source->structure[self->at];
        if (!fm_space_is_new_complex(source, self->known, structure)) continue;
        if (self->n_new++ % self->every) continue;
        *ret_task = (fm_build_task){.structure = structure,
                                    .chain = structure->chain,
                                    .n_chain = structure->n_chain,
                                    .singles = self->space.single_sequence,
                                    .complex = true};
        self->at++;
        return true;
    }
    return false;
}

static void end_task(void *context, const fm_build_task *task) {
    sampling *self = context;
    self->sample.n_structure++;
    self->sample.input_bytes += fm_space_input_of(self->state.source, self->known, &self->space,
                                                  task->structure, self->arena);
}

/* -- packets */

static uint64_t bytes_in_cache(const fm_build_packet *packet) {
    uint64_t bytes = packet->size + ENTRY_BYTES;
    bytes = bytes > SHARED_MOST ? (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES
                                : bytes + bytes / 2;
    return bytes + (packet->is_note ? packet->size + NOTE_BYTES : INDEX_BYTES);
}

/* Takes packets as a writer does, and counts and frees them. */
static void *count_packets(void *context) {
    sampling *self = context;
    fm_build_state *state = &self->state;
    pthread_mutex_lock(&state->lock);
    while (!state->no_more || state->first) {
        fm_build_packet *packet = state->first;
        if (!packet) {
            pthread_cond_wait(&state->changed, &state->lock);
            continue;
        }
        state->first = packet->next;
        if (!state->first) state->last = &state->first;
        state->queued_bytes -= packet->size;
        self->sample.stored_bytes += bytes_in_cache(packet);
        free(packet);
        pthread_cond_broadcast(&state->changed);
    }
    pthread_mutex_unlock(&state->lock);
    return NULL;
}

/* -- the sample */

/* Counts the complexes made, whose notes have their tokens. */
static fm_status count_complexes(sampling *self, fm_error *reterr) {
    const fm_build_state *state = &self->state;
    for (uint32_t i = 0; i < state->n_result; i++) {
        const fm_build_result *result = &state->result[i];
        if (!result->is_complex) continue;
        self->sample.n_refused += result->reason != NULL;
        if (result->reason) continue;
        const fm_build_note *note = fm_build_find_note(state, &result->key[0]);
        if (!note) continue;
        fm_build_complex_note complex;
        size_t mark = fm_arena_mark(self->arena);
        fm_status status =
            fm_build_read_complex_note((fm_bytes){note->value, note->value_bytes}, state->source,
                                       result->name, self->arena, &complex, reterr);
        fm_arena_rewind(self->arena, mark);
        if (status) return status;
        self->sample.n_complex++;
        self->sample.n_token += complex.facts.n_res;
    }
    return FM_OK;
}

/* The components that the options name go into the cache, too. */
static fm_status take_components(sampling *self, const fm_generation *known, fm_error *reterr) {
    fm_build_state *state = &self->state;
    const fm_components *named = state->options->components;
    if (named) {
        bool is_known = fm_build_knows_blob(state, &named->hash);
        state->components = named;
        if (!is_known) self->sample.component_bytes = (uint64_t)named->n * COMPONENT_BYTES;
        return FM_OK;
    }
    if (state->options->cache) return fm_build_take_components(state, known, self->arena, reterr);
    return fm_fail(reterr, FM_ERR_USAGE,
                   "complexes need the chemical components; --components FILE, or a --cache that "
                   "has them");
}

static fm_status work(sampling *self, fm_error *reterr) {
    fm_build_state *state = &self->state;
    pthread_t counter;
    if (pthread_create(&counter, NULL, count_packets, self) != 0) {
        return fm_fail(reterr, FM_ERR_NOMEM, "cannot start a thread");
    }
    self->begun = now_seconds();
    (void)fm_build_worker(state);
    self->sample.seconds = now_seconds() - self->begun;
    pthread_mutex_lock(&state->lock);
    state->no_more = true;
    pthread_cond_broadcast(&state->changed);
    pthread_mutex_unlock(&state->lock);
    pthread_join(counter, NULL);
    if (state->failed) *reterr = state->error;
    return state->failed;
}

static fm_status measure(sampling *self, fm_error *reterr) {
    fm_build_state *state = &self->state;
    fm_generation known = {0};
    uint32_t n = 0;
    fm_status status = FM_OK;
    if (state->options->cache) status = fm_build_take_known(state, self->arena, &known, reterr);
    if (!status) status = take_components(self, &known, reterr);
    if (!status) status = fm_build_templates_create(state, &state->templates, reterr);
    if (status) return status;
    self->known = &known;
    for (uint32_t i = 0; i < state->source->n_structure; i++)
        n += fm_space_is_new_complex(state->source, &known, &state->source->structure[i]);
    self->every = n > N_SAMPLE ? (n + N_SAMPLE - 1) / N_SAMPLE : 1;
    status = work(self, reterr);
    return status ? status : count_complexes(self, reterr);
}

fm_status fm_build_measure(const fm_source *source, const fm_build_options *options, double seconds,
                           fm_arena *arena, fm_build_sample *ret_sample, fm_error *reterr) {
    fm_error error;
    size_t mark = fm_arena_mark(arena);
    sampling self = {
        .space = {options->cache, options->single_sequence, true}, .arena = arena, .most = seconds};
    fm_build_state_init(&self.state, source, options);
    self.feed = (fm_build_feed){.context = &self, .next = next_task, .done = end_task};
    self.state.feed = &self.feed;
    self.state.n_working = 1;
    fm_status status = measure(&self, &error);
    fm_build_state_fini(&self.state);
    fm_arena_rewind(arena, mark);
    if (status && reterr) *reterr = error;
    if (!status) *ret_sample = self.sample;
    return status;
}

/* -- scaling */

void fm_build_sample_apply(const fm_build_sample *sample, fm_space *space) {
    if (!sample->input_bytes || !sample->n_complex) return;
    double share = (double)sample->stored_bytes / (double)sample->input_bytes * 1.2;
    uint64_t need = (uint64_t)((double)space->complex_input_bytes * share);
    need += sample->component_bytes;
    space->need_bytes += need - space->complex_need_bytes;
    space->complex_need_bytes = need;
}

double fm_build_sample_seconds(const fm_build_sample *sample, const fm_space *space,
                               uint32_t n_job) {
    if (!sample->input_bytes) return 0;
    double share = sample->seconds / (double)sample->input_bytes;
    return (double)space->complex_input_bytes * share / (n_job ? n_job : 1);
}
