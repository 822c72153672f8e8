/* few_grad.c: see few_grad.h. The workspace is that of one product at a time. */
#include "trainer/backend/few_grad.h"

#include "trainer/backend/products.h"

static fm_gemm weight_product(const fm_few_grad *a) {
    return fm_product_of_weight(a->rows, a->c_in, a->c_out, a->dy, a->x, a->dw, (fm_out){0});
}

static fm_gemm input_product(const fm_few_grad *a) {
    return fm_product_of_input(a->rows, a->c_in, a->c_out, a->dy, a->w, a->dx);
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
