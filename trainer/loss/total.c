/* total.c: the weighted sum of the loss terms; see losses.h. */
#include "trainer/loss/losses.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int n_term;
} attributes;

/* Input 0 is the factors, inputs 1 and up are the terms. */
static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const double *factors = fm_run_input(run, node, 0);
    void *total = fm_run_output(run, node, 0);
    for (int i = 0; i < at->n_term; i++) {
        fm_call_axpy_device(run, 1, factors + i, fm_run_input(run, node, i + 1),
                            (fm_out){total, i ? FM_ADD : FM_WRITE});
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const double *factors = fm_run_input(run, node, 0);
    const void *dtotal = fm_run_output_gradient(run, node, 0);
    for (int i = 0; i < at->n_term; i++)
        fm_call_axpy_device(run, 1, factors + i, dtotal, fm_run_gradient(run, node, i + 1));
}

static const fm_op TOTAL = {"total loss", forward, backward};

fm_tensor_ref fm_op_total_loss(fm_tape *tape, const fm_tensor_ref *terms, int n_term,
                               fm_tensor_ref factors) {
    assert(n_term >= 1 && n_term < FM_NODE_INPUTS);
    void *memory;
    fm_node *node = fm_tape_add(tape, &TOTAL, "total loss", sizeof(attributes), &memory);
    attributes *at = memory;
    at->n_term = n_term;
    fm_node_input(tape, node, factors, true);
    for (int i = 0; i < n_term; i++)
        fm_node_input(tape, node, terms[i], false);
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}
