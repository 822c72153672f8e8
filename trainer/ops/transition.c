/* transition.c: see transition.h. */
#include "trainer/ops/transition.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c, hidden;
    int64_t chunk;    /* rows that forward takes at a time */
    fm_update update; /* all rows as one line, nothing is dropped */
} attributes;

enum { IN_X, IN_N };
enum { P_NORM, P_W1, P_B1, P_W2, P_B2, N_PARAM, P_NEXT = N_PARAM, P_LATER };
enum { OUT_Y, OUT_N, OUT_LATER };

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
    void *hidden = node->n_saved ? fm_run_saved(run, node, 0)
                                 : fm_run_workspace_act(run, at->rows * at->hidden);
    fm_norm norm = fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, IN_X),
                                fm_run_param(run, node, P_NORM)); /* A9:1 A15:1 */
    fm_linear first = first_linear(run, node, norm.y);
    fm_call_linear(run, &first, true, hidden); /* A9:2 A15:2 */
    if (!fm_run_wants_output(run)) return;
    fm_linear second = second_linear(run, node, hidden);
    fm_call_linear(run, &second, false, fm_run_output(run, node, OUT_Y)); /* A9:3 A15:3 */
}

/* Whether the node ends with the LayerNorm of the next sublayer. */
static bool has_norm(const fm_node *node) {
    return node->n_output > OUT_N;
}

/* Whether it also makes the one of the sublayer after that. */
static bool has_later(const fm_node *node) {
    return node->n_output > OUT_LATER;
}

/* The operands of the whole transition, except its input x and its saved tensors. */
static fm_transition transition_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_transition){.end.dropout = fm_update_dropout(run, node, &at->update, 0),
                           .end.gamma = has_norm(node) ? fm_run_param(run, node, P_NEXT) : NULL,
                           .hidden = at->hidden,
                           .w1 = fm_run_param(run, node, P_W1),
                           .b1 = fm_run_param(run, node, P_B1),
                           .w2 = fm_run_param(run, node, P_W2),
                           .b2 = fm_run_param(run, node, P_B2)};
}

/* Completes dy, the gradient of y, and passes it back to the input `in`: x, or what is
 * normalised already. */
static void pass_back(fm_run *run, const fm_node *node, fm_out dy, int in) {
    const attributes *at = node->attributes;
    fm_norm norm = fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, in),
                                fm_run_param(run, node, P_NORM));
    fm_out dx = fm_run_gradient(run, node, in);
    fm_transition args = transition_of(run, node);
    args.x = norm.y;
    args.kept = node->n_saved ? fm_run_saved(run, node, 0) : NULL;
    fm_transition_grad grad = {.dy = dy,
                               .dx = fm_call_norm_gradient(run, &norm, dx),
                               .dw1 = fm_run_param_gradient(run, node, P_W1),
                               .db1 = fm_run_param_gradient(run, node, P_B1),
                               .dw2 = fm_run_param_gradient(run, node, P_W2),
                               .db2 = fm_run_param_gradient(run, node, P_B2)};
    if (has_norm(node)) {
        args.y = fm_run_output(run, node, OUT_Y);
        grad.dn = fm_run_output_gradient(run, node, OUT_N);
        grad.dgamma = fm_run_param_gradient(run, node, P_NEXT);
    }
    fm_call_transition_grad(run, &args, &grad);
    fm_call_norm_grad(run, &norm, grad.dx.data, dx, fm_run_param_gradient(run, node, P_NORM));
}

static void backward(fm_run *run, const fm_node *node) {
    pass_back(run, node, (fm_out){fm_run_output_gradient(run, node, OUT_Y), FM_ADD}, IN_X);
}

static const fm_op TRANSITION = {"transition", forward, backward};

/* -- with the end of the sublayer */

/* The input that is normalised, or normalised already. */
static int input_of(const fm_node *node) {
    return node->input[IN_N] == FM_TENSOR_NONE ? IN_X : IN_N;
}

/* Rows first .. first + count - 1, on a tape without gradient. */
static void forward_rows(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run), from = first * at->c;
    fm_norm norm = fm_call_norm(run, count, at->c,
                                fm_run_at(fm_run_input(run, node, input_of(node)), from, act),
                                fm_run_param(run, node, P_NORM)); /* A9:1 A15:1 */
    fm_transition args = transition_of(run, node);
    args.end.dropout.n1 = args.end.dropout.global_n1 = count;
    args.x = norm.y;
    args.residual = fm_run_at(fm_run_input(run, node, IN_X), from, act);
    args.y = fm_run_at(fm_run_output(run, node, OUT_Y), from, act);
    if (has_norm(node)) args.n = fm_run_at(fm_run_output(run, node, OUT_N), from, act);
    fm_call_transition(run, &args); /* A9:2 A15:2 A9:3 A15:3 */
    fm_run_release(run, mark);
}

static void forward_update(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    for (int64_t first = 0; first < at->rows && at->chunk < at->rows; first += at->chunk)
        forward_rows(run, node, first, at->rows - first < at->chunk ? at->rows - first : at->chunk);
    if (at->chunk < at->rows) return;
    fm_norm norm = fm_call_norm(run, at->rows, at->c, fm_run_input(run, node, input_of(node)),
                                fm_run_param(run, node, P_NORM)); /* A9:1 A15:1 */
    void *kept = NULL;
    if (node->n_saved && !fm_run_drops_saved(run, node, 0)) kept = fm_run_saved(run, node, 0);
    if (!fm_run_wants_output(run)) {
        fm_linear first = first_linear(run, node, norm.y);
        if (kept) fm_call_linear(run, &first, true, kept);
        return;
    }
    fm_transition args = transition_of(run, node);
    args.x = norm.y;
    args.kept = kept;
    args.residual = fm_run_input(run, node, IN_X);
    args.y = fm_run_output(run, node, OUT_Y);
    if (has_norm(node)) args.n = fm_run_output(run, node, OUT_N);
    if (has_later(node)) {
        args.later.gamma = fm_run_param(run, node, P_LATER);
        args.later.n = fm_run_output(run, node, OUT_LATER);
    }
    fm_call_transition(run, &args); /* A9:2 A15:2 A9:3 A15:3 */
}

/* Makes the norms again of y. */
static void derive(fm_run *run, const fm_node *node) {
    fm_transition args = transition_of(run, node);
    args.y = fm_run_output(run, node, OUT_Y);
    args.end.gamma = NULL;
    if (fm_run_derives(run, OUT_N)) {
        args.end.gamma = fm_run_param(run, node, P_NEXT);
        args.n = fm_run_output(run, node, OUT_N);
    }
    if (has_later(node) && fm_run_derives(run, OUT_LATER)) {
        args.later.gamma = fm_run_param(run, node, P_LATER);
        args.later.n = fm_run_output(run, node, OUT_LATER);
    }
    fm_call_transition(run, &args);
}

/* Adds the gradient that comes through the later norm to that of y. None comes if the sublayer that
 * reads it does not reach the loss: MSA sublayers behind the last outer product mean. */
static fm_out add_later(fm_run *run, const fm_node *node, fm_out dy) {
    const attributes *at = node->attributes;
    const void *dlater = fm_run_output_gradient(run, node, OUT_LATER);
    fm_out dnorm = fm_run_param_gradient(run, node, P_LATER);
    if (!dlater) {
        bool is_first = dnorm.data && dnorm.beta == FM_WRITE;
        if (is_first) fm_call_fill_acc(run, 2 * at->c, 0.0, dnorm.data);
        return dy;
    }
    fm_call_layernorm_grad(
        run, &(fm_layernorm_grad){.rows = at->rows,
                                  .c = at->c,
                                  .x = fm_run_output(run, node, OUT_Y),
                                  .gamma = fm_run_param(run, node, P_LATER),
                                  .dy = dlater,
                                  .dx = dy,
                                  .dgamma = dnorm,
                                  .dbeta = fm_out_at(dnorm, at->c, run->kernels->acc)});
    return (fm_out){dy.data, FM_ADD};
}

static void backward_update(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_out dy = has_norm(node) ? fm_run_completed_gradient(run, node)
                               : (fm_out){fm_run_output_gradient(run, node, OUT_Y), FM_ADD};
    if (has_later(node)) dy = add_later(run, node, dy);
    pass_back(run, node, dy, input_of(node));
    if (input_of(node) == IN_N) fm_update_end_begin_residual(run, node, &at->update);
}

static const fm_op TRANSITION_UPDATE = {"transition", forward_update, backward_update};

/* -- recording */

/* Adds the node without its outputs. n: the normalised x, FM_TENSOR_NONE: `norm` normalises x. */
static fm_node *add_node(fm_tape *tape, const fm_op *op, const char *name, fm_tensor_ref x,
                         fm_tensor_ref n, const fm_transition_weights *weights,
                         fm_keep keep_hidden) {
    void *memory;
    fm_node *node = fm_tape_add(tape, op, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    at->c = tensor->local[tensor->rank - 1];
    at->rows = fm_tensor_local_count(tensor) / at->c;
    at->hidden = weights->hidden;
    at->chunk = at->rows;
    if (tape->chunk_bytes > 0) { /* x normalised, the hidden layer, the update */
        at->chunk = fm_call_chunk(tape, at->rows, 2 * at->c + at->hidden);
    }
    at->update =
        (fm_update){.n_group = 1, .n0 = 1, .n1 = at->rows, .c = at->c, .global_n1 = at->rows};
    fm_node_input(tape, node, x, n == FM_TENSOR_NONE);
    fm_node_input(tape, node, n, true);
    const fm_param_ref params[N_PARAM] = {weights->norm, weights->w1, weights->b1, weights->w2,
                                          weights->b2};
    for (int i = 0; i < N_PARAM; i++)
        fm_node_param(tape, node, params[i]);
    fm_transition shape = {.end.dropout = {.n0 = 1, .n1 = at->rows, .c = at->c},
                           .hidden = at->hidden};
    if (tape->with_gradient && tape->kernels->transition_keeps(&shape)) {
        fm_node_save(tape, node, keep_hidden, tensor->element, 2,
                     (int64_t[]){at->rows, at->hidden});
    }
    return node;
}

fm_tensor_ref fm_op_transition(fm_tape *tape, const char *name, fm_tensor_ref x,
                               const fm_transition_weights *weights, bool residual,
                               fm_keep keep_hidden) {
    if (residual) {
        return fm_op_transition_update(tape, name, fm_not_normed(x), weights, keep_hidden,
                                       FM_PARAM_NONE, FM_PARAM_NONE)
            .x;
    }
    fm_node *node = add_node(tape, &TRANSITION, name, x, FM_TENSOR_NONE, weights, keep_hidden);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}

fm_normed fm_op_transition_update(fm_tape *tape, const char *name, fm_normed x,
                                  const fm_transition_weights *weights, fm_keep keep_hidden,
                                  fm_param_ref next, fm_param_ref later) {
    assert((weights->norm == FM_PARAM_NONE) == (x.n != FM_TENSOR_NONE));
    assert(later == FM_PARAM_NONE || (next != FM_PARAM_NONE && tape->chunk_bytes == 0));
    fm_node *node = add_node(tape, &TRANSITION_UPDATE, name, x.x, x.n, weights, keep_hidden);
    fm_normed y = fm_update_end_outputs(tape, node, next);
    fm_node_derives(node, derive);
    if (later == FM_PARAM_NONE) return y;
    fm_tensor like = *fm_tape_tensor(tape, y.n);
    fm_node_param(tape, node, later);
    y.later = fm_node_output_described(tape, node, &like);
    return y;
}
