/* test_kernels_pair.c: outer product mean and triangle multiplication against their formulas:
 * slices of fused projections, rectangular pieces as under a split axis, masks, and sizes of one.
 */
#include "tests/trainer/backend/kernel_check.h"

/* -- outer product mean */

enum { OA, OB, OW, OBIAS, OMASK_A, OMASK_B };

static fm_outer bind_outer(const fm_outer *shape, void **in) {
    fm_outer o = *shape;
    o.a = in[OA], o.b = in[OB], o.w = in[OW], o.bias = in[OBIAS];
    o.mask_a = in[OMASK_A], o.mask_b = in[OMASK_B];
    return o;
}

static void outer_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_outer o = bind_outer(ctx, in);
    o.z = (fm_out){out, FM_WRITE};
    void *workspace = check_workspace(k->outer_workspace(&o));
    k->outer(NULL, &o, workspace);
    free(workspace);
}

static void outer_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                           fm_out *din) {
    fm_outer o = bind_outer(ctx, in);
    fm_outer_grad grad = {dout, din[OA], din[OB], din[OW], din[OBIAS]};
    void *workspace = check_workspace(k->outer_grad_workspace(&o));
    k->outer_grad(NULL, &o, &grad, workspace);
    free(workspace);
}

static void outer_formula(const void *ctx, double **in, double *out) {
    const fm_outer *o = ctx;
    int64_t c = o->c;
    for (int64_t i = 0; i < o->n_i; i++) {
        for (int64_t j = 0; j < o->n_j; j++) {
            double norm = o->eps, product[64] = {0};
            for (int64_t s = 0; s < o->n_seq; s++) {
                const double *a = in[OA] + s * o->a_stride[0] + i * o->a_stride[1];
                const double *b = in[OB] + s * o->b_stride[0] + j * o->b_stride[1];
                double mask = in[OMASK_A][s * o->n_i + i] * in[OMASK_B][s * o->n_j + j];
                norm += mask;
                for (int64_t ab = 0; ab < c * c; ab++)
                    product[ab] += mask * a[ab / c] * b[ab % c];
            }
            for (int64_t z = 0; z < o->c_z; z++) {
                double value = in[OBIAS][z];
                for (int64_t ab = 0; ab < c * c; ab++)
                    value += in[OW][z * c * c + ab] * product[ab];
                out[(i * o->n_j + j) * o->c_z + z] = value / norm;
            }
        }
    }
}

static void fill_outer_masks(const void *ctx, double **in) {
    const fm_outer *o = ctx;
    for (int64_t i = 0; i < o->n_seq * o->n_i; i++)
        in[OMASK_A][i] = i % 4 != 1;
    for (int64_t j = 0; j < o->n_seq * o->n_j; j++)
        in[OMASK_B][j] = j % 3 != 1;
}

static void check_outer(int64_t n_seq, int64_t n_i, int64_t n_j, int64_t c, int64_t c_z,
                        int64_t ld) {
    fm_outer o = {.n_seq = n_seq,
                  .n_i = n_i,
                  .n_j = n_j,
                  .c = c,
                  .c_z = c_z,
                  .eps = 1e-3,
                  .a_stride = {n_i * ld, ld},
                  .b_stride = {n_j * ld, ld}};
    kernel_case test = {
        .name = "outer product mean",
        .n_in = 6,
        .in_size = {n_seq * n_i * ld, n_seq * n_j * ld, c_z * c * c, c_z, n_seq * n_i, n_seq * n_j},
        .gap = {n_seq * n_i * (ld - c), n_seq * n_j * (ld - c)},
        .is_constant = {[OMASK_A] = true, [OMASK_B] = true},
        .fill = fill_outer_masks,
        .out_size = n_i * n_j * c_z,
        .forward = outer_forward,
        .backward = outer_backward,
        .formula = outer_formula,
        .ctx = &o,
        .tolerance_f32 = 2e-6,
    };
    check_kernel(&test);
}

static void outer_product_mean(void **state) {
    (void)state;
    check_outer(5, 4, 4, 3, 6, 3);
    check_outer(7, 3, 5, 4, 5, 8); /* split axis, slices of a fused projection */
    check_outer(2, 1, 1, 1, 1, 1);
    check_outer(1, 2, 3, 2, 3, 5);
}

/* A residual is added to the output of every piece. */
static void outer_product_mean_with_residual(void **state) {
    (void)state;
    enum { S = 3, NI = 9, NJ = 500, C = 8, CZ = 2, OUT = NI * NJ * CZ };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    const int64_t size[6] = {S * NI * C, S * NJ * C, CZ * C * C, CZ, S * NI, S * NJ};
    double *in[6], *z = check_alloc(OUT, 8), *sum = check_alloc(OUT, 8);
    double *residual = check_random(77, OUT);
    for (int i = 0; i < 6; i++)
        in[i] = check_random((uint32_t)i, size[i]);
    k->fill(NULL, S * NI, 1, in[OMASK_A]);
    k->fill(NULL, S * NJ, 1, in[OMASK_B]);
    fm_outer o = {S, NI, NJ, C, CZ, 1e-3, .a_stride = {NI * C, C}, .b_stride = {NJ * C, C}};
    outer_forward(k, &o, (void **)in, z);
    o.residual = residual;
    outer_forward(k, &o, (void **)in, sum);
    k->axpy(NULL, OUT, 1, residual, (fm_out){z, FM_ADD});
    check_below(check_distance(k, sum, k, z, OUT), 1e-14, "residual");
    for (int i = 0; i < 6; i++)
        free(in[i]);
    free(z), free(sum), free(residual);
}

/* All rows i at once (two pieces: 5 and 4 rows) equal one call for each row: the output, da, and,
 * summed by beta 1, db, dw and dbias. */
static void outer_product_mean_in_pieces(void **state) {
    (void)state;
    enum { S = 2, NI = 9, NJ = 700, C = 8, CZ = 2, OUT = NI * NJ * CZ };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    const int64_t size[4] = {S * NI * C, S * NJ * C, CZ * C * C, CZ};
    double *in[6], *whole[4], *rows[4], *z = check_alloc(2 * OUT, 8), *dz = check_random(9, OUT);
    for (int i = 0; i < 4; i++) {
        in[i] = check_random((uint32_t)i, size[i]);
        whole[i] = check_alloc(size[i], 8);
        rows[i] = check_alloc(size[i], 8);
        k->fill(NULL, size[i], 0, rows[i]);
    }
    double ones[S * NJ];
    k->fill(NULL, S * NJ, 1, ones);
    in[OMASK_A] = in[OMASK_B] = ones;
    fm_outer o = {S, NI, NJ, C, CZ, 1e-3, .a_stride = {NI * C, C}, .b_stride = {NJ * C, C}};
    outer_forward(k, &o, (void **)in, z);
    outer_backward(k, &o, (void **)in, dz,
                   (fm_out[]){{whole[0], FM_WRITE},
                              {whole[1], FM_WRITE},
                              {whole[2], FM_WRITE},
                              {whole[3], FM_WRITE}});
    o.n_i = 1;
    double *const a = in[OA];
    for (int i = 0; i < NI; i++) {
        in[OA] = a + i * C;
        outer_forward(k, &o, (void **)in, z + OUT + i * NJ * CZ);
        outer_backward(k, &o, (void **)in, dz + i * NJ * CZ,
                       (fm_out[]){{rows[0] + i * C, FM_ADD},
                                  {rows[1], FM_ADD},
                                  {rows[2], FM_ADD},
                                  {rows[3], FM_ADD}});
    }
    in[OA] = a;
    check_below(check_distance(k, z, k, z + OUT, OUT), 1e-13, "pieces: output");
    for (int i = 0; i < 4; i++) {
        check_below(check_distance(k, whole[i], k, rows[i], size[i]), 1e-13, "pieces: gradient");
        free(in[i]), free(whole[i]), free(rows[i]);
    }
    free(z), free(dz);
}

/* -- triangle multiplication */

enum { TPA, TGA, TPB, TGB, TMASK_A, TMASK_B };

static fm_triangle bind_triangle(const fm_triangle *shape, void **in) {
    fm_triangle t = *shape;
    t.pa = in[TPA], t.ga = in[TGA], t.pb = in[TPB], t.gb = in[TGB];
    t.mask_a = in[TMASK_A], t.mask_b = in[TMASK_B];
    return t;
}

static void triangle_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_triangle t = bind_triangle(ctx, in);
    t.x = out;
    void *workspace = check_workspace(k->triangle_workspace(&t));
    k->triangle(NULL, &t, workspace);
    free(workspace);
}

static void triangle_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                              fm_out *din) {
    fm_triangle t = bind_triangle(ctx, in);
    fm_triangle_grad grad = {dout, din[TPA], din[TGA], din[TPB], din[TGB]};
    void *workspace = check_workspace(k->triangle_grad_workspace(&t));
    k->triangle_grad(NULL, &t, &grad, workspace);
    free(workspace);
}

static double gated(const double *p, const double *g, const double *mask, int64_t row, int64_t ld,
                    int64_t c) {
    return mask[row] * p[row * ld + c] / (1 + exp(-g[row * ld + c]));
}

static void triangle_formula(const void *ctx, double **in, double *out) {
    const fm_triangle *t = ctx;
    for (int64_t i = 0; i < t->n_i; i++) {
        for (int64_t j = 0; j < t->n_j; j++) {
            for (int64_t c = 0; c < t->c; c++) {
                double total = 0;
                for (int64_t k = 0; k < t->n_k; k++) {
                    int64_t row_a = t->incoming ? k * t->n_i + i : i * t->n_k + k;
                    int64_t row_b = t->incoming ? k * t->n_j + j : j * t->n_k + k;
                    total += gated(in[TPA], in[TGA], in[TMASK_A], row_a, t->lda, c) *
                             gated(in[TPB], in[TGB], in[TMASK_B], row_b, t->ldb, c);
                }
                out[(i * t->n_j + j) * t->c + c] = total;
            }
        }
    }
}

static void fill_triangle_masks(const void *ctx, double **in) {
    const fm_triangle *t = ctx;
    for (int64_t i = 0; i < t->n_i * t->n_k; i++)
        in[TMASK_A][i] = i % 4 != 1;
    for (int64_t j = 0; j < t->n_j * t->n_k; j++)
        in[TMASK_B][j] = j % 5 != 1;
}

static void check_triangle(bool incoming, int64_t n_i, int64_t n_j, int64_t n_k, int64_t c,
                           int64_t ld) {
    fm_triangle t = {
        .n_i = n_i, .n_j = n_j, .n_k = n_k, .c = c, .incoming = incoming, .lda = ld, .ldb = ld};
    int64_t a = n_i * n_k, b = n_j * n_k;
    kernel_case test = {
        .name = incoming ? "triangle incoming" : "triangle outgoing",
        .n_in = 6,
        .in_size = {a * ld, a * ld, b * ld, b * ld, a, b},
        .gap = {a * (ld - c), a * (ld - c), b * (ld - c), b * (ld - c)},
        .is_constant = {[TMASK_A] = true, [TMASK_B] = true},
        .fill = fill_triangle_masks,
        .out_size = n_i * n_j * c,
        .forward = triangle_forward,
        .backward = triangle_backward,
        .formula = triangle_formula,
        .ctx = &t,
        .tolerance_f32 = 2e-6,
    };
    check_kernel(&test);
}

/* Operands without gates and masks, in the form that ranks exchange. */
static fm_triangle bind_plain(const fm_triangle *shape, void **in) {
    fm_triangle t = *shape;
    t.pa = in[0], t.pb = in[1];
    return t;
}

static void plain_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_triangle t = bind_plain(ctx, in);
    t.x = out;
    void *workspace = check_workspace(k->triangle_workspace(&t));
    k->triangle(NULL, &t, workspace);
    free(workspace);
}

static void plain_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                           fm_out *din) {
    fm_triangle t = bind_plain(ctx, in);
    fm_triangle_grad grad = {.dx = dout, .dpa = din[0], .dpb = din[1]};
    void *workspace = check_workspace(k->triangle_grad_workspace(&t));
    k->triangle_grad(NULL, &t, &grad, workspace);
    free(workspace);
}

static void plain_formula(const void *ctx, double **in, double *out) {
    const fm_triangle *t = ctx;
    for (int64_t p = 0; p < t->n_i * t->n_j; p++) {
        const double *a = in[0] + p / t->n_j * t->n_k * t->lda;
        const double *b = in[1] + p % t->n_j * t->n_k * t->ldb;
        for (int64_t c = 0; c < t->c; c++) {
            double total = 0;
            for (int64_t k = 0; k < t->n_k; k++)
                total += a[k * t->lda + c] * b[k * t->ldb + c];
            out[p * t->c + c] = total;
        }
    }
}

static void operands_without_gates(void **state) {
    (void)state;
    fm_triangle shapes[] = {{.n_i = 3, .n_j = 6, .n_k = 6, .c = 5, .lda = 5, .ldb = 5},
                            {.n_i = 6, .n_j = 2, .n_k = 6, .c = 19, .lda = 21, .ldb = 19}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fm_triangle *t = &shapes[i];
        int64_t a = t->n_i * t->n_k, b = t->n_j * t->n_k;
        kernel_case test = {.name = "triangle without gates",
                            .n_in = 2,
                            .in_size = {a * t->lda, b * t->ldb},
                            .gap = {a * (t->lda - t->c), b * (t->ldb - t->c)},
                            .out_size = t->n_i * t->n_j * t->c,
                            .forward = plain_forward,
                            .backward = plain_backward,
                            .formula = plain_formula,
                            .ctx = t,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

static void triangle_multiplication(void **state) {
    (void)state;
    for (int incoming = 0; incoming < 2; incoming++) {
        check_triangle(incoming, 5, 5, 5, 6, 6);
        check_triangle(incoming, 3, 4, 6, 5, 20); /* split axis, slices of a fused projection */
        check_triangle(incoming, 1, 1, 1, 1, 1);
        check_triangle(incoming, 4, 4, 4, 37, 37); /* more channels than a group */
    }
}

/* -- the whole sublayer */

enum { BZ, BNORM_IN, BPROJECTIONS, BPROJECTIONS_BIAS, BNORM_OUT, BOUT, BOUT_BIAS, BMASK };

static fm_triangle_block bind_block(const fm_triangle_block *shape, void **in) {
    fm_triangle_block t = *shape;
    t.z = in[BZ], t.mask = in[BMASK], t.norm_in = in[BNORM_IN], t.norm_out = in[BNORM_OUT];
    t.projections = in[BPROJECTIONS], t.projections_bias = in[BPROJECTIONS_BIAS];
    t.out = in[BOUT], t.out_bias = in[BOUT_BIAS];
    return t;
}

static void block_run(const fm_kernels *k, const fm_triangle_block *t) {
    void *workspace = check_workspace(k->triangle_block_workspace(t));
    k->triangle_block(NULL, t, workspace);
    free(workspace);
}

static void block_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_triangle_block t = bind_block(ctx, in);
    t.y = out;
    block_run(k, &t);
}

static void block_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                           fm_out *din) {
    fm_triangle_block t = bind_block(ctx, in);
    t.keeps = true;
    t.kept = check_workspace(k->triangle_block_kept(&t) * fm_element_bytes(k->act));
    block_run(k, &t);
    fm_triangle_block_grad grad = {.dy = dout,
                                   .dz = din[BZ],
                                   .dnorm_in = din[BNORM_IN],
                                   .dnorm_out = din[BNORM_OUT],
                                   .dprojections = din[BPROJECTIONS],
                                   .dprojections_bias = din[BPROJECTIONS_BIAS],
                                   .dout = din[BOUT],
                                   .dout_bias = din[BOUT_BIAS]};
    void *workspace = check_workspace(k->triangle_block_grad_workspace(&t));
    k->triangle_block_grad(NULL, &t, &grad, workspace);
    free(workspace);
    free(t.kept);
}

/* y = LayerNorm(x) weight^T + bias of one row. */
static void norm_linear(const fm_triangle_block *t, const double *x, int64_t c, const double *norm,
                        const double *weight, const double *bias, int64_t c_out, double *y) {
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < c; i++)
        mean += x[i] / (double)c;
    for (int64_t i = 0; i < c; i++)
        variance += (x[i] - mean) * (x[i] - mean) / (double)c;
    for (int64_t o = 0; o < c_out; o++) {
        y[o] = bias[o];
        for (int64_t i = 0; i < c; i++)
            y[o] += weight[o * c + i] *
                    ((x[i] - mean) / sqrt(variance + t->eps) * norm[i] + norm[c + i]);
    }
}

static void block_formula(const void *ctx, double **in, double *out) {
    const fm_triangle_block *t = ctx;
    int64_t n = t->n, c = t->c, c_z = t->c_z, c_projected = 4 * c + c_z;
    double *p = check_alloc(n * n * c_projected, 8), *x = check_alloc(c, 8),
           *u = check_alloc(c_z, 8);
    for (int64_t r = 0; r < n * n; r++)
        norm_linear(t, in[BZ] + r * c_z, c_z, in[BNORM_IN], in[BPROJECTIONS], in[BPROJECTIONS_BIAS],
                    c_projected, p + r * c_projected);
    for (int64_t r = 0; r < n * n; r++) {
        for (int64_t ch = 0; ch < c; ch++) {
            x[ch] = 0;
            for (int64_t k = 0; k < n; k++) {
                int64_t a = t->incoming ? k * n + r / n : r / n * n + k;
                int64_t b = t->incoming ? k * n + r % n : r % n * n + k;
                x[ch] += gated(p, p + c, in[BMASK], a, c_projected, ch) *
                         gated(p + 2 * c, p + 3 * c, in[BMASK], b, c_projected, ch);
            }
        }
        norm_linear(t, x, c, in[BNORM_OUT], in[BOUT], in[BOUT_BIAS], c_z, u);
        for (int64_t ch = 0; ch < c_z; ch++)
            out[r * c_z + ch] = (t->residual ? in[BZ][r * c_z + ch] : 0) +
                                u[ch] / (1 + exp(-p[r * c_projected + 4 * c + ch]));
    }
    free(p), free(x), free(u);
}

static void fill_block_mask(const void *ctx, double **in) {
    const fm_triangle_block *t = ctx;
    for (int64_t r = 0; r < t->n * t->n; r++)
        in[BMASK][r] = r % 5 != 1;
}

/* The gradient of z excludes the residual's part, so the formula has no residual. */
static void triangle_block(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{3, 4, 3}, {4, 3, 5}, {1, 2, 2}};
    for (int i = 0; i < 6; i++) {
        int64_t n = shapes[i / 2][0], c_z = shapes[i / 2][1], c = shapes[i / 2][2];
        fm_triangle_block t = {.n = n, .c_z = c_z, .c = c, .incoming = i % 2, .eps = 1e-2};
        t.dropout = (fm_dropout){.n0 = n, .n1 = n, .c = c_z, .global_n1 = n};
        kernel_case test = {.name = "triangle multiplication as a whole",
                            .n_in = 8,
                            .in_size = {n * n * c_z, 2 * c_z, (4 * c + c_z) * c_z, 4 * c + c_z,
                                        2 * c, c_z * c, c_z, n * n},
                            .is_constant = {[BMASK] = true},
                            .fill = fill_block_mask,
                            .out_size = n * n * c_z,
                            .forward = block_forward,
                            .backward = block_backward,
                            .formula = block_formula,
                            .ctx = &t,
                            .tolerance_f32 = 2e-5};
        check_kernel(&test);
    }
}

/* With residual and dropout, in place: y - z is the update or 0, the rest as without. */
static void triangle_block_in_place(void **state) {
    (void)state;
    enum { N = 4, CZ = 6, C = 5, ROWS = N * N, C_PROJECTED = 4 * C + CZ, KEPT = N * CZ };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    const int64_t size[8] = {ROWS * CZ, 2 * CZ, C_PROJECTED * CZ, C_PROJECTED, 2 * C, CZ * C,
                             CZ,        ROWS};
    double *in[8], *update = check_alloc(ROWS * CZ, 8), *z = check_alloc(ROWS * CZ, 8);
    for (int i = 0; i < 8; i++)
        in[i] = check_random((uint32_t)i, size[i]);
    fm_triangle_block t = {.n = N, .c_z = CZ, .c = C, .eps = 1e-5};
    t.dropout = (fm_dropout){.n0 = N, .n1 = N, .c = CZ, .global_n1 = N};
    block_forward(k, &t, (void **)in, update);
    t.residual = true;
    t.dropout.shared = FM_SHARED_AXIS0;
    t.dropout.rate = 0.25;
    memcpy(z, in[BZ], sizeof(double) * ROWS * CZ);
    free(in[BZ]);
    in[BZ] = z;
    fm_triangle_block whole = bind_block(&t, (void **)in);
    double before[ROWS * CZ];
    memcpy(before, z, sizeof before);
    whole.y = z;
    block_run(k, &whole);
    int dropped[KEPT] = {0};
    for (int i = 0; i < ROWS * CZ; i++) {
        bool is_dropped = z[i] == before[i];
        dropped[i % KEPT] += is_dropped;
        if (!is_dropped) {
            check_below(fabs(z[i] - before[i] - update[i] / 0.75), 1e-14, "in place: element");
        }
    }
    int columns = 0;
    for (int i = 0; i < KEPT; i++) {
        assert_true(dropped[i] == 0 || dropped[i] == N); /* one draw for all rows */
        columns += dropped[i] == N;
    }
    assert_true(columns > 0 && columns < KEPT);
    for (int i = 1; i < 8; i++)
        free(in[i]);
    free(update), free(z);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outer_product_mean),
        cmocka_unit_test(outer_product_mean_with_residual),
        cmocka_unit_test(outer_product_mean_in_pieces),
        cmocka_unit_test(triangle_multiplication),
        cmocka_unit_test(operands_without_gates),
        cmocka_unit_test(triangle_block),
        cmocka_unit_test(triangle_block_in_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
