/* slot_linear.c: see slot_linear.h. One matrix product for each slot. */
#include "trainer/ops/slot_linear.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c, c_out, n_slot;
} attributes;

/* y = x W_k. */
static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    if (!fm_run_wants_output(run)) return;
    for (int64_t k = 0; k < at->n_slot; k++) {
        fm_call_gemm(
            run, &(fm_gemm){.m = at->n,
                            .n = at->c_out,
                            .k = at->c,
                            .batch = 1,
                            .alpha = 1,
                            .a = fm_run_input(run, node, 0),
                            .b = fm_run_at(fm_run_param(run, node, 0), k * at->c * at->c_out, act),
                            .c = fm_run_at(fm_run_output(run, node, 0), k * at->n * at->c_out, act),
                            .lda = at->c,
                            .ldb = at->c_out,
                            .ldc = at->c_out});
    }
}

/* dx = sum over k of dy_k W_k^T, dW_k = x^T dy_k. */
static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    fm_out dx = fm_run_gradient(run, node, 0), dw = fm_run_param_gradient(run, node, 0);
    for (int64_t k = 0; k < at->n_slot; k++) {
        const void *dy =
            fm_run_at(fm_run_output_gradient(run, node, 0), k * at->n * at->c_out, act);
        fm_gemm of_x = {.m = at->n,
                        .n = at->c,
                        .k = at->c_out,
                        .batch = 1,
                        .trans_b = true,
                        .alpha = 1,
                        .beta = k ? FM_ADD : dx.beta,
                        .a = dy,
                        .b = fm_run_at(fm_run_param(run, node, 0), k * at->c * at->c_out, act),
                        .c = dx.data,
                        .lda = at->c_out,
                        .ldb = at->c_out,
                        .ldc = at->c};
        if (dx.data) fm_call_gemm(run, &of_x);
        fm_out part = fm_out_at(dw, k * at->c * at->c_out, run->kernels->acc);
        fm_call_gemm(run, &(fm_gemm){.m = at->c,
                                     .n = at->c_out,
                                     .k = at->n,
                                     .batch = 1,
                                     .trans_a = true,
                                     .alpha = 1,
                                     .beta = part.beta,
                                     .a = fm_run_input(run, node, 0),
                                     .b = dy,
                                     .c = part.data,
                                     .c_is_acc = true,
                                     .lda = at->c,
                                     .ldb = at->c_out,
                                     .ldc = at->c_out});
    }
}

static const fm_op SLOT_LINEAR = {"slot linear", forward, backward};

fm_tensor_ref fm_op_slot_linear(fm_tape *tape, const char *name, fm_tensor_ref x, fm_param_ref w,
                                int64_t n_slot, int64_t c_out) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SLOT_LINEAR, name, sizeof(attributes), &memory);
    const fm_tensor *in = fm_tape_tensor(tape, x);
    assert(in->rank == 2 && in->shard_axis < 0);
    attributes *at = memory;
    *at = (attributes){.n = in->local[0], .c = in->local[1], .c_out = c_out, .n_slot = n_slot};
    fm_node_input(tape, node, x, true);
    fm_node_param(tape, node, w);
    return fm_node_output(tape, node, tape->kernels->act, 2, (int64_t[]){n_slot * at->n, c_out});
}
