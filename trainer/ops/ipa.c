/* ipa.c: see ipa.h. */
#include "trainer/ops/ipa.h"

#include "trainer/ops/call_structure.h"
#include "trainer/ops/linear.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_s, c_z, n_head, c, n_qk, n_v;
    int64_t n_projection, n_out; /* elements of a row of the projections, and of the output */
} attributes;

static const double MASK_VALUE = 1e5, LENGTH_EPS = 1e-8;

enum { IN_S, IN_Z, IN_BIAS, IN_FRAMES, IN_MASK, N_INPUT };
enum { P_PROJECTIONS, P_PROJECTIONS_BIAS, P_HEADS, P_OUT, P_OUT_BIAS, N_PARAM };
enum { S_PROJECTIONS, S_OUT, S_LSE };

static fm_linear projection_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n,
                       .c_in = at->c_s,
                       .c_out = at->n_projection,
                       .ldx = at->c_s,
                       .ldy = at->n_projection,
                       .x = fm_run_input(run, node, IN_S),
                       .w = fm_run_param(run, node, P_PROJECTIONS),
                       .bias = fm_run_param(run, node, P_PROJECTIONS_BIAS)};
}

static fm_linear out_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n,
                       .c_in = at->n_out,
                       .c_out = at->c_s,
                       .ldx = at->n_out,
                       .ldy = at->c_s,
                       .x = fm_run_saved(run, node, S_OUT),
                       .w = fm_run_param(run, node, P_OUT),
                       .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static fm_ipa core_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_ipa){.n = at->n,
                    .n_head = at->n_head,
                    .c = at->c,
                    .n_qk = at->n_qk,
                    .n_v = at->n_v,
                    .c_z = at->c_z,
                    .ld = at->n_projection,
                    .mask_value = MASK_VALUE,
                    .eps = LENGTH_EPS,
                    .projections = fm_run_saved(run, node, S_PROJECTIONS),
                    .bias = fm_run_input(run, node, IN_BIAS),
                    .z = fm_run_input(run, node, IN_Z),
                    .frames = fm_run_input(run, node, IN_FRAMES),
                    .mask = fm_run_input(run, node, IN_MASK),
                    .head_weights = fm_run_param(run, node, P_HEADS),
                    .y = fm_run_saved(run, node, S_OUT),
                    .lse = fm_run_saved(run, node, S_LSE)};
}

static void forward(fm_run *run, const fm_node *node) {
    fm_linear projection = projection_of(run, node);
    fm_call_linear(run, &projection, false, fm_run_saved(run, node, S_PROJECTIONS)); /* A22:1-3 */
    fm_ipa core = core_of(run, node);
    fm_call_ipa(run, &core); /* A22:7-10 */
    if (!fm_run_wants_output(run)) return;
    fm_linear out = out_of(run, node);
    out.residual = node->residual < 0 ? NULL : fm_run_input(run, node, IN_S);
    fm_call_linear(run, &out, false, fm_run_output(run, node, 0)); /* A22:11 */
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_linear out = out_of(run, node);
    void *dout = fm_run_workspace_act(run, at->n * at->n_out);
    fm_call_linear_grad(run, &out, fm_run_output_gradient(run, node, 0), (fm_out){dout, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_ipa core = core_of(run, node);
    void *dprojections = fm_run_workspace_act(run, at->n * at->n_projection);
    fm_ipa_grad grad = {.dy = dout,
                        .dprojections = dprojections,
                        .dbias = fm_run_gradient(run, node, IN_BIAS),
                        .dz = fm_run_gradient(run, node, IN_Z),
                        .dframes = fm_run_gradient(run, node, IN_FRAMES),
                        .dhead_weights = fm_run_param_gradient(run, node, P_HEADS)};
    fm_call_ipa_grad(run, &core, &grad);
    fm_linear projection = projection_of(run, node);
    fm_call_linear_grad(run, &projection, dprojections, fm_run_gradient(run, node, IN_S),
                        fm_run_param_gradient(run, node, P_PROJECTIONS),
                        fm_run_param_gradient(run, node, P_PROJECTIONS_BIAS));
}

static const fm_op IPA = {"invariant point attention", forward, backward};

fm_tensor_ref fm_op_ipa_bias(fm_tape *tape, fm_tensor_ref z, const fm_ipa_weights *w) {
    fm_linear_weights linear = {.w = w->bias, .b = w->bias_bias, .c_out = w->n_head};
    return fm_op_linear_all(tape, "ipa pair bias", z, &linear); /* A22:4 */
}

fm_tensor_ref fm_op_ipa(fm_tape *tape, const char *name, fm_tensor_ref s, fm_tensor_ref z,
                        fm_tensor_ref bias, fm_tensor_ref frames, fm_tensor_ref mask,
                        const fm_ipa_weights *w, bool residual) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &IPA, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, s), *pair = fm_tape_tensor(tape, z);
    assert(x->rank == 2 && pair->rank == 3 && pair->local[0] == x->local[0]);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, frames)) == x->local[0] * FM_FRAME);
    *at = (attributes){.n = x->local[0],
                       .c_s = x->local[1],
                       .c_z = pair->local[2],
                       .n_head = w->n_head,
                       .c = w->c,
                       .n_qk = w->n_qk,
                       .n_v = w->n_v};
    at->n_projection = w->n_head * 3 * (w->c + 2 * w->n_qk + w->n_v);
    at->n_out = w->n_head * (w->c + 4 * w->n_v + at->c_z);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, bias)) == at->n * at->n * at->n_head);
    const fm_tensor_ref inputs[N_INPUT] = {s, z, bias, frames, mask};
    for (int i = 0; i < N_INPUT; i++)
        fm_node_input(tape, node, inputs[i], true);
    const fm_param_ref params[N_PARAM] = {w->projections, w->projections_bias, w->head_weights,
                                          w->out, w->out_bias};
    for (int i = 0; i < N_PARAM; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->n, at->n_projection});
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->n, at->n_out});
    fm_node_save(tape, node, FM_KEEP, tape->kernels->acc, 3, (int64_t[]){at->n, at->n_head, 2});
    return residual ? fm_node_residual(tape, node, IN_S) : fm_node_output_described(tape, node, x);
}
