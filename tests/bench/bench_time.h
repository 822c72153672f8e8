/* bench_time.h: the clocks that benchmarks read, and the median of their rounds. */
#ifndef FM_TESTS_BENCH_TIME_H
#define FM_TESTS_BENCH_TIME_H

#include <stddef.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS_MAX = 1001 };

static inline double read_clock_s(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static inline double now_s(void) {
    return read_clock_s(CLOCK_MONOTONIC);
}

/* Processor time of this thread, in which other jobs of the machine do not count. */
static inline double cpu_s(void) {
    return read_clock_s(CLOCK_THREAD_CPUTIME_ID);
}

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
