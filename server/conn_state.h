/* conn_state.h: the fields of a connection, for the files that implement it.
 *
 *     conn.c       its life: beginning, end and deadlines
 *     conn_in.c    frames that come: greeting, streams, answers
 *     conn_out.c   frames that go: control frames, samples, writes */
#ifndef FM_SERVER_CONN_STATE_H
#define FM_SERVER_CONN_STATE_H

#include "proto/base/log.h"
#include "server/conn.h"
#include "server/out_ring.h"

#include <assert.h>

typedef enum conn_state {
    CONN_HANDSHAKE,
    CONN_AUTH,
    CONN_HELLO,
    CONN_LOOKING,
    CONN_READY,
    CONN_DRAINING,
    CONN_CLOSED
} conn_state;

extern const char *const fm_conn_state_names[];

enum {
    /* Answers enter the ring while fewer entries are in use; the rest is for an END of each stream
     * and an ERROR. */
    FM_CONN_N_ANSWER = 110,
};

static_assert(FM_OUT_N - FM_CONN_N_ANSWER >= FM_LIMIT_N_STREAM + 2, "room for the last frames");

struct fm_conn {
    const fm_conn_host *host;
    fm_channel *channel;
    fm_account *account, *payer; /* of the address; for streams, memory and requests */
    fm_conn *next;
    uint64_t number;                        /* for the log */
    char consumer[FM_WIRE_AGENT_BYTES * 4]; /* what the client calls itself, as the log quotes it */
    conn_state state;
    bool has_turn;                /* its handshake has a turn to run */
    bool has_auth;                /* AUTH came */
    fm_access_tokens *tokens;     /* retained, with `token`; NULL without a token */
    const fm_access_token *token; /* what the peer may use; NULL = everything */
    bool is_turned_away;
    fm_sample_source *source; /* the one that WELCOME named, in use; NULL before */
    fm_wire_hello hello;      /* LOOKING: what it asks for, and the number of the question */
    uint64_t question;
    bool is_finished;        /* nothing more will be written */
    uint64_t now_ms;         /* of the last tick */
    uint64_t accepted_ms;    /* when the connection began */
    uint64_t heard_ms;       /* when bytes came in last */
    uint64_t idle_ms;        /* since when it has no stream */
    uint64_t deadline_ms;    /* for HELLO or for draining; 0 = none */
    uint64_t progress_ms;    /* when the peer had last taken enough bytes, */
    uint64_t progress_bytes; /* and how many it had taken then */
    uint64_t written_bytes;  /* of writes that have ended */
    bool is_ping_open;
    uint64_t n_received, n_sent; /* frames */
    struct {
        uint32_t id;
        fm_server_stream *stream;
    } streams[FM_LIMIT_N_STREAM]; /* stream NULL = free */
    uint32_t turn;                /* the stream that sends first */
    fm_out_ring out;
    size_t in_used;
    uint8_t in[FM_WIRE_CONTROL_BYTES];
    fm_wire_message message; /* the one being handled */
};

/* -- conn.c */

void fm_conn_count(const fm_conn *conn, fm_counter which);
/* Logs an event of the connection. Every line has its number, its peer and the name that the client
 * gives itself. */
void fm_conn_log(const fm_conn *conn, fm_log_level level, const char *event, const char *format,
                 ...) FM_PRINTF(4, 5);

/* Takes the stream in streams[at] from the connection; the server destroys it once it is idle. */
void fm_conn_drop_stream(fm_conn *conn, uint32_t at, const char *why);
void fm_conn_set_state(fm_conn *conn, conn_state state);
/* Closes the socket at once. */
void fm_conn_close(fm_conn *conn, const char *why);
/* Ends the connection after all queued data is sent. */
void fm_conn_drain(fm_conn *conn, const char *why);
/* Sends an ERROR that ends the connection; `which` counts the reason. */
void fm_conn_refuse(fm_conn *conn, fm_counter which, fm_status status, const char *text);

/* -- conn_in.c */

/* Handles the whole frames at the front of the input buffer; returns how many bytes they had. */
size_t fm_conn_take_frames(fm_conn *conn);

/* Answers the HELLO in conn->hello with WELCOME or an ERROR, or sets the state LOOKING. */
void fm_conn_greet(fm_conn *conn);

/* -- conn_out.c */

/* Queues a control frame. */
void fm_conn_send(fm_conn *conn, const fm_wire_message *message);
void fm_conn_send_error(fm_conn *conn, uint32_t stream, fm_wire_scope scope, fm_status status,
                        uint64_t index, const char *text);
void fm_conn_send_end(fm_conn *conn, uint32_t at, fm_wire_reason reason);
/* Starts a write of the entries in the ring, unless one is under way. */
void fm_conn_flush(fm_conn *conn);
/* The write has ended: frees its blocks and sends more. */
void fm_conn_on_written(void *owner, bool failed);

#endif
