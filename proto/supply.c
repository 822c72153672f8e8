/* supply.c: see supply.h.
 *
 * params.token records the delivered samples in the form that OPEN needs. Indices of other groups
 * count as delivered, so the watermark follows the own samples (advance). A connection is opened
 * with that token, and with the caller's credit minus the samples that the caller has not released
 * yet. So the server never sends more than the caller has slabs for, although some samples came
 * from an earlier connection.
 *
 * The supply measures a server's pace, the time per sample while the caller waits. A span is SPAN
 * samples. It excludes the first WARM samples of a connection, because the server had prepared
 * nothing ahead for them. If the caller waited for less than half of a span, the server is quick
 * enough, and the span gives no pace. */
#include "proto/supply.h"

#include "proto/address_list.h"
#include "proto/backoff.h"
#include "proto/base/histogram.h"
#include "proto/batch.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    PAUSE_MS = 200,   /* between two rounds of attempts */
    RESUME_MS = 5000, /* limit for connecting after a loss: others may be there at once */
    MOVE_MS = 1000,   /* limit for connecting while the present server still sends */
    MOST_EMPTY = 4,   /* more connections than servers, in a row, may end without a sample */
    WARM = 8,         /* samples of a connection before its first span */
    SPAN = 32,        /* samples that are measured together */
    FADE = 64,        /* each span reduces the paces of other servers by a 64th */
    BETTER_NUM = 4,   /* a server is worth a move below 4/5 of the present pace */
    BETTER_DEN = 5,
    STAY_MS = 5000, /* between two moves: equal servers would be changed all the time */
};

typedef struct server {
    fm_supply_server told;
    uint64_t pace_ns;  /* for one sample while the caller waited; 0: not known */
    uint32_t n_failed; /* connections lost or refused since the last one that opened */
} server;

/* The samples of the present connection that are measured together. */
typedef struct span {
    uint32_t n_warm, n;
    uint64_t begin_ns, waited_ns;
} span;

struct fm_supply {
    fm_supply_options options;
    fm_wire_open params; /* the token: all that came; the credit: that of the caller */
    fm_wire_welcome welcome;
    fm_wire_opened opened;
    bool is_known;   /* welcome and opened are those of a first server */
    bool is_tracked; /* the token holds all that came */
    uint32_t n_server, current;
    uint64_t moved_ns;      /* 0: never yet */
    uint32_t n_empty;       /* connections in a row that brought nothing */
    fm_wire_credit granted; /* the first credit of the newest connection */
    span span;
    server server[FM_ADDRESS_LIST_MOST];
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* interrupted */
    /* Guarded by the mutex. The receiver alone changes `client`. */
    fm_client *client;  /* NULL: between two connections */
    uint32_t out_items; /* that the caller has not released */
    uint64_t out_bytes;
    bool is_interrupted;
};

/* -- what came */

static bool is_foreign(const fm_supply *supply, uint64_t index) {
    const fm_wire_open *params = &supply->params;
    uint32_t batch = supply->opened.global_batch;
    return index < params->first_step * batch || index % batch % params->n_group != params->group;
}

/* Moves the watermark to the first own sample that has not come. */
static void advance(fm_supply *supply) {
    fm_token *token = &supply->params.token;
    uint64_t first = supply->params.first_step * supply->opened.global_batch;
    uint64_t to = token->watermark > first ? token->watermark : first;
    while (is_foreign(supply, to) || fm_token_has(token, to))
        to++;
    fm_token_advance(token, to);
    token->epoch = (uint32_t)(to / supply->opened.epoch_samples);
}

/* Records a sample. If it is further from the watermark than a token can express, the supply stops
 * its record (is_tracked), and a loss then ends the stream. */
static fm_status note_sample(fm_supply *supply, uint64_t index, fm_error *reterr) {
    fm_wire_open *params = &supply->params;
    if (supply->is_tracked && !fm_wire_open_wants(params, supply->opened.global_batch, index)) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server at %s sent sample %llu, which is not of this stream or came "
                       "before",
                       supply->server[supply->current].told.url, (unsigned long long)index);
    }
    if (supply->is_tracked && fm_token_deliver(&params->token, index, NULL)) {
        supply->is_tracked = false;
    }
    if (supply->is_tracked) advance(supply);
    return FM_OK;
}

/* Records and counts the sample of an event. A damaged head has no number; the caller finds the
 * damage when it decodes the sample. */
static fm_status take_event(fm_supply *supply, const fm_client_event *event, fm_error *reterr) {
    fm_sample head = {.index = event->index};
    bool is_known =
        event->kind == FM_CLIENT_SKIPPED || !fm_sample_decode_head(event->sample, &head, NULL);
    fm_status status = is_known ? note_sample(supply, head.index, reterr) : FM_OK;
    if (status) return status;
    supply->n_empty = 0;
    supply->server[supply->current].told.n_sample++;
    pthread_mutex_lock(&supply->mutex);
    supply->out_items++;
    supply->out_bytes += event->sample.size;
    pthread_mutex_unlock(&supply->mutex);
    return FM_OK;
}

/* -- connecting */

/* Checks the server's OPENED. The record of samples and a trainer's step divide by these numbers,
 * so 0 is an error. */
static fm_status check_stream(const fm_wire_opened *stream, fm_error *reterr) {
    if (stream->max_sample_bytes > FM_LIMIT_FRAME_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "the server announces samples of %llu bytes; at most %zu are allowed",
                       (unsigned long long)stream->max_sample_bytes, FM_LIMIT_FRAME_BYTES);
    }
    if (stream->samples_per_step == 0 || stream->epoch_samples == 0) {
        return fm_fail(reterr, FM_ERR_PROTOCOL,
                       "the server announces %u samples per step and %u per epoch, expected at "
                       "least 1 of each",
                       stream->samples_per_step, stream->epoch_samples);
    }
    return FM_OK;
}

/* Checks that a later server has the snapshot and plan of the first one. */
static fm_status check_same(const fm_supply *supply, const fm_client *client,
                            const fm_wire_opened *opened, const char *url, fm_error *reterr) {
    const fm_wire_opened *first = &supply->opened;
    const fm_wire_welcome *welcome = fm_client_get_welcome(client);
    if (memcmp(&welcome->snapshot, &supply->welcome.snapshot, sizeof welcome->snapshot) != 0) {
        return fm_fail(reterr, FM_ERR_PROTOCOL, "the server at %s serves another snapshot", url);
    }
    if (opened->max_sample_bytes == first->max_sample_bytes &&
        opened->global_batch == first->global_batch && opened->crop_size == first->crop_size &&
        opened->max_msa_clusters == first->max_msa_clusters &&
        opened->max_extra_msa == first->max_extra_msa && opened->max_cycle == first->max_cycle &&
        opened->epoch_samples == first->epoch_samples &&
        opened->max_template_date == first->max_template_date) {
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_PROTOCOL, "the server at %s has another plan called %s", url,
                   supply->params.plan);
}

/* The credit that a server may have now. The caller holds the mutex. */
static fm_wire_credit find_credit(const fm_supply *supply) {
    const fm_wire_open *all = &supply->params;
    uint32_t items = supply->out_items;
    uint64_t bytes = supply->out_bytes;
    return (fm_wire_credit){
        .items = all->credit_items - (items < all->credit_items ? items : all->credit_items),
        .bytes = all->credit_bytes - (bytes < all->credit_bytes ? bytes : all->credit_bytes)};
}

/* The OPEN of a new connection. */
static fm_wire_open params_now(fm_supply *supply) {
    fm_wire_open params = supply->params;
    pthread_mutex_lock(&supply->mutex);
    supply->granted = find_credit(supply);
    pthread_mutex_unlock(&supply->mutex);
    params.credit_items = supply->granted.items;
    params.credit_bytes = supply->granted.bytes;
    return params;
}

static bool is_interrupted(fm_supply *supply) {
    pthread_mutex_lock(&supply->mutex);
    bool is = supply->is_interrupted;
    pthread_mutex_unlock(&supply->mutex);
    return is;
}

/* Whether to look for a server no longer. Once the stream is open, only its owner ends it. */
static bool is_cancelled(void *context) {
    fm_supply *supply = context;
    const fm_cancel *first = &supply->options.client.cancel;
    return is_interrupted(supply) || (!supply->is_known && fm_cancel_is_asked(first));
}

/* Connects to server i and opens the stream, unless no plan is named. */
static fm_status connect_to(fm_supply *supply, uint32_t i, uint32_t connect_ms,
                            fm_client **ret_client, fm_error *reterr) {
    fm_client_options options = supply->options.client;
    options.url = supply->server[i].told.url;
    options.cancel = (fm_cancel){is_cancelled, supply};
    if (connect_ms) options.connect_ms = connect_ms;
    if (supply->n_server > 1 || supply->is_known) options.retry_ms = 0;
    if (supply->is_known) options.snapshot = supply->welcome.snapshot;
    fm_client *client = NULL;
    fm_wire_opened opened = {0};
    fm_status status = fm_client_connect(&options, &client, reterr);
    if (!status && supply->params.plan[0]) {
        const fm_wire_open params = params_now(supply);
        status = fm_client_open(client, &params, &opened, reterr);
    }
    if (!status && supply->params.plan[0]) status = check_stream(&opened, reterr);
    if (!status && supply->is_known) {
        status = check_same(supply, client, &opened, options.url, reterr);
    }
    if (status) {
        fm_client_close(client);
        return status;
    }
    if (!supply->is_known) {
        supply->welcome = *fm_client_get_welcome(client);
        supply->opened = opened;
    }
    *ret_client = client;
    return FM_OK;
}

/* Makes the client that of server i, and closes the one before. What the caller released since the
 * stream was opened is granted now. */
static void use_client(fm_supply *supply, uint32_t i, fm_client *client) {
    supply->server[supply->current].told.is_current = false;
    supply->server[i].told.is_current = true;
    supply->server[i].n_failed = 0;
    supply->current = i;
    supply->span = (span){.n_warm = WARM};
    fm_status ignored = FM_OK;
    pthread_mutex_lock(&supply->mutex);
    fm_client *before = supply->client;
    supply->client = client;
    fm_wire_credit credit = find_credit(supply);
    uint32_t items = credit.items - supply->granted.items;
    uint64_t bytes = credit.bytes - supply->granted.bytes;
    if (items || bytes) ignored = fm_client_release(client, items, bytes, NULL);
    if (supply->is_interrupted) fm_client_interrupt(client);
    pthread_mutex_unlock(&supply->mutex);
    (void)ignored; /* fm_supply_next meets a broken connection */
    fm_client_close(before);
}

static void drop_client(fm_supply *supply) {
    pthread_mutex_lock(&supply->mutex);
    fm_client *client = supply->client;
    supply->client = NULL;
    pthread_mutex_unlock(&supply->mutex);
    fm_client_close(client);
}

/* Waits before the next round; false when the supply was interrupted. */
static bool pause_for(fm_supply *supply, uint32_t ms) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += ms / 1000;
    until.tv_nsec += (long)(ms % 1000) * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    int failed = 0;
    pthread_mutex_lock(&supply->mutex);
    while (!supply->is_interrupted && !failed)
        failed = pthread_cond_timedwait(&supply->changed, &supply->mutex, &until);
    bool go_on = !supply->is_interrupted;
    pthread_mutex_unlock(&supply->mutex);
    return go_on;
}

/* -- choosing */

/* Returns whether server a is tried before b. Servers with fewer failures come first, then the
 * quicker ones, then those that follow `from` in the list. */
static bool is_before(const fm_supply *supply, uint32_t from, uint32_t a, uint32_t b) {
    const server *left = &supply->server[a], *right = &supply->server[b];
    uint32_t n = supply->n_server;
    if (left->n_failed != right->n_failed) return left->n_failed < right->n_failed;
    if (left->pace_ns != right->pace_ns) return left->pace_ns < right->pace_ns;
    return (a + n - from) % n < (b + n - from) % n;
}

/* Ranks a failure by how much it tells the user: no server 0; a refusal 1; a server without room 2,
 * for which waiting can help. */
static int weight_of(fm_status status) {
    if (status == FM_ERR_LIMIT) return 2;
    return status == FM_ERR_IO || status == FM_ERR_CLOSED ? 0 : 1;
}

/* Tries every server once, the best first; of equal ones, the list begins at `from`. *reterr is the
 * failure with the highest rank (weight_of). *ret_may_come is set if a later round may succeed. */
static fm_status try_all(fm_supply *supply, uint32_t from, uint32_t connect_ms, uint32_t *ret_i,
                         fm_client **ret_client, bool *ret_may_come, fm_error *reterr) {
    bool is_tried[FM_ADDRESS_LIST_MOST] = {false};
    int weight = -1;
    fm_error error;
    *ret_may_come = false;
    for (uint32_t k = 0; k < supply->n_server; k++) {
        uint32_t best = supply->n_server;
        for (uint32_t i = 0; i < supply->n_server; i++) {
            bool is_better = best == supply->n_server || is_before(supply, from, i, best);
            if (!is_tried[i] && is_better) best = i;
        }
        is_tried[best] = true;
        if (is_cancelled(supply)) return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
        fm_status status = connect_to(supply, best, connect_ms, ret_client, &error);
        *ret_i = best;
        if (!status) return FM_OK;
        if (status == FM_ERR_CANCELLED) return fm_fail(reterr, status, "interrupted");
        supply->server[best].n_failed++;
        supply->server[best].told.n_lost++;
        if (weight_of(status) != 1) *ret_may_come = true;
        if (weight_of(status) <= weight) continue;
        weight = weight_of(status);
        *reterr = error;
        if (status == FM_ERR_USAGE || status == FM_ERR_NOMEM) return status; /* for all the same */
    }
    return reterr->status;
}

/* Tries all servers repeatedly until the limit. After FM_ERR_LIMIT the pauses grow. Before the
 * first server is found, FM_ERR_LIMIT is returned at once, because the caller decides how long it
 * waits for room. */
static fm_status connect_within(fm_supply *supply, uint32_t from, uint32_t connect_ms,
                                uint64_t limit_ms, uint32_t *ret_i, fm_client **ret_client,
                                fm_error *reterr) {
    fm_backoff backoff = fm_backoff_begin(limit_ms, fm_clock_ns());
    uint64_t give_up_ns = backoff.begin_ns + limit_ms * 1000000u;
    for (;;) {
        bool may_come;
        fm_status status = try_all(supply, from, connect_ms, ret_i, ret_client, &may_come, reterr);
        bool is_first_of_all = !supply->is_known && status == FM_ERR_LIMIT;
        if (!status || !may_come || is_first_of_all || fm_clock_ns() >= give_up_ns) return status;
        uint32_t pause_ms =
            status == FM_ERR_LIMIT ? fm_backoff_next(&backoff, fm_clock_ns()) : PAUSE_MS;
        if (!pause_for(supply, pause_ms)) return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    }
}

/* -- opening and closing */

static fm_status create(const fm_supply_options *options, const fm_wire_open *params,
                        fm_supply **ret_supply, fm_error *reterr) {
    fm_address_list *list = malloc(sizeof *list);
    fm_supply *supply = calloc(1, sizeof *supply);
    fm_status status = list && supply ? fm_address_list_parse(options->client.url, list, reterr)
                                      : fm_fail(reterr, FM_ERR_NOMEM, "no memory for a client");
    if (status) {
        free(list);
        free(supply);
        return status;
    }
    supply->options = *options;
    supply->params = *params;
    supply->is_tracked = true;
    supply->n_server = list->n;
    for (uint32_t i = 0; i < list->n; i++)
        fm_address_format(&list->address[i], supply->server[i].told.url);
    free(list);
    pthread_condattr_t attributes; /* waits with a limit must not depend on the wall clock */
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&supply->mutex, NULL);
    pthread_cond_init(&supply->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    *ret_supply = supply;
    return FM_OK;
}

/* Connects to a first server. With a single address the client does the retries. */
static fm_status begin(fm_supply *supply, fm_error *reterr) {
    uint32_t limit_ms = supply->n_server > 1 ? supply->options.client.retry_ms : 0;
    uint32_t from = supply->params.group % supply->n_server, i;
    fm_client *client = NULL;
    fm_error error;
    fm_status status = connect_within(supply, from, 0, limit_ms, &i, &client, &error);
    if (status) {
        if (reterr) *reterr = error;
        return status;
    }
    supply->is_known = true;
    use_client(supply, i, client);
    return FM_OK;
}

fm_status fm_supply_open(const fm_supply_options *options, const fm_wire_open *params,
                         fm_supply **ret_supply, fm_wire_opened *ret_opened, fm_error *reterr) {
    fm_supply *supply;
    fm_status status = fm_wire_open_check(params, reterr);
    if (!status) status = create(options, params, &supply, reterr);
    if (status) return status;
    status = begin(supply, reterr);
    if (status) {
        fm_supply_close(supply);
        return status;
    }
    *ret_supply = supply;
    *ret_opened = supply->opened;
    return FM_OK;
}

fm_status fm_supply_ask(const fm_supply_options *options, fm_error *reterr) {
    fm_supply *supply;
    const fm_wire_open no_stream = {0};
    fm_status status = create(options, &no_stream, &supply, reterr);
    if (status) return status;
    status = begin(supply, reterr);
    fm_supply_close(supply);
    return status;
}

void fm_supply_close(fm_supply *supply) {
    if (!supply) return;
    fm_client_close(supply->client);
    pthread_cond_destroy(&supply->changed);
    pthread_mutex_destroy(&supply->mutex);
    free(supply);
}

/* -- losses and moves */

static void tell(const fm_supply *supply, uint32_t from, const char *why) {
    if (!supply->options.on_change) return;
    const fm_supply_change change = {.from = supply->server[from].told.url,
                                     .to = supply->server[supply->current].told.url,
                                     .why = why};
    supply->options.on_change(supply->options.context, &change);
}

/* Returns whether to try a server again after this failure of the stream. A single server is tried
 * again only if it closed the connection. */
static bool may_resume(const fm_supply *supply, fm_status status) {
    if (!supply->is_tracked) return false;
    if (supply->n_empty > supply->n_server + MOST_EMPTY) return false;
    if (supply->n_server == 1 && supply->options.resume_ms == 0) return false;
    switch (status) {
    case FM_ERR_CLOSED: return true;
    case FM_ERR_IO:
    case FM_ERR_PROTOCOL:
    case FM_ERR_FORMAT:
    case FM_ERR_CORRUPT: return supply->n_server > 1;
    default: return false;
    }
}

/* Continues on another server after a loss. If there is none, it fails with the status of the loss.
 */
static fm_status resume(fm_supply *supply, const fm_error *lost, fm_error *reterr) {
    uint32_t from = supply->current, i;
    fm_client *client = NULL;
    fm_error error;
    supply->server[from].n_failed++;
    supply->server[from].told.n_lost++;
    drop_client(supply);
    if (supply->n_empty++ && !pause_for(supply, PAUSE_MS)) {
        return fm_fail(reterr, FM_ERR_CANCELLED, "interrupted");
    }
    fm_status status = connect_within(supply, (from + 1) % supply->n_server, RESUME_MS,
                                      supply->options.resume_ms, &i, &client, &error);
    if (status == FM_ERR_CANCELLED) return fm_fail(reterr, status, "interrupted");
    if (status) {
        return fm_fail(reterr, lost->status, "%.200s; no server takes over: %.250s", lost->message,
                       error.message);
    }
    use_client(supply, i, client);
    tell(supply, from, lost->message);
    return FM_OK;
}

/* Moves to a server that was not measured or was quicker. One that cannot be reached counts as slow
 * until its pace fades. */
static void consider_move(fm_supply *supply, uint64_t now_ns) {
    if (supply->moved_ns && now_ns - supply->moved_ns < (uint64_t)STAY_MS * 1000000) return;
    uint32_t from = supply->current, best = from;
    uint64_t pace_ns = supply->server[from].pace_ns;
    for (uint32_t k = 1; k < supply->n_server; k++) {
        uint32_t i = (from + k) % supply->n_server;
        if (best == from || supply->server[i].pace_ns < supply->server[best].pace_ns) best = i;
    }
    if (supply->server[best].pace_ns * BETTER_DEN >= pace_ns * BETTER_NUM) return;
    fm_client *client = NULL;
    if (connect_to(supply, best, MOVE_MS, &client, NULL)) {
        supply->server[best].told.n_lost++;
        supply->server[best].pace_ns = 2 * pace_ns;
        return;
    }
    use_client(supply, best, client);
    supply->moved_ns = now_ns;
    tell(supply, from, NULL);
}

static void measure(fm_supply *supply, uint64_t wait_ns, uint64_t now_ns) {
    span *s = &supply->span;
    if (supply->n_server == 1 || !supply->is_tracked) return;
    if (s->n_warm) {
        s->n_warm--;
        s->begin_ns = now_ns;
        return;
    }
    s->waited_ns += wait_ns;
    if (++s->n < SPAN) return;
    uint64_t taken_ns = now_ns - s->begin_ns, pace_ns = taken_ns / SPAN + 1;
    bool has_waited = s->waited_ns * 2 >= taken_ns;
    *s = (span){.begin_ns = now_ns};
    if (!has_waited) return;
    server *current = &supply->server[supply->current];
    current->pace_ns = current->pace_ns ? (current->pace_ns + pace_ns) / 2 : pace_ns;
    for (uint32_t i = 0; i < supply->n_server; i++) {
        if (i != supply->current) supply->server[i].pace_ns -= supply->server[i].pace_ns / FADE;
    }
    consider_move(supply, now_ns);
}

/* -- the stream */

/* Receives an event on the current connection. An END with FM_WIRE_SHUTDOWN is a loss, because the
 * stream is not complete. */
static fm_status next_event(fm_supply *supply, void *slab, size_t capacity,
                            fm_client_event *ret_event, fm_error *reterr) {
    fm_status status = fm_client_next(supply->client, slab, capacity, ret_event, reterr);
    if (status || ret_event->kind != FM_CLIENT_END) {
        return status ? status : take_event(supply, ret_event, reterr);
    }
    if (ret_event->reason != FM_WIRE_SHUTDOWN) return FM_OK;
    return fm_fail(reterr, FM_ERR_CLOSED, "the server at %s stops",
                   supply->server[supply->current].told.url);
}

fm_status fm_supply_next(fm_supply *supply, void *slab, size_t capacity, fm_client_event *ret_event,
                         fm_error *reterr) {
    uint64_t begin_ns = fm_clock_ns();
    for (;;) {
        fm_client_event event = {0};
        fm_error error, gone;
        fm_status status = next_event(supply, slab, capacity, &event, &error);
        if (!status) {
            uint64_t now_ns = fm_clock_ns();
            event.wait_ns = now_ns - begin_ns;
            *ret_event = event;
            if (event.kind != FM_CLIENT_END) measure(supply, event.wait_ns, now_ns);
            return FM_OK;
        }
        bool is_end = event.kind == FM_CLIENT_END; /* the server stops, and said so */
        bool goes_on = may_resume(supply, status);
        if (goes_on) status = resume(supply, &error, &gone);
        if (goes_on && !status) continue;
        if (is_end && status != FM_ERR_CANCELLED) {
            *ret_event = event;
            return FM_OK;
        }
        if (reterr) *reterr = goes_on ? gone : error;
        return status;
    }
}

void fm_supply_release(fm_supply *supply, uint32_t items, uint64_t bytes) {
    pthread_mutex_lock(&supply->mutex);
    supply->out_items -= items;
    supply->out_bytes -= bytes;
    fm_status ignored =
        supply->client ? fm_client_release(supply->client, items, bytes, NULL) : FM_OK;
    pthread_mutex_unlock(&supply->mutex);
    (void)ignored; /* fm_supply_next meets a broken connection */
}

void fm_supply_interrupt(fm_supply *supply) {
    pthread_mutex_lock(&supply->mutex);
    supply->is_interrupted = true;
    if (supply->client) fm_client_interrupt(supply->client);
    pthread_cond_broadcast(&supply->changed);
    pthread_mutex_unlock(&supply->mutex);
}

/* -- facts */

const fm_wire_welcome *fm_supply_get_welcome(const fm_supply *supply) {
    return &supply->welcome;
}

uint32_t fm_supply_n_server(const fm_supply *supply) {
    return supply->n_server;
}

fm_supply_server fm_supply_get_server(const fm_supply *supply, uint32_t i) {
    assert(i < supply->n_server);
    return supply->server[i].told;
}
