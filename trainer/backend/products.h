/* products.h: the three matrix products of a linear layer as arguments of the entry gemm:
 * y = x w^T + bias with w [c_out, c_in], and its gradients. They are shared by compositions of
 * entries and by kernels that leave a product to gemm. */
#ifndef FM_BACKEND_PRODUCTS_H
#define FM_BACKEND_PRODUCTS_H

#include "trainer/backend/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y [rows, c_out] = x [rows, c_in] w^T + bias, or without a bias where it is NULL. */
fm_gemm fm_product_of_linear(int64_t rows, int64_t c_in, int64_t c_out, const void *x,
                             const void *w, const void *bias, void *y);

/* dx [rows, c_in] = dy [rows, c_out] w */
fm_gemm fm_product_of_input(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                            const void *w, fm_out dx);

/* dw [c_out, c_in] = dy^T x, and db, which may be empty, the sums of dy over the rows. */
fm_gemm fm_product_of_weight(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                             const void *x, fm_out dw, fm_out db);

#ifdef __cplusplus
}
#endif

#endif
