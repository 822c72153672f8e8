/* body/gemm.h: matrix products through OpenBLAS, and their epilogues. */
#include "trainer/backend/cpu/body/real.h"

static size_t gemm_workspace(const fm_gemm *args) {
    (void)args;
    return 0;
}

static void gemm_epilogue(const fm_gemm *g, real *c) {
    const real *bias = g->bias;
    for (int64_t row = 0; row < g->m; row++) {
        real *line = c + row * g->ldc;
        for (int64_t i = 0; i < g->n; i++)
            line[i] += bias[i];
        if (g->epilogue == FM_EPILOGUE_BIAS_RELU)
            for (int64_t i = 0; i < g->n; i++)
                line[i] = line[i] < 0 ? 0 : line[i];
    }
}

static void gemm(fm_stream *stream, const fm_gemm *g, void *workspace) {
    (void)stream, (void)workspace;
    for (int64_t b = 0; b < g->batch; b++) {
        real *c = (real *)g->c + b * g->stride_c;
        REAL_GEMM(g->trans_a, g->trans_b, g->m, g->n, g->k, (real)g->alpha,
                  (const real *)g->a + b * g->stride_a, g->lda,
                  (const real *)g->b + b * g->stride_b, g->ldb, (real)g->beta, c, g->ldc);
        if (g->epilogue != FM_EPILOGUE_NONE) gemm_epilogue(g, c);
    }
}
