/* concat.c: see concat.h. */
#include "trainer/ops/concat.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c;
} attributes;

/* The columns of part i in the rows of the whole; `first` is their first column. */
static fm_strided columns(const fm_run *run, const fm_node *node, int i) {
    const attributes *at = node->attributes;
    const fm_tensor *part = fm_tape_tensor(run->tape, node->input[i]);
    int64_t c = part->local[part->rank - 1];
    return (fm_strided){
        .rank = 2, .shape = {at->rows, c}, .x_stride = {c, 1}, .y_stride = {at->c, 1}, .alpha = 1};
}

static void forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    int64_t first = 0;
    for (int i = 0; i < node->n_input; i++) {
        fm_strided part = columns(run, node, i);
        part.x = fm_run_input(run, node, i);
        part.y.data = fm_run_at(fm_run_output(run, node, 0), first, run->kernels->act);
        fm_call_copy_strided(run, &part);
        first += part.shape[1];
    }
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t first = 0;
    for (int i = 0; i < node->n_input; i++) {
        fm_strided part = columns(run, node, i);
        part.x_stride[0] = at->c;
        part.y_stride[0] = part.shape[1];
        part.x = fm_run_at(fm_run_output_gradient(run, node, 0), first, run->kernels->act);
        part.y = fm_run_gradient(run, node, i);
        fm_call_copy_strided(run, &part);
        first += part.shape[1];
    }
}

static const fm_op CONCAT = {"concat", forward, backward};

fm_tensor_ref fm_op_concat(fm_tape *tape, const char *name, const fm_tensor_ref *parts,
                           int n_part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &CONCAT, name, sizeof(attributes), &memory);
    attributes *at = memory;
    assert(n_part >= 1 && n_part <= FM_NODE_INPUTS);
    for (int i = 0; i < n_part; i++) {
        const fm_tensor *part = fm_tape_tensor(tape, parts[i]);
        int64_t c = part->local[part->rank - 1], rows = fm_tensor_local_count(part) / c;
        assert(i == 0 || rows == at->rows);
        at->rows = rows;
        at->c += c;
        fm_node_input(tape, node, parts[i], false);
    }
    fm_tensor out = fm_tensor_of_width(fm_tape_tensor(tape, parts[0]), name, at->c);
    return fm_node_output_described(tape, node, &out);
}
