/* products.c: see products.h. */
#include "trainer/backend/products.h"

fm_gemm fm_product_of_linear(int64_t rows, int64_t c_in, int64_t c_out, const void *x,
                             const void *w, const void *bias, void *y) {
    return (fm_gemm){.m = rows,
                     .n = c_out,
                     .k = c_in,
                     .batch = 1,
                     .trans_b = true,
                     .alpha = 1,
                     .a = x,
                     .b = w,
                     .c = y,
                     .lda = c_in,
                     .ldb = c_in,
                     .ldc = c_out,
                     .epilogue = bias ? FM_EPILOGUE_BIAS : FM_EPILOGUE_NONE,
                     .bias = bias};
}

fm_gemm fm_product_of_input(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                            const void *w, fm_out dx) {
    return (fm_gemm){.m = rows,
                     .n = c_in,
                     .k = c_out,
                     .batch = 1,
                     .alpha = 1,
                     .beta = dx.beta,
                     .a = dy,
                     .b = w,
                     .c = dx.data,
                     .lda = c_out,
                     .ldb = c_in,
                     .ldc = c_in};
}

fm_gemm fm_product_of_weight(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                             const void *x, fm_out dw, fm_out db) {
    return (fm_gemm){.m = c_out,
                     .n = c_in,
                     .k = rows,
                     .batch = 1,
                     .trans_a = true,
                     .alpha = 1,
                     .beta = dw.beta,
                     .a = dy,
                     .b = x,
                     .c = dw.data,
                     .c_is_acc = true,
                     .lda = c_out,
                     .ldb = c_in,
                     .ldc = c_in,
                     .sum = db};
}
