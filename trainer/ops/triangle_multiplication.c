/* triangle_multiplication.c: see triangle_multiplication.h. */
#include "trainer/ops/triangle_multiplication.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, rows, c_z, c;
    int64_t five; /* 4c + c_z: width of the fused projection */
    bool incoming;
    fm_update update;
} attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM_IN, P_FIVE, P_FIVE_BIAS, P_NORM_OUT, P_OUT, P_OUT_BIAS };
enum { S_FIVE, S_X };

static fm_linear five_of(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c_z,
                       .c_out = at->five,
                       .ldx = at->c_z,
                       .ldy = at->five,
                       .x = normed,
                       .w = fm_run_param(run, node, P_FIVE),
                       .bias = fm_run_param(run, node, P_FIVE_BIAS)};
}

static fm_linear out_of(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = at->c_z,
                       .ldx = at->c,
                       .ldy = at->c_z,
                       .x = normed,
                       .w = fm_run_param(run, node, P_OUT),
                       .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static fm_triangle core_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    const void *five = fm_run_saved(run, node, S_FIVE);
    const void *mask = fm_run_input(run, node, IN_MASK);
    return (fm_triangle){.n_i = at->n,
                         .n_j = at->n,
                         .n_k = at->n,
                         .c = at->c,
                         .incoming = at->incoming,
                         .pa = five,
                         .ga = fm_run_at(five, at->c, act),
                         .pb = fm_run_at(five, 2 * at->c, act),
                         .gb = fm_run_at(five, 3 * at->c, act),
                         .lda = at->five,
                         .ldb = at->five,
                         .mask_a = mask,
                         .mask_b = mask,
                         .x = fm_run_saved(run, node, S_X)};
}

/* sigmoid(g) * y, g the last c_z columns of the fused projection. */
static fm_gate gate_of(const fm_run *run, const fm_node *node, const void *x, void *y) {
    const attributes *at = node->attributes;
    return (fm_gate){.rows = at->rows,
                     .c = at->c_z,
                     .ldg = at->five,
                     .ldx = at->c_z,
                     .ldy = at->c_z,
                     .g = fm_run_at(fm_run_saved(run, node, S_FIVE), 4 * at->c, run->kernels->act),
                     .x = x,
                     .y = y};
}

static fm_norm norm_in(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c_z, fm_run_input(run, node, IN_Z),
                        fm_run_param(run, node, P_NORM_IN));
}

static fm_norm norm_out(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c, fm_run_saved(run, node, S_X),
                        fm_run_param(run, node, P_NORM_OUT));
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t mark = fm_run_mark(run);
    fm_norm normed = norm_in(run, node); /* A11:1 A12:1 */
    fm_linear five = five_of(run, node, normed.y);
    fm_call_linear(run, &five, false, fm_run_saved(run, node, S_FIVE)); /* A11:2-3 A12:2-3 */
    fm_run_release(run, mark);
    fm_triangle core = core_of(run, node);
    fm_call_triangle(run, &core);
    if (!fm_run_wants_output(run)) {
        return;
    }
    void *update = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_norm inner = norm_out(run, node);
    fm_linear out = out_of(run, node, inner.y);
    fm_call_linear(run, &out, false, update);
    fm_gate gate = gate_of(run, node, update, update);
    fm_call_gate(run, &gate); /* A11:4 A12:4 */
    const void *residual = node->residual < 0 ? NULL : fm_run_input(run, node, IN_Z);
    fm_call_update(run, node, &at->update, residual, update, fm_run_output(run, node, 0));
}

/* Back through gate, output projection and its LayerNorm: fills dg and the gradient of x. */
static void out_backward(fm_run *run, const fm_node *node, void *dfive, void *dx) {
    const attributes *at = node->attributes;
    int64_t mark = fm_run_mark(run), count = at->rows * at->c_z;
    const void *dupdate =
        fm_call_update_grad(run, node, &at->update, fm_run_output_gradient(run, node, 0));
    fm_norm inner = norm_out(run, node);
    fm_linear out = out_of(run, node, inner.y);
    void *projected = fm_run_workspace_act(run, count);
    fm_call_linear(run, &out, false, projected);
    void *dprojected = fm_run_workspace_act(run, count);
    fm_gate gate = gate_of(run, node, projected, NULL);
    fm_gate_grad grad = {.dy = dupdate,
                         .dg = {fm_run_at(dfive, 4 * at->c, run->kernels->act), FM_WRITE},
                         .dx = {dprojected, FM_WRITE}};
    fm_call_gate_grad(run, &gate, &grad);
    void *dinner = fm_run_workspace_act(run, at->rows * at->c);
    fm_call_linear_grad(run, &out, dprojected, (fm_out){dinner, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_call_norm_grad(run, &inner, dinner, (fm_out){dx, FM_WRITE},
                      fm_run_param_gradient(run, node, P_NORM_OUT));
    fm_run_release(run, mark);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    void *dfive = fm_run_workspace_act(run, at->rows * at->five);
    int64_t mark = fm_run_mark(run);
    void *dx = fm_run_workspace_act(run, at->rows * at->c);
    out_backward(run, node, dfive, dx);
    fm_triangle core = core_of(run, node);
    fm_triangle_grad grad = {.dx = dx,
                             .dpa = {dfive, FM_WRITE},
                             .dga = {fm_run_at(dfive, at->c, act), FM_WRITE},
                             .dpb = {fm_run_at(dfive, 2 * at->c, act), FM_WRITE},
                             .dgb = {fm_run_at(dfive, 3 * at->c, act), FM_WRITE}};
    fm_call_triangle_grad(run, &core, &grad);
    fm_run_release(run, mark);
    fm_norm normed = norm_in(run, node);
    void *dnormed = fm_run_workspace_act(run, at->rows * at->c_z);
    fm_linear five = five_of(run, node, normed.y);
    fm_call_linear_grad(run, &five, dfive, (fm_out){dnormed, FM_WRITE},
                        fm_run_param_gradient(run, node, P_FIVE),
                        fm_run_param_gradient(run, node, P_FIVE_BIAS));
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_Z),
                      fm_run_param_gradient(run, node, P_NORM_IN));
}

static const fm_op TRIANGLE_MULTIPLICATION = {"triangle multiplication", forward, backward};

fm_tensor_ref fm_op_triangle_multiplication(fm_tape *tape, const char *name, bool incoming,
                                            fm_tensor_ref z, fm_tensor_ref mask,
                                            const fm_triangle_weights *weights, bool residual,
                                            double dropout) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TRIANGLE_MULTIPLICATION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, z);
    assert(x->rank == 3 && x->local[0] == x->local[1]);
    *at = (attributes){.n = x->local[0],
                       .rows = x->local[0] * x->local[0],
                       .c_z = x->local[2],
                       .c = weights->c,
                       .five = 4 * weights->c + x->local[2],
                       .incoming = incoming};
    at->update = fm_update_of(x, dropout, FM_SHARED_AXIS0);
    fm_node_draws(tape, node);
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, mask, true);
    const fm_param_ref params[] = {weights->norm_in,  weights->five, weights->five_bias,
                                   weights->norm_out, weights->out,  weights->out_bias};
    for (int i = 0; i < 6; i++) {
        fm_node_param(tape, node, params[i]);
    }
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->five});
    fm_node_save(tape, node, FM_KEEP, x->element, 2, (int64_t[]){at->rows, at->c});
    return residual ? fm_node_residual(tape, node, IN_Z) : fm_node_output_described(tape, node, x);
}
