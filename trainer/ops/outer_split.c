/* outer_split.c: see outer_split.h. */
#include "trainer/ops/outer_split.h"

#include "trainer/ops/call.h"

#include <assert.h>

/* ---- operands -------------------------------------------------------------------------------- */

typedef struct operand_attributes {
    int64_t n_seq, n_res, c_m, c;
} operand_attributes;

enum { IN_M };
enum { P_NORM, P_AB, P_AB_BIAS };

static fm_norm norm_m(fm_run *run, const fm_node *node) {
    const operand_attributes *at = node->attributes;
    return fm_call_norm(run, at->n_seq * at->n_res, at->c_m, fm_run_input(run, node, IN_M),
                        fm_run_param(run, node, P_NORM));
}

static fm_linear projection(const fm_run *run, const fm_node *node, const void *normed) {
    const operand_attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = at->c_m,
                       .c_out = 2 * at->c,
                       .ldx = at->c_m,
                       .ldy = 2 * at->c,
                       .x = normed,
                       .w = fm_run_param(run, node, P_AB),
                       .bias = fm_run_param(run, node, P_AB_BIAS)};
}

/* Half 0 of ab [n_seq, n_res, 2c] is a [n_seq, n_res, c], half 1 is b [n_res, n_seq, c]. */
static fm_strided half_of(const fm_run *run, const operand_attributes *at, int half,
                          const void *ab) {
    fm_strided copy = {.rank = 3,
                       .shape = {at->n_seq, at->n_res, at->c},
                       .x_stride = {at->n_res * 2 * at->c, 2 * at->c, 1},
                       .y_stride = {at->n_res * at->c, at->c, 1},
                       .alpha = 1,
                       .x = fm_run_at(ab, half * at->c, run->kernels->act)};
    if (half == 1) {
        copy.y_stride[0] = at->c;
        copy.y_stride[1] = at->n_seq * at->c;
    }
    return copy;
}

static void operands_forward(fm_run *run, const fm_node *node) {
    const operand_attributes *at = node->attributes;
    int64_t rows = at->n_seq * at->n_res;
    if (!fm_run_wants_output(run)) {
        return;
    }
    void *ab = fm_run_workspace_act(run, rows * 2 * at->c);
    fm_norm normed = norm_m(run, node); /* A10:1 */
    fm_linear linear = projection(run, node, normed.y);
    fm_call_linear(run, &linear, false, ab); /* A10:2 */
    for (int half = 0; half < 2; half++) {
        fm_strided copy = half_of(run, at, half, ab);
        copy.y = (fm_out){fm_run_output(run, node, half), FM_WRITE};
        fm_call_copy_strided(run, &copy);
    }
}

static void operands_backward(fm_run *run, const fm_node *node) {
    const operand_attributes *at = node->attributes;
    int64_t rows = at->n_seq * at->n_res;
    void *dab = fm_run_workspace_act(run, rows * 2 * at->c);
    for (int half = 0; half < 2; half++) {
        fm_strided copy = half_of(run, at, half, dab);
        fm_strided back = copy;
        for (int i = 0; i < 3; i++) {
            back.x_stride[i] = copy.y_stride[i];
            back.y_stride[i] = copy.x_stride[i];
        }
        back.x = fm_run_output_gradient(run, node, half);
        back.y = (fm_out){fm_run_at(dab, half * at->c, run->kernels->act), FM_WRITE};
        fm_call_copy_strided(run, &back);
    }
    fm_norm normed = norm_m(run, node);
    void *dnormed = fm_run_workspace_act(run, rows * at->c_m);
    fm_linear linear = projection(run, node, normed.y);
    fm_call_linear_grad(run, &linear, dab, (fm_out){dnormed, FM_WRITE},
                        fm_run_param_gradient(run, node, P_AB),
                        fm_run_param_gradient(run, node, P_AB_BIAS));
    fm_call_norm_grad(run, &normed, dnormed, fm_run_gradient(run, node, IN_M),
                      fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op OPERANDS = {"outer product operands", operands_forward, operands_backward};

fm_outer_operands fm_op_outer_operands(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       const fm_outer_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OPERANDS, name, sizeof(operand_attributes), &memory);
    fm_tensor x = *fm_tape_tensor(tape, m);
    assert(x.rank == 3 && (x.shard_axis == -1 || x.shard_axis == 1));
    *(operand_attributes *)memory = (operand_attributes){
        .n_seq = x.local[0], .n_res = x.local[1], .c_m = x.local[2], .c = weights->c};
    fm_node_input(tape, node, m, true);
    fm_node_param(tape, node, weights->norm);
    fm_node_param(tape, node, weights->ab);
    fm_node_param(tape, node, weights->ab_bias);
    fm_tensor a = fm_tensor_of_width(&x, name, weights->c), b;
    fm_tensor_init(&b, name, x.element, 3, (int64_t[]){x.shape[1], x.shape[0], weights->c});
    if (x.shard_axis >= 0) {
        fm_tensor_shard(&b, 0, x.shard_rank, x.shard_count);
    }
    fm_tensor_ref first = fm_node_output_described(tape, node, &a);
    return (fm_outer_operands){first, fm_node_output_described(tape, node, &b)};
}

/* ---- core ------------------------------------------------------------------------------------ */

typedef struct core_attributes {
    int64_t n_seq, n_i, n_j, c, c_z;
} core_attributes;

static const double OUTER_EPS = 1e-3;

enum { IN_A, IN_B, IN_MASK_A, IN_MASK_B, IN_Z };
enum { P_OUT, P_OUT_BIAS };

static fm_outer core_of(const fm_run *run, const fm_node *node) {
    const core_attributes *at = node->attributes;
    return (fm_outer){.n_seq = at->n_seq,
                      .n_i = at->n_i,
                      .n_j = at->n_j,
                      .c = at->c,
                      .c_z = at->c_z,
                      .eps = OUTER_EPS,
                      .a = fm_run_input(run, node, IN_A),
                      .b = fm_run_input(run, node, IN_B),
                      .a_stride = {at->n_i * at->c, at->c},
                      .b_stride = {at->c, at->n_seq * at->c},
                      .mask_a = fm_run_input(run, node, IN_MASK_A),
                      .mask_b = fm_run_input(run, node, IN_MASK_B),
                      .w = fm_run_param(run, node, P_OUT),
                      .bias = fm_run_param(run, node, P_OUT_BIAS)};
}

static void core_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) {
        return;
    }
    fm_outer core = core_of(run, node);
    core.z = (fm_out){fm_run_output(run, node, 0), FM_WRITE};
    if (node->residual >= 0) {
        core.residual = fm_run_input(run, node, IN_Z);
    }
    fm_call_outer(run, &core); /* A10:3-4 */
}

static void core_backward(fm_run *run, const fm_node *node) {
    fm_outer core = core_of(run, node);
    fm_outer_grad grad = {.dz = fm_run_output_gradient(run, node, 0),
                          .da = fm_run_gradient(run, node, IN_A),
                          .db = fm_run_gradient(run, node, IN_B),
                          .dw = fm_run_param_gradient(run, node, P_OUT),
                          .dbias = fm_run_param_gradient(run, node, P_OUT_BIAS)};
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
                            .n_j = b->local[0],
                            .c = weights->c,
                            .c_z = weights->c_z};
    assert(b->local[1] == at->n_seq && mask_b->local[1] == at->n_j);
    fm_node_input(tape, node, operands->a, true);
    fm_node_input(tape, node, operands->b, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, whole_mask, true);
    fm_node_input(tape, node, z, false);
    fm_node_param(tape, node, weights->out);
    fm_node_param(tape, node, weights->out_bias);
    if (z != FM_TENSOR_NONE) {
        assert(fm_tape_tensor(tape, z)->local[0] == at->n_i);
        return fm_node_residual(tape, node, IN_Z);
    }
    fm_tensor out;
    fm_tensor_init(&out, name, a->element, 3, (int64_t[]){at->n_j, at->n_j, at->c_z});
    if (part.count > 1) {
        fm_tensor_shard(&out, 0, part.rank, part.count);
    }
    assert(out.local[0] == at->n_i);
    return fm_node_output_described(tape, node, &out);
}
