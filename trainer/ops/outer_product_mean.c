/* outer_product_mean.c: see outer_product_mean.h. */
#include "trainer/ops/outer_product_mean.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n_seq, n_res, c_m, c, c_z;
} attributes;

static const double OUTER_EPS = 1e-3;

enum { IN_M, IN_MASK, IN_Z };
enum { P_NORM, P_AB, P_AB_BIAS, P_OUT, P_OUT_BIAS };

static fm_linear projection(const fm_run *run, const fm_node *node, const void *normed) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n_seq * at->n_res,
                       .c_in = at->c_m,
                       .c_out = 2 * at->c,
                       .ldx = at->c_m,
                       .ldy = 2 * at->c,
                       .x = normed,
                       .w = fm_run_param(run, node, P_AB),
                       .bias = fm_run_param(run, node, P_AB_BIAS)};
}

static fm_outer core_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    const void *ab = fm_run_saved(run, node, 0), *mask = fm_run_input(run, node, IN_MASK);
    return (fm_outer){.n_seq = at->n_seq,
                      .n_i = at->n_res,
                      .n_j = at->n_res,
                      .c = at->c,
                      .c_z = at->c_z,
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

static fm_norm norm_m(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return fm_call_norm(run, at->n_seq * at->n_res, at->c_m, fm_run_input(run, node, IN_M),
                        fm_run_param(run, node, P_NORM));
}

static void forward(fm_run *run, const fm_node *node) {
    void *ab = fm_run_saved(run, node, 0);
    int64_t mark = fm_run_mark(run);
    fm_norm normed = norm_m(run, node); /* A10:1 */
    fm_linear linear = projection(run, node, normed.y);
    fm_call_linear(run, &linear, false, ab); /* A10:2 */
    fm_run_release(run, mark);
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

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t rows = at->n_seq * at->n_res;
    void *dab = fm_run_workspace_act(run, rows * 2 * at->c);
    fm_outer core = core_of(run, node);
    fm_outer_grad grad = {.dz = fm_run_output_gradient(run, node, 0),
                          .da = {dab, FM_WRITE},
                          .db = {fm_run_at(dab, at->c, run->kernels->act), FM_WRITE},
                          .dw = fm_run_param_gradient(run, node, P_OUT),
                          .dbias = fm_run_param_gradient(run, node, P_OUT_BIAS)};
    fm_call_outer_grad(run, &core, &grad);
    fm_norm normed = norm_m(run, node);
    fm_out dm = fm_run_gradient(run, node, IN_M);
    fm_out dnormed = fm_call_norm_gradient(run, &normed, dm);
    fm_linear linear = projection(run, node, normed.y);
    fm_call_linear_grad(run, &linear, dab, dnormed, fm_run_param_gradient(run, node, P_AB),
                        fm_run_param_gradient(run, node, P_AB_BIAS));
    fm_call_norm_grad(run, &normed, dnormed.data, dm, fm_run_param_gradient(run, node, P_NORM));
}

static const fm_op OUTER_PRODUCT_MEAN = {"outer product mean", forward, backward};

fm_tensor_ref fm_op_outer_product_mean(fm_tape *tape, const char *name, fm_tensor_ref m,
                                       fm_tensor_ref mask, fm_tensor_ref z,
                                       const fm_outer_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &OUTER_PRODUCT_MEAN, name, sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, m);
    assert(x->rank == 3);
    *at = (attributes){.n_seq = x->local[0],
                       .n_res = x->local[1],
                       .c_m = x->local[2],
                       .c = weights->c,
                       .c_z = weights->c_z};
    fm_node_input(tape, node, m, true);
    fm_node_input(tape, node, mask, true);
    fm_node_input(tape, node, z, false);
    const fm_param_ref params[] = {weights->norm, weights->ab, weights->ab_bias, weights->out,
                                   weights->out_bias};
    for (int i = 0; i < 5; i++) {
        fm_node_param(tape, node, params[i]);
    }
    fm_node_save(tape, node, FM_KEEP, x->element, 3, (int64_t[]){at->n_seq, at->n_res, 2 * at->c});
    if (z != FM_TENSOR_NONE) {
        return fm_node_residual(tape, node, IN_Z);
    }
    return fm_node_output(tape, node, x->element, 3, (int64_t[]){at->n_res, at->n_res, at->c_z});
}
