/* admission.h: the connections of a server, and which new ones it takes.
 *
 * A connection is admitted when the server and its peer have room, and when not too many others
 * have still to say HELLO. If too many have, one of those is ended to make room. A connection that
 * is not admitted gets an ERROR; a flood of them gets no answer.
 *
 * All functions are called on the thread of the loop. */
#ifndef FM_SERVER_ADMISSION_H
#define FM_SERVER_ADMISSION_H

#include "server/conn.h"

typedef struct fm_admission_rules {
    uint32_t max_connection; /* of all peers */
    uint32_t n_unix_slot;    /* of these, for unix: addresses alone */
    uint32_t max_greeting;   /* connections that have still to say HELLO */
    uint32_t grace_ms;       /* for this long they are not ended for others */
} fm_admission_rules;

typedef struct fm_admission {
    fm_admission_rules rules;
    const fm_conn_host *host;                       /* of every connection */
    fm_conn *conns;                                 /* the newest first */
    uint32_t n_admitted, n_turned_away, n_greeting; /* of conns */
    uint64_t number;                                /* of the newest connection, for the log */
} fm_admission;

/* Takes a socket that a listener has accepted: makes a connection of it, or closes it. */
void fm_admission_take(fm_admission *a, fm_socket *socket, uint64_t now_ms);

/* An admitted connection has said HELLO, or is over (fm_conn_host). */
void fm_admission_greeted(fm_admission *a, fm_conn *conn);

/* Begins handshakes of waiting connections. The newest come first: in a flood the oldest are those
 * whose peers have probably left. */
void fm_admission_begin_waiting(fm_admission *a);

/* Removes a connection that is over from the list and the counts. */
void fm_admission_remove(fm_admission *a, fm_conn *conn);

#endif
