/* conn.h: one connection as one flat state machine.
 *
 *     HELLO ---> READY ---> DRAINING ---> CLOSED
 *       '----------------------^             ^
 *     a broken socket leads from anywhere to '
 *
 * Bytes come in to one fixed buffer, as large as the largest control frame; whole frames are taken
 * from its front and go through a table by state and kind. Frames go out through a ring of fixed
 * entries, a control frame or a sample's header with its body beside it; all that is in the ring is
 * handed to the socket as one write. Samples enter the ring only while it has room to spare;
 * a peer that makes replies pile up until it is full is cut off. */
#ifndef FM_SERVER_CONN_H
#define FM_SERVER_CONN_H

#include "server/loop.h"
#include "server/stream.h"

typedef struct fm_conn fm_conn;

/* What connections need of their server; all run on the loop's thread. */
typedef struct fm_conn_host {
    const fm_sample_source *source;
    fm_budget *budget;
    uint32_t hello_ms, heartbeat_ms, stall_ms, goodbye_ms;
    void *server;
    /* A stream may have work to begin. */
    void (*work_wanted)(void *server);
    /* A stream was opened; the host runs its jobs until it is dropped. */
    void (*stream_opened)(void *server, fm_server_stream *stream);
    /* A stream was abandoned by its connection: the host destroys it once it is idle. */
    void (*stream_dropped)(void *server, fm_server_stream *stream);
    /* A sample went to the socket's write (body bytes), or could not be made (bytes 0, failed). */
    void (*sample_sent)(void *server, size_t bytes, bool failed);
    /* The connection is over; its memory is freed on return. */
    void (*conn_closed)(void *server, fm_conn *conn);
} fm_conn_host;

/* Takes the socket over. NULL when there is no memory or the socket is broken: it is being closed,
 * and nothing more is heard of it. `host` must outlive the connection. */
fm_conn *fm_conn_create(const fm_conn_host *host, fm_socket *socket, uint64_t number,
                        uint64_t now_ms);

/* A job of one of its streams was done: sends what can be sent. */
void fm_conn_pump(fm_conn *conn);
/* Deadlines and heartbeats. */
void fm_conn_tick(fm_conn *conn, uint64_t now_ms);
/* Refuses a connection that is one too many. */
void fm_conn_refuse(fm_conn *conn, fm_status status, const char *text);
/* The server stops: END to every stream, then goodbye. */
void fm_conn_end(fm_conn *conn);

/* Links for the host's list of connections. */
fm_conn *fm_conn_get_next(const fm_conn *conn);
void fm_conn_set_next(fm_conn *conn, fm_conn *next);

#endif
