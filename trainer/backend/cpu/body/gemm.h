/* body/gemm.h: matrix products through OpenBLAS, and their epilogues. */
#include "trainer/backend/cpu/body/real.h"
#include "trainer/backend/cpu_threads.h"

/* A product with an addend is computed apart and then added. The addend may be C itself, and the
 * result has the bits of a product followed by an addition. */
static size_t gemm_workspace(const fm_gemm *args) {
    return args->addend ? (size_t)(args->m * args->ldc) * sizeof(real) : 0;
}

static void gemm_epilogue(const fm_gemm *g, real *c) {
    const real *bias = g->bias, *relu = g->relu;
    for (int64_t row = 0; row < g->m; row++) {
        real *line = c + row * g->ldc;
        if (g->epilogue == FM_EPILOGUE_RELU_GRAD) {
            for (int64_t i = 0; i < g->n; i++)
                line[i] = relu[row * g->ldc + i] > 0 ? line[i] : 0;
            continue;
        }
        for (int64_t i = 0; i < g->n; i++)
            line[i] += bias[i];
        if (g->epilogue == FM_EPILOGUE_BIAS_RELU) {
            for (int64_t i = 0; i < g->n; i++)
                line[i] = line[i] < 0 ? 0 : line[i];
        }
    }
}

static void gemm_add(const fm_gemm *g, const real *addend, const real *product, real *c) {
    for (int64_t row = 0; row < g->m; row++)
        for (int64_t i = 0; i < g->n; i++)
            c[row * g->ldc + i] =
                (real)g->beta * addend[row * g->ldc + i] + product[row * g->ldc + i];
}

static void gemm_one(const fm_gemm *g, int64_t b, void *workspace) {
    real *c = (real *)g->c + b * g->stride_c, *product = g->addend ? workspace : c;
    REAL_GEMM(g->trans_a, g->trans_b, g->m, g->n, g->k, (real)g->alpha,
              (const real *)g->a + b * g->stride_a, g->lda, (const real *)g->b + b * g->stride_b,
              g->ldb, g->addend ? 0 : (real)g->beta, product, g->ldc);
    if (g->epilogue != FM_EPILOGUE_NONE) gemm_epilogue(g, product);
    if (g->addend) gemm_add(g, (const real *)g->addend + b * g->stride_c, product, c);
}

/* A share of the products of a batch. */
static void gemm_share(void *context, int part) {
    const fm_gemm *g = context;
    const int n_part = fm_cpu_threads();
    int64_t end = fm_cpu_part_begin(g->batch, 1, part + 1, n_part);
    for (int64_t b = fm_cpu_part_begin(g->batch, 1, part, n_part); b < end; b++)
        gemm_one(g, b, NULL);
}

static void gemm(fm_stream *stream, const fm_gemm *g, void *workspace) {
    bool is_grad = g->epilogue == FM_EPILOGUE_RELU_GRAD;
    assert(!is_grad || (g->batch == 1 && g->beta == 0 && g->relu));
    bool is_weight_sum = g->sum.data && !is_grad;
    assert(!is_weight_sum || (g->batch == 1 && g->trans_a && g->c_is_acc));
    assert(!g->addend || g->epilogue != FM_EPILOGUE_BIAS_RELU);
    if (g->batch > 1 && fm_cpu_threads() > 1 && !g->addend) {
        fm_cpu_run_parts(gemm_share, (void *)(uintptr_t)g, fm_cpu_threads());
    } else {
        for (int64_t b = 0; b < g->batch; b++)
            gemm_one(g, b, workspace);
    }
    if (is_weight_sum) {
        int64_t stride[2] = {0, g->lda};
        sum(stream, 1, g->k, g->m - g->sum_first, stride, (const real *)g->a + g->sum_first, g->sum,
            true, workspace);
    } else if (is_grad && g->sum.data) {
        int64_t stride[2] = {0, g->ldc};
        sum(stream, 1, g->m, g->n, stride, g->c, g->sum, true, workspace);
    }
}
