/* gather.c: see gather.h. */
#include "trainer/ops/gather.h"

#include "trainer/ops/call_atoms.h"

#include <assert.h>

typedef struct attributes {
    int64_t n_batch, n_x, n_y, c;
} attributes;

enum { IN_X, IN_INDEX, IN_OTHER };

static fm_tensor_ref record(fm_tape *tape, const fm_op *op, const char *name, fm_tensor_ref x,
                            fm_tensor_ref index, fm_tensor_ref other, int64_t n_y) {
    void *memory;
    fm_node *node = fm_tape_add(tape, op, name, sizeof(attributes), &memory);
    attributes *at = memory;
    fm_tensor out = fm_tensor_like(fm_tape_tensor(tape, x), name);
    assert(out.rank >= 2 && out.shard_axis < out.rank - 2);
    *at = (attributes){.n_x = out.local[out.rank - 2], .n_y = n_y, .c = out.local[out.rank - 1]};
    at->n_batch = fm_tensor_local_count(&out) / (at->n_x * at->c);
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, index, true);
    fm_node_input(tape, node, other, true);
    int64_t shape[FM_TENSOR_RANK];
    for (int i = 0; i < out.rank; i++)
        shape[i] = i == out.rank - 2 ? n_y : out.local[i];
    return fm_node_output(tape, node, out.element, out.rank, shape);
}

static fm_rows forward_rows(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_rows){.n_batch = at->n_batch,
                     .n_x = at->n_x,
                     .n_y = at->n_y,
                     .c = at->c,
                     .index = fm_run_input(run, node, IN_INDEX)};
}

/* The same with the roles of x and y exchanged. */
static fm_rows backward_rows(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_rows){.n_batch = at->n_batch,
                     .n_x = at->n_y,
                     .n_y = at->n_x,
                     .c = at->c,
                     .index = fm_run_input(run, node, IN_OTHER)};
}

static void gather_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_rows rows = forward_rows(run, node);
    fm_call_gather_rows(run, &rows, fm_run_input(run, node, IN_X),
                        (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

/* -- tokens to atoms */

static void to_atoms_backward(fm_run *run, const fm_node *node) {
    fm_rows rows = backward_rows(run, node);
    rows.first = fm_run_input(run, node, IN_OTHER);
    fm_call_sum_rows(run, &rows, fm_run_output_gradient(run, node, 0),
                     fm_run_gradient(run, node, IN_X));
}

static const fm_op TO_ATOMS = {"to atoms", gather_forward, to_atoms_backward};

fm_tensor_ref fm_op_to_atoms(fm_tape *tape, const char *name, fm_tensor_ref x,
                             const fm_atom_map *map) {
    return record(tape, &TO_ATOMS, name, x, map->token, map->first, map->n_atom);
}

/* -- atoms to tokens */

static void mean_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_rows rows = forward_rows(run, node);
    rows.first = fm_run_input(run, node, IN_OTHER);
    rows.mean = true;
    fm_call_sum_rows(run, &rows, fm_run_input(run, node, IN_X),
                     (fm_out){fm_run_output(run, node, 0), FM_WRITE});
}

static void mean_backward(fm_run *run, const fm_node *node) {
    fm_rows rows = backward_rows(run, node);
    rows.index = fm_run_input(run, node, IN_INDEX);
    rows.first = fm_run_input(run, node, IN_OTHER);
    rows.mean = true;
    fm_call_gather_rows(run, &rows, fm_run_output_gradient(run, node, 0),
                        fm_run_gradient(run, node, IN_X));
}

static const fm_op MEAN_OF_ATOMS = {"mean of atoms", mean_forward, mean_backward};

fm_tensor_ref fm_op_mean_of_atoms(fm_tape *tape, const char *name, fm_tensor_ref x,
                                  const fm_atom_map *map) {
    return record(tape, &MEAN_OF_ATOMS, name, x, map->token, map->first, map->n_token);
}

/* -- any rows */

static void gather_backward(fm_run *run, const fm_node *node) {
    fm_rows rows = backward_rows(run, node);
    fm_call_gather_rows(run, &rows, fm_run_output_gradient(run, node, 0),
                        fm_run_gradient(run, node, IN_X));
}

static const fm_op GATHER = {"gather", gather_forward, gather_backward};

fm_tensor_ref fm_op_gather(fm_tape *tape, const char *name, fm_tensor_ref x, fm_tensor_ref index,
                           fm_tensor_ref inverse) {
    assert(inverse != FM_TENSOR_NONE || !fm_tape_tensor(tape, x)->needs_gradient);
    return record(tape, &GATHER, name, x, index, inverse, fm_tape_tensor(tape, index)->local[0]);
}
