/* dap.c: the change of axis as pack, all-to-all and (un)pack; see dap.h.
 *
 * An all-to-all sends part r of a contiguous buffer to rank r and stores what arrives by sender. A
 * tensor split along axis 1 is [n0, n1/D, c] with the target axis outermost, so its parts are
 * contiguous and it is sent as it is. The received tensor is [D, n0/D, n1/D, c] and is packed into
 * [n0/D, n1, c]. In the other direction the tensor is packed before it is sent, and what arrives is
 * already in order. */
#include "trainer/dist/dap.h"

#include <assert.h>

/* -- packing: y[b, a, :] = x[a, b, :] */

typedef struct attributes {
    int64_t a, b, inner;
} attributes;

static void swap(const fm_run *run, int64_t a, int64_t b, int64_t inner, const void *x, fm_out y) {
    if (!run->dry && y.data) {
        run->kernels->copy_strided(run->stream, &(fm_strided){.rank = 3,
                                                              .shape = {a, b, inner},
                                                              .x_stride = {b * inner, inner, 1},
                                                              .y_stride = {inner, a * inner, 1},
                                                              .alpha = 1,
                                                              .x = x,
                                                              .y = y});
    }
}

static void pack_forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (fm_run_wants_output(run)) {
        swap(run, at->a, at->b, at->inner, fm_run_input(run, node, 0),
             (fm_out){fm_run_output(run, node, 0), FM_WRITE});
    }
}

static void pack_backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    swap(run, at->b, at->a, at->inner, fm_run_output_gradient(run, node, 0),
         fm_run_gradient(run, node, 0));
}

static const fm_op PACK = {"pack", pack_forward, pack_backward};

static fm_tensor_ref pack(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t a, int64_t b,
                          const fm_tensor *description) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &PACK, name, sizeof(attributes), &memory);
    int64_t count = fm_tensor_local_count(fm_tape_tensor(tape, x));
    *(attributes *)memory = (attributes){a, b, count / (a * b)};
    fm_node_input(tape, node, x, false);
    return fm_node_output_described(tape, node, description);
}

/* -- the change of axis */

fm_switch fm_dap_switch_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x,
                              int to_axis) {
    fm_tensor from = *fm_tape_tensor(tape, x);
    int from_axis = 1 - to_axis;
    assert(from.rank == 3 && from.shard_axis == from_axis && from.shard_count == comm->size);
    assert(from.shape[0] % comm->size == 0 && from.shape[1] % comm->size == 0);
    fm_switch change = {.to_axis = to_axis,
                        .n0_local = from.shape[0] / comm->size,
                        .n1_local = from.shape[1] / comm->size,
                        .ranks = comm->size,
                        .c = from.shape[2]};
    fm_tensor_init(&change.result, name, from.element, 3, from.shape);
    fm_tensor_shard(&change.result, to_axis, comm->rank, comm->size);
    /* The parts for the ranks, one after the other. A change to axis 0 has them in this order
     * already. */
    fm_tensor parts;
    const int64_t shape[] = {comm->size, change.n0_local, change.n1_local, change.c};
    fm_tensor_init(&parts, name, from.element, 4, shape);
    fm_tensor_ref sent =
        to_axis == 1 ? pack(tape, name, x, change.n0_local, change.ranks, &parts) : x;
    /* The received data is ordered by rank, which is the result's own order in a change to axis
     * 1. */
    change.pending = fm_exchange_begin(tape, name, comm, FM_EXCHANGE_ALL_TO_ALL, sent,
                                       to_axis == 1 ? &change.result : &parts);
    return change;
}

fm_tensor_ref fm_dap_switch_finish(fm_tape *tape, const fm_switch *change) {
    fm_tensor_ref received = fm_exchange_finish(tape, change->pending);
    if (change->to_axis == 1) return received;
    return pack(tape, change->result.name, received, change->ranks, change->n0_local,
                &change->result);
}
