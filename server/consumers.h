/* consumers.h: what each consumer got and waited for, over all of its connections and streams.
 *
 * A consumer is a peer together with the name that its client gives itself. Clients choose names,
 * so the number of rows is bounded, in all and for each peer. A consumer without a row counts in
 * the last one, which is called "other". A row without streams for ten minutes is given to a new
 * consumer when all are taken. What it counted moves to "other", so sums over all rows never
 * decrease.
 *
 * Only the thread of the loop uses it. The cost per sample is fixed. */
#ifndef FM_SERVER_CONSUMERS_H
#define FM_SERVER_CONSUMERS_H

#include "server/pool.h"
#include "server/web/report.h"

enum {
    FM_CONSUMERS_N = 32,        /* rows, beside "other" */
    FM_CONSUMERS_N_OF_PEER = 8, /* of them, for one peer */
    FM_CONSUMERS_KEPT_MS = 600000,
};

typedef struct fm_consumers fm_consumers;

/* Returns NULL when there is no memory. */
fm_consumers *fm_consumers_create(void);
/* NULL is allowed. */
void fm_consumers_destroy(fm_consumers *consumers);

/* A stream of the consumer begins. Returns its row, which is valid as long as `consumers`. */
fm_report_consumer *fm_consumers_begin(fm_consumers *consumers, const char *peer, const char *agent,
                                       uint64_t now_ms);
/* A stream of the row has ended. What it had sent may still be counted. */
void fm_consumers_end(fm_consumers *consumers, fm_report_consumer *row, uint64_t now_ms);

/* A sample was handed to its socket, or could not be made; it had waited for wait_ns. */
void fm_consumer_add(fm_report_consumer *row, const fm_job *job, uint64_t wait_ns);

/* Copies the rows that are in use to the report. False when there is no memory. */
bool fm_consumers_describe(const fm_consumers *consumers, fm_web_report *report);

#endif
