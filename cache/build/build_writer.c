/* build_writer.c: the shared state of a build, and its one writer thread. See build_state.h.
 *
 * The writer is the only thread that touches LMDB. It takes packets from the queue in order, and a
 * worker pushes its blobs before the note that names them. A note may still be sealed without a
 * blob that another worker was about to push. A later run therefore uses a note only if it knows
 * all its blobs (names_known_blobs). The writer seals the current shard when that reaches its size
 * or age, when the talking thread of a shared build asks for it (`flush`), and at the end. Sealing
 * sets the place of each blob (place_blob), and then appends the shard to the list of shards.
 *
 * On an error the writer keeps emptying the queue without writing, so that no worker waits for
 * ever. */
#include "cache/build/build_state.h"

#include "cache/store/blob.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    QUEUE_BYTES_MAX = 256 << 20,
    FIRST_MAX = 64,
    CHUNK_BYTES = 64 << 10,
    SHARD_SECONDS = 300,
};

#define SHARD_BYTES ((uint64_t)1 << 30)

bool fm_build_grow(void **list, uint32_t n, uint32_t *max, size_t size) {
    if (n < *max) return true;
    uint32_t wanted = *max ? 2 * *max : FIRST_MAX;
    void *grown = wanted > *max ? realloc(*list, wanted * size) : NULL;
    if (!grown) return false;
    *list = grown;
    *max = wanted;
    return true;
}

void fm_build_free_result(fm_build_result *result) {
    free(result->name);
    free(result->reason);
    free(result->named);
    free(result->entity_key);
    free((void *)(uintptr_t)result->summary.data);
}

static fm_status add_hash(fm_sha256 **list, uint32_t *n, const fm_sha256 *hash, fm_error *reterr) {
    fm_sha256 *grown = realloc(*list, (*n + (size_t)1) * sizeof *grown);
    if (!grown) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a list of parts");
    *list = grown;
    grown[(*n)++] = *hash;
    return FM_OK;
}

fm_status fm_build_add_named(fm_build_result *result, const fm_sha256 *hash, fm_error *reterr) {
    return add_hash(&result->named, &result->n_named, hash, reterr);
}

fm_status fm_build_add_entity_key(fm_build_result *result, const fm_sha256 *key, fm_error *reterr) {
    return add_hash(&result->entity_key, &result->n_entity_key, key, reterr);
}

fm_status fm_build_add_inputs(fm_build_result *result, const fm_part_entity_inputs *inputs,
                              fm_error *reterr) {
    const fm_sha256 *const parts[] = {&inputs->unpaired, &inputs->paired, &inputs->hits};
    fm_status status = FM_OK;
    for (int i = 0; i < 3 && !status; i++)
        if (fm_entity_has_part(parts[i])) status = fm_build_add_named(result, parts[i], reterr);
    return status;
}

/* -- ending a build */

static void fail_locked(fm_build_state *state, const fm_error *error) {
    if (!state->failed) {
        state->failed = error->status;
        state->error = *error;
    }
    state->ending = true;
    pthread_cond_broadcast(&state->changed);
}

static void fail_memory_locked(fm_build_state *state) {
    fm_error error;
    (void)fm_fail(&error, FM_ERR_NOMEM, "no memory left for the lists of the build");
    fail_locked(state, &error);
}

void fm_build_fail(fm_build_state *state, const fm_error *error) {
    pthread_mutex_lock(&state->lock);
    fail_locked(state, error);
    pthread_mutex_unlock(&state->lock);
}

bool fm_build_is_ending(fm_build_state *state) {
    pthread_mutex_lock(&state->lock);
    bool ending = state->ending;
    pthread_mutex_unlock(&state->lock);
    return ending;
}

/* -- blobs and notes */

fm_blob_entry *fm_build_find_blob(const fm_build_state *state, const fm_sha256 *hash) {
    uint32_t at = fm_hash_index_find(&state->blob_of, state->blob, sizeof *state->blob, hash);
    return at == UINT32_MAX ? NULL : &state->blob[at];
}

fm_build_note *fm_build_find_note(const fm_build_state *state, const fm_sha256 *key) {
    uint32_t at = fm_hash_index_find(&state->note_of, state->note, sizeof *state->note, key);
    return at == UINT32_MAX ? NULL : &state->note[at];
}

void fm_build_add_blob(fm_build_state *state, const fm_blob_entry *entry) {
    if (fm_build_find_blob(state, &entry->hash)) return;
    if (!fm_build_grow((void **)&state->blob, state->n_blob, &state->max_blob, sizeof *entry)) {
        fail_memory_locked(state);
        return;
    }
    assert(state->blob);
    state->blob[state->n_blob] = *entry;
    if (fm_hash_index_add(&state->blob_of, state->blob, sizeof *entry)) {
        state->n_blob++;
    } else {
        fail_memory_locked(state);
    }
}

bool fm_build_knows_blob(fm_build_state *state, const fm_sha256 *hash) {
    pthread_mutex_lock(&state->lock);
    bool known = fm_build_find_blob(state, hash) != NULL;
    pthread_mutex_unlock(&state->lock);
    return known;
}

bool fm_build_claim_blob(fm_build_state *state, const fm_sha256 *hash, fm_part_kind kind,
                         uint64_t decoded_bytes) {
    pthread_mutex_lock(&state->lock);
    bool known = fm_build_find_blob(state, hash) != NULL;
    if (!known) {
        const fm_blob_entry entry = {.hash = *hash,
                                     .decoded_bytes = (uint32_t)decoded_bytes,
                                     .shard = FM_BUILD_PENDING,
                                     .kind = kind};
        fm_build_add_blob(state, &entry);
    }
    pthread_mutex_unlock(&state->lock);
    return known;
}

/* Values of notes, one after the other. */
struct fm_build_chunk {
    fm_build_chunk *next;
    size_t used, size;
    uint8_t data[];
};

void fm_build_free_chunks(fm_build_chunk *chunks) {
    while (chunks) {
        fm_build_chunk *next = chunks->next;
        free(chunks);
        chunks = next;
    }
}

/* A copy of a note's value that lives as long as the state; NULL when memory ran out. */
static const uint8_t *keep_value(fm_build_state *state, fm_bytes value) {
    fm_build_chunk *chunk = state->chunks;
    if (!chunk || value.size > chunk->size - chunk->used) {
        size_t size = value.size > CHUNK_BYTES ? value.size : CHUNK_BYTES;
        chunk = malloc(sizeof *chunk + size);
        if (!chunk) return NULL;
        *chunk = (fm_build_chunk){state->chunks, 0, size};
        state->chunks = chunk;
    }
    uint8_t *copy = chunk->data + chunk->used;
    if (value.size) memcpy(copy, value.data, value.size);
    chunk->used += value.size;
    return copy;
}

/* Adds a note of a new key. */
static void append_note(fm_build_state *state, const fm_build_note *note) {
    bool good = note->value && fm_build_grow((void **)&state->note, state->n_note, &state->max_note,
                                             sizeof *state->note);
    if (good) {
        assert(state->note);
        state->note[state->n_note] = *note;
        good = fm_hash_index_add(&state->note_of, state->note, sizeof *state->note);
        state->n_note += good;
    }
    if (!good) fail_memory_locked(state);
}

void fm_build_add_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value, bool used) {
    fm_build_note *found = fm_build_find_note(state, key);
    if (found) {
        found->used |= used;
        return;
    }
    const fm_build_note note = {*key, keep_value(state, value), (uint32_t)value.size, used};
    append_note(state, &note);
}

void fm_build_borrow_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value) {
    if (fm_build_find_note(state, key)) return;
    const fm_build_note note = {*key, value.data, (uint32_t)value.size, false};
    append_note(state, &note);
}

/* True when each hash in the note's list is that of a known blob. */
static bool names_known_blobs(const fm_build_state *state, const fm_build_note *note) {
    for (uint32_t at = 0; at < note->value_bytes; at += FM_SHA256_BYTES) {
        fm_sha256 hash;
        memcpy(hash.bytes, note->value + at, sizeof hash.bytes);
        if (!fm_build_find_blob(state, &hash)) return false;
    }
    return true;
}

bool fm_build_use_note(fm_build_state *state, const fm_sha256 *key, uint8_t *ret_value,
                       uint32_t value_bytes) {
    assert(value_bytes % FM_SHA256_BYTES == 0 && value_bytes <= FM_BUILD_NOTE_BYTES);
    pthread_mutex_lock(&state->lock);
    fm_build_note *note = fm_build_find_note(state, key);
    bool good = note && note->value_bytes == value_bytes && names_known_blobs(state, note);
    if (good) {
        note->used = true;
        memcpy(ret_value, note->value, value_bytes);
    }
    pthread_mutex_unlock(&state->lock);
    return good;
}

bool fm_build_use_list(fm_build_state *state, const fm_sha256 *key, fm_arena *arena,
                       fm_bytes *ret_value) {
    pthread_mutex_lock(&state->lock);
    fm_build_note *note = fm_build_find_note(state, key);
    bool good = note && note->value_bytes >= FM_SHA256_BYTES &&
                note->value_bytes % FM_SHA256_BYTES == 0 && names_known_blobs(state, note);
    uint8_t *copy = good ? fm_arena_alloc(arena, note->value_bytes) : NULL;
    if (copy) {
        note->used = true;
        memcpy(copy, note->value, note->value_bytes);
        *ret_value = (fm_bytes){copy, note->value_bytes};
    }
    pthread_mutex_unlock(&state->lock);
    return copy != NULL;
}

bool fm_build_use_text(fm_build_state *state, const fm_sha256 *key, fm_arena *arena,
                       fm_bytes *ret_value) {
    pthread_mutex_lock(&state->lock);
    fm_build_note *note = fm_build_find_note(state, key);
    uint8_t *copy = note ? fm_arena_alloc(arena, note->value_bytes) : NULL;
    if (copy) {
        note->used = true;
        memcpy(copy, note->value, note->value_bytes);
        *ret_value = (fm_bytes){copy, note->value_bytes};
    }
    pthread_mutex_unlock(&state->lock);
    return copy != NULL;
}

void fm_build_put_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value) {
    fm_build_note *note = fm_build_find_note(state, key);
    if (!note) {
        fm_build_add_note(state, key, value, true);
        return;
    }
    const uint8_t *copy = keep_value(state, value);
    if (!copy) {
        fail_memory_locked(state);
        return;
    }
    note->value = copy; /* the old value stays in its chunk; that is rare */
    note->value_bytes = (uint32_t)value.size;
    note->used = true;
}

void fm_build_make_note(fm_build_state *state, const fm_sha256 *key, fm_bytes value) {
    pthread_mutex_lock(&state->lock);
    const fm_build_note *note = fm_build_find_note(state, key);
    /* The blobs of a note may have been lost with a shard; now that they are made again, the note
     * is replaced. */
    bool stale = note && (note->value_bytes != value.size ||
                          memcmp(note->value, value.data, value.size) != 0);
    const bool is_new = !note;
    if (stale) {
        fm_build_put_note(state, key, value);
    } else {
        fm_build_add_note(state, key, value, true);
    }
    pthread_mutex_unlock(&state->lock);
    if (is_new || stale) fm_build_push(state, true, key, value);
}

void fm_build_add_result(fm_build_state *state, const char *name, const fm_build_result *result,
                         const fm_error *refusal) {
    char text[FM_ERROR_TEXT_BYTES];
    fm_build_result copy = *result;
    bool is_refused = refusal || result->reason;
    copy.name = strdup(name);
    copy.reason = NULL;
    if (refusal) {
        fm_error_format(refusal, text, sizeof text);
        copy.status = refusal->status;
        copy.reason = strdup(text);
    } else if (result->reason) {
        copy.reason = strdup(result->reason);
    }
    pthread_mutex_lock(&state->lock);
    if (!copy.name || (is_refused && !copy.reason) ||
        !fm_build_grow((void **)&state->result, state->n_result, &state->max_result, sizeof copy)) {
        fm_build_free_result(&copy);
        fail_memory_locked(state);
    } else {
        state->result[state->n_result++] = copy;
        state->progress.chains_done++;
        state->progress.n_refused += is_refused;
    }
    pthread_mutex_unlock(&state->lock);
}

void fm_build_count_without_alignments(fm_build_state *state) {
    pthread_mutex_lock(&state->lock);
    state->n_without_alignments++;
    pthread_mutex_unlock(&state->lock);
}

void fm_build_count_bare_entity(fm_build_state *state) {
    pthread_mutex_lock(&state->lock);
    state->n_bare_entity++;
    pthread_mutex_unlock(&state->lock);
}

void fm_build_count_left_out(fm_build_state *state, uint32_t n) {
    pthread_mutex_lock(&state->lock);
    state->n_left_out += n;
    pthread_mutex_unlock(&state->lock);
}

void fm_build_count_without_hits(fm_build_state *state) {
    pthread_mutex_lock(&state->lock);
    state->n_without_hits++;
    pthread_mutex_unlock(&state->lock);
}

/* -- queue */

void fm_build_push(fm_build_state *state, bool is_note, const fm_sha256 *hash, fm_bytes bytes) {
    fm_build_packet *packet = malloc(sizeof *packet + bytes.size);
    pthread_mutex_lock(&state->lock);
    if (!packet) {
        fail_memory_locked(state);
    } else {
        *packet = (fm_build_packet){NULL, is_note, *hash, bytes.size};
        memcpy(packet->data, bytes.data, bytes.size);
        while (state->queued_bytes > QUEUE_BYTES_MAX && !state->failed)
            pthread_cond_wait(&state->changed, &state->lock);
        *state->last = packet;
        state->last = &packet->next;
        state->queued_bytes += bytes.size;
        pthread_cond_broadcast(&state->changed);
    }
    pthread_mutex_unlock(&state->lock);
}

/* Returns the next packet. NULL with *ret_end = false after one second without a packet, or when
 * the current shard must be sealed (*ret_flush). */
static fm_build_packet *pop(fm_build_state *state, bool *ret_end, bool *ret_flush) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_mutex_lock(&state->lock);
    int code = 0;
    while (!state->first && !state->no_more && !state->flush && !code)
        code = pthread_cond_timedwait(&state->changed, &state->lock, &until);
    fm_build_packet *packet = state->first;
    if (packet) {
        state->first = packet->next;
        if (!state->first) state->last = &state->first;
        state->queued_bytes -= packet->size;
        pthread_cond_broadcast(&state->changed);
    }
    *ret_end = !packet && state->no_more;
    *ret_flush = !packet && state->flush;
    if (*ret_flush) state->flush = false;
    pthread_mutex_unlock(&state->lock);
    return packet;
}

/* -- the writer */

typedef struct shard_job {
    fm_build_state *state;
    fm_shard_writer *shard; /* NULL = no shard begun */
    time_t begun;           /* CLOCK_MONOTONIC seconds */
    uint32_t number;        /* position of the shard in state->shard once sealed */
} shard_job;

static time_t now_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

static fm_status place_blob(void *context, const fm_sha256 *hash, const fm_shard_blob *blob,
                            fm_error *reterr) {
    (void)reterr;
    shard_job *job = context;
    fm_build_state *state = job->state;
    pthread_mutex_lock(&state->lock);
    fm_blob_entry *entry = fm_build_find_blob(state, hash);
    if (entry && entry->shard == FM_BUILD_PENDING) {
        entry->shard = job->number;
        entry->offset = blob->offset;
        entry->stored_bytes = blob->stored_bytes;
    }
    pthread_mutex_unlock(&state->lock);
    return FM_OK;
}

static fm_status place_note(void *context, const fm_sha256 *key, fm_bytes value, fm_error *reterr) {
    (void)value;
    (void)reterr;
    shard_job *job = context;
    const fm_build_feed *feed = job->state->feed;
    feed->note_sealed(feed->context, key, job->number);
    return FM_OK;
}

static fm_status seal(shard_job *job, fm_error *reterr) {
    fm_build_state *state = job->state;
    if (!job->shard) return FM_OK;
    const fm_shard_visitor visitor = {job, place_blob, state->feed ? place_note : NULL};
    fm_shard_info info;
    job->number = state->n_shard; /* only the writer changes n_shard while threads run */
    fm_status status = fm_shard_writer_seal(job->shard, &visitor, &info, reterr);
    job->shard = NULL;
    if (status) return status;
    pthread_mutex_lock(&state->lock);
    if (fm_build_grow((void **)&state->shard, state->n_shard, &state->max_shard, sizeof info)) {
        state->shard[state->n_shard++] = info;
    } else {
        fail_memory_locked(state);
    }
    state->written_bytes += info.bytes;
    pthread_cond_broadcast(&state->changed);
    pthread_mutex_unlock(&state->lock);
    return FM_OK;
}

static fm_status write_packet(shard_job *job, const fm_build_packet *packet, fm_error *reterr) {
    const fm_build_options *options = job->state->options;
    uint64_t shard_bytes = options->shard_bytes ? options->shard_bytes : SHARD_BYTES;
    fm_status status = FM_OK;
    if (!job->shard) {
        status = fm_shard_writer_create(options->cache, options->slot, &job->shard, reterr);
        job->begun = now_seconds();
    }
    fm_bytes bytes = {packet->data, packet->size};
    if (!status && packet->is_note) {
        status = fm_shard_writer_note(job->shard, &packet->hash, bytes, reterr);
    } else if (!status) {
        status = fm_shard_writer_put(job->shard, &packet->hash, bytes, reterr);
    }
    if (!status && fm_shard_writer_bytes(job->shard) >= shard_bytes) status = seal(job, reterr);
    return status;
}

void *fm_build_writer(void *context) {
    fm_build_state *state = context;
    shard_job job = {.state = state};
    uint32_t max_age =
        state->options->shard_seconds ? state->options->shard_seconds : SHARD_SECONDS;
    fm_error error;
    fm_status status = FM_OK;
    for (bool end = false; !end;) {
        bool flush;
        fm_build_packet *packet = pop(state, &end, &flush);
        if (packet && !status) status = write_packet(&job, packet, &error);
        bool old = job.shard && now_seconds() - job.begun >= (time_t)max_age;
        if (!status && (end || old || flush)) status = seal(&job, &error);
        free(packet);
        if (status && !fm_build_is_ending(state)) fm_build_fail(state, &error);
        if (status) {
            fm_shard_writer_destroy(job.shard);
            job.shard = NULL;
        }
    }
    if (status) fm_build_fail(state, &error);
    return NULL;
}
