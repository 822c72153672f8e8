/* atom_pairs.c: see atom_pairs.h. */
#include "trainer/ops/atom_pairs.h"

#include "trainer/ops/call_atoms.h"
#include "trainer/ops/windows.h"

typedef struct attributes {
    int64_t n_atom, n_token, n_window, c;
} attributes;

enum { IN_POSITION, IN_SPACE, IN_TOKEN, IN_FIRST, IN_Z, IN_Q, IN_K };
enum { P_OFFSET, P_INVERSE, P_VALID, N_PARAM };

/* Columns of the geometry that each weight reads. */
static const int64_t FIRST[N_PARAM] = {0, 3, 4}, WIDTH[N_PARAM] = {3, 1, 1};

static int64_t n_pair(const attributes *at) {
    return at->n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS;
}

static void *geometry_of(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *y = fm_run_workspace_act(run, n_pair(at) * FM_WINDOW_GEOMETRY);
    fm_call_window_geometry(run, &(fm_window_geometry){.n_atom = at->n_atom,
                                                       .n_window = at->n_window,
                                                       .x = fm_run_input(run, node, IN_POSITION),
                                                       .id = fm_run_input(run, node, IN_SPACE),
                                                       .y = y});
    return y;
}

static fm_linear linear_of(const fm_run *run, const fm_node *node, const void *geometry,
                           int param) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = n_pair(at),
                       .c_in = WIDTH[param],
                       .c_out = at->c,
                       .ldx = FM_WINDOW_GEOMETRY,
                       .ldy = at->c,
                       .x = fm_run_at(geometry, FIRST[param], run->kernels->act),
                       .w = fm_run_param(run, node, param)};
}

static fm_window_pairs pairs_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_window_pairs){.n_atom = at->n_atom,
                             .n_token = at->n_token,
                             .n_window = at->n_window,
                             .c = at->c,
                             .token = fm_run_input(run, node, IN_TOKEN),
                             .first = fm_run_input(run, node, IN_FIRST)};
}

/* p += rows of `x`, whose first one belongs to the first query or key of window 0. */
static void add_rows(fm_run *run, const attributes *at, bool of_queries, const void *x, void *p) {
    int64_t c = at->c;
    fm_strided add = {
        .rank = 4,
        .shape = {at->n_window, FM_WINDOW_QUERIES, FM_WINDOW_KEYS, c},
        .x_stride = {FM_WINDOW_QUERIES * c, of_queries ? c : 0, of_queries ? 0 : c, 1},
        .y_stride = {FM_WINDOW_QUERIES * FM_WINDOW_KEYS * c, FM_WINDOW_KEYS * c, c, 1},
        .alpha = 1,
        .x = x,
        .y = {p, FM_ADD}};
    fm_call_copy_strided(run, &add);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *p = fm_run_output(run, node, 0);
    const void *geometry = geometry_of(run, node);
    for (int i = 0; i < N_PARAM; i++) {
        fm_linear linear = linear_of(run, node, geometry, i);
        linear.residual = i ? p : NULL;
        fm_call_linear(run, &linear, false, p);
    }
    const void *z = fm_run_input(run, node, IN_Z);
    fm_window_pairs pairs = pairs_of(run, node);
    if (z) fm_call_window_pairs(run, &pairs, z, (fm_out){p, FM_ADD});
    const void *q = fm_windows_pad(run, 1, at->n_atom, 0, fm_windows_query_rows(at->n_atom), at->c,
                                   fm_run_input(run, node, IN_Q));
    add_rows(run, at, true, q, p);
    const void *k =
        fm_windows_pad(run, 1, at->n_atom, FM_WINDOW_BEFORE, fm_windows_key_rows(at->n_atom), at->c,
                       fm_run_input(run, node, IN_K));
    add_rows(run, at, false, k, p);
}

/* The gradients of q and k: sums over the keys, and over the queries of all windows with the
 * key. */
static void rows_backward(fm_run *run, const fm_node *node, const void *dp) {
    const attributes *at = node->attributes;
    int64_t c = at->c, n = at->n_atom, width = FM_WINDOW_KEYS * c;
    int64_t queries = fm_windows_query_rows(n), keys = fm_windows_key_rows(n);
    void *dq = fm_run_workspace_act(run, queries * c);
    fm_call_sum(run, queries, FM_WINDOW_KEYS, c, width, c, dp, (fm_out){dq, FM_WRITE}, false);
    fm_windows_unpad(run, 1, n, 0, queries, c, dq, fm_run_gradient(run, node, IN_Q));
    void *windows = fm_run_workspace_act(run, at->n_window * width);
    fm_call_sum(run, at->n_window, FM_WINDOW_QUERIES, width, FM_WINDOW_QUERIES * width, width, dp,
                (fm_out){windows, FM_WRITE}, false);
    void *dk = fm_run_workspace_act(run, keys * c);
    fm_windows_fold(run, 1, n, c, windows, dk);
    fm_windows_unpad(run, 1, n, FM_WINDOW_BEFORE, keys, c, dk, fm_run_gradient(run, node, IN_K));
}

static void backward(fm_run *run, const fm_node *node) {
    const void *dp = fm_run_output_gradient(run, node, 0);
    int64_t mark = fm_run_mark(run);
    const void *geometry = geometry_of(run, node);
    for (int i = 0; i < N_PARAM; i++) {
        fm_linear linear = linear_of(run, node, geometry, i);
        fm_call_linear_grad(run, &linear, dp, (fm_out){0}, fm_run_param_gradient(run, node, i),
                            (fm_out){0});
    }
    fm_run_release(run, mark);
    fm_window_pairs pairs = pairs_of(run, node);
    if (node->input[IN_Z] != FM_TENSOR_NONE) {
        fm_call_window_pairs_grad(run, &pairs, dp, fm_run_gradient(run, node, IN_Z));
    }
    rows_backward(run, node, dp);
}

static const fm_op ATOM_PAIRS = {"atom pairs", forward, backward};

fm_tensor_ref fm_op_atom_pairs(fm_tape *tape, fm_tensor_ref position, fm_tensor_ref space,
                               fm_tensor_ref z, fm_tensor_ref q, fm_tensor_ref k,
                               const fm_atom_map *map, const fm_atom_pair_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ATOM_PAIRS, "atom pairs", sizeof(attributes), &memory);
    attributes *at = memory;
    *at = (attributes){map->n_atom, map->n_token, fm_windows_count(map->n_atom), weights->c};
    fm_node_input(tape, node, position, true);
    fm_node_input(tape, node, space, true);
    fm_node_input(tape, node, map->token, true);
    fm_node_input(tape, node, map->first, true);
    fm_node_input(tape, node, z, false);
    fm_node_input(tape, node, q, false);
    fm_node_input(tape, node, k, false);
    fm_node_param(tape, node, weights->offset);
    fm_node_param(tape, node, weights->inverse);
    fm_node_param(tape, node, weights->valid);
    return fm_node_output(tape, node, tape->kernels->act, 4,
                          (int64_t[]){at->n_window, FM_WINDOW_QUERIES, FM_WINDOW_KEYS, weights->c});
}
