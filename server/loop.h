/* loop.h: the event loop, its timer, its signals and its sockets, as the server needs them.
 *
 * One thread runs the loop; everything here but fm_loop_wake belongs to that thread. loop_uv.c puts
 * it on libuv and is the only file that knows. A socket has at most one write under way, of as many
 * runs of bytes as are ready: libuv 1.44 finishes one write request a turn of the loop, and its
 * queue of requests has no bound.
 *
 * Lifetimes: listeners and sockets are freed by the loop after their `closed` event; the memory of
 * a write must stay until `written` or `closed`. */
#ifndef FM_SERVER_LOOP_H
#define FM_SERVER_LOOP_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_loop fm_loop;
typedef struct fm_listener fm_listener;
typedef struct fm_socket fm_socket;

typedef struct fm_loop_events {
    void (*wake)(void *owner);                  /* fm_loop_wake was called, once or more */
    void (*tick)(void *owner, uint64_t now_ms); /* every tick_ms */
    void (*signal)(void *owner, int number);    /* SIGINT or SIGTERM, when watched */
} fm_loop_events;

/* Also makes the process ignore SIGPIPE: a peer that is gone is an error of write, not an end of
 * the server. `events` must outlive the loop. */
FM_MUST_USE fm_status fm_loop_create(const fm_loop_events *events, void *owner, uint32_t tick_ms,
                                     bool watch_signals, fm_loop **ret_loop, fm_error *reterr);

/* Runs until fm_loop_stop was called and every listener and socket is closed. */
void fm_loop_run(fm_loop *loop);
void fm_loop_stop(fm_loop *loop);
/* After run has returned, or when it never ran: closes what is left. */
void fm_loop_destroy(fm_loop *loop);

/* Makes the loop call `wake` soon. From any thread, between create and destroy. */
void fm_loop_wake(fm_loop *loop);

/* Monotonic milliseconds, as of this turn of the loop. */
uint64_t fm_loop_now_ms(const fm_loop *loop);

/* Accepts on a listening socket, which it owns from now on, also on failure. */
FM_MUST_USE fm_status fm_loop_listen(fm_loop *loop, int listening, bool is_tcp,
                                     void (*accepted)(void *owner, fm_socket *socket), void *owner,
                                     fm_listener **ret_listener, fm_error *reterr);
void fm_listener_close(fm_listener *listener);

typedef struct fm_socket_events {
    /* Where to receive to: at least one byte. */
    void (*room)(void *owner, uint8_t **ret_at, size_t *ret_bytes);
    void (*received)(void *owner, size_t bytes);
    /* The peer has closed its side, or the connection broke. */
    void (*gone)(void *owner);
    /* The write is over; failed: the connection is broken or closed. */
    void (*written)(void *owner, bool failed);
    /* After fm_socket_close: nothing more comes, the socket is freed on return. */
    void (*closed)(void *owner);
} fm_socket_events;

/* Begins to receive on an accepted socket. False when it cannot: close it. */
FM_MUST_USE bool fm_socket_start(fm_socket *socket, const fm_socket_events *events, void *owner);
/* One write of `n` runs; none may be under way. False when it failed at once: close the socket. */
FM_MUST_USE bool fm_socket_write(fm_socket *socket, const fm_bytes *runs, size_t n);
/* Bytes of the write under way that the kernel has not taken. */
size_t fm_socket_unsent_bytes(const fm_socket *socket);
/* Says to the peer that nothing more comes; receiving goes on. */
void fm_socket_finish(fm_socket *socket);
/* Once. */
void fm_socket_close(fm_socket *socket);

#endif
