/* test_kernels_memory.c: fills, copies, strided copies, sums, matrix products, embeddings and MSA
 * features. */
#include "tests/trainer/backend/kernel_check.h"

static const fm_kernels *table(int which) {
    return fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
}

static void the_table_is_whole(void **state) {
    (void)state;
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = table(which);
        static const char empty[sizeof k->alloc];
        for (size_t at = offsetof(fm_kernels, alloc); at < sizeof *k; at += sizeof empty)
            assert_memory_not_equal((const char *)k + at, empty, sizeof empty);
        assert_int_equal(k->act, which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
    }
    assert_null(fm_kernels_cpu(FM_ELEMENT_BF16));
    assert_int_equal(fm_element_bytes(FM_ELEMENT_BF16), 2);
    assert_int_equal(fm_element_bytes((fm_element)99), 0);
}

static void device_memory(void **state) {
    (void)state;
    const fm_kernels *k = table(1);
    float host[5] = {1, 2, 3, 4, 5}, back[5];
    void *device = k->alloc(sizeof host);
    assert_non_null(device);
    assert_int_equal((uintptr_t)device % 64, 0);
    k->upload(NULL, device, host, sizeof host);
    k->download(NULL, back, device, sizeof host);
    k->synchronize(NULL);
    assert_memory_equal(host, back, sizeof host);
    k->release(device);
    k->release(NULL);
    assert_null(k->alloc(SIZE_MAX));
}

static void casts_and_axpy(void **state) {
    (void)state;
    double twice[3] = {1.1, -2.5, 1e30};
    float single[3], other[3] = {1, 1, 1};
    table(1)->cast(NULL, 3, FM_ELEMENT_F64, twice, single);
    for (int i = 0; i < 3; i++)
        assert_true(single[i] == (float)twice[i]);
    table(0)->cast(NULL, 3, FM_ELEMENT_F32, single, twice);
    for (int i = 0; i < 3; i++)
        assert_true(twice[i] == (double)single[i]);
    const uint16_t half[3] = {0x3f80, 0xc0a0, 0x7f80}; /* bf16 */
    const double values[3] = {1, -5, INFINITY};
    for (int which = 0; which < 2; which++) {
        table(which)->cast(NULL, 3, FM_ELEMENT_BF16, half, which ? (void *)single : twice);
        for (int i = 0; i < 3; i++)
            assert_true((which ? (double)single[i] : twice[i]) == values[i]);
    }
    table(1)->cast(NULL, 3, FM_ELEMENT_F64, (double[]){1.1, -2.5, 1e30}, single);
    const double alpha = 0.5;
    table(1)->axpy_device(NULL, 3, &alpha, single, (fm_out){other, FM_ADD});
    for (int i = 0; i < 3; i++)
        assert_true(other[i] == 1 + 0.5f * single[i]);
    table(1)->axpy(NULL, 3, -1, other, (fm_out){other, FM_WRITE});
    for (int i = 0; i < 3; i++)
        assert_true(other[i] == -(1 + 0.5f * single[i]));
    table(1)->copy(NULL, 3, single, other);
    assert_memory_equal(single, other, sizeof other);
}

static void small_types(void **state) {
    (void)state;
    const uint8_t ids[3] = {0, 22, 255}, bits[2] = {0xa5, 0x02};
    int32_t wide[3];
    table(1)->widen(NULL, 3, ids, wide);
    for (int i = 0; i < 3; i++)
        assert_int_equal(wide[i], ids[i]);
    for (int which = 0; which < 2; which++) {
        void *y = check_buffer(table(which), NULL, 10);
        table(which)->unpack_bits(NULL, 10, bits, y);
        const int expected[10] = {1, 0, 1, 0, 0, 1, 0, 1, 0, 1};
        for (int i = 0; i < 10; i++)
            assert_true(check_get(table(which), y, i) == expected[i]);
        free(y);
    }
}

static void strided_copies_permute_rank_5(void **state) {
    (void)state;
    enum { A = 2, B = 3, C = 1, D = 4, E = 5, N = A * B * C * D * E };
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = table(which);
        double *random = check_random(3, N);
        void *x = check_buffer(k, random, N), *y = check_buffer(k, NULL, N);
        /* y[e, b, a, d, c] = 2 x[a, b, c, d, e] */
        fm_strided move = {5,
                           {E, B, A, D, C},
                           {1, C * D * E, B * C * D * E, E, D * E},
                           {B * A * D * C, A * D * C, D * C, C, 1},
                           2,
                           x,
                           {y, FM_WRITE}};
        k->copy_strided(NULL, &move);
        move.y.beta = FM_ADD;
        k->copy_strided(NULL, &move);
        for (int64_t i = 0; i < N; i++) {
            int64_t e = i % E, d = i / E % D, c = i / E / D % C, b = i / E / D / C % B;
            int64_t a = i / E / D / C / B;
            assert_true(check_get(k, y, (((e * B + b) * A + a) * D + d) * C + c) ==
                        4 * check_get(k, x, i));
        }
        free(random), free(x), free(y);
    }
}

static void strided_copies_broadcast(void **state) {
    (void)state;
    const fm_kernels *k = table(0);
    double x[3] = {1, 2, 3}, y[6] = {0};
    fm_strided move = {2, {2, 3}, {0, 1}, {3, 1}, 1, x, {y, FM_ADD}};
    k->copy_strided(NULL, &move);
    for (int i = 0; i < 6; i++)
        assert_true(y[i] == x[i % 3]);
    fm_strided line = {1, {3}, {-1}, {2}, 1, x + 2, {y, FM_WRITE}};
    k->copy_strided(NULL, &line);
    assert_true(y[0] == 3 && y[2] == 2 && y[4] == 1 && y[1] == 2);
}

static void sums_over_a_middle_axis(void **state) {
    (void)state;
    const int64_t shapes[][3] = {{1, 9, 70}, {3, 5, 4}, {4, 130, 1}, {1, 1, 1}, {2, 1, 65}};
    for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
        int64_t na = shapes[s][0], nr = shapes[s][1], nc = shapes[s][2], n = na * nr * nc;
        double *random = check_random(4, n);
        for (int which = 0; which < 2; which++) {
            const fm_kernels *k = table(which);
            void *x = check_buffer(k, random, n), *y = check_buffer(k, NULL, na * nc);
            const int64_t stride[2] = {nr * nc, nc};
            void *space = check_workspace(k->sum_workspace(na, nr, nc));
            k->sum(NULL, na, nr, nc, stride, x, (fm_out){y, FM_WRITE}, false, space);
            k->sum(NULL, na, nr, nc, stride, x, (fm_out){y, FM_ADD}, true, space);
            for (int64_t i = 0; i < na * nc; i++) {
                double expected = 0;
                for (int64_t r = 0; r < nr; r++)
                    expected += 2 * check_get(k, x, (i / nc * nr + r) * nc + i % nc);
                check_below(fabs(check_get(k, y, i) - expected),
                            which ? 3e-7 * (1 + fabs(expected)) : 1e-12, "sum at %ld", (long)i);
            }
            free(x), free(y), free(space);
        }
        free(random);
    }
}

/* -- matrix products, as a case with gradients, which are matrix products too */

typedef struct product {
    int64_t m, n, k, batch;
    bool trans_a, trans_b;
    fm_epilogue epilogue;
} product;

static void product_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    const product *p = ctx;
    fm_gemm g = {.m = p->m,
                 .n = p->n,
                 .k = p->k,
                 .batch = p->batch,
                 .trans_a = p->trans_a,
                 .trans_b = p->trans_b,
                 .alpha = 0.5,
                 .a = in[0],
                 .b = in[1],
                 .c = out,
                 .lda = p->trans_a ? p->m : p->k,
                 .ldb = p->trans_b ? p->k : p->n,
                 .ldc = p->n + 2,
                 .stride_a = p->m * p->k,
                 .stride_b = p->k * p->n,
                 .stride_c = p->m * (p->n + 2),
                 .epilogue = p->epilogue,
                 .bias = in[2]};
    void *workspace = check_workspace(k->gemm_workspace(&g));
    k->gemm(NULL, &g, workspace); /* beta 0 on NaN */
    if (p->epilogue == FM_EPILOGUE_NONE) {
        g.beta = 2; /* C = AB/2 + 2 (AB/2) */
        k->gemm(NULL, &g, workspace);
    }
    free(workspace);
}

static void product_formula(const void *ctx, double **in, double *out) {
    const product *p = ctx;
    for (int64_t b = 0; b < p->batch; b++) {
        const double *a = in[0] + b * p->m * p->k, *c = in[1] + b * p->k * p->n;
        for (int64_t i = 0; i < p->m; i++) {
            for (int64_t j = 0; j < p->n; j++) {
                double total = 0;
                for (int64_t k = 0; k < p->k; k++)
                    total += (p->trans_a ? a[k * p->m + i] : a[i * p->k + k]) *
                             (p->trans_b ? c[j * p->k + k] : c[k * p->n + j]);
                total *= p->epilogue == FM_EPILOGUE_NONE ? 1.5 : 0.5;
                if (p->epilogue != FM_EPILOGUE_NONE) total += in[2][j];
                if (p->epilogue == FM_EPILOGUE_BIAS_RELU) total = fmax(total, 0);
                out[(b * p->m + i) * (p->n + 2) + j] = total;
            }
        }
    }
}

static void matrix_products(void **state) {
    (void)state;
    for (int variant = 0; variant < 24; variant++) {
        product p = {
            5, 7, 9, 1 + variant % 3, variant / 3 % 2, variant / 6 % 2, (fm_epilogue)(variant % 3)};
        if (variant >= 12) p.m = 1, p.n = 1 + variant % 4, p.k = 1 + variant % 3 * 200;
        kernel_case test = {.name = "gemm",
                            .n_in = 3,
                            .in_size = {p.batch * p.m * p.k, p.batch * p.k * p.n, p.n},
                            .is_constant = {true, true, true},
                            .out_size = p.batch * p.m * (p.n + 2),
                            .forward = product_forward,
                            .formula = product_formula,
                            .ctx = &p,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

/* RELU_GRAD with its sum, and an addend with a bias, against their composition from other calls. */
static void epilogues_are_their_composition(void **state) {
    (void)state;
    enum { M = 11, N = 7, K = 5, LD = 9 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    double a[M * K], b[N * K], relu[M * LD], x[M * LD], y[M * LD], sum[N], expected[N];
    for (int i = 0; i < M * LD; i++) {
        relu[i] = i % 3 ? sin(i) : 0;
        x[i] = y[i] = NAN;
    }
    for (int i = 0; i < M * K; i++)
        a[i] = cos(i);
    for (int i = 0; i < N * K; i++)
        b[i] = sin(7 * i);
    for (int i = 0; i < N; i++)
        sum[i] = expected[i] = i;
    fm_gemm g = {.m = M,
                 .n = N,
                 .k = K,
                 .batch = 1,
                 .alpha = 1,
                 .a = a,
                 .b = b,
                 .c = x,
                 .lda = K,
                 .ldb = N,
                 .ldc = LD};
    k->gemm(NULL, &g, NULL);
    g.epilogue = FM_EPILOGUE_RELU_GRAD, g.relu = relu, g.sum = (fm_out){sum, FM_ADD}, g.c = y;
    k->gemm(NULL, &g, NULL);
    for (int i = 0; i < M * N; i++) {
        int at = i / N * LD + i % N;
        double value = relu[at] > 0 ? x[at] : 0;
        assert_true(y[at] == value);
        expected[i % N] += value;
    }
    for (int i = 0; i < N; i++)
        assert_true(fabs(sum[i] - expected[i]) < 1e-14);
    fm_gemm h = {.m = M,
                 .n = N,
                 .k = K,
                 .batch = 1,
                 .alpha = 1,
                 .beta = 1,
                 .a = a,
                 .b = b,
                 .c = y,
                 .addend = relu,
                 .lda = K,
                 .ldb = N,
                 .ldc = LD,
                 .epilogue = FM_EPILOGUE_BIAS,
                 .bias = expected};
    void *workspace = check_workspace(k->gemm_workspace(&h));
    k->gemm(NULL, &h, workspace);
    free(workspace);
    for (int i = 0; i < M * N; i++) {
        int at = i / N * LD + i % N;
        assert_true(fabs(y[at] - (x[at] + relu[at] + expected[i % N])) < 1e-14);
    }
}

/* The sums of a weight gradient have the bits of a call of `sum`, and do not change C. */
static void weight_gradients_have_sums(void **state) {
    (void)state;
    enum { M = 9, N = 5, K = 301, LD = 11, FIRST = 4, SUMS = M - FIRST };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    float a[K * LD], b[K * N], c[M * N], alone[M * N], sum[SUMS], expected[SUMS];
    for (int i = 0; i < K * LD; i++)
        a[i] = (float)cos(3 * i);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)sin(i);
    for (int beta = FM_WRITE; beta <= FM_ADD; beta++) {
        for (int i = 0; i < M * N; i++)
            c[i] = alone[i] = beta == FM_ADD ? (float)i : NAN;
        for (int i = 0; i < SUMS; i++)
            sum[i] = expected[i] = beta == FM_ADD ? (float)-i : NAN;
        fm_gemm g = {.m = M,
                     .n = N,
                     .k = K,
                     .batch = 1,
                     .trans_a = true,
                     .alpha = 2,
                     .beta = beta,
                     .a = a,
                     .b = b,
                     .c = alone,
                     .c_is_acc = true,
                     .lda = LD,
                     .ldb = N,
                     .ldc = N};
        k->gemm(NULL, &g, NULL);
        g.c = c, g.sum = (fm_out){sum, (fm_beta)beta}, g.sum_first = FIRST;
        k->gemm(NULL, &g, NULL);
        k->sum(NULL, 1, K, SUMS, (int64_t[]){0, LD}, a + FIRST, (fm_out){expected, (fm_beta)beta},
               true, NULL);
        assert_memory_equal(c, alone, sizeof c);
        assert_memory_equal(sum, expected, sizeof sum);
        for (int i = 0; i < SUMS; i++) {
            double total = beta == FM_ADD ? -i : 0;
            for (int r = 0; r < K; r++)
                total += (double)a[r * LD + FIRST + i];
            assert_true(fabs((double)sum[i] - total) < 1e-4);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weight_gradients_have_sums),
        cmocka_unit_test(epilogues_are_their_composition),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(device_memory),
        cmocka_unit_test(casts_and_axpy),
        cmocka_unit_test(small_types),
        cmocka_unit_test(strided_copies_permute_rank_5),
        cmocka_unit_test(strided_copies_broadcast),
        cmocka_unit_test(sums_over_a_middle_axis),
        cmocka_unit_test(matrix_products),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
