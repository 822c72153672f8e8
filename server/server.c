/* server.c: see server.h.
 *
 * The server keeps a list of all streams, of which each belongs to a connection. dispatch asks them
 * in turn for jobs while the pool has room. A stream that its connection dropped stays in the list
 * until it is idle, since workers or a write may still use its blocks; reap destroys it then. */
#include "server/server.h"

#include "proto/address.h"
#include "proto/base/log.h"
#include "server/conn.h"

#include <assert.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TICK_MS = 100 };

/* A stream; a dropped one waits to be idle. */
typedef struct stream_entry {
    fm_server_stream *stream;
    bool is_dropped;
} stream_entry;

struct fm_server {
    const fm_sample_source *source;
    fm_loop *loop;
    fm_worker_pool *pool;
    fm_conn_host host;
    fm_access *access;
    fm_budget budget;
    size_t n_listen;
    fm_listener *listeners[FM_SERVER_N_LISTEN_MAX];
    fm_address addresses[FM_SERVER_N_LISTEN_MAX];
    char address_texts[FM_SERVER_N_LISTEN_MAX][FM_ADDRESS_TEXT_BYTES];
    fm_conn *conns;
    uint32_t max_connection;
    uint64_t number; /* of the newest connection, for the log */
    stream_entry *streams;
    size_t n_stream, streams_capacity;
    size_t turn; /* the stream that is asked for a job next */
    bool is_ending;
    bool is_turn_free; /* for a waiting connection's handshake */
    _Atomic bool is_stop_wanted, is_reload_wanted;
    _Atomic uint64_t n_connection, n_live_stream, n_accepted, n_sample_sent, n_bytes_sent,
        n_sample_failed, n_handshake_refused, n_token_refused, memory_bytes;
};

/* -- streams and their jobs */

/* Begins jobs while the pool has room. Streams take turns with one job each; the loop ends when all
 * were asked in a row and had none. */
static void dispatch(fm_server *server) {
    size_t idle_in_a_row = 0;
    while (idle_in_a_row < server->n_stream && fm_worker_pool_has_room(server->pool)) {
        stream_entry *entry = &server->streams[server->turn++ % server->n_stream];
        fm_job *job = entry->is_dropped ? NULL : fm_server_stream_next_job(entry->stream);
        if (job) fm_worker_pool_submit(server->pool, job);
        idle_in_a_row = job ? 0 : idle_in_a_row + 1;
    }
    atomic_store(&server->memory_bytes, server->budget.used_bytes);
}

/* Destroys dropped streams that are idle. */
static void reap(fm_server *server) {
    for (size_t i = 0; i < server->n_stream;) {
        stream_entry *entry = &server->streams[i];
        if (!entry->is_dropped || !fm_server_stream_is_idle(entry->stream)) {
            i++;
            continue;
        }
        fm_server_stream_destroy(entry->stream);
        *entry = server->streams[--server->n_stream];
        atomic_store(&server->n_live_stream, server->n_stream);
    }
    atomic_store(&server->memory_bytes, server->budget.used_bytes);
}

static void on_work_wanted(void *owner) {
    fm_server *server = owner;
    dispatch(server);
}

static void on_stream_opened(void *owner, fm_server_stream *stream) {
    fm_server *server = owner;
    if (server->n_stream == server->streams_capacity) {
        size_t capacity = server->streams_capacity * 2 + 16;
        stream_entry *grown = realloc(server->streams, capacity * sizeof *grown);
        assert(grown); /* 16 bytes per stream; the stream itself needed more just now */
        server->streams = grown;
        server->streams_capacity = capacity;
    }
    server->streams[server->n_stream++] = (stream_entry){stream, false};
    atomic_store(&server->n_live_stream, server->n_stream);
}

static void on_stream_dropped(void *owner, fm_server_stream *stream) {
    fm_server *server = owner;
    for (size_t i = 0; i < server->n_stream; i++) {
        if (server->streams[i].stream == stream) server->streams[i].is_dropped = true;
    }
}

static void on_sample_sent(void *owner, size_t bytes, bool failed) {
    fm_server *server = owner;
    if (failed) {
        atomic_fetch_add(&server->n_sample_failed, 1);
        return;
    }
    atomic_fetch_add(&server->n_sample_sent, 1);
    atomic_fetch_add(&server->n_bytes_sent, bytes);
}

/* -- connections */

static void on_conn_closed(void *owner, fm_conn *conn) {
    fm_server *server = owner;
    fm_conn *before = NULL, *at = server->conns;
    while (at != conn) {
        before = at;
        at = fm_conn_get_next(at);
    }
    if (before) {
        fm_conn_set_next(before, fm_conn_get_next(conn));
    } else {
        server->conns = fm_conn_get_next(conn);
    }
    atomic_fetch_sub(&server->n_connection, 1);
}

static void on_turn_free(void *owner) {
    fm_server *server = owner;
    server->is_turn_free = true;
    fm_loop_wake(server->loop); /* not here: the caller is in the middle of another connection */
}

/* Begins handshakes of waiting connections. The newest come first: in a flood the oldest are those
 * whose peers have probably left. */
static void begin_waiting(fm_server *server) {
    server->is_turn_free = false;
    for (fm_conn *conn = server->conns; conn; conn = fm_conn_get_next(conn)) {
        if (fm_conn_is_waiting(conn)) (void)fm_conn_begin(conn);
    }
}

static void on_peer_denied(void *owner, bool in_handshake) {
    fm_server *server = owner;
    atomic_fetch_add(in_handshake ? &server->n_handshake_refused : &server->n_token_refused, 1);
}

static void on_accepted(void *owner, fm_socket *socket) {
    fm_server *server = owner;
    if (!fm_access_admits(server->access, socket)) {
        fm_log(FM_LOG_WARN, "user_refused", "peer=\"%s\"", fm_socket_get_peer(socket)->text);
        fm_socket_close(socket);
        return;
    }
    if (atomic_load(&server->n_connection) >= (uint64_t)server->max_connection * 2) {
        fm_socket_close(socket); /* a flood of connections gets no answer */
        return;
    }
    fm_conn *conn =
        fm_conn_create(&server->host, socket, ++server->number, fm_loop_now_ms(server->loop));
    if (!conn) return;
    fm_conn_set_next(conn, server->conns);
    server->conns = conn;
    atomic_fetch_add(&server->n_accepted, 1);
    if (atomic_fetch_add(&server->n_connection, 1) >= server->max_connection) {
        fm_conn_refuse(conn, FM_ERR_LIMIT,
                       "the server has reached its limit of connections (--max-connections)");
    }
}

/* -- events of the loop */

static void begin_end(fm_server *server) {
    if (server->is_ending) return;
    server->is_ending = true;
    fm_log(FM_LOG_INFO, "stopping", "connections=%llu",
           (unsigned long long)atomic_load(&server->n_connection));
    for (size_t i = 0; i < server->n_listen; i++) {
        fm_listener_close(server->listeners[i]);
        if (server->addresses[i].kind == FM_ADDRESS_UNIX) unlink(server->addresses[i].path);
    }
    server->n_listen = 0;
    for (fm_conn *conn = server->conns; conn; conn = fm_conn_get_next(conn))
        fm_conn_end(conn);
}

static void finish_end(fm_server *server) {
    if (server->is_ending && !server->conns && server->n_stream == 0) fm_loop_stop(server->loop);
}

static void reload(fm_server *server) {
    fm_error error;
    char text[FM_ERROR_SOURCE_BYTES + FM_ERROR_MESSAGE_BYTES + 64], quoted[900];
    if (!fm_access_reload(server->access, &error)) {
        fm_log(FM_LOG_INFO, "reloaded", "connections=%llu",
               (unsigned long long)atomic_load(&server->n_connection));
        return;
    }
    fm_error_format(&error, text, sizeof text);
    fm_log(FM_LOG_ERROR, "reload_failed", "kept=\"what was read before\" why=%s",
           fm_log_quote(quoted, sizeof quoted, text));
}

static void on_wake(void *owner) {
    fm_server *server = owner;
    for (fm_job *job = fm_worker_pool_collect(server->pool), *next; job; job = next) {
        next = job->next;
        fm_work *work = job->owner;
        fm_conn *conn = fm_server_stream_get_owner(work->stream);
        fm_server_stream_finish_job(work->stream, job);
        if (conn) fm_conn_pump(conn);
    }
    reap(server);
    dispatch(server);
    if (server->is_turn_free) begin_waiting(server);
    if (atomic_exchange(&server->is_reload_wanted, false)) reload(server);
    if (atomic_load(&server->is_stop_wanted)) begin_end(server);
    finish_end(server);
}

static void on_tick(void *owner, uint64_t now_ms) {
    fm_server *server = owner;
    for (fm_conn *conn = server->conns; conn; conn = fm_conn_get_next(conn))
        fm_conn_tick(conn, now_ms);
    reap(server);
    dispatch(server);
    finish_end(server);
}

static void on_signal(void *owner, int number) {
    fm_server *server = owner;
    fm_log(FM_LOG_INFO, "signal", "number=%d", number);
    if (number == SIGHUP) {
        reload(server);
        return;
    }
    begin_end(server);
    finish_end(server);
}

static void wake_loop(void *context) {
    fm_server *server = context;
    fm_loop_wake(server->loop);
}

/* -- creation and run */

static const fm_loop_events loop_events = {.wake = on_wake, .tick = on_tick, .signal = on_signal};

static fm_status listen_one(fm_server *server, const char *text, bool is_insecure,
                            fm_error *reterr) {
    fm_address asked, bound;
    fm_status status = fm_address_parse(text, &asked, reterr);
    if (status) return status;
    asked.is_insecure = is_insecure;
    int listening;
    status = fm_address_listen(&asked, &listening, &bound, reterr);
    if (status) return status;
    size_t i = server->n_listen;
    status = fm_loop_listen(server->loop, listening, bound.kind, on_accepted, server,
                            &server->listeners[i], reterr);
    if (status) return status;
    server->addresses[i] = bound;
    uint32_t gid;
    if (bound.kind == FM_ADDRESS_UNIX && fm_access_get_group(server->access, &gid)) {
        status = fm_address_open_to_group(&bound, gid, reterr);
    }
    fm_address_format(&bound, server->address_texts[i]);
    server->n_listen++;
    return status;
}

/* Reads what the addresses need. */
static fm_status open_access(fm_server *server, const fm_server_options *options,
                             fm_error *reterr) {
    bool has_tls = false;
    for (size_t i = 0; i < FM_SERVER_N_LISTEN_MAX && options->listen[i]; i++) {
        fm_address address;
        fm_status status = fm_address_parse(options->listen[i], &address, reterr);
        if (status) return status;
        has_tls = has_tls || address.kind == FM_ADDRESS_TLS;
        if (address.kind == FM_ADDRESS_TCP && options->credentials.token_file) {
            return fm_fail(reterr, FM_ERR_USAGE,
                           "tokens (--token-file) are not taken over %.200s, where others can read "
                           "them: use a tls:// address",
                           options->listen[i]);
        }
    }
    return fm_access_create(&options->credentials, has_tls, options->unix_group, &server->access,
                            reterr);
}

static uint32_t or_default(uint32_t value, uint32_t fallback) {
    return value ? value : fallback;
}

static void set_options(fm_server *server, const fm_server_options *options,
                        const fm_sample_source *source) {
    server->source = source;
    server->budget.max_bytes =
        options->max_memory_bytes ? options->max_memory_bytes : (size_t)2 << 30;
    server->max_connection = or_default(options->max_connection, 256);
    server->host = (fm_conn_host){.source = source,
                                  .budget = &server->budget,
                                  .hello_ms = or_default(options->hello_ms, 5000),
                                  .heartbeat_ms = or_default(options->heartbeat_ms, 5000),
                                  .stall_ms = or_default(options->stall_ms, 300000),
                                  .goodbye_ms = or_default(options->goodbye_ms, 2000),
                                  .server = server,
                                  .work_wanted = on_work_wanted,
                                  .stream_opened = on_stream_opened,
                                  .stream_dropped = on_stream_dropped,
                                  .sample_sent = on_sample_sent,
                                  .turn_free = on_turn_free,
                                  .peer_denied = on_peer_denied,
                                  .conn_closed = on_conn_closed};
}

static fm_status start(fm_server *server, const fm_server_options *options, fm_error *reterr) {
    fm_status status = open_access(server, options, reterr);
    if (status) return status;
    server->host.access = server->access;
    status = fm_loop_create(&loop_events, server, TICK_MS, options->watch_signals, &server->loop,
                            reterr);
    if (status) return status;
    size_t scratch_bytes =
        options->worker_memory_bytes ? options->worker_memory_bytes : (size_t)1 << 30;
    status = fm_worker_pool_create(or_default(options->n_job, 1), scratch_bytes, wake_loop, server,
                                   &server->pool, reterr);
    for (size_t i = 0; !status && i < FM_SERVER_N_LISTEN_MAX && options->listen[i]; i++)
        status = listen_one(server, options->listen[i], options->credentials.is_insecure, reterr);
    return status;
}

fm_status fm_server_create(const fm_server_options *options, const fm_sample_source *source,
                           fm_server **ret_server, fm_error *reterr) {
    fm_server *server = calloc(1, sizeof *server);
    if (!server) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a server");
    set_options(server, options, source);
    fm_status status = start(server, options, reterr);
    if (status) {
        fm_server_destroy(server);
        return status;
    }
    *ret_server = server;
    return FM_OK;
}

void fm_server_run(fm_server *server) {
    fm_loop_run(server->loop);
}

void fm_server_stop(fm_server *server) {
    atomic_store(&server->is_stop_wanted, true);
    fm_loop_wake(server->loop);
}

void fm_server_reload(fm_server *server) {
    atomic_store(&server->is_reload_wanted, true);
    fm_loop_wake(server->loop);
}

void fm_server_destroy(fm_server *server) {
    assert(!server->conns && server->n_stream == 0);
    if (server->pool) fm_worker_pool_destroy(server->pool);
    for (size_t i = 0; i < server->n_listen; i++) {
        fm_listener_close(server->listeners[i]);
        if (server->addresses[i].kind == FM_ADDRESS_UNIX) unlink(server->addresses[i].path);
    }
    if (server->loop) fm_loop_destroy(server->loop);
    fm_access_destroy(server->access);
    free(server->streams);
    free(server);
}

const char *fm_server_get_address(const fm_server *server, size_t i) {
    return i < FM_SERVER_N_LISTEN_MAX && server->address_texts[i][0] ? server->address_texts[i]
                                                                     : NULL;
}

void fm_server_get_stats(const fm_server *server, fm_server_stats *ret_stats) {
    *ret_stats = (fm_server_stats){
        .n_connection = atomic_load(&server->n_connection),
        .n_stream = atomic_load(&server->n_live_stream),
        .n_accepted = atomic_load(&server->n_accepted),
        .n_sample_sent = atomic_load(&server->n_sample_sent),
        .n_bytes_sent = atomic_load(&server->n_bytes_sent),
        .n_sample_failed = atomic_load(&server->n_sample_failed),
        .n_handshake_refused = atomic_load(&server->n_handshake_refused),
        .n_token_refused = atomic_load(&server->n_token_refused),
        .memory_bytes = atomic_load(&server->memory_bytes),
    };
}
