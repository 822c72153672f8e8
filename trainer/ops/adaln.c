/* adaln.c: see adaln.h. */
#include "trainer/ops/adaln.h"

#include "trainer/ops/call_atoms.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c;     /* of a */
    int64_t s_rows, c_s; /* of s */
} attributes;

enum { IN_A, IN_S };
enum { P_NORM, P_GATE, P_GATE_BIAS, P_SHIFT };

/* n = hat(s) * gamma (AF3-26:2), in the workspace. */
static void *norm_s(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *normed = fm_run_workspace_act(run, at->s_rows * at->c_s);
    fm_call_layernorm(run, &(fm_layernorm){.rows = at->s_rows,
                                           .c = at->c_s,
                                           .x = fm_run_input(run, node, IN_S),
                                           .gamma = fm_run_param(run, node, P_NORM),
                                           .y = normed});
    return normed;
}

/* The gate's product, or that of the shift, which has no bias. */
static fm_linear linear_of(const fm_run *run, const fm_node *node, int weight, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->s_rows,
                       .c_in = at->c_s,
                       .c_out = at->c,
                       .ldx = at->c_s,
                       .ldy = at->c,
                       .x = normed,
                       .w = fm_run_param(run, node, weight),
                       .bias = weight == P_GATE ? fm_run_param(run, node, P_GATE_BIAS) : NULL};
}

static fm_adaln adaln_of(const fm_run *run, const fm_node *node, const void *gate) {
    const attributes *at = node->attributes;
    return (fm_adaln){.rows = at->rows,
                      .c = at->c,
                      .g_rows = at->s_rows,
                      .x = fm_run_input(run, node, IN_A),
                      .g = gate};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = at->s_rows * at->c;
    void *gate = node->n_saved ? fm_run_saved(run, node, 0) : fm_run_workspace_act(run, count);
    const void *normed = norm_s(run, node);
    fm_linear linear = linear_of(run, node, P_GATE, normed);
    fm_call_linear(run, &linear, false, gate);
    if (!fm_run_wants_output(run)) return;
    void *shift = fm_run_workspace_act(run, count);
    linear = linear_of(run, node, P_SHIFT, normed);
    fm_call_linear(run, &linear, false, shift);
    fm_adaln args = adaln_of(run, node, gate);
    args.shift = shift;
    args.y = fm_run_output(run, node, 0);
    fm_call_adaln(run, &args); /* AF3-26:1 AF3-26:3 */
}

/* The gradient of the shift is dy, summed over the samples that share s. */
static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0), *normed = norm_s(run, node);
    bool is_shared = at->rows > at->s_rows;
    void *dgate = fm_run_workspace_act(run, at->s_rows * at->c);
    void *sums = is_shared ? fm_run_workspace_act(run, at->s_rows * at->c) : NULL;
    fm_adaln args = adaln_of(run, node, fm_run_saved(run, node, 0));
    fm_call_adaln_grad(run, &args,
                       &(fm_adaln_grad){.dy = dy,
                                        .dx = fm_run_gradient(run, node, IN_A),
                                        .dg = {dgate, FM_WRITE},
                                        .dshift = {sums, FM_WRITE}});
    void *dnormed = fm_run_workspace_act(run, at->s_rows * at->c_s);
    fm_linear linear = linear_of(run, node, P_GATE, normed);
    fm_call_linear_grad(run, &linear, dgate, (fm_out){dnormed, FM_WRITE},
                        fm_run_param_gradient(run, node, P_GATE),
                        fm_run_param_gradient(run, node, P_GATE_BIAS));
    linear = linear_of(run, node, P_SHIFT, normed);
    fm_call_linear_grad(run, &linear, is_shared ? sums : dy, (fm_out){dnormed, FM_ADD},
                        fm_run_param_gradient(run, node, P_SHIFT), (fm_out){0});
    fm_call_layernorm_grad(
        run, &(fm_layernorm_grad){.rows = at->s_rows,
                                  .c = at->c_s,
                                  .x = fm_run_input(run, node, IN_S),
                                  .gamma = fm_run_param(run, node, P_NORM),
                                  .dy = dnormed,
                                  .dx = fm_run_gradient(run, node, IN_S),
                                  .dgamma = fm_run_param_gradient(run, node, P_NORM)});
}

static const fm_op ADALN = {"adaln", forward, backward};

fm_tensor_ref fm_op_adaln(fm_tape *tape, const char *name, fm_tensor_ref a, fm_tensor_ref s,
                          const fm_adaln_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ADALN, name, sizeof(attributes), &memory);
    const fm_tensor *of_a = fm_tape_tensor(tape, a), *of_s = fm_tape_tensor(tape, s);
    attributes *at = memory;
    at->c = of_a->local[of_a->rank - 1];
    at->c_s = of_s->local[of_s->rank - 1];
    at->rows = fm_tensor_local_count(of_a) / at->c;
    at->s_rows = fm_tensor_local_count(of_s) / at->c_s;
    assert(at->rows % at->s_rows == 0 && weights->gate.c_out == at->c);
    assert(weights->shift.c_out == at->c && weights->shift.b == FM_PARAM_NONE);
    fm_node_input(tape, node, a, true);
    fm_node_input(tape, node, s, true);
    fm_node_param(tape, node, weights->norm_s);
    fm_node_param(tape, node, weights->gate.w);
    fm_node_param(tape, node, weights->gate.b);
    fm_node_param(tape, node, weights->shift.w);
    if (tape->with_gradient) {
        fm_node_save(tape, node, FM_KEEP, of_a->element, 2, (int64_t[]){at->s_rows, at->c});
    }
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, a));
}

/* -- with gate and shift given */

enum { IN_GATE = 1, IN_SHIFT, IN_UPDATE, IN_END };

static fm_adaln given_of(const fm_run *run, const fm_node *node) {
    const fm_tensor *a = fm_tape_tensor(run->tape, node->input[IN_A]);
    const fm_tensor *gate = fm_tape_tensor(run->tape, node->input[IN_GATE]);
    const int64_t c = a->local[a->rank - 1];
    return (fm_adaln){.rows = fm_tensor_local_count(a) / c,
                      .c = c,
                      .g_rows = fm_tensor_local_count(gate) / c,
                      .x = fm_run_input(run, node, IN_A),
                      .g = fm_run_input(run, node, IN_GATE),
                      .shift = fm_run_input(run, node, IN_SHIFT)};
}

static void given_forward(fm_run *run, const fm_node *node) {
    fm_adaln args = given_of(run, node);
    args.y = fm_run_output(run, node, 0);
    fm_call_adaln(run, &args);
}

static void after_forward(fm_run *run, const fm_node *node) {
    fm_adaln args = given_of(run, node);
    args.update = fm_run_input(run, node, IN_UPDATE);
    args.end = fm_run_input(run, node, IN_END);
    args.moved = fm_run_output(run, node, 0);
    args.y = fm_run_output(run, node, 1);
    fm_call_adaln(run, &args);
}

static const fm_op ADALN_GIVEN = {"adaln", given_forward, NULL};
static const fm_op ADALN_AFTER = {"adaln after a gate", after_forward, NULL};

static fm_node *add_given(fm_tape *tape, const fm_op *op, const char *name, fm_tensor_ref a,
                          fm_adaln_signal signal) {
    void *memory;
    fm_node *node = fm_tape_add(tape, op, name, 1, &memory);
    const int64_t count = fm_tensor_local_count(fm_tape_tensor(tape, signal.gate));
    assert(fm_tensor_local_count(fm_tape_tensor(tape, a)) % count == 0 && !tape->with_gradient);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, signal.shift)) == count);
    (void)count;
    fm_node_input(tape, node, a, false);
    fm_node_input(tape, node, signal.gate, false);
    fm_node_input(tape, node, signal.shift, false);
    return node;
}

fm_tensor_ref fm_op_adaln_given(fm_tape *tape, const char *name, fm_tensor_ref a,
                                fm_adaln_signal signal) {
    fm_node *node = add_given(tape, &ADALN_GIVEN, name, a, signal);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, a));
}

fm_tensor_ref fm_op_adaln_after(fm_tape *tape, const char *name, fm_tensor_ref a,
                                fm_tensor_ref update, fm_tensor_ref end, fm_adaln_signal signal,
                                fm_tensor_ref *ret_y) {
    fm_node *node = add_given(tape, &ADALN_AFTER, name, a, signal);
    fm_node_input(tape, node, update, false);
    fm_node_input(tape, node, end, false);
    fm_tensor_ref moved = fm_node_residual(tape, node, IN_A);
    *ret_y = fm_node_output_described(tape, node, fm_tape_tensor(tape, a));
    return moved;
}
