/* masked_msa.c: the masked MSA head and its loss; see losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call.h"
#include "trainer/ops/cast.h"

#include <assert.h>

typedef struct attributes {
    int64_t rows, all_rows, c_m, n_class;
} attributes;

static const double MASKED_MSA_EPS = 1e-8;

enum { IN_M, IN_TRUE_MSA, IN_BERT_MASK };
enum { P_W, P_B };
enum { S_LOGITS, S_LSE, S_WEIGHT_SUM };

static fm_linear head_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_linear){.rows = at->rows,
                       .c_in = at->c_m,
                       .c_out = at->n_class,
                       .ldx = at->c_m,
                       .ldy = at->n_class,
                       .x = fm_run_input(run, node, IN_M),
                       .w = fm_run_param(run, node, P_W),
                       .bias = fm_run_param(run, node, P_B)};
}

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_cross_entropy){.rows = at->rows,
                              .n_class = at->n_class,
                              .ldx = at->n_class,
                              .eps = MASKED_MSA_EPS,
                              .x = fm_run_saved(run, node, S_LOGITS),
                              .target = fm_run_input(run, node, IN_TRUE_MSA),
                              .w = fm_run_input(run, node, IN_BERT_MASK),
                              .lse = fm_run_saved(run, node, S_LSE),
                              .weight_sum = fm_run_saved(run, node, S_WEIGHT_SUM)};
}

static void forward(fm_run *run, const fm_node *node) {
    fm_linear head = head_of(run, node);
    fm_call_linear(run, &head, false, fm_run_saved(run, node, S_LOGITS));
    fm_cross_entropy entropy = entropy_of(run, node);
    entropy.loss = fm_run_output(run, node, 0); /* supplement 1.9.9, eq. 42 */
    fm_call_cross_entropy(run, &entropy);
}

static void backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *dlogits = fm_run_workspace_act(run, at->rows * at->n_class);
    fm_cross_entropy entropy = entropy_of(run, node);
    fm_call_cross_entropy_grad(run, &entropy, fm_run_output_gradient(run, node, 0),
                               (fm_out){dlogits, FM_WRITE});
    fm_linear head = head_of(run, node);
    fm_out dm = fm_run_gradient(run, node, IN_M);
    fm_call_linear_grad(run, &head, dlogits, dm, fm_run_param_gradient(run, node, P_W),
                        fm_run_param_gradient(run, node, P_B));
    fm_call_clear_rest(run, at->rows * at->c_m, at->all_rows * at->c_m, dm);
}

static const fm_op MASKED_MSA = {"masked msa loss", forward, backward};

fm_tensor_ref fm_op_masked_msa_loss(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref true_msa,
                                    fm_tensor_ref bert_mask, const fm_linear_weights *weights) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &MASKED_MSA, "masked msa", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, m);
    at->c_m = x->local[2];
    at->all_rows = x->local[0] * x->local[1];
    at->rows = fm_tensor_local_count(fm_tape_tensor(tape, true_msa));
    at->n_class = weights->c_out;
    assert(x->rank == 3 && at->rows <= at->all_rows && at->rows % x->local[1] == 0);
    fm_node_input(tape, node, m, true);
    fm_node_input(tape, node, true_msa, true);
    fm_node_input(tape, node, bert_mask, true);
    fm_node_param(tape, node, weights->w);
    fm_node_param(tape, node, weights->b);
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    fm_node_save(tape, node, FM_KEEP, act, 2, (int64_t[]){at->rows, at->n_class});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){at->rows});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){1});
    return fm_node_output(tape, node, acc, 1, (int64_t[]){1});
}

fm_tensor_ref fm_loss_masked_msa(fm_tape *tape, const fm_loss_inputs *in) {
    fm_tensor_ref masked = fm_op_cast(tape, "bert_mask", in->bert_mask);
    return fm_op_masked_msa_loss(tape, in->m, in->true_msa, masked, &in->masked_msa_head);
}
