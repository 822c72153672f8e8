/* widen.c: see widen.h. */
#include "trainer/ops/widen.h"

#include "trainer/ops/call.h"
#include "trainer/ops/cast.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, c, c_out;
    int64_t slab;             /* rows at a time */
    const fm_kernels *source; /* the table of x; NULL: the node's own */
} attributes;

enum { P_WEIGHTS, P_BIAS };

/* Returns rows first .. first + count - 1 of x in the node's own type. */
static const void *rows_of(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    const fm_element act = at->source ? at->source->act : run->kernels->act;
    const void *x = fm_run_at(fm_run_input(run, node, 0), first * at->c, act);
    if (!at->source) return x;
    void *wide = fm_run_workspace_act(run, count * at->c);
    if (!run->dry) run->kernels->cast(run->stream, count * at->c, act, x, wide);
    return wide;
}

static void *output_at(const fm_run *run, const fm_node *node, int64_t row) {
    const attributes *at = node->attributes;
    return fm_run_at(fm_run_output(run, node, 0), row * at->c_out, run->kernels->act);
}

static void norm_rows(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    const void *weights = fm_run_param(run, node, P_WEIGHTS);
    fm_call_layernorm(run, &(fm_layernorm){.rows = count,
                                           .c = at->c,
                                           .x = rows_of(run, node, first, count),
                                           .gamma = weights,
                                           .beta = fm_run_at(weights, at->c, run->kernels->act),
                                           .y = output_at(run, node, first)});
}

static void linear_rows(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *at = node->attributes;
    const fm_linear linear = {.rows = count,
                              .c_in = at->c,
                              .c_out = at->c_out,
                              .ldx = at->c,
                              .ldy = at->c_out,
                              .x = rows_of(run, node, first, count),
                              .w = fm_run_param(run, node, P_WEIGHTS),
                              .bias = fm_run_param(run, node, P_BIAS)};
    fm_call_linear(run, &linear, false, output_at(run, node, first));
}

static void forward(fm_run *run, const fm_node *node,
                    void (*work)(fm_run *, const fm_node *, int64_t, int64_t)) {
    const attributes *at = node->attributes;
    for (int64_t first = 0; first < at->rows; first += at->slab) {
        const int64_t left = at->rows - first, mark = fm_run_mark(run);
        work(run, node, first, left < at->slab ? left : at->slab);
        fm_run_release(run, mark);
    }
}

static void norm_forward(fm_run *run, const fm_node *node) {
    forward(run, node, norm_rows);
}

static void linear_forward(fm_run *run, const fm_node *node) {
    forward(run, node, linear_rows);
}

static const fm_op NORM = {"norm", norm_forward, NULL};
static const fm_op LINEAR = {"linear", linear_forward, NULL};

static fm_node *add(fm_tape *tape, const fm_op *op, const char *name, fm_tensor_ref x,
                    int64_t c_out) {
    void *memory;
    assert(!tape->with_gradient && tape->chunk_bytes > 0);
    fm_node *node = fm_tape_add(tape, op, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *from = fm_tape_tensor(tape, x);
    const int64_t c = from->local[from->rank - 1], rows = fm_tensor_local_count(from) / c;
    const bool is_own = from->element == tape->kernels->act;
    *at = (attributes){.rows = rows,
                       .c = c,
                       .c_out = c_out ? c_out : c,
                       .slab = fm_call_chunk(tape, rows, c),
                       .source = is_own ? NULL : fm_cast_source(tape)};
    assert(is_own || from->element == at->source->act);
    node->casts = !is_own;
    fm_node_input(tape, node, x, false);
    return node;
}

fm_tensor_ref fm_op_widen_norm(fm_tape *tape, const char *name, fm_tensor_ref x,
                               fm_param_ref weights) {
    fm_node *node = add(tape, &NORM, name, x, 0);
    fm_node_param(tape, node, weights);
    fm_tensor out = fm_tensor_like(fm_tape_tensor(tape, x), name);
    out.element = tape->kernels->act;
    return fm_node_output_described(tape, node, &out);
}

fm_tensor_ref fm_op_widen_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                                 const fm_linear_weights *weights) {
    fm_node *node = add(tape, &LINEAR, name, x, weights->c_out);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    fm_tensor out = fm_tensor_of_width(fm_tape_tensor(tape, x), name, weights->c_out);
    out.element = tape->kernels->act;
    return fm_node_output_described(tape, node, &out);
}
