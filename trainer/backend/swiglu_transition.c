/* swiglu_transition.c: see swiglu_transition.h. Parts of the workspace that are not needed at the
 * same time share a place. */
#include "trainer/backend/swiglu_transition.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}
static size_t most_of(size_t a, size_t b) {
    return a > b ? a : b;
}
static size_t act_bytes(const fm_kernels *k, int64_t rows, int64_t c) {
    return aligned((size_t)(rows * c) * fm_element_bytes(k->act));
}

/* -- operands */

static fm_layernorm norm_of(const fm_kernels *k, const fm_swiglu_transition *a, void *y) {
    size_t beta = (size_t)a->c * fm_element_bytes(k->act);
    return (fm_layernorm){.rows = a->rows,
                          .c = a->c,
                          .ldx = a->c,
                          .ldy = a->c,
                          .eps = a->eps,
                          .x = a->x,
                          .gamma = a->norm,
                          .beta = a->norm ? (const char *)a->norm + beta : NULL,
                          .y = y};
}

static fm_swiglu swiglu_of(const fm_swiglu_transition *a, const void *projection, void *product) {
    return (fm_swiglu){.rows = a->rows,
                       .c = a->hidden,
                       .ldx = 2 * a->hidden,
                       .ldy = a->hidden,
                       .x = projection,
                       .y = product};
}

/* y [rows, c_out] = x [rows, c_in] w^T */
static fm_gemm linear(int64_t rows, int64_t c_in, int64_t c_out, const void *x, const void *w,
                      void *y) {
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
                     .ldc = c_out};
}

/* dx [rows, c_in] = dy [rows, c_out] w */
static fm_gemm input_gradient(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                              const void *w, void *dx) {
    return (fm_gemm){.m = rows,
                     .n = c_in,
                     .k = c_out,
                     .batch = 1,
                     .alpha = 1,
                     .a = dy,
                     .b = w,
                     .c = dx,
                     .lda = c_out,
                     .ldb = c_in,
                     .ldc = c_in};
}

/* dw [c_out, c_in] (+)= dy^T x */
static fm_gemm weight_gradient(int64_t rows, int64_t c_in, int64_t c_out, const void *dy,
                               const void *x, fm_out dw) {
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
                     .ldc = c_in};
}

/* -- forward */

/* The workspace: the projection, if it is not kept; the normalised x, later replaced by the
 * product; and the workspace of one matrix product. */
typedef struct forward_places {
    void *projection, *normed, *gemm;
    size_t bytes;
    fm_gemm first, second;
} forward_places;

static forward_places forward_of(const fm_kernels *k, const fm_swiglu_transition *a, void *base) {
    size_t projection = a->kept ? 0 : act_bytes(k, a->rows, 2 * a->hidden);
    size_t normed = most_of(act_bytes(k, a->rows, a->c), act_bytes(k, a->rows, a->hidden));
    forward_places p = {.projection = a->kept ? a->kept : base,
                        .normed = (char *)base + projection,
                        .gemm = (char *)base + projection + normed};
    p.first = linear(a->rows, a->c, 2 * a->hidden, p.normed, a->w1, p.projection);
    p.second = linear(a->rows, a->hidden, a->c, p.normed, a->w2, a->y);
    if (a->residual) p.second.beta = 1, p.second.addend = a->x;
    p.bytes =
        projection + normed + most_of(k->gemm_workspace(&p.first), k->gemm_workspace(&p.second));
    return p;
}

size_t fm_swiglu_transition_composed_kept(const fm_swiglu_transition *args) {
    return (size_t)(args->rows * 2 * args->hidden);
}

size_t fm_swiglu_transition_composed_workspace(const fm_kernels *k,
                                               const fm_swiglu_transition *args) {
    return forward_of(k, args, NULL).bytes;
}

void fm_swiglu_transition_composed(const fm_kernels *k, fm_stream *stream,
                                   const fm_swiglu_transition *args, void *workspace) {
    forward_places p = forward_of(k, args, workspace);
    fm_layernorm norm = norm_of(k, args, p.normed);
    k->layernorm(stream, &norm);       /* AF3-11:1 */
    k->gemm(stream, &p.first, p.gemm); /* AF3-11:2-3 */
    if (!args->y) return;
    fm_swiglu swiglu = swiglu_of(args, p.projection, p.normed);
    k->swiglu(stream, &swiglu);
    k->gemm(stream, &p.second, p.gemm); /* AF3-11:4 */
}

/* -- backward */

/* The workspace: the gradient of the projection; that of the product, which becomes the product and
 * later makes room for the normalised x, its gradient, mean and rstd; and the workspace of one
 * entry. */
typedef struct backward_places {
    void *dprojection, *product, *normed, *dnormed, *mean, *rstd, *after;
    size_t bytes;
    fm_gemm dproduct, weight2, weight1, dnorm;
} backward_places;

static backward_places backward_of(const fm_kernels *k, const fm_swiglu_transition *a,
                                   const fm_swiglu_transition_grad *g, void *base) {
    size_t dprojection = act_bytes(k, a->rows, 2 * a->hidden);
    size_t normed = act_bytes(k, a->rows, a->c);
    size_t column = aligned((size_t)a->rows * fm_element_bytes(k->acc));
    size_t shared = most_of(act_bytes(k, a->rows, a->hidden), 2 * normed + 2 * column);
    backward_places p = {.dprojection = base, .product = (char *)base + dprojection};
    p.normed = p.product;
    p.dnormed = (char *)p.normed + normed;
    p.mean = (char *)p.dnormed + normed;
    p.rstd = (char *)p.mean + column;
    p.after = (char *)p.product + shared;
    p.dproduct = input_gradient(a->rows, a->hidden, a->c, g->dy, a->w2, p.product);
    p.weight2 = weight_gradient(a->rows, a->hidden, a->c, g->dy, p.product, g->dw2);
    p.weight1 = weight_gradient(a->rows, a->c, 2 * a->hidden, p.dprojection, p.normed, g->dw1);
    p.dnorm = input_gradient(a->rows, a->c, 2 * a->hidden, p.dprojection, a->w1, p.dnormed);
    const fm_gemm *gemm[] = {&p.dproduct, &p.weight2, &p.weight1, &p.dnorm};
    size_t most = k->layernorm_grad_workspace(a->rows, a->c);
    for (int i = 0; i < 4; i++)
        most = most_of(most, k->gemm_workspace(gemm[i]));
    p.bytes = dprojection + shared + most;
    return p;
}

size_t fm_swiglu_transition_grad_composed_workspace(const fm_kernels *k,
                                                    const fm_swiglu_transition *args,
                                                    const fm_swiglu_transition_grad *grad) {
    return backward_of(k, args, grad, NULL).bytes;
}

void fm_swiglu_transition_grad_composed(const fm_kernels *k, fm_stream *stream,
                                        const fm_swiglu_transition *args,
                                        const fm_swiglu_transition_grad *grad, void *workspace) {
    backward_places p = backward_of(k, args, grad, workspace);
    fm_swiglu swiglu = swiglu_of(args, args->kept, p.product);
    k->gemm(stream, &p.dproduct, p.after);
    k->swiglu_grad(stream, &swiglu, p.product, (fm_out){p.dprojection, FM_WRITE});
    if (grad->dw2.data) k->gemm(stream, &p.weight2, p.after);
    fm_layernorm norm = norm_of(k, args, p.normed);
    norm.mean = p.mean, norm.rstd = p.rstd;
    k->layernorm(stream, &norm);
    if (grad->dw1.data) k->gemm(stream, &p.weight1, p.after);
    k->gemm(stream, &p.dnorm, p.after);
    fm_out dbeta = grad->dnorm;
    if (dbeta.data) dbeta.data = (char *)dbeta.data + (size_t)args->c * fm_element_bytes(k->acc);
    fm_layernorm_grad back = {.rows = args->rows,
                              .c = args->c,
                              .ldx = args->c,
                              .lddy = args->c,
                              .lddx = args->c,
                              .x = args->x,
                              .gamma = norm.gamma,
                              .dy = p.dnormed,
                              .mean = p.mean,
                              .rstd = p.rstd,
                              .dx = grad->dx,
                              .dgamma = grad->dnorm,
                              .dbeta = dbeta};
    k->layernorm_grad(stream, &back, p.after);
}
