/* infer_case.h: a small model for tests of inference. Its parameters are drawn, and then moved so
 * that every block counts. */
#ifndef FM_TESTS_TRAINER_INFER_CASE_H
#define FM_TESTS_TRAINER_INFER_CASE_H

#include "tests/trainer/common/step_sample.h"

#include "trainer/infer/infer.h"

#include <math.h>

static const unsigned all_heads =
    1u << FM_HEAD_PLDDT | 1u << FM_HEAD_DISTOGRAM | 1u << FM_HEAD_ALIGNED_ERROR;

static inline fm_infer_options infer_options(void) {
    const fm_trainer_options small = small_options();
    fm_infer_options options = {.model = small.model, .heads = all_heads};
    memcpy(options.weight, small.weight, sizeof options.weight);
    return options;
}

/* Moves every parameter away from its initial value: many of those are 0, so that a new model's
 * blocks add nothing. */
static inline void shake(fm_params *params) {
    float *master = params->master;
    for (int32_t p = 0; p < params->n_param; p++)
        for (int64_t i = 0; i < fm_param_count(&params->param[p]); i++)
            master[params->param[p].offset + i] += (float)(0.1 * op_uniform(100 + (uint32_t)p, i));
}

static inline fm_infer *create_infer(const fm_infer_options *options) {
    fm_infer *infer = NULL;
    fm_error error = {0};
    if (fm_infer_create(options, &infer, &error)) fail_msg("%s", error.message);
    fm_params_draw(fm_infer_get_params(infer), small_options().seed);
    shake(fm_infer_get_params(infer));
    return infer;
}

static inline fm_infer_result run_infer(fm_infer *infer, const fm_features *features,
                                        fm_arena *arena) {
    fm_infer_result result = {0};
    fm_error error = {0};
    if (fm_infer_run(infer, features, arena, &result, &error)) fail_msg("%s", error.message);
    return result;
}

static inline int set_up(void **state) {
    static fm_arena arena;
    *state = &arena;
    return fm_arena_init(&arena, (size_t)1 << 30, NULL) ? 1 : 0;
}

static inline int tear_down(void **state) {
    fm_arena_fini(*state);
    return 0;
}

static inline void assert_near(const float *a, const float *b, size_t n, double tolerance) {
    for (size_t i = 0; i < n; i++)
        assert_true(fabs((double)a[i] - (double)b[i]) <= tolerance);
}

/* The bytes of device memory that a chain takes. */
static inline int64_t planned_bytes(const fm_infer *infer, int64_t n_res) {
    fm_infer_need need;
    assert_int_equal(fm_infer_find_need(infer, n_res, &need, NULL), FM_OK);
    return need.bytes;
}

#endif
