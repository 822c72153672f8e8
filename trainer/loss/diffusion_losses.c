/* diffusion_losses.c: the losses on denoised structures; see diffusion_losses.h. */
#include "trainer/loss/diffusion_losses.h"

#include "trainer/loss/complex_terms.h"
#include "trainer/ops/call_noisy.h"

#include <assert.h>

static const double EPS = 1e-6;

static int64_t extent(const fm_run *run, const fm_node *node, int input, int axis) {
    return fm_tape_tensor(run->tape, node->input[input])->local[axis];
}

static fm_tensor_ref add_loss(fm_tape *tape, fm_node *node) {
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}

/* -- alignment */

enum { A_X, A_TRUTH, A_WEIGHT };

static void align_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    int64_t n = extent(run, node, A_X, 1);
    fm_call_rigid_align(run, &(fm_rigid_align){.n_batch = extent(run, node, A_X, 0),
                                               .n = n,
                                               .y_stride = 3 * n,
                                               .x = fm_run_input(run, node, A_TRUTH),
                                               .y = fm_run_input(run, node, A_X),
                                               .w = fm_run_input(run, node, A_WEIGHT),
                                               .moved = fm_run_output(run, node, 0)});
}

static const fm_op ALIGN = {"align truth", align_forward, NULL};

fm_tensor_ref fm_op_align_truth(fm_tape *tape, fm_tensor_ref x, const fm_atom_truth *truth) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &ALIGN, "aligned truth", 1, &memory);
    fm_tensor like = fm_tensor_like(fm_tape_tensor(tape, x), "aligned truth");
    assert(like.rank == 3 && like.local[2] == 3);
    fm_node_holds(tape, node, x);
    fm_node_input(tape, node, truth->position, false);
    fm_node_input(tape, node, truth->weight, false);
    return fm_node_output_described(tape, node, &like);
}

/* -- mean square error */

enum { M_X, M_ALIGNED, M_WEIGHT, M_MASK, M_SCALE };

static fm_square_loss mse_of(const fm_run *run, const fm_node *node) {
    return (fm_square_loss){.n_sample = extent(run, node, M_X, 0),
                            .n = extent(run, node, M_X, 1),
                            .factor = 1.0 / 3,
                            .eps = EPS,
                            .x = fm_run_input(run, node, M_X),
                            .y = fm_run_input(run, node, M_ALIGNED),
                            .w = fm_run_input(run, node, M_WEIGHT),
                            .mask = fm_run_input(run, node, M_MASK),
                            .scale = fm_run_input(run, node, M_SCALE)};
}

static void mse_forward(fm_run *run, const fm_node *node) {
    fm_square_loss loss = mse_of(run, node);
    loss.loss = fm_run_output(run, node, 0);
    fm_call_square_loss(run, &loss);
}

static void mse_backward(fm_run *run, const fm_node *node) {
    fm_square_loss loss = mse_of(run, node);
    fm_call_square_loss_grad(run, &loss, fm_run_output_gradient(run, node, 0),
                             fm_run_gradient(run, node, M_X));
}

static const fm_op MSE = {"mse loss", mse_forward, mse_backward};

fm_tensor_ref fm_op_mse_loss(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref aligned,
                             const fm_atom_truth *truth, fm_tensor_ref scale) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &MSE, "mse loss", 1, &memory);
    fm_node_input(tape, node, x, true);
    int at = fm_node_input(tape, node, aligned, true);
    node->without_gradient |= 1u << at;
    fm_node_input(tape, node, truth->weight, true);
    fm_node_input(tape, node, truth->mask, true);
    fm_node_input(tape, node, scale, true);
    return add_loss(tape, node);
}

/* -- bonds */

enum { B_X, B_BOND, B_LENGTH, B_WEIGHT, B_SCALE };

static fm_bond_loss bonds_of(const fm_run *run, const fm_node *node) {
    return (fm_bond_loss){.n_sample = extent(run, node, B_X, 0),
                          .n = extent(run, node, B_X, 1),
                          .n_bond = extent(run, node, B_BOND, 0),
                          .x = fm_run_input(run, node, B_X),
                          .bond = fm_run_input(run, node, B_BOND),
                          .length = fm_run_input(run, node, B_LENGTH),
                          .w = fm_run_input(run, node, B_WEIGHT),
                          .scale = fm_run_input(run, node, B_SCALE)};
}

static void bond_forward(fm_run *run, const fm_node *node) {
    fm_bond_loss loss = bonds_of(run, node);
    loss.loss = fm_run_output(run, node, 0);
    fm_call_bond_loss(run, &loss);
}

static void bond_backward(fm_run *run, const fm_node *node) {
    fm_bond_loss loss = bonds_of(run, node);
    fm_call_bond_loss_grad(run, &loss, fm_run_output_gradient(run, node, 0),
                           fm_run_gradient(run, node, B_X));
}

static const fm_op BOND = {"bond loss", bond_forward, bond_backward};

fm_tensor_ref fm_op_bond_loss(fm_tape *tape, fm_tensor_ref x, const fm_bonds *bonds,
                              fm_tensor_ref scale) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &BOND, "bond loss", 1, &memory);
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, bonds->bond, true);
    fm_node_input(tape, node, bonds->length, true);
    fm_node_input(tape, node, bonds->weight, true);
    fm_node_input(tape, node, scale, true);
    return add_loss(tape, node);
}

/* -- smooth lDDT */

enum { L_X, L_TRUTH, L_MASK, L_RADIUS };

static fm_smooth_lddt lddt_of(const fm_run *run, const fm_node *node) {
    return (fm_smooth_lddt){.n_sample = extent(run, node, L_X, 0),
                            .n = extent(run, node, L_X, 1),
                            .eps = EPS,
                            .x = fm_run_input(run, node, L_X),
                            .truth = fm_run_input(run, node, L_TRUTH),
                            .mask = fm_run_input(run, node, L_MASK),
                            .radius = fm_run_input(run, node, L_RADIUS),
                            .count = fm_run_saved(run, node, 0)};
}

static void lddt_forward(fm_run *run, const fm_node *node) {
    fm_smooth_lddt loss = lddt_of(run, node);
    loss.loss = fm_run_output(run, node, 0);
    fm_call_smooth_lddt(run, &loss);
}

static void lddt_backward(fm_run *run, const fm_node *node) {
    fm_smooth_lddt loss = lddt_of(run, node);
    fm_call_smooth_lddt_grad(run, &loss, fm_run_output_gradient(run, node, 0),
                             fm_run_gradient(run, node, L_X));
}

static const fm_op SMOOTH_LDDT = {"smooth lddt loss", lddt_forward, lddt_backward};

fm_tensor_ref fm_op_smooth_lddt_loss(fm_tape *tape, fm_tensor_ref x, const fm_atom_truth *truth) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SMOOTH_LDDT, "smooth lddt loss", 1, &memory);
    fm_node_input(tape, node, x, true);
    fm_node_input(tape, node, truth->position, true);
    fm_node_input(tape, node, truth->mask, true);
    fm_node_input(tape, node, truth->radius, true);
    fm_node_save(tape, node, FM_KEEP, tape->kernels->acc, 1, (int64_t[]){1});
    return add_loss(tape, node);
}

/* -- the terms of the table */

fm_tensor_ref fm_complex_loss_mse(fm_tape *tape, const fm_complex_loss_inputs *in) {
    fm_tensor_ref aligned = fm_op_align_truth(tape, in->x, &in->truth);
    return fm_op_mse_loss(tape, in->x, aligned, &in->truth, in->scale);
}

fm_tensor_ref fm_complex_loss_bond(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_bond_loss(tape, in->x, &in->bonds, in->scale);
}

fm_tensor_ref fm_complex_loss_smooth_lddt(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_smooth_lddt_loss(tape, in->x, &in->truth);
}
