/* test_kernels_rows.c: LayerNorm, gates, SwiGLU, ReLU, bias, masks over rows, and dropout: formulas
 * and differences. */
#include "tests/trainer/backend/kernel_check.h"

typedef struct rows {
    int64_t n, c, ld; /* rows, channels, distance of rows of x and y */
    bool masked;
} rows;

/* -- layer normalisation */

enum { LX, LGAMMA, LBETA };

static void layernorm_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    const rows *r = ctx;
    size_t bytes = (size_t)r->n * fm_element_bytes(k->acc);
    fm_layernorm a = {r->n,
                      r->c,
                      r->ld,
                      r->ld,
                      1e-5,
                      in[LX],
                      in[LGAMMA],
                      in[LBETA],
                      out,
                      check_workspace(bytes),
                      check_workspace(bytes)};
    k->layernorm(NULL, &a);
    free(a.mean);
    free(a.rstd);
}

static void layernorm_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                               fm_out *din) {
    const rows *r = ctx;
    size_t bytes = (size_t)r->n * fm_element_bytes(k->acc);
    void *mean = check_workspace(bytes), *rstd = check_workspace(bytes);
    void *y = check_alloc(r->n * r->ld, fm_element_bytes(k->act));
    fm_layernorm a = {r->n, r->c, r->ld, r->ld, 1e-5, in[LX], in[LGAMMA], in[LBETA], y, mean, rstd};
    k->layernorm(NULL, &a);
    void *workspace = check_workspace(k->layernorm_grad_workspace(r->n, r->c));
    fm_layernorm_grad grad = {r->n, r->c, r->ld, r->ld,   r->ld,       in[LX],     in[LGAMMA],
                              dout, mean, rstd,  din[LX], din[LGAMMA], din[LBETA], 0};
    k->layernorm_grad(NULL, &grad, workspace);
    free(workspace), free(y), free(mean), free(rstd);
}

static void layernorm_formula(const void *ctx, double **in, double *out) {
    const rows *r = ctx;
    for (int64_t row = 0; row < r->n; row++) {
        const double *x = in[LX] + row * r->ld;
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < r->c; i++)
            mean += x[i] / (double)r->c;
        for (int64_t i = 0; i < r->c; i++)
            variance += pow(x[i] - mean, 2) / (double)r->c;
        for (int64_t i = 0; i < r->c; i++)
            out[row * r->ld + i] =
                (x[i] - mean) / sqrt(variance + 1e-5) * in[LGAMMA][i] + in[LBETA][i];
    }
}

static void check_layernorm(rows r, double tolerance_f32) {
    kernel_case test = {.name = "layernorm",
                        .n_in = 3,
                        .in_size = {r.n * r.ld, r.c, r.c},
                        .gap = {r.n * (r.ld - r.c)},
                        .out_size = r.n * r.ld,
                        .forward = layernorm_forward,
                        .backward = layernorm_backward,
                        .formula = layernorm_formula,
                        .ctx = &r,
                        .tolerance_f32 = tolerance_f32};
    check_kernel(&test);
}

static void layer_normalisation(void **state) {
    (void)state;
    check_layernorm((rows){5, 7, 7, false}, 2e-6);
    check_layernorm((rows){3, 32, 40, false}, 2e-6);
    check_layernorm((rows){300, 9, 9, false}, 2e-6); /* three partial sums */
    /* Two channels always become +-1: the gradient of x comes from eps alone and is a difference of
     * nearly equal numbers. With one channel y = beta, and no gradient passes to x. */
    check_layernorm((rows){1, 2, 2, false}, 2e-3);
    check_layernorm((rows){2, 1, 1, false}, 2e-6);
}

/* The variance is that of deviations: a large common offset costs no accuracy. */
static void layernorm_of_an_offset(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    float x[64], gamma[64], beta[64], y[64], mean, rstd;
    for (int i = 0; i < 64; i++)
        x[i] = 4096 + (float)(i % 2), gamma[i] = 1, beta[i] = 0;
    fm_layernorm a = {1, 64, 64, 64, 1e-5, x, gamma, beta, y, &mean, &rstd};
    k->layernorm(NULL, &a);
    assert_true(mean == 4096.5f);
    for (int i = 0; i < 64; i++)
        assert_true(fabsf(y[i] - (i % 2 ? 1 : -1)) < 1e-4f);
}

/* Absent weights are ones and zeros, and backward makes absent statistics again: the same bits. */
static void layernorm_without_weights(void **state) {
    (void)state;
    enum { N = 5, C = 7 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    float x[N * C], dy[N * C], ones[C], zeros[C] = {0}, y[2][N * C], dx[2][N * C], mean[N], rstd[N];
    for (int i = 0; i < N * C; i++)
        x[i] = (float)(i * 37 % 11), dy[i] = (float)(i * 23 % 7) - 3;
    for (int i = 0; i < C; i++)
        ones[i] = 1;
    void *workspace = check_workspace(k->layernorm_grad_workspace(N, C));
    for (int bare = 0; bare < 2; bare++) {
        fm_layernorm a = {.rows = N, .c = C, .ldx = C, .ldy = C, .eps = 1e-5, .x = x, .y = y[bare]};
        fm_layernorm_grad g = {
            .rows = N, .c = C, .ldx = C, .lddy = C, .lddx = C, .x = x, .dy = dy, .eps = 1e-5};
        if (!bare) a.gamma = ones, a.beta = zeros, a.mean = mean, a.rstd = rstd;
        if (!bare) g.gamma = ones, g.mean = mean, g.rstd = rstd;
        g.dx = (fm_out){dx[bare], FM_WRITE};
        k->layernorm(NULL, &a);
        k->layernorm_grad(NULL, &g, workspace);
    }
    assert_memory_equal(y[0], y[1], sizeof y[0]);
    assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
    free(workspace);
}

/* -- gate */

enum { GG, GX, GMASK };

static fm_gate bind_gate(const rows *r, void **in, void *y) {
    return (fm_gate){r->n, r->c, r->ld, r->ld, r->c, in[GG], in[GX], r->masked ? in[GMASK] : NULL,
                     y,    0};
}

static void gate_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_gate a = bind_gate(ctx, in, out);
    k->gate(NULL, &a);
}

static void gate_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                          fm_out *din) {
    fm_gate a = bind_gate(ctx, in, NULL);
    fm_gate_grad grad = {dout, din[GG], din[GX]};
    k->gate_grad(NULL, &a, &grad);
}

static void gate_formula(const void *ctx, double **in, double *out) {
    const rows *r = ctx;
    for (int64_t row = 0; row < r->n; row++)
        for (int64_t i = 0; i < r->c; i++)
            out[row * r->c + i] = (r->masked ? in[GMASK][row] : 1) * in[GX][row * r->ld + i] /
                                  (1 + exp(-in[GG][row * r->ld + i]));
}

static void fill_gate(const void *ctx, double **in) {
    const rows *r = ctx;
    for (int64_t row = 0; row < r->n; row++)
        in[GMASK][row] = row % 3 != 1;
    for (int64_t i = 0; i < r->n * r->ld; i++)
        in[GG][i] *= 20;
}

static void gates(void **state) {
    (void)state;
    rows shapes[] = {{6, 5, 5, true}, {4, 3, 12, false}, {1, 1, 1, true}};
    for (int i = 0; i < 3; i++) {
        rows r = shapes[i];
        kernel_case test = {.name = "gate",
                            .n_in = 3,
                            .in_size = {r.n * r.ld, r.n * r.ld, r.n},
                            .gap = {r.n * (r.ld - r.c), r.n * (r.ld - r.c)},
                            .is_constant = {[GMASK] = true},
                            .fill = fill_gate,
                            .out_size = r.n * r.c,
                            .forward = gate_forward,
                            .backward = gate_backward,
                            .formula = gate_formula,
                            .ctx = &r,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

/* Rows of x that are read by several rows give what the same x gives when it is written out. */
static void gates_share_rows(void **state) {
    (void)state;
    enum { ROWS = 6, X_ROWS = 3, WIDTH = 5 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    double g[ROWS * WIDTH], x[ROWS * WIDTH], dy[ROWS * WIDTH];
    double y[2][ROWS * WIDTH], dg[2][ROWS * WIDTH], dx[2][ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++)
        g[i] = sin(i), x[i] = cos(i % (X_ROWS * WIDTH)), dy[i] = sin(3 * i);
    for (int shared = 0; shared < 2; shared++) {
        fm_gate a = {ROWS, WIDTH, WIDTH, WIDTH, WIDTH, g, x, NULL, y[shared], shared ? X_ROWS : 0};
        k->gate(NULL, &a);
        fm_gate_grad grad = {dy, {dg[shared], FM_WRITE}, {dx[shared], FM_WRITE}};
        k->gate_grad(NULL, &a, &grad);
        if (shared) {
            assert_memory_equal(y[0], y[1], sizeof y[0]);
            assert_memory_equal(dg[0], dg[1], sizeof dg[0]);
            assert_memory_equal(dx[0], dx[1], sizeof dx[0]);
        }
        memset(x + X_ROWS * WIDTH, 0, (ROWS - X_ROWS) * WIDTH * sizeof *x);
    }
}

/* -- swish(a) * b; the rows of the projection are ld apart */

static fm_swiglu bind_swiglu(const rows *r, void **in, void *y) {
    return (fm_swiglu){r->n, r->c, r->ld, r->c, in[0], y};
}

static void swiglu_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_swiglu a = bind_swiglu(ctx, in, out);
    k->swiglu(NULL, &a);
}

/* Also computes the product again, to dy: it must have the bits of forward. */
static void swiglu_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                            fm_out *din) {
    const rows *r = ctx;
    size_t bytes = (size_t)(r->n * r->c) * fm_element_bytes(k->act);
    void *y = check_workspace(bytes), *again = check_workspace(bytes);
    swiglu_forward(k, ctx, in, y);
    memcpy(again, dout, bytes);
    fm_swiglu a = bind_swiglu(r, in, again);
    k->swiglu_grad(NULL, &a, again, din[0]);
    assert_memory_equal(again, y, bytes);
    if (din[0].beta == FM_WRITE) {
        a.y = NULL;
        k->swiglu_grad(NULL, &a, dout, din[0]);
    }
    free(y), free(again);
}

static void swiglu_formula(const void *ctx, double **in, double *out) {
    const rows *r = ctx;
    for (int64_t at = 0; at < r->n * r->c; at++) {
        const double *a = in[0] + at / r->c * r->ld + at % r->c;
        out[at] = a[0] / (1 + exp(-a[0])) * a[r->c];
    }
}

static void fill_swiglu(const void *ctx, double **in) {
    const rows *r = ctx;
    for (int64_t i = 0; i < r->n * r->ld; i++)
        in[0][i] *= i % 5 == 0 ? 30 : 3;
}

static void swiglus(void **state) {
    (void)state;
    rows shapes[] = {{6, 5, 10, false}, {4, 3, 12, false}, {1, 1, 2, false}, {3, 70, 140, false}};
    for (int i = 0; i < 4; i++) {
        rows r = shapes[i];
        kernel_case test = {.name = "swiglu",
                            .n_in = 1,
                            .in_size = {r.n * r.ld},
                            .gap = {r.n * (r.ld - 2 * r.c)},
                            .fill = fill_swiglu,
                            .out_size = r.n * r.c,
                            .forward = swiglu_forward,
                            .backward = swiglu_backward,
                            .formula = swiglu_formula,
                            .ctx = &r,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

/* -- relu(x + bias), masks over rows: the backward of each is what the ops use */

static void relu_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    const rows *r = ctx;
    k->bias_add(NULL, r->n, r->c, in[0], in[1], out);
    k->relu(NULL, r->n * r->c, out, out);
    k->scale_rows(NULL, r->n, r->c, r->c, r->c, in[2], out, (fm_out){out, FM_WRITE});
}

static void relu_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                          fm_out *din) {
    const rows *r = ctx;
    int64_t n = r->n * r->c;
    size_t bytes = (size_t)n * fm_element_bytes(k->act);
    void *y = check_workspace(bytes), *dy = check_workspace(bytes);
    k->bias_add(NULL, r->n, r->c, in[0], in[1], y);
    k->relu(NULL, n, y, y);
    k->scale_rows(NULL, r->n, r->c, r->c, r->c, in[2], dout, (fm_out){dy, FM_WRITE});
    if (din[0].data) k->relu_grad(NULL, n, y, dy, din[0]);
    k->relu_grad(NULL, n, y, dy, (fm_out){dy, FM_WRITE});
    const int64_t stride[2] = {0, r->c};
    void *workspace = check_workspace(k->sum_workspace(1, r->n, r->c));
    if (din[1].data) k->sum(NULL, 1, r->n, r->c, stride, dy, din[1], true, workspace);
    free(workspace), free(y), free(dy);
}

static void relu_formula(const void *ctx, double **in, double *out) {
    const rows *r = ctx;
    for (int64_t i = 0; i < r->n * r->c; i++)
        out[i] = in[2][i / r->c] * fmax(in[0][i] + in[1][i % r->c], 0);
}

static void relu_bias_and_row_masks(void **state) {
    (void)state;
    rows shapes[] = {{6, 5, 5, true}, {70, 3, 3, false}, {1, 1, 1, true}, {3, 130, 130, true}};
    for (int i = 0; i < 4; i++) {
        rows r = shapes[i];
        kernel_case test = {.name = "relu",
                            .n_in = 3,
                            .in_size = {r.n * r.c, r.c, r.n},
                            .is_constant = {[2] = true},
                            .out_size = r.n * r.c,
                            .forward = relu_forward,
                            .backward = relu_backward,
                            .formula = relu_formula,
                            .ctx = &r,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

static void relu_does_not_hide_nan(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    float x[3] = {NAN, -1, 2};
    k->relu(NULL, 3, x, x);
    assert_true(isnan(x[0]) && x[1] == 0 && x[2] == 2);
    fm_gemm g = {.m = 1,
                 .n = 1,
                 .k = 1,
                 .batch = 1,
                 .alpha = 1,
                 .a = &(float){NAN},
                 .b = &(float){1},
                 .c = x + 1,
                 .lda = 1,
                 .ldb = 1,
                 .ldc = 1,
                 .epilogue = FM_EPILOGUE_BIAS_RELU,
                 .bias = &(float){0}};
    k->gemm(NULL, &g, NULL);
    assert_true(isnan(x[1]));
}

/* -- masked mean */

static fm_masked_mean bind_mean(const rows *r, void **in) {
    return (fm_masked_mean){r->n, r->ld, r->c, 1e-3, in[0], in[1]}; /* ld: n_r */
}

static void mean_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_masked_mean a = bind_mean(ctx, in);
    k->masked_mean(NULL, &a, out);
}

static void mean_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                          fm_out *din) {
    fm_masked_mean a = bind_mean(ctx, in);
    k->masked_mean_grad(NULL, &a, dout, din[0]);
}

static void mean_formula(const void *ctx, double **in, double *out) {
    const rows *r = ctx;
    for (int64_t at = 0; at < r->ld * r->c; at++) {
        double total = 0, weight = 1e-3;
        for (int64_t s = 0; s < r->n; s++) {
            double mask = in[1][s * r->ld + at / r->c];
            total += mask * in[0][s * r->ld * r->c + at];
            weight += mask;
        }
        out[at] = total / weight;
    }
}

/* Every third position, so that the last shape's single column is masked in all rows. */
static void fill_mean(const void *ctx, double **in) {
    const rows *r = ctx;
    for (int64_t i = 0; i < r->n * r->ld; i++)
        in[1][i] = i % 3 != 0;
}

static void masked_means(void **state) {
    (void)state;
    rows shapes[] = {{7, 5, 4, true}, {3, 70, 2, true}, {1, 2, 1, true}};
    for (int i = 0; i < 3; i++) {
        rows r = shapes[i];
        kernel_case test = {.name = "masked mean",
                            .n_in = 2,
                            .in_size = {r.n * r.ld * r.c, r.n * r.ld},
                            .is_constant = {false, true},
                            .fill = fill_mean,
                            .out_size = r.ld * r.c,
                            .forward = mean_forward,
                            .backward = mean_backward,
                            .formula = mean_formula,
                            .ctx = &r,
                            .tolerance_f32 = 1e-6};
        check_kernel(&test);
    }
}

/* -- dropout */

static void dropout_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    k->dropout(NULL, ctx, in[0], in[1], out);
}

static void dropout_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                             fm_out *din) {
    const fm_dropout *d = ctx;
    (void)in;
    if (din[0].data) k->axpy(NULL, d->n0 * d->n1 * d->c, 1, dout, din[0]);
    if (din[1].data) k->dropout_grad(NULL, d, dout, din[1]);
}

static double expected_keep(const fm_dropout *d, int64_t i, int64_t j, int64_t c) {
    uint64_t index = (uint64_t)(((d->offset0 + i) * d->global_n1 + d->offset1 + j) * d->c + c);
    if (d->shared == FM_SHARED_AXIS0) index = (uint64_t)((d->offset1 + j) * d->c + c);
    if (d->shared == FM_SHARED_AXIS1) index = (uint64_t)((d->offset0 + i) * d->c + c);
    return fm_draw_word(&d->draw, index) < d->rate * 4294967296.0 ? 0 : 1 / (1 - d->rate);
}

static void dropout_formula(const void *ctx, double **in, double *out) {
    const fm_dropout *d = ctx;
    for (int64_t at = 0; at < d->n0 * d->n1 * d->c; at++)
        out[at] = in[0][at] +
                  in[1][at] * expected_keep(d, at / d->c / d->n1, at / d->c % d->n1, at % d->c);
}

static void shared_axis_dropout(void **state) {
    (void)state;
    const uint32_t clock[FM_CLOCK_WORDS] = {12, 1, 2, 0};
    for (int shared = FM_SHARED_NONE; shared <= FM_SHARED_AXIS1; shared++) {
        for (int zero = 0; zero < 2; zero++) {
            fm_dropout d = {5,
                            4,
                            70,
                            3,
                            2,
                            9,
                            (fm_shared_axis)shared,
                            zero ? 0 : 0.25,
                            {11, clock, 8, FM_PURPOSE_DROPOUT}};
            kernel_case test = {.name = "dropout",
                                .n_in = 2,
                                .in_size = {5 * 4 * 70, 5 * 4 * 70},
                                .out_size = 5 * 4 * 70,
                                .forward = dropout_forward,
                                .backward = dropout_backward,
                                .formula = dropout_formula,
                                .ctx = &d,
                                .tolerance_f32 = 1e-6};
            check_kernel(&test);
        }
    }
}

/* A slice drawn alone equals that slice of the whole, and the share of dropped elements is the
 * rate. */
static void dropout_of_a_slice(void **state) {
    (void)state;
    enum { N0 = 8, N1 = 12, C = 40 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    float *ones = check_alloc(N0 * N1 * C, 4), *whole = check_alloc(N0 * N1 * C, 4),
          part[3 * N1 * C];
    for (int i = 0; i < N0 * N1 * C; i++)
        ones[i] = 1;
    for (int shared = FM_SHARED_NONE; shared <= FM_SHARED_AXIS1; shared++) {
        fm_dropout d = {
            N0, N1, C, 0, 0, N1, (fm_shared_axis)shared, 0.15, {5, NULL, 3, FM_PURPOSE_DROPOUT}};
        k->dropout(NULL, &d, NULL, ones, whole);
        int kept = 0;
        for (int i = 0; i < N0 * N1 * C; i++)
            kept += whole[i] > 0;
        assert_true(fabs(kept / (double)(N0 * N1 * C) - 0.85) < 0.06);
        d.n0 = 3, d.offset0 = 4;
        k->dropout(NULL, &d, NULL, ones, part);
        assert_memory_equal(part, whole + 4 * N1 * C, sizeof part);
    }
    free(ones), free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layer_normalisation),
        cmocka_unit_test(layernorm_of_an_offset),
        cmocka_unit_test(layernorm_without_weights),
        cmocka_unit_test(gates),
        cmocka_unit_test(gates_share_rows),
        cmocka_unit_test(swiglus),
        cmocka_unit_test(relu_bias_and_row_masks),
        cmocka_unit_test(relu_does_not_hide_nan),
        cmocka_unit_test(shared_axis_dropout),
        cmocka_unit_test(dropout_of_a_slice),
        cmocka_unit_test(masked_means),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
