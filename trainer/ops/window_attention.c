/* window_attention.c: see window_attention.h. q and g of a row are side by side, as are k and v:
 * they are saved as [S, query rows, 2 width] and [S, key rows, 2 width] (windows.h). */
#include "trainer/ops/window_attention.h"

#include "trainer/ops/windows.h"

#include <assert.h>
#include <math.h>

typedef struct attributes {
    int64_t n_sample, n_atom, n_window, c, n_head, c_head, width;
    int64_t queries, keys; /* rows of one sample, padding included */
} attributes;

static const double MASK_VALUE = 1e10;

enum { IN_X, IN_Y, IN_BIAS, IN_MASK };
enum { P_QKVG, P_Q_BIAS, P_OUT };
enum { S_QG, S_KV, S_O, S_LSE };

/* Projects to `count` of q k v g, from number `first` on. Rows have 2 width elements. */
static fm_linear projection(const fm_run *run, const fm_node *node, int64_t rows, const void *x,
                            int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_sample * rows,
                       .c_in = at->c,
                       .c_out = count * at->width,
                       .ldx = at->c,
                       .ldy = 2 * at->width,
                       .x = x,
                       .w = fm_run_at(fm_run_param(run, node, P_QKVG), first * at->width * at->c,
                                      run->kernels->act)};
}

static const void *padded_queries(fm_run *run, const fm_node *node, const void *x) {
    const attributes *at = node->attributes;
    return fm_windows_pad(run, at->n_sample, at->n_atom, 0, at->queries, at->c, x);
}

static const void *padded_keys(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_windows_pad(run, at->n_sample, at->n_atom, FM_WINDOW_BEFORE, at->keys, at->c,
                          fm_run_input(run, node, IN_Y));
}

static void project(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run);
    const void *x = padded_queries(run, node, fm_run_input(run, node, IN_X));
    void *qg = fm_run_saved(run, node, S_QG);
    fm_linear q = projection(run, node, at->queries, x, 0, 1);
    q.bias = fm_run_param(run, node, P_Q_BIAS);
    fm_call_linear(run, &q, false, qg);
    fm_linear g = projection(run, node, at->queries, x, 3, 1);
    fm_call_linear(run, &g, false, fm_run_at(qg, at->width, act));
    fm_run_release(run, mark);
    fm_linear kv = projection(run, node, at->keys, padded_keys(run, node), 1, 2);
    fm_call_linear(run, &kv, false, fm_run_saved(run, node, S_KV));
    fm_run_release(run, mark);
}

/* The mask of the key rows, 0 outside the atoms. */
static const void *padded_mask(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_windows_pad(run, 1, at->n_atom, FM_WINDOW_BEFORE, at->keys, 1,
                          fm_run_input(run, node, IN_MASK));
}

/* kv has the key rows, or their windows, which then share no rows. */
static fm_attention core_of(fm_run *run, const fm_node *node, const void *kv, bool windows) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t ld = 2 * at->width;
    const void *qg = fm_run_saved(run, node, S_QG);
    fm_attention core = {.n_group = at->n_window,
                         .n_batch = at->n_sample,
                         .n_query = FM_WINDOW_QUERIES,
                         .n_key = FM_WINDOW_KEYS,
                         .n_head = at->n_head,
                         .n_kv_head = at->n_head,
                         .c_head = at->c_head,
                         .scale = 1.0 / sqrt((double)at->c_head),
                         .mask_value = MASK_VALUE,
                         .q = qg,
                         .g = fm_run_at(qg, at->width, act),
                         .k = kv,
                         .v = fm_run_at(kv, at->width, act),
                         .bias = fm_run_input(run, node, IN_BIAS),
                         .mask = padded_mask(run, node),
                         .o = fm_run_saved(run, node, S_O),
                         .lse = fm_run_saved(run, node, S_LSE)};
    core.q_stride = (fm_attention_stride){
        .group = FM_WINDOW_QUERIES * ld, .batch = at->queries * ld, .row = ld, .head = at->c_head};
    core.g_stride = core.q_stride;
    core.k_stride = core.q_stride;
    core.k_stride.group = (windows ? FM_WINDOW_KEYS : FM_WINDOW_QUERIES) * ld;
    core.k_stride.batch = (windows ? at->n_window * FM_WINDOW_KEYS : at->keys) * ld;
    core.v_stride = core.k_stride;
    core.o_stride = (fm_attention_stride){.group = FM_WINDOW_QUERIES * at->width,
                                          .batch = at->queries * at->width,
                                          .row = at->width,
                                          .head = at->c_head};
    const int64_t bias_stride[4] = {FM_WINDOW_QUERIES * FM_WINDOW_KEYS * at->n_head, 1,
                                    FM_WINDOW_KEYS * at->n_head, at->n_head};
    for (int i = 0; i < 4; i++)
        core.bias_stride[i] = bias_stride[i];
    core.mask_stride[0] = FM_WINDOW_QUERIES;
    core.mask_stride[2] = 1;
    return core;
}

static fm_linear out_projection(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_sample * at->queries,
                       .c_in = at->width,
                       .c_out = at->c,
                       .ldx = at->width,
                       .ldy = at->c,
                       .x = fm_run_saved(run, node, S_O),
                       .w = fm_run_param(run, node, P_OUT)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    project(run, node);
    fm_attention core = core_of(run, node, fm_run_saved(run, node, S_KV), false);
    fm_call_attention(run, &core);
    if (!fm_run_wants_output(run)) return;
    fm_linear out = out_projection(run, node);
    if (at->queries == at->n_atom) {
        fm_call_linear(run, &out, false, fm_run_output(run, node, 0));
        return;
    }
    void *update = fm_run_workspace_act(run, at->n_sample * at->queries * at->c);
    fm_call_linear(run, &out, false, update);
    fm_windows_unpad(run, at->n_sample, at->n_atom, 0, at->queries, at->c, update,
                     (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

/* Writes dqg [S, query rows, 2 width] and dkv [S, key rows, 2 width], and the bias's gradient. */
static void core_backward(fm_run *run, const fm_node *node, void *dqg, void *dkv) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run), ld = 2 * at->width;
    const void *du = padded_queries(run, node, fm_run_output_gradient(run, node, 0));
    void *dcore = fm_run_workspace_act(run, at->n_sample * at->queries * at->width);
    fm_linear out = out_projection(run, node);
    fm_call_linear_grad(run, &out, du, (fm_out){dcore, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT), (fm_out){0});
    int64_t count = at->n_sample * at->n_window * FM_WINDOW_KEYS * ld;
    void *kv = fm_run_workspace_act(run, count), *dwindows = fm_run_workspace_act(run, count);
    fm_windows_gather(run, at->n_sample, at->n_atom, ld, fm_run_saved(run, node, S_KV), kv);
    fm_attention core = core_of(run, node, kv, true);
    fm_attention_grad grad = {.dout = dcore,
                              .dq = {dqg, FM_WRITE},
                              .dg = {fm_run_at(dqg, at->width, act), FM_WRITE},
                              .dk = {dwindows, FM_WRITE},
                              .dv = {fm_run_at(dwindows, at->width, act), FM_WRITE},
                              .dbias = fm_run_gradient(run, node, IN_BIAS)};
    fm_call_attention_grad(run, &core, &grad);
    fm_windows_fold(run, at->n_sample, at->n_atom, ld, dwindows, dkv);
    fm_run_release(run, mark);
}

/* The gradients of x and of the projections to q and g. */
static void queries_backward(fm_run *run, const fm_node *node, const void *dqg, fm_out dw) {
    const attributes *at = node->attributes;
    bool is_padded = at->queries > at->n_atom;
    int64_t block = at->width * at->c;
    const void *x = padded_queries(run, node, fm_run_input(run, node, IN_X));
    fm_out dx = fm_run_gradient(run, node, IN_X), rows = dx;
    if (is_padded) {
        rows.data = fm_run_workspace_act(run, at->n_sample * at->queries * at->c);
        rows.beta = FM_WRITE;
    }
    fm_linear q = projection(run, node, at->queries, x, 0, 1);
    fm_call_linear_grad(run, &q, dqg, rows, dw, fm_run_param_gradient(run, node, P_Q_BIAS));
    fm_linear g = projection(run, node, at->queries, x, 3, 1);
    rows.beta = FM_ADD;
    fm_call_linear_grad(run, &g, fm_run_at(dqg, at->width, run->kernels->act), rows,
                        fm_out_at(dw, 3 * block, run->kernels->acc), (fm_out){0});
    if (!is_padded) return;
    fm_windows_unpad(run, at->n_sample, at->n_atom, 0, at->queries, at->c, rows.data, dx);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t ld = 2 * at->width, block = at->width * at->c;
    void *dqg = fm_run_workspace_act(run, at->n_sample * at->queries * ld);
    void *dkv = fm_run_workspace_act(run, at->n_sample * at->keys * ld);
    core_backward(run, node, dqg, dkv);
    fm_out dw = fm_run_param_gradient(run, node, P_QKVG);
    int64_t mark = fm_run_mark(run);
    queries_backward(run, node, dqg, dw);
    fm_run_release(run, mark);
    const void *y = padded_keys(run, node);
    void *dy = fm_run_workspace_act(run, at->n_sample * at->keys * at->c);
    fm_linear kv = projection(run, node, at->keys, y, 1, 2);
    fm_call_linear_grad(run, &kv, dkv, (fm_out){dy, FM_WRITE},
                        fm_out_at(dw, block, run->kernels->acc), (fm_out){0});
    fm_windows_unpad(run, at->n_sample, at->n_atom, FM_WINDOW_BEFORE, at->keys, at->c, dy,
                     fm_run_gradient(run, node, IN_Y));
}

static const fm_op WINDOW_ATTENTION = {"window attention", forward, backward};

fm_tensor_ref fm_op_window_attention(fm_tape *tape, const char *name, fm_tensor_ref x,
                                     fm_tensor_ref y, fm_tensor_ref bias, fm_tensor_ref mask,
                                     const fm_window_attention_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &WINDOW_ATTENTION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *in = fm_tape_tensor(tape, x);
    assert(in->rank == 3 && in->shard_axis <= 0);
    *at = (attributes){.n_sample = in->local[0],
                       .n_atom = in->local[1],
                       .n_window = fm_windows_count(in->local[1]),
                       .c = in->local[2],
                       .n_head = weights->n_head,
                       .c_head = weights->c_head,
                       .width = weights->n_head * weights->c_head,
                       .queries = fm_windows_query_rows(in->local[1]),
                       .keys = fm_windows_key_rows(in->local[1])};
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, y, true);
    fm_node_input(tape, node, bias, true);
    fm_node_input(tape, node, mask, true);
    fm_node_param(tape, node, weights->qkvg);
    fm_node_param(tape, node, weights->q_bias);
    fm_node_param(tape, node, weights->out);
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    int64_t queries = at->n_sample * at->queries, keys = at->n_sample * at->keys;
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){queries, 2 * at->width});
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){keys, 2 * at->width});
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){queries, at->width});
    fm_node_save(tape, node, FM_KEEP, acc, 2, (int64_t[]){queries, at->n_head});
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}
