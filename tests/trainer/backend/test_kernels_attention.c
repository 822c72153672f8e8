/* test_kernels_attention.c: gated attention with pair bias and mask against the formula and against
 * differences, in the layouts that the model uses. */
#include "tests/trainer/backend/kernel_check.h"

enum { Q, K, V, G, BIAS, MASK };

typedef struct layout {
    fm_attention shape; /* sizes and strides; pointers are filled by bind */
    bool gated, biased, masked, no_valid_key;
} layout;

static fm_attention bind(const layout *l, void **in) {
    fm_attention a = l->shape;
    a.q = in[Q], a.k = in[K], a.v = in[V];
    a.g = l->gated ? in[G] : NULL;
    a.bias = l->biased ? in[BIAS] : NULL;
    a.mask = l->masked ? in[MASK] : NULL;
    return a;
}

static size_t lse_bytes(const fm_kernels *k, const fm_attention *a) {
    return (size_t)(a->n_group * a->n_batch * a->n_head * a->n_query) * fm_element_bytes(k->acc);
}

static void forward(const fm_kernels *k, const void *ctx, void **in, void *out) {
    fm_attention a = bind(ctx, in);
    a.o = out;
    a.lse = check_workspace(lse_bytes(k, &a));
    void *workspace = check_workspace(k->attention_workspace(&a));
    k->attention(NULL, &a, workspace);
    free(workspace);
    free(a.lse);
}

static void backward(const fm_kernels *k, const void *ctx, void **in, const void *dout,
                     fm_out *din) {
    fm_attention a = bind(ctx, in);
    a.lse = check_workspace(lse_bytes(k, &a));
    int64_t out_size = a.n_group * a.n_batch * a.n_query * a.o_stride.row * 4;
    a.o = check_alloc(out_size, fm_element_bytes(k->act));
    void *workspace = check_workspace(k->attention_workspace(&a));
    k->attention(NULL, &a, workspace);
    free(workspace);
    free(a.o);
    a.o = NULL; /* not saved: backward may not need it */
    fm_attention_grad grad = {.dout = dout, .dq = din[Q], .dk = din[K], .dv = din[V]};
    if (a.g) grad.dg = din[G];
    if (a.bias) grad.dbias = din[BIAS];
    workspace = check_workspace(k->attention_grad_workspace(&a));
    k->attention_grad(NULL, &a, &grad, workspace);
    free(workspace);
    free(a.lse);
}

static int64_t place(fm_attention_stride s, int64_t g, int64_t b, int64_t r, int64_t h) {
    return g * s.group + b * s.batch + r * s.row + h * s.head;
}

/* One output row by the formula of the paper. */
static void formula_row(const layout *l, double **in, double *out, const int64_t at[4]) {
    const fm_attention *a = &l->shape;
    int64_t g = at[0], b = at[1], h = at[2], row = at[3], kv = a->n_kv_head == 1 ? 0 : h;
    double p[64], total = 0, largest = -INFINITY;
    for (int64_t key = 0; key < a->n_key; key++) {
        double logit = 0;
        for (int64_t c = 0; c < a->c_head; c++)
            logit += in[Q][place(a->q_stride, g, b, row, h) + c] *
                     in[K][place(a->k_stride, g, b, key, kv) + c];
        logit *= a->scale;
        if (l->biased) {
            logit += in[BIAS][g * a->bias_stride[0] + h * a->bias_stride[1] +
                              row * a->bias_stride[2] + key * a->bias_stride[3]];
        }
        if (l->masked && !l->no_valid_key) {
            logit +=
                a->mask_value *
                (in[MASK][g * a->mask_stride[0] + b * a->mask_stride[1] + key * a->mask_stride[2]] -
                 1);
        }
        p[key] = logit;
        largest = fmax(largest, logit);
    }
    for (int64_t key = 0; key < a->n_key; key++)
        total += p[key] = exp(p[key] - largest);
    for (int64_t c = 0; c < a->c_head; c++) {
        double value = 0;
        for (int64_t key = 0; key < a->n_key; key++)
            value += p[key] / total * in[V][place(a->v_stride, g, b, key, kv) + c];
        if (l->gated) value /= 1 + exp(-in[G][place(a->g_stride, g, b, row, h) + c]);
        out[place(a->o_stride, g, b, row, h) + c] = value;
    }
}

static void formula(const void *ctx, double **in, double *out) {
    const layout *l = ctx;
    const fm_attention *a = &l->shape;
    for (int64_t g = 0; g < a->n_group; g++)
        for (int64_t b = 0; b < a->n_batch; b++)
            for (int64_t h = 0; h < a->n_head; h++)
                for (int64_t row = 0; row < a->n_query; row++)
                    formula_row(l, in, out, (int64_t[4]){g, b, h, row});
}

static void fill_mask(const void *ctx, double **in) {
    const layout *l = ctx;
    int64_t n = l->shape.n_group * l->shape.n_batch * l->shape.n_key;
    for (int64_t i = 0; i < n && l->masked; i++)
        in[MASK][i] = !l->no_valid_key && i % 5 != 2;
}

/* q k v g are [group, batch, row, head, c] in rows of ld elements. The bias is [group, query, key,
 * head], as a linear layer over z writes it. transposed exchanges batch and row. */
static layout make(int64_t group, int64_t batch, int64_t query, int64_t key, int64_t head,
                   int64_t c, int64_t ld, bool transposed) {
    layout l = {.shape = {.n_group = group,
                          .n_batch = batch,
                          .n_query = query,
                          .n_key = key,
                          .n_head = head,
                          .n_kv_head = head,
                          .c_head = c,
                          .scale = 1 / sqrt((double)c),
                          .mask_value = 1e9}};
    fm_attention *a = &l.shape;
    fm_attention_stride q = {batch * query * ld, query * ld, ld, c};
    fm_attention_stride k = {batch * key * ld, key * ld, ld, c};
    if (transposed) {
        q.batch = k.batch = ld;
        q.row = k.row = batch * ld;
    }
    a->q_stride = a->g_stride = a->o_stride = q;
    a->k_stride = a->v_stride = k;
    int64_t bias[4] = {query * key * head, 1, key * head, head}, mask[3] = {batch * key, key, 1};
    memcpy(a->bias_stride, bias, sizeof bias);
    memcpy(a->mask_stride, mask, sizeof mask);
    return l;
}

static void check(const char *name, layout l) {
    const fm_attention *a = &l.shape;
    l.gated = strchr(name, 'g') != NULL;
    l.biased = strchr(name, 'b') != NULL;
    l.masked = strchr(name, 'm') != NULL;
    int64_t ld = a->q_stride.row < a->q_stride.batch ? a->q_stride.row : a->q_stride.batch;
    int64_t q_rows = a->n_group * a->n_batch * a->n_query;
    int64_t k_rows = a->n_group * a->n_batch * a->n_key, width = a->n_head * a->c_head;
    int64_t kv_width = a->n_kv_head * a->c_head;
    kernel_case c = {
        .name = name,
        .n_in = 6,
        .in_size = {q_rows * ld, k_rows * ld, k_rows * ld, q_rows * ld,
                    a->n_group * a->n_head * a->n_query * a->n_key,
                    a->n_group * a->n_batch * a->n_key},
        .gap = {q_rows * (ld - width), k_rows * (ld - kv_width), k_rows * (ld - kv_width),
                q_rows * (ld - width)},
        .is_constant = {[G] = !l.gated, [BIAS] = !l.biased, [MASK] = true},
        .fill = fill_mask,
        .out_size = q_rows * ld,
        .forward = forward,
        .backward = backward,
        .formula = formula,
        .ctx = &l,
        .tolerance_f32 = 2e-6,
    };
    check_kernel(&c);
}

static void row_attention_with_pair_bias(void **state) {
    (void)state;
    check("gbm", make(1, 3, 7, 7, 2, 5, 10, false));
    check("gbm", make(1, 2, 9, 9, 3, 8, 40, false)); /* slices of a fused projection */
}

static void column_and_ending_node_are_strides(void **state) {
    (void)state;
    check("gm", make(1, 5, 6, 6, 2, 4, 8, true));
    check("gbm", make(1, 6, 6, 6, 2, 4, 12, true));
}

static void each_group_has_a_separate_bias(void **state) {
    (void)state;
    check("gbm", make(2, 3, 4, 4, 2, 3, 6, false));
}

static void plain_and_rectangular(void **state) {
    (void)state;
    check("-", make(1, 2, 3, 11, 1, 4, 4, false));
    check("b", make(1, 2, 5, 3, 2, 4, 8, false));
    check("m", make(1, 4, 1, 4, 2, 6, 12, false)); /* pointwise: one query */
}

static void sizes_of_one(void **state) {
    (void)state;
    check("gbm", make(1, 1, 1, 1, 1, 1, 1, false));
    check("gb", make(1, 2, 1, 3, 1, 1, 1, false));
    check("gb", make(1, 1, 4, 1, 2, 3, 6, false));
}

static void more_queries_than_a_block(void **state) {
    (void)state;
    check("gbm", make(1, 1, 150, 3, 2, 2, 4, false));
}

static void a_shared_key_sums_over_heads(void **state) {
    (void)state;
    layout l = make(1, 3, 2, 5, 3, 4, 12, false);
    l.shape.n_kv_head = 1;
    check("m", l);
    check("gm", l);
}

static void a_batch_without_valid_keys_is_unmasked(void **state) {
    (void)state;
    layout l = make(1, 2, 3, 5, 2, 4, 8, false);
    l.no_valid_key = true;
    check("gbm", l);
}

static void full_size_head_widths(void **state) {
    (void)state;
    check("gbm", make(1, 2, 17, 17, 2, 32, 64, false));
    check("gbm", make(1, 2, 13, 13, 2, 16, 32, false));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_attention_with_pair_bias),
        cmocka_unit_test(column_and_ending_node_are_strides),
        cmocka_unit_test(each_group_has_a_separate_bias),
        cmocka_unit_test(plain_and_rectangular),
        cmocka_unit_test(sizes_of_one),
        cmocka_unit_test(more_queries_than_a_block),
        cmocka_unit_test(a_shared_key_sums_over_heads),
        cmocka_unit_test(a_batch_without_valid_keys_is_unmasked),
        cmocka_unit_test(full_size_head_widths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
