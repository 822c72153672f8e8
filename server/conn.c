/* conn.c: the life of a connection: how it begins, how it ends, and its deadlines. See conn.h.
 *
 * Two events drive a connection. `received` takes frames from the input buffer (conn_in.c); their
 * handlers change streams and queue answers. `written` releases the blocks of the finished write
 * (conn_out.c). Both end in fm_conn_pump, which sends what can be sent. */
#include "server/conn_state.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GOODBYES = 30 }; /* draining ends after so many goodbye_ms */

const char *const fm_conn_state_names[] = {"handshake", "auth",     "hello", "looking",
                                           "ready",     "draining", "closed"};

void fm_conn_count(const fm_conn *conn, fm_counter which) {
    fm_count(conn->host->counters, which, 1);
}

void fm_conn_log(const fm_conn *conn, fm_log_level level, const char *event, const char *format,
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

void fm_conn_drop_stream(fm_conn *conn, uint32_t at, const char *why) {
    fm_server_stream *stream = conn->streams[at].stream;
    conn->streams[at].stream = NULL;
    fm_conn_log(conn, FM_LOG_INFO, "stream_end", "stream=%u samples=%llu why=\"%s\"",
                conn->streams[at].id, (unsigned long long)fm_server_stream_get_n_sent(stream), why);
    fm_server_stream_abandon(stream);
    conn->payer->n_stream--;
    conn->idle_ms = conn->now_ms;
    conn->host->stream_dropped(conn->host->server, conn->payer, stream);
}

static void drop_streams(fm_conn *conn, const char *why) {
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream) fm_conn_drop_stream(conn, i, why);
    }
}

void fm_conn_set_state(fm_conn *conn, conn_state state) {
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

void fm_conn_close(fm_conn *conn, const char *why) {
    if (conn->state == CONN_CLOSED) return;
    char quoted[700];
    fm_conn_log(conn, FM_LOG_INFO, "closed", "state=%s why=%s", fm_conn_state_names[conn->state],
                fm_log_quote(quoted, sizeof quoted, why));
    if (conn->state == CONN_HANDSHAKE) fm_conn_count(conn, FM_COUNT_HANDSHAKES_REFUSED);
    leave_handshake(conn);
    fm_conn_set_state(conn, CONN_CLOSED);
    fm_channel_close(conn->channel);
    drop_streams(conn, why);
}

void fm_conn_drain(fm_conn *conn, const char *why) {
    if (conn->state >= CONN_DRAINING) return;
    fm_conn_set_state(conn, CONN_DRAINING);
    conn->deadline_ms = conn->now_ms + (uint64_t)conn->host->goodbye_ms * GOODBYES;
    conn->progress_ms = conn->now_ms;
    drop_streams(conn, why);
}

void fm_conn_refuse(fm_conn *conn, fm_counter which, fm_status status, const char *text) {
    if (conn->state >= CONN_DRAINING) return;
    char quoted[600];
    fm_conn_count(conn, which);
    if (conn->state == CONN_HANDSHAKE) {
        fm_conn_close(conn, text); /* no frame can be sent yet */
        return;
    }
    fm_conn_log(conn, FM_LOG_WARN, "refused", "state=%s why=%s", fm_conn_state_names[conn->state],
                fm_log_quote(quoted, sizeof quoted, text));
    fm_conn_send_error(conn, 0, FM_WIRE_SCOPE_CONNECTION, status, FM_WIRE_NO_INDEX, text);
    fm_conn_drain(conn, "the connection was refused");
}

/* -- events of the channel */

static void on_room(void *owner, uint8_t **ret_at, size_t *ret_bytes) {
    fm_conn *conn = owner;
    *ret_at = conn->in + conn->in_used;
    *ret_bytes = sizeof conn->in - conn->in_used;
}

static void take_input(fm_conn *conn) {
    size_t taken = fm_conn_take_frames(conn);
    conn->in_used -= taken;
    memmove(conn->in, conn->in + taken, conn->in_used);
    if (conn->state == CONN_CLOSED) return;
    conn->host->work_wanted(conn->host->server);
    fm_conn_pump(conn);
}

static void on_received(void *owner, size_t bytes) {
    fm_conn *conn = owner;
    conn->heard_ms = conn->now_ms;
    conn->in_used += bytes;
    if (conn->state == CONN_LOOKING && conn->in_used == sizeof conn->in) {
        fm_conn_refuse(conn, FM_COUNT_PROTOCOL_ERRORS, FM_ERR_PROTOCOL,
                       "too many frames before WELCOME");
    }
    take_input(conn);
}

void fm_conn_look_again(fm_conn *conn, uint64_t answered) {
    if (conn->state != CONN_LOOKING || conn->question > answered) return;
    fm_conn_greet(conn);
    take_input(conn);
}

void fm_conn_fail_question(fm_conn *conn, uint64_t question, fm_status status) {
    if (conn->state != CONN_LOOKING || conn->question != question) return;
    fm_conn_refuse(conn, FM_COUNT_HELLO_REFUSED, status,
                   "the server cannot look for this snapshot on its disk; its log says why");
    fm_conn_flush(conn);
}

static void on_gone(void *owner, const char *why) {
    fm_conn_close(owner, why);
}

static void on_closed(void *owner) {
    fm_conn *conn = owner;
    fm_out_drop(&conn->out);
    conn->host->conn_closed(conn->host->server, conn);
    if (conn->source) conn->source->n_user--;
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
    fm_conn_set_state(conn,
                      fm_access_wants_token(conn->host->access, kind) ? CONN_AUTH : CONN_HELLO);
}

static const fm_channel_events channel_events = {.secured = expect_frames,
                                                 .room = on_room,
                                                 .received = on_received,
                                                 .gone = on_gone,
                                                 .written = fm_conn_on_written,
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
    if (!fm_channel_start(conn->channel, NULL)) fm_conn_close(conn, "cannot read");
}

bool fm_conn_is_waiting(const fm_conn *conn) {
    return conn->state == CONN_HANDSHAKE && !conn->has_turn;
}

void fm_conn_begin(fm_conn *conn) {
    fm_access *access = conn->host->access;
    if (!fm_access_enter_handshake(access, fm_channel_get_peer(conn->channel))) return;
    conn->has_turn = true;
    if (!fm_channel_start(conn->channel, fm_access_get_tls(access))) {
        fm_conn_close(conn, "cannot read");
    }
}

void fm_conn_turn_away(fm_conn *conn, fm_counter which, const char *text) {
    fm_conn_refuse(conn, which, FM_ERR_LIMIT, text);
    fm_conn_flush(conn);
}

void fm_conn_evict(fm_conn *conn, bool is_told) {
    conn->is_turned_away = true;
    fm_conn_refuse(conn, FM_COUNT_HELLO_EVICTED, FM_ERR_LIMIT,
                   "no HELLO came, and others wait to connect");
    if (!is_told) fm_conn_close(conn, "others wait to connect");
    fm_conn_flush(conn);
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
    fm_conn_refuse(conn, FM_COUNT_HELLO_LATE, FM_ERR_PROTOCOL,
                   fm_conn_is_waiting(conn)        ? "too many TLS handshakes at a time"
                   : conn->state == CONN_HANDSHAKE ? "the TLS handshake took too long"
                                                   : "no HELLO came in time");
    fm_conn_flush(conn);
}

static void tick_looking(fm_conn *conn) {
    if (conn->now_ms <= conn->deadline_ms) return;
    fm_conn_refuse(conn, FM_COUNT_HELLO_REFUSED, FM_ERR_LIMIT,
                   "the snapshot took too long to open; try again");
    fm_conn_flush(conn);
}

static void tick_ready(fm_conn *conn) {
    const fm_conn_host *host = conn->host;
    bool has_stream = false;
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++)
        has_stream = has_stream || conn->streams[i].stream;
    if (is_stuck(conn, host->stall_ms)) {
        fm_conn_count(conn, FM_COUNT_STALLED_CLOSED);
        fm_conn_close(conn, "granted credit and does not read");
    } else if (!has_stream && conn->now_ms - conn->idle_ms > host->idle_ms) {
        fm_conn_refuse(conn, FM_COUNT_IDLE_CLOSED, FM_ERR_LIMIT,
                       "no stream was opened for too long");
        fm_conn_flush(conn);
    } else if (!conn->is_ping_open && conn->now_ms - conn->heard_ms >= host->heartbeat_ms &&
               conn->out.n == 0) { /* what is queued shows whether the peer reads */
        conn->is_ping_open = true;
        fm_wire_message ping = {.kind = FM_WIRE_PING, .ping = conn->now_ms};
        fm_conn_send(conn, &ping);
        fm_conn_flush(conn);
    }
}

static void tick_draining(fm_conn *conn) {
    if (!is_stuck(conn, conn->host->goodbye_ms) && conn->now_ms <= conn->deadline_ms) return;
    bool is_all_there = conn->is_finished && count_delivered(conn) >= conn->written_bytes;
    if (!is_all_there) fm_conn_count(conn, FM_COUNT_GOODBYE_CUT);
    fm_conn_close(conn,
                  is_all_there ? "the peer has all and does not close" : "goodbye took too long");
}

void fm_conn_tick(fm_conn *conn, uint64_t now_ms) {
    conn->now_ms = now_ms;
    switch (conn->state) {
    case CONN_HANDSHAKE:
    case CONN_AUTH:
    case CONN_HELLO: tick_hello(conn); break;
    case CONN_LOOKING: tick_looking(conn); break;
    case CONN_READY: tick_ready(conn); break;
    case CONN_DRAINING: tick_draining(conn); break;
    case CONN_CLOSED: break;
    }
}

void fm_conn_end(fm_conn *conn) {
    if (conn->state == CONN_HANDSHAKE) {
        fm_conn_close(conn, "the server stops");
        return;
    }
    for (uint32_t i = 0; i < FM_LIMIT_N_STREAM; i++) {
        if (conn->streams[i].stream) fm_conn_send_end(conn, i, FM_WIRE_SHUTDOWN);
    }
    fm_conn_drain(conn, "the server stops");
    fm_conn_flush(conn);
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
