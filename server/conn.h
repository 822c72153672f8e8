/* conn.h: one connection of the server as a flat state machine.
 *
 *     HANDSHAKE ---> AUTH ---> HELLO ---> (LOOKING) ---> READY ---> DRAINING ---> CLOSED
 *                     |          |            |                        ^             ^
 *                     '----------'------------'------------------------'             |
 *                     from any state, when the socket breaks ------------------------'
 *
 * Life. A connection of tls:// begins in HANDSHAKE, and may have to wait for a turn (access.h).
 * Then it is in AUTH, where a token is demanded, else in HELLO; so is any other connection from the
 * start. It must send HELLO within hello_ms of its beginning. A HELLO that asks for an older
 * snapshot by its hash is LOOKING while the server looks for it on disk; frames that follow wait.
 * After WELCOME it is READY: it may open streams, grant credit and receive samples, all of the
 * snapshot that WELCOME named. A breach of the protocol is answered with an ERROR. Then, as after
 * CLOSE and when the server stops, the connection is DRAINING: it sends all queued data, ignores
 * input, and ends when the peer closes. CLOSED waits for the loop to release the socket, and then
 * frees the connection.
 *
 * Patience. While something is queued, the peer must take min_bytes_per_s on average over each
 * stall_ms (READY) or goodbye_ms (DRAINING), or the connection is closed. DRAINING ends after 30
 * goodbye_ms in any case. A READY connection without a stream is closed after idle_ms.
 *
 * Charges. A connection has the account of its peer's address and one that pays for its streams,
 * memory and requests. They are the same until a token names another payer (limits.h).
 *
 * Input. Bytes are received into one fixed buffer, as large as the largest control frame. Whole
 * frames are taken from its front and dispatched through a table by kind and state.
 *
 * Output. Frames wait in a ring of fixed entries. An entry is a whole control frame, or the header
 * of a sample together with the block that holds its body. All entries in the ring are handed to
 * the socket as one write. Samples enter the ring only while most entries are left for control
 * frames. A peer whose requests fill the ring with answers that it does not read gets an ERROR, for
 * which entries are kept free, as for an END of each stream.
 *
 * Memory. The block of a sample belongs to its stream (stream.h). From fm_server_stream_pick until
 * its write has ended, an entry of the ring refers to it. The connection then releases it to the
 * stream, even when the stream was dropped in the meantime. */
#ifndef FM_SERVER_CONN_H
#define FM_SERVER_CONN_H

#include "server/access.h"
#include "server/channel.h"
#include "server/counters.h"
#include "server/limits.h"
#include "server/offer.h"
#include "server/stream.h"

typedef struct fm_conn fm_conn;

/* What connections need from their server. All callbacks run on the thread of the loop. */
typedef struct fm_conn_host {
    const fm_offer *offer;
    fm_budget *budget; /* of the server; that of the peer is in its account */
    fm_counters *counters;
    fm_access *access;
    fm_accounts *accounts;
    const fm_limits *peer_limits; /* of a token, where it has none of its own */
    uint32_t hello_ms, heartbeat_ms, stall_ms, goodbye_ms, idle_ms;
    uint64_t min_bytes_per_s;
    void *server;
    /* A stream may be able to begin a job, or blocks became free. */
    void (*work_wanted)(void *server);
    /* A stream was opened; on FM_OK the server runs its jobs until it is dropped. */
    fm_status (*stream_opened)(void *server, const fm_account *payer, fm_server_stream *stream,
                               fm_error *reterr);
    /* The connection abandoned a stream; the server destroys it once it is idle. */
    void (*stream_dropped)(void *server, const fm_account *payer, fm_server_stream *stream);
    /* A sample was queued, or its failure was reported (work->job.status). */
    void (*sample_sent)(void *server, const fm_work *work);
    /* A handshake is over, so that a waiting connection may begin its own (fm_conn_begin). */
    void (*turn_free)(void *server);
    /* Looks on disk for the snapshot that a HELLO asks for by its hash. Sets the number of the
     * question, for fm_conn_look_again; 0 when too many are open. False, or NULL: there is nowhere
     * to look. */
    bool (*look_for)(void *server, const fm_wire_hello *hello, uint64_t *ret_question);
    /* An admitted connection has said HELLO, or is over; once. */
    void (*greeted)(void *server, fm_conn *conn);
    /* The connection is over; it is freed when this returns. */
    void (*conn_closed)(void *server, fm_conn *conn);
} fm_conn_host;

/* Takes ownership of the socket and a reference to the account. Returns NULL when there is no
 * memory; both are given back then. `host` must outlive the connection. One that is not admitted is
 * turned away after fm_conn_start, before which nothing is received. */
fm_conn *fm_conn_create(const fm_conn_host *host, fm_socket *socket, fm_account *account,
                        bool is_admitted, uint64_t number, uint64_t now_ms);

void fm_conn_start(fm_conn *conn);
/* True while the connection waits for the turn to begin its handshake. */
bool fm_conn_is_waiting(const fm_conn *conn);
/* Begins the handshake of a waiting connection, if it is its turn. */
void fm_conn_begin(fm_conn *conn);

/* The questions up to `answered` were answered: a connection that waits for one is greeted now. */
void fm_conn_look_again(fm_conn *conn, uint64_t answered);
/* The server could not look for the snapshot of this question: a connection that waits for it is
 * told so, since the snapshot may be there. */
void fm_conn_fail_question(fm_conn *conn, uint64_t question, fm_status status);
/* Sends what can be sent; called when a job of one of its streams is done. */
void fm_conn_pump(fm_conn *conn);
/* Checks deadlines and sends heartbeats; called at every tick. */
void fm_conn_tick(fm_conn *conn, uint64_t now_ms);
/* Sends an ERROR that ends a connection that was not admitted, and counts why. */
void fm_conn_turn_away(fm_conn *conn, fm_counter which, const char *text);
/* Ends a connection that has not said HELLO, to make room for another: with an ERROR or without.
 * From now on it counts as turned away. */
void fm_conn_evict(fm_conn *conn, bool is_told);
/* Sends END to every stream, then ends the connection; called when the server stops. */
void fm_conn_end(fm_conn *conn);

/* The account of the peer's address. */
fm_account *fm_conn_get_account(const fm_conn *conn);
bool fm_conn_was_turned_away(const fm_conn *conn);
/* For how long a connection has owed its HELLO, at least 1; 0 once it is past that state. */
uint64_t fm_conn_greeting_ms(const fm_conn *conn, uint64_t now_ms);

/* Links for the host's list of connections. */
fm_conn *fm_conn_get_next(const fm_conn *conn);
void fm_conn_set_next(fm_conn *conn, fm_conn *next);

#endif
