/* linear_update.c: see linear_update.h. */
#include "trainer/ops/linear_update.h"

#include <assert.h>

typedef struct attributes {
    fm_update update;
    int64_t c_in;
    bool passes_update;
} attributes;

enum { IN_X, IN_FROM };
enum { OUT_Y, OUT_N };
enum { P_W, P_BIAS };

/* -- the end of a node */

fm_normed fm_update_end_outputs(fm_tape *tape, fm_node *node, fm_param_ref next) {
    fm_tensor like = *fm_tape_tensor(tape, node->input[IN_X]);
    if (next == FM_PARAM_NONE) return fm_not_normed(fm_node_residual(tape, node, IN_X));
    fm_node_param(tape, node, next);
    fm_node_completes(node);
    fm_node_reads_output(node, OUT_Y);
    fm_tensor_ref y = fm_node_residual(tape, node, IN_X);
    return (fm_normed){y, fm_node_output_described(tape, node, &like), FM_TENSOR_NONE};
}

/* Completes the gradient of y and returns that of the update, which is written to `dupdate` unless
 * that is NULL. */
static const void *end_grad(fm_run *run, const fm_node *node, const fm_update *update,
                            void *dupdate) {
    const void *dy = fm_run_output_gradient(run, node, OUT_Y);
    if (node->n_output == 1) {
        if (!dupdate) return fm_call_update_grad(run, node, update, dy);
        fm_call_dropout_grad(run, node, update, dy, (fm_out){dupdate, FM_WRITE});
        return dupdate;
    }
    if (update->rate > 0 && !dupdate) dupdate = fm_run_workspace_act(run, fm_update_count(update));
    int next = node->n_param - 1;
    fm_update_norm_grad grad = {.y = fm_run_output(run, node, OUT_Y),
                                .dn = fm_run_output_gradient(run, node, OUT_N),
                                .dy = fm_run_completed_gradient(run, node),
                                .dupdate = dupdate};
    fm_call_update_norm_grad(run, node, update, fm_run_param(run, node, next), &grad,
                             fm_run_param_gradient(run, node, next));
    return dupdate ? dupdate : dy;
}

void fm_update_end_begin_residual(fm_run *run, const fm_node *node, const fm_update *update) {
    const void *dy = fm_run_output_gradient(run, node, OUT_Y);
    fm_out dx = fm_run_gradient(run, node, IN_X);
    if (dx.data && dx.data != dy && dx.beta == FM_WRITE) {
        fm_call_fill(run, fm_update_count(update), 0.0, dx.data);
    }
}

/* -- the op */

static fm_linear linear_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = fm_update_count(&at->update) / at->update.c,
                       .c_in = at->c_in,
                       .c_out = at->update.c,
                       .ldx = at->c_in,
                       .ldy = at->update.c,
                       .x = fm_run_input(run, node, IN_FROM),
                       .w = fm_run_param(run, node, P_W),
                       .bias = fm_run_param(run, node, P_BIAS)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_linear linear = linear_of(run, node);
    bool has_n = node->n_output == 2;
    /* A7:7 A13:7 A14:7 */
    fm_call_linear_update(run, node, &at->update, &linear,
                          has_n ? fm_run_param(run, node, node->n_param - 1) : NULL,
                          fm_run_input(run, node, IN_X), fm_run_output(run, node, OUT_Y),
                          has_n ? fm_run_output(run, node, OUT_N) : NULL);
}

/* Makes n again of y. */
static void derive(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const fm_linear none = {.rows = fm_update_count(&at->update) / at->update.c,
                            .c_in = at->c_in,
                            .c_out = at->update.c,
                            .ldx = at->c_in,
                            .ldy = at->update.c};
    fm_call_linear_update(run, node, &at->update, &none, fm_run_param(run, node, node->n_param - 1),
                          NULL, fm_run_output(run, node, OUT_Y), fm_run_output(run, node, OUT_N));
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_out dfrom = fm_run_gradient(run, node, IN_FROM);
    assert(!at->passes_update || dfrom.beta == FM_WRITE);
    const void *dupdate = end_grad(run, node, &at->update, at->passes_update ? dfrom.data : NULL);
    if (at->passes_update) dfrom = (fm_out){0};
    fm_linear linear = linear_of(run, node);
    fm_call_linear_grad(run, &linear, dupdate, dfrom, fm_run_param_gradient(run, node, P_W),
                        fm_run_param_gradient(run, node, P_BIAS));
    fm_update_end_begin_residual(run, node, &at->update);
}

static const fm_op LINEAR_UPDATE = {"linear update", forward, backward};

fm_normed fm_op_linear_update(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref from,
                              const fm_linear_update_weights *weights, double dropout,
                              fm_shared_axis shared) {
    const fm_node *maker = &tape->node[tape->n_node - 1];
    assert(maker->output[0] == from && maker->residual < 0);
    void *memory;
    fm_node *node = fm_tape_add(tape, &LINEAR_UPDATE, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *input = fm_tape_tensor(tape, from);
    at->update = fm_update_of(fm_tape_tensor(tape, x), dropout, shared);
    at->c_in = input->local[input->rank - 1];
    assert(fm_tensor_local_count(input) / at->c_in * at->update.c == fm_update_count(&at->update));
    at->passes_update = weights->passes_update;
    assert(!at->passes_update || (dropout > 0 && at->c_in == at->update.c));
    node->rng = maker->rng;
    node->rng_step = maker->rng_step;
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, from, true);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->bias);
    fm_node_derives(node, derive);
    return fm_update_end_outputs(tape, node, weights->next);
}
