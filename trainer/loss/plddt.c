/* plddt.c: the loss of the pLDDT head, see structure_losses.h. */
#include "trainer/loss/structure_losses.h"

#include "trainer/ops/call_structure.h"

typedef struct attributes {
    int64_t n;
    int32_t n_bin;
} attributes;

static const double CUTOFF = 15, EPS = 1e-8;

enum { IN_LOGITS, IN_ATOMS, IN_POSITIONS, IN_MASK };
enum { S_TARGET, S_WEIGHT, S_LSE, S_WEIGHT_SUM };

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_cross_entropy){.rows = at->n,
                              .n_class = at->n_bin,
                              .ldx = at->n_bin,
                              .eps = EPS,
                              .x = fm_run_input(run, node, IN_LOGITS),
                              .target = fm_run_saved(run, node, S_TARGET),
                              .w = fm_run_saved(run, node, S_WEIGHT),
                              .lse = fm_run_saved(run, node, S_LSE),
                              .weight_sum = fm_run_saved(run, node, S_WEIGHT_SUM)};
}

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_lddt_bins bins = {.n = at->n,
                         .n_bin = at->n_bin,
                         .cutoff = CUTOFF,
                         .eps = EPS,
                         .atoms = fm_run_input(run, node, IN_ATOMS),
                         .positions = fm_run_input(run, node, IN_POSITIONS),
                         .mask = fm_run_input(run, node, IN_MASK),
                         .target = fm_run_saved(run, node, S_TARGET),
                         .w = fm_run_saved(run, node, S_WEIGHT)};
    fm_call_lddt_bins(run, &bins);
    fm_cross_entropy entropy = entropy_of(run, node);
    entropy.loss = fm_run_output(run, node, 0);
    fm_call_cross_entropy(run, &entropy);
}

static void backward(fm_run *run, const fm_node *node) {
    fm_cross_entropy entropy = entropy_of(run, node);
    fm_out dlogits = fm_run_gradient(run, node, IN_LOGITS);
    if (dlogits.data) {
        fm_call_cross_entropy_grad(run, &entropy, fm_run_output_gradient(run, node, 0), dlogits);
    }
}

static const fm_op LOSS = {"plddt loss", forward, backward};

fm_tensor_ref fm_op_plddt_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref atoms,
                               fm_tensor_ref ca_positions, fm_tensor_ref ca_mask) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &LOSS, "plddt loss", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, logits);
    *at = (attributes){x->local[0], (int32_t)x->local[1]};
    fm_node_input(tape, node, logits, true);
    fm_node_holds(tape, node, atoms); /* classes do not depend on them continuously */
    fm_node_input(tape, node, ca_positions, false);
    fm_node_input(tape, node, ca_mask, false);
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_I32, 1, (int64_t[]){at->n});
    fm_node_save(tape, node, FM_KEEP, act, 1, (int64_t[]){at->n});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){at->n});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){1});
    return fm_node_output(tape, node, acc, 1, (int64_t[]){1});
}
