/* attention_chunked.c: attention in one node that works slab by slab, for passes without gradient
 * on long chains (attention.h).
 *
 * A slab is a range of the batch axis: rows of x for row attention and starting nodes, columns for
 * column attention and ending nodes. Columns are first copied to a contiguous slab, and their
 * result is copied back. Only the bias is computed from the whole array, before the first slab,
 * because each slab overwrites its part of x. On split arrays it is an input, which the caller has
 * gathered. Queries, keys, values and the gated output exist for
 * one slab at a time. The lines of the algorithms are marked in attention.c. */
#include "trainer/ops/attention_parts.h"

#include <assert.h>

typedef struct attributes {
    fm_attention_shape shape; /* of the whole array */
    int64_t c_bias;           /* channels of what the bias is made of */
    int64_t slab, bias_slab;  /* most batches of a slab; rows of pairs of the bias at a time */
    bool is_bias_given;
} attributes;

enum { IN_X, IN_MASK, IN_Z, IN_BIAS };
enum { P_NORM, P_QKVG, P_GATE_BIAS, P_OUT, P_OUT_BIAS, P_BIAS, P_NORM_Z, N_PARAM };

/* A part of the batch axis. */
typedef struct slab {
    fm_attention_shape shape;
    fm_update update;
    int64_t first;
    const void *x; /* [n0, n1, c] of the slab */
    void *y;       /* the same, or x's copy */
    bool is_copied;
} slab;

static bool has_bias(const fm_attention_shape *at) {
    return at->axial != FM_AXIAL_COLUMN;
}

static bool takes_columns(const fm_attention_shape *at) {
    return at->axial == FM_AXIAL_COLUMN || at->axial == FM_AXIAL_ENDING;
}

/* -- bias */

/* Computes the bias [query, key, head] into the workspace, where it stays for all slabs. */
static void *make_bias(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const fm_attention_shape *shape = &at->shape;
    fm_element act = run->kernels->act;
    bool is_row = shape->axial == FM_AXIAL_ROW;
    int64_t n = shape->n_query, c = at->c_bias;
    const void *from = fm_run_input(run, node, is_row ? IN_Z : IN_X);
    const void *norm = fm_run_param(run, node, is_row ? P_NORM_Z : P_NORM);
    void *bias = fm_run_workspace_act(run, n * n * shape->n_head);
    for (int64_t first = 0; first < n; first += at->bias_slab) {
        int64_t mark = fm_run_mark(run);
        int64_t rows = (n - first < at->bias_slab ? n - first : at->bias_slab) * n;
        fm_norm normed = fm_call_norm(run, rows, c, fm_run_at(from, first * n * c, act), norm);
        fm_linear linear =
            fm_attention_bias(rows, c, shape->n_head, normed.y, fm_run_param(run, node, P_BIAS));
        fm_call_linear(run, &linear, false, fm_run_at(bias, first * n * shape->n_head, act));
        fm_run_release(run, mark);
    }
    return bias;
}

/* -- slabs */

/* Copies columns of x [n0, n1, c] from or to the slab's memory [n0, count, c]. */
static void copy_columns(fm_run *run, const slab *s, int64_t n1, void *whole, bool back) {
    int64_t c = s->shape.c, count = s->shape.n1;
    fm_strided copy = {.rank = 3,
                       .shape = {s->shape.n0, count, c},
                       .x_stride = {n1 * c, c, 1},
                       .y_stride = {count * c, c, 1},
                       .alpha = 1,
                       .x = fm_run_at(whole, s->first * c, run->kernels->act),
                       .y = {s->y, FM_WRITE}};
    if (back) {
        copy.x_stride[0] = count * c, copy.y_stride[0] = n1 * c;
        copy.y.data = (void *)copy.x, copy.x = s->y;
    }
    fm_call_copy_strided(run, &copy);
}

static slab begin_slab(fm_run *run, const fm_node *node, int64_t first) {
    const attributes *at = node->attributes;
    const fm_attention_shape *all = &at->shape;
    int64_t count = all->n_batch - first < at->slab ? all->n_batch - first : at->slab;
    slab s = {
        .shape = *all, .update = all->update, .first = first, .is_copied = takes_columns(all)};
    s.shape.n_batch = count;
    if (s.is_copied) {
        s.shape.n1 = s.update.n1 = count;
        s.update.first1 += first;
    } else {
        s.shape.n0 = s.update.n0 = count;
        s.update.first0 += first;
    }
    s.shape.rows = s.shape.n0 * s.shape.n1;
    if (s.is_copied) {
        s.x = s.y = fm_run_workspace_act(run, s.shape.rows * all->c);
        copy_columns(run, &s, all->n1, fm_run_input(run, node, IN_X), false);
    } else {
        int64_t at_row = first * all->n1 * all->c;
        s.x = fm_run_at(fm_run_input(run, node, IN_X), at_row, run->kernels->act);
        s.y = fm_run_at(fm_run_output(run, node, 0), at_row, run->kernels->act);
    }
    return s;
}

static void project(fm_run *run, const fm_node *node, const slab *s, void *qkvg) {
    fm_linear all = {.rows = s->shape.rows,
                     .c_in = s->shape.c,
                     .c_out = 4 * s->shape.width,
                     .ldx = s->shape.c,
                     .ldy = 4 * s->shape.width,
                     .x = s->x,
                     .w = fm_run_param(run, node, P_QKVG),
                     .bias = fm_run_param(run, node, P_GATE_BIAS),
                     .bias_first = 3 * s->shape.width};
    fm_call_norm_linear(run, &all, fm_run_param(run, node, P_NORM), 0, NULL, NULL, qkvg);
}

static void attend(fm_run *run, const fm_node *node, const slab *s, const void *qkvg,
                   const void *bias, void *o) {
    const fm_attention_shape *all = &((const attributes *)node->attributes)->shape, *at = &s->shape;
    int64_t mark = fm_run_mark(run);
    fm_attention core = fm_attention_core(run, at, qkvg);
    core.mask_stride[1] = s->is_copied ? 1 : all->n1;
    core.mask_stride[2] = s->is_copied ? all->n1 : 1;
    core.mask = fm_run_at(fm_run_input(run, node, IN_MASK), s->first * core.mask_stride[1],
                          run->kernels->act);
    core.o = o;
    core.lse = fm_run_workspace_acc(run, at->n_batch * at->n_head * at->n_query);
    if (bias) fm_attention_set_bias(&core, at, bias);
    fm_call_attention(run, &core);
    fm_run_release(run, mark);
}

static void run_slab(fm_run *run, const fm_node *node, const void *bias, int64_t first) {
    const fm_attention_shape *all = &((const attributes *)node->attributes)->shape;
    slab s = begin_slab(run, node, first);
    void *o = fm_run_workspace_act(run, s.shape.rows * s.shape.width);
    int64_t mark = fm_run_mark(run);
    void *qkvg = fm_run_workspace_act(run, s.shape.rows * 4 * s.shape.width);
    project(run, node, &s, qkvg);
    attend(run, node, &s, qkvg, bias, o);
    fm_run_release(run, mark);
    fm_linear out = fm_attention_out(&s.shape, o, fm_run_param(run, node, P_OUT),
                                     fm_run_param(run, node, P_OUT_BIAS));
    fm_call_linear_update(run, node, &s.update, &out, NULL, s.x, s.y, NULL);
    if (s.is_copied) copy_columns(run, &s, all->n1, fm_run_output(run, node, 0), true);
}

/* -- the op */

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *bias = at->is_bias_given ? fm_run_input(run, node, IN_BIAS) : NULL;
    if (has_bias(&at->shape) && !at->is_bias_given) bias = make_bias(run, node);
    for (int64_t first = 0; first < at->shape.n_batch; first += at->slab) {
        int64_t mark = fm_run_mark(run);
        run_slab(run, node, bias, first);
        fm_run_release(run, mark);
    }
}

static const fm_op ATTENTION_CHUNKED = {"attention", forward, NULL};

fm_tensor_ref fm_op_attention_chunked(fm_tape *tape, const char *name, fm_axial axial,
                                      fm_tensor_ref x, fm_tensor_ref mask, fm_tensor_ref z,
                                      fm_tensor_ref bias, const fm_attention_weights *weights,
                                      double dropout) {
    void *memory;
    assert(!tape->with_gradient && tape->chunk_bytes > 0);
    assert(weights->q_bias == FM_PARAM_NONE && fm_tape_tensor(tape, x)->rank == 3);
    fm_node *node = fm_tape_add(tape, &ATTENTION_CHUNKED, name, sizeof(attributes), &memory);
    attributes *at = memory;
    fm_attention_shape *shape = &at->shape;
    *shape = fm_attention_shape_of(axial, fm_tape_tensor(tape, x), weights, dropout);
    at->is_bias_given = bias != FM_TENSOR_NONE;
    at->c_bias = z != FM_TENSOR_NONE ? fm_tape_tensor(tape, z)->local[2] : shape->c;
    /* x's copy and its norm, q k v g, the output */
    int64_t channels = 2 * shape->c + 5 * shape->width, n = shape->n_query;
    at->slab = fm_call_chunk(tape, shape->n_batch, n * channels);
    at->bias_slab = fm_call_chunk(tape, n, n * at->c_bias);
    fm_node_draws(tape, node);
    fm_attention_assert_zeros(tape, weights, shape->width);
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, mask, false);
    fm_node_input(tape, node, z, false);
    fm_node_input(tape, node, bias, false);
    const fm_param_ref params[N_PARAM] = {weights->norm,  weights->qkvg,     weights->gate_bias,
                                          weights->out,   weights->out_bias, weights->bias,
                                          weights->norm_z};
    for (int i = 0; i < N_PARAM; i++)
        fm_node_param(tape, node, params[i]);
    return fm_node_residual(tape, node, IN_X);
}
