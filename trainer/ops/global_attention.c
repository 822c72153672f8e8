/* global_attention.c: see global_attention.h. */
#include "trainer/ops/global_attention.h"

#include "trainer/ops/call.h"

#include <assert.h>
#include <math.h>

typedef struct attributes {
    int64_t n_seq, n_res, c, n_head, c_head;
    int64_t width; /* n_head * c_head */
    int64_t kvg;   /* 2 * c_head + width */
    int64_t chunk; /* columns that a chunked node takes at a time */
} attributes;

static const double MASK_VALUE = 1e9, MEAN_EPS = 1e-10;

enum { IN_M, IN_MASK };
enum { P_NORM, P_Q, P_KVG, P_GATE_BIAS, P_OUT, P_OUT_BIAS };
enum { S_KVG, S_Q, S_O, S_LSE };

/* The operands of one call of forward or backward: those of the whole array, or of some columns. */
typedef struct operands {
    attributes at; /* n_res: of these columns */
    const void *m, *mask;
    void *kvg, *q, *o, *lse;
} operands;

static operands whole(const fm_run *run, const fm_node *node) {
    return (operands){.at = *(const attributes *)node->attributes,
                      .m = fm_run_input(run, node, IN_M),
                      .mask = fm_run_input(run, node, IN_MASK),
                      .kvg = fm_run_saved(run, node, S_KVG),
                      .q = fm_run_saved(run, node, S_Q),
                      .o = fm_run_saved(run, node, S_O),
                      .lse = fm_run_saved(run, node, S_LSE)};
}

static fm_norm norm_m(fm_run *run, const fm_node *node, const operands *of) {
    const attributes *at = &of->at;
    return fm_call_norm(run, at->n_seq * at->n_res, at->c, of->m, fm_run_param(run, node, P_NORM));
}

static fm_masked_mean mean_of(const operands *of, const void *normed) {
    const attributes *at = &of->at;
    return (fm_masked_mean){.n_s = at->n_seq,
                            .n_r = at->n_res,
                            .c = at->c,
                            .eps = MEAN_EPS,
                            .x = normed,
                            .mask = of->mask};
}

static fm_linear query_projection(const fm_run *run, const fm_node *node, const attributes *at,
                                  const void *mean) {
    return (fm_linear){.rows = at->n_res,
                       .c_in = at->c,
                       .c_out = at->width,
                       .ldx = at->c,
                       .ldy = at->width,
                       .x = mean,
                       .w = fm_run_param(run, node, P_Q)};
}

/* The projection to k, v and g; only g has a bias. */
static fm_linear projection(const fm_run *run, const fm_node *node, const attributes *at,
                            const void *normed) {
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = at->c,
                       .c_out = at->kvg,
                       .ldx = at->c,
                       .ldy = at->kvg,
                       .x = normed,
                       .w = fm_run_param(run, node, P_KVG),
                       .bias = fm_run_param(run, node, P_GATE_BIAS),
                       .bias_first = 2 * at->c_head};
}

static fm_linear out_projection(const fm_run *run, const fm_node *node, const attributes *at,
                                const void *gated) {
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = at->width,
                       .c_out = at->c,
                       .ldx = at->width,
                       .ldy = at->c,
                       .x = gated,
                       .w = fm_run_param(run, node, P_OUT),
                       .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static fm_attention core_of(const fm_run *run, const operands *of) {
    const attributes *at = &of->at;
    fm_attention core = {.n_group = 1,
                         .n_batch = at->n_res,
                         .n_query = 1,
                         .n_key = at->n_seq,
                         .n_head = at->n_head,
                         .n_kv_head = 1,
                         .c_head = at->c_head,
                         .scale = 1.0 / sqrt((double)at->c_head),
                         .mask_value = MASK_VALUE,
                         .q = of->q,
                         .k = of->kvg,
                         .v = fm_run_at(of->kvg, at->c_head, run->kernels->act),
                         .mask = of->mask,
                         .o = of->o,
                         .lse = of->lse};
    core.q_stride = core.o_stride =
        (fm_attention_stride){.batch = at->width, .row = at->width, .head = at->c_head};
    core.k_stride = core.v_stride =
        (fm_attention_stride){.batch = at->kvg, .row = at->n_res * at->kvg};
    core.mask_stride[1] = 1;
    core.mask_stride[2] = at->n_res;
    return core;
}

/* The gate of o [n_res, width], which all sequences read. */
static fm_gate gate_of(const fm_run *run, const operands *of, void *y) {
    const attributes *at = &of->at;
    return (fm_gate){.rows = at->n_seq * at->n_res,
                     .c = at->width,
                     .ldg = at->kvg,
                     .ldx = at->width,
                     .ldy = at->width,
                     .g = fm_run_at(of->kvg, 2 * at->c_head, run->kernels->act),
                     .x = of->o,
                     .y = y,
                     .x_rows = at->n_res};
}

static void project_kvg(fm_run *run, const fm_node *node, const operands *of, const void *normed) {
    fm_linear kvg = projection(run, node, &of->at, normed);
    fm_call_linear(run, &kvg, false, of->kvg); /* A19:2 A19:4 */
}

static void project(fm_run *run, const fm_node *node, const operands *of) {
    const attributes *at = &of->at;
    fm_norm normed = norm_m(run, node, of); /* A19:1 */
    void *mean = fm_run_workspace_act(run, at->n_res * at->c);
    fm_masked_mean mean_args = mean_of(of, normed.y);
    fm_call_masked_mean(run, &mean_args, mean);
    fm_linear query = query_projection(run, node, at, mean);
    fm_call_linear(run, &query, false, of->q); /* A19:3 */
    project_kvg(run, node, of, normed.y);
}

/* Computes everything up to the output projection, whose result goes to y; y NULL skips the
 * projection. */
static void attend(fm_run *run, const fm_node *node, const operands *of, const void *residual,
                   void *y) {
    int64_t mark = fm_run_mark(run);
    project(run, node, of);
    fm_run_release(run, mark);
    fm_attention core = core_of(run, of);
    fm_call_attention(run, &core); /* A19:5-6 */
    if (!y) return;
    void *gated = fm_run_workspace_act(run, of->at.n_seq * of->at.n_res * of->at.width);
    fm_gate gate = gate_of(run, of, gated);
    fm_call_gate(run, &gate);
    fm_linear out = out_projection(run, node, &of->at, gated);
    out.residual = residual;
    fm_call_linear(run, &out, false, y); /* A19:7 */
}

static void forward(fm_run *run, const fm_node *node) {
    const operands of = whole(run, node);
    if (!fm_run_wants_output(run) && fm_run_has_saved(run, node, S_LSE)) {
        /* Only k v g are computed again: what follows from them is kept. */
        project_kvg(run, node, &of, norm_m(run, node, &of).y);
        return;
    }
    attend(run, node, &of, node->residual >= 0 ? of.m : NULL,
           fm_run_wants_output(run) ? fm_run_output(run, node, 0) : NULL);
}

/* Copies columns [n_seq, count, c] of x [n_seq, n_res, c] from (back: to) their own memory. */
static void copy_columns(fm_run *run, const attributes *at, int64_t first, int64_t count, int64_t c,
                         void *x, void *columns, bool back) {
    int64_t n_res = at->n_res;
    void *there = fm_run_at(x, first * c, run->kernels->act);
    fm_call_copy_strided(run, &(fm_strided){.rank = 3,
                                            .shape = {at->n_seq, count, c},
                                            .x_stride = {(back ? count : n_res) * c, c, 1},
                                            .y_stride = {(back ? n_res : count) * c, c, 1},
                                            .alpha = 1,
                                            .x = back ? columns : there,
                                            .y = {back ? there : columns, FM_WRITE}});
}

/* Computes columns first .. first + count - 1, on a tape without gradient. */
static void forward_columns(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    int64_t rows = at->n_seq * count;
    void *m = fm_run_workspace_act(run, rows * at->c), *mask = fm_run_workspace_act(run, rows);
    operands of = {.at = *at,
                   .m = m,
                   .mask = mask,
                   .kvg = fm_run_workspace_act(run, rows * at->kvg),
                   .q = fm_run_workspace_act(run, count * at->width),
                   .o = fm_run_workspace_act(run, count * at->width),
                   .lse = fm_run_workspace_acc(run, count * at->n_head)};
    of.at.n_res = count;
    copy_columns(run, at, first, count, at->c, fm_run_input(run, node, IN_M), m, false);
    copy_columns(run, at, first, count, 1, fm_run_input(run, node, IN_MASK), mask, false);
    attend(run, node, &of, m, m);
    copy_columns(run, at, first, count, at->c, fm_run_output(run, node, 0), m, true);
}

static void forward_chunked(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    for (int64_t first = 0; first < at->n_res; first += at->chunk) {
        int64_t mark = fm_run_mark(run), left = at->n_res - first;
        forward_columns(run, node, first, left < at->chunk ? left : at->chunk);
        fm_run_release(run, mark);
    }
}

/* Passes the update's gradient back to g (in dkvg) and to o [n_res, width]. */
static void gate_backward(fm_run *run, const fm_node *node, void *dkvg, void *core_gradient) {
    const operands of = whole(run, node);
    const attributes *at = &of.at;
    int64_t row = at->n_res * at->width, count = at->n_seq * row;
    fm_element act = run->kernels->act;
    void *gated = fm_run_workspace_act(run, count), *dgated = fm_run_workspace_act(run, count);
    fm_gate gate = gate_of(run, &of, gated);
    fm_call_gate(run, &gate);
    fm_linear out = out_projection(run, node, at, gated);
    fm_call_linear_grad(run, &out, fm_run_output_gradient(run, node, 0), (fm_out){dgated, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_gate_grad grad = {.dy = dgated,
                         .dg = {fm_run_at(dkvg, 2 * at->c_head, act), FM_WRITE},
                         .dx = {gated, FM_WRITE}};
    fm_call_gate_grad(run, &gate, &grad);
    fm_call_sum(run, 1, at->n_seq, row, 0, row, gated, (fm_out){core_gradient, FM_WRITE}, false);
}

/* Passes the gradients of k v g and q back to m. */
static void project_backward(fm_run *run, const fm_node *node, const void *dkvg, const void *dq) {
    const operands of = whole(run, node);
    const attributes *at = &of.at;
    int64_t rows = at->n_seq * at->n_res;
    fm_norm normed = norm_m(run, node, &of);
    void *dnormed = fm_run_workspace_act(run, rows * at->c);
    void *mean = fm_run_workspace_act(run, at->n_res * at->c);
    void *dmean = fm_run_workspace_act(run, at->n_res * at->c);
    fm_linear all = projection(run, node, at, normed.y);
    fm_call_linear_grad(run, &all, dkvg, (fm_out){dnormed, FM_WRITE},
                        fm_run_param_gradient(run, node, P_KVG),
                        fm_run_param_gradient(run, node, P_GATE_BIAS));
    fm_masked_mean mean_args = mean_of(&of, normed.y);
    fm_call_masked_mean(run, &mean_args, mean);
    fm_linear query = query_projection(run, node, at, mean);
    fm_call_linear_grad(run, &query, dq, (fm_out){dmean, FM_WRITE},
                        fm_run_param_gradient(run, node, P_Q), (fm_out){0});
    fm_call_masked_mean_grad(run, &mean_args, dmean, (fm_out){dnormed, FM_ADD});
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_M),
                      fm_run_param_gradient(run, node, P_NORM));
}

static void backward(fm_run *run, const fm_node *node) {
    const operands of = whole(run, node);
    const attributes *at = &of.at;
    fm_element act = run->kernels->act;
    void *dkvg = fm_run_workspace_act(run, at->n_seq * at->n_res * at->kvg);
    void *dq = fm_run_workspace_act(run, at->n_res * at->width);
    int64_t mark = fm_run_mark(run);
    void *dcore = fm_run_workspace_act(run, at->n_res * at->width);
    gate_backward(run, node, dkvg, dcore);
    fm_attention core = core_of(run, &of);
    fm_attention_grad grad = {.dout = dcore,
                              .dq = {dq, FM_WRITE},
                              .dk = {dkvg, FM_WRITE},
                              .dv = {fm_run_at(dkvg, at->c_head, act), FM_WRITE}};
    fm_call_attention_grad(run, &core, &grad);
    fm_run_release(run, mark);
    project_backward(run, node, dkvg, dq);
}

static const fm_op GLOBAL_ATTENTION = {"global attention", forward, backward};
static const fm_op GLOBAL_ATTENTION_CHUNKED = {"global attention", forward_chunked, NULL};

fm_tensor_ref fm_op_global_attention(fm_tape *tape, const char *name, fm_tensor_ref m,
                                     fm_tensor_ref mask, const fm_global_attention_weights *weights,
                                     bool residual) {
    void *memory;
    bool is_chunked = tape->chunk_bytes > 0 && residual;
    fm_node *node = fm_tape_add(tape, is_chunked ? &GLOBAL_ATTENTION_CHUNKED : &GLOBAL_ATTENTION,
                                name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, m);
    assert(x->rank == 3 && x->local[0] == x->shape[0]);
    *at = (attributes){.n_seq = x->local[0],
                       .n_res = x->local[1],
                       .c = x->local[2],
                       .n_head = weights->n_head,
                       .c_head = weights->c_head,
                       .width = weights->n_head * weights->c_head};
    at->kvg = 2 * at->c_head + at->width;
    assert(tape->params->block[weights->gate_bias].zeros >= 2 * at->c_head);
    fm_node_input(tape, node, m, true);
    fm_node_input(tape, node, mask, true);
    const fm_param_ref params[] = {weights->norm,      weights->q,   weights->kvg,
                                   weights->gate_bias, weights->out, weights->out_bias};
    for (int i = 0; i < 6; i++)
        fm_node_param(tape, node, params[i]);
    if (is_chunked) { /* m, its norm, k v g, the gated output, the mask */
        int64_t elements = at->n_seq * (2 * at->c + at->kvg + at->width + 1);
        at->chunk = fm_call_chunk(tape, at->n_res, elements);
        return fm_node_residual(tape, node, IN_M);
    }
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    fm_node_save(tape, node, weights->keep_kvg, act, 2,
                 (int64_t[]){at->n_seq * at->n_res, at->kvg});
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){at->n_res, at->width});
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){at->n_res, at->width});
    fm_node_save(tape, node, FM_KEEP, acc, 2, (int64_t[]){at->n_res, at->n_head});
    const fm_tensor *shape = fm_tape_tensor(tape, m);
    return residual ? fm_node_residual(tape, node, IN_M)
                    : fm_node_output_described(tape, node, shape);
}
