/* violation.c: the loss on violations of bond lengths, angles and distances; see
 * structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call_structure.h"
#include "trainer/ops/frames.h"

#include <assert.h>

static const double TOLERANCE_FACTOR = 12, OVERLAP_TOLERANCE = 1.5, VIOLATION_EPS = 1e-8;

enum { IN_ATOMS, IN_EXISTS, IN_INDEX, IN_AATYPE, IN_RADII, IN_BOUNDS };

static fm_violation violation_of(const fm_run *run, const fm_node *node) {
    const int64_t *n = node->attributes;
    return (fm_violation){.n = *n,
                          .tolerance_factor = TOLERANCE_FACTOR,
                          .overlap_tolerance = OVERLAP_TOLERANCE,
                          .eps = VIOLATION_EPS,
                          .atoms = fm_run_input(run, node, IN_ATOMS),
                          .exists = fm_run_input(run, node, IN_EXISTS),
                          .residue_index = fm_run_input(run, node, IN_INDEX),
                          .aatype = fm_run_input(run, node, IN_AATYPE),
                          .radii = fm_run_input(run, node, IN_RADII),
                          .bounds = fm_run_input(run, node, IN_BOUNDS)};
}

static void forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        fm_violation args = violation_of(run, node);
        args.loss = fm_run_output(run, node, 0);
        args.terms = fm_run_output(run, node, 1);
        fm_call_violation(run, &args);
    }
}

static void backward(fm_run *run, const fm_node *node) {
    fm_violation args = violation_of(run, node);
    fm_call_violation_grad(run, &args, fm_run_output_gradient(run, node, 0),
                           fm_run_gradient(run, node, IN_ATOMS));
}

static const fm_op VIOLATION = {"violation loss", forward, backward};

fm_tensor_ref fm_op_violation_loss(fm_tape *tape, fm_tensor_ref atoms,
                                   const fm_violation_inputs *in, fm_tensor_ref *ret_terms) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &VIOLATION, "violation loss", sizeof(int64_t), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, atoms);
    assert(x->rank == 3 && x->local[1] == FM_N_ATOM && x->local[2] == 3);
    *(int64_t *)memory = x->local[0];
    const fm_tensor_ref inputs[] = {atoms,      in->exists, in->residue_index,
                                    in->aatype, in->radii,  in->bounds};
    for (int i = 0; i < 6; i++)
        fm_node_input(tape, node, inputs[i], true);
    fm_element acc = tape->kernels->acc;
    fm_tensor_ref loss = fm_node_output(tape, node, acc, 1, (int64_t[]){1});
    fm_tensor_ref terms = fm_node_output(tape, node, acc, 1, (int64_t[]){4});
    if (ret_terms) *ret_terms = terms;
    return loss;
}

fm_tensor_ref fm_loss_violation(fm_tape *tape, const fm_loss_inputs *in) {
    return fm_op_violation_loss(tape, in->atoms, &in->violation, NULL);
}
