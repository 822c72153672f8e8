/* reshape.c: see reshape.h. */
#include "trainer/ops/reshape.h"

#include "trainer/ops/call.h"

#include <assert.h>

static int64_t count_of(const fm_run *run, const fm_node *node) {
    return fm_tensor_local_count(fm_tape_tensor(run->tape, node->input[0]));
}

static void forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_call_copy(run, count_of(run, node), fm_run_input(run, node, 0), fm_run_output(run, node, 0));
}

static void backward(fm_run *run, const fm_node *node) {
    fm_call_axpy(run, count_of(run, node), 1.0, fm_run_output_gradient(run, node, 0),
                 fm_run_gradient(run, node, 0));
}

static const fm_op RESHAPE = {"reshape", forward, backward};

static fm_tensor_ref record(fm_tape *tape, const char *name, fm_tensor_ref x, int rank,
                            const int64_t *shape) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &RESHAPE, name, 1, &memory);
    fm_node_input(tape, node, x, false);
    return fm_node_output(tape, node, fm_tape_tensor(tape, x)->element, rank, shape);
}

fm_tensor_ref fm_op_lift(fm_tape *tape, const char *name, fm_tensor_ref x) {
    const fm_tensor *from = fm_tape_tensor(tape, x);
    int64_t shape[FM_TENSOR_RANK] = {1};
    assert(from->rank < FM_TENSOR_RANK && from->shard_axis < 0);
    for (int i = 0; i < from->rank; i++)
        shape[i + 1] = from->local[i];
    return record(tape, name, x, from->rank + 1, shape);
}

fm_tensor_ref fm_op_lower(fm_tape *tape, const char *name, fm_tensor_ref x) {
    const fm_tensor *from = fm_tape_tensor(tape, x);
    int64_t shape[FM_TENSOR_RANK];
    assert(from->rank > 1 && from->local[0] == 1 && from->shard_axis < 0);
    for (int i = 1; i < from->rank; i++)
        shape[i - 1] = from->local[i];
    return record(tape, name, x, from->rank - 1, shape);
}
