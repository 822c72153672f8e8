/* swiglu_transition.c: see swiglu_transition.h. */
#include "trainer/ops/swiglu_transition.h"

#include "trainer/ops/call.h"

typedef struct attributes {
    int64_t rows, c, hidden;
} attributes;

enum { IN_X };
enum { P_NORM, P_W1, P_W2 };
enum { S_PROJECTION };

static fm_norm norm_x(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, IN_X),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear first_linear(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c,
                       .c_out = 2 * at->hidden,
                       .ldx = at->c,
                       .ldy = 2 * at->hidden,
                       .x = normed,
                       .w = fm_run_param(run, node, P_W1)};
}

static fm_swiglu swiglu_of(const fm_run *run, const fm_node *node, void *product) {
    const attributes *at = node->attributes;
    return (fm_swiglu){.rows = at->rows,
                       .c = at->hidden,
                       .ldx = 2 * at->hidden,
                       .ldy = at->hidden,
                       .x = fm_run_saved(run, node, S_PROJECTION),
                       .y = product};
}

static fm_linear second_linear(const fm_run *run, const fm_node *node, const void *product) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->hidden,
                       .c_out = at->c,
                       .ldx = at->hidden,
                       .ldy = at->c,
                       .x = product,
                       .w = fm_run_param(run, node, P_W2)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t mark = fm_run_mark(run);
    fm_norm norm = norm_x(run, node); /* AF3-11:1 */
    fm_linear first = first_linear(run, node, norm.y);
    fm_call_linear(run, &first, false, fm_run_saved(run, node, S_PROJECTION)); /* AF3-11:2-3 */
    fm_run_release(run, mark);
    if (!fm_run_wants_output(run)) return;
    void *product = fm_run_workspace_act(run, at->rows * at->hidden);
    fm_swiglu swiglu = swiglu_of(run, node, product);
    fm_call_swiglu(run, &swiglu);
    fm_linear second = second_linear(run, node, product);
    second.residual = node->residual < 0 ? NULL : fm_run_input(run, node, IN_X);
    fm_call_linear(run, &second, false, fm_run_output(run, node, 0)); /* AF3-11:4 */
}

/* The gradient of the product is made first. The product itself, which the gradient of W2 needs,
 * then takes its place. */
static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    void *dprojection = fm_run_workspace_act(run, at->rows * 2 * at->hidden);
    int64_t mark = fm_run_mark(run);
    void *product = fm_run_workspace_act(run, at->rows * at->hidden);
    fm_linear second = second_linear(run, node, product);
    fm_call_linear_grad(run, &second, dy, (fm_out){product, FM_WRITE}, (fm_out){0}, (fm_out){0});
    fm_swiglu swiglu = swiglu_of(run, node, product);
    fm_call_swiglu_grad(run, &swiglu, product, (fm_out){dprojection, FM_WRITE});
    fm_call_linear_grad(run, &second, dy, (fm_out){0}, fm_run_param_gradient(run, node, P_W2),
                        (fm_out){0});
    fm_run_release(run, mark);
    fm_norm norm = norm_x(run, node);
    void *dnormed = fm_run_workspace_act(run, at->rows * at->c);
    fm_linear first = first_linear(run, node, norm.y);
    fm_call_linear_grad(run, &first, dprojection, (fm_out){dnormed, FM_WRITE},
                        fm_run_param_gradient(run, node, P_W1), (fm_out){0});
    fm_call_norm_grad(run, &norm, dnormed, fm_run_gradient(run, node, IN_X),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op SWIGLU_TRANSITION = {"swiglu transition", forward, backward};

fm_tensor_ref fm_op_swiglu_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                                      const fm_swiglu_transition_weights *weights, bool residual,
                                      fm_keep keep_projection) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SWIGLU_TRANSITION, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    at->c = tensor->local[tensor->rank - 1];
    at->rows = fm_tensor_local_count(tensor) / at->c;
    at->hidden = weights->hidden;
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights->norm);
    fm_node_param(tape, node, weights->w1);
    fm_node_param(tape, node, weights->w2);
    fm_node_save(tape, node, keep_projection, tensor->element, 2,
                 (int64_t[]){at->rows, 2 * at->hidden});
    return residual ? fm_node_residual(tape, node, IN_X)
                    : fm_node_output_described(tape, node, tensor);
}
