/* test_kernels_contract.c: tests a backend's promises beside its numbers: whole tables, named ops,
 * counted slow paths, and an assertion where a mask is neither 0 nor 1. */
#include "tests/trainer/backend/kernel_check.h"
#include "trainer/backend/fallback.h"
#include "trainer/backend/where.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void every_entry_is_there(void **state) {
    (void)state;
    const fm_element types[] = {FM_ELEMENT_F32, FM_ELEMENT_F64, FM_ELEMENT_F32};
    for (int i = 0; i < 3; i++) {
        const fm_kernels *k = i < 2 ? fm_kernels_cpu(types[i]) : fm_kernels_cpu(types[i])->tf32;
        int n_entry = 0;
#define FM_KERNEL(kind, result, name, ...) assert_true(k->name != NULL), n_entry++;
#include "trainer/backend/kernel_entries.h"
        assert_true(n_entry > 90);
        assert_int_equal(k->act, types[i]);
    }
    assert_null(fm_kernels_cpu(FM_ELEMENT_BF16));
    assert_null(fm_kernels_cpu(FM_ELEMENT_F64)->tf32);
}

/* The nearest number of 11 significant bits. */
static double rounded(float x) {
    int exponent;
    double fraction = frexp((double)x, &exponent);
    return ldexp(round(ldexp(fraction, 11)), exponent - 11);
}

static float operand(int64_t row, int64_t column) {
    return sinf((float)(row * 131 + column * 17 + 1)) * (row % 3 == 0 ? 1e-3f : 3);
}

/* op(A)[m, k] op(B)[k, n], of more than one tile each way, against sums of rounded numbers. */
static void products_of_tf32_round_their_operands(void **state) {
    (void)state;
    enum { M = 131, N = 133, K = 301, LD = 303 };
    static float a[LD * LD], b[LD * LD], c[M * N];
    for (int trans = 0; trans < 4; trans++) {
        const bool trans_a = trans & 1, trans_b = trans & 2;
        for (int64_t i = 0; i < LD * LD; i++)
            a[i] = operand(i / LD, i % LD), b[i] = operand(i % LD, i / LD + 7);
        fm_gemm g = {.m = M, .n = N, .k = K, .batch = 1, .trans_a = trans_a, .trans_b = trans_b};
        g.alpha = 0.5, g.beta = 1, g.lda = g.ldb = LD, g.ldc = N, g.a = a, g.b = b, g.c = c;
        for (int i = 0; i < M * N; i++)
            c[i] = 2;
        fm_kernels_cpu(FM_ELEMENT_F32)->tf32->gemm(NULL, &g, NULL);
        double error = 0, change = 0, norm = 0;
        for (int64_t i = 0; i < M * N; i++) {
            double sum = 0, exact = 0;
            for (int64_t k = 0; k < K; k++) {
                float x = a[trans_a ? k * LD + i / N : i / N * LD + k];
                float y = b[trans_b ? i % N * LD + k : k * LD + i % N];
                sum += rounded(x) * rounded(y), exact += (double)x * (double)y;
            }
            double expected = 2 + 0.5 * sum, other = 2 + 0.5 * exact, got = (double)c[i];
            error += (got - expected) * (got - expected), norm += expected * expected;
            change += (other - expected) * (other - expected);
        }
        assert_true(sqrt(error / norm) < 1e-6);
        assert_true(sqrt(change / norm) > 1e-5);
    }
}

static fm_fallback counter(fm_fallback_kind kind) {
    fm_fallback all[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(all);
    return all[kind];
}

static void slow_paths_are_counted(void **state) {
    (void)state;
    assert_int_equal(counter(FM_FALLBACK_TRIANGLE).count, 0);
    assert_string_equal(counter(FM_FALLBACK_TRIANGLE).text, "");
    fm_backend_fall_back(FM_FALLBACK_TRIANGLE, "crop %d is no multiple of 16", 250);
    fm_backend_fall_back(FM_FALLBACK_TRIANGLE, "crop %d is no multiple of 16", 251);
    assert_int_equal(counter(FM_FALLBACK_TRIANGLE).count, 2);
    assert_string_equal(counter(FM_FALLBACK_TRIANGLE).text, "crop 250 is no multiple of 16");
    assert_string_equal(counter(FM_FALLBACK_TRIANGLE).name, "triangle");
    assert_int_equal(counter(FM_FALLBACK_GEMM).count, 0);
    char longer[2 * FM_FALLBACK_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    fm_backend_fall_back(FM_FALLBACK_GEMM, "%s", longer);
    assert_int_equal(strlen(counter(FM_FALLBACK_GEMM).text), FM_FALLBACK_TEXT - 1);
}

static void *name_in_a_thread(void *result) {
    *(fm_backend_where *)result = fm_backend_get_where();
    fm_backend_name_op("other", NULL);
    return NULL;
}

static void ops_are_named_by_thread(void **state) {
    (void)state;
    fm_backend_name_step(7);
    fm_backend_name_op("gate", "evoformer.0");
    fm_backend_where other;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, name_in_a_thread, &other), 0);
    pthread_join(thread, NULL);
    assert_null(other.op);
    assert_int_equal(other.step, 0);
    fm_backend_where here = fm_backend_get_where();
    assert_string_equal(here.op, "gate");
    assert_string_equal(here.module, "evoformer.0");
    assert_int_equal(here.step, 7);
    fm_backend_name_op(NULL, NULL);
    assert_null(fm_backend_get_where().op);
}

/* Attention over two keys, the second of which has this mask. */
static void attend(const fm_kernels *k, float mask_of_second) {
    float q[2] = {1, 2}, keys[2] = {1, 3}, v[2] = {5, 7}, o[2], lse[2];
    float mask[2] = {1, mask_of_second};
    fm_attention_stride stride = {2, 2, 1, 1};
    fm_attention a = {.n_group = 1,
                      .n_batch = 1,
                      .n_query = 2,
                      .n_key = 2,
                      .n_head = 1,
                      .n_kv_head = 1,
                      .c_head = 1,
                      .scale = 1,
                      .mask_value = 1e9,
                      .q = q,
                      .k = keys,
                      .v = v,
                      .mask = mask,
                      .q_stride = stride,
                      .k_stride = stride,
                      .v_stride = stride,
                      .o_stride = stride,
                      .mask_stride = {2, 2, 1},
                      .o = o,
                      .lse = lse};
    void *space = check_workspace(k->attention_workspace(&a));
    k->attention(NULL, &a, space);
    free(space);
    if (mask_of_second == 0) assert_float_equal(o[0], 5, 0);
}

static void a_mask_between_0_and_1_asserts(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    attend(k, 0);
    attend(k, 1);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        assert_non_null(freopen("/dev/null", "w", stderr));
        signal(SIGABRT, SIG_DFL);
        attend(k, 0.5F);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGABRT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_there),
        cmocka_unit_test(products_of_tf32_round_their_operands),
        cmocka_unit_test(slow_paths_are_counted),
        cmocka_unit_test(ops_are_named_by_thread),
        cmocka_unit_test(a_mask_between_0_and_1_asserts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
