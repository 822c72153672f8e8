/* conn.c: see conn.h for the life of a connection and the ownership of its memory.
 *
 * Two events drive the file. on_received takes frames from the input buffer; their handlers change
 * streams and queue answers. on_written releases the blocks of the finished write. Both end in
 * fm_conn_pump, which moves ready samples from the streams into the ring (send_samples) and starts
 * the next write (flush). The server calls fm_conn_pump, too, when a worker has finished a sample.
 *
 * A handler may end the connection (close_now, drain) or a stream (drop_stream), so code that runs
 * after one checks the state again before it continues. */
#include "server/conn.h"

#include "proto/base/log.h"
#include "server/greeting.h"
#include "server/out_ring.h"
#include "server/public_text.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_OUT_SAMPLE = 48,  /* samples enter the ring while fewer entries are in use, */
    N_OUT_ANSWER = 110, /* answers too; the rest is for an END of each stream and an ERROR */
    GOODBYES = 30,      /* draining ends after so many goodbye_ms */
};

_Static_assert(FM_OUT_N - N_OUT_ANSWER >= FM_LIMIT_N_STREAM + 2, "room for the last frames");

typedef enum conn_state {
    CONN_HANDSHAKE,
    CONN_AUTH,
    CONN_HELLO,
    CONN_READY,
    CONN_DRAINING,
    CONN_CLOSED
} conn_state;

static const char *const state_names[] = {"handshake", "auth",     "hello",
                                          "ready",     "draining", "closed"};

struct fm_conn {
    const fm_conn_host *host;
    fm_channel *channel;
    fm_account *account, *payer; /* of the address; for streams, memory and requests */
    fm_conn *next;
    uint64_t number;                        /* for the log */
    char consumer[FM_WIRE_AGENT_BYTES * 4]; /* the client's name of itself, as the log quotes it */
    conn_state state;
    bool has_turn;                /* its handshake is one of those that run */
    bool has_auth;                /* AUTH came */
    fm_access_tokens *tokens;     /* retained, with `token`; NULL without a token */
    const fm_access_token *token; /* what the peer may use; NULL = everything */
    bool is_turned_away;
    bool is_finished;        /* nothing more will be written */
    uint64_t now_ms;         /* of the last tick */
    uint64_t accepted_ms;    /* when the connection began */
    uint64_t heard_ms;       /* when bytes came in last */
    uint64_t idle_ms;        /* since when it has no stream */
    uint64_t deadline_ms;    /* for HELLO or for draining; 0 = none */
    uint64_t progress_ms;    /* when the peer had last taken enough bytes, */
    uint64_t progress_bytes; /* and how many it had taken then */
    uint64_t written_bytes;  /* of writes that have ended */
    bool is_ping_open;
    uint64_t n_received, n_sent; /* frames */
    struct {
        uint32_t id;
        fm_server_stream *stream;
    } streams[FM_LIMIT_N_STREAM]; /* stream NULL = free */
    uint32_t turn;                /* the stream that sends first */
    fm_out_ring out;
    size_t in_used;
    uint8_t in[FM_WIRE_CONTROL_BYTES];
    fm_wire_message message; /* the one being handled */
};

static void flush(fm_conn *conn);

static void count(const fm_conn *conn, fm_counter which) {
    fm_count(conn->host->counters, which, 1);
}

static void log_conn(const fm_conn *conn, fm_log_level level, const char *event, const char *format,
                     ...) FM_PRINTF(4, 5);

/* Logs an event of the connection; every line says which one, whose, and what the client calls
 * itself. */
static void log_conn(const fm_conn *conn, fm_log_level level, const char *event, const char *format,
                     ...) {
    char pairs[1400];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(pairs, sizeof pairs, format, arguments);
    va_end(arguments);
    fm_log(level, event, "connection=%llu peer=%s consumer=%s %s", (unsigned long long)conn->number,
           conn->payer->peer, conn->consumer, pairs);
}

/* -- ending streams and connections */

static void drop_stream(fm_conn *conn, uint32_t at, const char *why) {
    fm_server_stream *stream = conn->streams[at].stream;
    conn->streams[at].stream = NULL;
    log_conn(conn, FM_LOG_INFO, "stream_end", "stream=%u samples=%llu why=\"%s\"",
             conn->streams[at].id, (unsigned long long)fm_server_stream_get_n_sent(stream), why);
    fm_server_stream_abandon(stream);
    conn->payer->n_stream--;
    conn->idle_ms = conn->now_ms;
    conn->host->stream_dropped(conn->host->server, conn->payer, stream);
}

static void drop_streams(fm_conn *conn, const char *why) {
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream) drop_stream(conn, i, why);
    }
}

static void set_state(fm_conn *conn, conn_state state) {
    bool was_greeting = conn->state <= CONN_HELLO && state > CONN_HELLO && !conn->is_turned_away;
    conn->state = state;
    if (was_greeting) conn->host->greeted(conn->host->server, conn);
}

/* Gives the turn for a handshake back. */
static void leave_handshake(fm_conn *conn) {
    if (!conn->has_turn) return;
    conn->has_turn = false;
    fm_access_leave_handshake(conn->host->access, fm_channel_get_peer(conn->channel));
    conn->host->turn_free(conn->host->server);
}

static void close_now(fm_conn *conn, const char *why) {
    if (conn->state == CONN_CLOSED) return;
    char quoted[700];
    log_conn(conn, FM_LOG_INFO, "closed", "state=%s why=%s", state_names[conn->state],
             fm_log_quote(quoted, sizeof quoted, why));
    if (conn->state == CONN_HANDSHAKE) count(conn, FM_COUNT_HANDSHAKES_REFUSED);
    leave_handshake(conn);
    set_state(conn, CONN_CLOSED);
    fm_channel_close(conn->channel);
    drop_streams(conn, why);
}

/* Ends the connection after all queued data is sent. */
static void drain(fm_conn *conn, const char *why) {
    if (conn->state >= CONN_DRAINING) return;
    set_state(conn, CONN_DRAINING);
    conn->deadline_ms = conn->now_ms + (uint64_t)conn->host->goodbye_ms * GOODBYES;
    conn->progress_ms = conn->now_ms;
    drop_streams(conn, why);
}

/* -- frames out */

static void send_message(fm_conn *conn, const fm_wire_message *message) {
    if (conn->state == CONN_CLOSED) return;
    fm_out_frame *out = fm_out_push(&conn->out); /* N_OUT_ANSWER left room for the last ones */
    out->head_bytes = fm_wire_encode(message, conn->n_sent++, out->head, sizeof out->head);
}

static void send_error(fm_conn *conn, uint32_t stream, fm_wire_scope scope, fm_status status,
                       uint64_t index, const char *text) {
    fm_wire_message message = {.kind = FM_WIRE_ERROR, .stream = stream};
    message.error.status = (uint16_t)status;
    message.error.scope = (uint8_t)scope;
    message.error.index = index;
    fm_wire_text(message.error.text, sizeof message.error.text, text);
    fm_public_text(message.error.text);
    send_message(conn, &message);
}

static void send_end(fm_conn *conn, uint32_t at, fm_wire_reason reason) {
    fm_wire_message message = {.kind = FM_WIRE_END, .stream = conn->streams[at].id};
    message.end.reason = reason;
    message.end.n_sent = fm_server_stream_get_n_sent(conn->streams[at].stream);
    send_message(conn, &message);
}

/* Sends an ERROR that ends the connection; `which` counts the reason. */
static void refuse(fm_conn *conn, fm_counter which, fm_status status, const char *text) {
    if (conn->state >= CONN_DRAINING) return;
    char quoted[600];
    count(conn, which);
    if (conn->state == CONN_HANDSHAKE) {
        close_now(conn, text); /* nothing can be said yet */
        return;
    }
    log_conn(conn, FM_LOG_WARN, "refused", "state=%s why=%s", state_names[conn->state],
             fm_log_quote(quoted, sizeof quoted, text));
    send_error(conn, 0, FM_WIRE_SCOPE_CONNECTION, status, FM_WIRE_NO_INDEX, text);
    drain(conn, "the connection was refused");
}

static void refuse_protocol(fm_conn *conn, fm_status status, const char *text) {
    refuse(conn, FM_COUNT_PROTOCOL_ERRORS, status, text);
}

/* -- samples out */

static void push_sample(fm_conn *conn, uint32_t stream, fm_work *work) {
    fm_out_frame *out = fm_out_push(&conn->out);
    fm_wire_header header = {.kind = FM_WIRE_SAMPLE,
                             .stream = stream,
                             .body_bytes = (uint32_t)work->job.bytes,
                             .sequence = conn->n_sent++};
    fm_wire_header_encode(&header, out->head);
    out->head_bytes = FM_WIRE_HEADER_BYTES;
    out->work = work;
    conn->payer->n_byte += work->job.bytes;
    conn->host->sample_sent(conn->host->server, work);
}

/* Reports a sample that could not be made, in its place in the order. */
static void report_failure(fm_conn *conn, uint32_t at, fm_work *work) {
    fm_server_stream *stream = conn->streams[at].stream;
    bool stops = fm_server_stream_get_policy(stream) == FM_WIRE_STOP;
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_error_format(&work->job.error, text, sizeof text);
    char quoted[700];
    log_conn(conn, FM_LOG_ERROR, "sample_failed", "stream=%u index=%llu why=%s",
             conn->streams[at].id, (unsigned long long)work->job.index,
             fm_log_quote(quoted, sizeof quoted, text));
    conn->host->sample_sent(conn->host->server, work);
    send_error(conn, conn->streams[at].id, stops ? FM_WIRE_SCOPE_STREAM : FM_WIRE_SCOPE_SAMPLE,
               work->job.status, work->job.index, text);
    fm_server_stream_release(stream, work);
    if (stops) drop_stream(conn, at, "a sample could not be made");
}

/* Ends a stream whose peer has received all bytes that it may have. */
static void end_allowance(fm_conn *conn, uint32_t at) {
    fm_error error;
    fm_fail(&error, FM_ERR_LIMIT, "the %llu bytes that this token allows were sent",
            (unsigned long long)conn->payer->limits.n_byte);
    count(conn, FM_COUNT_BYTES_EXHAUSTED);
    send_error(conn, conn->streams[at].id, FM_WIRE_SCOPE_STREAM, error.status, FM_WIRE_NO_INDEX,
               error.message);
    drop_stream(conn, at, "the allowance of bytes is used up");
}

/* Queues one sample of a stream, or its END; false when it has nothing to send. */
static bool send_one(fm_conn *conn, uint32_t at) {
    fm_server_stream *stream = conn->streams[at].stream;
    if (!stream || conn->out.n >= N_OUT_SAMPLE) return false;
    if (!fm_is_within_bytes(conn->payer)) {
        end_allowance(conn, at);
        return true;
    }
    fm_work *work = fm_server_stream_pick(stream);
    if (!work) {
        if (!fm_server_stream_is_delivered(stream)) return false;
        send_end(conn, at, FM_WIRE_DELIVERED);
        drop_stream(conn, at, "all samples were sent");
        return true;
    }
    if (work->job.status) {
        report_failure(conn, at, work);
    } else {
        push_sample(conn, conn->streams[at].id, work);
    }
    return true;
}

/* Streams take turns with one sample each, so that none starves the others. */
static void send_samples(fm_conn *conn) {
    bool any = true;
    while (any && conn->state == CONN_READY) {
        any = false;
        for (uint32_t i = 0; i < FM_LIMIT_N_STREAM && conn->state == CONN_READY; i++)
            any = send_one(conn, (conn->turn + i) % FM_LIMIT_N_STREAM) || any;
        conn->turn++;
    }
}

/* Starts a write of the entries in the ring, unless one is under way. */
static void flush(fm_conn *conn) {
    if (conn->state == CONN_CLOSED || conn->is_finished) return;
    fm_bytes runs[FM_CHANNEL_N_RUN];
    size_t n_run;
    if (fm_out_begin(&conn->out, runs, &n_run)) {
        if (!fm_channel_write(conn->channel, runs, n_run)) close_now(conn, "cannot write");
    } else if (conn->out.n == 0 && conn->state == CONN_DRAINING) {
        conn->is_finished = true;
        conn->progress_ms = conn->now_ms;
        fm_channel_finish(conn->channel);
    }
}

void fm_conn_pump(fm_conn *conn) {
    send_samples(conn);
    flush(conn);
}

static void on_written(void *owner, bool failed) {
    fm_conn *conn = owner;
    conn->written_bytes += fm_out_end(&conn->out);
    if (conn->state == CONN_CLOSED) return;
    if (failed) {
        close_now(conn, "the peer is gone");
    } else {
        fm_conn_pump(conn);
    }
    conn->host->work_wanted(conn->host->server); /* blocks became free */
}

/* -- messages in */

static void refuse_token(fm_conn *conn, const char *text) {
    refuse(conn, FM_COUNT_TOKENS_REFUSED, FM_ERR_DENIED, text);
}

/* Answers a HELLO that came in the place of AUTH; nothing of the server is told. */
static void on_hello_too_early(fm_conn *conn) {
    refuse_token(conn, "the server wants an access token; give one by --token-file "
                       "or " FM_CREDENTIALS_VARIABLE);
}

static void on_auth(fm_conn *conn) {
    fm_wire_auth *auth = &conn->message.auth;
    bool is_plain = fm_channel_get_peer(conn->channel)->kind == FM_ADDRESS_TCP;
    if (is_plain || conn->has_auth) {
        refuse_protocol(conn, FM_ERR_PROTOCOL,
                        is_plain ? "AUTH cannot come over plain TCP, where others can read it"
                                 : "AUTH came twice");
        return;
    }
    fm_error error;
    fm_status status = fm_access_check_token(conn->host->access, auth->secret, &conn->tokens,
                                             &conn->token, &error);
    memset(auth, 0, sizeof *auth);
    if (status) {
        refuse_token(conn, error.message);
        return;
    }
    conn->has_auth = true;
    set_state(conn, CONN_HELLO);
    if (!conn->token) return;
    fm_account *payer = fm_accounts_use_token(conn->host->accounts, conn->token,
                                              conn->host->peer_limits, conn->now_ms);
    if (!payer) refuse_protocol(conn, FM_ERR_NOMEM, "the server has no memory for another peer");
    if (payer) conn->payer = payer;
}

static void on_hello(fm_conn *conn) {
    const fm_wire_hello *hello = &conn->message.hello;
    const fm_sample_source *source = conn->host->source;
    fm_error error;
    fm_status status = fm_greeting_check(hello, source, conn->token, &error);
    if (status) {
        refuse(conn, status == FM_ERR_DENIED ? FM_COUNT_TOKENS_REFUSED : FM_COUNT_HELLO_REFUSED,
               status, error.message);
        return;
    }
    fm_log_quote(conn->consumer, sizeof conn->consumer, hello->agent);
    char name[FM_TLS_NAME_BYTES], certificate[300];
    log_conn(
        conn, FM_LOG_INFO, "hello", "version=%u from=%s certificate=%s", FM_WIRE_VERSION_MAX,
        conn->account->peer,
        fm_log_quote(certificate, sizeof certificate, fm_channel_peer_name(conn->channel, name)));
    fm_wire_message answer = fm_greeting_welcome(source, conn->host->heartbeat_ms);
    send_message(conn, &answer);
    set_state(conn, CONN_READY);
    conn->idle_ms = conn->now_ms;
    conn->deadline_ms = 0;
}

static int32_t find_stream(const fm_conn *conn, uint32_t id) {
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream && conn->streams[i].id == id) return (int32_t)i;
    }
    return -1;
}

static int32_t find_free(const fm_conn *conn) {
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (!conn->streams[i].stream) return (int32_t)i;
    }
    return -1;
}

static void refuse_stream(fm_conn *conn, uint32_t id, const fm_error *error) {
    char quoted[600];
    count(conn, FM_COUNT_STREAMS_REFUSED);
    log_conn(conn, FM_LOG_WARN, "stream_refused", "stream=%u why=%s", id,
             fm_log_quote(quoted, sizeof quoted, error->message));
    send_error(conn, id, FM_WIRE_SCOPE_STREAM, error->status, FM_WIRE_NO_INDEX, error->message);
}

/* Opens the stream and hands it to the server. */
static fm_status create_stream(fm_conn *conn, const fm_wire_open *params,
                               fm_server_stream **ret_stream, fm_error *reterr) {
    const fm_conn_host *host = conn->host;
    if (conn->token && !fm_access_allows(conn->token->plans, params->plan)) {
        return fm_fail(reterr, FM_ERR_DENIED, "this access token is not for the plan %s",
                       params->plan);
    }
    if (find_free(conn) < 0) {
        return fm_fail(reterr, FM_ERR_LIMIT, "a connection has at most %u streams",
                       FM_LIMIT_N_STREAM);
    }
    if (!fm_is_within(conn->payer->n_stream, conn->payer->limits.n_stream)) {
        count(conn, FM_COUNT_STREAMS_REFUSED_PEER);
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "%s has %u streams, as many as the server allows it (--peer-streams)",
                       conn->payer->peer, conn->payer->n_stream);
    }
    const fm_budgets budgets = {&conn->payer->memory, host->budget};
    fm_server_stream *stream;
    fm_status status =
        fm_server_stream_create(host->source, params, budgets, conn, &stream, reterr);
    if (status) return status;
    status = host->stream_opened(host->server, conn->payer, stream, reterr);
    if (status) {
        fm_server_stream_destroy(stream);
        return status;
    }
    conn->payer->n_stream++;
    *ret_stream = stream;
    return FM_OK;
}

static void on_open(fm_conn *conn) {
    uint32_t id = conn->message.stream;
    const fm_wire_open *params = &conn->message.open;
    fm_error error;
    fm_server_stream *stream;
    if (find_stream(conn, id) >= 0) {
        refuse_protocol(conn, FM_ERR_PROTOCOL, "OPEN of a stream that is open already");
        return;
    }
    if (create_stream(conn, params, &stream, &error)) {
        refuse_stream(conn, id, &error);
        return;
    }
    int32_t at = find_free(conn);
    conn->streams[at].id = id;
    conn->streams[at].stream = stream;
    fm_server_stream_set_label(stream, conn->number, id, conn->payer->peer, conn->consumer);
    count(conn, FM_COUNT_STREAMS_OPENED);
    char plan[64];
    log_conn(conn, FM_LOG_INFO, "stream", "stream=%u plan=%s seed=%llu group=%u/%u window=%u", id,
             fm_log_quote(plan, sizeof plan, params->plan), (unsigned long long)params->seed,
             params->group, params->n_group, params->window);
    fm_wire_message answer = {
        .kind = FM_WIRE_OPENED, .stream = id, .opened = *fm_server_stream_get_opened(stream)};
    send_message(conn, &answer);
}

/* Charges a frame that makes work and moves nothing; false when the peer sends too many. */
static bool take_request(fm_conn *conn) {
    if (fm_account_take_request(conn->payer, conn->now_ms)) return true;
    refuse(conn, FM_COUNT_REQUESTS_REFUSED, FM_ERR_LIMIT,
           "too many requests a second from one peer (--peer-requests)");
    return false;
}

static void on_credit(fm_conn *conn) {
    int32_t at = find_stream(conn, conn->message.stream);
    if (conn->message.credit.items == 0 && !take_request(conn)) return;
    if (at < 0) { /* the END of the stream is on its way to the client */
        (void)take_request(conn);
        return;
    }
    fm_error error;
    if (fm_server_stream_grant(conn->streams[at].stream, conn->message.credit.items,
                               conn->message.credit.bytes, &error)) {
        refuse_protocol(conn, error.status, error.message);
    }
}

static void on_ping(fm_conn *conn) {
    fm_wire_message pong = {.kind = FM_WIRE_PONG, .ping = conn->message.ping};
    send_message(conn, &pong);
}

static void on_pong(fm_conn *conn) {
    if (!conn->is_ping_open && !take_request(conn)) return;
    conn->is_ping_open = false;
}

static void on_error(fm_conn *conn) {
    char quoted[600];
    log_conn(conn, FM_LOG_WARN, "client_error", "why=%s",
             fm_log_quote(quoted, sizeof quoted, conn->message.error.text));
    close_now(conn, "the client gave up");
}

static void on_close(fm_conn *conn) {
    if (conn->message.stream == 0) {
        drain(conn, "the client closed");
        return;
    }
    int32_t at = find_stream(conn, conn->message.stream);
    if (at < 0) return; /* the END of the stream is on its way to the client */
    send_end(conn, (uint32_t)at, FM_WIRE_CLOSED);
    drop_stream(conn, (uint32_t)at, "the client closed it");
}

/* What the server does with a frame, by kind and by state. NULL: the frame breaks the protocol in
 * that state. */
typedef void frame_handler(fm_conn *conn);

static const struct {
    frame_handler *by_state[3]; /* CONN_AUTH, CONN_HELLO, CONN_READY; others receive nothing */
} handlers[] = {
    [FM_WIRE_HELLO] = {{on_hello_too_early, on_hello, NULL}},
    [FM_WIRE_WELCOME] = {{NULL, NULL, NULL}},
    [FM_WIRE_OPEN] = {{NULL, NULL, on_open}},
    [FM_WIRE_OPENED] = {{NULL, NULL, NULL}},
    [FM_WIRE_CREDIT] = {{NULL, NULL, on_credit}},
    [FM_WIRE_SAMPLE] = {{NULL, NULL, NULL}},
    [FM_WIRE_PING] = {{NULL, NULL, on_ping}},
    [FM_WIRE_PONG] = {{NULL, NULL, on_pong}},
    [FM_WIRE_END] = {{NULL, NULL, NULL}},
    [FM_WIRE_ERROR] = {{on_error, on_error, on_error}},
    [FM_WIRE_CLOSE] = {{on_close, on_close, on_close}},
    [FM_WIRE_AUTH] = {{on_auth, on_auth, NULL}},
};

_Static_assert(CONN_HELLO == CONN_AUTH + 1 && CONN_READY == CONN_AUTH + 2, "the columns");
_Static_assert(sizeof handlers / sizeof handlers[0] == FM_WIRE_N_KIND,
               "every kind of message needs a row in handlers");

static frame_handler *find_handler(const fm_conn *conn, uint8_t kind) {
    assert(conn->state >= CONN_AUTH && conn->state <= CONN_READY && kind < FM_WIRE_N_KIND);
    return handlers[kind].by_state[conn->state - CONN_AUTH];
}

/* Does the server answer a frame of this kind? */
static bool is_request(uint8_t kind) {
    return kind == FM_WIRE_OPEN || kind == FM_WIRE_PING || kind == FM_WIRE_CLOSE;
}

static void handle_frame(fm_conn *conn, const fm_wire_header *header, const uint8_t *body) {
    fm_error error;
    if (is_request(header->kind)) {
        if (!take_request(conn)) return;
        if (conn->out.n >= N_OUT_ANSWER) {
            refuse(conn, FM_COUNT_ANSWERS_UNREAD, FM_ERR_LIMIT,
                   "too many requests before their answers were read");
            return;
        }
    }
    fm_bytes bytes = {body, header->body_bytes};
    fm_status status = fm_wire_decode(header, bytes, &conn->message, &error);
    bool is_of_stream = status == FM_ERR_USAGE && conn->state == CONN_READY;
    if (is_of_stream && find_stream(conn, header->stream) < 0) {
        refuse_stream(conn, header->stream, &error);
    } else if (status) {
        refuse_protocol(conn, status, error.message);
    } else {
        find_handler(conn, header->kind)(conn);
    }
}

/* Checks a header as soon as it is complete, so that a frame that the state does not allow is
 * refused before its body arrives. */
static bool is_header_fine(fm_conn *conn, const uint8_t *at, fm_wire_header *ret_header) {
    fm_error error;
    fm_status status = fm_wire_header_decode(at, ret_header, &error);
    if (status) {
        refuse_protocol(conn, status, error.message);
        return false;
    }
    if (ret_header->sequence != conn->n_received) {
        refuse_protocol(conn, FM_ERR_PROTOCOL, "a frame is missing or came twice");
        return false;
    }
    if (!find_handler(conn, ret_header->kind)) {
        fm_fail(&error, FM_ERR_PROTOCOL, "%s cannot come in state %s",
                fm_wire_kind_name(ret_header->kind), state_names[conn->state]);
        refuse_protocol(conn, error.status, error.message);
        return false;
    }
    return true;
}

/* Handles the whole frames at the front of the buffer; returns how many bytes they had. */
static size_t take_frames(fm_conn *conn) {
    size_t at = 0;
    while (conn->state < CONN_DRAINING && conn->in_used - at >= FM_WIRE_HEADER_BYTES) {
        fm_wire_header header;
        if (!is_header_fine(conn, conn->in + at, &header)) break;
        size_t frame_bytes = FM_WIRE_HEADER_BYTES + header.body_bytes;
        assert(frame_bytes <= sizeof conn->in);
        if (conn->in_used - at < frame_bytes) return at;
        conn->n_received++;
        handle_frame(conn, &header, conn->in + at + FM_WIRE_HEADER_BYTES);
        at += frame_bytes;
    }
    return conn->state < CONN_DRAINING ? at : conn->in_used; /* ignore the rest */
}

static void on_room(void *owner, uint8_t **ret_at, size_t *ret_bytes) {
    fm_conn *conn = owner;
    *ret_at = conn->in + conn->in_used;
    *ret_bytes = sizeof conn->in - conn->in_used;
}

static void on_received(void *owner, size_t bytes) {
    fm_conn *conn = owner;
    conn->heard_ms = conn->now_ms;
    conn->in_used += bytes;
    size_t taken = take_frames(conn);
    conn->in_used -= taken;
    memmove(conn->in, conn->in + taken, conn->in_used);
    if (conn->state == CONN_CLOSED) return;
    conn->host->work_wanted(conn->host->server);
    fm_conn_pump(conn);
}

static void on_gone(void *owner, const char *why) {
    close_now(owner, why);
}

static void on_closed(void *owner) {
    fm_conn *conn = owner;
    fm_out_drop(&conn->out);
    conn->host->conn_closed(conn->host->server, conn);
    if (conn->payer != conn->account) fm_accounts_leave(conn->payer, conn->now_ms);
    fm_accounts_leave(conn->account, conn->now_ms);
    fm_access_tokens_release(conn->tokens);
    free(conn);
}

/* -- opening and closing */

/* The peer is on the line, and shows its token where one is demanded. */
static void expect_frames(void *owner) {
    fm_conn *conn = owner;
    fm_address_kind kind = fm_channel_get_peer(conn->channel)->kind;
    leave_handshake(conn);
    set_state(conn, fm_access_wants_token(conn->host->access, kind) ? CONN_AUTH : CONN_HELLO);
}

static const fm_channel_events channel_events = {.secured = expect_frames,
                                                 .room = on_room,
                                                 .received = on_received,
                                                 .gone = on_gone,
                                                 .written = on_written,
                                                 .closed = on_closed};

fm_conn *fm_conn_create(const fm_conn_host *host, fm_socket *socket, fm_account *account,
                        bool is_admitted, uint64_t number, uint64_t now_ms) {
    fm_conn *conn = calloc(1, sizeof *conn);
    if (conn) {
        conn->channel = fm_channel_create(socket, &channel_events, conn);
    } else {
        fm_socket_close(socket);
    }
    if (!conn || !conn->channel) {
        free(conn);
        fm_accounts_leave(account, now_ms);
        return NULL;
    }
    conn->host = host;
    conn->account = conn->payer = account;
    conn->is_turned_away = !is_admitted;
    conn->number = number;
    conn->consumer[0] = '-';
    conn->now_ms = conn->heard_ms = conn->accepted_ms = conn->progress_ms = now_ms;
    conn->deadline_ms = now_ms + host->hello_ms;
    return conn;
}

void fm_conn_start(fm_conn *conn) {
    if (fm_channel_get_peer(conn->channel)->kind == FM_ADDRESS_TLS) {
        fm_conn_begin(conn);
        return;
    }
    expect_frames(conn);
    if (!fm_channel_start(conn->channel, NULL)) close_now(conn, "cannot read");
}

bool fm_conn_is_waiting(const fm_conn *conn) {
    return conn->state == CONN_HANDSHAKE && !conn->has_turn;
}

void fm_conn_begin(fm_conn *conn) {
    fm_access *access = conn->host->access;
    if (!fm_access_enter_handshake(access, fm_channel_get_peer(conn->channel))) return;
    conn->has_turn = true;
    if (!fm_channel_start(conn->channel, fm_access_get_tls(access))) close_now(conn, "cannot read");
}

void fm_conn_turn_away(fm_conn *conn, fm_counter which, const char *text) {
    refuse(conn, which, FM_ERR_LIMIT, text);
    flush(conn);
}

void fm_conn_evict(fm_conn *conn, bool is_told) {
    conn->is_turned_away = true;
    refuse(conn, FM_COUNT_HELLO_EVICTED, FM_ERR_LIMIT, "no HELLO came, and others wait to connect");
    if (!is_told) close_now(conn, "others wait to connect");
    flush(conn);
}

/* -- time */

/* Bytes that have reached the peer, as far as the system says. */
static uint64_t count_delivered(const fm_conn *conn) {
    uint64_t taken = conn->written_bytes;
    size_t unsent = conn->out.n_writing ? fm_channel_unsent_bytes(conn->channel) : 0;
    if (unsent < conn->out.writing_bytes) taken += conn->out.writing_bytes - unsent;
    uint64_t on_the_way = fm_channel_undelivered_bytes(conn->channel);
    return on_the_way < taken ? taken - on_the_way : 0;
}

/* True when the peer took less than min_bytes_per_s of what is queued for window_ms. */
static bool is_stuck(fm_conn *conn, uint32_t window_ms) {
    uint64_t delivered = count_delivered(conn);
    uint64_t due = conn->host->min_bytes_per_s * window_ms / 1000;
    bool is_idle = conn->out.n == 0 && !conn->is_finished;
    if (is_idle || delivered >= conn->progress_bytes + due) {
        conn->progress_ms = conn->now_ms;
        conn->progress_bytes = delivered;
    }
    return conn->now_ms - conn->progress_ms > window_ms;
}

static void tick_hello(fm_conn *conn) {
    if (conn->now_ms <= conn->deadline_ms) return;
    refuse(conn, FM_COUNT_HELLO_LATE, FM_ERR_PROTOCOL,
           fm_conn_is_waiting(conn)        ? "too many TLS handshakes at a time"
           : conn->state == CONN_HANDSHAKE ? "the TLS handshake took too long"
                                           : "no HELLO came in time");
    flush(conn);
}

static void tick_ready(fm_conn *conn) {
    const fm_conn_host *host = conn->host;
    bool has_stream = false;
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++)
        has_stream = has_stream || conn->streams[i].stream;
    if (is_stuck(conn, host->stall_ms)) {
        count(conn, FM_COUNT_STALLED_CLOSED);
        close_now(conn, "granted credit and does not read");
    } else if (!has_stream && conn->now_ms - conn->idle_ms > host->idle_ms) {
        refuse(conn, FM_COUNT_IDLE_CLOSED, FM_ERR_LIMIT, "no stream was opened for too long");
        flush(conn);
    } else if (!conn->is_ping_open && conn->now_ms - conn->heard_ms >= host->heartbeat_ms &&
               conn->out.n == 0) { /* what is queued shows whether the peer reads */
        conn->is_ping_open = true;
        fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = conn->now_ms};
        send_message(conn, &ping);
        flush(conn);
    }
}

static void tick_draining(fm_conn *conn) {
    if (!is_stuck(conn, conn->host->goodbye_ms) && conn->now_ms <= conn->deadline_ms) return;
    bool is_all_there = conn->is_finished && count_delivered(conn) >= conn->written_bytes;
    if (!is_all_there) count(conn, FM_COUNT_GOODBYE_CUT);
    close_now(conn, is_all_there ? "the peer has all and does not close" : "goodbye took too long");
}

void fm_conn_tick(fm_conn *conn, uint64_t now_ms) {
    conn->now_ms = now_ms;
    switch (conn->state) {
    case CONN_HANDSHAKE:
    case CONN_AUTH:
    case CONN_HELLO: tick_hello(conn); break;
    case CONN_READY: tick_ready(conn); break;
    case CONN_DRAINING: tick_draining(conn); break;
    case CONN_CLOSED: break;
    }
}

void fm_conn_end(fm_conn *conn) {
    if (conn->state == CONN_HANDSHAKE) {
        close_now(conn, "the server stops");
        return;
    }
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream) send_end(conn, i, FM_WIRE_SHUTDOWN);
    }
    drain(conn, "the server stops");
    flush(conn);
}

fm_account *fm_conn_get_account(const fm_conn *conn) {
    return conn->account;
}

bool fm_conn_was_turned_away(const fm_conn *conn) {
    return conn->is_turned_away;
}

uint64_t fm_conn_greeting_ms(const fm_conn *conn, uint64_t now_ms) {
    return conn->state <= CONN_HELLO ? now_ms - conn->accepted_ms + 1 : 0;
}

fm_conn *fm_conn_get_next(const fm_conn *conn) {
    return conn->next;
}

void fm_conn_set_next(fm_conn *conn, fm_conn *next) {
    conn->next = next;
}
