/* prepare_times.h: reads measured preparation times of samples into a distribution to draw from.
 *
 * It reads two kinds of text:
 *
 *     a list       one time per line, "MS" or "MS COUNT": milliseconds, and how many samples took
 *                  them (1); lines that begin with # are comments
 *     an export    a server's answer to GET /metrics: its histogram foldmill_prepare_seconds
 *
 * The times in a bucket of the histogram are taken as spread evenly between its bounds. */
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

/* Reads either kind of text. It returns FM_ERR_FORMAT, with the line, when it cannot read a line.
 * It returns FM_ERR_DATA when the text has no times, FM_ERR_LIMIT when it has more than 2^20 lines,
 * and FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_prepare_times_parse(fm_bytes text, fm_prepare_times *ret_times,
                                             fm_error *reterr);
void fm_prepare_times_fini(fm_prepare_times *times);

/* Returns the time in ms that a share u in [0, 1) of all samples does not exceed. */
double fm_prepare_times_at(const fm_prepare_times *times, double u);

/* Returns the mean time in ms. */
double fm_prepare_times_mean(const fm_prepare_times *times);

#endif
