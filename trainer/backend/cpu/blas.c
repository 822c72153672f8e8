/* blas.c: see blas.h. OpenBLAS has 32-bit indices; larger sizes are asserted against. */
#include "trainer/backend/cpu/blas.h"

#include <assert.h>
#include <cblas.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

void fm_blas_init(void) {
    openblas_set_num_threads(1);
}

const char *fm_blas_processor(void) {
    return openblas_get_corename();
}

/* The configuration is "OpenBLAS 0.3.21 DYNAMIC_ARCH ... Haswell"; its first two words count. Every
 * thread has its own copy of them. */
const char *fm_blas_version(void) {
    static _Thread_local char version[64];
    const char *config = openblas_get_config();
    size_t name = strcspn(config, " "),
           number = strcspn(config + name + (config[name] == ' '), " ");
    snprintf(version, sizeof version, "%.*s", (int)(name + 1 + number), config);
    return version;
}

static blasint narrow(int64_t size) {
    assert(size >= 0 && size <= INT_MAX);
    return (blasint)size;
}

static CBLAS_TRANSPOSE transpose(bool is_transposed) {
    return is_transposed ? CblasTrans : CblasNoTrans;
}

void fm_blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                      float *c, int64_t ldc) {
    cblas_sgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), narrow(m), narrow(n),
                narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}

void fm_blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                      const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                      double *c, int64_t ldc) {
    cblas_dgemm(CblasRowMajor, transpose(trans_a), transpose(trans_b), narrow(m), narrow(n),
                narrow(k), alpha, a, narrow(lda), b, narrow(ldb), beta, c, narrow(ldc));
}
