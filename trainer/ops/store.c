/* store.c: see store.h. */
#include "trainer/ops/store.h"

#include "trainer/ops/call.h"

#include <assert.h>
#include <string.h>

static void forward(fm_run *run, const fm_node *node) {
    const fm_tensor *to = fm_tape_tensor(run->tape, node->input[1]);
    fm_call_copy(run, fm_tensor_local_count(to), fm_run_input(run, node, 0),
                 fm_run_input(run, node, 1));
}

static const fm_op STORE = {"store", forward, NULL};

/* Adds a node that reads x and writes `to`, of which x has the leading elements. */
static fm_node *add_node(fm_tape *tape, const fm_op *op, const char *name, size_t bytes,
                         fm_tensor_ref x, fm_tensor_ref to, void **ret_memory) {
    fm_node *node = fm_tape_add(tape, op, name, bytes, ret_memory);
    const fm_tensor *from = fm_tape_tensor(tape, x), *into = fm_tape_tensor(tape, to);
    assert(into->pool == FM_POOL_STATE && into->element == from->element);
    assert(fm_tensor_local_count(into) <= fm_tensor_local_count(from));
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, to, false);
    return node;
}

void fm_op_store(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref to) {
    void *memory;
    (void)add_node(tape, &STORE, name, 1, x, to, &memory);
}

/* -- sums over draws */

/* y = alpha x, or y += alpha x. */
static void scale(fm_run *run, int64_t count, double alpha, const void *x, fm_out y) {
    fm_call_copy_strided(run, &(fm_strided){.rank = 1,
                                            .shape = {count},
                                            .x_stride = {1},
                                            .y_stride = {1},
                                            .alpha = alpha,
                                            .x = x,
                                            .y = y});
}

static int64_t count_of_sum(const fm_run *run, const fm_node *node) {
    return fm_tensor_local_count(fm_tape_tensor(run->tape, node->input[1]));
}

static void sum_forward(fm_run *run, const fm_node *node) {
    scale(run, count_of_sum(run, node), 1, fm_run_input(run, node, 0),
          (fm_out){fm_run_input(run, node, 1), FM_ADD});
}

static const fm_op STORE_SUM = {"sum of draws", sum_forward, NULL};

void fm_op_store_sum(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref sum) {
    void *memory;
    (void)add_node(tape, &STORE_SUM, name, 1, x, sum, &memory);
}

static void average_forward(fm_run *run, const fm_node *node) {
    const int32_t *n = node->attributes;
    sum_forward(run, node);
    scale(run, count_of_sum(run, node), 1.0 / *n, fm_run_input(run, node, 1),
          (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

static const fm_op AVERAGE = {"mean of draws", average_forward, NULL};

fm_tensor_ref fm_op_average(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref sum,
                            int32_t n) {
    void *memory;
    fm_node *node = add_node(tape, &AVERAGE, name, sizeof n, x, sum, &memory);
    assert(!tape->with_gradient && n > 1);
    memcpy(memory, &n, sizeof n);
    return fm_node_residual(tape, node, 0);
}
