/* fourier.c: see fourier.h. */
#include "trainer/ops/fourier.h"

#include "trainer/ops/call_atoms.h"

enum { IN_X, IN_W, IN_B };

static void forward(fm_run *run, const fm_node *node) {
    const fm_tensor *y = fm_tape_tensor(run->tape, node->output[0]);
    if (!fm_run_wants_output(run)) return;
    fm_call_fourier(run, y->local[0], y->local[1], fm_run_input(run, node, IN_X),
                    fm_run_input(run, node, IN_W), fm_run_input(run, node, IN_B),
                    fm_run_output(run, node, 0));
}

static const fm_op FOURIER = {"fourier", forward, NULL};

fm_tensor_ref fm_op_fourier(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref w, fm_tensor_ref b) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &FOURIER, "fourier embedding", 1, &memory);
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, w, false);
    fm_node_input(tape, node, b, false);
    return fm_node_output(
        tape, node, tape->kernels->act, 2,
        (int64_t[]){fm_tape_tensor(tape, x)->local[0], fm_tape_tensor(tape, w)->local[0]});
}
