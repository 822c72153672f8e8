/* distogram.c: the distogram head and its loss; see losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call.h"

#include <assert.h>

typedef struct attributes {
    int64_t n, c_z;
    fm_distogram_options options;
} attributes;

enum { IN_Z, IN_POSITIONS, IN_MASK };
enum { P_W, P_B };
enum { S_LOGITS, S_LSE, S_WEIGHT_SUM, S_TARGET, S_WEIGHT };

static fm_linear head_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->n * at->n,
                       .c_in = at->c_z,
                       .c_out = at->options.n_bin,
                       .ldx = at->c_z,
                       .ldy = at->options.n_bin,
                       .x = fm_run_input(run, node, IN_Z),
                       .w = fm_run_param(run, node, P_W),
                       .bias = fm_run_param(run, node, P_B)};
}

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_cross_entropy){.rows = at->n * at->n,
                              .n_class = at->options.n_bin,
                              .ldx = at->options.n_bin,
                              .eps = at->options.eps,
                              .x = fm_run_saved(run, node, S_LOGITS),
                              .target = fm_run_saved(run, node, S_TARGET),
                              .w = fm_run_saved(run, node, S_WEIGHT),
                              .lse = fm_run_saved(run, node, S_LSE),
                              .weight_sum = fm_run_saved(run, node, S_WEIGHT_SUM)};
}

/* y_ij = x_ij + x_ji over [n, n, n_bin]. */
static void symmetrise(fm_run *run, const attributes *at, const void *x, void *y) {
    int64_t n = at->n, bins = at->options.n_bin;
    fm_call_copy(run, n * n * bins, x, y);
    fm_call_copy_strided(run, &(fm_strided){.rank = 3,
                                            .shape = {n, n, bins},
                                            .x_stride = {bins, n * bins, 1},
                                            .y_stride = {n * bins, bins, 1},
                                            .alpha = 1,
                                            .x = x,
                                            .y = {y, FM_ADD}});
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *half = fm_run_workspace_act(run, at->n * at->n * at->options.n_bin);
    fm_linear head = head_of(run, node);
    fm_call_linear(run, &head, false, half);
    symmetrise(run, at, half, fm_run_saved(run, node, S_LOGITS));
    const float *x = fm_run_input(run, node, IN_POSITIONS);
    const float *mask = fm_run_input(run, node, IN_MASK);
    fm_call_distance_bins(run, at->n, x, mask, at->options.n_bin, at->options.first,
                          at->options.last, fm_run_saved(run, node, S_TARGET),
                          fm_run_saved(run, node, S_WEIGHT));
    fm_cross_entropy entropy = entropy_of(run, node);
    entropy.loss = fm_run_output(run, node, 0); /* supplement 1.9.8, eq. 41 */
    fm_call_cross_entropy(run, &entropy);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t count = at->n * at->n * at->options.n_bin;
    void *dlogits = fm_run_workspace_act(run, count), *dhalf = fm_run_workspace_act(run, count);
    fm_cross_entropy entropy = entropy_of(run, node);
    fm_call_cross_entropy_grad(run, &entropy, fm_run_output_gradient(run, node, 0),
                               (fm_out){dlogits, FM_WRITE});
    symmetrise(run, at, dlogits, dhalf);
    fm_linear head = head_of(run, node);
    fm_call_linear_grad(run, &head, dhalf, fm_run_gradient(run, node, IN_Z),
                        fm_run_param_gradient(run, node, P_W),
                        fm_run_param_gradient(run, node, P_B));
}

static const fm_op DISTOGRAM = {"distogram loss", forward, backward};

fm_tensor_ref fm_op_distogram_loss(fm_tape *tape, fm_tensor_ref z, fm_tensor_ref pseudo_beta,
                                   fm_tensor_ref pseudo_beta_mask, const fm_linear_weights *weights,
                                   const fm_distogram_options *options) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &DISTOGRAM, "distogram", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, z);
    assert(x->rank == 3 && x->local[0] == x->local[1] && weights->c_out == options->n_bin);
    *at = (attributes){.n = x->local[0], .c_z = x->local[2], .options = *options};
    fm_node_input(tape, node, z, true);
    fm_node_input(tape, node, pseudo_beta, false);
    fm_node_input(tape, node, pseudo_beta_mask, false);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    int64_t pairs = at->n * at->n;
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){pairs, options->n_bin});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){pairs});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){1});
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_I32, 1, (int64_t[]){pairs});
    fm_node_save(tape, node, FM_KEEP, act, 1, (int64_t[]){pairs});
    return fm_node_output(tape, node, acc, 1, (int64_t[]){1});
}

fm_tensor_ref fm_loss_distogram(fm_tape *tape, const fm_loss_inputs *in) {
    const fm_distogram_options options = {
        .n_bin = (int32_t)in->n_distogram_bin, .first = 2.3125f, .last = 21.6875f, .eps = 1e-8};
    return fm_op_distogram_loss(tape, in->z, in->pseudo_beta, in->pseudo_beta_mask,
                                &in->distogram_head, &options);
}
