/* blas.h: the matrix products of OpenBLAS, row-major. OpenBLAS has one thread; large products of
 * f32 are divided over the backend's (threads.h). Only blas.c includes cblas.h. */
#ifndef FM_BACKEND_CPU_BLAS_H
#define FM_BACKEND_CPU_BLAS_H

#include <stdbool.h>
#include <stdint.h>

/* Sets OpenBLAS to one thread, so that sums have one order and OpenBLAS does not compete with the
 * caller's threads. */
void fm_blas_init(void);

/* The processor whose kernels OpenBLAS chose, such as "Haswell". Its products have the bits of that
 * choice. */
const char *fm_blas_processor(void);

/* "OpenBLAS 0.3.21". */
const char *fm_blas_version(void);

/* C[m, n] = alpha op(A)[m, k] op(B)[k, n] + beta C; with beta 0, C is not read. Sizes may be 0. */
void fm_blas_gemm_f32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                      const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                      float *c, int64_t ldc);
/* The same on operands that are rounded to tf32, 11 significant bits, to nearest. Slower: A and B
 * are copied tile by tile. */
void fm_blas_gemm_tf32(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                       const float *a, int64_t lda, const float *b, int64_t ldb, float beta,
                       float *c, int64_t ldc);
void fm_blas_gemm_f64(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, double alpha,
                      const double *a, int64_t lda, const double *b, int64_t ldb, double beta,
                      double *c, int64_t ldc);

#endif
