/* parity_groups.h: compares the full-size run group by group: the worst error of each group against
 * its limit. */
#ifndef FM_TESTS_TRAINER_PARITY_GROUPS_H
#define FM_TESTS_TRAINER_PARITY_GROUPS_H

#include "tests/trainer/parity/parity_golden.h"

/* What is compared. The limits are about ten times the worst error of the reference's f32 runs. */
typedef enum group_id {
    G_EMBEDDERS,
    G_TEMPLATES,
    G_EXTRA_M,
    G_EXTRA_Z,
    G_EVOFORMER_M,
    G_EVOFORMER_Z,
    G_STRUCTURE,
    G_HEADS,
    G_LOSSES,
    G_COTANGENTS,
    G_GRADIENTS,
    G_GRADIENT_NORMS,
    G_ZERO_GRADIENTS,
    G_CLIP_NORM,
    G_PARAMETERS,
    G_EMA,
    N_GROUP
} group_id;

typedef struct group {
    const char *name;
    double gate, worst;
    char key[160]; /* of the worst error */
    int count;
} group;

/* Adam's first update divides each gradient by its own size. So an element whose gradient is near
 * Adam's epsilon turns the rounding of the products' kernels into a part of the rate. The limit of
 * the parameters is over twice what OpenBLAS's kernels differ by (docs/reference/numerics.md). */
static const group GROUPS[N_GROUP] = {
    [G_EMBEDDERS] = {.name = "input embedder", .gate = 1e-5},
    [G_TEMPLATES] = {.name = "template embedder", .gate = 1e-5},
    [G_EXTRA_M] = {.name = "extra MSA m", .gate = 1e-5},
    [G_EXTRA_Z] = {.name = "extra MSA z", .gate = 1e-5},
    [G_EVOFORMER_M] = {.name = "evoformer m, s", .gate = 1e-5},
    [G_EVOFORMER_Z] = {.name = "evoformer z", .gate = 1e-5},
    [G_STRUCTURE] = {.name = "structure module", .gate = 1e-5},
    [G_HEADS] = {.name = "heads", .gate = 1e-5},
    [G_LOSSES] = {.name = "losses", .gate = 1e-6},
    [G_COTANGENTS] = {.name = "dL/dm dL/dz dL/ds", .gate = 1e-2},
    [G_GRADIENTS] = {.name = "gradients", .gate = 5e-3},
    [G_GRADIENT_NORMS] = {.name = "gradient norms", .gate = 1e-3},
    [G_ZERO_GRADIENTS] = {.name = "zero gradients", .gate = 1e-6},
    [G_CLIP_NORM] = {.name = "clip norm", .gate = 3e-4},
    [G_PARAMETERS] = {.name = "parameters after", .gate = 3e-5},
    [G_EMA] = {.name = "moving average", .gate = 1e-5},
};

/* For errors in units of the errors of the reference's bf16 run: 2 of them for activations, 3 % of
 * each loss, and no limit for what follows the losses. */
static inline void allow_noise(group *groups) {
    for (int g = 0; g < N_GROUP; g++)
        groups[g].gate = g < G_LOSSES ? 2 : g == G_LOSSES ? 3e-2 : INFINITY;
}

/* `verbose`: prints every array. */
static inline void note_in(group *g, const char *key, double error, bool verbose) {
    if (!(error <= g->worst) || g->count == 0) { /* NaN is the worst */
        g->worst = error;
        snprintf(g->key, sizeof g->key, "%s", key);
    }
    g->count++;
    if (verbose) printf("%-64s %.2e\n", key, error);
}

/* Prints one line per group. Returns whether all are within their limits. */
static inline bool report_groups(const group *groups, int n) {
    bool ok = true;
    for (int i = 0; i < n; i++) {
        const group *g = &groups[i];
        bool good = g->count > 0 && g->worst <= g->gate, is_gated = isfinite(g->gate);
        printf("%-18s %5d arrays, worst %.2e of %s (gate %.0e) %s\n", g->name, g->count, g->worst,
               g->count ? g->key : "none", g->gate,
               !good      ? "FAIL"
               : is_gated ? "ok"
                          : "reported");
        ok &= good;
    }
    printf("parity: %s\n", ok ? "ok" : "FAIL");
    return ok;
}

/* Compares the sampled elements of a parameter in `values`, which has all parameters, with row
 * `line` of an array [n, 64]. */
static inline double compare_samples(const float *values, const fm_param *row, const fm_npy *array,
                                     int64_t line) {
    char key[256];
    snprintf(key, sizeof key, "param/%s", row->openfold);
    uint64_t hash = fnv1a(key), count = (uint64_t)fm_param_count(row);
    distance sum = {0};
    for (int64_t j = 0; j < N_PARAM_SAMPLE; j++) {
        uint64_t flat = splitmix(hash + (uint64_t)j) % count;
        add_sample(&sum, (double)values[row->offset + (int64_t)flat],
                   value(array, line * N_PARAM_SAMPLE + j));
    }
    return relative(&sum);
}

static inline double norm_of(const float *values, const fm_param *row) {
    double sum = 0;
    for (int64_t i = 0; i < fm_param_count(row); i++) {
        double x = (double)values[row->offset + i];
        sum += x * x;
    }
    return sqrt(sum);
}

#endif
