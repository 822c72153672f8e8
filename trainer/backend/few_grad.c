/* few_grad.c: see few_grad.h. The workspace is that of one product at a time. */
#include "trainer/backend/few_grad.h"

static fm_gemm weight_product(const fm_few_grad *a) {
    return (fm_gemm){.m = a->c_out,
                     .n = a->c_in,
                     .k = a->rows,
                     .batch = 1,
                     .trans_a = true,
                     .alpha = 1,
                     .beta = a->dw.beta,
                     .a = a->dy,
                     .b = a->x,
                     .c = a->dw.data,
                     .c_is_acc = true,
                     .lda = a->c_out,
                     .ldb = a->c_in,
                     .ldc = a->c_in};
}

static fm_gemm input_product(const fm_few_grad *a) {
    return (fm_gemm){.m = a->rows,
                     .n = a->c_in,
                     .k = a->c_out,
                     .batch = 1,
                     .alpha = 1,
                     .beta = a->dx.beta,
                     .a = a->dy,
                     .b = a->w,
                     .c = a->dx.data,
                     .lda = a->c_out,
                     .ldb = a->c_in,
                     .ldc = a->c_in};
}

size_t fm_few_grad_composed_workspace(const fm_kernels *k, const fm_few_grad *args) {
    fm_gemm one = weight_product(args), two = input_product(args);
    size_t first = k->gemm_workspace(&one), second = k->gemm_workspace(&two);
    return first > second ? first : second;
}

void fm_few_grad_composed(const fm_kernels *k, fm_stream *stream, const fm_few_grad *args,
                          void *workspace) {
    fm_gemm one = weight_product(args), two = input_product(args);
    k->gemm(stream, &one, workspace);
    k->gemm(stream, &two, workspace);
}
