/* bench_median.h: the median of the rounds of a benchmark. */
#ifndef FM_TESTS_BENCH_MEDIAN_H
#define FM_TESTS_BENCH_MEDIAN_H

#include <stddef.h>
#include <stdlib.h>

enum { ROUNDS_MAX = 101 };

static inline int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static inline double median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare_doubles);
    return values[n / 2];
}

#endif
