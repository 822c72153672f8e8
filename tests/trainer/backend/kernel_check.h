/* kernel_check.h: checks a kernel that has a gradient.
 *
 * A case gives its inputs, calls of the kernel forward and backward, and an independent formula.
 * check_kernel then asserts that
 *   - f64 forward equals the formula to 1e-11;
 *   - f64 gradients equal central differences of the formula's weighted sum;
 *   - beta 0 does not read (outputs start as NaN) and touches no gap between strided rows;
 *   - beta 1 adds; a gradient alone equals the gradient among others;
 *   - a second run has the same bits;
 *   - float has the same bits with and without AVX2;
 *   - f32 is within the case's tolerance of f64, per tensor ||a - b|| / ||b||. */
#ifndef FM_TESTS_TRAINER_KERNEL_CHECK_H
#define FM_TESTS_TRAINER_KERNEL_CHECK_H

#include "trainer/backend/cpu/cpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CHECK_INPUTS = 8 };

typedef struct kernel_case {
    const char *name;
    int n_in;
    int64_t in_size[CHECK_INPUTS];
    int64_t gap[CHECK_INPUTS];                  /* elements between strided rows, never touched */
    bool is_constant[CHECK_INPUTS];             /* no gradient: masks */
    void (*fill)(const void *ctx, double **in); /* after random values in [-1, 1); may be NULL */
    int64_t out_size;
    void (*forward)(const fm_kernels *k, const void *ctx, void **in, void *out);
    void (*backward)(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                     fm_out *din);
    void (*formula)(const void *ctx, double **in, double *out);
    const void *ctx;
    double tolerance_f32;
} kernel_case;

static inline double check_uniform(uint32_t stream, int64_t index) {
    fm_draw draw = {20260101, NULL, stream, 99};
    return (double)fm_draw_word(&draw, (uint64_t)index) / 2147483648.0 - 1;
}

static inline void *check_alloc(int64_t n, size_t element) {
    void *memory = aligned_alloc(64, ((size_t)n * element + 127) & ~(size_t)63);
    assert_non_null(memory);
    return memory;
}

static inline double *check_random(uint32_t stream, int64_t n) {
    double *x = check_alloc(n, sizeof(double));
    for (int64_t i = 0; i < n; i++)
        x[i] = check_uniform(stream, i);
    return x;
}

/* A buffer of the table's type that holds x, or NaN when x is NULL. */
static inline void *check_buffer(const fm_kernels *k, const double *x, int64_t n) {
    void *memory = check_alloc(n, fm_element_bytes(k->act));
    for (int64_t i = 0; i < n; i++) {
        double value = x ? x[i] : NAN;
        if (k->act == FM_ELEMENT_F32) {
            ((float *)memory)[i] = (float)value;
        } else {
            ((double *)memory)[i] = value;
        }
    }
    return memory;
}

static inline double check_get(const fm_kernels *k, const void *memory, int64_t i) {
    return k->act == FM_ELEMENT_F32 ? (double)((const float *)memory)[i]
                                    : ((const double *)memory)[i];
}

/* Relative distance of two tensors. A NaN in one must be a NaN in the other. */
static inline double check_distance(const fm_kernels *ka, const void *a, const fm_kernels *kb,
                                    const void *b, int64_t n) {
    double difference = 0, size = 1e-300;
    for (int64_t i = 0; i < n; i++) {
        double x = check_get(ka, a, i), y = check_get(kb, b, i);
        if (isnan(x) && isnan(y)) continue;
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(difference / size);
}

#define check_below(value, limit, ...)                                                             \
    do {                                                                                           \
        double check_value = (value), check_limit = (limit);                                       \
        if (!(check_value <= check_limit)) {                                                       \
            print_error(__VA_ARGS__);                                                              \
            fail_msg(": %g is above %g", check_value, check_limit);                                \
        }                                                                                          \
    } while (0)

typedef struct check_run {
    const fm_kernels *k;
    void *in[CHECK_INPUTS], *grad[CHECK_INPUTS], *out, *dout;
} check_run;

static inline check_run check_start(const kernel_case *c, const fm_kernels *k, double **in,
                                    const double *dout) {
    check_run run = {.k = k};
    for (int i = 0; i < c->n_in; i++) {
        run.in[i] = check_buffer(k, in[i], c->in_size[i]);
        run.grad[i] = check_buffer(k, NULL, c->in_size[i]);
    }
    run.out = check_buffer(k, NULL, c->out_size);
    run.dout = check_buffer(k, dout, c->out_size);
    c->forward(k, c->ctx, run.in, run.out);
    fm_out din[CHECK_INPUTS] = {{0}};
    for (int i = 0; i < c->n_in; i++)
        if (!c->is_constant[i]) din[i] = (fm_out){run.grad[i], FM_WRITE};
    if (c->backward) c->backward(k, c->ctx, run.in, run.dout, din);
    return run;
}

static inline void check_end(const kernel_case *c, check_run *run) {
    for (int i = 0; i < c->n_in; i++) {
        free(run->in[i]);
        free(run->grad[i]);
    }
    free(run->out);
    free(run->dout);
}

/* The sum of dout * out of the formula; elements that the formula leaves NaN are skipped. */
static inline double check_weighted(const kernel_case *c, double **in, const double *dout,
                                    double *out) {
    for (int64_t i = 0; i < c->out_size; i++)
        out[i] = NAN;
    c->formula(c->ctx, in, out);
    double total = 0;
    for (int64_t i = 0; i < c->out_size; i++)
        total += isnan(out[i]) ? 0 : dout[i] * out[i];
    return total;
}

/* Compares the gradient of one input with central differences, at about 150 elements at most. */
static inline void check_differences(const kernel_case *c, const check_run *run, double **in,
                                     const double *dout, int which) {
    const double *grad = run->grad[which];
    double *out = check_alloc(c->out_size, sizeof(double)), size = 0, h = 1e-5;
    int64_t n = c->in_size[which], stride = n > 150 ? n / 149 | 1 : 1, gaps = 0;
    for (int64_t i = 0; i < n; i++) {
        gaps += isnan(grad[i]);
        if (!isnan(grad[i])) size = fmax(size, fabs(grad[i]));
    }
    if (gaps != c->gap[which]) {
        fail_msg("%s: input %d: %ld elements untouched, expected %ld", c->name, which, (long)gaps,
                 (long)c->gap[which]);
    }
    for (int64_t i = 0; i < n; i += stride) {
        double kept = in[which][i];
        in[which][i] = kept + h;
        double above = check_weighted(c, in, dout, out);
        in[which][i] = kept - h;
        double below = check_weighted(c, in, dout, out);
        in[which][i] = kept;
        double expected = (above - below) / (2 * h), found = isnan(grad[i]) ? 0 : grad[i];
        check_below(fabs(found - expected), 1e-7 * (1 + size), "%s: gradient %d at %ld", c->name,
                    which, (long)i);
    }
    free(out);
}

/* beta 1 adds to the old content; each gradient alone has the bits that it has among the others. */
static inline void check_betas(const kernel_case *c, const check_run *run) {
    const fm_kernels *k = run->k;
    for (int which = 0; which < c->n_in; which++) {
        if (c->is_constant[which]) continue;
        int64_t n = c->in_size[which];
        size_t bytes = (size_t)n * fm_element_bytes(k->act);
        void *alone = check_buffer(k, NULL, n);
        fm_out din[CHECK_INPUTS] = {{0}};
        din[which] = (fm_out){alone, FM_WRITE};
        c->backward(k, c->ctx, (void **)run->in, run->dout, din);
        if (memcmp(alone, run->grad[which], bytes) != 0) {
            fail_msg("%s: gradient %d alone differs", c->name, which);
        }
        k->fill(NULL, n, 3, alone);
        din[which].beta = FM_ADD;
        c->backward(k, c->ctx, (void **)run->in, run->dout, din);
        for (int64_t i = 0; i < n; i++) {
            double one = check_get(k, run->grad[which], i);
            double sum = 3 + (isnan(one) ? 0 : one);
            check_below(fabs(check_get(k, alone, i) - sum), 1e-11 * (1 + fabs(sum)),
                        "%s: added gradient %d at %ld", c->name, which, (long)i);
        }
        free(alone);
    }
}

static inline void check_same_bits(const kernel_case *c, const check_run *a, const check_run *b) {
    size_t element = fm_element_bytes(a->k->act);
    assert_memory_equal(a->out, b->out, (size_t)c->out_size * element);
    for (int i = 0; i < c->n_in && c->backward; i++)
        assert_memory_equal(a->grad[i], b->grad[i], (size_t)c->in_size[i] * element);
}

static inline void check_singles(const kernel_case *c, const check_run *twice,
                                 const check_run *one) {
    check_below(check_distance(one->k, one->out, twice->k, twice->out, c->out_size),
                c->tolerance_f32, "%s: f32 output", c->name);
    for (int i = 0; i < c->n_in && c->backward; i++) {
        double size = 0; /* a gradient that is zero in f64 is compared absolutely */
        for (int64_t at = 0; at < c->in_size[i]; at++) {
            double value = check_get(twice->k, twice->grad[i], at);
            size += isnan(value) ? 0 : value * value;
        }
        double scale = sqrt(size) > 1e-9 ? 1 : sqrt(size);
        check_below(
            scale * check_distance(one->k, one->grad[i], twice->k, twice->grad[i], c->in_size[i]),
            c->tolerance_f32, "%s: f32 gradient %d", c->name, i);
    }
}

static inline void check_kernel(const kernel_case *c) {
    double *in[CHECK_INPUTS], *dout = check_random(77, c->out_size);
    for (int i = 0; i < c->n_in; i++)
        in[i] = check_random((uint32_t)i, c->in_size[i]);
    if (c->fill) c->fill(c->ctx, in);
    const fm_kernels *f64 = fm_kernels_cpu(FM_ELEMENT_F64), *f32 = fm_kernels_cpu(FM_ELEMENT_F32);
    check_run twice = check_start(c, f64, in, dout), again = check_start(c, f64, in, dout);
    check_run one = check_start(c, f32, in, dout), plain = check_start(c, &fm_cpu_f32, in, dout);
    double *expected = check_alloc(c->out_size, sizeof(double));
    check_weighted(c, in, dout, expected);
    check_below(check_distance(f64, twice.out, f64, expected, c->out_size), 1e-11,
                "%s: f64 output against the formula", c->name);
    for (int i = 0; i < c->n_in && c->backward; i++)
        if (!c->is_constant[i]) check_differences(c, &twice, in, dout, i);
    if (c->backward) check_betas(c, &twice);
    check_same_bits(c, &twice, &again);
    check_same_bits(c, &one, &plain);
    check_singles(c, &twice, &one);
    check_run *runs[] = {&twice, &again, &one, &plain};
    for (int i = 0; i < 4; i++)
        check_end(c, runs[i]);
    for (int i = 0; i < c->n_in; i++)
        free(in[i]);
    free(dout);
    free(expected);
}

/* A workspace of exactly the given bytes, so that the sanitizer sees an access beyond its end. */
static inline void *check_workspace(size_t bytes) {
    void *memory = bytes > 0 ? aligned_alloc(64, (bytes + 63) & ~(size_t)63) : NULL;
    assert_true(bytes == 0 || memory != NULL);
    if (memory) memset(memory, 0xff, bytes); /* NaN: kernels must not rely on its content */
    return memory;
}

#endif
