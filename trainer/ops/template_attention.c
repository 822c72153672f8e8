/* template_attention.c: template pointwise attention (A17) over the outputs of the template pair
 * stacks, with their last LayerNorm (A16:7); see template.h. */
#include "trainer/ops/template.h"

#include "trainer/ops/call.h"

#include <assert.h>
#include <math.h>

enum { IN_Z, IN_MASK, IN_ANY, IN_T };
enum { P_NORM, P_Q, P_KV, P_OUT, P_OUT_BIAS };
enum { S_Q, S_KV, S_O, S_LSE };

typedef struct attributes {
    int64_t pairs, c_z, c_t, n_templ, n_head, c_head;
    int64_t width;             /* n_head * c_head */
    int64_t n_part, part_rows; /* inputs of templates; pairs of all templates of one */
    int64_t chunk;             /* pairs that forward takes at a time */
} attributes;

static const double MASK_VALUE = 1e5;

static fm_norm norm_t(fm_run *run, const fm_node *node, int64_t part) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->part_rows, at->c_t, fm_run_input(run, node, IN_T + (int)part),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear query_projection(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->pairs,
                       .c_in = at->c_z,
                       .c_out = at->width,
                       .ldx = at->c_z,
                       .ldy = at->width,
                       .x = fm_run_input(run, node, IN_Z),
                       .w = fm_run_param(run, node, P_Q)};
}

static fm_linear key_value_projection(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->part_rows,
                       .c_in = at->c_t,
                       .c_out = 2 * at->width,
                       .ldx = at->c_t,
                       .ldy = 2 * at->width,
                       .x = normed,
                       .w = fm_run_param(run, node, P_KV)};
}

static fm_linear out_projection(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->pairs,
                       .c_in = at->width,
                       .c_out = at->c_z,
                       .ldx = at->width,
                       .ldy = at->c_z,
                       .x = node->n_saved > 0 ? fm_run_saved(run, node, S_O) : NULL,
                       .w = fm_run_param(run, node, P_OUT),
                       .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static fm_attention core_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    bool is_saved = node->n_saved > 0; /* chunked: the caller sets q k v o and lse */
    const void *kv = is_saved ? fm_run_saved(run, node, S_KV) : NULL;
    fm_attention core = {.n_group = 1,
                         .n_batch = at->pairs,
                         .n_query = 1,
                         .n_key = at->n_templ,
                         .n_head = at->n_head,
                         .n_kv_head = at->n_head,
                         .c_head = at->c_head,
                         .scale = 1.0 / sqrt((double)at->c_head),
                         .mask_value = MASK_VALUE,
                         .q = is_saved ? fm_run_saved(run, node, S_Q) : NULL,
                         .k = kv,
                         .v = fm_run_at(kv, at->width, run->kernels->act),
                         .mask = fm_run_input(run, node, IN_MASK),
                         .o = is_saved ? fm_run_saved(run, node, S_O) : NULL,
                         .lse = is_saved ? fm_run_saved(run, node, S_LSE) : NULL};
    core.q_stride = core.o_stride =
        (fm_attention_stride){.batch = at->width, .row = at->width, .head = at->c_head};
    core.k_stride = core.v_stride = (fm_attention_stride){
        .batch = 2 * at->width, .row = at->pairs * 2 * at->width, .head = at->c_head};
    core.mask_stride[2] = 1;
    return core;
}

/* y (+)= x [pairs, c_z] where there is a template, else 0: `any` scales all pairs as one row. */
static void where_any(fm_run *run, const fm_node *node, const void *x, fm_out y) {
    const attributes *at = node->attributes;
    fm_call_scale_rows(run, 1, at->pairs * at->c_z, fm_run_input(run, node, IN_ANY), x, y);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    void *kv = fm_run_saved(run, node, S_KV);
    for (int64_t part = 0; part < at->n_part; part++) {
        int64_t mark = fm_run_mark(run);
        fm_norm normed = norm_t(run, node, part); /* A16:7 */
        fm_linear linear = key_value_projection(run, node, normed.y);
        fm_call_linear(run, &linear, false,
                       fm_run_at(kv, part * at->part_rows * 2 * at->width, act)); /* A17:2 */
        fm_run_release(run, mark);
    }
    fm_linear query = query_projection(run, node);
    fm_call_linear(run, &query, false, fm_run_saved(run, node, S_Q)); /* A17:1 */
    fm_attention core = core_of(run, node);
    fm_call_attention(run, &core); /* A17:3-4 */
    if (!fm_run_wants_output(run)) return;
    void *update = fm_run_workspace_act(run, at->pairs * at->c_z);
    void *y = fm_run_output(run, node, 0);
    fm_linear out = out_projection(run, node);
    fm_call_linear(run, &out, false, update); /* A17:5 */
    if (node->residual >= 0) {
        fm_call_copy(run, at->pairs * at->c_z, fm_run_input(run, node, IN_Z), y);
    }
    where_any(run, node, update, (fm_out){y, node->residual < 0 ? FM_WRITE : FM_ADD});
}

/* Pairs first .. first + count - 1, on a tape without gradient: the same with q k v and o of these
 * pairs only. Each input t is one template. */
static void forward_pairs(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t width = at->width;
    void *kv = fm_run_workspace_act(run, at->n_templ * count * 2 * width);
    void *q = fm_run_workspace_act(run, count * width),
         *o = fm_run_workspace_act(run, count * width);
    for (int64_t t = 0; t < at->n_templ; t++) {
        int64_t mark = fm_run_mark(run);
        const void *x = fm_run_at(fm_run_input(run, node, IN_T + (int)t), first * at->c_t, act);
        fm_norm normed =
            fm_call_norm(run, count, at->c_t, x, fm_run_param(run, node, P_NORM)); /* A16:7 */
        fm_linear linear = key_value_projection(run, node, normed.y);
        linear.rows = count;
        fm_call_linear(run, &linear, false, fm_run_at(kv, t * count * 2 * width, act)); /* A17:2 */
        fm_run_release(run, mark);
    }
    fm_linear query = query_projection(run, node), out = out_projection(run, node);
    const void *z = fm_run_at(query.x, first * at->c_z, act);
    void *y = fm_run_at(fm_run_output(run, node, 0), first * at->c_z, act);
    query.rows = out.rows = count, query.x = z, out.x = o;
    fm_call_linear(run, &query, false, q); /* A17:1 */
    fm_attention core = core_of(run, node);
    core.n_batch = count, core.q = q, core.k = kv, core.v = fm_run_at(kv, width, act), core.o = o;
    core.k_stride.row = core.v_stride.row = count * 2 * width;
    core.lse = fm_run_workspace_acc(run, count * at->n_head);
    fm_call_attention(run, &core); /* A17:3-4 */
    void *update = fm_run_workspace_act(run, count * at->c_z);
    fm_call_linear(run, &out, false, update); /* A17:5 */
    fm_call_copy(run, count * at->c_z, z, y);
    fm_call_scale_rows(run, 1, count * at->c_z, fm_run_input(run, node, IN_ANY), update,
                       (fm_out){y, FM_ADD});
}

static void forward_chunked(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    for (int64_t first = 0; first < at->pairs; first += at->chunk) {
        int64_t mark = fm_run_mark(run), left = at->pairs - first;
        forward_pairs(run, node, first, left < at->chunk ? left : at->chunk);
        fm_run_release(run, mark);
    }
}

static fm_out after_first(fm_out out, bool first) {
    return (fm_out){out.data, first ? out.beta : FM_ADD};
}

static void part_backward(fm_run *run, const fm_node *node, int64_t part, const void *dkv) {
    const attributes *at = node->attributes;
    int64_t mark = fm_run_mark(run);
    fm_norm normed = norm_t(run, node, part);
    void *dnormed = fm_run_workspace_act(run, at->part_rows * at->c_t);
    fm_linear linear = key_value_projection(run, node, normed.y);
    fm_call_linear_grad(run, &linear, dkv, (fm_out){dnormed, FM_WRITE},
                        after_first(fm_run_param_gradient(run, node, P_KV), part == 0),
                        (fm_out){0});
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_T + (int)part),
                      after_first(fm_run_param_gradient(run, node, P_NORM), part == 0));
    fm_run_release(run, mark);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t one = at->part_rows * 2 * at->width;
    void *dkv = fm_run_workspace_act(run, at->n_part * one);
    void *dq = fm_run_workspace_act(run, at->pairs * at->width);
    void *dcore = fm_run_workspace_act(run, at->pairs * at->width);
    void *dupdate = fm_run_workspace_act(run, at->pairs * at->c_z);
    where_any(run, node, fm_run_output_gradient(run, node, 0), (fm_out){dupdate, FM_WRITE});
    fm_linear out = out_projection(run, node);
    fm_call_linear_grad(run, &out, dupdate, (fm_out){dcore, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_attention core = core_of(run, node);
    fm_attention_grad grad = {.dout = dcore,
                              .dq = {dq, FM_WRITE},
                              .dk = {dkv, FM_WRITE},
                              .dv = {fm_run_at(dkv, at->width, act), FM_WRITE}};
    fm_call_attention_grad(run, &core, &grad);
    fm_linear query = query_projection(run, node);
    fm_call_linear_grad(run, &query, dq, fm_run_gradient(run, node, IN_Z),
                        fm_run_param_gradient(run, node, P_Q), (fm_out){0});
    for (int64_t part = 0; part < at->n_part; part++)
        part_backward(run, node, part, fm_run_at(dkv, part * one, act));
}

static const fm_op TEMPLATE_ATTENTION = {"template attention", forward, backward};
static const fm_op TEMPLATE_ATTENTION_CHUNKED = {"template attention", forward_chunked, NULL};

static void save_tensors(fm_tape *tape, fm_node *node, const attributes *at) {
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){at->pairs, at->width});
    fm_node_save(tape, node, FM_KEEP, act, 3, (int64_t[]){at->n_templ, at->pairs, 2 * at->width});
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){at->pairs, at->width});
    fm_node_save(tape, node, FM_KEEP, acc, 2, (int64_t[]){at->pairs, at->n_head});
}

fm_tensor_ref fm_op_template_attention(fm_tape *tape, fm_tensor_ref z, const fm_tensor_ref *t,
                                       int n_part, fm_tensor_ref mask, fm_tensor_ref any,
                                       const fm_template_attention_weights *weights,
                                       bool residual) {
    void *memory;
    bool is_chunked = tape->chunk_bytes > 0;
    fm_node *node =
        fm_tape_add(tape, is_chunked ? &TEMPLATE_ATTENTION_CHUNKED : &TEMPLATE_ATTENTION,
                    "template pointwise attention", sizeof(attributes), &memory);
    assert(n_part >= 1 && n_part <= FM_MAX_TEMPLATE);
    attributes *at = memory;
    const fm_tensor *pair = fm_tape_tensor(tape, z), *stream = fm_tape_tensor(tape, t[0]);
    assert(pair->rank == 3 && (stream->rank == 3 || (stream->rank == 4 && n_part == 1)));
    int64_t of_part = stream->rank == 4 ? stream->local[0] : 1;
    *at = (attributes){.pairs = pair->local[0] * pair->local[1],
                       .c_z = pair->local[2],
                       .c_t = stream->local[stream->rank - 1],
                       .n_templ = n_part * of_part,
                       .n_part = n_part,
                       .n_head = weights->n_head,
                       .c_head = weights->c_head,
                       .width = weights->n_head * weights->c_head};
    at->part_rows = of_part * at->pairs;
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, any, true);
    for (int i = 0; i < n_part; i++) {
        assert(fm_tensor_local_count(fm_tape_tensor(tape, t[i])) == at->part_rows * at->c_t);
        fm_node_input(tape, node, t[i], true);
    }
    const fm_param_ref params[] = {weights->norm, weights->q, weights->kv, weights->out,
                                   weights->out_bias};
    for (int i = 0; i < 5; i++)
        fm_node_param(tape, node, params[i]);
    if (is_chunked) {
        assert(at->part_rows == at->pairs && residual);
        /* k and v of all templates, q and the output, one normalised template, the update */
        int64_t elements = 2 * (at->n_templ + 1) * at->width + at->c_t + at->c_z;
        at->chunk = fm_call_chunk(tape, at->pairs, elements);
    } else {
        save_tensors(tape, node, at);
    }
    const fm_tensor *shape = fm_tape_tensor(tape, z);
    return residual ? fm_node_residual(tape, node, IN_Z)
                    : fm_node_output_described(tape, node, shape);
}
