/* divergence.c: see divergence.h. */
#include "trainer/app/train/divergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The quantile of sorted values, by nearest rank. */
static double quantile(const double *sorted, size_t n, double share) {
    size_t rank = (size_t)ceil(share * (double)n);
    return sorted[rank ? rank - 1 : 0];
}

/* Copies the steps first .. first + n - 1 of a ring, sorted. */
static void copy_sorted(const double *ring, uint64_t first, size_t n, double *out) {
    for (size_t i = 0; i < n; i++)
        out[i] = ring[(first + i) % FM_DIVERGENCE_WINDOW];
    qsort(out, n, sizeof *out, ascending);
}

bool fm_divergence_add(fm_divergence *d, double loss, double norm, char *why, size_t why_bytes) {
    static const char *const names[FM_DIVERGENCE_SERIES] = {"loss", "gradient norm"};
    if (!isfinite(loss) || !isfinite(norm)) return false;
    d->value[0][d->n % FM_DIVERGENCE_WINDOW] = loss;
    d->value[1][d->n % FM_DIVERGENCE_WINDOW] = norm;
    d->n++;
    if (d->n < FM_DIVERGENCE_LEAST + FM_DIVERGENCE_NEWEST) return false;
    uint64_t newest_at = d->n - FM_DIVERGENCE_NEWEST;
    size_t n_older = newest_at < FM_DIVERGENCE_OLDER ? (size_t)newest_at : FM_DIVERGENCE_OLDER;
    for (int i = 0; i < FM_DIVERGENCE_SERIES; i++) {
        double older[FM_DIVERGENCE_OLDER], newest[FM_DIVERGENCE_NEWEST];
        copy_sorted(d->value[i], newest_at - n_older, n_older, older);
        copy_sorted(d->value[i], newest_at, FM_DIVERGENCE_NEWEST, newest);
        double median = quantile(newest, FM_DIVERGENCE_NEWEST, 0.5);
        double most = quantile(older, n_older, 0.99);
        if (median <= most) continue;
        snprintf(why, why_bytes,
                 "the %s diverges: the median of the last %d steps is %.4g; of the %zu steps "
                 "before, 99 %% were at most %.4g and half at most %.4g",
                 names[i], FM_DIVERGENCE_NEWEST, median, n_older, most,
                 quantile(older, n_older, 0.5));
        return true;
    }
    return false;
}
