/* triangle_block.c: see triangle_block.h. One walk serves both the workspace query and the work:
 * without a workspace it calls no entry and only counts the bytes. */
#include "trainer/backend/triangle_block.h"

#include "trainer/backend/products.h"

#include <assert.h>

enum { ALIGN = 64 };

typedef struct walk {
    const fm_kernels *k;
    fm_stream *stream;
    const fm_triangle_block *at;
    char *base; /* NULL: only count */
    size_t used, peak;
    int64_t rows, c_projected;
} walk;

static walk begin(const fm_kernels *k, fm_stream *stream, const fm_triangle_block *at,
                  void *workspace) {
    return (walk){.k = k,
                  .stream = stream,
                  .at = at,
                  .base = workspace,
                  .rows = at->n * at->n,
                  .c_projected = 4 * at->c + at->c_z};
}

static void *take_bytes(walk *w, size_t bytes) {
    void *part = w->base ? w->base + w->used : NULL;
    w->used += (bytes + ALIGN - 1) / ALIGN * ALIGN;
    w->peak = w->used > w->peak ? w->used : w->peak;
    return part;
}

static void *take(walk *w, int64_t count, fm_element element) {
    return take_bytes(w, (size_t)count * fm_element_bytes(element));
}

static void *at_element(const void *data, int64_t elements, fm_element element) {
    return data ? (char *)data + elements * (int64_t)fm_element_bytes(element) : NULL;
}

static fm_out out_at(fm_out out, int64_t elements, fm_element element) {
    return (fm_out){at_element(out.data, elements, element), out.beta};
}

/* -- the parts */

static fm_layernorm norm(walk *w, int64_t c, const void *x, const void *weights) {
    fm_layernorm args = {.rows = w->rows,
                         .c = c,
                         .ldx = c,
                         .ldy = c,
                         .eps = w->at->eps,
                         .x = x,
                         .gamma = weights,
                         .beta = at_element(weights, c, w->k->act),
                         .y = take(w, w->rows * c, w->k->act),
                         .mean = take(w, w->rows, w->k->acc),
                         .rstd = take(w, w->rows, w->k->acc)};
    if (w->base) w->k->layernorm(w->stream, &args);
    return args;
}

static void norm_grad(walk *w, const fm_layernorm *args, const void *dy, fm_out dx,
                      fm_out dweights) {
    size_t mark = w->used;
    void *workspace = take_bytes(w, w->k->layernorm_grad_workspace(args->rows, args->c));
    fm_layernorm_grad grad = {.rows = args->rows,
                              .c = args->c,
                              .ldx = args->c,
                              .lddy = args->c,
                              .lddx = args->c,
                              .x = args->x,
                              .gamma = args->gamma,
                              .dy = dy,
                              .mean = args->mean,
                              .rstd = args->rstd,
                              .dx = dx,
                              .dgamma = dweights,
                              .dbeta = out_at(dweights, args->c, w->k->acc)};
    if (w->base) w->k->layernorm_grad(w->stream, &grad, workspace);
    w->used = mark;
}

static void product(walk *w, fm_gemm args) {
    size_t mark = w->used;
    void *workspace = take_bytes(w, w->k->gemm_workspace(&args));
    if (w->base) w->k->gemm(w->stream, &args, workspace);
    w->used = mark;
}

/* y [rows, c_out] = x [rows, c_in] weight^T + bias */
static void linear(walk *w, int64_t c_in, int64_t c_out, const void *x, const void *weight,
                   const void *bias, void *y) {
    product(w, fm_product_of_linear(w->rows, c_in, c_out, x, weight, bias, y));
}

/* The gradients of the weight, the bias and x of a linear layer, in this order. */
static void linear_grad(walk *w, int64_t c_in, int64_t c_out, const void *x, const void *weight,
                        const void *dy, void *dx, fm_out dweight, fm_out dbias) {
    if (dweight.data || !w->base) {
        product(w, fm_product_of_weight(w->rows, c_in, c_out, dy, x, dweight, (fm_out){0}));
    }
    size_t mark = w->used;
    void *workspace = take_bytes(w, w->k->sum_workspace(1, w->rows, c_out));
    if (w->base && dbias.data) {
        const int64_t stride[2] = {0, c_out};
        w->k->sum(w->stream, 1, w->rows, c_out, stride, dy, dbias, true, workspace);
    }
    w->used = mark;
    product(w, fm_product_of_input(w->rows, c_in, c_out, dy, weight, (fm_out){dx, FM_WRITE}));
}

/* The product over k; its operands are slices of the fused projection. */
static fm_triangle core_of(const walk *w, const void *z_projected, void *x) {
    const fm_triangle_block *at = w->at;
    fm_element act = w->k->act;
    return (fm_triangle){.n_i = at->n,
                         .n_j = at->n,
                         .n_k = at->n,
                         .c = at->c,
                         .incoming = at->incoming,
                         .pa = z_projected,
                         .ga = at_element(z_projected, at->c, act),
                         .pb = at_element(z_projected, 2 * at->c, act),
                         .gb = at_element(z_projected, 3 * at->c, act),
                         .lda = w->c_projected,
                         .ldb = w->c_projected,
                         .mask_a = at->mask,
                         .mask_b = at->mask,
                         .x = x};
}

/* y = sigmoid(g) * x, where g is the last c_z columns of the fused projection. */
static fm_gate gate_of(const walk *w, const void *z_projected, const void *x, void *y) {
    const fm_triangle_block *at = w->at;
    return (fm_gate){.rows = w->rows,
                     .c = at->c_z,
                     .ldg = w->c_projected,
                     .ldx = at->c_z,
                     .ldy = at->c_z,
                     .g = at_element(z_projected, 4 * at->c, w->k->act),
                     .x = x,
                     .y = y};
}

/* -- forward */

size_t fm_triangle_block_composed_kept(const fm_triangle_block *args) {
    return (size_t)(args->n * args->n * (5 * args->c + args->c_z));
}

static void *x_of(const walk *w, void *kept) {
    return at_element(kept, w->rows * w->c_projected, w->k->act);
}

static void forward(walk *w) {
    const fm_triangle_block *at = w->at;
    fm_element act = w->k->act;
    void *z_projected =
        at->keeps ? at->kept : take(w, (int64_t)fm_triangle_block_composed_kept(at), act);
    void *x = x_of(w, z_projected);
    size_t mark = w->used;
    fm_layernorm normed = norm(w, at->c_z, at->z, at->norm_in); /* A11:1 A12:1 */
    linear(w, at->c_z, w->c_projected, normed.y, at->projections, at->projections_bias,
           z_projected); /* A11:2-3 A12:2-3 */
    w->used = mark;
    fm_triangle core = core_of(w, z_projected, x);
    void *workspace = take_bytes(w, w->k->triangle_workspace(&core));
    if (w->base) w->k->triangle(w->stream, &core, workspace);
    w->used = mark;
    if (w->base && !at->y) return;
    void *update = take(w, w->rows * at->c_z, act);
    fm_layernorm inner = norm(w, at->c, x, at->norm_out);
    linear(w, at->c, at->c_z, inner.y, at->out, at->out_bias, update);
    fm_gate gate = gate_of(w, z_projected, update, update);
    if (w->base) {
        w->k->gate(w->stream, &gate); /* A11:4 A12:4 */
        w->k->dropout(w->stream, &at->dropout, at->residual ? at->z : NULL, update, at->y);
    }
}

size_t fm_triangle_block_composed_workspace(const fm_kernels *k, const fm_triangle_block *args) {
    walk w = begin(k, NULL, args, NULL);
    forward(&w);
    return w.peak;
}

void fm_triangle_block_composed(const fm_kernels *k, fm_stream *stream,
                                const fm_triangle_block *args, void *workspace) {
    walk w = begin(k, stream, args, workspace);
    assert(workspace);
    forward(&w);
}

/* -- backward */

/* Back through dropout, gate, output projection and its LayerNorm: makes dg and dx. */
static void out_backward(walk *w, const fm_triangle_block_grad *grad, void *dz_projected,
                         void *dx) {
    const fm_triangle_block *at = w->at;
    fm_element act = w->k->act;
    size_t mark = w->used;
    const void *dupdate = grad->dy;
    if (at->dropout.rate != 0) {
        void *dropped = take(w, w->rows * at->c_z, act);
        if (w->base) {
            w->k->dropout_grad(w->stream, &at->dropout, grad->dy, (fm_out){dropped, FM_WRITE});
        }
        dupdate = dropped;
    }
    fm_layernorm inner = norm(w, at->c, x_of(w, at->kept), at->norm_out);
    void *projected = take(w, w->rows * at->c_z, act);
    linear(w, at->c, at->c_z, inner.y, at->out, at->out_bias, projected);
    void *dprojected = take(w, w->rows * at->c_z, act);
    fm_gate gate = gate_of(w, at->kept, projected, NULL);
    fm_gate_grad gate_grad = {.dy = dupdate,
                              .dg = {at_element(dz_projected, 4 * at->c, act), FM_WRITE},
                              .dx = {dprojected, FM_WRITE}};
    if (w->base) w->k->gate_grad(w->stream, &gate, &gate_grad);
    void *dinner = take(w, w->rows * at->c, act);
    linear_grad(w, at->c, at->c_z, inner.y, at->out, dprojected, dinner, grad->dout,
                grad->dout_bias);
    norm_grad(w, &inner, dinner, (fm_out){dx, FM_WRITE}, grad->dnorm_out);
    w->used = mark;
}

static void core_backward(walk *w, void *dz_projected, const void *dx) {
    const fm_triangle_block *at = w->at;
    fm_element act = w->k->act;
    size_t mark = w->used;
    fm_triangle core = core_of(w, at->kept, NULL);
    fm_triangle_grad grad = {.dx = dx,
                             .dpa = {dz_projected, FM_WRITE},
                             .dga = {at_element(dz_projected, at->c, act), FM_WRITE},
                             .dpb = {at_element(dz_projected, 2 * at->c, act), FM_WRITE},
                             .dgb = {at_element(dz_projected, 3 * at->c, act), FM_WRITE}};
    void *workspace = take_bytes(w, w->k->triangle_grad_workspace(&core));
    if (w->base) w->k->triangle_grad(w->stream, &core, &grad, workspace);
    w->used = mark;
}

static void backward(walk *w, const fm_triangle_block_grad *grad) {
    const fm_triangle_block *at = w->at;
    fm_element act = w->k->act;
    void *dz_projected = take(w, w->rows * w->c_projected, act);
    size_t mark = w->used;
    void *dx = take(w, w->rows * at->c, act);
    out_backward(w, grad, dz_projected, dx);
    core_backward(w, dz_projected, dx);
    w->used = mark;
    fm_layernorm normed = norm(w, at->c_z, at->z, at->norm_in);
    void *dnormed = take(w, w->rows * at->c_z, act);
    linear_grad(w, at->c_z, w->c_projected, normed.y, at->projections, dz_projected, dnormed,
                grad->dprojections, grad->dprojections_bias);
    norm_grad(w, &normed, dnormed, grad->dz, grad->dnorm_in);
}

size_t fm_triangle_block_composed_grad_workspace(const fm_kernels *k,
                                                 const fm_triangle_block *args) {
    walk w = begin(k, NULL, args, NULL);
    backward(&w, &(fm_triangle_block_grad){.dy = NULL});
    return w.peak;
}

void fm_triangle_block_composed_grad(const fm_kernels *k, fm_stream *stream,
                                     const fm_triangle_block *args,
                                     const fm_triangle_block_grad *grad, void *workspace) {
    walk w = begin(k, stream, args, workspace);
    assert(workspace);
    backward(&w, grad);
}
