/* histogram.c: see histogram.h. */
#include "proto/base/histogram.h"

#include <assert.h>
#include <stddef.h>
#include <time.h>

static uint32_t bucket_of(uint64_t value) {
    if (value < 16) return (uint32_t)value;
    uint32_t exponent = 63 - (uint32_t)__builtin_clzll(value); /* 4 .. 63 */
    return (exponent - 3) * 16 + (uint32_t)(value >> (exponent - 4) & 15);
}

/* Returns the largest value of a bucket. */
static uint64_t bucket_end(uint32_t bucket) {
    if (bucket < 16) return bucket;
    uint32_t shift = bucket / 16 - 1; /* exponent - 4 */
    uint64_t first = (uint64_t)(16 + bucket % 16) << shift;
    return first + (((uint64_t)1 << shift) - 1);
}

void fm_histogram_add(fm_histogram *histogram, uint64_t value) {
    histogram->n++;
    histogram->sum += value;
    if (value > histogram->max) histogram->max = value;
    histogram->bucket[bucket_of(value)]++;
}

void fm_histogram_merge(fm_histogram *histogram, const fm_histogram *other) {
    histogram->n += other->n;
    histogram->sum += other->sum;
    if (other->max > histogram->max) histogram->max = other->max;
    for (size_t i = 0; i < FM_HISTOGRAM_BUCKETS; i++)
        histogram->bucket[i] += other->bucket[i];
}

uint64_t fm_histogram_percentile(const fm_histogram *histogram, uint32_t per_mille) {
    assert(per_mille <= 1000);
    uint64_t wanted = (histogram->n * per_mille + 999) / 1000, seen = 0;
    for (uint32_t i = 0; histogram->n && i < FM_HISTOGRAM_BUCKETS; i++) {
        seen += histogram->bucket[i];
        if (seen < wanted || seen == 0) continue;
        uint64_t end = bucket_end(i);
        return end < histogram->max ? end : histogram->max;
    }
    return 0;
}

uint64_t fm_histogram_count_below(const fm_histogram *histogram, uint64_t bound) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < FM_HISTOGRAM_BUCKETS && bucket_end(i) <= bound; i++)
        n += histogram->bucket[i];
    return n;
}

uint64_t fm_clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
