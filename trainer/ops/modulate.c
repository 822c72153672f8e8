/* modulate.c: see modulate.h. */
#include "trainer/ops/modulate.h"

#include "trainer/ops/call_atoms.h"

#include <assert.h>

enum { IN_G, IN_X, IN_SHIFT, IN_RESIDUAL };

static fm_modulate args_of(const fm_run *run, const fm_node *node) {
    const fm_tensor *g = fm_tape_tensor(run->tape, node->input[IN_G]);
    int64_t c = g->local[g->rank - 1];
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[IN_X]);
    return (fm_modulate){.rows = fm_tensor_local_count(x) / c,
                         .c = c,
                         .g_rows = fm_tensor_local_count(g) / c,
                         .g = fm_run_input(run, node, IN_G),
                         .x = fm_run_input(run, node, IN_X)};
}

static void forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_modulate args = args_of(run, node);
    args.shift = fm_run_input(run, node, IN_SHIFT);
    args.residual = fm_run_input(run, node, IN_RESIDUAL);
    args.y = fm_run_output(run, node, 0);
    fm_call_modulate(run, &args);
}

/* The gradient of the residual is that of the output, which the tape passes on. */
static void backward(fm_run *run, const fm_node *node) {
    fm_modulate args = args_of(run, node);
    fm_modulate_grad grad = {.dy = fm_run_output_gradient(run, node, 0),
                             .dx = fm_run_gradient(run, node, IN_X),
                             .dg = fm_run_gradient(run, node, IN_G),
                             .dshift = fm_run_gradient(run, node, IN_SHIFT)};
    fm_call_modulate_grad(run, &args, &grad);
}

static const fm_op MODULATE = {"modulate", forward, backward};

fm_tensor_ref fm_op_modulate(fm_tape *tape, const char *name, fm_tensor_ref g, fm_tensor_ref x,
                             fm_tensor_ref shift, fm_tensor_ref residual) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &MODULATE, name, 1, &memory);
    int64_t rows = fm_tensor_local_count(fm_tape_tensor(tape, x));
    assert(rows % fm_tensor_local_count(fm_tape_tensor(tape, g)) == 0);
    (void)rows;
    fm_node_input(tape, node, g, true);
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, shift, false);
    fm_node_input(tape, node, residual, false);
    if (residual != FM_TENSOR_NONE) return fm_node_residual(tape, node, IN_RESIDUAL);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}
