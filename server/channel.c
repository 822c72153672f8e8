/* channel.c: see channel.h.
 *
 * A plain channel hands everything through. With TLS there are two directions.
 *
 * In: the socket receives into `in`. take_received gives those bytes to the session, and moves what
 * it decrypts to where the owner wants it, until nothing is left.
 *
 * Out: the runs of a write are encrypted piece by piece. send_piece fills the session's output from
 * the runs and starts a write of the socket; on_written continues with the next piece. Runs below
 * one record are gathered in `gather`, so that a sample's header does not get a record of its own.
 * What the session puts out by itself (handshake, alerts) goes out by the same door. */
#include "server/channel.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_BYTES = 4096,      /* a client sends small frames */
    GATHER_BYTES = 16384, /* one full record */
};

/* What only a channel with TLS has. */
typedef struct secure_part {
    fm_tls *tls;
    bool is_ready;     /* the handshake is over */
    bool is_failed;    /* TLS failed: the alert is sent, nothing more is read */
    bool is_sending;   /* a write of the socket is under way */
    bool is_writing;   /* a write of the owner is under way */
    bool is_finishing; /* the socket is finished when all is sent */
    fm_bytes runs[FM_CHANNEL_N_RUN];
    size_t n_run, run;  /* runs [run, n_run) are not encrypted; the first may be in part */
    size_t plain_bytes; /* of them */
    size_t sending_bytes;
    uint8_t in[IN_BYTES];
    uint8_t gather[GATHER_BYTES];
} secure_part;

struct fm_channel {
    fm_socket *socket;
    const fm_channel_events *events;
    void *owner;
    bool is_closing;
    secure_part *secure; /* NULL: plain */
};

/* -- TLS out */

/* Moves up to a record of small runs together; returns what to encrypt next. */
static fm_bytes next_plain(secure_part *secure) {
    fm_bytes *first = &secure->runs[secure->run];
    if (first->size >= GATHER_BYTES || secure->run + 1 == secure->n_run) return *first;
    size_t bytes = 0;
    for (size_t i = secure->run; i < secure->n_run && bytes < GATHER_BYTES; i++) {
        size_t n = secure->runs[i].size;
        if (n > GATHER_BYTES - bytes) n = GATHER_BYTES - bytes;
        memcpy(secure->gather + bytes, secure->runs[i].data, n);
        bytes += n;
    }
    return (fm_bytes){secure->gather, bytes};
}

static void advance_runs(secure_part *secure, size_t bytes) {
    secure->plain_bytes -= bytes;
    while (bytes) {
        fm_bytes *first = &secure->runs[secure->run];
        size_t n = bytes < first->size ? bytes : first->size;
        first->data += n;
        first->size -= n;
        bytes -= n;
        if (first->size == 0) secure->run++;
    }
}

/* Encrypts up to a piece of the runs; false when TLS fails. */
static bool encrypt_piece(secure_part *secure) {
    fm_tls_reserve(secure->tls, secure->plain_bytes);
    while (secure->plain_bytes) {
        size_t taken;
        if (fm_tls_write(secure->tls, next_plain(secure), &taken, NULL)) return false;
        if (taken == 0) break;
        advance_runs(secure, taken);
    }
    return true;
}

/* Starts a write of what the session has put out, unless one is under way. */
static bool send_out(fm_channel *channel) {
    secure_part *secure = channel->secure;
    fm_bytes out = fm_tls_out(secure->tls);
    if (secure->is_sending || out.size == 0) return true;
    secure->is_sending = true;
    secure->sending_bytes = out.size;
    if (fm_socket_write(channel->socket, &out, 1)) return true;
    secure->is_sending = false;
    return false;
}

static bool send_piece(fm_channel *channel) {
    return encrypt_piece(channel->secure) && send_out(channel);
}

static bool start_write(fm_channel *channel, const fm_bytes *runs, size_t n) {
    secure_part *secure = channel->secure;
    assert(secure->is_ready && !secure->is_writing && !secure->is_finishing);
    assert(n <= FM_CHANNEL_N_RUN);
    secure->run = secure->n_run = secure->plain_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (runs[i].size == 0) continue;
        secure->runs[secure->n_run++] = runs[i];
        secure->plain_bytes += runs[i].size;
    }
    assert(secure->n_run);
    secure->is_writing = true;
    if (secure->is_sending || send_piece(channel)) return true;
    secure->is_writing = false;
    return false;
}

static void continue_write(fm_channel *channel) {
    secure_part *secure = channel->secure;
    bool is_over = secure->plain_bytes == 0 && fm_tls_out(secure->tls).size == 0;
    if (!is_over) {
        if (send_piece(channel)) return;
        secure->is_writing = false;
        channel->events->written(channel->owner, true);
        return;
    }
    if (secure->is_writing) {
        secure->is_writing = false;
        channel->events->written(channel->owner, false);
    }
    if (channel->is_closing || secure->is_sending) return;
    fm_tls_trim(secure->tls);
    if (secure->is_finishing) fm_socket_finish(channel->socket);
}

static void fail(fm_channel *channel, const char *why) {
    channel->events->gone(channel->owner, why);
}

/* -- TLS in */

/* Ends after an error of TLS: the alert that names it goes out first, if it can at once. */
static void fail_tls(fm_channel *channel, const char *why) {
    channel->secure->is_failed = true;
    (void)send_out(channel);
    fail(channel, why);
}

static void read_plain(fm_channel *channel) {
    while (!channel->is_closing) {
        uint8_t *at = NULL;
        size_t room = 0, bytes;
        channel->events->room(channel->owner, &at, &room);
        fm_error error;
        fm_status status = fm_tls_read(channel->secure->tls, at, room, &bytes, &error);
        if (status) {
            fail_tls(channel, error.message);
            return;
        }
        if (bytes == 0) return;
        channel->events->received(channel->owner, bytes);
    }
}

static void take_received(fm_channel *channel, size_t bytes) {
    secure_part *secure = channel->secure;
    fm_error error;
    fm_tls_feed(secure->tls, (fm_bytes){secure->in, bytes});
    if (!secure->is_ready) {
        if (fm_tls_handshake(secure->tls, &secure->is_ready, &error)) {
            fail_tls(channel, error.message);
            return;
        }
        if (secure->is_ready) channel->events->secured(channel->owner);
    }
    if (secure->is_ready) read_plain(channel);
    if (channel->is_closing) return;
    if (fm_tls_fed_bytes(secure->tls)) {
        fail(channel, "the peer does not read the answers of TLS");
    } else if (!send_out(channel)) {
        fail(channel, "cannot write");
    }
}

/* -- events of the socket */

static void on_room(void *owner, uint8_t **ret_at, size_t *ret_bytes) {
    fm_channel *channel = owner;
    if (!channel->secure) {
        channel->events->room(channel->owner, ret_at, ret_bytes);
        return;
    }
    *ret_at = channel->secure->in;
    *ret_bytes = IN_BYTES;
}

static void on_received(void *owner, size_t bytes) {
    fm_channel *channel = owner;
    if (!channel->secure) {
        channel->events->received(channel->owner, bytes);
    } else if (!channel->secure->is_failed && !channel->is_closing) {
        take_received(channel, bytes);
    }
}

static void on_gone(void *owner) {
    fm_channel *channel = owner;
    bool is_cut = channel->secure && !fm_tls_is_ended(channel->secure->tls);
    fail(channel, is_cut ? "the peer's stream was cut: no close_notify" : "the peer closed");
}

static void on_written(void *owner, bool failed) {
    fm_channel *channel = owner;
    secure_part *secure = channel->secure;
    if (!secure) {
        channel->events->written(channel->owner, failed);
        return;
    }
    secure->is_sending = false;
    fm_tls_sent(secure->tls, secure->sending_bytes);
    if (!failed && !channel->is_closing) {
        continue_write(channel);
    } else if (secure->is_writing) {
        secure->is_writing = false;
        channel->events->written(channel->owner, true);
    } else if (!channel->is_closing) {
        fail(channel, "cannot write");
    }
}

static void on_closed(void *owner) {
    fm_channel *channel = owner;
    channel->events->closed(channel->owner);
    if (channel->secure) fm_tls_close(channel->secure->tls);
    free(channel->secure);
    free(channel);
}

static const fm_socket_events socket_events = {.room = on_room,
                                               .received = on_received,
                                               .gone = on_gone,
                                               .written = on_written,
                                               .closed = on_closed};

/* -- the interface */

fm_channel *fm_channel_create(fm_socket *socket, const fm_channel_events *events, void *owner) {
    fm_channel *channel = calloc(1, sizeof *channel);
    if (!channel) {
        fm_socket_close(socket);
        return NULL;
    }
    *channel = (fm_channel){.socket = socket, .events = events, .owner = owner};
    fm_socket_own(socket, &socket_events, channel);
    return channel;
}

bool fm_channel_start(fm_channel *channel, fm_tls_context *tls) {
    if (tls) {
        channel->secure = calloc(1, sizeof *channel->secure);
        if (!channel->secure || fm_tls_open(tls, NULL, &channel->secure->tls, NULL)) return false;
    }
    return fm_socket_start(channel->socket);
}

bool fm_channel_write(fm_channel *channel, const fm_bytes *runs, size_t n) {
    return channel->secure ? start_write(channel, runs, n)
                           : fm_socket_write(channel->socket, runs, n);
}

size_t fm_channel_unsent_bytes(const fm_channel *channel) {
    return fm_socket_unsent_bytes(channel->socket) +
           (channel->secure ? channel->secure->plain_bytes : 0);
}

size_t fm_channel_undelivered_bytes(const fm_channel *channel) {
    return fm_socket_undelivered_bytes(channel->socket);
}

void fm_channel_finish(fm_channel *channel) {
    secure_part *secure = channel->secure;
    if (!secure) {
        fm_socket_finish(channel->socket);
        return;
    }
    secure->is_finishing = true;
    fm_tls_finish(secure->tls);
    if (!secure->is_sending) continue_write(channel);
}

void fm_channel_close(fm_channel *channel) {
    channel->is_closing = true;
    fm_socket_close(channel->socket);
}

const fm_peer *fm_channel_get_peer(const fm_channel *channel) {
    return fm_socket_get_peer(channel->socket);
}

const char *fm_channel_peer_name(const fm_channel *channel, char out[FM_TLS_NAME_BYTES]) {
    out[0] = '\0';
    bool is_known = channel->secure && channel->secure->is_ready;
    return is_known ? fm_tls_peer_name(channel->secure->tls, out) : out;
}
