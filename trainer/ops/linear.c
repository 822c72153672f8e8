/* linear.c: see linear.h. */
#include "trainer/ops/linear.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t first, rows, all_rows, c_in, c_out;
} attributes;

static fm_linear linear_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){
        .rows = at->rows,
        .c_in = at->c_in,
        .c_out = at->c_out,
        .ldx = at->c_in,
        .ldy = at->c_out,
        .x = fm_run_at(fm_run_input(run, node, 0), at->first * at->c_in, run->kernels->act),
        .w = fm_run_param(run, node, 0),
        .bias = fm_run_param(run, node, 1)};
}

static void forward(fm_run *run, const fm_node *node) {
    fm_linear linear = linear_of(run, node);
    if (fm_run_wants_output(run)) fm_call_linear(run, &linear, false, fm_run_output(run, node, 0));
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_linear linear = linear_of(run, node);
    fm_out dx = fm_run_gradient(run, node, 0);
    fm_call_linear_grad(run, &linear, fm_run_output_gradient(run, node, 0), dx,
                        fm_run_param_gradient(run, node, 0), fm_run_param_gradient(run, node, 1));
    fm_call_clear_rest(run, at->rows * at->c_in, at->all_rows * at->c_in, dx);
}

static const fm_op LINEAR = {"linear", forward, backward};

/* The layer of n_row rows from `first` on; n_row 0: all rows. */
static fm_node *add(fm_tape *tape, const fm_op *op, const char *name, fm_tensor_ref x,
                    int64_t first, int64_t n_row, const fm_linear_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, op, name, sizeof(attributes), &memory);
    const fm_tensor *tensor = fm_tape_tensor(tape, x);
    attributes *at = memory;
    at->c_in = tensor->local[tensor->rank - 1];
    at->all_rows = fm_tensor_local_count(tensor) / at->c_in;
    at->rows = n_row ? n_row : at->all_rows;
    at->c_out = weights->c_out;
    at->first = first;
    assert(first + n_row <= at->all_rows);
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    return node;
}

fm_tensor_ref fm_op_linear(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t n_row,
                           const fm_linear_weights *weights) {
    assert(n_row > 0);
    fm_node *node = add(tape, &LINEAR, name, x, 0, n_row, weights);
    const fm_tensor *in = fm_tape_tensor(tape, x);
    int axis = in->rank - 2;
    fm_tensor out;
    fm_tensor_init(&out, name, in->element, 2, (int64_t[]){n_row, weights->c_out});
    if (in->shard_axis >= 0) { /* one row of an array [.., N, c], which is split along N */
        assert(in->shard_axis == axis && n_row == in->local[axis]);
        fm_tensor_init(&out, name, in->element, 2, (int64_t[]){in->shape[axis], weights->c_out});
        fm_tensor_shard(&out, 0, in->shard_rank, in->shard_count);
    }
    return fm_node_output_described(tape, node, &out);
}

fm_tensor_ref fm_op_linear_all(fm_tape *tape, const char *name, fm_tensor_ref x,
                               const fm_linear_weights *weights) {
    fm_node *node = add(tape, &LINEAR, name, x, 0, 0, weights);
    fm_tensor out = fm_tensor_of_width(fm_tape_tensor(tape, x), name, weights->c_out);
    return fm_node_output_described(tape, node, &out);
}

fm_tensor_ref fm_op_linear_slice(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t slice,
                                 const fm_linear_weights *weights) {
    const fm_tensor in = *fm_tape_tensor(tape, x);
    const int64_t n_row = fm_tensor_local_count(&in) / in.local[0] / in.local[in.rank - 1];
    assert(!tape->with_gradient && in.rank > 2 && slice >= 0 && slice < in.local[0]);
    fm_node *node = add(tape, &LINEAR, name, x, slice * n_row, n_row, weights);
    int64_t shape[FM_TENSOR_RANK];
    for (int i = 1; i < in.rank; i++)
        shape[i - 1] = i + 1 < in.rank ? in.local[i] : weights->c_out;
    return fm_node_output(tape, node, in.element, in.rank - 1, shape);
}

/* -- into the state */

static void store_forward(fm_run *run, const fm_node *node) {
    fm_linear linear = linear_of(run, node);
    fm_call_linear(run, &linear, false, fm_run_input(run, node, 1));
}

static const fm_op STORE_LINEAR = {"linear", store_forward, NULL};

void fm_op_store_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                        const fm_linear_weights *weights, fm_tensor_ref to) {
    fm_node *node = add(tape, &STORE_LINEAR, name, x, 0, 0, weights);
    const attributes *at = node->attributes;
    const fm_tensor *into = fm_tape_tensor(tape, to);
    assert(into->pool == FM_POOL_STATE && into->element == tape->kernels->act);
    assert(fm_tensor_local_count(into) == at->rows * at->c_out);
    (void)at, (void)into;
    fm_node_input(tape, node, to, false);
}
