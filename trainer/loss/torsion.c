/* torsion.c: the torsion angle loss (A27); see structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

typedef struct attributes {
    int64_t n_batch, n;
    double chi_weight, norm_weight;
} attributes;

static const double LENGTH_EPS = 1e-8;

enum { IN_ANGLES, IN_RAW, IN_CHI, IN_CHI_MASK, IN_SEQ_MASK, IN_AATYPE, IN_PERIODIC };

static fm_torsion_loss loss_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_torsion_loss){.n_batch = at->n_batch,
                             .n = at->n,
                             .chi_weight = at->chi_weight,
                             .norm_weight = at->norm_weight,
                             .eps = LENGTH_EPS,
                             .angles = fm_run_input(run, node, IN_ANGLES),
                             .unnormalised = fm_run_input(run, node, IN_RAW),
                             .chi = fm_run_input(run, node, IN_CHI),
                             .chi_mask = fm_run_input(run, node, IN_CHI_MASK),
                             .seq_mask = fm_run_input(run, node, IN_SEQ_MASK),
                             .aatype = fm_run_input(run, node, IN_AATYPE),
                             .pi_periodic = fm_run_input(run, node, IN_PERIODIC)};
}

static void forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        fm_torsion_loss args = loss_of(run, node);
        args.loss = fm_run_output(run, node, 0);
        fm_call_torsion_loss(run, &args);
    }
}

static void backward(fm_run *run, const fm_node *node) {
    fm_torsion_loss args = loss_of(run, node);
    fm_call_torsion_loss_grad(run, &args, fm_run_output_gradient(run, node, 0),
                              fm_run_gradient(run, node, IN_ANGLES),
                              fm_run_gradient(run, node, IN_RAW));
}

static const fm_op TORSION = {"torsion loss", forward, backward};

fm_tensor_ref fm_op_torsion_loss(fm_tape *tape, fm_tensor_ref angles, fm_tensor_ref unnormalised,
                                 const fm_torsion_truth *truth, double chi_weight,
                                 double norm_weight) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &TORSION, "torsion loss", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, angles);
    assert(x->rank == 4 && x->local[2] == 7 && x->local[3] == 2);
    *at = (attributes){x->local[0], x->local[1], chi_weight, norm_weight};
    const fm_tensor_ref inputs[] = {
        angles,          unnormalised,  truth->chi,        truth->chi_mask,
        truth->seq_mask, truth->aatype, truth->pi_periodic};
    for (int i = 0; i < 7; i++)
        fm_node_input(tape, node, inputs[i], true);
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}

fm_tensor_ref fm_loss_torsion(fm_tape *tape, const fm_loss_inputs *in) {
    const double chi_weight = 0.5, norm_weight = 0.01;
    return fm_op_torsion_loss(tape, in->angles, in->unnormalised, &in->torsion, chi_weight,
                              norm_weight);
}
