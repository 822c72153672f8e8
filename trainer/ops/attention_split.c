/* attention_split.c: see attention_split.h. A bias has the layout of its pair array, [i, j, head],
 * and the core reads it with the strides of its attention. So the parts of all ranks follow each
 * other along the split axis of that array, and nothing is transposed. */
#include "trainer/ops/attention_split.h"

#include "trainer/ops/attention_parts.h"

#include <assert.h>

/* -- bias */

typedef struct bias_attributes {
    int64_t rows, c, n_head;
} bias_attributes;

enum { PB_NORM, PB_W };

static fm_norm bias_norm(fm_run *run, const fm_node *node, bool later) {
    const bias_attributes *at = node->attributes;
    const void *x = fm_run_input(run, node, 0), *weights = fm_run_param(run, node, PB_NORM);
    return later ? fm_call_norm_later(run, at->rows, at->c, x, weights)
                 : fm_call_norm(run, at->rows, at->c, x, weights);
}

static fm_linear bias_linear(const fm_run *run, const fm_node *node, const void *normed) {
    const bias_attributes *at = node->attributes;
    return fm_attention_bias(at->rows, at->c, at->n_head, normed, fm_run_param(run, node, PB_W));
}

static void bias_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_norm normed = bias_norm(run, node, false); /* A7:3 A13:1 A14:1 */
    fm_linear linear = bias_linear(run, node, normed.y);
    fm_call_linear(run, &linear, false, fm_run_output(run, node, 0)); /* A7:3 A13:3 A14:3 */
}

static void bias_backward(fm_run *run, const fm_node *node) {
    fm_norm normed = bias_norm(run, node, true);
    fm_out dz = fm_run_gradient(run, node, 0);
    fm_out dnormed = fm_call_norm_gradient(run, &normed, dz);
    fm_linear linear = bias_linear(run, node, normed.y);
    fm_call_norm_few_grad(run, &normed, &linear, fm_run_output_gradient(run, node, 0), dnormed, dz,
                          fm_run_param_gradient(run, node, PB_NORM),
                          fm_run_param_gradient(run, node, PB_W));
}

static const fm_op BIAS = {"attention bias", bias_forward, bias_backward};

fm_tensor_ref fm_op_attention_bias(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref z,
                                   const fm_attention_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &BIAS, name, sizeof(bias_attributes), &memory);
    fm_tensor x = *fm_tape_tensor(tape, z);
    assert(axial != FM_AXIAL_COLUMN && x.rank == 3 && x.shape[0] == x.shape[1]);
    *(bias_attributes *)memory = (bias_attributes){
        .rows = x.local[0] * x.local[1], .c = x.local[2], .n_head = weights->n_head};
    fm_node_input(tape, node, z, true);
    fm_node_param(tape, node, axial == FM_AXIAL_ROW ? weights->norm_z : weights->norm);
    fm_node_param(tape, node, weights->bias);
    fm_tensor out = fm_tensor_of_width(&x, name, weights->n_head);
    return fm_node_output_described(tape, node, &out);
}

/* -- q k v g */

enum { PP_NORM, PP_QKVG, PP_Q_BIAS, PP_GATE_BIAS, PP_BIAS };
enum { OUT_QKVG, OUT_BIAS };

static fm_norm project_norm(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, 0),
                        fm_run_param(run, node, PP_NORM));
}

static bool makes_bias(const fm_node *node) {
    return node->n_output > OUT_BIAS;
}

static void project_forward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    const void *w = fm_run_param(run, node, PP_QKVG), *q_bias = fm_run_param(run, node, PP_Q_BIAS),
               *gate_bias = fm_run_param(run, node, PP_GATE_BIAS);
    void *qkvg = fm_run_output(run, node, OUT_QKVG);
    if (q_bias) {
        fm_norm normed = project_norm(run, node);
        fm_attention_project(run, at, normed.y, w, q_bias, gate_bias, qkvg);
        return;
    }
    const fm_attention_rows rows = {.x = fm_run_input(run, node, 0),
                                    .norm = fm_run_param(run, node, PP_NORM),
                                    .w = w,
                                    .gate_bias = gate_bias,
                                    .n_few = makes_bias(node) ? at->n_head : 0,
                                    .few_w = fm_run_param(run, node, PP_BIAS),
                                    .few = makes_bias(node) ? fm_run_output(run, node, OUT_BIAS)
                                                            : NULL,
                                    .qkvg = qkvg};
    fm_attention_project_at_once(run, at, &rows);
}

static void project_backward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    fm_norm normed = project_norm(run, node);
    fm_out dx = fm_run_gradient(run, node, 0);
    fm_out dnormed = fm_call_norm_gradient(run, &normed, dx);
    fm_attention_project_grad(run, at, normed.y, fm_run_param(run, node, PP_QKVG),
                              fm_run_output_gradient(run, node, OUT_QKVG), dnormed,
                              fm_run_param_gradient(run, node, PP_QKVG),
                              fm_run_param_gradient(run, node, PP_Q_BIAS),
                              fm_run_param_gradient(run, node, PP_GATE_BIAS));
    fm_call_norm_grad(run, &normed, dnormed.data, dx, fm_run_param_gradient(run, node, PP_NORM));
}

static void project_bias_backward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    fm_norm norm = fm_call_norm_later(run, at->rows, at->c, fm_run_input(run, node, 0),
                                      fm_run_param(run, node, PP_NORM));
    fm_linear bias =
        fm_attention_bias(at->rows, at->c, at->n_head, NULL, fm_run_param(run, node, PP_BIAS));
    const fm_attention_rows_grad grad = {.norm = &norm,
                                         .bias = &bias,
                                         .w = fm_run_param(run, node, PP_QKVG),
                                         .dqkvg = fm_run_output_gradient(run, node, OUT_QKVG),
                                         .dbias = fm_run_output_gradient(run, node, OUT_BIAS),
                                         .dx = fm_run_gradient(run, node, 0),
                                         .dnorm = fm_run_param_gradient(run, node, PP_NORM),
                                         .dw = fm_run_param_gradient(run, node, PP_QKVG),
                                         .dq_bias = fm_run_param_gradient(run, node, PP_Q_BIAS),
                                         .dgate_bias =
                                             fm_run_param_gradient(run, node, PP_GATE_BIAS),
                                         .dbias_w = fm_run_param_gradient(run, node, PP_BIAS)};
    fm_attention_project_at_once_grad(run, at, &grad);
}

static void project_rows_backward(fm_run *run, const fm_node *node) {
    (makes_bias(node) ? project_bias_backward : project_backward)(run, node);
}

static const fm_op PROJECT = {"attention projections", project_forward, project_rows_backward};

fm_tensor_ref fm_op_attention_project(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_attention_weights *weights,
                                      fm_tensor_ref *ret_bias) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &PROJECT, name, sizeof(fm_attention_shape), &memory);
    fm_attention_shape *at = memory;
    const fm_tensor in = *fm_tape_tensor(tape, x);
    *at = (fm_attention_shape){.n_group = 1,
                               .rows = in.local[0] * in.local[1],
                               .n0 = in.local[0],
                               .n1 = in.local[1],
                               .c = in.local[2],
                               .n_head = weights->n_head,
                               .width = weights->n_head * weights->c_head};
    fm_attention_assert_zeros(tape, weights, at->width);
    assert(!ret_bias || weights->q_bias == FM_PARAM_NONE);
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights->norm);
    fm_node_param(tape, node, weights->qkvg);
    fm_node_param(tape, node, weights->q_bias);
    fm_node_param(tape, node, weights->gate_bias);
    fm_node_param(tape, node, ret_bias ? weights->bias : FM_PARAM_NONE);
    fm_tensor qkvg = fm_tensor_of_width(&in, name, 4 * at->width);
    fm_tensor bias = fm_tensor_of_width(&in, name, at->n_head);
    fm_tensor_ref out = fm_node_output_described(tape, node, &qkvg);
    if (ret_bias) *ret_bias = fm_node_output_described(tape, node, &bias);
    return out;
}

/* -- core */

enum { IN_QKVG, IN_MASK, IN_BIAS };

static fm_attention core_of(const fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    fm_attention core = fm_attention_core(run, at, fm_run_input(run, node, IN_QKVG));
    core.mask = fm_run_input(run, node, IN_MASK);
    fm_attention_set_bias(&core, at, fm_run_input(run, node, IN_BIAS));
    core.o = fm_run_output(run, node, 0);
    core.lse = fm_run_saved(run, node, 0);
    return core;
}

/* Runs also when only what is saved is wanted: the log-sum comes with the output. */
static void core_forward(fm_run *run, const fm_node *node) {
    fm_attention core = core_of(run, node);
    fm_call_attention(run, &core); /* A7:5-6 A13:5-6 A14:5-6 */
}

static void core_backward(fm_run *run, const fm_node *node) {
    const fm_attention_shape *at = node->attributes;
    fm_element act = run->kernels->act;
    fm_out dqkvg = fm_run_gradient(run, node, IN_QKVG);
    assert(dqkvg.beta == FM_WRITE);
    fm_attention core = core_of(run, node);
    fm_attention_grad grad = {.dout = fm_run_output_gradient(run, node, 0),
                              .dq = dqkvg,
                              .dk = fm_out_at(dqkvg, at->width, act),
                              .dv = fm_out_at(dqkvg, 2 * at->width, act),
                              .dg = fm_out_at(dqkvg, 3 * at->width, act),
                              .dbias = fm_run_gradient(run, node, IN_BIAS)};
    fm_call_attention_grad(run, &core, &grad);
}

static const fm_op CORE = {"attention core", core_forward, core_backward};

fm_tensor_ref fm_op_attention_core(fm_tape *tape, const char *name, fm_axial axial, fm_tensor_ref x,
                                   fm_tensor_ref qkvg, fm_tensor_ref mask, fm_tensor_ref bias,
                                   const fm_attention_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &CORE, name, sizeof(fm_attention_shape), &memory);
    fm_attention_shape *at = memory;
    *at = fm_attention_shape_of(axial, fm_tape_tensor(tape, x), weights, 0);
    const fm_tensor *b = fm_tape_tensor(tape, bias);
    assert(b->local[0] == at->n_query && b->local[1] == at->n_query);
    const fm_tensor *m = mask == FM_TENSOR_NONE ? NULL : fm_tape_tensor(tape, mask);
    assert(!m || (m->local[0] == at->n0 && m->local[1] == at->n1));
    fm_node_draws(tape, node);
    fm_node_input(tape, node, qkvg, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, bias, true);
    fm_node_reads_output(node, 0);
    fm_node_save(tape, node, FM_KEEP, tape->kernels->acc, 3,
                 (int64_t[]){at->n_batch, at->n_head, at->n_query});
    fm_tensor out = fm_tensor_of_width(fm_tape_tensor(tape, x), name, at->width);
    return fm_node_output_described(tape, node, &out);
}
