/* triangle_chunked.c: triangle multiplication in one node that works slab by slab, for passes
 * without gradient on long chains (triangle_multiplication.h).
 *
 * A slab is a range of rows i of z. The sum over k needs whole operands beside it:
 *
 *     outgoing   x_ij = sum_k a_ik b_jk    b of all pairs; a of the slab's rows is made with it
 *     incoming   x_ij = sum_k a_ki b_kj    a and b of all pairs; columns of a are copied together
 *
 * Whole operands are made before the first slab, because each slab overwrites its rows of z. After
 * that a slab reads only its own rows: for a, for the gate and as the residual. The product runs
 * over a few channels at a time, because kernels copy its operands to another order. The lines of
 * the algorithms are marked in triangle_split.c. */
#include "trainer/ops/triangle_multiplication.h"

#include "trainer/ops/call.h"

#include <assert.h>

enum { CHANNELS = 32 }; /* of a product at a time */

typedef struct attributes {
    int64_t n, c_z, c;
    int64_t slab; /* most rows */
    bool incoming;
    fm_update update;
} attributes;

enum { IN_Z, IN_MASK };
enum { P_NORM_IN, P_PROJECTIONS, P_PROJECTIONS_BIAS, P_NORM_OUT, P_OUT, P_OUT_BIAS, N_PARAM };

/* The operands of the fused projection (fm_triangle_weights). */
enum { OPERAND_A, OPERAND_B };

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* -- parts of a slab */

/* LayerNorm of `count` rows of z from row `first` on. */
static fm_norm norm_rows(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    const void *z =
        fm_run_at(fm_run_input(run, node, IN_Z), first * at->n * at->c_z, run->kernels->act);
    return fm_call_norm(run, count * at->n, at->c_z, z, fm_run_param(run, node, P_NORM_IN));
}

/* y = the outputs from `output` on of the fused projection. */
static void project(fm_run *run, const fm_node *node, const fm_norm *normed, int64_t output,
                    int64_t c_out, void *y) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    fm_linear linear = {
        .rows = normed->rows,
        .c_in = at->c_z,
        .c_out = c_out,
        .ldx = at->c_z,
        .ldy = c_out,
        .x = normed->y,
        .w = fm_run_at(fm_run_param(run, node, P_PROJECTIONS), output * at->c_z, act),
        .bias = fm_run_at(fm_run_param(run, node, P_PROJECTIONS_BIAS), output, act)};
    fm_call_linear(run, &linear, false, y);
}

/* y [count, n, c] = mask * sigmoid(g) * p of an operand, for the rows that were normalised. */
static void make_operand(fm_run *run, const fm_node *node, const fm_norm *normed, int operand,
                         int64_t first, void *y) {
    const attributes *at = node->attributes;
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run);
    void *p = fm_run_workspace_act(run, normed->rows * 2 * at->c);
    project(run, node, normed, operand * 2 * at->c, 2 * at->c, p);
    fm_gate gate = {.rows = normed->rows,
                    .c = at->c,
                    .ldg = 2 * at->c,
                    .ldx = 2 * at->c,
                    .ldy = at->c,
                    .g = fm_run_at(p, at->c, act),
                    .x = p,
                    .mask = fm_run_at(fm_run_input(run, node, IN_MASK), first * at->n, act),
                    .y = y};
    fm_call_gate(run, &gate);
    fm_run_release(run, mark);
}

/* Makes an operand of all pairs in the workspace, where it stays for all slabs. */
static void *make_whole(fm_run *run, const fm_node *node, int operand) {
    const attributes *at = node->attributes;
    void *y = fm_run_workspace_act(run, at->n * at->n * at->c);
    for (int64_t first = 0; first < at->n; first += at->slab) {
        int64_t mark = fm_run_mark(run);
        fm_norm normed = norm_rows(run, node, first, least(at->n - first, at->slab));
        make_operand(run, node, &normed, operand, first,
                     fm_run_at(y, first * at->n * at->c, run->kernels->act));
        fm_run_release(run, mark);
    }
    return y;
}

/* Returns a for the slab: its rows, or with incoming edges columns of the whole, [n, count, c]. */
static void *take_a(fm_run *run, const fm_node *node, const fm_norm *normed, const void *whole,
                    int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    void *a = fm_run_workspace_act(run, at->n * count * at->c);
    if (!at->incoming) {
        make_operand(run, node, normed, OPERAND_A, first, a);
        return a;
    }
    fm_call_copy_strided(run, &(fm_strided){.rank = 3,
                                            .shape = {at->n, count, at->c},
                                            .x_stride = {at->n * at->c, at->c, 1},
                                            .y_stride = {count * at->c, at->c, 1},
                                            .alpha = 1,
                                            .x = fm_run_at(whole, first * at->c, run->kernels->act),
                                            .y = {a, FM_WRITE}});
    return a;
}

/* x [count, n, c]: a few channels are multiplied to [count, n, CHANNELS] and put into place. */
static void multiply(fm_run *run, const attributes *at, const void *a, const void *b, int64_t count,
                     void *x) {
    fm_element act = run->kernels->act;
    for (int64_t first = 0; first < at->c; first += CHANNELS) {
        int64_t mark = fm_run_mark(run), c = least(at->c - first, CHANNELS);
        void *part = fm_run_workspace_act(run, count * at->n * c);
        fm_call_triangle(run, &(fm_triangle){.n_i = count,
                                             .n_j = at->n,
                                             .n_k = at->n,
                                             .c = c,
                                             .incoming = at->incoming,
                                             .pa = fm_run_at(a, first, act),
                                             .pb = fm_run_at(b, first, act),
                                             .lda = at->c,
                                             .ldb = at->c,
                                             .x = part});
        fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                                .shape = {count * at->n, c},
                                                .x_stride = {c, 1},
                                                .y_stride = {at->c, 1},
                                                .alpha = 1,
                                                .x = part,
                                                .y = {fm_run_at(x, first, act), FM_WRITE}});
        fm_run_release(run, mark);
    }
}

/* z += dropout(sigmoid(g) * (W LayerNorm(x) + b)) for the rows of the slab. */
static void update_rows(fm_run *run, const fm_node *node, const fm_norm *normed, const void *x,
                        int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    int64_t rows = normed->rows, from = first * at->n * at->c_z;
    fm_element act = run->kernels->act;
    void *g = fm_run_workspace_act(run, rows * at->c_z);
    void *update = fm_run_workspace_act(run, rows * at->c_z);
    project(run, node, normed, 4 * at->c, at->c_z, g);
    fm_norm inner = fm_call_norm(run, rows, at->c, x, fm_run_param(run, node, P_NORM_OUT));
    fm_linear out = {.rows = rows,
                     .c_in = at->c,
                     .c_out = at->c_z,
                     .ldx = at->c,
                     .ldy = at->c_z,
                     .x = inner.y,
                     .w = fm_run_param(run, node, P_OUT),
                     .bias = fm_run_param(run, node, P_OUT_BIAS)};
    fm_call_linear(run, &out, false, update);
    fm_gate gate = {.rows = rows,
                    .c = at->c_z,
                    .ldg = at->c_z,
                    .ldx = at->c_z,
                    .ldy = at->c_z,
                    .g = g,
                    .x = update,
                    .y = update};
    fm_call_gate(run, &gate);
    fm_update part = at->update;
    part.n0 = count;
    part.first0 += first;
    fm_call_update(run, node, &part, fm_run_at(fm_run_input(run, node, IN_Z), from, act), update,
                   fm_run_at(fm_run_output(run, node, 0), from, act));
}

static void run_slab(fm_run *run, const fm_node *node, const void *whole_a, const void *b,
                     int64_t first) {
    const attributes *at = node->attributes;
    int64_t count = least(at->n - first, at->slab);
    fm_norm normed = norm_rows(run, node, first, count);
    void *x = fm_run_workspace_act(run, count * at->n * at->c);
    int64_t mark = fm_run_mark(run);
    void *a = take_a(run, node, &normed, whole_a, first, count);
    multiply(run, at, a, b, count, x);
    fm_run_release(run, mark);
    update_rows(run, node, &normed, x, first, count);
}

/* -- the op */

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *a = at->incoming ? make_whole(run, node, OPERAND_A) : NULL;
    const void *b = make_whole(run, node, OPERAND_B);
    for (int64_t first = 0; first < at->n; first += at->slab) {
        int64_t mark = fm_run_mark(run);
        run_slab(run, node, a, b, first);
        fm_run_release(run, mark);
    }
}

static const fm_op TRIANGLE_CHUNKED = {"triangle multiplication", forward, NULL};

fm_tensor_ref fm_op_triangle_chunked(fm_tape *tape, const char *name, bool incoming,
                                     fm_tensor_ref z, fm_tensor_ref mask,
                                     const fm_triangle_weights *weights, double dropout) {
    void *memory;
    const fm_tensor *x = fm_tape_tensor(tape, z);
    assert(!tape->with_gradient && tape->chunk_bytes > 0);
    assert(x->rank == 3 && x->shard_axis < 0 && x->local[0] == x->local[1]);
    fm_node *node = fm_tape_add(tape, &TRIANGLE_CHUNKED, name, sizeof(attributes), &memory);
    attributes *at = memory;
    *at = (attributes){.n = x->local[0],
                       .c_z = x->local[2],
                       .c = weights->c,
                       .incoming = incoming,
                       .update = fm_update_of(x, dropout, FM_SHARED_AXIS0)};
    /* z normalised, a and its projection, x, x normalised, the gate and the update */
    at->slab = fm_call_chunk(tape, at->n, at->n * (3 * at->c_z + 5 * at->c));
    fm_node_draws(tape, node);
    fm_node_input(tape, node, z, false);
    fm_node_input(tape, node, mask, false);
    const fm_param_ref params[N_PARAM] = {
        weights->norm_in,  weights->projections, weights->projections_bias,
        weights->norm_out, weights->out,         weights->out_bias};
    for (int i = 0; i < N_PARAM; i++)
        fm_node_param(tape, node, params[i]);
    return fm_node_residual(tape, node, IN_Z);
}
