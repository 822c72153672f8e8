/* update_norm.c: see update_norm.h. */
#include "trainer/ops/update_norm.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    fm_update update;
} attributes;

enum { IN_X, IN_UPDATE };
enum { OUT_Y, OUT_N };
enum { P_NORM };

static void forward(fm_run *run, const fm_node *node) {
    const fm_update *at = &((const attributes *)node->attributes)->update;
    const void *x = fm_run_input(run, node, IN_X), *update = fm_run_input(run, node, IN_UPDATE);
    void *y = fm_run_output(run, node, OUT_Y);
    if (node->n_output == 1) {
        fm_call_update(run, node, at, x, update, y);
        return;
    }
    fm_call_update_norm(run, node, at, fm_run_param(run, node, P_NORM), x, update, y,
                        fm_run_output(run, node, OUT_N));
}

/* Prepares the gradient of x: where it has a separate buffer and no earlier writer, it starts at 0,
 * and the tape adds the residual's gradient to it. */
static void begin_residual(fm_run *run, const fm_node *node, const void *dy) {
    const fm_update *at = &((const attributes *)node->attributes)->update;
    fm_out dx = fm_run_gradient(run, node, IN_X);
    if (dx.data && dx.data != dy && dx.beta == FM_WRITE) {
        fm_call_fill(run, fm_update_count(at), 0.0, dx.data);
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const fm_update *at = &((const attributes *)node->attributes)->update;
    fm_out dupdate = fm_run_gradient(run, node, IN_UPDATE);
    const void *dy = fm_run_output_gradient(run, node, OUT_Y);
    assert(dupdate.beta == FM_WRITE || dupdate.data == dy);
    if (node->n_output == 2) {
        fm_update_norm_grad grad = {.y = fm_run_output(run, node, OUT_Y),
                                    .dn = fm_run_output_gradient(run, node, OUT_N),
                                    .dy = fm_run_completed_gradient(run, node),
                                    .dupdate = dupdate.data == dy ? NULL : dupdate.data};
        fm_call_update_norm_grad(run, node, at, fm_run_param(run, node, P_NORM), &grad,
                                 fm_run_param_gradient(run, node, P_NORM));
    } else if (dupdate.data != dy) {
        fm_call_dropout_grad(run, node, at, dy, dupdate);
    }
    begin_residual(run, node, dy);
}

static const fm_op UPDATE_NORM = {"update", forward, backward};

fm_normed fm_op_update_norm(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref update,
                            double dropout, fm_shared_axis shared, fm_param_ref norm) {
    const fm_node *maker = &tape->node[tape->n_node - 1];
    assert(maker->output[0] == update && maker->residual < 0);
    void *memory;
    fm_node *node = fm_tape_add(tape, &UPDATE_NORM, name, sizeof(attributes), &memory);
    attributes *at = memory;
    at->update = fm_update_of(fm_tape_tensor(tape, x), dropout, shared);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, update)) == fm_update_count(&at->update));
    node->rng = maker->rng;
    node->rng_step = maker->rng_step;
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, update, false);
    if (dropout == 0) fm_node_shares(node, IN_UPDATE);
    if (norm == FM_PARAM_NONE) {
        return (fm_normed){fm_node_residual(tape, node, IN_X), FM_TENSOR_NONE};
    }
    fm_node_param(tape, node, norm);
    fm_node_completes(node);
    fm_node_reads_output(node, OUT_Y);
    fm_tensor like = *fm_tape_tensor(tape, x);
    fm_tensor_ref y = fm_node_residual(tape, node, IN_X);
    return (fm_normed){y, fm_node_output_described(tape, node, &like)};
}
