/* loop.h: the event loop of the server, with its timer, signals and sockets.
 *
 * One thread runs the loop. All functions here belong to that thread, except fm_loop_wake.
 * loop_uv.c implements the loop with libuv and is the only file that includes it.
 *
 * Events. The owner of the loop gets wake, tick and signal. The owner of a socket gets calls in any
 * order and number. They are room (where should bytes go?) followed by received (they arrived),
 * written (the write has ended) and gone (the peer closed, or the connection broke). The last call
 * is closed, once.
 *
 * Writes. A socket has at most one write at a time, with all runs of bytes that are ready. The
 * reason is libuv 1.44: it finishes one write request per turn of the loop, and its queue of
 * requests is unbounded.
 *
 * Memory. The runs of a write must stay valid until the first of `written` and `closed`. The loop
 * frees a socket after its `closed` event, and a listener after fm_listener_close. */
#ifndef FM_SERVER_LOOP_H
#define FM_SERVER_LOOP_H

#include "proto/address.h"
#include "proto/base/bytes.h"

typedef struct fm_loop fm_loop;
typedef struct fm_listener fm_listener;
typedef struct fm_socket fm_socket;

typedef struct fm_loop_events {
    void (*wake)(void *owner);                  /* fm_loop_wake was called, at least once */
    void (*tick)(void *owner, uint64_t now_ms); /* every tick_ms */
    void (*signal)(void *owner, int number);    /* SIGINT, SIGTERM or SIGHUP, when watched */
} fm_loop_events;

/* Also makes the process ignore SIGPIPE, so that writing to a closed connection is an error and
 * does not end the server. `events` must outlive the loop. FM_ERR_NOMEM, FM_ERR_IO. */
FM_MUST_USE fm_status fm_loop_create(const fm_loop_events *events, void *owner, uint32_t tick_ms,
                                     bool watch_signals, fm_loop **ret_loop, fm_error *reterr);

/* Returns after fm_loop_stop was called and every listener and socket is closed. */
void fm_loop_run(fm_loop *loop);
/* Blocks the watched signals in the calling thread, which must be the loop's, and closes the loop's
 * own handles. */
void fm_loop_stop(fm_loop *loop);
/* Frees the loop. It must not be running. */
void fm_loop_destroy(fm_loop *loop);

/* Makes the loop call `wake` soon. Any thread may call it, between create and destroy. */
void fm_loop_wake(fm_loop *loop);

/* Monotonic milliseconds at the start of this turn of the loop. */
uint64_t fm_loop_now_ms(const fm_loop *loop);

/* Accepts connections on a listening socket. It owns the descriptor from now on, also on failure.
 * `accepted` gets each new socket, which is its to close. A connection for which no memory is free
 * waits, and each tick tries again. FM_ERR_NOMEM, FM_ERR_IO. */
FM_MUST_USE fm_status fm_loop_listen(fm_loop *loop, int listening, fm_address_kind kind,
                                     void (*accepted)(void *owner, fm_socket *socket), void *owner,
                                     fm_listener **ret_listener, fm_error *reterr);
void fm_listener_close(fm_listener *listener);

typedef struct fm_socket_events {
    /* Sets where to receive to, and how many bytes fit: at least one. */
    void (*room)(void *owner, uint8_t **ret_at, size_t *ret_bytes);
    void (*received)(void *owner, size_t bytes);
    /* The peer has closed its side, or the connection broke. */
    void (*gone)(void *owner);
    /* The write has ended; failed: the connection is broken or closed. */
    void (*written)(void *owner, bool failed);
    /* After fm_socket_close: nothing more comes, the socket is freed on return. */
    void (*closed)(void *owner);
} fm_socket_events;

/* Who is on the other side of an accepted socket. */
const fm_peer *fm_socket_get_peer(const fm_socket *socket);
/* True when the user on the other side of a unix socket belongs to the group. */
bool fm_socket_is_in_group(const fm_socket *socket, uint32_t gid);

/* Sets who gets the events of an accepted socket; once, before fm_socket_start. */
void fm_socket_own(fm_socket *socket, const fm_socket_events *events, void *owner);
/* Begins to receive. False when it cannot: close the socket. */
FM_MUST_USE bool fm_socket_start(fm_socket *socket);
/* One write of `n` runs; none may be under way. False when it failed at once: close the socket. */
FM_MUST_USE bool fm_socket_write(fm_socket *socket, const fm_bytes *runs, size_t n);
/* Bytes of the current write that the kernel has not taken. */
size_t fm_socket_unsent_bytes(const fm_socket *socket);
/* Bytes that the kernel has taken and the peer has not: unread on a unix socket, not acknowledged
 * on TCP. 0 when the system does not say. */
size_t fm_socket_undelivered_bytes(const fm_socket *socket);
/* Closes the sending side, so that the peer reads an end; receiving continues. */
void fm_socket_finish(fm_socket *socket);
/* Closes the socket; call it once. `closed` follows. */
void fm_socket_close(fm_socket *socket);

#endif
