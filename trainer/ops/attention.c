/* attention.c: attention in one node (attention.h), and the parts that it shares with the split
 * form (attention_parts.h). q k v g of a position are stored side by side, [n0, n1, 4 width]. The
 * kernel reads them as four strided views, so rows and columns need no transposition. */
#include "trainer/ops/attention_parts.h"

#include <assert.h>
#include <math.h>

typedef struct attributes {
    fm_attention_shape shape;
    int64_t c_z;
    bool opens;
} attributes;

static const double MASK_VALUE = 1e9;

enum { IN_X, IN_MASK, IN_Z };
enum { P_NORM, P_QKVG, P_Q_BIAS, P_GATE_BIAS, P_OUT, P_OUT_BIAS, P_BIAS, P_NORM_Z, N_PARAM };
enum { S_QKVG, S_LSE, S_BIAS };

/* -- parts */

static bool along_second_axis(fm_axial axial) {
    return axial == FM_AXIAL_ROW || axial == FM_AXIAL_STARTING;
}

fm_attention_shape fm_attention_shape_of(fm_axial axial, const fm_tensor *x,
                                         const fm_attention_weights *weights, double dropout) {
    bool second = along_second_axis(axial);
    int axis = x->rank - 3;
    assert(axis == 0 || (axis == 1 && x->shard_axis <= 0));
    assert(x->shard_axis != axis + second && "the attended axis is split");
    fm_attention_shape shape = {.axial = axial,
                                .n_group = axis ? x->local[0] : 1,
                                .n0 = x->local[axis],
                                .n1 = x->local[axis + 1],
                                .c = x->local[axis + 2],
                                .n_head = weights->n_head,
                                .c_head = weights->c_head,
                                .width = weights->n_head * weights->c_head,
                                .n_query = x->local[axis + (second ? 1 : 0)],
                                .n_batch = x->local[axis + (second ? 0 : 1)]};
    shape.rows = shape.n_group * shape.n0 * shape.n1;
    shape.update =
        fm_update_of(x, dropout, axial == FM_AXIAL_ENDING ? FM_SHARED_AXIS1 : FM_SHARED_AXIS0);
    return shape;
}

static fm_attention_stride strides(const fm_attention_shape *at, int64_t ld) {
    bool second = along_second_axis(at->axial);
    return (fm_attention_stride){.group = at->n_group > 1 ? at->n0 * at->n1 * ld : 0,
                                 .batch = second ? at->n1 * ld : ld,
                                 .row = second ? ld : at->n1 * ld,
                                 .head = at->c_head};
}

/* Without addresses. */
static fm_attention core_shape(const fm_attention_shape *at) {
    fm_attention core = {.n_group = at->n_group,
                         .n_batch = at->n_batch,
                         .n_query = at->n_query,
                         .n_key = at->n_query,
                         .n_head = at->n_head,
                         .n_kv_head = at->n_head,
                         .c_head = at->c_head,
                         .scale = 1.0 / sqrt((double)at->c_head),
                         .mask_value = MASK_VALUE};
    core.q_stride = core.k_stride = core.v_stride = core.g_stride = strides(at, 4 * at->width);
    core.o_stride = strides(at, at->width);
    bool second = along_second_axis(at->axial);
    core.mask_stride[1] = second ? at->n1 : 1;
    core.mask_stride[2] = second ? 1 : at->n1;
    return core;
}

fm_attention fm_attention_core(const fm_run *run, const fm_attention_shape *at, const void *qkvg) {
    fm_element act = run->kernels->act;
    fm_attention core = core_shape(at);
    core.q = qkvg;
    core.k = fm_run_at(qkvg, at->width, act);
    core.v = fm_run_at(qkvg, 2 * at->width, act);
    core.g = fm_run_at(qkvg, 3 * at->width, act);
    return core;
}

static bool has_bias(const fm_attention_shape *at) {
    return at->axial != FM_AXIAL_COLUMN;
}

bool fm_attention_opens(const fm_tape *tape, fm_axial axial, fm_tensor_ref x,
                        const fm_attention_weights *weights) {
    fm_attention_shape at = fm_attention_shape_of(axial, fm_tape_tensor(tape, x), weights, 0);
    fm_attention core = core_shape(&at);
    return has_bias(&at) && tape->kernels->attention_opens(&core, at.c);
}

/* The projection to `count` of q k v g, beginning with number `first`: one matrix product. */
static fm_linear projection(const fm_run *run, const fm_attention_shape *at, const void *normed,
                            const void *w, int64_t first, int64_t count) {
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = count * at->width,
                       .ldx = at->c,
                       .ldy = 4 * at->width,
                       .x = normed,
                       .w = fm_run_at(w, first * at->width * at->c, run->kernels->act)};
}

void fm_attention_assert_zeros(const fm_tape *tape, const fm_attention_weights *weights,
                               int64_t width) {
    fm_param_ref block = weights->gate_bias;
    assert(block == FM_PARAM_NONE || tape->params->block[block].zeros >= 3 * width);
    (void)tape, (void)block, (void)width;
}

/* One product, with a bias for g alone; two products where q has a bias. */
void fm_attention_project(fm_run *run, const fm_attention_shape *at, const void *normed,
                          const void *w, const void *q_bias, const void *gate_bias, void *qkvg) {
    fm_element act = run->kernels->act;
    if (!q_bias) {
        fm_linear all = projection(run, at, normed, w, 0, 4);
        all.bias = gate_bias;
        all.bias_first = 3 * at->width;
        fm_call_linear(run, &all, false, qkvg); /* A7:2 A7:4 A8:2 A8:3 A13:2 A13:4 A14:2 A14:4 */
        return;
    }
    fm_linear q = projection(run, at, normed, w, 0, 1);
    q.bias = q_bias;
    fm_call_linear(run, &q, false, qkvg); /* AF3-24:6 */
    fm_linear rest = projection(run, at, normed, w, 1, 3);
    rest.bias = gate_bias;
    rest.bias_first = 2 * at->width;
    fm_call_linear(run, &rest, false, fm_run_at(qkvg, at->width, act)); /* AF3-24:7 AF3-24:9 */
}

void fm_attention_project_at_once(fm_run *run, const fm_attention_shape *at,
                                  const fm_attention_rows *rows) {
    fm_linear all = projection(run, at, rows->x, rows->w, 0, 4);
    all.bias = rows->gate_bias;
    all.bias_first = 3 * at->width;
    fm_call_norm_linear(run, &all, rows->norm, rows->n_few, rows->few_w, rows->few, rows->qkvg);
}

void fm_attention_project_grad(fm_run *run, const fm_attention_shape *at, const void *normed,
                               const void *w, const void *dqkvg, fm_out dnormed, fm_out dw,
                               fm_out dq_bias, fm_out dgate_bias) {
    fm_linear all = projection(run, at, normed, w, 0, 4);
    all.bias_first = 3 * at->width;
    fm_call_linear_grad(run, &all, dqkvg, dnormed, dw, dgate_bias);
    if (dq_bias.data) {
        fm_call_sum(run, 1, at->rows, at->width, 0, 4 * at->width, dqkvg, dq_bias, true);
    }
}

void fm_attention_project_at_once_grad(fm_run *run, const fm_attention_shape *at,
                                       const fm_attention_rows_grad *grad) {
    fm_norm norm = *grad->norm;
    fm_out none = {0};
    if (norm.gamma) norm.y = fm_run_workspace_act(run, norm.rows * norm.c);
    fm_out dnormed = fm_call_norm_gradient(run, &norm, grad->dx);
    fm_attention_project_grad(run, at, norm.y, grad->w, grad->dqkvg, dnormed, none, none, none);
    dnormed.beta = FM_ADD;
    fm_call_norm_few_grad(run, &norm, grad->bias, grad->dbias, dnormed, grad->dx, grad->dnorm,
                          grad->dbias_w);
    fm_attention_project_grad(run, at, norm.y, grad->w, grad->dqkvg, none, grad->dw, grad->dq_bias,
                              grad->dgate_bias);
}

void fm_attention_set_bias(fm_attention *core, const fm_attention_shape *at, const void *bias) {
    /* A7:3: b_ij for query i, key j. A13:3: b_jk for query j, key k. A14:3: b_ki for query i,
     * key k. */
    bool ending = at->axial == FM_AXIAL_ENDING;
    core->bias = bias;
    core->bias_stride[0] = at->n_query * at->n_query * at->n_head;
    core->bias_stride[1] = 1;
    core->bias_stride[2] = ending ? at->n_head : at->n_query * at->n_head;
    core->bias_stride[3] = ending ? at->n_query * at->n_head : at->n_head;
}

fm_linear fm_attention_bias(int64_t rows, int64_t c, int64_t n_head, const void *normed,
                            const void *w) {
    return (fm_linear){
        .rows = rows, .c_in = c, .c_out = n_head, .ldx = c, .ldy = n_head, .x = normed, .w = w};
}

fm_linear fm_attention_out(const fm_attention_shape *at, const void *o, const void *w,
                           const void *bias) {
    return (fm_linear){.rows = at->rows,
                       .c_in = at->width,
                       .c_out = at->c,
                       .ldx = at->width,
                       .ldy = at->c,
                       .x = o,
                       .w = w,
                       .bias = bias};
}

/* -- the op */

/* Whether the node has its output projection. Without one its output is the gated core's, which is
 * saved otherwise, as the last tensor. */
static bool projects_out(const fm_node *node) {
    const attributes *at = node->attributes;
    return node->param[P_OUT] != FM_PARAM_NONE && !at->opens;
}

static void *gated(const fm_run *run, const fm_node *node) {
    return projects_out(node) ? fm_run_saved(run, node, node->n_saved - 1)
                              : fm_run_output(run, node, 0);
}

static fm_attention core_of(const fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = &((const attributes *)node->attributes)->shape;
    fm_attention core = fm_attention_core(run, at, fm_run_saved(run, node, S_QKVG));
    core.mask = fm_run_input(run, node, IN_MASK);
    core.o = gated(run, node);
    core.lse = fm_run_saved(run, node, S_LSE);
    if (has_bias(at)) fm_attention_set_bias(&core, at, fm_run_saved(run, node, S_BIAS));
    return core;
}

/* Pairs of a query and a key. */
static int64_t bias_rows(const fm_attention_shape *at) {
    return at->n_group * at->n_query * at->n_query;
}

static fm_linear bias_projection(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return fm_attention_bias(bias_rows(&at->shape), at->c_z, at->shape.n_head, normed,
                             fm_run_param(run, node, P_BIAS));
}

static fm_linear out_projection(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_attention_out(&at->shape, gated(run, node), fm_run_param(run, node, P_OUT),
                            fm_run_param(run, node, P_OUT_BIAS));
}

static fm_norm norm_x(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->shape.rows, at->shape.c, fm_run_input(run, node, IN_X),
                        fm_run_param(run, node, P_NORM));
}

static fm_norm norm_z(fm_run *run, const fm_node *node, bool later) {
    const attributes *at = node->attributes;
    int64_t rows = at->shape.n_query * at->shape.n_query;
    const void *z = fm_run_input(run, node, IN_Z), *weights = fm_run_param(run, node, P_NORM_Z);
    return later ? fm_call_norm_later(run, rows, at->c_z, z, weights)
                 : fm_call_norm(run, rows, at->c_z, z, weights);
}

/* Norm, q k v g and the bias that is made of the same rows, by one kernel where there is one. */
static void project_at_once(fm_run *run, const fm_node *node, bool with_bias) {
    const attributes *at = node->attributes;
    const fm_attention_shape *shape = &at->shape;
    const fm_attention_rows rows = {.x = fm_run_input(run, node, IN_X),
                                    .norm = fm_run_param(run, node, P_NORM),
                                    .w = fm_run_param(run, node, P_QKVG),
                                    .gate_bias = fm_run_param(run, node, P_GATE_BIAS),
                                    .n_few = with_bias ? shape->n_head : 0,
                                    .few_w = fm_run_param(run, node, P_BIAS),
                                    .few = with_bias ? fm_run_saved(run, node, S_BIAS) : NULL,
                                    .qkvg = fm_run_saved(run, node, S_QKVG)};
    fm_attention_project_at_once(run, shape, &rows);
}

/* The bias [query, key, head] of the normalised pairs. */
static void project_bias(fm_run *run, const fm_node *node, const void *normed) {
    fm_linear bias = bias_projection(run, node, normed);
    fm_call_linear(run, &bias, false, fm_run_saved(run, node, S_BIAS));
}

/* Returns whether only q k v g are computed again: what follows from them is kept. */
static bool only_projects(const fm_run *run, const fm_node *node) {
    return !fm_run_wants_output(run) && fm_run_has_saved(run, node, S_LSE);
}

/* The bias of a row attention comes first, because the pairs were written last. */
static void project(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = &((const attributes *)node->attributes)->shape;
    bool is_row = at->axial == FM_AXIAL_ROW, with_bias = has_bias(at) && !is_row;
    const void *q_bias = fm_run_param(run, node, P_Q_BIAS);
    if (is_row && !only_projects(run, node)) {
        int64_t mark = fm_run_mark(run);
        project_bias(run, node, norm_z(run, node, false).y); /* A7:3 AF3-24:8 */
        fm_run_release(run, mark);
    }
    if (!q_bias) {
        /* A7:1 A7:2 A7:4 A8:1 A8:2 A8:3 A13:1 A13:2 A13:3 A13:4 A14:1 A14:2 A14:3 A14:4 */
        project_at_once(run, node, with_bias);
        return;
    }
    fm_norm normed = norm_x(run, node); /* AF3-24:4 */
    fm_attention_project(run, at, normed.y, fm_run_param(run, node, P_QKVG), q_bias,
                         fm_run_param(run, node, P_GATE_BIAS), fm_run_saved(run, node, S_QKVG));
    if (with_bias) project_bias(run, node, normed.y);
}

static void forward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = &((const attributes *)node->attributes)->shape;
    int64_t mark = fm_run_mark(run);
    project(run, node);
    fm_run_release(run, mark);
    if (only_projects(run, node)) return;
    fm_attention core = core_of(run, node);
    fm_call_attention(run, &core); /* A7:5-6 A8:4-5 A13:5-6 A14:5-6 AF3-24:10 */
    if (!fm_run_wants_output(run) || !projects_out(node)) return;
    const void *residual = node->residual < 0 ? NULL : fm_run_input(run, node, IN_X);
    void *y = fm_run_output(run, node, 0);
    fm_linear out = out_projection(run, node);
    if (at->update.rate == 0) {
        out.residual = residual;
        fm_call_linear(run, &out, false, y); /* A8:6 */
        return;
    }
    void *update = fm_run_workspace_act(run, at->rows * at->c);
    fm_call_linear(run, &out, false, update); /* A7:7 A13:7 A14:7 AF3-24:11 */
    fm_call_update(run, node, &at->update, residual, update, y);
}

/* Passes the gradient of q k v g back to x. */
static void project_backward(fm_run *run, const fm_node *node, const void *dqkvg) {
    const fm_attention_shape *at = &((const attributes *)node->attributes)->shape;
    fm_norm normed = norm_x(run, node);
    fm_out dx = fm_run_gradient(run, node, IN_X);
    fm_out dnormed = fm_call_norm_gradient(run, &normed, dx);
    fm_attention_project_grad(run, at, normed.y, fm_run_param(run, node, P_QKVG), dqkvg, dnormed,
                              fm_run_param_gradient(run, node, P_QKVG),
                              fm_run_param_gradient(run, node, P_Q_BIAS),
                              fm_run_param_gradient(run, node, P_GATE_BIAS));
    fm_call_norm_grad(run, &normed, dnormed.data, dx, fm_run_param_gradient(run, node, P_NORM));
}

/* Passes the gradients of q k v g and of a bias that is made from x back to x. */
static void project_bias_backward(fm_run *run, const fm_node *node, const void *dqkvg,
                                  const void *dbias) {
    const attributes *at = node->attributes;
    const fm_attention_shape *shape = &at->shape;
    fm_norm norm = fm_call_norm_later(run, shape->rows, shape->c, fm_run_input(run, node, IN_X),
                                      fm_run_param(run, node, P_NORM));
    fm_linear bias = bias_projection(run, node, NULL);
    const fm_attention_rows_grad grad = {.norm = &norm,
                                         .bias = &bias,
                                         .w = fm_run_param(run, node, P_QKVG),
                                         .dqkvg = dqkvg,
                                         .dbias = dbias,
                                         .dx = fm_run_gradient(run, node, IN_X),
                                         .dnorm = fm_run_param_gradient(run, node, P_NORM),
                                         .dw = fm_run_param_gradient(run, node, P_QKVG),
                                         .dq_bias = fm_run_param_gradient(run, node, P_Q_BIAS),
                                         .dgate_bias =
                                             fm_run_param_gradient(run, node, P_GATE_BIAS),
                                         .dbias_w = fm_run_param_gradient(run, node, P_BIAS)};
    fm_attention_project_at_once_grad(run, shape, &grad);
}

static void pair_backward(fm_run *run, const fm_node *node, const void *dbias) {
    fm_norm norm = norm_z(run, node, true);
    fm_out dz = fm_run_gradient(run, node, IN_Z);
    fm_out dnormed = fm_call_norm_gradient(run, &norm, dz);
    fm_linear bias = bias_projection(run, node, norm.y);
    fm_call_norm_few_grad(run, &norm, &bias, dbias, dnormed, dz,
                          fm_run_param_gradient(run, node, P_NORM_Z),
                          fm_run_param_gradient(run, node, P_BIAS));
}

/* Sets what the gated core's backward begins with: the gradient of its output, or that of the
 * update and the projection between them. */
static void out_backward(fm_run *run, const fm_node *node, const fm_attention *core,
                         fm_attention_grad *grad) {
    const attributes *op = node->attributes;
    const fm_attention_shape *at = &op->shape;
    const void *dy = fm_run_output_gradient(run, node, 0), *w = fm_run_param(run, node, P_OUT);
    if (!projects_out(node)) {
        if (op->opens) grad->dy = dy, grad->w = w;
        if (!op->opens) grad->dout = dy;
        return;
    }
    void *dcore = NULL;
    bool opens = has_bias(at) && run->kernels->attention_opens(core, at->c);
    if (!opens) dcore = fm_run_workspace_act(run, at->rows * at->width);
    const void *dupdate = fm_call_update_grad(run, node, &at->update, dy);
    fm_linear out = out_projection(run, node);
    fm_call_linear_grad(run, &out, dupdate, (fm_out){dcore, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    grad->dout = dcore;
    if (opens) grad->dy = dupdate, grad->w = w;
}

static void backward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = &((const attributes *)node->attributes)->shape;
    int64_t rows = at->rows;
    fm_element act = run->kernels->act;
    void *dqkvg = fm_run_workspace_act(run, rows * 4 * at->width);
    void *dbias = NULL;
    if (has_bias(at)) dbias = fm_run_workspace_act(run, bias_rows(at) * at->n_head);
    int64_t mark = fm_run_mark(run);
    fm_attention core = core_of(run, node);
    fm_attention_grad grad = {.dq = {dqkvg, FM_WRITE},
                              .dk = {fm_run_at(dqkvg, at->width, act), FM_WRITE},
                              .dv = {fm_run_at(dqkvg, 2 * at->width, act), FM_WRITE},
                              .dg = {fm_run_at(dqkvg, 3 * at->width, act), FM_WRITE},
                              .dbias = {dbias, FM_WRITE}};
    out_backward(run, node, &core, &grad);
    fm_call_attention_grad(run, &core, &grad);
    fm_run_release(run, mark);
    if (has_bias(at) && at->axial != FM_AXIAL_ROW) {
        project_bias_backward(run, node, dqkvg, dbias);
        return;
    }
    project_backward(run, node, dqkvg);
    fm_run_release(run, mark);
    if (has_bias(at)) pair_backward(run, node, dbias);
}

static const fm_op ATTENTION = {"attention", forward, backward};

static void save_tensors(fm_tape *tape, fm_node *node, const fm_attention_shape *at,
                         fm_keep keep_qkvg) {
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    int64_t rows = at->rows;
    fm_node_save(tape, node, keep_qkvg, act, 2, (int64_t[]){rows, 4 * at->width});
    fm_node_save(tape, node, FM_KEEP, acc, 3,
                 (int64_t[]){at->n_group * at->n_batch, at->n_head, at->n_query});
    if (has_bias(at)) {
        fm_node_save(tape, node, FM_KEEP, act, 3,
                     (int64_t[]){at->n_group * at->n_query, at->n_query, at->n_head});
    }
    if (projects_out(node)) fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){rows, at->width});
}

static fm_tensor_ref add_output(fm_tape *tape, fm_node *node, fm_tensor_ref x, int64_t width,
                                bool residual) {
    if (residual) return fm_node_residual(tape, node, IN_X);
    fm_tensor like = *fm_tape_tensor(tape, x);
    if (!projects_out(node)) {
        like.shape[like.rank - 1] = like.local[like.rank - 1] = width;
        fm_node_reads_output(node, 0);
    }
    return fm_node_output_described(tape, node, &like);
}

fm_tensor_ref fm_op_attention(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref x,
                              fm_tensor_ref mask, fm_tensor_ref z,
                              const fm_attention_weights *weights, bool residual, double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ATTENTION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_attention_shape *shape = &at->shape;
    at->shape = fm_attention_shape_of(axial, fm_tape_tensor(tape, x), weights, dropout);
    fm_node_draws(tape, node);
    assert((z != FM_TENSOR_NONE) == (axial == FM_AXIAL_ROW));
    assert(shape->n_group == 1 || axial == FM_AXIAL_STARTING || axial == FM_AXIAL_ENDING);
    fm_attention_assert_zeros(tape, weights, shape->width);
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, z, true);
    const fm_param_ref params[N_PARAM] = {weights->norm,      weights->qkvg,  weights->q_bias,
                                          weights->gate_bias, weights->out,   weights->out_bias,
                                          weights->bias,      weights->norm_z};
    assert(weights->norm_z == FM_PARAM_NONE || axial == FM_AXIAL_ROW);
    assert((weights->bias != FM_PARAM_NONE) == has_bias(shape));
    at->opens = weights->opens;
    for (int i = 0; i < N_PARAM; i++)
        fm_node_param(tape, node, params[i]);
    if (axial == FM_AXIAL_ROW) {
        const fm_tensor *pair = fm_tape_tensor(tape, z);
        at->c_z = pair->local[2];
        assert(pair->local[0] == shape->n1 && pair->local[1] == shape->n1);
    } else if (axial != FM_AXIAL_COLUMN) {
        at->c_z = shape->c;
        assert(shape->n0 == shape->n1);
    }
    save_tensors(tape, node, shape, weights->keep_qkvg);
    assert(!residual || projects_out(node));
    return add_output(tape, node, x, shape->width, residual);
}
