/* swiglu.c: see swiglu.h. */
#include "trainer/ops/swiglu.h"

#include "trainer/ops/call.h"

#include <assert.h>

static fm_swiglu args_of(const fm_run *run, const fm_node *node) {
    const fm_tensor *x = fm_tape_tensor(run->tape, node->input[0]);
    int64_t width = x->local[x->rank - 1];
    return (fm_swiglu){.rows = fm_tensor_local_count(x) / width,
                       .c = width / 2,
                       .ldx = width,
                       .ldy = width / 2,
                       .x = fm_run_input(run, node, 0)};
}

static void forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_swiglu args = args_of(run, node);
    args.y = fm_run_output(run, node, 0);
    fm_call_swiglu(run, &args);
}

static void backward(fm_run *run, const fm_node *node) {
    fm_swiglu args = args_of(run, node);
    fm_call_swiglu_grad(run, &args, fm_run_output_gradient(run, node, 0),
                        fm_run_gradient(run, node, 0));
}

static const fm_op SWIGLU = {"swiglu", forward, backward};

fm_tensor_ref fm_op_swiglu(fm_tape *tape, const char *name, fm_tensor_ref x) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SWIGLU, name, 1, &memory);
    const fm_tensor *in = fm_tape_tensor(tape, x);
    int64_t width = in->local[in->rank - 1];
    assert(width % 2 == 0);
    fm_node_input(tape, node, x, true);
    fm_tensor out = fm_tensor_of_width(fm_tape_tensor(tape, x), name, width / 2);
    return fm_node_output_described(tape, node, &out);
}
