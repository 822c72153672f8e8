/* conn_in.c: what a connection does with the frames that it receives: it greets, opens and closes
 * streams, and answers. The table `handlers` says which frame may come in which state.
 *
 * A handler may end the connection (fm_conn_close, fm_conn_drain) or a stream
 * (fm_conn_drop_stream), so code that runs after one checks the state again. */
#include "server/conn_state.h"

#include "server/greeting.h"

#include <assert.h>
#include <string.h>

enum {
    LOOKING_MS = 60000,  /* to open a snapshot that a client asked for by its hash */
    REQUEST_BYTES = 512, /* of a token's bitmap, whose samples are as much work as one request */
};

/* -- messages in */

static void refuse_protocol(fm_conn *conn, fm_status status, const char *text) {
    fm_conn_refuse(conn, FM_COUNT_PROTOCOL_ERRORS, status, text);
}

static void refuse_token(fm_conn *conn, const char *text) {
    fm_conn_refuse(conn, FM_COUNT_TOKENS_REFUSED, FM_ERR_DENIED, text);
}

/* Answers a HELLO that came instead of AUTH. The answer tells nothing about the server. */
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
    fm_conn_set_state(conn, CONN_HELLO);
    if (!conn->token) return;
    fm_account *payer = fm_accounts_use_token(conn->host->accounts, conn->token,
                                              conn->host->peer_limits, conn->now_ms);
    if (!payer) refuse_protocol(conn, FM_ERR_NOMEM, "the server has no memory for another peer");
    if (payer) conn->payer = payer;
}

static void welcome(fm_conn *conn, fm_sample_source *source) {
    conn->source = source;
    source->n_user++;
    fm_log_quote(conn->consumer, sizeof conn->consumer, conn->hello.agent);
    char name[FM_TLS_NAME_BYTES], certificate[300], snapshot[300];
    fm_conn_log(
        conn, FM_LOG_INFO, "hello", "version=%u from=%s certificate=%s snapshot=%s generation=%llu",
        FM_WIRE_VERSION_MAX, conn->account->peer,
        fm_log_quote(certificate, sizeof certificate, fm_channel_peer_name(conn->channel, name)),
        fm_log_quote(snapshot, sizeof snapshot, source->snapshot_name),
        (unsigned long long)source->generation);
    fm_wire_message answer = fm_greeting_welcome(source, conn->host->heartbeat_ms);
    fm_conn_send(conn, &answer);
    fm_conn_set_state(conn, CONN_READY);
    conn->idle_ms = conn->now_ms;
    conn->deadline_ms = 0;
}

/* Asks once for an older snapshot on disk; false when it cannot be there. */
static bool look_for(fm_conn *conn) {
    const fm_conn_host *host = conn->host;
    if (!host->look_for || conn->state == CONN_LOOKING || !fm_offer_is_by_hash(&conn->hello) ||
        !host->look_for(host->server, &conn->hello, &conn->question)) {
        return false;
    }
    if (!conn->question) {
        fm_conn_refuse(conn, FM_COUNT_HELLO_REFUSED, FM_ERR_LIMIT,
                       "the server looks for too many older snapshots now; try again");
        return true;
    }
    conn->deadline_ms = conn->now_ms + LOOKING_MS;
    fm_conn_set_state(conn, CONN_LOOKING);
    return true;
}

void fm_conn_greet(fm_conn *conn) {
    fm_error error;
    fm_sample_source *source;
    const fm_offer *offer = conn->host->offer;
    fm_status status = fm_offer_check_token(offer, &conn->hello, conn->token, &error);
    if (!status) status = fm_greeting_check(&conn->hello, &error);
    if (!status) status = fm_offer_find(offer, &conn->hello, conn->token, &source, &error);
    if (status == FM_ERR_NOT_FOUND && look_for(conn)) return;
    if (status) {
        bool is_denied = status == FM_ERR_DENIED;
        fm_conn_refuse(conn, is_denied ? FM_COUNT_TOKENS_REFUSED : FM_COUNT_HELLO_REFUSED, status,
                       error.message);
    } else {
        welcome(conn, source);
    }
}

static void on_hello(fm_conn *conn) {
    conn->hello = conn->message.hello;
    fm_conn_greet(conn);
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
    fm_conn_count(conn, FM_COUNT_STREAMS_REFUSED);
    fm_conn_log(conn, FM_LOG_WARN, "stream_refused", "stream=%u why=%s", id,
                fm_log_quote(quoted, sizeof quoted, error->message));
    fm_conn_send_error(conn, id, FM_WIRE_SCOPE_STREAM, error->status, FM_WIRE_NO_INDEX,
                       error->message);
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
        fm_conn_count(conn, FM_COUNT_STREAMS_REFUSED_PEER);
        bool is_own = conn->token && conn->token->max_stream;
        return fm_fail(reterr, FM_ERR_LIMIT, "%s has %u streams, as many as %s", conn->payer->peer,
                       conn->payer->n_stream,
                       is_own ? "its access token allows"
                              : "the server allows it (--peer-streams)");
    }
    const fm_budgets budgets = {&conn->payer->memory, host->budget};
    fm_server_stream *stream;
    fm_status status =
        fm_server_stream_create(conn->source, params, budgets, conn, &stream, reterr);
    if (status) return status;
    fm_server_stream_set_label(stream, conn->number, conn->message.stream, conn->payer->peer,
                               conn->consumer);
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
    fm_account_take_work(conn->payer, params->token.bitmap_bytes / REQUEST_BYTES);
    if (create_stream(conn, params, &stream, &error)) {
        refuse_stream(conn, id, &error);
        return;
    }
    int32_t at = find_free(conn);
    conn->streams[at].id = id;
    conn->streams[at].stream = stream;
    fm_conn_count(conn, FM_COUNT_STREAMS_OPENED);
    char plan[64];
    fm_conn_log(conn, FM_LOG_INFO, "stream", "stream=%u plan=%s seed=%llu group=%u/%u window=%u",
                id, fm_log_quote(plan, sizeof plan, params->plan), (unsigned long long)params->seed,
                params->group, params->n_group, params->window);
    fm_wire_message answer = {
        .kind = FM_WIRE_OPENED, .stream = id, .opened = *fm_server_stream_get_opened(stream)};
    fm_conn_send(conn, &answer);
}

/* Charges a frame that costs work but moves no data; false when the peer sends too many. */
static bool take_request(fm_conn *conn) {
    if (fm_account_take_request(conn->payer, conn->now_ms)) return true;
    fm_conn_refuse(conn, FM_COUNT_REQUESTS_REFUSED, FM_ERR_LIMIT,
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
    fm_conn_send(conn, &pong);
}

static void on_pong(fm_conn *conn) {
    if (!conn->is_ping_open && !take_request(conn)) return;
    conn->is_ping_open = false;
}

static void on_error(fm_conn *conn) {
    char quoted[600];
    fm_conn_log(conn, FM_LOG_WARN, "client_error", "why=%s",
                fm_log_quote(quoted, sizeof quoted, conn->message.error.text));
    fm_conn_close(conn, "the client gave up");
}

static void on_close(fm_conn *conn) {
    if (conn->message.stream == 0) {
        fm_conn_drain(conn, "the client closed");
        return;
    }
    int32_t at = find_stream(conn, conn->message.stream);
    if (at < 0) return; /* the END of the stream is on its way to the client */
    fm_conn_send_end(conn, (uint32_t)at, FM_WIRE_CLOSED);
    fm_conn_drop_stream(conn, (uint32_t)at, "the client closed it");
}

/* The handler of a frame, by kind and by state. NULL where the frame breaks the protocol. */
typedef void frame_handler(fm_conn *conn);

static const struct {
    frame_handler *by_state[3]; /* CONN_AUTH, CONN_HELLO, CONN_READY; others take no frame */
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

static_assert(sizeof handlers / sizeof handlers[0] == FM_WIRE_N_KIND,
              "every kind of message needs a row in handlers");

static frame_handler *find_handler(const fm_conn *conn, uint8_t kind) {
    assert(kind < FM_WIRE_N_KIND);
    if (conn->state == CONN_AUTH) return handlers[kind].by_state[0];
    if (conn->state == CONN_HELLO) return handlers[kind].by_state[1];
    assert(conn->state == CONN_READY);
    return handlers[kind].by_state[2];
}

/* Whether the server answers a frame of this kind. */
static bool is_request(uint8_t kind) {
    return kind == FM_WIRE_OPEN || kind == FM_WIRE_PING || kind == FM_WIRE_CLOSE;
}

static void handle_frame(fm_conn *conn, const fm_wire_header *header, const uint8_t *body) {
    fm_error error;
    if (is_request(header->kind)) {
        if (!take_request(conn)) return;
        if (conn->out.n >= FM_CONN_N_ANSWER) {
            fm_conn_refuse(conn, FM_COUNT_ANSWERS_UNREAD, FM_ERR_LIMIT,
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
                fm_wire_kind_name(ret_header->kind), fm_conn_state_names[conn->state]);
        refuse_protocol(conn, error.status, error.message);
        return false;
    }
    return true;
}

size_t fm_conn_take_frames(fm_conn *conn) {
    size_t at = 0;
    while (conn->state < CONN_DRAINING && conn->state != CONN_LOOKING &&
           conn->in_used - at >= FM_WIRE_HEADER_BYTES) {
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
