/* row_end.c: see row_end.h. The workspace has the update, a hidden layer that is not kept, and the
 * workspace of one product at a time, in this order. */
#include "trainer/backend/row_end.h"

#include "trainer/backend/products.h"

enum { ALIGN = 64 };

static size_t aligned(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t rows_of(const fm_update_norm *end) {
    return end->dropout.n0 * end->dropout.n1;
}

/* Where nothing is dropped and no norm follows, the last product adds the residual itself. */
static bool product_ends(const fm_update_norm *end) {
    return !end->gamma && end->dropout.rate == 0;
}

static size_t update_bytes(const fm_kernels *k, const fm_update_norm *end) {
    if (product_ends(end)) return 0;
    return aligned((size_t)(rows_of(end) * end->dropout.c) * fm_element_bytes(k->act));
}

/* The last product of a sublayer: to `update`, or with the residual to y. */
static fm_gemm last_product(fm_gemm product, const fm_update_norm *end, const void *residual,
                            void *update, void *y) {
    product.c = update;
    if (product_ends(end)) product.beta = 1, product.addend = residual, product.c = y;
    return product;
}

static void finish(const fm_kernels *k, fm_stream *stream, const fm_update_norm *end,
                   const void *residual, const void *update, void *y, void *n) {
    if (end->gamma) {
        k->update_norm(stream, end, residual, update, y, n);
    } else if (!product_ends(end)) {
        k->dropout(stream, &end->dropout, residual, update, y);
    }
}

/* A LayerNorm of y. The n of update_norm has the same bits. */
static void normalise(const fm_kernels *k, fm_stream *stream, const fm_update_norm *end,
                      const void *gamma, const void *beta, const void *y, void *n) {
    int64_t c = end->dropout.c;
    if (!n) return;
    k->layernorm(stream, &(fm_layernorm){.rows = rows_of(end),
                                         .c = c,
                                         .ldx = c,
                                         .ldy = c,
                                         .eps = end->eps,
                                         .x = y,
                                         .gamma = gamma,
                                         .beta = beta,
                                         .y = n});
}

static fm_gemm update_product(const fm_linear_update *a, void *update) {
    fm_gemm product = fm_product_of_linear(rows_of(&a->end), a->c_in, a->end.dropout.c, a->x, a->w,
                                           a->bias, NULL);
    return last_product(product, &a->end, a->residual, update, a->y);
}

size_t fm_linear_update_composed_workspace(const fm_kernels *k, const fm_linear_update *args) {
    if (!args->x) return 0;
    fm_gemm product = update_product(args, NULL);
    return update_bytes(k, &args->end) + k->gemm_workspace(&product);
}

void fm_linear_update_composed(const fm_kernels *k, fm_stream *stream, const fm_linear_update *args,
                               void *workspace) {
    if (!args->x) {
        normalise(k, stream, &args->end, args->end.gamma, args->end.beta, args->y, args->n);
        return;
    }
    fm_gemm product = update_product(args, workspace);
    k->gemm(stream, &product, (char *)workspace + update_bytes(k, &args->end));
    finish(k, stream, &args->end, args->residual, workspace, args->y, args->n);
}

static fm_gemm first_product(const fm_transition *a, void *hidden) {
    fm_gemm product = fm_product_of_linear(rows_of(&a->end), a->end.dropout.c, a->hidden, a->x,
                                           a->w1, a->b1, hidden);
    product.epilogue = FM_EPILOGUE_BIAS_RELU;
    return product;
}

static fm_gemm second_product(const fm_transition *a, const void *hidden, void *update) {
    fm_gemm product = fm_product_of_linear(rows_of(&a->end), a->hidden, a->end.dropout.c, hidden,
                                           a->w2, a->b2, NULL);
    return last_product(product, &a->end, a->residual, update, a->y);
}

static size_t hidden_bytes(const fm_kernels *k, const fm_transition *a) {
    if (a->kept) return 0;
    return aligned((size_t)(rows_of(&a->end) * a->hidden) * fm_element_bytes(k->act));
}

size_t fm_transition_composed_workspace(const fm_kernels *k, const fm_transition *args) {
    if (!args->x) return 0;
    fm_gemm one = first_product(args, NULL), two = second_product(args, NULL, NULL);
    size_t first = k->gemm_workspace(&one), second = k->gemm_workspace(&two);
    return update_bytes(k, &args->end) + hidden_bytes(k, args) + (first > second ? first : second);
}

void fm_transition_composed(const fm_kernels *k, fm_stream *stream, const fm_transition *args,
                            void *workspace) {
    if (args->x) {
        char *after = (char *)workspace + update_bytes(k, &args->end);
        void *hidden = args->kept ? args->kept : after;
        after += hidden_bytes(k, args);
        fm_gemm one = first_product(args, hidden), two = second_product(args, hidden, workspace);
        k->gemm(stream, &one, after);
        k->gemm(stream, &two, after);
        finish(k, stream, &args->end, args->residual, workspace, args->y, args->n);
    } else {
        normalise(k, stream, &args->end, args->end.gamma, args->end.beta, args->y, args->n);
    }
    const fm_later_norm *later = &args->later;
    normalise(k, stream, &args->end, later->gamma, later->beta, args->y, later->n);
}

/* -- the gradient of a transition */

static size_t most_of(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t end_bytes(const fm_kernels *k, const fm_update_norm *end) {
    return end->gamma ? k->update_norm_grad_workspace(rows_of(end), end->dropout.c) : 0;
}

/* The workspace has dhidden, the hidden layer if it is not kept, and then that of one entry at a
 * time. */

/* The four products in the order in which they run. */
typedef struct gradient_products {
    fm_gemm weight2, hidden, weight1, input;
} gradient_products;

static gradient_products products_of(const fm_transition *a, const fm_transition_grad *g,
                                     const void *hidden, void *dhidden) {
    int64_t rows = rows_of(&a->end), c = a->end.dropout.c;
    fm_out to_hidden = {dhidden, FM_WRITE}, none = {0};
    gradient_products p = {
        .weight2 = fm_product_of_weight(rows, a->hidden, c, g->dy.data, hidden, g->dw2, g->db2),
        .hidden = fm_product_of_input(rows, a->hidden, c, g->dy.data, a->w2, to_hidden),
        .weight1 = fm_product_of_weight(rows, c, a->hidden, dhidden, a->x, g->dw1, none),
        .input = fm_product_of_input(rows, c, a->hidden, dhidden, a->w1, g->dx)};
    p.hidden.epilogue = FM_EPILOGUE_RELU_GRAD;
    p.hidden.relu = hidden;
    p.hidden.sum = g->db1;
    return p;
}

static size_t dhidden_bytes(const fm_kernels *k, const fm_transition *a) {
    return aligned((size_t)(rows_of(&a->end) * a->hidden) * fm_element_bytes(k->act));
}

size_t fm_transition_grad_composed_workspace(const fm_kernels *k, const fm_transition *args,
                                             const fm_transition_grad *grad) {
    gradient_products p = products_of(args, grad, NULL, NULL);
    fm_gemm again = first_product(args, NULL);
    const fm_gemm *gemm[] = {&p.weight2, &p.hidden, &p.weight1, &p.input, &again};
    size_t most = end_bytes(k, &args->end);
    for (int i = 0; i < 5; i++)
        most = most_of(most, k->gemm_workspace(gemm[i]));
    return dhidden_bytes(k, args) + hidden_bytes(k, args) + most;
}

void fm_transition_grad_composed(const fm_kernels *k, fm_stream *stream, const fm_transition *args,
                                 const fm_transition_grad *grad, void *workspace) {
    char *hidden = (char *)workspace + dhidden_bytes(k, args);
    void *after = hidden + hidden_bytes(k, args);
    gradient_products p = products_of(args, grad, args->kept ? args->kept : hidden, workspace);
    if (!args->kept) {
        fm_gemm again = first_product(args, hidden);
        k->gemm(stream, &again, after);
    }
    if (args->end.gamma) {
        fm_update_norm_grad end = {.y = args->y,
                                   .dn = grad->dn,
                                   .dy = grad->dy,
                                   .dgamma = grad->dgamma,
                                   .dbeta = grad->dbeta};
        k->update_norm_grad(stream, &args->end, &end, after);
    }
    if (p.weight2.c) k->gemm(stream, &p.weight2, after);
    k->gemm(stream, &p.hidden, after);
    if (p.weight1.c) k->gemm(stream, &p.weight1, after);
    if (p.input.c) k->gemm(stream, &p.input, after);
}
