/* channel.h: the plain bytes of one connection of the server, whatever its socket carries.
 *
 *     connection <-> channel <-> socket (loop.h)          plain: the bytes of the socket
 *     connection <-> channel <-> fm_tls <-> socket        TLS: decrypted and encrypted on the way
 *
 * The events are those of a socket (loop.h), and two differ. `secured` comes first on a channel
 * with TLS, when the handshake is over; nothing is received before, and nothing may be written.
 * `gone` names the reason: a stream that was cut is told from one that ended.
 *
 * A write is encrypted and sent in pieces of at most FM_TLS_PIECE_BYTES, one per turn of the loop,
 * so a large sample neither stalls the loop nor doubles its memory. */
#ifndef FM_SERVER_CHANNEL_H
#define FM_SERVER_CHANNEL_H

#include "proto/base/tls.h"
#include "server/loop.h"

enum { FM_CHANNEL_N_RUN = 128 }; /* runs of one write, at most */

typedef struct fm_channel fm_channel;

typedef struct fm_channel_events {
    void (*secured)(void *owner);
    void (*room)(void *owner, uint8_t **ret_at, size_t *ret_bytes);
    void (*received)(void *owner, size_t bytes);
    /* The peer closed, the connection broke, or TLS failed; `why` is for the log. */
    void (*gone)(void *owner, const char *why);
    void (*written)(void *owner, bool failed);
    void (*closed)(void *owner);
} fm_channel_events;

/* Takes ownership of an accepted socket, which is idle until fm_channel_start. NULL when there is
 * no memory; the socket is closed then. */
fm_channel *fm_channel_create(fm_socket *socket, const fm_channel_events *events, void *owner);

/* Begins to receive; with a context begins a TLS handshake. False when it cannot: close it. */
FM_MUST_USE bool fm_channel_start(fm_channel *channel, fm_tls_context *tls);

/* One write of at most FM_CHANNEL_N_RUN runs; none may be under way. The runs must stay valid until
 * `written` or `closed`. False when it failed at once: close the channel. */
FM_MUST_USE bool fm_channel_write(fm_channel *channel, const fm_bytes *runs, size_t n);

/* Bytes of the current write that the kernel has not taken, plain and encrypted together. */
size_t fm_channel_unsent_bytes(const fm_channel *channel);

/* fm_socket_undelivered_bytes: as they are on the wire, with what TLS adds to them. */
size_t fm_channel_undelivered_bytes(const fm_channel *channel);

/* Tells the peer that nothing more comes (with TLS by close_notify, too); receiving continues. No
 * write may be under way. */
void fm_channel_finish(fm_channel *channel);

/* Closes the channel and its socket; call it once. `closed` follows, and frees it. */
void fm_channel_close(fm_channel *channel);

const fm_peer *fm_channel_get_peer(const fm_channel *channel);
/* The common name of the certificate that the peer showed; "" without one. Returns out. */
const char *fm_channel_peer_name(const fm_channel *channel, char out[FM_TLS_NAME_BYTES]);

#endif
