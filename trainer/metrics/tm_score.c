/* tm_score.c: TM-score and GDT; see structure_metrics.h.
 *
 * Both scores ask for the motion under which the most points come close. No formula gives this
 * motion, so it is searched for, as in Zhang's TMscore program:
 *
 *   1. Take a fragment of consecutive points: lengths n, n/2, n/4 ... down to 4 points, at every
 *      position.
 *   2. Superpose the fragment on the truth (superposition.h) and measure the distance of all n
 *      points under this motion.
 *   3. Collect the points that are closer than a cut-off, superpose on exactly these, and repeat
 *      until the set no longer changes, at most 20 times.
 *
 * Every motion on the way is scored. TM keeps the best sum of 1 / (1 + (d / d0)^2). GDT keeps, for
 * each threshold separately, the largest number of points within it. */
#include "trainer/metrics/structure_metrics.h"
#include "trainer/metrics/superposition.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { N_GROW = 20, N_LENGTH = 6, MIN_FRAGMENT = 4, N_THRESHOLD = 5, MIN_CLOSE = 3 };

static const double FAR = 1000;                                  /* Å */
static const double thresholds[N_THRESHOLD] = {0.5, 1, 2, 4, 8}; /* Å, for GDT */

double fm_tm_d0(size_t length) {
    double d0 = length > 15 ? 1.24 * cbrt((double)length - 15) - 1.8 : 0.5;
    return d0 > 0.5 ? d0 : 0.5;
}

typedef struct search {
    size_t n, length;
    const double *predicted, *truth; /* [n, 3] */
    double d0, d0_search;            /* Å */
    double *square;                  /* [n] squared distances under the current motion */
    double *from, *to;               /* [n, 3] the points to superpose */
    /* [n + 1] points within the cut-off; [n] points superposed last */
    uint32_t *close, *chosen;
    size_t n_close, n_chosen;
    double best_sum;
    size_t best_count[N_THRESHOLD];
} search;

/* Superposes the chosen points and fills in the squared distances of all points. */
static void superpose_chosen(search *s) {
    for (size_t i = 0; i < s->n_chosen; i++) {
        size_t from = 3 * (size_t)s->chosen[i];
        memcpy(s->from + 3 * i, s->predicted + from, 3 * sizeof(double));
        memcpy(s->to + 3 * i, s->truth + from, 3 * sizeof(double));
    }
    const fm_motion m = fm_superpose(s->n_chosen, s->from, s->to);
    const double *u = m.rotation[0], *v = m.rotation[1], *w = m.rotation[2], *t = m.translation;
    for (size_t i = 0; i < s->n; i++) {
        const double *p = s->predicted + 3 * i, *q = s->truth + 3 * i;
        double x = u[0] * p[0] + u[1] * p[1] + u[2] * p[2] + t[0] - q[0];
        double y = v[0] * p[0] + v[1] * p[1] + v[2] * p[2] + t[1] - q[1];
        double z = w[0] * p[0] + w[1] * p[1] + w[2] * p[2] + t[2] - q[2];
        s->square[i] = x * x + y * y + z * z;
    }
}

/* Lists the points within the cut-off. With fewer than MIN_CLOSE points the cut-off grows in steps
 * of 0.5 Å, up to FAR. */
static void list_close(search *s, double cutoff) {
    for (;; cutoff += 0.5) {
        s->n_close = 0;
        for (size_t i = 0; i < s->n; i++) {
            s->close[s->n_close] = (uint32_t)i;
            s->n_close += s->square[i] < cutoff * cutoff;
        }
        if (s->n_close >= MIN_CLOSE || s->n <= MIN_CLOSE || cutoff > FAR) return;
    }
}

static void keep_best(search *s) {
    double sum = 0, per_square = 1 / (s->d0 * s->d0);
    size_t a = 0, b = 0, c = 0, d = 0, e = 0; /* number of points within each threshold */
    for (size_t i = 0; i < s->n; i++)
        sum += 1 / (1 + s->square[i] * per_square);
    for (size_t i = 0; i < s->n; i++) {
        double square = s->square[i];
        a += square <= thresholds[0] * thresholds[0];
        b += square <= thresholds[1] * thresholds[1];
        c += square <= thresholds[2] * thresholds[2];
        d += square <= thresholds[3] * thresholds[3];
        e += square <= thresholds[4] * thresholds[4];
    }
    const size_t within[N_THRESHOLD] = {a, b, c, d, e};
    if (sum > s->best_sum) s->best_sum = sum;
    for (int t = 0; t < N_THRESHOLD; t++) {
        if (within[t] > s->best_count[t]) s->best_count[t] = within[t];
    }
}

static void try_fragment(search *s, size_t first, size_t length) {
    s->n_chosen = length;
    for (size_t i = 0; i < length; i++)
        s->chosen[i] = (uint32_t)(first + i);
    superpose_chosen(s);
    list_close(s, s->d0_search - 1);
    keep_best(s);
    for (int grow = 0; grow < N_GROW && s->n_close > 0; grow++) {
        s->n_chosen = s->n_close;
        memcpy(s->chosen, s->close, s->n_close * sizeof *s->close);
        superpose_chosen(s);
        list_close(s, s->d0_search + 1);
        keep_best(s);
        bool same = s->n_close == s->n_chosen &&
                    memcmp(s->close, s->chosen, s->n_close * sizeof *s->close) == 0;
        if (same) return;
    }
}

static void run(search *s) {
    size_t least = s->n < MIN_FRAGMENT ? s->n : MIN_FRAGMENT;
    for (int i = 0; i < N_LENGTH; i++) {
        size_t length = s->n >> i;
        bool last = length <= least || i == N_LENGTH - 1;
        if (last) length = least;
        for (size_t first = 0; first + length <= s->n; first++)
            try_fragment(s, first, length);
        if (last) return;
    }
}

fm_status fm_tm_score(size_t n, const double *predicted, const double *truth, size_t length,
                      fm_arena *scratch, fm_tm_scores *ret_scores, fm_error *reterr) {
    size_t mark = fm_arena_mark(scratch);
    double d0 = fm_tm_d0(length);
    search s = {.n = n,
                .length = length,
                .predicted = predicted,
                .truth = truth,
                .d0 = d0,
                .d0_search = d0 > 8     ? 8
                             : d0 < 4.5 ? 4.5
                                        : d0,
                .square = fm_arena_alloc_array(scratch, n, sizeof(double)),
                .from = fm_arena_alloc_array(scratch, n, 3 * sizeof(double)),
                .to = fm_arena_alloc_array(scratch, n, 3 * sizeof(double)),
                .close = fm_arena_alloc_array(scratch, n + 1, sizeof(uint32_t)),
                .chosen = fm_arena_alloc_array(scratch, n, sizeof(uint32_t))};
    if (!s.square || !s.from || !s.to || !s.close || !s.chosen) {
        fm_arena_rewind(scratch, mark);
        return fm_arena_full(scratch, reterr);
    }
    run(&s);
    const size_t *c = s.best_count;
    *ret_scores =
        (fm_tm_scores){.tm = s.best_sum / (double)length,
                       .gdt_ts = (double)(c[1] + c[2] + c[3] + c[4]) / (4 * (double)length),
                       .gdt_ha = (double)(c[0] + c[1] + c[2] + c[3]) / (4 * (double)length)};
    fm_arena_rewind(scratch, mark);
    return FM_OK;
}
