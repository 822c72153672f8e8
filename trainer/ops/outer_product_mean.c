/* outer_product_mean.c: see outer_product_mean.h. The whole sublayer is one node; on split arrays
 * it is two, and both forms share the projection to a and b.
 *
 * The single node computes a and b side by side, ab [n_seq, n_res, 2c], and passes both halves to
 * the kernel as strided views. The split form computes them separately, by two products, because b
 * is gathered over ranks. Backward copies both gradients side by side, for one product of each
 * kind. */
#include "trainer/ops/outer_product_mean.h"

#include "trainer/ops/call.h"

#include <assert.h>

static const double OUTER_EPS = 1e-3;

static int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* -- the projection to a and b */

typedef struct projection_shape {
    int64_t n_seq, n_res, c_m, c;
} projection_shape;

/* Of both nodes that project; m is their first input. */
enum { IN_M };
enum { P_NORM, P_AB, P_AB_BIAS, N_PROJECTION_PARAM };

static projection_shape shape_of(const fm_tensor *m, const fm_outer_weights *weights) {
    assert(m->rank == 3);
    return (projection_shape){
        .n_seq = m->local[0], .n_res = m->local[1], .c_m = m->local[2], .c = weights->c};
}

static void add_projection_params(fm_tape *tape, fm_node *node, const fm_outer_weights *weights) {
    fm_node_param(tape, node, weights->norm);
    fm_node_param(tape, node, weights->ab);
    fm_node_param(tape, node, weights->ab_bias);
}

static fm_norm norm_m(fm_run *run, const fm_node *node, const projection_shape *at) {
    return fm_call_norm(run, at->n_seq * at->n_res, at->c_m, fm_run_input(run, node, IN_M),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear projection(const fm_run *run, const fm_node *node, const projection_shape *at,
                            const void *normed) {
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = at->c_m,
                       .c_out = 2 * at->c,
                       .ldx = at->c_m,
                       .ldy = 2 * at->c,
                       .x = normed,
                       .w = fm_run_param(run, node, P_AB),
                       .bias = fm_run_param(run, node, P_AB_BIAS)};
}

/* Computes a and b of sequences first .. first + count - 1. */
static void project(fm_run *run, const fm_node *node, const projection_shape *at, int64_t first,
                    int64_t count, void *ab) {
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run), row = first * at->n_res;
    fm_norm normed = fm_call_norm(run, count * at->n_res, at->c_m,
                                  fm_run_at(fm_run_input(run, node, IN_M), row * at->c_m, act),
                                  fm_run_param(run, node, P_NORM)); /* A10:1 */
    fm_linear linear = projection(run, node, at, normed.y);
    linear.rows = count * at->n_res;
    fm_call_linear(run, &linear, false, fm_run_at(ab, row * 2 * at->c, act)); /* A10:2 */
    fm_run_release(run, mark);
}

/* dab: the gradient of ab. */
static void project_backward(fm_run *run, const fm_node *node, const projection_shape *at,
                             const void *dab) {
    fm_norm normed = norm_m(run, node, at);
    fm_out dm = fm_run_gradient(run, node, IN_M);
    fm_out dnormed = fm_call_norm_gradient(run, &normed, dm);
    fm_linear linear = projection(run, node, at, normed.y);
    fm_call_linear_grad(run, &linear, dab, dnormed, fm_run_param_gradient(run, node, P_AB),
                        fm_run_param_gradient(run, node, P_AB_BIAS));
    fm_call_norm_grad(run, &normed, dnormed.data, dm, fm_run_param_gradient(run, node, P_NORM));
}

/* -- one node */

typedef struct attributes {
    projection_shape shape;
    int64_t c_z;
    int64_t chunk, row_chunk; /* residues i, and rows of m, that forward takes at a time */
} attributes;

enum { IN_MASK = IN_M + 1, IN_Z };
enum { P_OUT = N_PROJECTION_PARAM, P_OUT_BIAS };

static fm_outer core_of(const fm_run *run, const fm_node *node) {
    const attributes *all = node->attributes;
    const projection_shape *at = &all->shape;
    const void *ab = fm_run_saved(run, node, 0), *mask = fm_run_input(run, node, IN_MASK);
    return (fm_outer){.n_seq = at->n_seq,
                      .n_i = at->n_res,
                      .n_j = at->n_res,
                      .c = at->c,
                      .c_z = all->c_z,
                      .eps = OUTER_EPS,
                      .a = ab,
                      .b = fm_run_at(ab, at->c, run->kernels->act),
                      .a_stride = {at->n_res * 2 * at->c, 2 * at->c},
                      .b_stride = {at->n_res * 2 * at->c, 2 * at->c},
                      .mask_a = mask,
                      .mask_b = mask,
                      .w = fm_run_param(run, node, P_OUT),
                      .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

/* Computes the pairs of residues i = first .. first + count - 1 with all j, on a tape without
 * gradient. */
static void forward_residues(fm_run *run, const fm_node *node, int64_t first, int64_t count) {
    const attributes *all = node->attributes;
    const projection_shape *at = &all->shape;
    fm_element act = run->kernels->act;
    int64_t mark = fm_run_mark(run), from = first * at->n_res * all->c_z;
    fm_outer core = core_of(run, node);
    void *mask = fm_run_workspace_act(run, at->n_seq * count);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {at->n_seq, count},
                                            .x_stride = {at->n_res, 1},
                                            .y_stride = {count, 1},
                                            .alpha = 1,
                                            .x = fm_run_at(core.mask_a, first, act),
                                            .y = {mask, FM_WRITE}});
    core.n_i = count;
    core.a = fm_run_at(core.a, first * core.a_stride[1], act);
    core.mask_a = mask;
    core.z = (fm_out){fm_run_at(fm_run_output(run, node, 0), from, act), FM_WRITE};
    if (node->residual >= 0) core.residual = fm_run_at(fm_run_input(run, node, IN_Z), from, act);
    fm_call_outer(run, &core); /* A10:3-4 */
    fm_run_release(run, mark);
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t n = at->shape.n_res;
    for (int64_t s = 0; s < at->shape.n_seq; s += at->row_chunk)
        project(run, node, &at->shape, s, least(at->shape.n_seq - s, at->row_chunk),
                fm_run_saved(run, node, 0));
    if (!fm_run_wants_output(run)) return;
    for (int64_t first = 0; first < n && at->chunk < n; first += at->chunk)
        forward_residues(run, node, first, least(n - first, at->chunk));
    if (at->chunk < n) return;
    fm_outer core = core_of(run, node);
    core.z = (fm_out){fm_run_output(run, node, 0), FM_WRITE};
    if (node->residual >= 0) core.residual = fm_run_input(run, node, IN_Z);
    fm_call_outer(run, &core); /* A10:3-4 */
}

static void backward(fm_run *run, const fm_node *node) {
    const projection_shape *at = &((const attributes *)node->attributes)->shape;
    void *dab = fm_run_workspace_act(run, at->n_seq * at->n_res * 2 * at->c);
    fm_outer core = core_of(run, node);
    fm_outer_grad grad = {.dz = fm_run_output_gradient(run, node, 0),
                          .da = {dab, FM_WRITE},
                          .db = {fm_run_at(dab, at->c, run->kernels->act), FM_WRITE},
                          .dw = fm_run_param_gradient(run, node, P_OUT),
                          .dbias = fm_run_param_gradient(run, node, P_OUT_BIAS)};
    fm_call_outer_grad(run, &core, &grad);
    project_backward(run, node, at, dab);
}

static const fm_op OUTER_PRODUCT_MEAN = {"outer product mean", forward, backward};

fm_tensor_ref fm_op_outer_product_mean(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_outer_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OUTER_PRODUCT_MEAN, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, m);
    *at = (attributes){.shape = shape_of(x, weights), .c_z = weights->c_z};
    int64_t n_seq = at->shape.n_seq, n_res = at->shape.n_res;
    at->chunk = n_res, at->row_chunk = n_seq;
    if (tape->chunk_bytes > 0) {
        at->chunk = fm_call_chunk(tape, n_res, n_res * at->c_z);
        at->row_chunk = fm_call_chunk(tape, n_seq, n_res * at->shape.c_m);
    }
    fm_node_input(tape, node, m, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, z, false);
    add_projection_params(tape, node, weights);
    fm_node_param(tape, node, weights->out);
    fm_node_param(tape, node, weights->out_bias);
    fm_node_save(tape, node, weights->keep_operands, x->element, 3,
                 (int64_t[]){n_seq, n_res, 2 * at->shape.c});
    if (z != FM_TENSOR_NONE) return fm_node_residual(tape, node, IN_Z);
    return fm_node_output(tape, node, x->element, 3, (int64_t[]){n_res, n_res, at->c_z});
}

/* -- operands, on split arrays */

static void operands_forward(fm_run *run, const fm_node *node) {
    const projection_shape *at = node->attributes;
    fm_element act = run->kernels->act;
    if (!fm_run_wants_output(run)) return;
    fm_norm normed = norm_m(run, node, at); /* A10:1 */
    for (int half = 0; half < 2; half++) {  /* A10:2 */
        fm_linear linear = projection(run, node, at, normed.y);
        linear.c_out = linear.ldy = at->c;
        linear.w = fm_run_at(linear.w, half * at->c * at->c_m, act);
        linear.bias = fm_run_at(linear.bias, half * at->c, act);
        fm_call_linear(run, &linear, false, fm_run_output(run, node, half));
    }
}

static void operands_backward(fm_run *run, const fm_node *node) {
    const projection_shape *at = node->attributes;
    int64_t rows = at->n_seq * at->n_res;
    void *dab = fm_run_workspace_act(run, rows * 2 * at->c);
    for (int half = 0; half < 2; half++) {
        fm_call_copy_strided(
            run, &(fm_strided){.rank = 2,
                               .shape = {rows, at->c},
                               .x_stride = {at->c, 1},
                               .y_stride = {2 * at->c, 1},
                               .alpha = 1,
                               .x = fm_run_output_gradient(run, node, half),
                               .y = {fm_run_at(dab, half * at->c, run->kernels->act), FM_WRITE}});
    }
    project_backward(run, node, at, dab);
}

static const fm_op OPERANDS = {"outer product operands", operands_forward, operands_backward};

fm_outer_operands fm_op_outer_operands(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       const fm_outer_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OPERANDS, name, sizeof(projection_shape), &memory);
    fm_tensor x = *fm_tape_tensor(tape, m);
    assert(x.shard_axis == -1 || x.shard_axis == 1);
    *(projection_shape *)memory = shape_of(&x, weights);
    fm_node_input(tape, node, m, true);
    add_projection_params(tape, node, weights);
    fm_tensor operand = fm_tensor_of_width(&x, name, weights->c);
    fm_tensor_ref a = fm_node_output_described(tape, node, &operand);
    return (fm_outer_operands){a, fm_node_output_described(tape, node, &operand)};
}

/* -- core, on split arrays */

typedef struct core_attributes {
    int64_t n_seq, n_i, n_j, c, c_z;
} core_attributes;

enum { CORE_A, CORE_B, CORE_MASK_A, CORE_MASK_B, CORE_Z };
enum { CORE_OUT, CORE_OUT_BIAS };

static fm_outer split_core_of(const fm_run *run, const fm_node *node) {
    const core_attributes *at = node->attributes;
    return (fm_outer){.n_seq = at->n_seq,
                      .n_i = at->n_i,
                      .n_j = at->n_j,
                      .c = at->c,
                      .c_z = at->c_z,
                      .eps = OUTER_EPS,
                      .a = fm_run_input(run, node, CORE_A),
                      .b = fm_run_input(run, node, CORE_B),
                      .a_stride = {at->n_i * at->c, at->c},
                      .b_stride = {at->n_j * at->c, at->c},
                      .mask_a = fm_run_input(run, node, CORE_MASK_A),
                      .mask_b = fm_run_input(run, node, CORE_MASK_B),
                      .w = fm_run_param(run, node, CORE_OUT),
                      .bias = fm_run_param(run, node, CORE_OUT_BIAS)};
}

static void core_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_outer core = split_core_of(run, node);
    core.z = (fm_out){fm_run_output(run, node, 0), FM_WRITE};
    if (node->residual >= 0) core.residual = fm_run_input(run, node, CORE_Z);
    fm_call_outer(run, &core); /* A10:3-4 */
}

static void core_backward(fm_run *run, const fm_node *node) {
    fm_outer core = split_core_of(run, node);
    fm_outer_grad grad = {.dz = fm_run_output_gradient(run, node, 0),
                          .da = fm_run_gradient(run, node, CORE_A),
                          .db = fm_run_gradient(run, node, CORE_B),
                          .dw = fm_run_param_gradient(run, node, CORE_OUT),
                          .dbias = fm_run_param_gradient(run, node, CORE_OUT_BIAS)};
    fm_call_outer_grad(run, &core, &grad);
}

static const fm_op CORE = {"outer product core", core_forward, core_backward};

fm_tensor_ref fm_op_outer_core(fm_tape *tape, const char *name, const fm_outer_operands *operands,
                               fm_tensor_ref mask, fm_tensor_ref whole_mask, fm_tensor_ref z,
                               const fm_outer_weights *weights, fm_part part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &CORE, name, sizeof(core_attributes), &memory);
    const fm_tensor *a = fm_tape_tensor(tape, operands->a), *b = fm_tape_tensor(tape, operands->b);
    const fm_tensor *mask_b = fm_tape_tensor(tape, whole_mask);
    core_attributes *at = memory;
    *at = (core_attributes){.n_seq = a->local[0],
                            .n_i = a->local[1],
                            .n_j = b->local[1],
                            .c = weights->c,
                            .c_z = weights->c_z};
    assert(b->local[0] == at->n_seq && mask_b->local[1] == at->n_j);
    fm_node_input(tape, node, operands->a, true);
    fm_node_input(tape, node, operands->b, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, whole_mask, true);
    fm_node_input(tape, node, z, false);
    fm_node_param(tape, node, weights->out);
    fm_node_param(tape, node, weights->out_bias);
    if (z != FM_TENSOR_NONE) {
        assert(fm_tape_tensor(tape, z)->local[0] == at->n_i);
        return fm_node_residual(tape, node, CORE_Z);
    }
    fm_tensor out;
    fm_tensor_init(&out, name, a->element, 3, (int64_t[]){at->n_j, at->n_j, at->c_z});
    if (part.count > 1) fm_tensor_shard(&out, 0, part.rank, part.count);
    assert(out.local[0] == at->n_i);
    return fm_node_output_described(tape, node, &out);
}
