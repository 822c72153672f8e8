/* conn.h: one connection of the server as a flat state machine.
 *
 *     HANDSHAKE ---> AUTH ---> HELLO ---> READY ---> DRAINING ---> CLOSED
 *                     |          |                      ^             ^
 *                     '----------'----------------------'             |
 *                     from any state, when the socket breaks ---------'
 *
 * Life. A connection of tls:// begins in HANDSHAKE, and first waits for a turn (access.h). Then it
 * is in AUTH, where a token is demanded, else in HELLO; so is any other connection from the start.
 * It must send HELLO within hello_ms of its begin. After WELCOME it is READY: it may open streams,
 * grant credit and receive samples. A breach of the protocol is
 * answered with an ERROR. Then, as after CLOSE and when the server stops, the connection is
 * DRAINING: it sends all queued data, ignores input, and ends within goodbye_ms. CLOSED waits for
 * the loop to release the socket, and then frees the connection.
 *
 * Input. Bytes are received into one fixed buffer, as large as the largest control frame. Whole
 * frames are taken from its front and dispatched through a table by kind and state.
 *
 * Output. Frames wait in a ring of fixed entries. An entry is a whole control frame, or the header
 * of a sample together with the block that holds its body. All entries in the ring are handed to
 * the socket as one write. Samples enter the ring only while entries are left for control frames; a
 * peer whose requests fill the ring with answers that it does not read is disconnected.
 *
 * Memory. The block of a sample belongs to its stream (stream.h). From fm_server_stream_pick until
 * its write has ended, an entry of the ring refers to it. The connection then releases it to the
 * stream, even when the stream was dropped in the meantime. */
#ifndef FM_SERVER_CONN_H
#define FM_SERVER_CONN_H

#include "server/access.h"
#include "server/channel.h"
#include "server/stream.h"

typedef struct fm_conn fm_conn;

/* What connections need from their server. All callbacks run on the thread of the loop. */
typedef struct fm_conn_host {
    const fm_sample_source *source;
    fm_budget *budget;
    fm_access *access;
    uint32_t hello_ms, heartbeat_ms, stall_ms, goodbye_ms;
    void *server;
    /* A stream may be able to begin a job. */
    void (*work_wanted)(void *server);
    /* A stream was opened; the server runs its jobs until it is dropped. */
    void (*stream_opened)(void *server, fm_server_stream *stream);
    /* The connection abandoned a stream; the server destroys it once it is idle. */
    void (*stream_dropped)(void *server, fm_server_stream *stream);
    /* A sample with a body of `bytes` was queued, or could not be made (bytes 0, failed). */
    void (*sample_sent)(void *server, size_t bytes, bool failed);
    /* A handshake is over, so that another connection may begin its own (fm_conn_begin). */
    void (*turn_free)(void *server);
    /* A peer was turned away before HELLO: in its handshake, or for its token. */
    void (*peer_denied)(void *server, bool in_handshake);
    /* The connection is over; it is freed when this returns. */
    void (*conn_closed)(void *server, fm_conn *conn);
} fm_conn_host;

/* Takes ownership of the socket. Returns NULL when there is no memory; the socket is closed then.
 * `host` must outlive the connection. */
fm_conn *fm_conn_create(const fm_conn_host *host, fm_socket *socket, uint64_t number,
                        uint64_t now_ms);

/* True while the connection waits for the turn to begin its handshake. */
bool fm_conn_is_waiting(const fm_conn *conn);
/* Begins the handshake of a waiting connection if it is its turn; false otherwise. */
bool fm_conn_begin(fm_conn *conn);

/* Sends what can be sent; called when a job of one of its streams is done. */
void fm_conn_pump(fm_conn *conn);
/* Checks deadlines and sends heartbeats; called at every tick. */
void fm_conn_tick(fm_conn *conn, uint64_t now_ms);
/* Sends an ERROR that ends the connection. */
void fm_conn_refuse(fm_conn *conn, fm_status status, const char *text);
/* Sends END to every stream, then ends the connection; called when the server stops. */
void fm_conn_end(fm_conn *conn);

/* Links for the host's list of connections. */
fm_conn *fm_conn_get_next(const fm_conn *conn);
void fm_conn_set_next(fm_conn *conn, fm_conn *next);

#endif
