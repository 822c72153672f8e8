/* aligned_error.c: the predicted aligned error's loss, see structure_losses.h. */
#include "trainer/loss/structure_losses.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

typedef struct attributes {
    int64_t n;
    int32_t n_bin;
    double position_scale;
} attributes;

/* The last boundary (Å). The reference halves the sum of the mask before it adds 1e-8. */
static const double LAST = 31, EPS = 2e-8;

enum { IN_LOGITS, IN_FRAMES, IN_TARGET, IN_MASK };
enum { S_TARGET, S_WEIGHT, S_LSE, S_WEIGHT_SUM };

static fm_cross_entropy entropy_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_cross_entropy){.rows = at->n * at->n,
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
    void *matrices = fm_run_workspace_act(run, at->n * FM_MATRIX_FRAME);
    fm_call_matrix_frames(run, at->n, at->position_scale, fm_run_input(run, node, IN_FRAMES),
                          matrices);
    fm_aligned_error_bins bins = {.n = at->n,
                                  .n_bin = at->n_bin,
                                  .last = LAST,
                                  .frames = matrices,
                                  .target_frames = fm_run_input(run, node, IN_TARGET),
                                  .mask = fm_run_input(run, node, IN_MASK),
                                  .target = fm_run_saved(run, node, S_TARGET),
                                  .w = fm_run_saved(run, node, S_WEIGHT)};
    fm_call_aligned_error_bins(run, &bins);
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

static const fm_op ALIGNED_ERROR = {"aligned error loss", forward, backward};

fm_tensor_ref fm_op_aligned_error_loss(fm_tape *tape, fm_tensor_ref logits, fm_tensor_ref frames,
                                       fm_tensor_ref target_frames, fm_tensor_ref mask,
                                       double position_scale) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &ALIGNED_ERROR, "aligned error loss", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, logits), *frame = fm_tape_tensor(tape, frames);
    *at = (attributes){frame->local[0], (int32_t)x->local[x->rank - 1], position_scale};
    assert(frame->rank == 2 && fm_tensor_local_count(x) == at->n * at->n * at->n_bin);
    fm_node_input(tape, node, logits, true);
    fm_node_holds(tape, node, frames); /* classes do not depend on them continuously */
    fm_node_input(tape, node, target_frames, false);
    fm_node_input(tape, node, mask, false);
    fm_element act = tape->kernels->act, acc = tape->kernels->acc;
    int64_t pairs = at->n * at->n;
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_I32, 1, (int64_t[]){pairs});
    fm_node_save(tape, node, FM_KEEP, act, 1, (int64_t[]){pairs});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){pairs});
    fm_node_save(tape, node, FM_KEEP, acc, 1, (int64_t[]){1});
    return fm_node_output(tape, node, acc, 1, (int64_t[]){1});
}
