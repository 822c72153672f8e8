/* transition.c: see transition.h. */
#include "trainer/ops/transition.h"

#include "trainer/ops/call.h"

typedef struct attributes {
    int64_t rows, c, hidden;
} attributes;

enum { IN_X };
enum { P_NORM, P_W1, P_B1, P_W2, P_B2 };

static fm_linear first_linear(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = at->hidden,
                       .ldx = at->c,
                       .ldy = at->hidden,
                       .x = normed,
                       .w = fm_run_param(run, node, P_W1),
                       .bias = fm_run_param(run, node, P_B1)};
}

static fm_linear second_linear(const fm_run *run, const fm_node *node, const void *hidden) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->hidden,
                       .c_out = at->c,
                       .ldx = at->hidden,
                       .ldy = at->c,
                       .x = hidden,
                       .w = fm_run_param(run, node, P_W2),
                       .bias = fm_run_param(run, node, P_B2)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *x = fm_run_input(run, node, IN_X);
    void *hidden = fm_run_saved(run, node, 0);
    fm_norm norm =
        fm_call_norm(run, at->rows, at->c, x, fm_run_param(run, node, P_NORM)); /* A9:1 A15:1 */
    fm_linear first = first_linear(run, node, norm.y);
    fm_call_linear(run, &first, true, hidden); /* A9:2 A15:2 */
    if (!fm_run_wants_output(run)) return;
    fm_linear second = second_linear(run, node, hidden);
    second.residual = node->residual < 0 ? NULL : x;
    fm_call_linear(run, &second, false, fm_run_output(run, node, 0)); /* A9:3 A15:3 */
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    void *hidden = fm_run_saved(run, node, 0);
    fm_norm norm = fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, IN_X),
                                fm_run_param(run, node, P_NORM));
    void *dhidden = fm_run_workspace_act(run, at->rows * at->hidden);
    fm_linear second = second_linear(run, node, hidden);
    second.x_is_relu = true;
    second.x_dbias = fm_run_param_gradient(run, node, P_B1);
    fm_call_linear_grad(run, &second, dy, (fm_out){dhidden, FM_WRITE},
                        fm_run_param_gradient(run, node, P_W2),
                        fm_run_param_gradient(run, node, P_B2));
    fm_linear first = first_linear(run, node, norm.y);
    fm_out dx = fm_run_gradient(run, node, IN_X);
    fm_out dnormed = fm_call_norm_gradient(run, &norm, dx);
    fm_call_linear_grad(run, &first, dhidden, dnormed, fm_run_param_gradient(run, node, P_W1),
                        (fm_out){0});
    fm_call_norm_grad(run, &norm, dnormed.data, dx, fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op TRANSITION = {"transition", forward, backward};

fm_tensor_ref fm_op_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                               const fm_transition_weights *weights, bool residual,
                               fm_keep keep_hidden) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TRANSITION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    at->c = tensor->local[tensor->rank - 1];
    at->rows = fm_tensor_local_count(tensor) / at->c;
    at->hidden = weights->hidden;
    fm_node_input(tape, node, x, true);
    const fm_param_ref params[] = {weights->norm, weights->w1, weights->b1, weights->w2,
                                   weights->b2};
    for (int i = 0; i < 5; i++)
        fm_node_param(tape, node, params[i]);
    fm_node_save(tape, node, keep_hidden, tensor->element, 2, (int64_t[]){at->rows, at->hidden});
    return residual ? fm_node_residual(tape, node, IN_X)
                    : fm_node_output_described(tape, node, tensor);
}
