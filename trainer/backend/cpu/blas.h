/* blas.h: the matrix products of OpenBLAS, row-major, on one thread. blas.c alone includes
 * cblas.h. */
#ifndef FM_BACKEND_CPU_BLAS_H
#define FM_BACKEND_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* Keeps OpenBLAS at one thread: sums then have one order, and the caller's threads are its own. */
void fm_blas_init(void);

/* C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C; beta 0 does not read C. Sizes may be 0. */
void fm_blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                      float *c, int64_t ldc);
void fm_blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                      const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                      double *c, int64_t ldc);

#endif
