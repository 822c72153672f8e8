/* score.c: see score.h. */
#include "trainer/step/af3/score.h"

#include "trainer/metrics/superposition.h"

#include <math.h>

static const double RADIUS = 15, THRESHOLDS[] = {0.5, 1, 2, 4};
enum { N_THRESHOLD = sizeof THRESHOLDS / sizeof THRESHOLDS[0] };

static double distance(const double *a, const double *b) {
    double square = 0;
    for (int axis = 0; axis < 3; axis++)
        square += (a[axis] - b[axis]) * (a[axis] - b[axis]);
    return sqrt(square);
}

static double rmsd_of(size_t n, const double *x, const double *truth) {
    const fm_motion motion = fm_superpose(n, x, truth);
    double square = 0;
    for (size_t i = 0; i < n; i++) {
        double moved[3];
        fm_motion_apply(&motion, x + 3 * i, moved);
        double d = distance(moved, truth + 3 * i);
        square += d * d;
    }
    return sqrt(square / (double)n);
}

/* Returns false if no two atoms are close to each other. */
static bool find_lddt(size_t n, const double *x, const double *truth, double *ret_lddt) {
    double hits = 0, pairs = 0;
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < i; j++) {
            double d = distance(truth + 3 * i, truth + 3 * j);
            if (!(d < RADIUS)) continue;
            double error = fabs(distance(x + 3 * i, x + 3 * j) - d);
            for (int k = 0; k < N_THRESHOLD; k++)
                hits += error < THRESHOLDS[k];
            pairs++;
        }
    }
    *ret_lddt = pairs > 0 ? hits / (N_THRESHOLD * pairs) : 0;
    return pairs > 0;
}

fm_status fm_af3_score_structure(const fm_complex_labels *labels, const double *x,
                                 fm_arena *scratch, fm_af3_score *ret_score, fm_error *reterr) {
    const size_t n_atom = (size_t)labels->n_atom, mark = fm_arena_mark(scratch);
    double *made = fm_arena_alloc_array(scratch, 3 * n_atom, sizeof *made);
    double *truth = fm_arena_alloc_array(scratch, 3 * n_atom, sizeof *truth);
    if (!made || !truth) return fm_arena_full(scratch, reterr);
    size_t n = 0;
    for (size_t l = 0; l < n_atom; l++) {
        if (labels->coordinate_mask[l] == 0) continue;
        for (size_t axis = 0; axis < 3; axis++) {
            made[3 * n + axis] = x[3 * l + axis];
            truth[3 * n + axis] = (double)labels->coordinate[3 * l + axis];
        }
        n++;
    }
    *ret_score = (fm_af3_score){.is_known = n > 0};
    ret_score->is_known = n > 0 && find_lddt(n, made, truth, &ret_score->lddt);
    if (ret_score->is_known) {
        ret_score->rmsd = rmsd_of(n, made, truth);
        for (size_t i = 0; i < n; i++)
            truth[3 * i] = -truth[3 * i];
        ret_score->mirror_rmsd = rmsd_of(n, made, truth);
    }
    fm_arena_rewind(scratch, mark);
    return FM_OK;
}
