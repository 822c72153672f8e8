/* prepare_times.h: how long samples take to prepare, as measured, as a distribution to draw from.
 *
 * Two texts are read:
 *
 *     a list       one time per line, "MS" or "MS COUNT": milliseconds, and how many samples took
 *                  them (1); lines that begin with # are comments
 *     an export    what a server answers to GET /metrics: its histogram foldmill_prepare_seconds
 *
 * A bucket of the histogram counts as times that are spread evenly between its bounds. */
#ifndef FM_PREPARE_TIMES_H
#define FM_PREPARE_TIMES_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

typedef struct fm_prepare_row {
    double low_ms, high_ms;
    double upto; /* samples of this row and of those before it */
} fm_prepare_row;

/* At least one row; rows are in the order of their times. */
typedef struct fm_prepare_times {
    fm_prepare_row *rows;
    size_t n_row;
} fm_prepare_times;

/* Reads either text. FM_ERR_FORMAT names the line; FM_ERR_DATA: there are no times; FM_ERR_LIMIT:
 * more than 2^20 lines; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_prepare_times_parse(fm_bytes text, fm_prepare_times *ret_times,
                                             fm_error *reterr);
void fm_prepare_times_fini(fm_prepare_times *times);

/* The time that a share u in [0, 1) of all samples does not exceed, in ms. */
double fm_prepare_times_at(const fm_prepare_times *times, double u);

/* The mean in ms. */
double fm_prepare_times_mean(const fm_prepare_times *times);

#endif
