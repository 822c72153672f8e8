/* template_pair.c: the linear layer on a template's pair features; see template.h. A one-hot
 * feature is a look-up in the columns of the weight; a feature that is a number is a product with
 * one column. */
#include "trainer/ops/template.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { IN_AATYPE, IN_PSEUDO_BETA, IN_PSEUDO_BETA_MASK, IN_BACKBONE_MASK };
enum { P_W, P_B };
enum { COLUMN_MASK = 39, COLUMN_TYPE_J = 40, COLUMN_TYPE_I = 62, COLUMN_BACKBONE = 87 };

/* Å^2: the last bin ends at 316 Å, as in the reference. */
static const fm_distance_classes CLASSES = {
    .n = FM_TEMPLATE_BINS, .first = 3.25f, .last = 50.75f, .most_square = 1e5f};

typedef struct attributes {
    int64_t first, n_i, n; /* pairs (first + 0 .. n_i - 1, 0 .. n - 1) */
    int64_t c;
    int64_t index, count; /* templates index + 0 .. count - 1; all rows where count > 1 */
} attributes;

static int64_t pairs_of(const attributes *at) {
    return at->count * at->n_i * at->n;
}

/* The features that forward and backward make from the inputs, in the workspace. */
typedef struct pair_features {
    uint8_t *bins; /* [count, n_i, n] */
    void *beta2d,
        *frame2d; /* act [count, n_i, n]: 1 where both pseudo-betas, or both backbones, are known */
    const uint8_t *aatype; /* [count, n] */
} pair_features;

/* y_ij = mask_i mask_j for each template */
static void square(fm_run *run, const attributes *at, const void *mask, void *y) {
    int64_t n = at->n;
    fm_call_gemm(run, &(fm_gemm){.m = at->n_i,
                                 .n = n,
                                 .k = 1,
                                 .batch = at->count,
                                 .trans_b = true,
                                 .alpha = 1,
                                 .a = fm_run_at(mask, at->first, run->kernels->act),
                                 .b = mask,
                                 .c = y,
                                 .lda = 1,
                                 .ldb = 1,
                                 .ldc = n,
                                 .stride_a = n,
                                 .stride_b = n,
                                 .stride_c = at->n_i * n});
}

static pair_features make_features(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t n = at->n, first = at->index * n, pairs = pairs_of(at);
    pair_features f = {.bins = fm_run_workspace(run, pairs),
                       .beta2d = fm_run_workspace_act(run, pairs),
                       .frame2d = fm_run_workspace_act(run, pairs),
                       .aatype =
                           fm_run_at(fm_run_input(run, node, IN_AATYPE), first, FM_ELEMENT_U8)};
    const float *beta =
        fm_run_at(fm_run_input(run, node, IN_PSEUDO_BETA), 3 * first, FM_ELEMENT_F32);
    for (int64_t t = 0; t < at->count; t++) {
        fm_call_distance_ids(run, at->first, at->n_i, n, beta + 3 * n * t, &CLASSES,
                             f.bins + t * at->n_i * n);
    }
    square(run, at, fm_run_at(fm_run_input(run, node, IN_PSEUDO_BETA_MASK), first, act), f.beta2d);
    square(run, at, fm_run_at(fm_run_input(run, node, IN_BACKBONE_MASK), first, act), f.frame2d);
    return f;
}

/* `count` columns of the weight, starting at `column`, as a table of classes. */
static fm_lookup columns(const fm_run *run, const fm_node *node, int64_t column, int64_t count) {
    const attributes *at = node->attributes;
    return (fm_lookup){.n_class = count,
                       .c = at->c,
                       .class_stride = 1,
                       .channel_stride = FM_TEMPLATE_PAIR_FEATURES,
                       .w = fm_run_at(fm_run_param(run, node, P_W), column, run->kernels->act)};
}

/* z [count, n_i, n, c] += x [count, n_i, n] times one column. */
static void add_column(fm_run *run, const fm_node *node, int64_t column, const void *x, void *z) {
    const attributes *at = node->attributes;
    const void *w = fm_run_param(run, node, P_W);
    fm_call_gemm(run, &(fm_gemm){.m = pairs_of(at),
                                 .n = at->c,
                                 .k = 1,
                                 .batch = 1,
                                 .trans_b = true,
                                 .alpha = 1,
                                 .beta = 1,
                                 .a = x,
                                 .b = fm_run_at(w, column, run->kernels->act),
                                 .c = z,
                                 .lda = 1,
                                 .ldb = FM_TEMPLATE_PAIR_FEATURES,
                                 .ldc = at->c});
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    int64_t pairs = pairs_of(at), rows_i = at->count * at->n_i, rows_j = at->count * at->n;
    fm_element act = run->kernels->act;
    void *z = fm_run_output(run, node, 0);
    pair_features f = make_features(run, node);
    void *a = fm_run_workspace_act(run, rows_i * at->c);
    void *b = fm_run_workspace_act(run, rows_j * at->c);
    fm_lookup bins = columns(run, node, 0, FM_TEMPLATE_BINS);
    fm_lookup type_i = columns(run, node, COLUMN_TYPE_I, FM_TEMPLATE_CLASSES);
    fm_lookup type_j = columns(run, node, COLUMN_TYPE_J, FM_TEMPLATE_CLASSES);
    fm_call_lookup(run, &bins, pairs, f.bins, (fm_out){z, FM_WRITE});
    fm_call_lookup(run, &type_i, rows_i, f.aatype + at->first, (fm_out){a, FM_WRITE});
    fm_call_lookup(run, &type_j, rows_j, f.aatype, (fm_out){b, FM_WRITE});
    for (int64_t t = 0; t < at->count; t++) {
        fm_call_outer_sum(run, at->n_i, at->n, at->c, at->c, fm_run_at(a, t * at->n_i * at->c, act),
                          fm_run_at(b, t * at->n * at->c, act),
                          fm_out_at((fm_out){z, FM_ADD}, t * at->n_i * at->n * at->c, act));
    }
    add_column(run, node, COLUMN_MASK, f.beta2d, z);
    add_column(run, node, COLUMN_BACKBONE, f.frame2d, z);
    fm_call_scale_rows(run, pairs, at->c, f.frame2d, z, (fm_out){z, FM_WRITE});
    fm_call_bias_add(run, pairs, at->c, fm_run_param(run, node, P_B), z); /* A2:10 */
}

/* dw of one column += sum over pairs of x_ij dz_ij */
static void column_grad(fm_run *run, const attributes *at, int64_t column, const void *x,
                        const void *dz, fm_out dw) {
    fm_call_gemm(run, &(fm_gemm){.m = at->c,
                                 .n = 1,
                                 .k = pairs_of(at),
                                 .batch = 1,
                                 .trans_a = true,
                                 .alpha = 1,
                                 .beta = 1,
                                 .a = dz,
                                 .b = x,
                                 .c = fm_run_at(dw.data, column, run->kernels->acc),
                                 .c_is_acc = true,
                                 .lda = at->c,
                                 .ldb = 1,
                                 .ldc = FM_TEMPLATE_PAIR_FEATURES});
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t pairs = pairs_of(at), rows_i = at->count * at->n_i, rows_j = at->count * at->n;
    fm_element acc = run->kernels->acc, act = run->kernels->act;
    const void *dy = fm_run_output_gradient(run, node, 0);
    fm_call_sum(run, 1, pairs, at->c, 0, at->c, dy, fm_run_param_gradient(run, node, P_B), true);
    pair_features f = make_features(run, node);
    void *dz = fm_run_workspace_act(run, pairs * at->c);
    void *da = fm_run_workspace_act(run, rows_i * at->c);
    void *db = fm_run_workspace_act(run, rows_j * at->c);
    fm_call_scale_rows(run, pairs, at->c, f.frame2d, dy, (fm_out){dz, FM_WRITE});
    fm_out dw = fm_run_param_gradient(run, node, P_W);
    if (dw.beta == FM_WRITE) {
        fm_call_fill_acc(run, at->c * FM_TEMPLATE_PAIR_FEATURES, 0.0, dw.data);
        dw.beta = FM_ADD;
    }
    fm_lookup bins = columns(run, node, 0, FM_TEMPLATE_BINS);
    fm_lookup type_i = columns(run, node, COLUMN_TYPE_I, FM_TEMPLATE_CLASSES);
    fm_lookup type_j = columns(run, node, COLUMN_TYPE_J, FM_TEMPLATE_CLASSES);
    fm_call_lookup_grad(run, &bins, pairs, f.bins, dz, dw);
    for (int64_t t = 0; t < at->count; t++) {
        fm_call_outer_sum_grad(run, at->n_i, at->n, at->c, at->c,
                               fm_run_at(dz, t * at->n_i * at->n * at->c, act),
                               fm_out_at((fm_out){da, FM_WRITE}, t * at->n_i * at->c, act),
                               fm_out_at((fm_out){db, FM_WRITE}, t * at->n * at->c, act));
    }
    fm_call_lookup_grad(run, &type_i, rows_i, f.aatype + at->first, da,
                        fm_out_at(dw, COLUMN_TYPE_I, acc));
    fm_call_lookup_grad(run, &type_j, rows_j, f.aatype, db, fm_out_at(dw, COLUMN_TYPE_J, acc));
    column_grad(run, at, COLUMN_MASK, f.beta2d, dz, dw);
    column_grad(run, at, COLUMN_BACKBONE, f.frame2d, dz, dw);
}

static const fm_op TEMPLATE_PAIR = {"template pair", forward, backward};

/* Templates index .. index + count - 1. The output is described by `out`, whose rows of pairs are
 * those of axis `axis`. */
static fm_tensor_ref add(fm_tape *tape, const fm_template_pair_inputs *inputs, int64_t index,
                         int64_t count, const fm_template_pair_weights *weights,
                         const fm_tensor *out, int axis) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &TEMPLATE_PAIR, "template pair embedder", sizeof(attributes), &memory);
    attributes *at = memory;
    *at = (attributes){.first = fm_tensor_first(out, axis),
                       .n_i = out->local[axis],
                       .n = out->local[axis + 1],
                       .c = weights->c_t,
                       .index = index,
                       .count = count};
    fm_node_input(tape, node, inputs->aatype, true);
    fm_node_input(tape, node, inputs->pseudo_beta, true);
    fm_node_input(tape, node, inputs->pseudo_beta_mask, true);
    fm_node_input(tape, node, inputs->backbone_mask, true);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    return fm_node_output_described(tape, node, out);
}

fm_tensor_ref fm_op_template_pair(fm_tape *tape, const fm_template_pair_inputs *inputs,
                                  int64_t index, const fm_template_pair_weights *weights,
                                  fm_part part) {
    const fm_tensor *aatype = fm_tape_tensor(tape, inputs->aatype);
    assert(aatype->rank == 2 && index < aatype->local[0]);
    fm_tensor out = fm_tensor_rows_of(tape->kernels->act, aatype->local[1], weights->c_t, part);
    return add(tape, inputs, index, 1, weights, &out, 0);
}

fm_tensor_ref fm_op_template_pairs(fm_tape *tape, const fm_template_pair_inputs *inputs,
                                   const fm_template_pair_weights *weights, fm_part part) {
    const fm_tensor *aatype = fm_tape_tensor(tape, inputs->aatype);
    int64_t n_templ = aatype->local[0], n = aatype->local[1];
    fm_tensor out;
    fm_tensor_init(&out, "template pairs", tape->kernels->act, 4,
                   (int64_t[]){n_templ, n, n, weights->c_t});
    if (part.count > 1) fm_tensor_shard(&out, 0, part.rank, part.count);
    return add(tape, inputs, fm_tensor_first(&out, 0), out.local[0], weights, &out, 1);
}
