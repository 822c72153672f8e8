/* histogram.h: durations in buckets of a few per cent: what waits are reported with.
 *
 * Values below 16 have a bucket each; above, every power of two has 16 buckets, so a percentile is
 * at most 6.25 % above the truth. Fixed size, no allocation, mergeable. */
#ifndef FM_BASE_HISTOGRAM_H
#define FM_BASE_HISTOGRAM_H

#include <stdint.h>

enum { FM_HISTOGRAM_BUCKETS = 61 * 16 };

typedef struct fm_histogram {
    uint64_t n;   /* values */
    uint64_t sum; /* of all values; wraps past 584 years of nanoseconds */
    uint64_t max;
    uint64_t bucket[FM_HISTOGRAM_BUCKETS];
} fm_histogram; /* all zero = empty */

/* Adds a value, in the caller's unit (nanoseconds for waits). */
void fm_histogram_add(fm_histogram *histogram, uint64_t value);

/* Adds all values of `other`. */
void fm_histogram_merge(fm_histogram *histogram, const fm_histogram *other);

/* The smallest bucket end that at least `per_mille` / 1000 of the values do not pass, never above
 * max; 0 when empty. per_mille 500 is the median, 1000 the maximum. */
uint64_t fm_histogram_percentile(const fm_histogram *histogram, uint32_t per_mille);

/* Monotonic time in nanoseconds: what durations are measured with. */
uint64_t fm_clock_ns(void);

#endif
