/* confidence_losses.c: records the cross entropies of classes of measured errors and of distances;
 * see diffusion_losses.h. */
#include "trainer/loss/diffusion_losses.h"

#include "trainer/loss/binned.h"
#include "trainer/loss/complex_terms.h"
#include "trainer/ops/call_noisy.h"

/* Losses of pairs divide by a sum plus EPS, and those of atoms by the plain sum. NONE only avoids a
 * division by 0 for an empty sum. */
static const double EPS = 1e-6, NONE = 1e-30, LAST_ERROR = 32;
static const float FIRST_DISTANCE = 2.3125f, LAST_DISTANCE = 21.6875f; /* of the distogram, Å */

typedef struct attributes {
    fm_binned binned; /* the first member: see binned.h */
    int64_t n_batch;
    float first, last;
} attributes;

/* Begins a node with its logits. The divisor has `n_batch` times eps, so the loss is the mean over
 * the structures of their separate losses. */
static fm_node *begin(fm_tape *tape, const fm_op *op, fm_tensor_ref logits, int64_t n_batch,
                      attributes **ret_attributes) {
    void *memory;
    fm_node *node = fm_tape_add(tape, op, op->name, sizeof(attributes), &memory);
    attributes *at = *ret_attributes = memory;
    const fm_tensor *x = fm_tape_tensor(tape, logits);
    int64_t n_bin = x->local[x->rank - 1];
    at->binned = (fm_binned){.rows = fm_tensor_local_count(x) / n_bin,
                             .n_bin = (int32_t)n_bin,
                             .eps = EPS * (double)n_batch};
    at->n_batch = n_batch;
    fm_node_input(tape, node, logits, true);
    return node;
}

static const fm_tensor *shape_of(const fm_run *run, const fm_node *node, int input) {
    return fm_tape_tensor(run->tape, node->input[input]);
}

/* -- distance error */

enum { D_LOGITS, D_X, D_TRUTH, D_MASK };

static void pde_forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_distance_errors errors = {.n_batch = at->n_batch,
                                 .n = shape_of(run, node, D_TRUTH)->local[0],
                                 .n_bin = at->binned.n_bin,
                                 .last = LAST_ERROR,
                                 .x = fm_run_input(run, node, D_X),
                                 .truth = fm_run_input(run, node, D_TRUTH),
                                 .mask = fm_run_input(run, node, D_MASK),
                                 .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                                 .w = fm_run_saved(run, node, FM_BINNED_WEIGHT)};
    fm_call_distance_errors(run, &errors);
    fm_binned_forward(run, node);
}

static const fm_op PDE = {"pde loss", pde_forward, fm_binned_backward};

fm_tensor_ref fm_op_pde_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                             fm_tensor_ref truth, fm_tensor_ref mask) {
    attributes *at;
    fm_node *node = begin(tape, &PDE, logits, fm_tape_tensor(tape, x)->local[0], &at);
    fm_node_holds(tape, node, x);
    fm_node_input(tape, node, truth, false);
    fm_node_input(tape, node, mask, false);
    return fm_binned_record(tape, node);
}

/* -- aligned error */

enum { E_LOGITS, E_X, E_TRUTH, E_MASK, E_FRAME, E_CENTRE };

static void pae_forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_frame_errors errors = {.n_batch = at->n_batch,
                              .n_atom = shape_of(run, node, E_TRUTH)->local[0],
                              .n_token = shape_of(run, node, E_CENTRE)->local[0],
                              .n_bin = at->binned.n_bin,
                              .last = LAST_ERROR,
                              .x = fm_run_input(run, node, E_X),
                              .truth = fm_run_input(run, node, E_TRUTH),
                              .mask = fm_run_input(run, node, E_MASK),
                              .frame = fm_run_input(run, node, E_FRAME),
                              .centre = fm_run_input(run, node, E_CENTRE),
                              .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                              .w = fm_run_saved(run, node, FM_BINNED_WEIGHT)};
    fm_call_frame_errors(run, &errors);
    fm_binned_forward(run, node);
}

static const fm_op PAE = {"pae loss", pae_forward, fm_binned_backward};

fm_tensor_ref fm_op_pae_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                             const fm_atom_truth *truth, fm_tensor_ref frame,
                             fm_tensor_ref centre) {
    attributes *at;
    fm_node *node = begin(tape, &PAE, logits, fm_tape_tensor(tape, x)->local[0], &at);
    fm_node_holds(tape, node, x);
    fm_node_input(tape, node, truth->position, false);
    fm_node_input(tape, node, truth->mask, false);
    fm_node_input(tape, node, frame, false);
    fm_node_input(tape, node, centre, false);
    return fm_binned_record(tape, node);
}

/* -- lDDT of atoms */

enum { P_LOGITS, P_X, P_TRUTH, P_MASK, P_PARTNER, P_RADIUS };

static void plddt_forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_atom_lddt lddt = {.n_batch = at->n_batch,
                         .n = shape_of(run, node, P_TRUTH)->local[0],
                         .n_bin = at->binned.n_bin,
                         .x = fm_run_input(run, node, P_X),
                         .truth = fm_run_input(run, node, P_TRUTH),
                         .mask = fm_run_input(run, node, P_MASK),
                         .partner = fm_run_input(run, node, P_PARTNER),
                         .radius = fm_run_input(run, node, P_RADIUS),
                         .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                         .w = fm_run_saved(run, node, FM_BINNED_WEIGHT)};
    fm_call_atom_lddt(run, &lddt);
    fm_binned_forward(run, node);
}

static const fm_op PLDDT = {"atom plddt loss", plddt_forward, fm_binned_backward};

fm_tensor_ref fm_op_atom_plddt_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref x,
                                    const fm_atom_truth *truth, fm_tensor_ref partner) {
    attributes *at;
    fm_node *node = begin(tape, &PLDDT, logits, fm_tape_tensor(tape, x)->local[0], &at);
    at->binned.eps = NONE;
    fm_node_holds(tape, node, x);
    fm_node_input(tape, node, truth->position, false);
    fm_node_input(tape, node, truth->mask, false);
    fm_node_input(tape, node, partner, false);
    fm_node_input(tape, node, truth->radius, false);
    return fm_binned_record(tape, node);
}

/* -- distances of the truth */

enum { T_LOGITS, T_POSITION, T_MASK };

static void distance_forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_call_distance_bins(
        run, shape_of(run, node, T_POSITION)->local[0], fm_run_input(run, node, T_POSITION),
        fm_run_input(run, node, T_MASK), at->binned.n_bin, at->first, at->last,
        fm_run_saved(run, node, FM_BINNED_TARGET), fm_run_saved(run, node, FM_BINNED_WEIGHT));
    fm_binned_forward(run, node);
}

static const fm_op DISTANCE = {"distance loss", distance_forward, fm_binned_backward};

fm_tensor_ref fm_op_distance_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref position,
                                  fm_tensor_ref mask, float first, float last) {
    attributes *at;
    fm_node *node = begin(tape, &DISTANCE, logits, 1, &at);
    at->first = first;
    at->last = last;
    fm_node_input(tape, node, position, false);
    fm_node_input(tape, node, mask, false);
    return fm_binned_record(tape, node);
}

/* -- classes that the host has made */

enum { C_LOGITS, C_TARGET, C_WEIGHT };
enum { S_LSE, S_WEIGHT_SUM };

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const fm_tensor *x = shape_of(run, node, C_LOGITS);
    int64_t n_class = x->local[x->rank - 1];
    return (fm_cross_entropy){.rows = fm_tensor_local_count(x) / n_class,
                              .n_class = n_class,
                              .ldx = n_class,
                              .eps = NONE,
                              .x = fm_run_input(run, node, C_LOGITS),
                              .target = fm_run_input(run, node, C_TARGET),
                              .w = fm_run_input(run, node, C_WEIGHT),
                              .lse = fm_run_saved(run, node, S_LSE),
                              .weight_sum = fm_run_saved(run, node, S_WEIGHT_SUM)};
}

static void class_forward(fm_run *run, const fm_node *node) {
    fm_cross_entropy entropy = entropy_of(run, node);
    entropy.loss = fm_run_output(run, node, 0);
    fm_call_cross_entropy(run, &entropy);
}

static void class_backward(fm_run *run, const fm_node *node) {
    fm_cross_entropy entropy = entropy_of(run, node);
    fm_out dx = fm_run_gradient(run, node, C_LOGITS);
    if (!dx.data) return;
    fm_call_cross_entropy_grad(run, &entropy, fm_run_output_gradient(run, node, 0), dx);
}

static const fm_op CLASS = {"class loss", class_forward, class_backward};

fm_tensor_ref fm_op_class_loss(fm_tape *tape, const char *name, fm_tensor_ref logits,
                               fm_tensor_ref target, fm_tensor_ref weight) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &CLASS, name, 1, &memory);
    fm_node_input(tape, node, logits, true);
    fm_node_input(tape, node, target, true);
    fm_node_input(tape, node, weight, true);
    int64_t rows = fm_tensor_local_count(fm_tape_tensor(tape, target));
    fm_element acc = tape->kernels->acc;
    fm_node_save(tape, node, FM_KEEP, acc, 1, &rows);
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){1});
    return fm_node_output(tape, node, acc, 1, (int64_t[]){1});
}

/* -- the terms of the table */

fm_tensor_ref fm_complex_loss_distogram(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_distance_loss(tape, in->distogram, in->token_position_f32, in->token_mask_f32,
                               FIRST_DISTANCE, LAST_DISTANCE);
}

fm_tensor_ref fm_complex_loss_plddt(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_atom_plddt_loss(tape, in->logits.plddt, in->x, &in->truth, in->partner);
}

fm_tensor_ref fm_complex_loss_pde(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_pde_loss(tape, in->logits.pde, in->token_x, in->token_position, in->token_mask);
}

fm_tensor_ref fm_complex_loss_resolved(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_class_loss(tape, "resolved loss", in->logits.resolved, in->known, in->atoms);
}

fm_tensor_ref fm_complex_loss_pae(fm_tape *tape, const fm_complex_loss_inputs *in) {
    return fm_op_pae_loss(tape, in->logits.pae, in->x, &in->truth, in->frame, in->centre);
}
