/* token_distances.c: see token_distances.h. It is composed of general kernels, because it runs once
 * in a step. The length of a difference (a, b, c) follows from two pairs:
 *
 *     (u, v) = (a, b) / |(a, b)|,   r = a u + b v = |(a, b)|,   and the same again with (r, c)
 *
 * so no square can leave the range of the type. */
#include "trainer/ops/token_distances.h"

#include "trainer/ops/call_atoms.h"
#include "trainer/ops/call_structure.h"

#include <assert.h>

static const double EPS = 1e-30;        /* of a length's square; two tokens may be at one place */
static const float NO_LIMIT = 3.0e+38f; /* the last class is open */

typedef struct attributes {
    int64_t n_atom, n, first, rows; /* this rank has `rows` of n rows, from number `first` on */
    fm_distance_bounds bounds;
} attributes;

enum { IN_X, IN_ATOM };
enum { OUT_DISTANCE, OUT_CLASSES };

/* Writes x_i of one axis to y [i, j], or subtracts x_j from it. The elements of y are two apart. */
static void add_axis(fm_run *run, const attributes *at, const void *x, int axis, bool of_rows,
                     void *y) {
    fm_element act = run->kernels->act;
    int64_t from = axis + (of_rows ? 3 * at->first : 0);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {at->rows, at->n},
                                            .x_stride = {of_rows ? 3 : 0, of_rows ? 0 : 3},
                                            .y_stride = {2 * at->n, 2},
                                            .alpha = of_rows ? 1 : -1,
                                            .x = fm_run_at(x, from, act),
                                            .y = {y, of_rows ? FM_WRITE : FM_ADD}});
}

/* Writes x_i - x_j of one axis to member k of all pairs. */
static void put_difference(fm_run *run, const attributes *at, const void *x, int axis, void *pairs,
                           int k) {
    void *y = fm_run_at(pairs, k, run->kernels->act);
    add_axis(run, at, x, axis, true, y);
    add_axis(run, at, x, axis, false, y);
}

/* Writes the lengths of the pairs to y, whose elements are `apart`. `work` has the pairs' size. */
static void put_lengths(fm_run *run, const attributes *at, const void *pairs, void *work, void *y,
                        int64_t apart) {
    int64_t n = at->rows * at->n;
    fm_call_unit_pairs(run, n, EPS, pairs, work);
    fm_call_scale_rows(run, 2 * n, 1, work, pairs, (fm_out){work, FM_WRITE});
    for (int k = 0; k < 2; k++) {
        fm_call_copy_strided(run, &(fm_strided){.rank = 1,
                                                .shape = {n},
                                                .x_stride = {2},
                                                .y_stride = {apart},
                                                .alpha = 1,
                                                .x = fm_run_at(work, k, run->kernels->act),
                                                .y = {y, k ? FM_ADD : FM_WRITE}});
    }
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t pairs = 2 * at->rows * at->n;
    void *x = fm_run_workspace_act(run, 3 * at->n), *a = fm_run_workspace_act(run, pairs);
    void *b = fm_run_workspace_act(run, pairs), *work = fm_run_workspace_act(run, pairs);
    float *x_f32 = fm_run_workspace(run, 3 * at->n * (int64_t)sizeof *x_f32);
    if (!fm_run_wants_output(run)) return;
    const fm_rows rows = {.n_batch = 1,
                          .n_x = at->n_atom,
                          .n_y = at->n,
                          .c = 3,
                          .index = fm_run_input(run, node, IN_ATOM)};
    fm_call_gather_rows(run, &rows, fm_run_input(run, node, IN_X), (fm_out){x, FM_WRITE});
    put_difference(run, at, x, 0, a, 0);
    put_difference(run, at, x, 1, a, 1);
    put_difference(run, at, x, 2, b, 1);
    put_lengths(run, at, a, work, b, 2);
    put_lengths(run, at, b, work, fm_run_output(run, node, OUT_DISTANCE), 1);
    fm_call_to_f32(run, 3 * at->n, x, x_f32);
    const fm_distance_classes classes = {.n = at->bounds.n,
                                         .first = (float)at->bounds.first,
                                         .last = (float)at->bounds.last,
                                         .most_square = NO_LIMIT};
    fm_call_distance_ids(run, at->first, at->rows, at->n, x_f32, &classes,
                         fm_run_output(run, node, OUT_CLASSES));
}

static const fm_op TOKEN_DISTANCES = {"token distances", forward, NULL};

fm_token_distances fm_op_token_distances(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref atom,
                                         const fm_distance_bounds *bounds, fm_part part) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &TOKEN_DISTANCES, "token distances", sizeof(attributes), &memory);
    const fm_tensor *of = fm_tape_tensor(tape, x), *index = fm_tape_tensor(tape, atom);
    assert(of->rank >= 2 && of->local[of->rank - 1] == 3 && of->shard_axis < 0);
    assert(index->rank == 1 && index->element == FM_ELEMENT_I32);
    fm_tensor distance = fm_tensor_rows_of(tape->kernels->act, index->local[0], 1, part);
    fm_tensor classes;
    fm_tensor_init(&classes, "distance classes", FM_ELEMENT_U8, 2, distance.shape);
    if (part.count > 1) fm_tensor_shard(&classes, 0, part.rank, part.count);
    *(attributes *)memory = (attributes){.n_atom = of->local[of->rank - 2],
                                         .n = index->local[0],
                                         .first = fm_tensor_first(&distance, 0),
                                         .rows = distance.local[0],
                                         .bounds = *bounds};
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, atom, false);
    fm_token_distances out = {.distance = fm_node_output_described(tape, node, &distance)};
    out.classes = fm_node_output_described(tape, node, &classes);
    return out;
}
