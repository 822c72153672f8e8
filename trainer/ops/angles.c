/* angles.c: the residual network of the torsion angles (A20:11-14); see structure_layers.h. */
#include "trainer/ops/structure_layers.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_s, c;
    int32_t n_block;
} attributes;

enum { IN_S, IN_INITIAL };
enum { P_IN, P_IN_BIAS, P_HIDDEN, P_HIDDEN_BIAS, P_OUT, P_OUT_BIAS };
/* Saved: relu of both inputs [2, n, c_s]; and [2 n_block + 1, n, c], the relu of each block's input
 * and of its hidden layer, then of the output of the last block. */
enum { S_INPUTS, S_LAYERS };

static void *saved_layer(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    return fm_run_at(fm_run_saved(run, node, S_LAYERS), i * at->n * at->c, run->kernels->act);
}

static fm_linear layer_of(const fm_run *run, const fm_node *node, int param, int64_t slice,
                          int64_t c_in, int64_t c_out, const void *x) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    return (fm_linear){.rows = at->n,
                       .c_in = c_in,
                       .c_out = c_out,
                       .ldx = c_in,
                       .ldy = c_out,
                       .x = x,
                       .w = fm_run_at(fm_run_param(run, node, param), slice * c_in * c_out, act),
                       .bias = fm_run_at(fm_run_param(run, node, param + 1), slice * c_out, act)};
}

static fm_linear in_of(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    const void *x =
        fm_run_at(fm_run_saved(run, node, S_INPUTS), i * at->n * at->c_s, run->kernels->act);
    return layer_of(run, node, P_IN, i, at->c_s, at->c, x);
}

/* The linear layer i of the blocks, 0 .. 2 n_block - 1. */
static fm_linear hidden_of(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    return layer_of(run, node, P_HIDDEN, i, at->c, at->c, saved_layer(run, node, i));
}

static fm_linear out_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return layer_of(run, node, P_OUT, 0, at->c, 2 * FM_N_ANGLE,
                    saved_layer(run, node, 2 * at->n_block));
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = at->n * at->c;
    void *a = fm_run_workspace_act(run, count);
    void *inputs = fm_run_saved(run, node, S_INPUTS);
    for (int i = 0; i < 2; i++) {
        fm_call_relu(run, at->n * at->c_s, fm_run_input(run, node, i),
                     fm_run_at(inputs, i * at->n * at->c_s, run->kernels->act));
        fm_linear in = in_of(run, node, i);
        in.residual = i ? a : NULL;
        fm_call_linear(run, &in, false, a); /* A20:11 */
    }
    for (int block = 0; block < at->n_block; block++) {
        fm_call_relu(run, count, a, saved_layer(run, node, 2 * block));
        fm_linear first = hidden_of(run, node, 2 * block);
        fm_call_linear(run, &first, true, saved_layer(run, node, 2 * block + 1));
        fm_linear second = hidden_of(run, node, 2 * block + 1);
        second.residual = a;
        fm_call_linear(run, &second, false, a); /* A20:12-13 */
    }
    fm_call_relu(run, count, a, saved_layer(run, node, 2 * at->n_block));
    if (fm_run_wants_output(run)) {
        fm_linear out = out_of(run, node);
        fm_call_linear(run, &out, false, fm_run_output(run, node, 0)); /* A20:14 */
    }
}

/* Passes the gradient of layer i of the blocks back to before the ReLU of its input; `space` [n,
 * c]. */
static void hidden_backward(fm_run *run, const fm_node *node, int i, const void *dy, void *space,
                            fm_out dx) {
    const attributes *at = node->attributes;
    fm_element acc = run->kernels->acc;
    fm_linear layer = hidden_of(run, node, i);
    fm_call_linear_grad(
        run, &layer, dy, (fm_out){space, FM_WRITE},
        fm_out_at(fm_run_param_gradient(run, node, P_HIDDEN), i * at->c * at->c, acc),
        fm_out_at(fm_run_param_gradient(run, node, P_HIDDEN_BIAS), i * at->c, acc));
    fm_call_relu_grad(run, at->n * at->c, layer.x, space, dx);
}

static void in_backward(fm_run *run, const fm_node *node, int i, const void *da) {
    const attributes *at = node->attributes;
    fm_element acc = run->kernels->acc;
    int64_t count = at->n * at->c_s, mark = fm_run_mark(run);
    fm_linear in = in_of(run, node, i);
    fm_out dx = fm_run_gradient(run, node, i);
    void *drelu = fm_run_workspace_act(run, count);
    fm_call_linear_grad(run, &in, da, (fm_out){dx.data ? drelu : NULL, FM_WRITE},
                        fm_out_at(fm_run_param_gradient(run, node, P_IN), i * at->c * at->c_s, acc),
                        fm_out_at(fm_run_param_gradient(run, node, P_IN_BIAS), i * at->c, acc));
    if (dx.data) fm_call_relu_grad(run, count, in.x, drelu, dx);
    fm_run_release(run, mark);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = at->n * at->c;
    void *da = fm_run_workspace_act(run, count), *dupdate = fm_run_workspace_act(run, count);
    void *dhidden = fm_run_workspace_act(run, count);
    fm_linear out = out_of(run, node);
    fm_call_linear_grad(run, &out, fm_run_output_gradient(run, node, 0), (fm_out){da, FM_WRITE},
                        fm_run_param_gradient(run, node, P_OUT),
                        fm_run_param_gradient(run, node, P_OUT_BIAS));
    fm_call_relu_grad(run, count, out.x, da, (fm_out){da, FM_WRITE});
    for (int block = at->n_block - 1; block >= 0; block--) {
        hidden_backward(run, node, 2 * block + 1, da, dhidden, (fm_out){dhidden, FM_WRITE});
        hidden_backward(run, node, 2 * block, dhidden, dupdate, (fm_out){da, FM_ADD});
    }
    in_backward(run, node, IN_S, da);
    in_backward(run, node, IN_INITIAL, da);
}

static const fm_op ANGLES = {"torsion angles", forward, backward};

fm_tensor_ref fm_op_angles(fm_tape *tape, fm_tensor_ref s, fm_tensor_ref initial,
                           const fm_angle_weights *w) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ANGLES, "torsion angles", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, s);
    assert(x->rank == 2 &&
           fm_tensor_local_count(x) == fm_tensor_local_count(fm_tape_tensor(tape, initial)));
    *at = (attributes){.n = x->local[0], .c_s = x->local[1], .c = w->c, .n_block = w->n_block};
    fm_node_input(tape, node, s, false);
    fm_node_input(tape, node, initial, false);
    const fm_param_ref params[] = {w->in,          w->in_bias, w->hidden,
                                   w->hidden_bias, w->out,     w->out_bias};
    for (int i = 0; i < 6; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, FM_KEEP, x->element, 3, (int64_t[]){2, at->n, at->c_s});
    fm_node_save(tape, node, FM_KEEP, x->element, 3,
                 (int64_t[]){2 * at->n_block + 1, at->n, at->c});
    return fm_node_output(tape, node, x->element, 3, (int64_t[]){at->n, FM_N_ANGLE, 2});
}
