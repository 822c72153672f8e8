/* plddt.c: the loss of the pLDDT head; see structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/loss/binned.h"
#include "trainer/ops/call_structure.h"

static const double CUTOFF = 15, EPS = 1e-8;

enum { IN_LOGITS, IN_ATOMS, IN_POSITIONS, IN_MASK };

static void forward(fm_run *run, const fm_node *node) {
    const fm_binned *at = node->attributes;
    fm_lddt_bins bins = {.n = at->rows,
                         .n_bin = at->n_bin,
                         .cutoff = CUTOFF,
                         .eps = EPS,
                         .atoms = fm_run_input(run, node, IN_ATOMS),
                         .positions = fm_run_input(run, node, IN_POSITIONS),
                         .mask = fm_run_input(run, node, IN_MASK),
                         .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                         .w = fm_run_saved(run, node, FM_BINNED_WEIGHT)};
    fm_call_lddt_bins(run, &bins);
    fm_binned_forward(run, node);
}

static const fm_op LOSS = {"plddt loss", forward, fm_binned_backward};

fm_tensor_ref fm_op_plddt_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref atoms,
                               fm_tensor_ref ca_positions, fm_tensor_ref ca_mask) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &LOSS, "plddt loss", sizeof(fm_binned), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, logits);
    *(fm_binned *)memory = (fm_binned){x->local[0], (int32_t)x->local[1], EPS};
    fm_node_input(tape, node, logits, true);
    fm_node_holds(tape, node, atoms); /* the classes are a step function of them: no gradient */
    fm_node_input(tape, node, ca_positions, false);
    fm_node_input(tape, node, ca_mask, false);
    return fm_binned_record(tape, node);
}

fm_tensor_ref fm_loss_plddt(fm_tape *tape, const fm_loss_inputs *in) {
    fm_tensor_ref logits = fm_op_plddt_logits(tape, in->s, &in->plddt_head);
    return fm_op_plddt_loss(tape, logits, in->atoms, in->ca_positions, in->ca_mask);
}
