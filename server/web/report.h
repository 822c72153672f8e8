/* report.h: what an operator sees of a running server: a copy of its state at one moment, and the
 * texts that are made of it.
 *
 * The thread of the loop fills a report (server.h); from then on it belongs to whoever asked for
 * it. Names, agents and reasons come from peers and from files, so every text below escapes them
 * for its own format. */
#ifndef FM_SERVER_WEB_REPORT_H
#define FM_SERVER_WEB_REPORT_H

#include "proto/base/histogram.h"
#include "proto/base/status.h"

#include <stdbool.h>
#include <stdio.h>

enum {
    FM_REPORT_N_SECOND = 600, /* seconds of history */
    FM_REPORT_N_SLOW = 16,    /* chains that took longest to prepare */
    FM_REPORT_N_REFUSED = 32, /* samples that could not be made, the latest first */
    FM_REPORT_NAME_BYTES = 128,
    FM_REPORT_REASON_BYTES = 320,
};

/* One number of the server. */
typedef struct fm_report_value {
    const char *name; /* for /metrics, without the prefix foldmill_ */
    const char *help; /* one sentence */
    bool is_gauge;    /* false: a counter, which never decreases */
    uint64_t value;
} fm_report_value;

/* What happened in one second. */
typedef struct fm_report_second {
    uint32_t n_sample;
    uint64_t n_byte;       /* of samples */
    uint64_t memory_bytes; /* blocks of samples, at its end */
} fm_report_second;

/* One stream of one client. */
typedef struct fm_report_stream {
    uint64_t connection;
    uint32_t stream;
    char peer[FM_REPORT_NAME_BYTES];  /* address, or user of a unix socket */
    char agent[FM_REPORT_NAME_BYTES]; /* what the client calls itself */
    char plan[FM_REPORT_NAME_BYTES];
    char snapshot[256];         /* as clients ask for it */
    uint64_t generation;        /* of its cache */
    uint32_t group, n_group;    /* this consumer's place among the groups of the run */
    uint32_t window;            /* later samples that may overtake one; 0 = strict order */
    uint64_t n_sample, n_total; /* sent so far; UINT64_MAX = no end */
    uint64_t n_byte, n_failed;
    uint64_t credit_items;
    uint32_t n_pending;                /* being made or ready */
    uint64_t wait_p50_ns, wait_p99_ns; /* from ready to sent: waiting for credit or order */
    double age_s;
} fm_report_stream;

/* One snapshot that is open. */
typedef struct fm_report_snapshot {
    char name[256], hash[65];
    uint64_t generation;
    uint32_t n_chain;
    uint32_t n_user;           /* connections and streams that use it */
    uint64_t n_sample, n_byte; /* sent since it was opened */
    bool is_old;               /* open only for connections that began with it */
} fm_report_snapshot;

typedef struct fm_report_slow {
    char chain[FM_REPORT_NAME_BYTES];
    uint64_t index; /* of the sample */
    uint64_t prepare_ns;
} fm_report_slow;

typedef struct fm_report_refusal {
    char chain[FM_REPORT_NAME_BYTES];
    char reason[FM_REPORT_REASON_BYTES];
    uint64_t index; /* of the sample */
    double age_s;
} fm_report_refusal;

/* Durations in ns. */
typedef struct fm_report_times {
    fm_histogram prepare; /* making a sample, on a worker */
    fm_histogram wait;    /* a ready sample waits for order, credit and its turn */
    fm_histogram send;    /* from the start of a write to its end */
} fm_report_times;

/* All streams of one consumer, open and over. The last row may be "other" (consumers.h). */
typedef struct fm_report_consumer {
    char peer[FM_REPORT_NAME_BYTES], agent[FM_REPORT_NAME_BYTES];
    uint32_t n_stream; /* open now */
    uint64_t n_sample, n_byte, n_failed;
    fm_report_times times;
} fm_report_consumer;

typedef struct fm_web_report {
    char version[32];
    uint32_t n_job;
    size_t n_snapshot;
    fm_report_snapshot *snapshot; /* [n_snapshot] the one for clients that ask for none first */
    double uptime_s;
    bool is_ending; /* the server stops: it is alive, but takes no more clients */
    uint64_t memory_limit_bytes;
    size_t n_value;
    fm_report_value *value; /* [n_value] */
    fm_report_times times;
    uint32_t n_second;
    fm_report_second second[FM_REPORT_N_SECOND]; /* the oldest first */
    size_t n_stream;
    fm_report_stream *stream; /* [n_stream] */
    size_t n_consumer;
    fm_report_consumer *consumer; /* [n_consumer] */
    uint32_t n_slow;
    fm_report_slow slow[FM_REPORT_N_SLOW]; /* the slowest first */
    uint32_t n_refused;
    fm_report_refusal refused[FM_REPORT_N_REFUSED]; /* the latest first */
} fm_web_report;

/* Frees the arrays and the report. */
void fm_report_free(fm_web_report *report);

/* Writes the report as one JSON object, which the page and `foldmill top` read. The schema is in
 * docs/reference/server.md. Errors of `out` are the caller's to check. */
void fm_report_json(const fm_web_report *report, FILE *out);

/* Writes the report in the text format of Prometheus, version 0.0.4. */
void fm_report_metrics(const fm_web_report *report, FILE *out);

#endif
