/* test_kernels_reference.c: the cores inside their sublayers against OpenFold's tensors
 * (model/af2_units.npz of the reference data). This checks facts that only another program can
 * tell, such as the axis of z that is the query of the ending node, or the order of the channel
 * pair in the outer product. Outputs must agree within 1e-5 and gradients of weights that depend on
 * the core within 1e-4, in float and in double (the file itself is float). */
#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"
#include "tests/trainer/backend/kernel_check.h"

enum { N_RES = 16, N_SEQ = 10, C_M = 32, C_Z = 16 };

typedef struct unit {
    const fm_kernels *k;
    const fm_npz *npz;
    fm_arena *arena;
    const char *name;
} unit;

static const fm_npy *find(const unit *u, const char *name) {
    char full[160];
    snprintf(full, sizeof full, "%s/%s", u->name, name);
    const fm_npy *array = fm_npz_find(u->npz, full);
    if (!array) fail_msg("no %s", full);
    assert_string_equal(array->dtype, "<f4");
    return array;
}

static void *room(const unit *u, int64_t n) {
    void *memory = fm_arena_alloc_array(u->arena, (size_t)n, fm_element_bytes(u->k->act));
    assert_non_null(memory);
    return memory;
}

static void *load(const unit *u, const char *name) {
    const fm_npy *array = find(u, name);
    void *memory = room(u, (int64_t)array->count);
    u->k->cast(NULL, (int64_t)array->count, FM_ELEMENT_F32, array->data, memory);
    return memory;
}

static void compare(const unit *u, const char *name, const void *found, double limit) {
    const fm_npy *array = find(u, name);
    double difference = 0, size = 0;
    for (size_t i = 0; i < array->count; i++) {
        double x = check_get(u->k, found, (int64_t)i), y = (double)((const float *)array->data)[i];
        difference += (x - y) * (x - y);
        size += y * y;
    }
    check_below(sqrt(difference / size), limit, "%s of %s (%s)", name, u->name, u->k->name);
}

static void *at(const unit *u, void *memory, int64_t element) {
    return (char *)memory + element * (int64_t)fm_element_bytes(u->k->act);
}

/* y[rows, c_out] with rows ldy apart = x W^T + b; bias NULL: none. */
static void linear(const unit *u, const void *x, int64_t rows, int64_t c_in, const char *weight,
                   const char *bias, void *y, int64_t c_out, int64_t ldy) {
    fm_gemm g = {.m = rows,
                 .n = c_out,
                 .k = c_in,
                 .batch = 1,
                 .trans_b = true,
                 .alpha = 1,
                 .a = x,
                 .b = load(u, weight),
                 .c = y,
                 .lda = c_in,
                 .ldb = c_in,
                 .ldc = ldy,
                 .epilogue = bias ? FM_EPILOGUE_BIAS : FM_EPILOGUE_NONE,
                 .bias = bias ? load(u, bias) : NULL};
    u->k->gemm(NULL, &g, NULL);
}

/* Checks gw.<name> = dy^T x, dy's rows lddy apart. */
static void compare_weight(const unit *u, const char *name, const void *dy, int64_t lddy,
                           int64_t c_out, const void *x, int64_t c_in, int64_t rows) {
    void *dw = room(u, c_out * c_in);
    fm_gemm g = {.m = c_out,
                 .n = c_in,
                 .k = rows,
                 .batch = 1,
                 .trans_a = true,
                 .alpha = 1,
                 .a = dy,
                 .b = x,
                 .c = dw,
                 .lda = lddy,
                 .ldb = c_in,
                 .ldc = c_in};
    u->k->gemm(NULL, &g, NULL);
    compare(u, name, dw, 1e-4);
}

static void *normalise(const unit *u, const void *x, const char *gamma, const char *beta,
                       int64_t rows, int64_t c) {
    fm_layernorm a = {rows,
                      c,
                      c,
                      c,
                      1e-5,
                      x,
                      load(u, gamma),
                      load(u, beta),
                      room(u, rows * c),
                      room(u, rows),
                      room(u, rows)};
    u->k->layernorm(NULL, &a);
    return a.y;
}

/* -- attention */

/* [N_RES, N_RES, c], with its first two axes exchanged on request. The reference passes z and its
 * mask transposed to the ending node and runs it as a starting node; this backend passes z itself.
 */
static void *exchange(const unit *u, bool asked, void *x, int64_t c) {
    if (!asked) return x;
    fm_strided move = {.rank = 3,
                       .shape = {N_RES, N_RES, c},
                       .x_stride = {c, N_RES * c, 1},
                       .y_stride = {N_RES * c, c, 1},
                       .alpha = 1,
                       .x = x,
                       .y = {room(u, N_RES * N_RES * c), FM_WRITE}};
    u->k->copy_strided(NULL, &move);
    return move.y.data;
}

typedef struct attention_unit {
    const char *prefix; /* of the weights: "mha." */
    const char *norm;   /* of the LayerNorm */
    const char *bias;   /* the linear over z, NULL: none */
    bool columns;       /* attends along the first axis */
    bool over_pairs;    /* z is the input itself */
    int64_t n0, n1, c, heads;
} attention_unit;

static const char *weight_name(char out[64], const char *kind, const char *prefix,
                               const char *name) {
    snprintf(out, 64, "%s.%s%s", kind, prefix, name);
    return out;
}

/* The bias [query, key, head] from z, transposed for the ending node. */
static void *attention_bias(const unit *u, const attention_unit *t, fm_attention *a, void **ret_z) {
    char name[64];
    snprintf(name, sizeof name, "w.%s.weight", t->bias);
    void *z = t->over_pairs ? *ret_z
                            : normalise(u, load(u, "in.z"), "w.layer_norm_z.weight",
                                        "w.layer_norm_z.bias", N_RES * N_RES, C_Z);
    void *bias = room(u, N_RES * N_RES * t->heads);
    linear(u, z, N_RES * N_RES, C_Z, name, NULL, bias, t->heads, t->heads);
    const int64_t along = N_RES * t->heads;
    a->bias_stride[1] = 1;
    a->bias_stride[2] = t->columns ? t->heads : along;
    a->bias_stride[3] = t->columns ? along : t->heads;
    *ret_z = z;
    return bias;
}

static const char *const projections[4] = {"linear_q", "linear_k", "linear_v", "linear_g"};

/* q k v g of x in one matrix, and everything of the core but bias and output. */
static fm_attention project(const unit *u, const attention_unit *t, const void *x) {
    int64_t rows = t->n0 * t->n1, c = t->c, ld = 4 * c, width = c / t->heads;
    char w[32], b[32], name[64], other[64];
    void *qkvg = room(u, rows * ld);
    for (int i = 0; i < 4; i++) {
        snprintf(w, sizeof w, "%s.weight", projections[i]);
        snprintf(b, sizeof b, "%s.bias", projections[i]);
        linear(u, x, rows, c, weight_name(name, "w", t->prefix, w),
               i == 3 ? weight_name(other, "w", t->prefix, b) : NULL, at(u, qkvg, i * c), c, ld);
    }
    fm_attention_stride in = {0, t->n1 * ld, ld, width}, out = {0, t->n1 * c, c, width};
    if (t->columns) in = (fm_attention_stride){0, ld, t->n1 * ld, width};
    if (t->columns) out = (fm_attention_stride){0, c, t->n1 * c, width};
    fm_attention a = {.n_group = 1, .n_head = t->heads, .n_kv_head = t->heads, .c_head = width};
    a.n_batch = t->columns ? t->n1 : t->n0;
    a.n_query = a.n_key = t->columns ? t->n0 : t->n1;
    a.scale = 1 / sqrt((double)width), a.mask_value = 1e9;
    a.q = qkvg, a.k = at(u, qkvg, c), a.v = at(u, qkvg, 2 * c), a.g = at(u, qkvg, 3 * c);
    a.q_stride = a.k_stride = a.v_stride = a.g_stride = in, a.o_stride = out;
    a.mask = exchange(u, t->columns && t->over_pairs, load(u, "in.mask"), 1);
    a.mask_stride[1] = t->columns ? 1 : t->n1, a.mask_stride[2] = t->columns ? t->n1 : 1;
    a.o = room(u, rows * c), a.lse = room(u, rows * t->heads);
    return a;
}

/* The gradients of the projections' weights, from that of the sublayer's output. */
static void check_attention_grad(const unit *u, const attention_unit *t, const fm_attention *a,
                                 const void *x, const void *z) {
    int64_t rows = t->n0 * t->n1, c = t->c, ld = 4 * c;
    char w[32], name[64];
    void *dout = room(u, rows * c), *d = room(u, rows * ld);
    void *dbias = room(u, N_RES * N_RES * t->heads);
    void *up = exchange(u, t->columns && t->over_pairs, load(u, "gout.0"), c);
    void *linear_o = load(u, weight_name(name, "w", t->prefix, "linear_o.weight"));
    fm_gemm back = {.m = rows,
                    .n = c,
                    .k = c,
                    .batch = 1,
                    .alpha = 1,
                    .a = up,
                    .b = linear_o,
                    .c = dout,
                    .lda = c,
                    .ldb = c,
                    .ldc = c};
    u->k->gemm(NULL, &back, NULL);
    fm_attention_grad grad = {.dout = dout,
                              .dq = {d, FM_WRITE},
                              .dk = {at(u, d, c), FM_WRITE},
                              .dv = {at(u, d, 2 * c), FM_WRITE},
                              .dg = {at(u, d, 3 * c), FM_WRITE},
                              .dbias = {dbias, FM_WRITE}};
    u->k->attention_grad(NULL, a, &grad, room(u, (int64_t)u->k->attention_grad_workspace(a)));
    for (int i = 0; i < 4; i++) {
        snprintf(w, sizeof w, "%s.weight", projections[i]);
        compare_weight(u, weight_name(name, "gw", t->prefix, w), at(u, d, i * c), ld, c, x, c,
                       rows);
    }
    if (!t->bias) return;
    snprintf(name, sizeof name, "gw.%s.weight", t->bias);
    compare_weight(u, name, dbias, t->heads, t->heads, z, C_Z, N_RES * N_RES);
}

static void check_attention(const unit *u, const attention_unit *t) {
    int64_t rows = t->n0 * t->n1, c = t->c;
    bool turned = t->columns && t->over_pairs;
    char name[64], other[64];
    snprintf(name, sizeof name, "w.%s.weight", t->norm);
    snprintf(other, sizeof other, "w.%s.bias", t->norm);
    void *x = normalise(u, exchange(u, turned, load(u, "in.a0"), c), name, other, rows, c);
    void *y = room(u, rows * c), *z = x;
    fm_attention a = project(u, t, x);
    if (t->bias) a.bias = attention_bias(u, t, &a, &z);
    u->k->attention(NULL, &a, room(u, (int64_t)u->k->attention_workspace(&a)));
    linear(u, a.o, rows, c, weight_name(name, "w", t->prefix, "linear_o.weight"),
           weight_name(other, "w", t->prefix, "linear_o.bias"), y, c, c);
    compare(u, "out.0", exchange(u, turned, y, c), 1e-5);
    check_attention_grad(u, t, &a, x, z);
}

/* -- outer product mean */

static void check_outer_unit(const unit *u) {
    enum { C = 6, LD = 2 * C, ROWS = N_SEQ * N_RES };
    void *x = normalise(u, load(u, "in.a0"), "w.layer_norm.weight", "w.layer_norm.bias", ROWS, C_M);
    void *ab = room(u, ROWS * LD), *mask = load(u, "in.mask"), *z = room(u, N_RES * N_RES * C_Z);
    linear(u, x, ROWS, C_M, "w.linear_1.weight", "w.linear_1.bias", ab, C, LD);
    linear(u, x, ROWS, C_M, "w.linear_2.weight", "w.linear_2.bias", at(u, ab, C), C, LD);
    u->k->scale_rows(NULL, ROWS, LD, LD, LD, mask, ab, (fm_out){ab, FM_WRITE});
    fm_outer o = {N_SEQ,
                  N_RES,
                  N_RES,
                  C,
                  C_Z,
                  1e-3,
                  .a = ab,
                  .b = at(u, ab, C),
                  .a_stride = {N_RES * LD, LD},
                  .b_stride = {N_RES * LD, LD},
                  .mask_a = mask,
                  .mask_b = mask,
                  .w = load(u, "w.linear_out.weight"),
                  .bias = load(u, "w.linear_out.bias"),
                  .z = {z, FM_WRITE}};
    u->k->outer(NULL, &o, room(u, (int64_t)u->k->outer_workspace(&o)));
    compare(u, "out.0", z, 1e-5);
    void *d = room(u, ROWS * LD), *dw = room(u, C_Z * C * C), *dbias = room(u, C_Z);
    fm_outer_grad grad = {load(u, "gout.0"),
                          {d, FM_WRITE},
                          {at(u, d, C), FM_WRITE},
                          {dw, FM_WRITE},
                          {dbias, FM_WRITE}};
    u->k->outer_grad(NULL, &o, &grad, room(u, (int64_t)u->k->outer_grad_workspace(&o)));
    compare(u, "gw.linear_out.weight", dw, 1e-4);
    compare(u, "gw.linear_out.bias", dbias, 1e-4);
    u->k->scale_rows(NULL, ROWS, LD, LD, LD, mask, d, (fm_out){d, FM_WRITE});
    compare_weight(u, "gw.linear_1.weight", d, LD, C, x, C_M, ROWS);
    compare_weight(u, "gw.linear_2.weight", at(u, d, C), LD, C, x, C_M, ROWS);
}

/* -- triangle multiplication */

enum { C_MUL = 12, LD_MUL = 4 * C_MUL, PAIRS = N_RES * N_RES };

static const char *const operands[4] = {"linear_a_p", "linear_a_g", "linear_b_p", "linear_b_g"};

static void check_triangle_grad(const unit *u, const fm_triangle *t, const fm_layernorm *norm,
                                const fm_gate *gate, const void *x) {
    char w[64];
    void *dupdate = room(u, PAIRS * C_Z), *dgate = room(u, PAIRS * C_Z);
    void *dnorm = room(u, PAIRS * C_MUL), *dcore = room(u, PAIRS * C_MUL);
    void *dgamma = room(u, C_MUL), *dbeta = room(u, C_MUL), *d = room(u, PAIRS * LD_MUL);
    fm_gate_grad gate_grad = {load(u, "gout.0"), {dgate, FM_WRITE}, {dupdate, FM_WRITE}};
    u->k->gate_grad(NULL, gate, &gate_grad);
    compare_weight(u, "gw.linear_g.weight", dgate, C_Z, C_Z, x, C_Z, PAIRS);
    fm_gemm back = {.m = PAIRS,
                    .n = C_MUL,
                    .k = C_Z,
                    .batch = 1,
                    .alpha = 1,
                    .a = dupdate,
                    .b = load(u, "w.linear_z.weight"),
                    .c = dnorm,
                    .lda = C_Z,
                    .ldb = C_MUL,
                    .ldc = C_MUL};
    u->k->gemm(NULL, &back, NULL);
    fm_layernorm_grad norm_grad = {PAIRS,
                                   C_MUL,
                                   C_MUL,
                                   C_MUL,
                                   C_MUL,
                                   norm->x,
                                   norm->gamma,
                                   dnorm,
                                   norm->mean,
                                   norm->rstd,
                                   {dcore, FM_WRITE},
                                   {dgamma, FM_WRITE},
                                   {dbeta, FM_WRITE},
                                   0};
    u->k->layernorm_grad(NULL, &norm_grad,
                         room(u, (int64_t)u->k->layernorm_grad_workspace(PAIRS, C_MUL)));
    compare(u, "gw.layer_norm_out.weight", dgamma, 1e-4);
    compare(u, "gw.layer_norm_out.bias", dbeta, 1e-4);
    fm_triangle_grad grad = {dcore,
                             {d, FM_WRITE},
                             {at(u, d, C_MUL), FM_WRITE},
                             {at(u, d, 2 * C_MUL), FM_WRITE},
                             {at(u, d, 3 * C_MUL), FM_WRITE}};
    u->k->triangle_grad(NULL, t, &grad, room(u, (int64_t)u->k->triangle_grad_workspace(t)));
    for (int i = 0; i < 4; i++) {
        snprintf(w, sizeof w, "gw.%s.weight", operands[i]);
        compare_weight(u, w, at(u, d, i * C_MUL), LD_MUL, C_MUL, x, C_Z, PAIRS);
    }
}

static void check_triangle_unit(const unit *u, bool incoming) {
    void *x = normalise(u, load(u, "in.a0"), "w.layer_norm_in.weight", "w.layer_norm_in.bias",
                        PAIRS, C_Z);
    void *p = room(u, PAIRS * LD_MUL), *mask = load(u, "in.mask"), *core = room(u, PAIRS * C_MUL);
    char w[64], b[64];
    for (int i = 0; i < 4; i++) {
        snprintf(w, sizeof w, "w.%s.weight", operands[i]);
        snprintf(b, sizeof b, "w.%s.bias", operands[i]);
        linear(u, x, PAIRS, C_Z, w, b, at(u, p, i * C_MUL), C_MUL, LD_MUL);
    }
    fm_triangle t = {N_RES,
                     N_RES,
                     N_RES,
                     C_MUL,
                     incoming,
                     p,
                     at(u, p, C_MUL),
                     at(u, p, 2 * C_MUL),
                     at(u, p, 3 * C_MUL),
                     LD_MUL,
                     LD_MUL,
                     mask,
                     mask,
                     core};
    u->k->triangle(NULL, &t, room(u, (int64_t)u->k->triangle_workspace(&t)));
    fm_layernorm norm = {PAIRS,
                         C_MUL,
                         C_MUL,
                         C_MUL,
                         1e-5,
                         core,
                         load(u, "w.layer_norm_out.weight"),
                         load(u, "w.layer_norm_out.bias"),
                         room(u, PAIRS * C_MUL),
                         room(u, PAIRS),
                         room(u, PAIRS)};
    u->k->layernorm(NULL, &norm);
    void *update = room(u, PAIRS * C_Z), *gate = room(u, PAIRS * C_Z), *y = room(u, PAIRS * C_Z);
    linear(u, norm.y, PAIRS, C_MUL, "w.linear_z.weight", "w.linear_z.bias", update, C_Z, C_Z);
    linear(u, x, PAIRS, C_Z, "w.linear_g.weight", "w.linear_g.bias", gate, C_Z, C_Z);
    fm_gate g = {PAIRS, C_Z, C_Z, C_Z, C_Z, gate, update, NULL, y, 0};
    u->k->gate(NULL, &g);
    compare(u, "out.0", y, 1e-5);
    check_triangle_grad(u, &t, &norm, &g, x);
}

/* -- the run */

static const attention_unit row = {"mha.", "layer_norm_m", "linear_z", false, false,
                                   N_SEQ,  N_RES,          C_M,        4};
static const attention_unit column = {
    "_msa_att.mha.", "_msa_att.layer_norm_m", NULL, true, false, N_SEQ, N_RES, C_M, 4};
static const attention_unit starting = {"mha.", "layer_norm", "linear", false, true,
                                        N_RES,  N_RES,        C_Z,      2};
static const attention_unit ending = {"mha.", "layer_norm", "linear", true, true,
                                      N_RES,  N_RES,        C_Z,      2};

static void cores_of_one_block(unit u, const char *block) {
    static const char *const names[] = {"msa_att_row",           "msa_att_col",
                                        "outer_product_mean",    "pair_stack.tri_mul_out",
                                        "pair_stack.tri_mul_in", "pair_stack.tri_att_start",
                                        "pair_stack.tri_att_end"};
    for (int i = 0; i < 7; i++) {
        char name[96];
        snprintf(name, sizeof name, "%s.%s", block, names[i]);
        u.name = name;
        size_t mark = fm_arena_mark(u.arena);
        if (i == 0) check_attention(&u, &row);
        if (i == 1) check_attention(&u, &column);
        if (i == 2) check_outer_unit(&u);
        if (i == 3 || i == 4) check_triangle_unit(&u, i == 4);
        if (i == 5) check_attention(&u, &starting);
        if (i == 6) check_attention(&u, &ending);
        fm_arena_rewind(u.arena, mark);
    }
}

static void cores_match_the_reference(void **state) {
    (void)state;
    if (!fm_test_reference()) {
        print_message("FM_REFERENCE_DATA is not set: the reference's units are not compared\n");
        skip();
    }
    char path[512];
    fm_arena arena = {0};
    fm_bytes content;
    fm_npz npz;
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 30, NULL), FM_OK);
    fm_test_reference_path(path, sizeof path, "model/af2_units.npz");
    assert_int_equal(fm_file_read(&arena, path, (size_t)1 << 29, &content, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&arena, content, &npz, NULL), FM_OK);
    for (int which = 0; which < 2; which++) {
        unit u = {fm_kernels_cpu(which ? FM_ELEMENT_F32 : FM_ELEMENT_F64), &npz, &arena, NULL};
        cores_of_one_block(u, "evoformer.blocks.0");
        cores_of_one_block(u, "evoformer.blocks.1");
    }
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(cores_match_the_reference)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
