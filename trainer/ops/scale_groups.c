/* scale_groups.c: see scale_groups.h. */
#include "trainer/ops/scale_groups.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { IN_X, IN_SCALE };

static void scale(fm_run *run, const fm_node *node, const void *x, fm_out y) {
    const fm_tensor *like = fm_tape_tensor(run->tape, node->input[IN_X]);
    int64_t groups = like->local[0];
    if (!y.data) return;
    fm_call_scale_rows(run, groups, fm_tensor_local_count(like) / groups,
                       fm_run_input(run, node, IN_SCALE), x, y);
}

static void forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    scale(run, node, fm_run_input(run, node, IN_X),
          (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

static void backward(fm_run *run, const fm_node *node) {
    scale(run, node, fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, IN_X));
}

static const fm_op SCALE_GROUPS = {"scale groups", forward, backward};

fm_tensor_ref fm_op_scale_groups(fm_tape *tape, const char *name, fm_tensor_ref x,
                                 fm_tensor_ref factor) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SCALE_GROUPS, name, 1, &memory);
    assert(fm_tape_tensor(tape, factor)->local[0] == fm_tape_tensor(tape, x)->local[0]);
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, factor, true);
    return fm_node_output_described(tape, node, fm_tape_tensor(tape, x));
}
