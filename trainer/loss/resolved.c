/* resolved.c: the loss on which atoms the experiment resolved; see structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

static const double RESOLVED_EPS = 1e-8;

enum { IN_LOGITS, IN_RESOLVED, IN_EXISTS };

static fm_binary_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const int64_t *count = node->attributes;
    return (fm_binary_entropy){.n = *count,
                               .eps = RESOLVED_EPS,
                               .x = fm_run_input(run, node, IN_LOGITS),
                               .label = fm_run_input(run, node, IN_RESOLVED),
                               .w = fm_run_input(run, node, IN_EXISTS)};
}

static void forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        fm_binary_entropy args = entropy_of(run, node);
        args.loss = fm_run_output(run, node, 0);
        fm_call_binary_entropy(run, &args);
    }
}

static void backward(fm_run *run, const fm_node *node) {
    fm_binary_entropy args = entropy_of(run, node);
    fm_call_binary_entropy_grad(run, &args, fm_run_output_gradient(run, node, 0),
                                fm_run_gradient(run, node, IN_LOGITS));
}

static const fm_op RESOLVED = {"experimentally resolved loss", forward, backward};

fm_tensor_ref fm_op_resolved_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref resolved,
                                  fm_tensor_ref exists) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &RESOLVED, "experimentally resolved loss", sizeof(int64_t), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, logits);
    *(int64_t *)memory = fm_tensor_local_count(x);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, exists)) == fm_tensor_local_count(x));
    fm_node_input(tape, node, logits, true);
    fm_node_input(tape, node, resolved, true);
    fm_node_input(tape, node, exists, true);
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}

fm_tensor_ref fm_loss_resolved(fm_tape *tape, const fm_loss_inputs *in) {
    fm_tensor_ref logits =
        fm_op_linear(tape, "experimentally resolved", in->single, in->n_res, &in->resolved_head);
    return fm_op_resolved_loss(tape, logits, in->atoms_seen, in->atoms_of_residue);
}
