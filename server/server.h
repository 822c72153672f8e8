/* server.h: `foldmill serve`: listeners, connections, streams and workers around one event loop.
 *
 *     consumers <-> sockets <-> conn (one flat state machine) <-> streams <-> pool <-> source
 *
 * The loop's thread owns everything but the making of samples. What a peer can cost is bounded: a
 * connection by fixed buffers, its frames out by a ring, its streams by the memory budget; samples
 * wait for credit, credit never waits for memory of another stream. No state outlives a
 * connection. The protocol: docs/reference/wire.md. */
#ifndef FM_SERVER_SERVER_H
#define FM_SERVER_SERVER_H

#include "server/source.h"

#include <stdbool.h>

typedef struct fm_server fm_server;

enum { FM_SERVER_N_LISTEN_MAX = 8 };

typedef struct fm_server_options {
    const char *listen[FM_SERVER_N_LISTEN_MAX]; /* addresses; NULL ends */
    uint32_t n_job;                             /* worker threads; 0 = 1 */
    size_t max_memory_bytes;                    /* of samples under way; 0 = 2 GiB */
    size_t worker_memory_bytes;                 /* scratch of each worker; 0 = 1 GiB */
    uint32_t max_connection;                    /* 0 = 256, at most FM_LIMIT_N_CONNECTION */
    uint32_t hello_ms;                          /* until HELLO; 0 = 5,000 */
    uint32_t heartbeat_ms;                      /* of silence before PING; 0 = 5,000 */
    uint32_t stall_ms;   /* a write that does not move for so long ends a connection; 0 = 300,000 */
    uint32_t goodbye_ms; /* how long a connection that ends may take to read what is left for it;
                            0 = 2,000 */
    bool watch_signals;  /* SIGINT and SIGTERM stop it */
} fm_server_options;

/* What is going on, readable from any thread. */
typedef struct fm_server_stats {
    uint64_t n_connection, n_stream;                  /* now */
    uint64_t n_accepted, n_sample_sent, n_bytes_sent; /* ever; bytes of samples */
    uint64_t n_sample_failed;                         /* ever */
    uint64_t memory_bytes;                            /* of samples under way, now */
} fm_server_stats;

/* Binds the addresses and starts the workers. `source` must outlive the server. */
FM_MUST_USE fm_status fm_server_create(const fm_server_options *options,
                                       const fm_sample_source *source, fm_server **ret_server,
                                       fm_error *reterr);
/* Serves until a signal or fm_server_stop; every connection is closed on return. */
void fm_server_run(fm_server *server);
/* Ends every stream with END "the server stops" and closes. Any thread, once or more. */
void fm_server_stop(fm_server *server);
/* After run has returned, or when it never ran. */
void fm_server_destroy(fm_server *server);

/* The i-th address listened on, with its true port; NULL past the last. Lives as long as the
 * server. */
const char *fm_server_get_address(const fm_server *server, size_t i);
void fm_server_get_stats(const fm_server *server, fm_server_stats *ret_stats);

#endif
