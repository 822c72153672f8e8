/* golden.h: uses the reference model's .npz files as inputs and expected results of tapes. */
#ifndef FM_TESTS_TRAINER_GOLDEN_H
#define FM_TESTS_TRAINER_GOLDEN_H

#include "tests/trainer/common/op_check.h"

#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"

typedef struct golden {
    fm_arena arena;
    fm_npz npz;
} golden;

/* Opens the file, or skips the test if there is no reference data. */
static inline void golden_open(golden *g, const char *relative) {
    if (!fm_test_reference()) {
        print_message("FM_REFERENCE_DATA is not set: skipped\n");
        skip();
    }
    char path[512];
    fm_error error = {0};
    fm_bytes content;
    assert_int_equal(fm_arena_init(&g->arena, (size_t)1 << 30, NULL), FM_OK);
    fm_test_reference_path(path, sizeof path, relative);
    if (fm_file_read(&g->arena, path, (size_t)64 << 20, &content, &error) ||
        fm_npz_parse(&g->arena, content, &g->npz, &error)) {
        fail_msg("%s: %s", path, error.message);
    }
}

static inline void golden_close(golden *g) {
    fm_arena_fini(&g->arena);
}

/* The array of that name, which must exist. */
static inline const fm_npy *golden_find(const golden *g, const char *prefix, const char *name) {
    char key[256];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    const fm_npy *array = fm_npz_find(&g->npz, key);
    if (!array) fail_msg("no array %s", key);
    return array;
}

static inline double golden_value(const fm_npy *array, uint64_t i) {
    return !strcmp(array->dtype, "<i8") ? (double)((const int64_t *)array->data)[i]
                                        : (double)((const float *)array->data)[i];
}

/* Copies the array to data, in the bench's type. */
static inline void golden_load(const op_bench *bench, void *data, const fm_npy *array) {
    for (uint64_t i = 0; i < array->count; i++)
        op_set(bench, data, (int64_t)i, golden_value(array, i));
}

/* Asserts ||data - scale * array|| / ||scale * array|| < tolerance; `floor` bounds the divisor from
 * below. */
static inline void golden_expect(const op_bench *bench, const char *what, const void *data,
                                 const fm_npy *array, double scale, double tolerance,
                                 double floor) {
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        double a = op_get(bench, data, (int64_t)i), b = scale * golden_value(array, i);
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    double error = sqrt(difference) / fmax(sqrt(norm), floor);
    if (!(error < tolerance)) {
        print_error("%s: relative error %.3g, at most %.0e (norm %.3g)\n", what, error, tolerance,
                    sqrt(norm));
    }
    assert_true(error < tolerance);
}

/* Loads every parameter of the bench from w/NAME, by its OpenFold name. */
static inline void golden_load_parameters(const op_bench *bench, const golden *g,
                                          const char *prefix) {
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        const fm_npy *array = golden_find(g, prefix, row->openfold);
        assert_int_equal(array->count, fm_param_count(row));
        golden_load(bench, fm_params_at(&bench->params, bench->params.master, row->offset), array);
    }
}

/* Compares every parameter's gradient with grad/NAME. */
static inline void golden_expect_gradients(const op_bench *bench, const golden *g,
                                           const char *prefix, double floor) {
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        golden_expect(bench, row->openfold,
                      fm_params_at(&bench->params, bench->params.gradient, row->offset),
                      golden_find(g, prefix, row->openfold), 1, 1e-4, floor);
    }
}

#endif
