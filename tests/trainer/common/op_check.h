/* op_check.h: runs an op on a tape and checks its gradients.
 *
 *     op_bench bench = {0};
 *     op_begin(&bench, FM_ELEMENT_F64);
 *     int x = op_input(&bench, 3, (int64_t[]){3, 5, 8}, true);   then parameters: op_block
 *     op_finish(&bench, build, context);                         plans, fills, binds
 *     op_check_gradients(&bench);                                against central differences
 *     op_end(&bench);
 *
 * The loss is sum(g * out) with random g. Inputs and parameters are uniform in [-1, 1). */
#ifndef FM_TESTS_TRAINER_OP_CHECK_H
#define FM_TESTS_TRAINER_OP_CHECK_H

#include "trainer/autograd/tape.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { OP_INPUTS = 8 };

typedef fm_tensor_ref (*op_builder)(fm_tape *tape, const fm_tensor_ref *input, const void *context);

typedef struct op_bench {
    const fm_kernels *kernels;
    fm_arena arena;
    fm_params params;
    fm_state state;
    fm_tape tape;
    int n_input;
    int32_t input[OP_INPUTS]; /* in the state */
    bool differentiable[OP_INPUTS];
    fm_tensor_ref input_tensor[OP_INPUTS], output_tensor;
    int32_t output_gradient; /* in the state */
    void *memory;
    bool without_gradient;
    const fm_tensor_ref *second_output; /* where the builder stores another output, or NULL */
    int32_t second_gradient;
} op_bench;

static inline double op_uniform(uint32_t stream, int64_t index) {
    fm_draw draw = {20261120, NULL, stream, 98};
    return (double)fm_draw_word(&draw, (uint64_t)index) / 2147483648.0 - 1;
}

static inline double op_get(const op_bench *bench, const void *data, int64_t i) {
    return bench->kernels->act == FM_ELEMENT_F32 ? (double)((const float *)data)[i]
                                                 : ((const double *)data)[i];
}

static inline void op_set(const op_bench *bench, void *data, int64_t i, double value) {
    if (bench->kernels->act == FM_ELEMENT_F32) {
        ((float *)data)[i] = (float)value;
    } else {
        ((double *)data)[i] = value;
    }
}

static inline void op_begin(op_bench *bench, fm_element element) {
    *bench = (op_bench){.kernels = fm_kernels_cpu(element)};
    assert_int_equal(fm_arena_init(&bench->arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&bench->params, 1024, &bench->arena, NULL), FM_OK);
}

static inline int op_input_of(op_bench *bench, fm_element element, int rank, const int64_t *shape,
                              bool differentiable) {
    int at = bench->n_input++;
    bench->input[at] = fm_state_add(&bench->state, "input", element, rank, shape);
    bench->differentiable[at] = differentiable;
    return at;
}

/* An input that is split over ranks. */
static inline int op_input_described(op_bench *bench, const fm_tensor *description,
                                     bool differentiable) {
    int at = bench->n_input++;
    bench->input[at] = fm_state_add_like(&bench->state, description);
    bench->differentiable[at] = differentiable;
    return at;
}

static inline int op_input(op_bench *bench, int rank, const int64_t *shape, bool differentiable) {
    return op_input_of(bench, bench->kernels->act, rank, shape, differentiable);
}

/* A block of one matrix [c_out, c_in], or of a vector if c_in is 0. */
static inline fm_param_ref op_block_after_zeros(op_bench *bench, int64_t zeros, int64_t c_out,
                                                int64_t c_in) {
    fm_param_ref block = fm_params_add_block_after_zeros(&bench->params, zeros);
    fm_params_add(&bench->params, &(fm_param){.rank = c_in ? 2 : 1,
                                              .shape = {c_out, c_in},
                                              .init = FM_INIT_UNIFORM,
                                              .init_scale = 1.0});
    return block;
}

static inline fm_param_ref op_block(op_bench *bench, int64_t c_out, int64_t c_in) {
    return op_block_after_zeros(bench, 0, c_out, c_in);
}

static inline int64_t op_input_count(const op_bench *bench, int i) {
    return fm_tensor_local_count(&bench->state.tensor[bench->input[i]]);
}

static inline void *op_input_data(const op_bench *bench, int i) {
    return fm_state_data(&bench->state, bench->input[i]);
}

/* Fills every real input and every parameter with uniform values; gaps between blocks stay 0. */
static inline void op_fill(op_bench *bench) {
    for (int i = 0; i < bench->n_input; i++) {
        if (bench->state.tensor[bench->input[i]].element == bench->kernels->act) {
            for (int64_t k = 0; k < op_input_count(bench, i); k++)
                op_set(bench, op_input_data(bench, i), k, op_uniform((uint32_t)i + 1, k));
        }
    }
    for (int32_t b = 0; b < bench->params.n_block; b++) {
        const fm_param_block *block = &bench->params.block[b];
        for (int64_t k = block->offset; k < block->offset + block->count; k++)
            op_set(bench, bench->params.master, k, op_uniform(77, k));
    }
    const fm_tensor *gradient = &bench->state.tensor[bench->output_gradient];
    for (int64_t k = 0; k < fm_tensor_local_count(gradient); k++)
        op_set(bench, fm_state_data(&bench->state, bench->output_gradient), k, op_uniform(88, k));
}

/* Fills a mask input with 1 and about one 0 in four; the first element is always 1. */
static inline void op_fill_mask(op_bench *bench, int i, uint32_t stream) {
    for (int64_t k = 0; k < op_input_count(bench, i); k++)
        op_set(bench, op_input_data(bench, i), k, k == 0 || op_uniform(stream, k) > -0.5);
}

static inline void op_finish(op_bench *bench, op_builder build, const void *context) {
    fm_tape *tape = &bench->tape;
    assert_int_equal(fm_tape_init(tape, bench->kernels, &bench->params, &bench->state,
                                  !bench->without_gradient, NULL),
                     FM_OK);
    tape->seed = 4711;
    for (int i = 0; i < bench->n_input; i++)
        bench->input_tensor[i] = fm_tape_state(tape, bench->input[i], bench->differentiable[i]);
    bench->output_tensor = build(tape, bench->input_tensor, context);
    fm_tape_keep(tape, bench->output_tensor);
    const fm_tensor *out = fm_tape_tensor(tape, bench->output_tensor);
    bench->output_gradient = fm_state_add_like(&bench->state, out);
    if (!bench->without_gradient) {
        fm_tape_seed_gradient(tape, bench->output_tensor, bench->output_gradient);
        if (bench->second_output) {
            const fm_tensor *second = fm_tape_tensor(tape, *bench->second_output);
            bench->second_gradient = fm_state_add_like(&bench->state, second);
            fm_tape_keep(tape, *bench->second_output);
            fm_tape_seed_gradient(tape, *bench->second_output, bench->second_gradient);
        }
        for (int i = 0; i < bench->n_input; i++) {
            if (bench->differentiable[i]) fm_tape_want_gradient(tape, bench->input_tensor[i]);
        }
    }
    assert_int_equal(fm_params_allocate(&bench->params, bench->kernels, NULL), FM_OK);
    assert_int_equal(fm_state_allocate(&bench->state, bench->kernels, NULL), FM_OK);
    assert_int_equal(fm_tape_plan(tape, NULL), FM_OK);
    bench->memory = bench->kernels->alloc((size_t)tape->size.arena_bytes + 1);
    /* Memory that nothing has written reads as NaN. */
    memset(bench->memory, 0xff, (size_t)tape->size.arena_bytes);
    fm_tape_bind(tape, bench->memory);
    op_fill(bench);
}

static inline void op_end(op_bench *bench) {
    fm_tape_fini(&bench->tape);
    bench->kernels->release(bench->memory);
    fm_state_release(&bench->state);
    fm_params_release(&bench->params);
    fm_arena_fini(&bench->arena);
}

/* sum(g * out) for fixed g. */
static inline double op_loss(op_bench *bench, const double *g) {
    fm_tape_forward(&bench->tape, NULL);
    const void *out = fm_tape_data(&bench->tape, bench->output_tensor);
    int64_t count = fm_tensor_local_count(fm_tape_tensor(&bench->tape, bench->output_tensor));
    double loss = 0;
    for (int64_t k = 0; k < count; k++)
        loss += g[k] * op_get(bench, out, k);
    return loss;
}

static inline void op_check_element(op_bench *bench, const double *g, void *data, int64_t k,
                                    double analytic, const char *what, int number) {
    const double step = 1e-5;
    double old = op_get(bench, data, k);
    op_set(bench, data, k, old + step);
    double above = op_loss(bench, g);
    op_set(bench, data, k, old - step);
    double below = op_loss(bench, g);
    op_set(bench, data, k, old);
    double numeric = (above - below) / (2 * step);
    double error = fabs(numeric - analytic) / fmax(1, fabs(numeric));
    if (!(error < 2e-6)) {
        print_error("%s %d element %lld: backward says %.9g, differences say %.9g\n", what, number,
                    (long long)k, analytic, numeric);
    }
    assert_true(error < 2e-6);
}

/* Runs forward and backward once. *ret_values, which the caller frees, receives the output, the
 * gradients of the differentiable inputs and those of the parameters. Returns their number. */
static inline int64_t op_run(op_bench *bench, double **ret_values) {
    int64_t n = 0,
            n_out = fm_tensor_local_count(fm_tape_tensor(&bench->tape, bench->output_tensor));
    int64_t count = n_out + bench->params.n_element;
    for (int i = 0; i < bench->n_input; i++)
        count += op_input_count(bench, i);
    double *to = calloc((size_t)count, sizeof(double));
    fm_tape_forward(&bench->tape, NULL);
    for (int64_t k = 0; k < n_out; k++)
        to[n++] = op_get(bench, fm_tape_data(&bench->tape, bench->output_tensor), k);
    fm_tape_backward(&bench->tape, NULL);
    for (int i = 0; i < bench->n_input; i++) {
        for (int64_t k = 0; k < op_input_count(bench, i) && bench->differentiable[i]; k++)
            to[n++] = op_get(bench, fm_tape_gradient(&bench->tape, bench->input_tensor[i]), k);
    }
    for (int32_t b = 0; b < bench->params.n_block; b++) {
        const fm_param_block *block = &bench->params.block[b];
        for (int64_t k = block->offset; k < block->offset + block->count; k++)
            to[n++] = op_get(bench, bench->params.gradient, k);
    }
    *ret_values = to;
    return n;
}

/* Expects two results of op_run in f64 to be the same to rounding, and frees them. */
static inline void op_expect_same(int64_t n_a, double *a, int64_t n_b, double *b) {
    assert_int_equal(n_a, n_b);
    for (int64_t k = 0; k < n_a; k++)
        assert_true(fabs(a[k] - b[k]) <= 1e-11 * (1 + fabs(a[k])));
    free(a);
    free(b);
}

/* Checks up to 24 elements of each input and 12 of each parameter block. Needs the f64 table.
 * Backward may leave the gradient of an input in the memory of the output's gradient, which is
 * therefore written before every backward and not after it. */
static inline void op_check_gradients(op_bench *bench) {
    enum { INPUT_CHECKS = 24, PARAM_CHECKS = 12 };
    int64_t n_out = fm_tensor_local_count(fm_tape_tensor(&bench->tape, bench->output_tensor));
    double *g = calloc((size_t)n_out, sizeof(double));
    memcpy(g, fm_state_data(&bench->state, bench->output_gradient), (size_t)n_out * sizeof(double));
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
    int64_t arena_bytes = bench->tape.size.arena_bytes;
    assert_int_equal(fm_tape_used_bytes(&bench->tape), arena_bytes);
    int64_t n_param = bench->params.n_element;
    double *dparam = calloc((size_t)n_param, sizeof(double));
    memcpy(dparam, bench->params.gradient, (size_t)n_param * sizeof(double));
    for (int i = 0; i < bench->n_input; i++) {
        if (!bench->differentiable[i]) continue;
        int64_t count = op_input_count(bench, i);
        double *dx = calloc((size_t)count, sizeof(double));
        memcpy(dx, fm_tape_gradient(&bench->tape, bench->input_tensor[i]),
               (size_t)count * sizeof(double));
        for (int64_t c = 0; c < INPUT_CHECKS && c < count; c++) {
            int64_t k = count <= INPUT_CHECKS ? c : (c * 7919 + 13 * i) % count;
            op_check_element(bench, g, op_input_data(bench, i), k, dx[k], "input", i);
            fm_tape_forward(&bench->tape, NULL);
            memcpy(fm_state_data(&bench->state, bench->output_gradient), g,
                   (size_t)n_out * sizeof(double));
            fm_tape_backward(&bench->tape, NULL);
        }
        free(dx);
    }
    for (int32_t b = 0; b < bench->params.n_block; b++) {
        const fm_param_block *block = &bench->params.block[b];
        for (int64_t c = 0; c < PARAM_CHECKS && c < block->count; c++) {
            int64_t k = block->offset +
                        (block->count <= PARAM_CHECKS ? c : (c * 104729 + 5) % block->count);
            op_check_element(bench, g, (double *)bench->params.master + k, 0, dparam[k], "block",
                             b);
        }
    }
    memcpy(fm_state_data(&bench->state, bench->output_gradient), g, (size_t)n_out * sizeof(double));
    free(dparam);
    free(g);
}

#endif
