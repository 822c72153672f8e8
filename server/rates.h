/* rates.h: counts and logs what a server did since the previous log line.
 *
 * Samples and bytes are differences of the server's counters. The two times of a sample are added
 * when it is sent. Only the thread of the event loop uses this data. */
#ifndef FM_SERVER_RATES_H
#define FM_SERVER_RATES_H

#include "proto/base/histogram.h"
#include "server/counters.h"

#include <stddef.h>

typedef struct fm_rates {
    uint64_t begun_ms;
    uint64_t n_sample, n_byte, n_failed; /* counters at the beginning */
    fm_histogram prepare_ns, ready_ns;   /* a worker's time; time until it is sent */
} fm_rates;

/* What the server holds when the line is written. */
typedef struct fm_rates_load {
    uint32_t n_connection, n_job; /* admitted connections; jobs that workers have begun */
    size_t n_stream, memory_bytes;
} fm_rates_load;

/* Begins a new line at now_ms, a time of the loop's clock. */
void fm_rates_begin(fm_rates *rates, const fm_counters *counters, uint64_t now_ms);

/* Logs the line, unless nobody was connected, and begins the next one. */
void fm_rates_log(fm_rates *rates, const fm_counters *counters, const fm_rates_load *load,
                  uint64_t now_ms);

#endif
