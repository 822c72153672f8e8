/* test_kernels_threads.c: ranks may be threads of one process. Kernels that four threads call at
 * the same time, each on its own memory, give the bits of a single thread. */
#include "tests/trainer/backend/kernel_check.h"

#include "trainer/backend/cpu_threads.h"

#include <pthread.h>

enum { RANKS = 4, ROUNDS = 8, N = 40, HEADS = 2, C = 8, LD = HEADS * C, SIZE = N * N * LD };

typedef struct rank {
    float *operand[4], *bias, *o, *lse, *gradient[4], *dbias, *c;
    void *space;
    pthread_t thread;
} rank;

static float *filled(uint32_t stream, int64_t n) {
    float *x = check_alloc(n, sizeof(float));
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)check_uniform(stream, i);
    return x;
}

static fm_attention shape_of(const rank *r) {
    fm_attention_stride stride = {0, N * LD, LD, C};
    return (fm_attention){.n_group = 1,
                          .n_batch = N,
                          .n_query = N,
                          .n_key = N,
                          .n_head = HEADS,
                          .n_kv_head = HEADS,
                          .c_head = C,
                          .scale = 0.3,
                          .mask_value = 1e9,
                          .q = r->operand[0],
                          .k = r->operand[1],
                          .v = r->operand[2],
                          .g = r->operand[3],
                          .bias = r->bias,
                          .q_stride = stride,
                          .k_stride = stride,
                          .v_stride = stride,
                          .g_stride = stride,
                          .o_stride = stride,
                          .bias_stride = {0, 1, N * HEADS, HEADS},
                          .o = r->o,
                          .lse = r->lse};
}

static void prepare(const fm_kernels *k, rank *r) {
    for (int i = 0; i < 4; i++) {
        r->operand[i] = filled((uint32_t)i, SIZE);
        r->gradient[i] = filled(9, SIZE);
    }
    r->bias = filled(4, N * N * HEADS), r->dbias = filled(5, N * N * HEADS);
    r->o = filled(6, SIZE), r->lse = filled(7, N * N * HEADS), r->c = filled(8, N * N * N);
    fm_attention a = shape_of(r);
    r->space = check_workspace(k->attention_grad_workspace(&a));
}

static void *work(void *argument) {
    rank *r = argument;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_attention a = shape_of(r);
    fm_attention_grad grad = {.dout = r->operand[3],
                              .dq = {r->gradient[0], FM_WRITE},
                              .dk = {r->gradient[1], FM_WRITE},
                              .dv = {r->gradient[2], FM_WRITE},
                              .dg = {r->gradient[3], FM_WRITE},
                              .dbias = {r->dbias, FM_WRITE}};
    fm_gemm g = {.m = N * N,
                 .n = N,
                 .k = LD,
                 .batch = 1,
                 .trans_b = true,
                 .alpha = 1,
                 .a = r->operand[0],
                 .b = r->operand[1],
                 .c = r->c,
                 .lda = LD,
                 .ldb = LD,
                 .ldc = N};
    for (int round = 0; round < ROUNDS; round++) {
        k->attention(NULL, &a, r->space);
        k->attention_grad(NULL, &a, &grad, r->space);
        k->gemm(NULL, &g, NULL);
    }
    return NULL;
}

static void discard(rank *r) {
    for (int i = 0; i < 4; i++)
        free(r->operand[i]), free(r->gradient[i]);
    free(r->bias), free(r->dbias), free(r->o), free(r->lse), free(r->c), free(r->space);
}

static void threads_have_the_bits_of_one(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    rank alone, ranks[RANKS];
    prepare(k, &alone);
    work(&alone);
    for (int i = 0; i < RANKS; i++)
        prepare(k, &ranks[i]);
    for (int i = 0; i < RANKS; i++)
        assert_int_equal(pthread_create(&ranks[i].thread, NULL, work, &ranks[i]), 0);
    for (int i = 0; i < RANKS; i++) {
        assert_int_equal(pthread_join(ranks[i].thread, NULL), 0);
        assert_memory_equal(ranks[i].o, alone.o, SIZE * sizeof(float));
        for (int j = 0; j < 4; j++)
            assert_memory_equal(ranks[i].gradient[j], alone.gradient[j], SIZE * sizeof(float));
        assert_memory_equal(ranks[i].dbias, alone.dbias, N * N * HEADS * sizeof(float));
        assert_memory_equal(ranks[i].c, alone.c, N * N * N * sizeof(float));
        discard(&ranks[i]);
    }
    discard(&alone);
}

/* Attention, a large product and a batch of products, with the backend's own threads. */
static void run_kernels(rank *r, float *large, float *batch) {
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_attention a = shape_of(r);
    void *space = check_workspace(k->attention_workspace(&a));
    k->attention(NULL, &a, space);
    free(space);
    const int64_t rows = N * N;
    fm_gemm g = {.m = rows,
                 .n = rows,
                 .k = LD,
                 .batch = 1,
                 .trans_b = true,
                 .alpha = 1,
                 .a = r->operand[0],
                 .b = r->operand[1],
                 .c = large,
                 .lda = LD,
                 .ldb = LD,
                 .ldc = rows};
    k->gemm(NULL, &g, NULL);
    g.m = g.n = g.ldc = g.batch = N;
    g.c = batch;
    g.stride_a = g.stride_b = N * LD, g.stride_c = N * N;
    k->gemm(NULL, &g, NULL);
}

/* The threads that fm_cpu_use_threads gives to the kernels change no bit. */
static void own_threads_change_nothing(void **state) {
    (void)state;
    const int64_t n_large = (int64_t)N * N * N * N, n_batch = (int64_t)N * N * N;
    float *large[2], *batch[2];
    rank r[2];
    for (int i = 0; i < 2; i++) {
        large[i] = check_alloc(n_large, sizeof(float));
        batch[i] = check_alloc(n_batch, sizeof(float));
        prepare(fm_kernels_cpu(FM_ELEMENT_F32), &r[i]);
        fm_cpu_use_threads(i == 0 ? 1 : 3);
        for (int round = 0; round < ROUNDS; round++)
            run_kernels(&r[i], large[i], batch[i]);
    }
    fm_cpu_use_threads(1);
    assert_memory_equal(r[0].o, r[1].o, SIZE * sizeof(float));
    assert_memory_equal(r[0].lse, r[1].lse, N * N * HEADS * sizeof(float));
    assert_memory_equal(large[0], large[1], (size_t)n_large * sizeof(float));
    assert_memory_equal(batch[0], batch[1], (size_t)n_batch * sizeof(float));
    for (int i = 0; i < 2; i++) {
        free(large[i]), free(batch[i]);
        discard(&r[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(threads_have_the_bits_of_one),
                                       cmocka_unit_test(own_threads_change_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
