/* loader.c: see loader.h. Two queues of slab numbers, guarded by one mutex. A slab is in the free
 * queue, with the receiver thread, in the ready queue, or with the caller. */
#include "trainer/data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum {
    SLAB_ALIGNMENT = 4096,
    MIN_SLABS = 2,
    MAX_SLABS = 131072,
};

typedef struct slab {
    uint8_t *data;  /* [slab_bytes] */
    fm_arena arena; /* views and unpacked tensors of the decoded sample */
    fm_sample sample;
    bool is_readable;
    size_t bytes;   /* of the encoded sample; 0 = the server could not make it */
    uint64_t index; /* of the sample */
    fm_error why;   /* of an unreadable sample */
} slab;

/* A ring of slab numbers; it never holds more than n_slab. */
typedef struct queue {
    uint32_t *slab; /* [n_slab] */
    uint32_t first, n;
} queue;

struct fm_loader {
    fm_supply *supply;
    fm_wire_opened stream;
    uint32_t n_slab;
    bool has_damaged; /* of the options; later set by the receiver, before it ends */
    uint64_t damaged;
    size_t slab_bytes;
    slab *slab; /* [n_slab] */

    pthread_t receiver;
    bool receiving; /* the thread was started */
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    /* Guarded by the mutex. */
    queue free, ready;
    bool stop;     /* close was called */
    bool finished; /* the receiver has ended; `end` is the reason */
    fm_error end;
    fm_loader_stats stats;
};

static void put(const fm_loader *loader, queue *q, uint32_t slab_number) {
    assert(q->n < loader->n_slab);
    q->slab[(q->first + q->n++) % loader->n_slab] = slab_number;
}

static uint32_t take(const fm_loader *loader, queue *q) {
    assert(q->n > 0);
    uint32_t slab_number = q->slab[q->first];
    q->first = (q->first + 1) % loader->n_slab;
    q->n--;
    return slab_number;
}

/* -- the receiver thread */

/* Waits for a free slab; false if the loader is closing. */
static bool wait_for_slab(fm_loader *loader, uint32_t *ret_slab) {
    pthread_mutex_lock(&loader->mutex);
    while (!loader->stop && loader->free.n == 0)
        pthread_cond_wait(&loader->changed, &loader->mutex);
    bool go_on = !loader->stop;
    if (go_on) *ret_slab = take(loader, &loader->free);
    pthread_mutex_unlock(&loader->mutex);
    return go_on;
}

/* The sample in the slab cannot be decoded: ends the stream with *reterr, or makes it an unreadable
 * sample if an earlier stream has ended with it. */
static fm_status receive_damaged(fm_loader *loader, slab *s, fm_status status, fm_error *reterr) {
    fm_sample head;
    bool known = status == FM_ERR_CORRUPT &&
                 !fm_sample_decode_head((fm_bytes){s->data, s->bytes}, &head, NULL);
    bool again = known && loader->has_damaged && loader->damaged == head.index;
    loader->has_damaged = known;
    if (!known) return status;
    loader->damaged = head.index;
    char text[FM_ERROR_TEXT_BYTES];
    fm_error_format(reterr, text, sizeof text);
    if (!again) {
        return fm_fail(reterr, status, "sample %llu: chain %s: received damaged: %s",
                       (unsigned long long)head.index, head.name, text);
    }
    s->index = head.index;
    fm_fail(&s->why, status, "chain %s: received damaged twice: %s", head.name, text);
    return FM_OK;
}

/* Receives one sample, or the report that there is none in its place, into the slab. */
static fm_status receive(fm_loader *loader, slab *s, fm_error *reterr) {
    fm_client_event event;
    fm_status status = fm_supply_next(loader->supply, s->data, loader->slab_bytes, &event, reterr);
    if (status) return status;
    if (event.kind == FM_CLIENT_END) {
        return fm_fail(reterr, FM_ERR_CLOSED, "stream ended%s",
                       event.reason == FM_WIRE_SHUTDOWN ? ": the server stopped" : "");
    }
    if (event.kind == FM_CLIENT_SKIPPED) {
        fm_fail(&s->why, event.status ? event.status : FM_ERR_DATA, "%s", event.text);
        s->bytes = 0;
        s->is_readable = false;
        s->index = event.index;
        return FM_OK;
    }
    fm_arena_reset(&s->arena);
    s->bytes = event.sample.size;
    status = fm_sample_decode(event.sample, true, &s->arena, &s->sample, reterr);
    s->is_readable = !status;
    if (status) return receive_damaged(loader, s, status, reterr);
    s->index = s->sample.index;
    return FM_OK;
}

static void *receive_all(void *argument) {
    fm_loader *loader = argument;
    uint32_t number = 0;
    fm_error error = {.status = FM_ERR_CANCELLED};
    fm_status status = FM_OK;
    while (!status && wait_for_slab(loader, &number)) {
        status = receive(loader, &loader->slab[number], &error);
        pthread_mutex_lock(&loader->mutex);
        if (!status) {
            bool is_readable = loader->slab[number].is_readable;
            loader->stats.n_sample += is_readable;
            loader->stats.n_skipped += !is_readable;
            loader->stats.bytes += loader->slab[number].bytes;
        }
        put(loader, !status ? &loader->ready : &loader->free, number);
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
    }
    pthread_mutex_lock(&loader->mutex);
    loader->finished = true;
    loader->end = error;
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    return NULL;
}

/* -- opening and closing */

static fm_status allocate(fm_loader *loader, fm_error *reterr) {
    uint32_t n = loader->n_slab;
    loader->slab = calloc(n, sizeof *loader->slab);
    loader->free.slab = calloc(n, sizeof *loader->free.slab);
    loader->ready.slab = calloc(n, sizeof *loader->ready.slab);
    if (!loader->slab || !loader->free.slab || !loader->ready.slab) {
        return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u slabs", n);
    }
    for (uint32_t i = 0; i < n; i++) {
        fm_status status = fm_arena_init(&loader->slab[i].arena,
                                         fm_sample_arena_bytes(loader->slab_bytes), reterr);
        if (status) return status;
        loader->slab[i].data = aligned_alloc(SLAB_ALIGNMENT, loader->slab_bytes);
        if (!loader->slab[i].data) {
            return fm_fail(reterr, FM_ERR_NOMEM, "no memory for %u slabs of %zu bytes", n,
                           loader->slab_bytes);
        }
        put(loader, &loader->free, i);
    }
    return FM_OK;
}

static fm_status start(fm_loader *loader, const fm_loader_options *options, fm_error *reterr) {
    fm_wire_open open = options->stream;
    open.credit_items = loader->n_slab;
    open.credit_bytes = FM_LIMIT_CREDIT_BYTES; /* items are the limit, bytes are not */
    fm_status status =
        fm_supply_open(&options->supply, &open, &loader->supply, &loader->stream, reterr);
    if (status) return status;
    loader->slab_bytes =
        (loader->stream.max_sample_bytes + SLAB_ALIGNMENT - 1) / SLAB_ALIGNMENT * SLAB_ALIGNMENT;
    status = allocate(loader, reterr);
    if (status) return status;
    if (pthread_create(&loader->receiver, NULL, receive_all, loader) != 0) {
        return fm_fail(reterr, FM_ERR_NOMEM, "cannot start the receiver thread");
    }
    loader->receiving = true;
    return FM_OK;
}

fm_status fm_loader_open(const fm_loader_options *options, fm_loader **ret_loader,
                         fm_error *reterr) {
    assert(options->n_slab >= MIN_SLABS && options->n_slab <= MAX_SLABS);
    fm_loader *loader = calloc(1, sizeof *loader);
    if (!loader) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a loader");
    loader->n_slab = options->n_slab;
    loader->has_damaged = options->has_damaged;
    loader->damaged = options->damaged;
    pthread_condattr_t attributes; /* waits with a limit must not depend on the wall clock */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&loader->mutex, NULL);
    pthread_cond_init(&loader->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    fm_status status = start(loader, options, reterr);
    if (status) {
        fm_loader_close(loader);
        return status;
    }
    *ret_loader = loader;
    return FM_OK;
}

void fm_loader_close(fm_loader *loader) {
    if (!loader) return;
    if (loader->receiving) {
        pthread_mutex_lock(&loader->mutex);
        loader->stop = true;
        pthread_cond_broadcast(&loader->changed);
        pthread_mutex_unlock(&loader->mutex);
        fm_supply_interrupt(loader->supply);
        pthread_join(loader->receiver, NULL);
    }
    fm_supply_close(loader->supply);
    for (uint32_t i = 0; loader->slab && i < loader->n_slab; i++) {
        free(loader->slab[i].data);
        fm_arena_fini(&loader->slab[i].arena);
    }
    free(loader->slab);
    free(loader->free.slab);
    free(loader->ready.slab);
    pthread_cond_destroy(&loader->changed);
    pthread_mutex_destroy(&loader->mutex);
    free(loader);
}

const fm_wire_opened *fm_loader_get_stream(const fm_loader *loader) {
    return &loader->stream;
}

const fm_wire_welcome *fm_loader_get_server(const fm_loader *loader) {
    return fm_supply_get_welcome(loader->supply);
}

/* -- the caller's side */

/* Takes what is ready, or the reason why nothing comes any more. The caller holds the mutex. */
static fm_status take_ready(fm_loader *loader, uint64_t start_ns, fm_loaded *ret_loaded,
                            fm_error *reterr) {
    if (loader->ready.n == 0) {
        if (reterr) *reterr = loader->end;
        return loader->end.status;
    }
    uint32_t number = take(loader, &loader->ready);
    const slab *s = &loader->slab[number];
    *ret_loaded = (fm_loaded){.sample = s->is_readable ? &s->sample : NULL,
                              .why = s->is_readable ? NULL : &s->why,
                              .index = s->index,
                              .slab = number,
                              .bytes = s->bytes};
    fm_histogram_add(&loader->stats.ready_wait_ns, fm_clock_ns() - start_ns);
    return FM_OK;
}

fm_status fm_loader_next(fm_loader *loader, uint32_t wait_ms, bool *ret_ready,
                         fm_loaded *ret_loaded, fm_error *reterr) {
    uint64_t start_ns = fm_clock_ns();
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += wait_ms / 1000;
    until.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    int failed = 0; /* ETIMEDOUT, when the wait is over */
    pthread_mutex_lock(&loader->mutex);
    while (loader->ready.n == 0 && !loader->finished && !failed)
        failed = pthread_cond_timedwait(&loader->changed, &loader->mutex, &until);
    *ret_ready = loader->ready.n > 0;
    fm_status status =
        *ret_ready || loader->finished ? take_ready(loader, start_ns, ret_loaded, reterr) : FM_OK;
    pthread_mutex_unlock(&loader->mutex);
    return status;
}

bool fm_loader_is_damaged(fm_loader *loader, uint64_t *ret_index) {
    pthread_mutex_lock(&loader->mutex);
    assert(loader->finished);
    bool is_damaged = loader->has_damaged && loader->end.status == FM_ERR_CORRUPT;
    *ret_index = loader->damaged;
    pthread_mutex_unlock(&loader->mutex);
    return is_damaged;
}

void fm_loader_release(fm_loader *loader, const fm_loaded *loaded) {
    pthread_mutex_lock(&loader->mutex);
    put(loader, &loader->free, loaded->slab);
    pthread_cond_broadcast(&loader->changed);
    pthread_mutex_unlock(&loader->mutex);
    fm_supply_release(loader->supply, 1, loaded->bytes);
}

fm_loader_stats fm_loader_get_stats(fm_loader *loader) {
    pthread_mutex_lock(&loader->mutex);
    fm_loader_stats stats = loader->stats;
    pthread_mutex_unlock(&loader->mutex);
    return stats;
}
