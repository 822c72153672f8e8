/* histogram.h: a histogram of durations with a resolution of a few per cent, for reporting waits.
 *
 * Values below 16 have one bucket each. Above, every power of two is divided into 16 buckets, so a
 * percentile is at most 6.25 % above the true value. The size is fixed, nothing is allocated, and
 * histograms can be merged. */
#ifndef FM_BASE_HISTOGRAM_H
#define FM_BASE_HISTOGRAM_H

#include <stdint.h>

enum { FM_HISTOGRAM_BUCKETS = 61 * 16 };

typedef struct fm_histogram {
    uint64_t n;   /* number of values */
    uint64_t sum; /* of all values; wraps after 584 years of nanoseconds */
    uint64_t max;
    uint64_t bucket[FM_HISTOGRAM_BUCKETS];
} fm_histogram; /* all zero means empty */

/* Adds a value in the caller's unit (nanoseconds for waits). */
void fm_histogram_add(fm_histogram *histogram, uint64_t value);

/* Adds all values of `other`. */
void fm_histogram_merge(fm_histogram *histogram, const fm_histogram *other);

/* Returns the smallest bucket end that at least `per_mille` / 1000 of the values do not exceed, but
 * never more than max; 0 when empty. per_mille 500 is the median, 1000 the maximum. */
uint64_t fm_histogram_percentile(const fm_histogram *histogram, uint32_t per_mille);

/* Returns how many values are at most `bound`. Values in the bucket that holds `bound` count only
 * when it ends there, so the result may be up to 6.25 % of `bound` too strict, never too lax. */
uint64_t fm_histogram_count_below(const fm_histogram *histogram, uint64_t bound);

/* Returns the monotonic time in nanoseconds, for measuring durations. */
uint64_t fm_clock_ns(void);

#endif
