/* body/real.h: helpers that all bodies share, and how the bodies are compiled.
 *
 * The files of this folder are the text of the CPU kernels. f32.c, f32_avx2.c, tf32.c and f64.c
 * each define `real` and a few names, then include every body. Including text several times, unlike
 * macros that expand to functions, keeps it readable and debuggable as plain C. Everything in a
 * body is static, and only these four files include it.
 *
 * Loops run over the contiguous channel axis, so that the compiler can vectorise them without
 * changing the order of any sum. When the inner loop is itself a sum, it has LANES partial sums in
 * double, which gives the same order with any vector width. */
#ifndef FM_BACKEND_CPU_BODY_REAL_H
#define FM_BACKEND_CPU_BODY_REAL_H

enum { LANES = 8 };

static inline int64_t min_size(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static inline int64_t max_size(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* y = value, or y += value. */
static inline void put(real *y, fm_beta beta, real value) {
    *y = beta == FM_ADD ? *y + value : value;
}

/* y[0..n-1] = x, or += x. */
static inline void put_row(real *restrict y, fm_beta beta, const real *restrict x, int64_t n) {
    if (beta == FM_ADD) {
        for (int64_t i = 0; i < n; i++)
            y[i] += x[i];
    } else {
        for (int64_t i = 0; i < n; i++)
            y[i] = x[i];
    }
}

static inline double add_lanes(const double lane[LANES]) {
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) +
           ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

static inline double dot_product(const real *x, const real *y, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l] * (double)y[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += (double)x[i + l] * (double)y[i + l];
    return add_lanes(lane);
}

static inline double sum_of(const real *x, int64_t n) {
    double lane[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] += (double)x[i + l];
    for (int l = 0; i + l < n; l++)
        lane[l] += (double)x[i + l];
    return add_lanes(lane);
}

/* The largest element. It may miss a NaN; results that are then computed from the elements are NaN
 * all the same. */
static inline real max_of(const real *x, int64_t n) {
    real lane[LANES];
    int64_t i = LANES;
    for (int l = 0; l < LANES; l++)
        lane[l] = x[l < n ? l : 0];
    for (; i + LANES <= n; i += LANES)
        for (int l = 0; l < LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    real largest = lane[0];
    for (; i < n; i++)
        largest = x[i] > largest ? x[i] : largest;
    for (int l = 1; l < LANES; l++)
        largest = lane[l] > largest ? lane[l] : largest;
    return largest;
}

static inline real sigmoid(real x) {
    return (real)1 / ((real)1 + real_exp(-x));
}

/* cblas requires ld >= the row length even for a single row. */
static inline int64_t row_distance(int64_t stride, int64_t length) {
    return max_size(max_size(stride, length), 1);
}

#endif
