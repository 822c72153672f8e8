/* test_confidence.c: tests that pLDDT, PAE and pTM from logits equal those of the reference, and in
 * simple cases the values of their formulas. */
#include "tests/trainer/common/golden.h"

#include "trainer/metrics/confidence.h"

#include <math.h>

static const char *const files[] = {"model/af2.npz", "model/opm_first.npz"};

static void assert_values(const char *what, const fm_npy *expected, const double *found, size_t n) {
    assert_int_equal(expected->count, n);
    for (size_t i = 0; i < n; i++) {
        double want = golden_value(expected, i);
        if (!(fabs(found[i] - want) <= 1e-6 * fmax(1, fabs(want)))) {
            fail_msg("%s, element %zu: %.9g, expected %.9g", what, i, found[i], want);
        }
    }
}

static void confidences_are_the_references(void **state) {
    (void)state;
    for (size_t f = 0; f < sizeof files / sizeof files[0]; f++) {
        golden g;
        golden_open(&g, files[f]);
        const fm_npy *lddt = golden_find(&g, "out/", "lddt_logits");
        size_t n = lddt->shape[1]; /* behind an axis of one sample */
        double *plddt = fm_arena_alloc_array(&g.arena, n, sizeof *plddt);
        for (size_t i = 0; i < n; i++) {
            const float *logits = (const float *)lddt->data + i * lddt->shape[2];
            plddt[i] = fm_confidence_plddt(logits, (int64_t)lddt->shape[2]);
        }
        assert_values("plddt", golden_find(&g, "out/", "plddt"), plddt, n);

        const fm_npy *logits = golden_find(&g, "out/", "tm_logits");
        int64_t n_bin = (int64_t)logits->shape[3];
        assert_int_equal(logits->shape[1], n);
        float *error = fm_arena_alloc_array(&g.arena, n * n, sizeof *error);
        double *wide = fm_arena_alloc_array(&g.arena, n * n, sizeof *wide), ptm = 0;
        double *tm = fm_arena_alloc_array(&g.arena, n, sizeof *tm);
        fm_confidence_pae(logits->data, (uint32_t)n, (uint32_t)n, n_bin, error, tm);
        for (size_t i = 0; i < n * n; i++)
            wide[i] = (double)error[i];
        for (size_t i = 0; i < n; i++)
            ptm = fmax(ptm, tm[i]);
        assert_values("pae", golden_find(&g, "out/", "predicted_aligned_error"), wide, n * n);
        assert_values("ptm", golden_find(&g, "out/", "ptm_score"), &ptm, 1);
        double most = fm_confidence_error_centre(n_bin - 1, n_bin);
        assert_values("max_pae", golden_find(&g, "out/", "max_predicted_aligned_error"), &most, 1);
        golden_close(&g);
    }
}

/* A slab of rows gives what the whole matrix gives. */
static void rows_are_independent(void **state) {
    (void)state;
    enum { N = 23, BINS = 64 };
    static float logits[N * N * BINS], whole[N * N], slab[N * N];
    double tm[N], part[N];
    for (size_t i = 0; i < (size_t)N * N * BINS; i++)
        logits[i] = (float)sin(0.37 * (double)i);
    fm_confidence_pae(logits, N, N, BINS, whole, tm);
    fm_confidence_pae(logits, 9, N, BINS, slab, part);
    fm_confidence_pae(logits + 9 * N * BINS, N - 9, N, BINS, slab + 9 * N, part + 9);
    assert_memory_equal(whole, slab, sizeof whole);
    assert_memory_equal(tm, part, sizeof tm);
}

/* All weight in one class: its centre. */
static void certain_classes_have_their_centres(void **state) {
    (void)state;
    enum { N = 30, BINS = 64 };
    static float logits[N * N * BINS];
    float error[N * N];
    double tm[N], d0 = 1.24 * cbrt(N - 15) - 1.8;
    for (size_t i = 0; i < (size_t)N * N; i++)
        for (size_t b = 0; b < BINS; b++)
            logits[i * BINS + b] = b == 4 ? 1000.0f : 0.0f;
    fm_confidence_pae(logits, N, N, BINS, error, tm);
    assert_true(fabs((double)error[17] - 2.25) < 1e-6);
    assert_true(fabs(tm[3] - 1 / (1 + 2.25 * 2.25 / (d0 * d0))) < 1e-12);
    assert_true(fm_confidence_error_centre(BINS - 1, BINS) == 31.75);
    float sure[50] = {0};
    sure[49] = 1000;
    assert_true(fabs(fm_confidence_plddt(sure, 50) - 99) < 1e-12);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(confidences_are_the_references),
        cmocka_unit_test(rows_are_independent),
        cmocka_unit_test(certain_classes_have_their_centres),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
