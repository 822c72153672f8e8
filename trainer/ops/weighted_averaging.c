/* weighted_averaging.c: see weighted_averaging.h. It uses the attention kernel with queries and
 * keys of 0, so the logits equal the bias. */
#include "trainer/ops/weighted_averaging.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n_seq, n, c_m, c_z, n_head, c_head, width;
    fm_update update;
} attributes;

enum { IN_M, IN_MASK, IN_Z };
enum { P_NORM, P_VG, P_NORM_Z, P_BIAS, P_OUT };
enum { S_VG, S_LSE, S_O, S_BIAS };

static const double MASK_VALUE = 1e9;

static fm_norm norm_m(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->n_seq * at->n, at->c_m, fm_run_input(run, node, IN_M),
                        fm_run_param(run, node, P_NORM));
}

static fm_norm norm_z(fm_run *run, const fm_node *node, bool later) {
    const attributes *at = node->attributes;
    const void *z = fm_run_input(run, node, IN_Z), *weights = fm_run_param(run, node, P_NORM_Z);
    return later ? fm_call_norm_later(run, at->n * at->n, at->c_z, z, weights)
                 : fm_call_norm(run, at->n * at->n, at->c_z, z, weights);
}

static fm_linear projection(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_seq * at->n,
                       .c_in = at->c_m,
                       .c_out = 2 * at->width,
                       .ldx = at->c_m,
                       .ldy = 2 * at->width,
                       .x = normed,
                       .w = fm_run_param(run, node, P_VG)};
}

static fm_linear bias_projection(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n * at->n,
                       .c_in = at->c_z,
                       .c_out = at->n_head,
                       .ldx = at->c_z,
                       .ldy = at->n_head,
                       .x = normed,
                       .w = fm_run_param(run, node, P_BIAS)};
}

static fm_linear out_projection(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_seq * at->n,
                       .c_in = at->width,
                       .c_out = at->c_m,
                       .ldx = at->width,
                       .ldy = at->c_m,
                       .x = fm_run_saved(run, node, S_O),
                       .w = fm_run_param(run, node, P_OUT)};
}

static bool makes_bias(const fm_node *node) {
    return node->param[P_BIAS] != FM_PARAM_NONE;
}

/* `zeros` [n, width] are the queries and the keys of every row. */
static fm_attention core_of(const fm_run *run, const fm_node *node, const void *zeros) {
    const attributes *at = node->attributes;
    const void *vg = fm_run_saved(run, node, S_VG);
    fm_attention_stride zero = {.row = at->width, .head = at->c_head};
    fm_attention_stride projected = {
        .batch = at->n * 2 * at->width, .row = 2 * at->width, .head = at->c_head};
    return (fm_attention){
        .n_group = 1,
        .n_batch = at->n_seq,
        .n_query = at->n,
        .n_key = at->n,
        .n_head = at->n_head,
        .n_kv_head = at->n_head,
        .c_head = at->c_head,
        .scale = 1,
        .mask_value = MASK_VALUE,
        .q = zeros,
        .k = zeros,
        .v = vg,
        .g = fm_run_at(vg, at->width, run->kernels->act),
        .bias = makes_bias(node) ? fm_run_saved(run, node, S_BIAS) : fm_run_input(run, node, IN_Z),
        .mask = fm_run_input(run, node, IN_MASK),
        .q_stride = zero,
        .k_stride = zero,
        .v_stride = projected,
        .g_stride = projected,
        .o_stride = {.batch = at->n * at->width, .row = at->width, .head = at->c_head},
        .bias_stride = {0, 1, at->n * at->n_head, at->n_head},
        .mask_stride = {0, at->n, 1},
        .o = fm_run_saved(run, node, S_O),
        .lse = fm_run_saved(run, node, S_LSE)};
}

static void *make_zeros(fm_run *run, const attributes *at) {
    void *zeros = fm_run_workspace_act(run, at->n * at->width);
    fm_call_fill(run, at->n * at->width, 0.0, zeros);
    return zeros;
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t mark = fm_run_mark(run);
    fm_linear vg = projection(run, node, norm_m(run, node).y); /* AF3-10:1-2 AF3-10:4 */
    fm_call_linear(run, &vg, false, fm_run_saved(run, node, S_VG));
    fm_run_release(run, mark);
    if (makes_bias(node)) {
        fm_linear bias = bias_projection(run, node, norm_z(run, node, false).y); /* AF3-10:3 */
        fm_call_linear(run, &bias, false, fm_run_saved(run, node, S_BIAS));
        fm_run_release(run, mark);
    }
    fm_attention core = core_of(run, node, make_zeros(run, at));
    fm_call_attention(run, &core); /* AF3-10:5-6 */
    fm_run_release(run, mark);
    if (!fm_run_wants_output(run)) return;
    const void *residual = node->residual < 0 ? NULL : fm_run_input(run, node, IN_M);
    void *y = fm_run_output(run, node, 0);
    fm_linear out = out_projection(run, node); /* AF3-10:7 */
    if (at->update.rate == 0) {
        out.residual = residual;
        fm_call_linear(run, &out, false, y);
        return;
    }
    void *update = fm_run_workspace_act(run, at->n_seq * at->n * at->c_m);
    fm_call_linear(run, &out, false, update);
    fm_call_update(run, node, &at->update, residual, update, y);
}

/* Passes the gradients of v g and of b back to m and z. */
static void project_backward(fm_run *run, const fm_node *node, const void *dvg, const void *dbias) {
    int64_t mark = fm_run_mark(run);
    fm_norm m = norm_m(run, node);
    fm_out dm = fm_run_gradient(run, node, IN_M), dnormed = fm_call_norm_gradient(run, &m, dm);
    fm_linear vg = projection(run, node, m.y);
    fm_call_linear_grad(run, &vg, dvg, dnormed, fm_run_param_gradient(run, node, P_VG),
                        (fm_out){0});
    fm_call_norm_grad(run, &m, dnormed.data, dm, fm_run_param_gradient(run, node, P_NORM));
    fm_run_release(run, mark);
    if (!makes_bias(node)) return;
    fm_norm z = norm_z(run, node, true);
    fm_out dz = fm_run_gradient(run, node, IN_Z);
    dnormed = fm_call_norm_gradient(run, &z, dz);
    fm_linear bias = bias_projection(run, node, z.y);
    fm_call_norm_few_grad(run, &z, &bias, dbias, dnormed, dz,
                          fm_run_param_gradient(run, node, P_NORM_Z),
                          fm_run_param_gradient(run, node, P_BIAS));
    fm_run_release(run, mark);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t rows = at->n_seq * at->n;
    void *dvg = fm_run_workspace_act(run, rows * 2 * at->width);
    fm_out dbias = fm_run_gradient(run, node, IN_Z);
    if (makes_bias(node)) {
        dbias = (fm_out){fm_run_workspace_act(run, at->n * at->n * at->n_head), FM_WRITE};
    }
    int64_t mark = fm_run_mark(run);
    void *do_gated = fm_run_workspace_act(run, rows * at->width);
    const void *dupdate =
        fm_call_update_grad(run, node, &at->update, fm_run_output_gradient(run, node, 0));
    fm_linear out = out_projection(run, node);
    fm_call_linear_grad(run, &out, dupdate, (fm_out){do_gated, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT), (fm_out){0});
    fm_attention core = core_of(run, node, make_zeros(run, at));
    /* The kernel also writes the gradients of the constant queries and keys; nothing reads them. */
    void *unread = fm_run_workspace_act(run, 2 * at->n * at->width);
    fm_attention_grad grad = {.dout = do_gated,
                              .dq = {unread, FM_WRITE},
                              .dk = {fm_run_at(unread, at->n * at->width, act), FM_WRITE},
                              .dv = {dvg, FM_WRITE},
                              .dg = {fm_run_at(dvg, at->width, act), FM_WRITE},
                              .dbias = dbias};
    fm_call_attention_grad(run, &core, &grad);
    fm_run_release(run, mark);
    project_backward(run, node, dvg, dbias.data);
}

static const fm_op WEIGHTED_AVERAGING = {"weighted averaging", forward, backward};

fm_tensor_ref fm_op_weighted_averaging(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_averaging_weights *weights, bool residual,
                                       double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &WEIGHTED_AVERAGING, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, m), *pair = fm_tape_tensor(tape, z);
    assert(x->rank == 3 && x->shard_axis <= 0 && pair->local[0] == x->local[1]);
    assert(pair->local[1] == x->local[1]);
    *at = (attributes){.n_seq = x->local[0],
                       .n = x->local[1],
                       .c_m = x->local[2],
                       .c_z = pair->local[2],
                       .n_head = weights->n_head,
                       .c_head = weights->c_head,
                       .width = weights->n_head * weights->c_head,
                       .update = fm_update_of(x, dropout, FM_SHARED_AXIS0)};
    fm_node_draws(tape, node);
    fm_node_input(tape, node, m, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, z, true);
    const fm_param_ref params[] = {weights->norm, weights->vg, weights->norm_z, weights->bias,
                                   weights->out};
    for (int i = 0; i < 5; i++)
        fm_node_param(tape, node, params[i]);
    fm_element act = tape->kernels->act;
    fm_node_save(tape, node, FM_KEEP, act, 3, (int64_t[]){at->n_seq, at->n, 2 * at->width});
    fm_node_save(tape, node, FM_KEEP, tape->kernels->acc, 3,
                 (int64_t[]){at->n_seq, at->n_head, at->n});
    fm_node_save(tape, node, FM_KEEP, act, 3, (int64_t[]){at->n_seq, at->n, at->width});
    if (makes_bias(node)) {
        fm_node_save(tape, node, FM_KEEP, act, 3, (int64_t[]){at->n, at->n, at->n_head});
    }
    return residual ? fm_node_residual(tape, node, IN_M) : fm_node_output_described(tape, node, x);
}
