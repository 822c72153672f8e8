/* cast.c: see cast.h. */
#include "trainer/ops/cast.h"

#include <assert.h>

typedef struct attributes {
    int64_t count;
    const fm_kernels *source; /* the table of x */
} attributes;

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!run->dry && fm_run_wants_output(run)) {
        run->kernels->cast(run->stream, at->count, at->source->act, fm_run_input(run, node, 0),
                           fm_run_output(run, node, 0));
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_out dx = fm_run_gradient(run, node, 0);
    if (!dx.data) return;
    void *part = dx.data;
    if (dx.beta == FM_ADD) {
        part = fm_run_workspace(run, at->count * (int64_t)fm_element_bytes(at->source->act));
    }
    if (run->dry) return;
    at->source->cast(run->stream, at->count, run->kernels->act,
                     fm_run_output_gradient(run, node, 0), part);
    if (dx.beta == FM_ADD) at->source->axpy(run->stream, at->count, 1.0, part, dx);
}

static const fm_op CAST = {"cast", forward, backward};

const fm_kernels *fm_cast_source(const fm_tape *tape) {
    bool inside = tape->kernels != tape->main_kernels;
    return inside ? tape->main_kernels : tape->main_kernels->wide;
}

fm_tensor_ref fm_op_cast(fm_tape *tape, const char *name, fm_tensor_ref x) {
    if (x == FM_TENSOR_NONE || fm_tape_tensor(tape, x)->element == tape->kernels->act) return x;
    const fm_tensor *from = fm_tape_tensor(tape, x);
    const fm_kernels *source = fm_cast_source(tape);
    assert(source && from->element == source->act);
    void *memory;
    fm_node *node = fm_tape_add(tape, &CAST, name, sizeof(attributes), &memory);
    *(attributes *)memory = (attributes){.count = fm_tensor_local_count(from), .source = source};
    node->casts = true;
    fm_node_input(tape, node, x, false);
    fm_tensor to = fm_tensor_like(from, name);
    to.element = tape->kernels->act;
    return fm_node_output_described(tape, node, &to);
}
