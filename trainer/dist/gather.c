/* gather.c: see gather.h. */
#include "trainer/dist/gather.h"

#include <assert.h>

/* -- slice */

typedef struct slice_attributes {
    int64_t outer, all, local, inner, first; /* x [outer, all, inner], y [outer, local, inner] */
} slice_attributes;

/* The copy of rows that are `from` apart to rows that are `to` apart. */
static fm_strided slice_copy(const slice_attributes *at, int64_t from, int64_t to) {
    return (fm_strided){.rank = 2,
                        .shape = {at->outer, at->local * at->inner},
                        .x_stride = {from * at->inner, 1},
                        .y_stride = {to * at->inner, 1},
                        .alpha = 1};
}

static void slice_forward(fm_run *run, const fm_node *node) {
    const slice_attributes *at = node->attributes;
    if (run->dry || !fm_run_wants_output(run)) return;
    fm_strided copy = slice_copy(at, at->all, at->local);
    copy.x = fm_run_at(fm_run_input(run, node, 0), at->first * at->inner, run->kernels->act);
    copy.y = (fm_out){fm_run_output(run, node, 0), FM_WRITE};
    run->kernels->copy_strided(run->stream, &copy);
}

static void slice_backward(fm_run *run, const fm_node *node) {
    const slice_attributes *at = node->attributes;
    fm_out dx = fm_run_gradient(run, node, 0);
    if (run->dry || !dx.data) return;
    if (dx.beta == FM_WRITE) {
        run->kernels->fill(run->stream, at->outer * at->all * at->inner, 0.0, dx.data);
    }
    fm_strided copy = slice_copy(at, at->local, at->all);
    copy.x = fm_run_output_gradient(run, node, 0);
    copy.y = (fm_out){fm_run_at(dx.data, at->first * at->inner, run->kernels->act), FM_ADD};
    run->kernels->copy_strided(run->stream, &copy);
}

static const fm_op SLICE = {"slice", slice_forward, slice_backward};

/* Elements before and after an axis of the local part. */
static void count_around(const fm_tensor *x, int axis, int64_t *ret_outer, int64_t *ret_inner) {
    *ret_outer = *ret_inner = 1;
    for (int i = 0; i < x->rank; i++)
        *(i < axis ? ret_outer : ret_inner) *= i == axis ? 1 : x->local[i];
}

fm_tensor_ref fm_dap_slice(fm_tape *tape, const char *name, fm_part part, fm_tensor_ref x,
                           int axis) {
    fm_tensor from = *fm_tape_tensor(tape, x);
    assert(from.shard_axis < 0 && from.element == tape->kernels->act);
    assert(axis < from.rank && from.shape[axis] % part.count == 0);
    void *memory;
    fm_node *node = fm_tape_add(tape, &SLICE, name, sizeof(slice_attributes), &memory);
    slice_attributes *at = memory;
    at->all = from.shape[axis];
    at->local = at->all / part.count;
    at->first = part.rank * at->local;
    count_around(&from, axis, &at->outer, &at->inner);
    fm_node_input(tape, node, x, false);
    fm_tensor out = fm_tensor_like(&from, name);
    fm_tensor_shard(&out, axis, part.rank, part.count);
    return fm_node_output_described(tape, node, &out);
}

fm_tensor_ref fm_dap_trim(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t n) {
    fm_tensor from = *fm_tape_tensor(tape, x), out;
    assert(from.shard_axis < 0 && from.element == tape->kernels->act && n <= from.shape[0]);
    if (n == from.shape[0]) return x;
    void *memory;
    fm_node *node = fm_tape_add(tape, &SLICE, name, sizeof(slice_attributes), &memory);
    slice_attributes *at = memory;
    *at = (slice_attributes){.all = from.shape[0], .local = n};
    count_around(&from, 0, &at->outer, &at->inner);
    fm_node_input(tape, node, x, false);
    from.shape[0] = n;
    fm_tensor_init(&out, name, from.element, from.rank, from.shape);
    return fm_node_output_described(tape, node, &out);
}

/* -- gather */

fm_gather fm_dap_gather_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x) {
    fm_tensor from = *fm_tape_tensor(tape, x), whole;
    int axis = (int)from.shard_axis;
    assert(axis >= 0 && axis <= 1 && from.shard_count == comm->size);
    assert(from.shape[axis] % comm->size == 0);
    int64_t outer, inner;
    count_around(&from, axis, &outer, &inner);
    int64_t run = from.local[axis] * inner;
    const fm_exchange_shape shape = {
        .rows = outer, .run = run, .sent = {outer * run, run}, .received = {run, comm->size * run}};
    fm_tensor_init(&whole, name, from.element, from.rank, from.shape);
    return (fm_gather){
        fm_exchange_begin(tape, name, comm, FM_EXCHANGE_ALL_GATHER, &shape, x, &whole)};
}

fm_gather fm_dap_sum_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x) {
    fm_tensor whole = *fm_tape_tensor(tape, x), part = fm_tensor_like(&whole, name);
    assert(whole.shard_axis < 0 && whole.shape[0] % comm->size == 0);
    fm_tensor_shard(&part, 0, comm->rank, comm->size);
    int64_t run = fm_tensor_local_count(&part);
    const fm_exchange_shape shape = {
        .rows = 1, .run = run, .sent = {run, run}, .received = {run, run}};
    return (fm_gather){
        fm_exchange_begin(tape, name, comm, FM_EXCHANGE_REDUCE_SCATTER, &shape, x, &part)};
}

fm_tensor_ref fm_dap_gather_finish(fm_tape *tape, const fm_gather *gather) {
    return fm_exchange_finish(tape, gather->pending);
}
