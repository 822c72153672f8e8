/* test_kernels_loss.c: losses, gradient norm, Adam with EMA, initial parameters, and the
 * exponential that they use. */
#include "tests/trainer/backend/kernel_check.h"

#include "trainer/backend/cpu/cpu.h"
#include "trainer/backend/exp.h"

/* -- cross-entropy */

typedef struct classes {
    int64_t rows, n_class, ld;
    const int32_t *target;
} classes;

static fm_cross_entropy bind(const fm_kernels *k, const classes *l, void **in) {
    size_t element = fm_element_bytes(k->acc);
    return (fm_cross_entropy){l->rows,
                              l->n_class,
                              l->ld,
                              1e-6,
                              in[0],
                              l->target,
                              in[1],
                              check_workspace((size_t)l->rows * element),
                              check_workspace(element),
                              check_workspace(element)};
}

static void entropy_run(const fm_kernels *k, fm_cross_entropy *a) {
    void *workspace = check_workspace(k->cross_entropy_workspace(a->rows));
    k->cross_entropy(NULL, a, workspace);
    free(workspace);
}

static void entropy_forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_cross_entropy a = bind(k, ctx, in);
    entropy_run(k, &a);
    k->copy(NULL, 1, a.loss, out);
    free(a.lse), free(a.weight_sum), free(a.loss);
}

static void entropy_backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                             fm_out *din) {
    fm_cross_entropy a = bind(k, ctx, in);
    entropy_run(k, &a);
    k->cross_entropy_grad(NULL, &a, dout, din[0]);
    free(a.lse), free(a.weight_sum), free(a.loss);
}

static void entropy_formula(const void *ctx, double **in, double *out) {
    const classes *l = ctx;
    double loss = 0, weight = 0;
    for (int64_t r = 0; r < l->rows; r++) {
        if (l->target[r] < 0 || l->target[r] >= l->n_class) continue;
        double total = 0;
        for (int64_t i = 0; i < l->n_class; i++)
            total += exp(in[0][r * l->ld + i]);
        loss -= in[1][r] * log(exp(in[0][r * l->ld + l->target[r]]) / total);
        weight += in[1][r];
    }
    out[0] = loss / (1e-6 + weight);
}

static void fill_entropy(const void *ctx, double **in) {
    const classes *l = ctx;
    for (int64_t i = 0; i < l->rows * l->ld; i++)
        in[0][i] *= 8;
    for (int64_t r = 0; r < l->rows; r++)
        in[1][r] = r % 3 == 1 ? 0 : 1;
}

static void cross_entropy(void **state) {
    (void)state;
    static const int32_t targets[7] = {0, 3, 2, 4, 0, -1, 99}; /* the last two are not classes */
    classes cases[] = {{7, 5, 5, targets}, {5, 5, 9, targets}, {1, 1, 1, targets}};
    for (int i = 0; i < 3; i++) {
        const classes *l = &cases[i];
        kernel_case test = {.name = "cross-entropy",
                            .n_in = 2,
                            .in_size = {l->rows * l->ld, l->rows},
                            .gap = {l->rows * (l->ld - l->n_class)},
                            .is_constant = {false, true},
                            .fill = fill_entropy,
                            .out_size = 1,
                            .forward = entropy_forward,
                            .backward = entropy_backward,
                            .formula = entropy_formula,
                            .ctx = l,
                            .tolerance_f32 = 2e-6};
        check_kernel(&test);
    }
}

static void distance_bins_at_the_boundaries(void **state) {
    (void)state;
    /* 64 bins, boundaries 2.3125 + 0.3125 b: exact in binary, so equality is tested too */
    const float x_i[3] = {0, 0, 0}, mask_i[1] = {1};
    const float distance[7] = {0, 2.3125f, 2.3126f, 2.625f, 2.6251f, 21.6875f, 30};
    const int32_t expected[7] = {0, 0, 1, 1, 2, 62, 63};
    float x_j[21] = {0}, mask_j[7] = {1, 1, 0, 1, 1, 1, 1};
    for (int j = 0; j < 7; j++)
        x_j[3 * j + j % 3] = j % 2 ? distance[j] : -distance[j];
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
        int32_t target[7];
        void *w = check_buffer(k, NULL, 7);
        k->distance_bins(NULL, 1, 7, x_i, x_j, mask_i, mask_j, 64, 2.3125f, 21.6875f, target, w);
        for (int j = 0; j < 7; j++) {
            assert_int_equal(target[j], expected[j]);
            assert_true(check_get(k, w, j) == (double)mask_j[j]);
        }
        free(w);
    }
}

static void distance_ids_of_recycling(void **state) {
    (void)state;
    const float x_i[3] = {1, 2, 3};
    const float distance[7] = {0, 3.25f, 3.2501f, 4.5f, 4.5001f, 20.7501f, 400};
    const uint8_t expected[7] = {255, 255, 0, 255, 1, 14, 14};
    float x_j[21];
    uint8_t ids[7];
    for (int j = 0; j < 7; j++)
        x_j[3 * j] = 1, x_j[3 * j + 1] = 2 + distance[j], x_j[3 * j + 2] = 3;
    const float origin[3] = {1, 2, 3};
    fm_kernels_cpu(FM_ELEMENT_F32)
        ->distance_ids(NULL, 1, 7, x_i, x_j, 15, 3.25f, 20.75f, 1e8f, ids);
    for (int j = 0; j < 7; j++)
        assert_int_equal(ids[j], expected[j]);
    fm_kernels_cpu(FM_ELEMENT_F64)
        ->distance_ids(NULL, 7, 1, x_j, origin, 15, 3.25f, 20.75f, 1e8f, ids);
    for (int j = 0; j < 7; j++)
        assert_int_equal(ids[j], expected[j]);
    fm_kernels_cpu(FM_ELEMENT_F32)
        ->distance_ids(NULL, 1, 7, x_i, x_j, 15, 3.25f, 20.75f, 1e5f, ids);
    assert_int_equal(ids[5], 14);
    assert_int_equal(ids[6], 255); /* 400 Å */
}

/* -- optimiser */

static void gradient_norm_and_clip(void **state) {
    (void)state;
    enum { N = 10001 };
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
        double *random = check_random(8, N), expected = 0;
        void *g = check_buffer(k, random, N), *space = check_workspace(k->grad_norm_workspace(N));
        for (int i = 0; i < N; i++)
            expected += pow(check_get(k, g, i), 2);
        fm_step_state step = {0};
        k->grad_norm(NULL, N, g, 0.1, false, &step, space);
        check_below(fabs(step.norm_squared - expected), 1e-9, "norm");
        check_below(fabs(step.clip_scale * (sqrt(expected) + 1e-6) - 0.1), 1e-12, "clip");
        k->grad_norm(NULL, N, g, 1e3, false, &step, space);
        assert_true(step.clip_scale == 1 && step.nonfinite == 0);
        uint32_t flag = 0;
        k->find_nonfinite(NULL, N, g, &flag);
        assert_int_equal(flag, 0);
        k->fill(NULL, 1, INFINITY, (char *)g + (N - 1) * fm_element_bytes(k->act));
        k->find_nonfinite(NULL, N, g, &flag);
        k->grad_norm(NULL, N, g, 1e3, false, &step, space);
        assert_int_equal(flag, 1);
        assert_true(step.clip_scale == 0 && step.nonfinite == 1);
        free(random), free(g), free(space);
    }
}

/* Three steps against Adam written out in double; then a step that is skipped. */
static void adam_with_ema(void **state) {
    (void)state;
    enum { N = 11 };
    for (int which = 0; which < 2; which++) {
        const fm_kernels *k = fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64);
        double *start = check_random(1, N), m[N] = {0}, v[N] = {0}, p[N], ema[N];
        fm_step_state step = {.lr = 1e-2, .clip_scale = 0.5};
        fm_adam a = {.n = N,
                     .beta1 = 0.9,
                     .beta2 = 0.999,
                     .eps = 1e-6,
                     .ema_decay = 0.99,
                     .grad_scale = 0.5,
                     .clip = true,
                     .state = &step,
                     .param = check_buffer(k, start, N),
                     .m = check_buffer(k, m, N),
                     .v = check_buffer(k, v, N),
                     .ema = check_buffer(k, start, N),
                     .copy = check_buffer(k, NULL, N)};
        for (int i = 0; i < N; i++)
            p[i] = ema[i] = start[i];
        for (int t = 1; t <= 3; t++) {
            double *grad = check_random((uint32_t)(10 + t), N);
            void *g = check_buffer(k, grad, N);
            for (int i = 0; i < N; i++) {
                double value = grad[i] / 4;
                m[i] = 0.9 * m[i] + 0.1 * value;
                v[i] = 0.999 * v[i] + 0.001 * value * value;
                double unbiased = v[i] / (1 - pow(0.999, t));
                p[i] -= 1e-2 * (m[i] / (1 - pow(0.9, t))) / (sqrt(unbiased) + 1e-6);
                ema[i] = 0.99 * ema[i] + 0.01 * p[i];
            }
            step.step = (uint64_t)t;
            a.grad = g;
            k->adam(NULL, &a);
            free(grad), free(g);
        }
        for (int i = 0; i < N; i++) {
            check_below(fabs(check_get(k, a.param, i) - p[i]), which ? 2e-7 : 1e-14, "param");
            check_below(fabs(check_get(k, a.ema, i) - ema[i]), which ? 2e-7 : 1e-14, "ema");
            assert_true(check_get(k, a.copy, i) == check_get(k, a.param, i));
        }
        void *before = check_buffer(k, NULL, N);
        k->copy(NULL, N, a.param, before);
        step.nonfinite = 1, a.grad = before;
        k->adam(NULL, &a);
        assert_memory_equal(before, a.param, N * fm_element_bytes(k->acc));
        free(start), free(before), free(a.param), free(a.m), free(a.v), free(a.ema), free(a.copy);
    }
}

/* -- initial parameters */

static void initial_distributions(void **state) {
    (void)state;
    enum { N = 100000 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32), *f64 = fm_kernels_cpu(FM_ELEMENT_F64);
    float *y = check_alloc(N, 4), part[7];
    double *wide = check_alloc(N, 8), mean = 0, square = 0, largest = 0;
    fm_draw draw = {1, NULL, 17, FM_PURPOSE_INIT};
    k->init(NULL, FM_INIT_TRUNCATED_NORMAL, N, 0, 0.5, &draw, y);
    for (int i = 0; i < N; i++) {
        mean += (double)y[i] / N;
        square += (double)y[i] * (double)y[i] / N;
        largest = fmax(largest, fabs((double)y[i]));
    }
    check_below(fabs(mean), 0.006, "mean of a truncated normal");
    check_below(fabs(sqrt(square) - 0.5), 0.004, "its standard deviation");
    check_below(largest, 2 * 0.5 / 0.87962566, "its cut");
    k->init(NULL, FM_INIT_TRUNCATED_NORMAL, 7, 1001, 0.5, &draw, part);
    assert_memory_equal(part, y + 1001, sizeof part); /* by element index */
    f64->init(NULL, FM_INIT_TRUNCATED_NORMAL, N, 0, 0.5, &draw, wide);
    for (int i = 0; i < N; i++)
        assert_true(y[i] == (float)wide[i]);
    k->init(NULL, FM_INIT_UNIFORM, N, 0, 0.5, &draw, y);
    mean = square = 0;
    for (int i = 0; i < N; i++) {
        assert_true(y[i] >= -0.5f && y[i] <= 0.5f);
        mean += (double)y[i] / N;
        square += (double)y[i] * (double)y[i] / N;
    }
    check_below(fabs(mean), 0.004, "mean of a uniform");
    check_below(fabs(sqrt(square) - 0.5 / sqrt(3)), 0.002, "its standard deviation");
    k->init(NULL, FM_INIT_CONSTANT, N, 0, 1, NULL, y);
    assert_true(y[0] == 1 && y[N - 1] == 1);
    free(y), free(wide);
}

/* The distribution function of its inverse gives the argument back. */
static void truncated_normal_inverts(void **state) {
    (void)state;
    const double below = 0.5 * erfc(sqrt(2));
    for (int i = 0; i <= 4096; i++) {
        uint32_t word = i == 4096 ? UINT32_MAX : (uint32_t)i << 20;
        double x = fm_truncated_normal(word);
        double u = (0.5 * erfc(-x / sqrt(2)) - below) / (1 - 2 * below);
        check_below(fabs(u - (word + 0.5) / 4294967296.0), 1e-14, "word %u", word);
        assert_true(fabs(x) < 2);
    }
}

/* -- the exponential */

static void exponentials(void **state) {
    (void)state;
    double worst_f32 = 0, worst_f64 = 0;
    for (int i = -80000; i <= 80000; i++) {
        float x = (float)(i * 0.00108);
        worst_f32 = fmax(worst_f32, fabs((double)fm_exp_f32(x) / exp((double)x) - 1));
        double y = i * 0.0088;
        worst_f64 = fmax(worst_f64, (double)fabsl(fm_exp_f64(y) / expl((long double)y) - 1));
    }
    check_below(worst_f32, 1.6e-7, "exp f32");
    check_below(worst_f64, 4e-16, "exp f64");
    assert_true(fm_exp_f32(0) == 1 && fm_exp_f64(0) == 1);
    assert_true(fm_exp_f32(-1e9f) == 0 && fm_exp_f64(-1e9) == 0);
    assert_true(fm_exp_f32(-INFINITY) == 0 && fm_exp_f64(-INFINITY) == 0);
    assert_true(isinf(fm_exp_f32(89)) && isinf(fm_exp_f64(710)));
    assert_true(isnan(fm_exp_f32(NAN)) && isnan(fm_exp_f64(NAN)));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cross_entropy),
        cmocka_unit_test(distance_bins_at_the_boundaries),
        cmocka_unit_test(distance_ids_of_recycling),
        cmocka_unit_test(gradient_norm_and_clip),
        cmocka_unit_test(adam_with_ema),
        cmocka_unit_test(initial_distributions),
        cmocka_unit_test(truncated_normal_inverts),
        cmocka_unit_test(exponentials),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
