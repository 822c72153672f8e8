/* pair_linear.c: see pair_linear.h. */
#include "trainer/ops/pair_linear.h"

#include "trainer/ops/call.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/relative_position.h"

#include <assert.h>

typedef struct attributes {
    int64_t lines, n, c;   /* of x: [lines, n, c] */
    int64_t first;         /* the number of the first line among all */
    int64_t c_norm, c_out; /* channels of f and of y */
    int64_t slab;          /* lines at a time */
    fm_norm_kind kind;
    bool is_symmetric, has_positions;
    const fm_kernels *source; /* the table of x; NULL: the node's own */
} attributes;

enum { IN_X, IN_POSITIONS };
enum { P_NORM, P_WEIGHTS, P_BIAS, P_POSITIONS };

/* Some lines of x, from `first` on. */
typedef struct lines {
    int64_t first, count;
} lines;

/* Returns `elements` elements of x's type in the type of the node, in the workspace if they differ.
 */
static const void *widened(fm_run *run, const attributes *at, const void *x, int64_t elements) {
    if (!at->source) return x;
    void *wide = fm_run_workspace_act(run, elements);
    if (!run->dry) run->kernels->cast(run->stream, elements, at->source->act, x, wide);
    return wide;
}

/* Returns x_ji for the lines i, [count, n, c] in the node's type. */
static const void *turned(fm_run *run, const fm_node *node, lines of) {
    const attributes *at = node->attributes;
    const fm_kernels *source = at->source ? at->source : run->kernels;
    const int64_t elements = of.count * at->n * at->c;
    void *y = fm_run_workspace(run, elements * (int64_t)fm_element_bytes(source->act));
    const fm_strided args = {
        .rank = 3,
        .shape = {of.count, at->n, at->c},
        .x_stride = {at->c, at->n * at->c, 1},
        .y_stride = {at->n * at->c, at->c, 1},
        .alpha = 1,
        .x = fm_run_at(fm_run_input(run, node, IN_X), of.first * at->c, source->act),
        .y = {y, FM_WRITE}};
    if (!run->dry) source->copy_strided(run->stream, &args);
    return widened(run, at, y, elements);
}

static const void *lines_of(fm_run *run, const fm_node *node, lines of) {
    const attributes *at = node->attributes;
    const fm_element act = at->source ? at->source->act : run->kernels->act;
    const int64_t line = at->n * at->c;
    return widened(run, at, fm_run_at(fm_run_input(run, node, IN_X), of.first * line, act),
                   of.count * line);
}

static const void *sum_with_turned(fm_run *run, const fm_node *node, lines of) {
    const attributes *at = node->attributes;
    const int64_t elements = of.count * at->n * at->c;
    void *sum = fm_run_workspace_act(run, elements);
    fm_call_copy(run, elements, lines_of(run, node, of), sum);
    fm_call_axpy(run, elements, 1.0, turned(run, node, of), (fm_out){sum, FM_ADD});
    return sum;
}

/* Writes [pairs, c] to the columns from `column` on of f [pairs, 2 c]. */
static void put_columns(fm_run *run, const attributes *at, int64_t pairs, const void *x,
                        int64_t column, void *f) {
    fm_call_copy_strided(run,
                         &(fm_strided){.rank = 2,
                                       .shape = {pairs, at->c},
                                       .x_stride = {at->c, 1},
                                       .y_stride = {at->c_norm, 1},
                                       .alpha = 1,
                                       .x = x,
                                       .y = {fm_run_at(f, column, run->kernels->act), FM_WRITE}});
}

static const void *with_positions(fm_run *run, const fm_node *node, lines of) {
    const attributes *at = node->attributes;
    const int64_t pairs = of.count * at->n;
    void *f = fm_run_workspace_act(run, pairs * at->c_norm);
    void *encoding = fm_run_workspace_act(run, pairs * at->c);
    put_columns(run, at, pairs, lines_of(run, node, of), 0, f);
    fm_call_relative_position(run,
                              &(fm_relative_rows){.all = at->n * at->n,
                                                  .first = (at->first + of.first) * at->n,
                                                  .pairs = pairs,
                                                  .c = at->c,
                                                  .ids = fm_run_input(run, node, IN_POSITIONS),
                                                  .w = fm_run_param(run, node, P_POSITIONS)},
                              encoding);
    put_columns(run, at, pairs, encoding, at->c, f);
    return f;
}

static void run_slab(fm_run *run, const fm_node *node, lines of) {
    const attributes *at = node->attributes;
    const int64_t pairs = of.count * at->n;
    const fm_element act = run->kernels->act;
    const void *gamma = fm_run_param(run, node, P_NORM);
    const void *f = at->has_positions  ? with_positions(run, node, of)
                    : at->is_symmetric ? sum_with_turned(run, node, of)
                                       : lines_of(run, node, of);
    void *normed = fm_run_workspace_act(run, pairs * at->c_norm);
    fm_call_layernorm(
        run,
        &(fm_layernorm){.rows = pairs,
                        .c = at->c_norm,
                        .x = f,
                        .gamma = gamma,
                        .beta = at->kind == FM_NORM_WIDE ? fm_run_at(gamma, at->c_norm, act) : NULL,
                        .y = normed});
    const fm_linear linear = {.rows = pairs,
                              .c_in = at->c_norm,
                              .c_out = at->c_out,
                              .ldx = at->c_norm,
                              .ldy = at->c_out,
                              .x = normed,
                              .w = fm_run_param(run, node, P_WEIGHTS),
                              .bias = fm_run_param(run, node, P_BIAS)};
    fm_call_linear(run, &linear, false,
                   fm_run_at(fm_run_output(run, node, 0), of.first * at->n * at->c_out, act));
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    for (int64_t first = 0; first < at->lines; first += at->slab) {
        const int64_t left = at->lines - first, mark = fm_run_mark(run);
        run_slab(run, node, (lines){first, left < at->slab ? left : at->slab});
        fm_run_release(run, mark);
    }
}

static const fm_op PAIR_LINEAR = {"linear of pairs", forward, NULL};

fm_tensor_ref fm_op_pair_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                                const fm_pair_linear *features, const fm_linear_weights *weights) {
    void *memory;
    assert(!tape->with_gradient && tape->chunk_bytes > 0);
    fm_node *node = fm_tape_add(tape, &PAIR_LINEAR, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *from = fm_tape_tensor(tape, x);
    const bool is_own = from->element == tape->kernels->act;
    const bool has_positions = features->positions != FM_TENSOR_NONE;
    const int64_t c = from->local[2];
    assert(from->rank == 3 && from->shard_axis <= 0);
    assert(!features->is_symmetric || from->local[0] == from->local[1]);
    *at = (attributes){.lines = from->local[0],
                       .n = from->local[1],
                       .c = c,
                       .first = fm_tensor_first(from, 0),
                       .c_norm = has_positions ? 2 * c : c,
                       .c_out = weights->c_out,
                       .kind = features->kind,
                       .is_symmetric = features->is_symmetric,
                       .has_positions = has_positions,
                       .source = is_own ? NULL : fm_cast_source(tape)};
    assert(is_own || from->element == at->source->act);
    at->slab = fm_call_chunk(tape, at->lines, at->n * 5 * at->c_norm);
    node->casts = !is_own;
    fm_node_input(tape, node, x, false);
    fm_node_input(tape, node, features->positions, false);
    const fm_param_ref params[] = {features->norm, weights->w, weights->b,
                                   has_positions ? features->position_weights : FM_PARAM_NONE};
    for (size_t i = 0; i < sizeof params / sizeof params[0]; i++)
        fm_node_param(tape, node, params[i]);
    fm_tensor out = fm_tensor_of_width(from, name, weights->c_out);
    out.element = tape->kernels->act;
    return fm_node_output_described(tape, node, &out);
}
