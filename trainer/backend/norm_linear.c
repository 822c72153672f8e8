/* norm_linear.c: see norm_linear.h. The workspace has the normalised rows and the workspace of one
 * product at a time, in this order. */
#include "trainer/backend/norm_linear.h"

#include "trainer/backend/products.h"

enum { ALIGN = 64 };

static size_t normed_bytes(const fm_kernels *k, const fm_norm_linear *a) {
    if (!a->gamma) return 0;
    size_t bytes = (size_t)(a->rows * a->c_in) * fm_element_bytes(k->act);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static fm_gemm main_product(const fm_norm_linear *a, const void *n) {
    return fm_product_of_linear(a->rows, a->c_in, a->c_out, n, a->w, a->bias, a->y);
}

static fm_gemm few_product(const fm_norm_linear *a, const void *n) {
    return fm_product_of_linear(a->rows, a->c_in, a->few.n, n, a->few.w, NULL, a->few.y);
}

size_t fm_norm_linear_composed_workspace(const fm_kernels *k, const fm_norm_linear *args) {
    fm_gemm one = main_product(args, args->x);
    size_t bytes = k->gemm_workspace(&one);
    if (args->few.n) {
        fm_gemm two = few_product(args, args->x);
        size_t second = k->gemm_workspace(&two);
        if (second > bytes) bytes = second;
    }
    return normed_bytes(k, args) + bytes;
}

void fm_norm_linear_composed(const fm_kernels *k, fm_stream *stream, const fm_norm_linear *args,
                             void *workspace) {
    const void *n = args->gamma ? workspace : args->x;
    char *after = (char *)workspace + normed_bytes(k, args);
    if (args->gamma) {
        fm_layernorm norm = {.rows = args->rows,
                             .c = args->c_in,
                             .ldx = args->c_in,
                             .ldy = args->c_in,
                             .eps = args->eps,
                             .x = args->x,
                             .gamma = args->gamma,
                             .beta = args->beta,
                             .y = workspace};
        k->layernorm(stream, &norm);
    }
    fm_gemm one = main_product(args, n);
    k->gemm(stream, &one, after);
    if (args->few.n) {
        fm_gemm two = few_product(args, n);
        k->gemm(stream, &two, after);
    }
}
