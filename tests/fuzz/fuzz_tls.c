/* fuzz_tls.c: a connection of the server, with TLS, against a peer that may do anything.
 *
 * The input is a program for the peer: an operation, a length of 16 bits, and that many bytes.
 *
 *     0  the bytes arrive as they are              1  the peer's handshake goes on, with the bytes
 *     2  the bytes arrive encrypted                   exclusive-ored into what it says
 *     3  close_notify                              4  a tick, 16 ms later for each byte
 *                                                  5  the socket takes what the server wrote
 *
 * The socket is below: it keeps what is written until operation 5. The peer is a session of
 * tls.h. Whatever comes, the connection answers or closes, and everything is freed. */
#include "proto/base/certificates.h"
#include "proto/base/log.h"
#include "server/conn.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -- a socket in memory, in place of loop_uv.c */

struct fm_socket {
    fm_peer peer;
    const fm_socket_events *events;
    void *owner;
    uint8_t *written; /* of the write under way */
    size_t n_written;
    bool is_writing, is_finished, is_closed;
};

const fm_peer *fm_socket_get_peer(const fm_socket *socket) {
    return &socket->peer;
}

bool fm_socket_is_in_group(const fm_socket *socket, uint32_t gid) {
    return socket->peer.gid == gid;
}

void fm_socket_own(fm_socket *socket, const fm_socket_events *events, void *owner) {
    socket->events = events;
    socket->owner = owner;
}

bool fm_socket_start(fm_socket *socket) {
    return !socket->is_closed;
}

bool fm_socket_write(fm_socket *socket, const fm_bytes *runs, size_t n) {
    assert(!socket->is_writing && !socket->is_closed && !socket->is_finished);
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++)
        bytes += runs[i].size;
    socket->written = malloc(bytes ? bytes : 1);
    assert(socket->written && bytes);
    socket->n_written = 0;
    for (size_t i = 0; i < n; i++) {
        memcpy(socket->written + socket->n_written, runs[i].data, runs[i].size);
        socket->n_written += runs[i].size;
    }
    socket->is_writing = true;
    return true;
}

size_t fm_socket_unsent_bytes(const fm_socket *socket) {
    return socket->is_writing ? socket->n_written : 0;
}

size_t fm_socket_undelivered_bytes(const fm_socket *socket) {
    (void)socket;
    return 0;
}

void fm_socket_finish(fm_socket *socket) {
    assert(!socket->is_closed);
    socket->is_finished = true;
}

void fm_socket_close(fm_socket *socket) {
    assert(!socket->is_closed);
    socket->is_closed = true;
}

/* -- the server around the connection */

static fm_status open_plan(void *context, const fm_wire_open *params, void **ret_plan,
                           fm_source_facts *ret_facts, fm_error *reterr) {
    (void)context;
    (void)ret_plan;
    (void)ret_facts;
    return fm_fail(reterr, FM_ERR_NOT_FOUND, "no plan is called '%s'", params->plan);
}

static void on_server(void *server) {
    (void)server;
}

static void on_greeted(void *server, fm_conn *conn) {
    (void)server;
    (void)conn;
}

static void on_conn_closed(void *server, fm_conn *conn) {
    (void)conn;
    *(bool *)server = true;
}

typedef struct world {
    fm_tls_context *peer_context;
    fm_access *access;
    fm_accounts *accounts;
    char cert[64], key[64], ca[64], ca_key[64], tokens[64];
} world;

static void die(const char *what, const fm_error *error) {
    fprintf(stderr, "fuzz_tls: %s: %s\n", what, error->message);
    abort();
}

/* Certificates, and a server that demands a token. The files are read once. */
static void make_world(world *w) {
    static const char *const hosts[] = {"localhost"};
    char folder[] = "/tmp/fuzz-tls-XXXXXX";
    fm_error error = {0};
    if (!mkdtemp(folder)) die("no folder", &error);
    snprintf(w->cert, sizeof w->cert, "%s/cert", folder);
    snprintf(w->key, sizeof w->key, "%s/key", folder);
    snprintf(w->ca, sizeof w->ca, "%s/ca", folder);
    snprintf(w->ca_key, sizeof w->ca_key, "%s/ca_key", folder);
    snprintf(w->tokens, sizeof w->tokens, "%s/tokens", folder);
    fm_certificate_request request = {.kind = FM_CERTIFICATE_AUTHORITY,
                                      .name = "fuzz",
                                      .from_s = time(NULL) - 3600,
                                      .until_s = time(NULL) + 1000000};
    const fm_certificate_files ca = {w->ca, w->ca_key}, server = {w->cert, w->key};
    if (fm_certificate_make(&request, NULL, &ca, &error)) die("certificate", &error);
    request.kind = FM_CERTIFICATE_SERVER;
    request.hosts = hosts;
    request.n_host = 1;
    if (fm_certificate_make(&request, &ca, &server, &error)) die("certificate", &error);
    FILE *tokens = fopen(w->tokens, "w");
    if (!tokens || fputs("a 0123456789abcdef\n", tokens) < 0 || fclose(tokens)) {
        die("tokens", &error);
    }
    const fm_credentials credentials = {
        .tls_cert = w->cert, .tls_key = w->key, .token_file = w->tokens};
    if (fm_access_create(&credentials, true, NULL, &w->access, &error)) die("access", &error);
    const fm_tls_options options = {.side = FM_TLS_CLIENT, .ca = w->ca};
    if (fm_tls_context_create(&options, &w->peer_context, &error)) die("context", &error);
    if (fm_accounts_create(&w->accounts, &error)) die("accounts", &error);
    const char *const paths[] = {w->cert, w->key, w->ca, w->ca_key, w->tokens};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        unlink(paths[i]);
    rmdir(folder);
}

/* -- the peer */

typedef struct play {
    fm_socket socket;
    fm_conn *conn;
    fm_tls *peer;
    bool is_ready, is_broken; /* of the peer */
    uint64_t now_ms;
} play;

/* Bytes arrive at the server, as often as it asks for them. */
static void arrive(play *p, const uint8_t *bytes, size_t n) {
    while (n && !p->socket.is_closed) {
        uint8_t *at = NULL;
        size_t room = 0;
        p->socket.events->room(p->socket.owner, &at, &room);
        assert(at && room);
        size_t take = n < room ? n : room;
        memcpy(at, bytes, take);
        p->socket.events->received(p->socket.owner, take);
        bytes += take;
        n -= take;
    }
}

/* The peer's output arrives, with `noise` in it. */
static void send_out(play *p, const uint8_t *noise, size_t n_noise) {
    fm_bytes out = fm_tls_out(p->peer);
    uint8_t *bytes = malloc(out.size ? out.size : 1);
    assert(bytes);
    if (out.size) memcpy(bytes, out.data, out.size);
    for (size_t i = 0; i < out.size && i < n_noise; i++)
        bytes[i] ^= noise[i];
    fm_tls_sent(p->peer, out.size);
    arrive(p, bytes, out.size);
    free(bytes);
}

/* The socket has taken the write; the peer reads it. */
static void take_write(play *p) {
    if (!p->socket.is_writing) return;
    uint8_t *bytes = p->socket.written;
    size_t n = p->socket.n_written;
    p->socket.is_writing = false;
    p->socket.written = NULL;
    if (!p->is_broken) {
        uint8_t plain[4096];
        size_t got = 0;
        fm_tls_feed(p->peer, (fm_bytes){bytes, n});
        if (!p->is_ready) p->is_broken = (bool)fm_tls_handshake(p->peer, &p->is_ready, NULL);
        do {
            if (p->is_ready && !p->is_broken) {
                p->is_broken = (bool)fm_tls_read(p->peer, plain, sizeof plain, &got, NULL);
            }
        } while (got && !p->is_broken);
        p->is_broken = p->is_broken || fm_tls_fed_bytes(p->peer);
    }
    free(bytes);
    p->socket.events->written(p->socket.owner, false);
}

static void step(play *p, uint8_t operation, const uint8_t *bytes, size_t n) {
    size_t taken;
    switch (operation % 6) {
    case 0: arrive(p, bytes, n); break;
    case 1:
        if (!p->is_ready && !p->is_broken) {
            p->is_broken = (bool)fm_tls_handshake(p->peer, &p->is_ready, NULL);
        }
        send_out(p, bytes, n);
        break;
    case 2:
        if (!p->is_ready || p->is_broken || n == 0) break;
        if (!fm_tls_write(p->peer, (fm_bytes){bytes, n}, &taken, NULL)) send_out(p, NULL, 0);
        break;
    case 3:
        fm_tls_finish(p->peer);
        send_out(p, NULL, 0);
        break;
    case 4:
        p->now_ms += 16 * n;
        fm_conn_tick(p->conn, p->now_ms);
        break;
    case 5: take_write(p); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static world w;
    if (!w.access) make_world(&w);
    static fm_counters counters;
    static const fm_limits limits = {.n_stream = 4, .requests_per_s = 1000};
    bool is_over = false;
    fm_budget budget = {.max_bytes = 1 << 20};
    fm_sample_source source = {.snapshot_name = "all", .n_chain = 1, .open = open_plan};
    fm_offer offer = {.current = &source, .n_current = 1};
    const fm_conn_host host = {.offer = &offer,
                               .budget = &budget,
                               .counters = &counters,
                               .access = w.access,
                               .accounts = w.accounts,
                               .peer_limits = &limits,
                               .hello_ms = 5000,
                               .heartbeat_ms = 5000,
                               .stall_ms = 300000,
                               .goodbye_ms = 2000,
                               .idle_ms = 60000,
                               .min_bytes_per_s = 65536,
                               .server = &is_over,
                               .work_wanted = on_server,
                               .turn_free = on_server,
                               .greeted = on_greeted,
                               .conn_closed = on_conn_closed};
    play p = {.socket = {.peer = {.kind = FM_ADDRESS_TLS, .text = "192.0.2.1"}}, .now_ms = 1000};
    fm_log_set_level(FM_LOG_ERROR);
    fm_account *account = fm_accounts_use(w.accounts, "192.0.2.1", &limits, p.now_ms);
    assert(account);
    if (fm_tls_open(w.peer_context, "localhost", &p.peer, NULL)) abort();
    p.conn = fm_conn_create(&host, &p.socket, account, true, 1, p.now_ms);
    assert(p.conn);
    fm_conn_start(p.conn);
    for (size_t at = 0; at + 3 <= size && !p.socket.is_closed;) {
        size_t n = data[at + 1] | (size_t)data[at + 2] << 8, left = size - at - 3;
        if (n > left) n = left;
        step(&p, data[at], data + at + 3, n);
        at += 3 + n;
    }
    if (!p.socket.is_closed) p.socket.events->gone(p.socket.owner);
    assert(p.socket.is_closed);
    if (p.socket.is_writing) {
        p.socket.is_writing = false;
        p.socket.events->written(p.socket.owner, true);
    }
    free(p.socket.written);
    p.socket.events->closed(p.socket.owner);
    assert(is_over);
    fm_tls_close(p.peer);
    fm_accounts_tick(w.accounts, p.now_ms + 1000000);
    return 0;
}
