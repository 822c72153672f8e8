/* aligned_error.c: the loss of the predicted aligned error head; see structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/loss/binned.h"
#include "trainer/ops/call_structure.h"

#include <assert.h>

typedef struct attributes {
    fm_binned binned; /* the first member: see binned.h */
    int64_t n;
    double position_scale;
} attributes;

/* The last boundary (Å). The reference halves the sum of the mask before it adds 1e-8. */
static const double LAST = 31, EPS = 2e-8;

enum { IN_LOGITS, IN_FRAMES, IN_TARGET, IN_MASK };

static void forward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    void *matrices = fm_run_workspace_act(run, at->n * FM_MATRIX_FRAME);
    fm_call_matrix_frames(run, at->n, at->position_scale, fm_run_input(run, node, IN_FRAMES),
                          matrices);
    fm_aligned_error_bins bins = {.n = at->n,
                                  .n_bin = at->binned.n_bin,
                                  .last = LAST,
                                  .frames = matrices,
                                  .target_frames = fm_run_input(run, node, IN_TARGET),
                                  .mask = fm_run_input(run, node, IN_MASK),
                                  .target = fm_run_saved(run, node, FM_BINNED_TARGET),
                                  .w = fm_run_saved(run, node, FM_BINNED_WEIGHT)};
    fm_call_aligned_error_bins(run, &bins);
    fm_binned_forward(run, node);
}

static const fm_op ALIGNED_ERROR = {"aligned error loss", forward, fm_binned_backward};

fm_tensor_ref fm_op_aligned_error_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref frames,
                                       fm_tensor_ref target_frames, fm_tensor_ref mask,
                                       double position_scale) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &ALIGNED_ERROR, "aligned error loss", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, logits), *frame = fm_tape_tensor(tape, frames);
    int64_t n = frame->local[0];
    *at = (attributes){{n * n, (int32_t)x->local[x->rank - 1], EPS}, n, position_scale};
    assert(frame->rank == 2);
    fm_node_input(tape, node, logits, true);
    fm_node_holds(tape, node, frames); /* the classes are a step function of them: no gradient */
    fm_node_input(tape, node, target_frames, false);
    fm_node_input(tape, node, mask, false);
    return fm_binned_record(tape, node);
}

fm_tensor_ref fm_loss_aligned_error(fm_tape *tape, const fm_loss_inputs *in) {
    fm_tensor_ref logits =
        fm_op_linear(tape, "aligned error", in->z, in->n_res * in->n_res, &in->aligned_error_head);
    return fm_op_aligned_error_loss(tape, logits, in->last_frames, in->backbone_frames,
                                    in->backbone_mask, in->position_scale);
}
