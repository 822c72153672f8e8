/* store.c: see store.h. */
#include "trainer/ops/store.h"

#include "trainer/ops/call.h"

#include <assert.h>

static void forward(fm_run *run, const fm_node *node) {
    const fm_tensor *to = fm_tape_tensor(run->tape, node->input[1]);
    fm_call_copy(run, fm_tensor_local_count(to), fm_run_input(run, node, 0),
                 fm_run_input(run, node, 1));
}

static const fm_op STORE = {"store", forward, NULL};

void fm_op_store(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref to) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &STORE, name, 1, &memory);
    const fm_tensor *from = fm_tape_tensor(tape, x), *into = fm_tape_tensor(tape, to);
    assert(into->pool == FM_POOL_STATE && into->element == from->element);
    assert(fm_tensor_local_count(into) <= fm_tensor_local_count(from));
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, to, false);
}
