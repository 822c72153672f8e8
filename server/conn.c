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
#include "proto/schema.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    N_OUT = 64,            /* entries of the ring */
    N_OUT_SPARE = 16,      /* of them, reserved for control frames */
    WRITE_BYTES = 4 << 20, /* a write takes entries until it has so many bytes */
};

_Static_assert(2 * N_OUT <= FM_CHANNEL_N_RUN, "a write takes all entries of the ring");

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

/* An entry of the ring. */
typedef struct out_frame {
    uint8_t head[FM_WIRE_SMALL_BYTES]; /* a whole control frame, or a sample's header */
    size_t head_bytes;
    fm_work *work; /* the sample to release after the write; NULL for a control frame */
} out_frame;

struct fm_conn {
    const fm_conn_host *host;
    fm_channel *channel;
    fm_conn *next;
    uint64_t number; /* for the log */
    conn_state state;
    bool has_turn;                /* its handshake is one of those that run */
    fm_access_tokens *tokens;     /* retained, with `token`; NULL without AUTH */
    const fm_access_token *token; /* what the peer may use; NULL allows everything */
    bool has_auth;                /* AUTH came */
    bool is_finished;             /* nothing more will be written */
    uint64_t now_ms;              /* of the last tick */
    uint64_t heard_ms;            /* when bytes came in last */
    uint64_t moved_ms;            /* when the write made progress last */
    uint64_t deadline_ms;         /* for HELLO or for draining; 0 = none */
    size_t unsent_before;         /* bytes of the write that were unsent at the last tick */
    bool is_ping_open;
    uint64_t n_received, n_sent; /* frames */
    struct {
        uint32_t id;
        fm_server_stream *stream;
    } streams[FM_LIMIT_N_STREAM];  /* stream NULL = free */
    uint32_t turn;                 /* the stream that sends first */
    uint32_t out_first, out_count; /* entries out_first .. out_first + out_count - 1 are in use */
    uint32_t out_writing;          /* the first so many are in the write; 0 = there is none */
    out_frame out[N_OUT];
    size_t in_used;
    uint8_t in[FM_WIRE_CONTROL_BYTES];
    fm_wire_message message; /* the one being handled */
};

static void flush(fm_conn *conn);

/* -- ending streams and connections */

static void drop_stream(fm_conn *conn, uint32_t at) {
    fm_server_stream *stream = conn->streams[at].stream;
    conn->streams[at].stream = NULL;
    fm_server_stream_abandon(stream);
    conn->host->stream_dropped(conn->host->server, stream);
}

static void drop_streams(fm_conn *conn) {
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream) drop_stream(conn, i);
    }
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
    char quoted[700], peer[80];
    fm_log(FM_LOG_INFO, "closed", "connection=%llu state=%s peer=%s why=%s",
           (unsigned long long)conn->number, state_names[conn->state],
           fm_log_quote(peer, sizeof peer, fm_channel_get_peer(conn->channel)->text),
           fm_log_quote(quoted, sizeof quoted, why));
    if (conn->state == CONN_HANDSHAKE) conn->host->peer_denied(conn->host->server, true);
    leave_handshake(conn);
    conn->state = CONN_CLOSED;
    fm_channel_close(conn->channel);
    drop_streams(conn);
}

/* Ends the connection after all queued data is sent. */
static void drain(fm_conn *conn) {
    if (conn->state >= CONN_DRAINING) return;
    conn->state = CONN_DRAINING;
    conn->deadline_ms = conn->now_ms + conn->host->goodbye_ms;
    drop_streams(conn);
}

/* -- frames out */

static out_frame *push_out(fm_conn *conn) {
    if (conn->out_count == N_OUT) {
        close_now(conn, "does not read the answers to its requests");
        return NULL;
    }
    out_frame *out = &conn->out[(conn->out_first + conn->out_count++) % N_OUT];
    out->work = NULL;
    return out;
}

static void send_message(fm_conn *conn, const fm_wire_message *message) {
    if (conn->state == CONN_CLOSED) return;
    out_frame *out = push_out(conn);
    if (!out) return;
    out->head_bytes = fm_wire_encode(message, conn->n_sent++, out->head, sizeof out->head);
}

static void send_error(fm_conn *conn, uint32_t stream, fm_wire_scope scope, fm_status status,
                       uint64_t index, const char *text) {
    fm_wire_message message = {.kind = FM_WIRE_ERROR, .stream = stream};
    message.error.status = (uint16_t)status;
    message.error.scope = (uint8_t)scope;
    message.error.index = index;
    fm_wire_text(message.error.text, sizeof message.error.text, text);
    send_message(conn, &message);
}

static void send_end(fm_conn *conn, uint32_t at, fm_wire_reason reason) {
    fm_wire_message message = {.kind = FM_WIRE_END, .stream = conn->streams[at].id};
    message.end.reason = reason;
    message.end.n_sent = fm_server_stream_get_n_sent(conn->streams[at].stream);
    send_message(conn, &message);
}

static void refuse(fm_conn *conn, fm_status status, const char *text) {
    if (conn->state >= CONN_DRAINING) return;
    if (conn->state == CONN_HANDSHAKE) {
        close_now(conn, text); /* nothing can be said yet */
        return;
    }
    char quoted[600];
    fm_log(FM_LOG_WARN, "refused", "connection=%llu state=%s why=%s",
           (unsigned long long)conn->number, state_names[conn->state],
           fm_log_quote(quoted, sizeof quoted, text));
    send_error(conn, 0, FM_WIRE_SCOPE_CONNECTION, status, FM_WIRE_NO_INDEX, text);
    drain(conn);
}

void fm_conn_refuse(fm_conn *conn, fm_status status, const char *text) {
    refuse(conn, status, text);
    flush(conn);
}

/* -- samples out */

static void push_sample(fm_conn *conn, uint32_t stream, fm_work *work) {
    out_frame *out = push_out(conn);
    assert(out); /* send_one checked that there is a free entry */
    fm_wire_header header = {.kind = FM_WIRE_SAMPLE,
                             .stream = stream,
                             .body_bytes = (uint32_t)work->job.bytes,
                             .sequence = conn->n_sent++};
    fm_wire_header_encode(&header, out->head);
    out->head_bytes = FM_WIRE_HEADER_BYTES;
    out->work = work;
    conn->host->sample_sent(conn->host->server, work->job.bytes, false);
}

/* Reports a sample that could not be made, in its place in the order. */
static void report_failure(fm_conn *conn, uint32_t at, fm_work *work) {
    fm_server_stream *stream = conn->streams[at].stream;
    bool stops = fm_server_stream_get_policy(stream) == FM_WIRE_STOP;
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64];
    fm_error_format(&work->job.error, text, sizeof text);
    char quoted[700];
    fm_log(FM_LOG_ERROR, "sample_failed", "connection=%llu stream=%u index=%llu why=%s",
           (unsigned long long)conn->number, conn->streams[at].id,
           (unsigned long long)work->job.index, fm_log_quote(quoted, sizeof quoted, text));
    conn->host->sample_sent(conn->host->server, 0, true);
    send_error(conn, conn->streams[at].id, stops ? FM_WIRE_SCOPE_STREAM : FM_WIRE_SCOPE_SAMPLE,
               work->job.status, work->job.index, text);
    fm_server_stream_release(stream, work);
    if (stops && conn->streams[at].stream) drop_stream(conn, at);
}

/* Queues one sample of a stream, or its END; false when it has nothing to send. */
static bool send_one(fm_conn *conn, uint32_t at) {
    fm_server_stream *stream = conn->streams[at].stream;
    if (!stream || conn->out_count >= N_OUT - N_OUT_SPARE) return false;
    fm_work *work = fm_server_stream_pick(stream);
    if (!work) {
        if (!fm_server_stream_is_delivered(stream)) return false;
        send_end(conn, at, FM_WIRE_DELIVERED);
        if (conn->streams[at].stream) drop_stream(conn, at);
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
    if (conn->state == CONN_CLOSED || conn->out_writing || conn->is_finished) return;
    fm_bytes runs[FM_CHANNEL_N_RUN];
    size_t n_run = 0, bytes = 0;
    uint32_t n = 0;
    for (; n < conn->out_count && bytes < WRITE_BYTES; n++) {
        out_frame *out = &conn->out[(conn->out_first + n) % N_OUT];
        runs[n_run++] = (fm_bytes){out->head, out->head_bytes};
        if (out->work) runs[n_run++] = (fm_bytes){out->work->job.out, out->work->job.bytes};
        bytes += out->head_bytes + (out->work ? out->work->job.bytes : 0);
    }
    if (n == 0) {
        if (conn->state == CONN_DRAINING) {
            conn->is_finished = true;
            fm_channel_finish(conn->channel);
        }
        return;
    }
    conn->out_writing = n;
    conn->moved_ms = conn->now_ms;
    if (!fm_channel_write(conn->channel, runs, n_run)) {
        conn->out_writing = 0;
        close_now(conn, "cannot write");
    }
}

void fm_conn_pump(fm_conn *conn) {
    send_samples(conn);
    flush(conn);
}

static void pop_out(fm_conn *conn, uint32_t n) {
    for (; n; n--) {
        out_frame *out = &conn->out[conn->out_first];
        if (out->work) fm_server_stream_release(out->work->stream, out->work);
        conn->out_first = (conn->out_first + 1) % N_OUT;
        conn->out_count--;
    }
}

static void on_written(void *owner, bool failed) {
    fm_conn *conn = owner;
    uint32_t written = conn->out_writing;
    conn->out_writing = 0;
    pop_out(conn, written);
    if (conn->state == CONN_CLOSED) return;
    if (failed) {
        close_now(conn, "the peer is gone");
    } else {
        fm_conn_pump(conn);
    }
    conn->host->work_wanted(conn->host->server); /* blocks became free */
}

/* -- messages in */

/* Answers a HELLO that came in the place of AUTH; nothing of the server is told. */
static void on_hello_too_early(fm_conn *conn) {
    conn->host->peer_denied(conn->host->server, false);
    refuse(
        conn, FM_ERR_DENIED,
        "the server wants an access token; give one by --token-file or " FM_CREDENTIALS_VARIABLE);
}

static void on_auth(fm_conn *conn) {
    fm_wire_auth *auth = &conn->message.auth;
    if (fm_channel_get_peer(conn->channel)->kind == FM_ADDRESS_TCP) {
        refuse(conn, FM_ERR_PROTOCOL, "AUTH cannot come over tcp://, where others can read it");
        return;
    }
    if (conn->has_auth) {
        refuse(conn, FM_ERR_PROTOCOL, "AUTH came twice");
        return;
    }
    fm_error error;
    fm_status status = fm_access_check_token(conn->host->access, auth->secret, &conn->tokens,
                                             &conn->token, &error);
    memset(auth, 0, sizeof *auth);
    if (status) {
        conn->host->peer_denied(conn->host->server, false);
        refuse(conn, status, error.message);
        return;
    }
    fm_log(FM_LOG_INFO, "auth", "connection=%llu token=%s", (unsigned long long)conn->number,
           conn->token ? conn->token->name : "\"\"");
    conn->has_auth = true;
    conn->state = CONN_HELLO;
}

static bool is_zero_hash(const fm_sha256 *hash) {
    static const fm_sha256 zero;
    return memcmp(hash, &zero, sizeof zero) == 0;
}

/* Checks versions, schema and snapshot of a HELLO; sends the ERROR if they do not fit. */
static bool is_acceptable(fm_conn *conn, const fm_wire_hello *hello) {
    const fm_sample_source *source = conn->host->source;
    fm_error error;
    if (conn->token && !fm_access_allows(conn->token->snapshots, source->snapshot_name)) {
        conn->host->peer_denied(conn->host->server, false);
        fm_fail(&error, FM_ERR_DENIED, "this access token is not for the server's snapshot");
    } else if (hello->version_max < FM_WIRE_VERSION_MIN ||
               hello->version_min > FM_WIRE_VERSION_MAX) {
        fm_fail(&error, FM_ERR_UNSUPPORTED,
                "the client speaks protocol %u to %u, this server %u to %u", hello->version_min,
                hello->version_max, FM_WIRE_VERSION_MIN, FM_WIRE_VERSION_MAX);
    } else if (hello->schema_hash != fm_schema_hash()) {
        fm_fail(
            &error, FM_ERR_UNSUPPORTED,
            "the client's feature table is %016llx, this server's %016llx: use the same version "
            "of foldmill for both",
            (unsigned long long)hello->schema_hash, (unsigned long long)fm_schema_hash());
    } else if (hello->features != 0) {
        fm_fail(&error, FM_ERR_UNSUPPORTED, "the server does not know features %x",
                hello->features);
    } else if (hello->snapshot_name[0] &&
               strcmp(hello->snapshot_name, source->snapshot_name) != 0) {
        fm_fail(&error, FM_ERR_NOT_FOUND, "snapshot %s is not served, %s is", hello->snapshot_name,
                source->snapshot_name);
    } else if (!is_zero_hash(&hello->snapshot) &&
               memcmp(&hello->snapshot, &source->snapshot, sizeof source->snapshot) != 0) {
        char wanted[FM_SHA256_HEX], served[FM_SHA256_HEX];
        fm_sha256_format(&hello->snapshot, wanted);
        fm_sha256_format(&source->snapshot, served);
        fm_fail(&error, FM_ERR_NOT_FOUND, "snapshot %.16s... is not served, %.16s... is", wanted,
                served);
    } else {
        return true;
    }
    refuse(conn, error.status, error.message);
    return false;
}

static void on_hello(fm_conn *conn) {
    const fm_wire_hello *hello = &conn->message.hello;
    if (!is_acceptable(conn, hello)) return;
    const fm_sample_source *source = conn->host->source;
    char agent[300], peer[80], name[FM_TLS_NAME_BYTES], certificate[300];
    fm_log(
        FM_LOG_INFO, "hello", "connection=%llu agent=%s peer=%s certificate=%s",
        (unsigned long long)conn->number, fm_log_quote(agent, sizeof agent, hello->agent),
        fm_log_quote(peer, sizeof peer, fm_channel_get_peer(conn->channel)->text),
        fm_log_quote(certificate, sizeof certificate, fm_channel_peer_name(conn->channel, name)));
    fm_wire_message answer = {.kind = FM_WIRE_WELCOME};
    answer.welcome = (fm_wire_welcome){.version = FM_WIRE_VERSION_MAX,
                                       .schema_hash = fm_schema_hash(),
                                       .snapshot = source->snapshot,
                                       .n_chain = source->n_chain,
                                       .heartbeat_ms = conn->host->heartbeat_ms,
                                       .max_stream = FM_LIMIT_N_STREAM,
                                       .agent = "foldmill serve"};
    fm_wire_text(answer.welcome.snapshot_name, sizeof answer.welcome.snapshot_name,
                 source->snapshot_name);
    send_message(conn, &answer);
    if (conn->state != CONN_HELLO) return;
    conn->state = CONN_READY;
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
    fm_log(FM_LOG_WARN, "stream_refused", "connection=%llu stream=%u why=%s",
           (unsigned long long)conn->number, id,
           fm_log_quote(quoted, sizeof quoted, error->message));
    send_error(conn, id, FM_WIRE_SCOPE_STREAM, error->status, FM_WIRE_NO_INDEX, error->message);
}

static void on_open(fm_conn *conn) {
    uint32_t id = conn->message.stream;
    const fm_wire_open *params = &conn->message.open;
    fm_error error;
    if (find_stream(conn, id) >= 0) {
        refuse(conn, FM_ERR_PROTOCOL, "OPEN of a stream that is open already");
        return;
    }
    if (conn->token && !fm_access_allows(conn->token->plans, params->plan)) {
        fm_fail(&error, FM_ERR_DENIED, "this access token is not for the plan %s", params->plan);
        refuse_stream(conn, id, &error);
        return;
    }
    int32_t at = find_free(conn);
    if (at < 0) {
        fm_fail(&error, FM_ERR_LIMIT, "a connection has at most %u streams", FM_LIMIT_N_STREAM);
        refuse_stream(conn, id, &error);
        return;
    }
    fm_server_stream *stream = NULL;
    if (fm_server_stream_create(conn->host->source, params, conn->host->budget, conn, &stream,
                                &error)) {
        refuse_stream(conn, id, &error);
        return;
    }
    conn->streams[at].id = id;
    conn->streams[at].stream = stream;
    conn->host->stream_opened(conn->host->server, stream);
    char plan[64];
    fm_log(FM_LOG_INFO, "stream",
           "connection=%llu stream=%u plan=%s seed=%llu group=%u/%u window=%u",
           (unsigned long long)conn->number, id, fm_log_quote(plan, sizeof plan, params->plan),
           (unsigned long long)params->seed, params->group, params->n_group, params->window);
    fm_wire_message answer = {
        .kind = FM_WIRE_OPENED, .stream = id, .opened = *fm_server_stream_get_opened(stream)};
    send_message(conn, &answer);
}

static void on_credit(fm_conn *conn) {
    int32_t at = find_stream(conn, conn->message.stream);
    if (at < 0) return; /* the END of the stream is on its way to the client */
    fm_error error;
    if (fm_server_stream_grant(conn->streams[at].stream, conn->message.credit.items,
                               conn->message.credit.bytes, &error)) {
        refuse(conn, error.status, error.message);
    }
}

static void on_ping(fm_conn *conn) {
    fm_wire_message pong = {.kind = FM_WIRE_PONG, .ping = conn->message.ping};
    send_message(conn, &pong);
}

static void on_pong(fm_conn *conn) {
    conn->is_ping_open = false;
}

static void on_error(fm_conn *conn) {
    char quoted[600];
    fm_log(FM_LOG_WARN, "client_error", "connection=%llu why=%s", (unsigned long long)conn->number,
           fm_log_quote(quoted, sizeof quoted, conn->message.error.text));
    close_now(conn, "the client gave up");
}

static void on_close(fm_conn *conn) {
    if (conn->message.stream == 0) {
        drain(conn);
        return;
    }
    int32_t at = find_stream(conn, conn->message.stream);
    if (at < 0) return; /* the END of the stream is on its way to the client */
    send_end(conn, (uint32_t)at, FM_WIRE_CLOSED);
    if (conn->streams[at].stream) drop_stream(conn, (uint32_t)at);
}

/* What the server does with a frame, by kind and by state. NULL: the frame breaks the protocol in
 * that state. */
typedef void frame_handler(fm_conn *conn);

static const struct {
    frame_handler *by_state[3]; /* from CONN_AUTH to CONN_READY; no other receives frames */
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

static void handle_frame(fm_conn *conn, const fm_wire_header *header, const uint8_t *body) {
    fm_error error;
    fm_bytes bytes = {body, header->body_bytes};
    fm_status status = fm_wire_decode(header, bytes, &conn->message, &error);
    if (status == FM_ERR_USAGE && conn->state == CONN_READY) {
        refuse_stream(conn, header->stream, &error);
    } else if (status) {
        refuse(conn, status, error.message);
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
        refuse(conn, status, error.message);
        return false;
    }
    if (ret_header->sequence != conn->n_received) {
        refuse(conn, FM_ERR_PROTOCOL, "a frame is missing or came twice");
        return false;
    }
    if (!find_handler(conn, ret_header->kind)) {
        fm_fail(&error, FM_ERR_PROTOCOL, "%s cannot come in state %s",
                fm_wire_kind_name(ret_header->kind), state_names[conn->state]);
        refuse(conn, error.status, error.message);
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
    pop_out(conn, conn->out_count);
    fm_access_tokens_release(conn->tokens);
    conn->host->conn_closed(conn->host->server, conn);
    free(conn);
}

/* -- opening and closing */

/* The peer is on the line: it shows its token where one is demanded. */
static void expect_frames(fm_conn *conn) {
    fm_address_kind kind = fm_channel_get_peer(conn->channel)->kind;
    conn->state = fm_access_wants_token(conn->host->access, kind) ? CONN_AUTH : CONN_HELLO;
}

static void on_secured(void *owner) {
    fm_conn *conn = owner;
    leave_handshake(conn);
    expect_frames(conn);
}

static const fm_channel_events channel_events = {.secured = on_secured,
                                                 .room = on_room,
                                                 .received = on_received,
                                                 .gone = on_gone,
                                                 .written = on_written,
                                                 .closed = on_closed};

bool fm_conn_is_waiting(const fm_conn *conn) {
    return conn->state == CONN_HANDSHAKE && !conn->has_turn;
}

bool fm_conn_begin(fm_conn *conn) {
    fm_access *access = conn->host->access;
    if (!fm_access_enter_handshake(access, fm_channel_get_peer(conn->channel))) return false;
    conn->has_turn = true;
    if (!fm_channel_start(conn->channel, fm_access_get_tls(access))) close_now(conn, "cannot read");
    return true;
}

fm_conn *fm_conn_create(const fm_conn_host *host, fm_socket *socket, uint64_t number,
                        uint64_t now_ms) {
    fm_conn *conn = calloc(1, sizeof *conn);
    if (!conn) {
        fm_socket_close(socket);
        return NULL;
    }
    conn->channel = fm_channel_create(socket, &channel_events, conn);
    if (!conn->channel) {
        free(conn);
        return NULL;
    }
    conn->host = host;
    conn->number = number;
    conn->now_ms = conn->heard_ms = conn->moved_ms = now_ms;
    conn->deadline_ms = now_ms + host->hello_ms;
    if (fm_channel_get_peer(conn->channel)->kind == FM_ADDRESS_TLS) {
        (void)fm_conn_begin(conn); /* or it waits */
        return conn;
    }
    expect_frames(conn);
    if (!fm_channel_start(conn->channel, NULL)) close_now(conn, "cannot read");
    return conn;
}

static void tick_ready(fm_conn *conn, uint64_t now_ms) {
    if (conn->is_ping_open || now_ms - conn->heard_ms < conn->host->heartbeat_ms) return;
    if (conn->out_count) return; /* what is queued shows whether the peer reads */
    conn->is_ping_open = true;
    fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = now_ms};
    send_message(conn, &ping);
    flush(conn);
}

void fm_conn_tick(fm_conn *conn, uint64_t now_ms) {
    if (conn->state == CONN_CLOSED) return;
    conn->now_ms = now_ms;
    size_t unsent = fm_channel_unsent_bytes(conn->channel);
    if (!conn->out_writing || unsent != conn->unsent_before) conn->moved_ms = now_ms;
    conn->unsent_before = unsent;
    if (conn->deadline_ms && now_ms > conn->deadline_ms) {
        if (conn->state == CONN_DRAINING) {
            close_now(conn, "goodbye took too long");
        } else if (conn->state == CONN_HANDSHAKE) {
            close_now(conn, conn->has_turn ? "the TLS handshake took too long"
                                           : "too many handshakes at a time");
        } else {
            fm_conn_refuse(conn, FM_ERR_PROTOCOL, "no HELLO came in time");
        }
    } else if (now_ms - conn->moved_ms > conn->host->stall_ms) {
        close_now(conn, "granted credit and does not read");
    } else if (conn->state == CONN_READY) {
        tick_ready(conn, now_ms);
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
    drain(conn);
    flush(conn);
}

fm_conn *fm_conn_get_next(const fm_conn *conn) {
    return conn->next;
}

void fm_conn_set_next(fm_conn *conn, fm_conn *next) {
    conn->next = next;
}
