/* server.h: foldmill serve: listeners, connections, streams and workers around one event loop.
 *
 *     client <-> socket (loop.h) <-> connection (conn.h) <-> streams (stream.h) <-> pool (pool.h)
 *                                                                                     |
 *                                                                            source (source.h)
 *     caches (library.h) <- opens and closes (takeover.h) <- offer (offer.h): sources by name
 *
 * The thread of the loop owns everything except the making of samples, which the workers do. The
 * cost of a client is bounded: fixed buffers and a ring of frames per connection, and for each peer
 * a maximum of connections, streams, memory and requests (limits.h). Samples wait for credit,
 * memory goes to the stream that has none first, and the workers serve peers in turn (turns.h), so
 * no client can block another. No state outlives a connection by more than a minute. The protocol
 * is described in docs/reference/wire.md. */
#ifndef FM_SERVER_SERVER_H
#define FM_SERVER_SERVER_H

#include "proto/credentials.h"
#include "server/counters.h"
#include "server/limits.h"
#include "server/library.h"
#include "server/service_manager.h"

#include <stdbool.h>

typedef struct fm_server fm_server;

enum { FM_SERVER_N_LISTEN_MAX = 8 };

typedef struct fm_server_options {
    const char *listen[FM_SERVER_N_LISTEN_MAX]; /* addresses, up to the first NULL */
    const fm_service_sockets *handed; /* further sockets, owned by the server; NULL: none */
    fm_service_manager *manager;      /* where to report; must outlive the server; NULL: nowhere */
    uint32_t n_job;                   /* worker threads; 0 = 1 */
    size_t max_memory_bytes;          /* the budget for samples; 0 = 2 GiB */
    size_t worker_memory_bytes;       /* scratch memory of each worker; 0 = 1 GiB */
    uint32_t max_connection;          /* 0 = 256, at most FM_LIMIT_N_CONNECTION */
    uint32_t grace_ms;                /* a client that owes HELLO for longer makes room; 0 = 250 */
    uint32_t hello_ms;                /* time for HELLO to arrive; 0 = 5,000 */
    uint32_t heartbeat_ms;            /* silence before a PING; 0 = 5,000 */
    uint32_t stall_ms;   /* a client that reads too slowly for so long is closed; 0 = 300,000 */
    uint32_t goodbye_ms; /* the same for a connection that ends; 0 = 2,000 */
    uint32_t idle_ms;    /* a connection without a stream is closed after so long; 0 = 60,000 */
    uint32_t rates_ms;   /* a line of rates is logged so often; 0 = 60,000 */
    uint64_t min_bytes_per_s; /* a client that reads slower is too slow; 0 = 65,536 */
    uint32_t n_unix_slot;     /* of max_connection, kept for Unix sockets; 0 = a sixteenth */
    uint32_t n_greeting;      /* connections without HELLO, in all; 0 = half of max_connection */
    /* Of each address and user. 0 = half of max_connection (at least 16), of these half may be
     * without HELLO; 256 streams; half of max_memory_bytes; 1,000 requests per second; no limit of
     * bytes. */
    fm_limits peer;
    const char *http;    /* "HOST:PORT" of the pages for people and monitoring; NULL: none */
    const char *version; /* for these pages; NULL: "" */
    fm_library *library; /* caches to serve; NULL: the source given to fm_server_create */
    /* Interval of looking for newer generations and snapshots; 0 = only when fm_server_reload
     * asks for it. */
    uint32_t follow_ms;
    uint32_t linger_ms; /* an older snapshot that nobody uses stays open so long; 0 = 5,000 */
    bool watch_signals; /* SIGINT and SIGTERM stop the server, SIGHUP is fm_server_reload */
    fm_credentials credentials; /* of tls:// addresses; the texts must outlive the server */
    const char *unix_group;     /* its members may connect, too; NULL = the server's user only */
    bool is_open_to_all;        /* tls:// may do without certificates and tokens of clients */
} fm_server_options;

/* A summary of the counters; any thread may read them. */
typedef struct fm_server_stats {
    uint64_t n_connection, n_stream;                  /* at present */
    uint64_t n_accepted, n_sample_sent, n_bytes_sent; /* in all; bytes of samples */
    uint64_t n_sample_failed;                         /* in all */
    uint64_t memory_bytes;                            /* blocks of samples at present */
} fm_server_stats;

/* Binds the addresses and starts the workers. The server serves options->library, whose sources it
 * opens and closes from now on, or `source` where there is no library. Both must outlive the
 * server. FM_ERR_USAGE for an address and for credentials that do not fit it; the errors of reading
 * their files (access.h); FM_ERR_EXISTS when another server listens on it, FM_ERR_IO,
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_server_create(const fm_server_options *options, fm_sample_source *source,
                                       fm_server **ret_server, fm_error *reterr);
/* Serves until a signal or fm_server_stop. Every connection is closed when it returns. */
void fm_server_run(fm_server *server);
/* Does what SIGTERM does, for a server in a thread of a test or benchmark: fm_server_run ends every
 * stream with END (reason shutdown) and returns. Any thread may call it, at least once. */
void fm_server_stop(fm_server *server);
/* Does what SIGHUP does, also for such a server: it reads certificates and tokens again, soon, and
 * opens newer generations and snapshots. Streams keep the snapshot that they began with. A file or
 * generation that cannot be read or opened is logged and changes nothing. Any thread may call it.
 */
void fm_server_reload(fm_server *server);
/* Frees the server. It must not be running. */
void fm_server_destroy(fm_server *server);

/* The i-th address, with the port that was bound; NULL beyond the last. The text belongs to the
 * server. */
const char *fm_server_get_address(const fm_server *server, size_t i);
/* "http://HOST:PORT" of the pages, with the port that was bound; NULL without them. */
const char *fm_server_get_http_url(const fm_server *server);
void fm_server_get_stats(const fm_server *server, fm_server_stats *ret_stats);
/* All counters, for tests and benchmarks; a page and /metrics show them to users. Valid as long as
 * the server. */
const fm_counters *fm_server_get_counters(const fm_server *server);

#endif
