/* few_grad.c: see few_grad.h. With a norm, the workspace begins with the gradient of the normalised
 * rows, and with these rows themselves if the caller has no place for them. The entries share the
 * rest, because they run one after the other. */
#include "trainer/backend/few_grad.h"

#include "trainer/backend/products.h"

enum { ALIGN = 64 };

static size_t rows_bytes(const fm_kernels *k, const fm_few_grad *a) {
    if (!a->norm.gamma) return 0;
    size_t bytes = (size_t)(a->rows * a->c_in) * fm_element_bytes(k->act);
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static fm_gemm weight_product(const fm_few_grad *a, const void *n) {
    return fm_product_of_weight(a->rows, a->c_in, a->c_out, a->dy, n, a->dw, (fm_out){0});
}

/* Into dx. With a norm, into `dn`, together with the gradient that other readers have left. */
static fm_gemm input_product(const fm_few_grad *a, void *dn) {
    fm_out to = a->norm.gamma ? (fm_out){dn, a->norm.dn ? FM_ADD : FM_WRITE} : a->dx;
    fm_gemm product = fm_product_of_input(a->rows, a->c_in, a->c_out, a->dy, a->w, to);
    product.addend = a->norm.gamma ? a->norm.dn : NULL;
    return product;
}

static fm_layernorm norm_of(const fm_few_grad *a, void *n) {
    return (fm_layernorm){.rows = a->rows,
                          .c = a->c_in,
                          .ldx = a->c_in,
                          .ldy = a->c_in,
                          .eps = a->norm.eps,
                          .x = a->x,
                          .gamma = a->norm.gamma,
                          .beta = a->norm.beta,
                          .y = n};
}

static fm_layernorm_grad norm_grad_of(const fm_few_grad *a, const void *dn) {
    return (fm_layernorm_grad){.rows = a->rows,
                               .c = a->c_in,
                               .ldx = a->c_in,
                               .lddy = a->c_in,
                               .lddx = a->c_in,
                               .x = a->x,
                               .gamma = a->norm.gamma,
                               .dy = dn,
                               .dx = a->dx,
                               .dgamma = a->norm.dgamma,
                               .dbeta = a->norm.dbeta,
                               .eps = a->norm.eps};
}

size_t fm_few_grad_composed_workspace(const fm_kernels *k, const fm_few_grad *args) {
    fm_gemm one = weight_product(args, args->x), two = input_product(args, NULL);
    size_t bytes[3] = {k->gemm_workspace(&one), k->gemm_workspace(&two), 0}, most = 0;
    if (args->norm.gamma) bytes[2] = k->layernorm_grad_workspace(args->rows, args->c_in);
    for (int i = 0; i < 3; i++)
        most = bytes[i] > most ? bytes[i] : most;
    return (args->norm.n ? 1 : 2) * rows_bytes(k, args) + most;
}

void fm_few_grad_composed(const fm_kernels *k, fm_stream *stream, const fm_few_grad *args,
                          void *workspace) {
    bool has_norm = args->norm.gamma != NULL;
    char *dn = (char *)workspace, *after = dn + rows_bytes(k, args);
    void *n = args->norm.n;
    if (has_norm) {
        if (!n) n = after, after += rows_bytes(k, args);
        fm_layernorm norm = norm_of(args, n);
        k->layernorm(stream, &norm);
    }
    fm_gemm one = weight_product(args, has_norm ? n : args->x);
    fm_gemm two = input_product(args, dn);
    k->gemm(stream, &one, after);
    k->gemm(stream, &two, after);
    if (!has_norm) return;
    fm_layernorm_grad grad = norm_grad_of(args, dn);
    k->layernorm_grad(stream, &grad, after);
}
