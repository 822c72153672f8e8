/* counters.h: the numbers that an operator sees: what a server did, holds, limited and refused.
 *
 * FM_COUNTER_ROWS is the one table. A row is a counter's name in the code, its kind, its name for
 * people and monitoring, and one sentence about it. Code that prints counters goes through
 * fm_counter_rows and needs no list of its own. The loop's thread writes; any thread may read. */
#ifndef FM_SERVER_COUNTERS_H
#define FM_SERVER_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

typedef enum fm_counter_kind {
    FM_COUNTS = 1, /* only grows; its name ends in _total */
    FM_GAUGES = 2, /* the value at present */
} fm_counter_kind;

/* clang-format off */
#define FM_COUNTER_ROWS(X)                                                                         \
    X(CONNECTIONS, GAUGES, "connections", "Connections that are open.")                            \
    X(GREETINGS, GAUGES, "connections_greeting", "Connections that have not said HELLO yet.")      \
    X(ACCEPTED, COUNTS, "connections_accepted_total", "Connections that were accepted.")           \
    X(REFUSED_FULL, COUNTS, "connections_refused_full_total",                                      \
      "Connections refused because the server has its maximum (--max-connections).")               \
    X(REFUSED_PEER, COUNTS, "connections_refused_peer_total",                                      \
      "Connections refused because their peer has its maximum (--peer-connections).")              \
    X(REFUSED_GREETING, COUNTS, "connections_refused_greeting_total",                              \
      "Connections refused because too many others had not said HELLO.")                           \
    X(REFUSED_FLOOD, COUNTS, "connections_refused_flood_total",                                    \
      "Connections closed without an answer, because their peer opens too many too quickly.")      \
    X(HELLO_LATE, COUNTS, "hello_timeouts_total",                                                  \
      "Connections closed because no HELLO came in time.")                                         \
    X(HELLO_EVICTED, COUNTS, "hello_evicted_total",                                                \
      "Connections closed before their HELLO to make room for newer ones.")                        \
    X(HELLO_REFUSED, COUNTS, "hello_refused_total",                                                \
      "HELLOs refused: another version, schema, snapshot or no authorisation.")                    \
    X(HANDSHAKES_REFUSED, COUNTS, "handshakes_refused_total",                                      \
      "Connections that did not get through their TLS handshake.")                                 \
    X(TOKENS_REFUSED, COUNTS, "tokens_refused_total",                                              \
      "Connections refused because they had no access token, or a wrong one.")                     \
    X(USERS_REFUSED, COUNTS, "users_refused_total",                                                \
      "Connections to a Unix socket of users who may not use it (--unix-group).")                  \
    X(IDLE_CLOSED, COUNTS, "connections_idle_closed_total",                                        \
      "Connections closed because they had no stream for too long (--idle-timeout).")              \
    X(STALLED_CLOSED, COUNTS, "connections_stalled_closed_total",                                  \
      "Connections closed because they granted credit and read too slowly (--stall-timeout).")     \
    X(GOODBYE_CUT, COUNTS, "goodbyes_cut_total",                                                   \
      "Ending connections closed before they had read all that was queued.")                       \
    X(PROTOCOL_ERRORS, COUNTS, "protocol_errors_total", "Connections ended by a broken rule.")     \
    X(REQUESTS_REFUSED, COUNTS, "requests_refused_total",                                          \
      "Connections ended because their peer sent too many requests (--peer-requests).")            \
    X(ANSWERS_UNREAD, COUNTS, "answers_unread_total",                                              \
      "Connections ended because they did not read the answers to their requests.")                \
    X(STREAMS, GAUGES, "streams", "Streams that are open.")                                        \
    X(STREAMS_OPENED, COUNTS, "streams_opened_total", "Streams that were opened.")                 \
    X(STREAMS_REFUSED, COUNTS, "streams_refused_total", "OPENs refused for any reason.")           \
    X(STREAMS_REFUSED_PEER, COUNTS, "streams_refused_peer_total",                                  \
      "OPENs refused because their peer has its maximum of streams (--peer-streams).")             \
    X(BYTES_EXHAUSTED, COUNTS, "streams_bytes_exhausted_total",                                    \
      "Streams ended because their token had received all bytes that it may.")                     \
    X(SAMPLES_SENT, COUNTS, "samples_sent_total", "Samples that were queued for sending.")         \
    X(SAMPLE_BYTES, COUNTS, "sample_bytes_sent_total", "Bytes of those samples.")                  \
    X(SAMPLES_FAILED, COUNTS, "samples_failed_total", "Samples that could not be made.")           \
    X(SAMPLES_REMADE, COUNTS, "samples_remade_total",                                              \
      "Samples dropped for lack of memory and credit, to be made again.")                          \
    X(MEMORY, GAUGES, "sample_memory_bytes", "Memory of samples that are made or sent.")           \
    X(MEMORY_WAITS, COUNTS, "memory_waits_total",                                                  \
      "Times a stream had to wait for the memory of its next sample.")                             \
    X(JOBS, GAUGES, "jobs", "Samples that wait for a worker or are being made.")                   \
    X(SNAPSHOTS, GAUGES, "snapshots", "Snapshots that are offered.")                               \
    X(SNAPSHOTS_OLD, GAUGES, "snapshots_old",                                                      \
      "Snapshots that are open for connections that began with them.")                             \
    X(SNAPSHOTS_OPENED, COUNTS, "snapshots_taken_over_total",                                      \
      "Snapshots opened since the start: newer ones, or from a newer generation.")                 \
    X(SNAPSHOTS_FAILED, COUNTS, "snapshots_failed_total",                                          \
      "Snapshots that could not be opened, so that the one before is still offered.")              \
    X(LOG_DROPPED, GAUGES, "log_lines_dropped", "Log lines lost because nobody read the log.")     \
    X(LOG_SUPPRESSED, GAUGES, "log_lines_suppressed",                                              \
      "Log lines left out because their event came too often.")
/* clang-format on */

typedef enum fm_counter {
#define FM_COUNTER_NAME(id, kind, name, help) FM_COUNT_##id,
    FM_COUNTER_ROWS(FM_COUNTER_NAME)
#undef FM_COUNTER_NAME
        FM_N_COUNTER
} fm_counter;

typedef struct fm_counter_row {
    const char *name, *help;
    fm_counter_kind kind;
} fm_counter_row;

extern const fm_counter_row fm_counter_rows[FM_N_COUNTER];

typedef struct fm_counters {
    _Atomic uint64_t value[FM_N_COUNTER];
} fm_counters;

static inline void fm_count(fm_counters *counters, fm_counter which, uint64_t n) {
    atomic_fetch_add_explicit(&counters->value[which], n, memory_order_relaxed);
}

static inline void fm_gauge(fm_counters *counters, fm_counter which, uint64_t value) {
    atomic_store_explicit(&counters->value[which], value, memory_order_relaxed);
}

static inline uint64_t fm_counter_read(const fm_counters *counters, fm_counter which) {
    return atomic_load_explicit(&counters->value[which], memory_order_relaxed);
}

#endif
