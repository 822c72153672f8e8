/* one_hot_linear.c: see one_hot_linear.h. */
#include "trainer/ops/one_hot_linear.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, n_class, c;
} attributes;

static fm_lookup lookup_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_lookup){.n_class = at->n_class,
                       .c = at->c,
                       .class_stride = 1,
                       .channel_stride = at->n_class,
                       .w = fm_run_param(run, node, 0)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_lookup lookup = lookup_of(run, node);
    if (fm_run_wants_output(run)) {
        fm_call_lookup(run, &lookup, at->rows, fm_run_input(run, node, 0),
                       (fm_out){fm_run_output(run, node, 0), FM_WRITE});
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_lookup lookup = lookup_of(run, node);
    fm_call_lookup_grad(run, &lookup, at->rows, fm_run_input(run, node, 0),
                        fm_run_output_gradient(run, node, 0), fm_run_param_gradient(run, node, 0));
}

static const fm_op ONE_HOT_LINEAR = {"one-hot linear", forward, backward};

fm_tensor_ref fm_op_one_hot_linear(fm_tape *tape, const char *name, fm_tensor_ref classes,
                                   int64_t n_class, const fm_linear_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ONE_HOT_LINEAR, name, sizeof(attributes), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, classes);
    int64_t shape[FM_TENSOR_RANK];
    assert(x->element == FM_ELEMENT_U8 && x->rank < FM_TENSOR_RANK);
    for (int i = 0; i < x->rank; i++)
        shape[i] = x->shape[i];
    shape[x->rank] = weights->c_out;
    fm_tensor out;
    fm_tensor_init(&out, name, tape->kernels->act, x->rank + 1, shape);
    if (x->shard_axis >= 0) fm_tensor_shard(&out, x->shard_axis, x->shard_rank, x->shard_count);
    *(attributes *)memory =
        (attributes){.rows = fm_tensor_local_count(x), .n_class = n_class, .c = weights->c_out};
    fm_node_input(tape, node, classes, true);
    fm_node_param(tape, node, weights->w);
    return fm_node_output_described(tape, node, &out);
}
