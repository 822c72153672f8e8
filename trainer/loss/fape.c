/* fape.c: the frame aligned point error of the backbone and of the side chains; see
 * structure_losses.h. */
#include "trainer/loss/terms.h"

#include "trainer/ops/call_structure.h"
#include "trainer/ops/frames.h"

#include <assert.h>

typedef struct attributes {
    int64_t n_batch, n;
    fm_fape_options options;
} attributes;

/* -- backbone */

enum { B_FRAMES, B_TARGET, B_MASK, B_CLAMPED };

/* Makes the frames as matrices in Å in the workspace. */
static fm_fape backbone_of(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t rows = at->n_batch * at->n;
    void *matrices = fm_run_workspace_act(run, rows * FM_MATRIX_FRAME);
    fm_call_matrix_frames(run, rows, at->options.position_scale, fm_run_input(run, node, B_FRAMES),
                          matrices);
    const float *mask = fm_run_input(run, node, B_MASK);
    return (fm_fape){.n_batch = at->n_batch,
                     .n_frame = at->n,
                     .n_point = at->n,
                     .clamp = at->options.clamp,
                     .length_scale = at->options.length_scale,
                     .eps = at->options.eps,
                     .frames = matrices,
                     .target_frames = fm_run_input(run, node, B_TARGET),
                     .frame_mask = mask,
                     .point_mask = mask,
                     .clamped = fm_run_input(run, node, B_CLAMPED)};
}

static void backbone_forward(fm_run *run, const fm_node *node) {
    if (fm_run_wants_output(run)) {
        fm_fape args = backbone_of(run, node);
        args.loss = fm_run_output(run, node, 0);
        fm_call_fape(run, &args);
    }
}

static void backbone_backward(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    int64_t rows = at->n_batch * at->n;
    fm_fape args = backbone_of(run, node);
    void *dmatrices = fm_run_workspace_act(run, rows * FM_MATRIX_FRAME);
    fm_call_fape_grad(run, &args, fm_run_output_gradient(run, node, 0),
                      (fm_out){dmatrices, FM_WRITE}, (fm_out){0});
    fm_call_matrix_frames_grad(run, rows, at->options.position_scale,
                               fm_run_input(run, node, B_FRAMES), dmatrices,
                               fm_run_gradient(run, node, B_FRAMES));
}

static const fm_op BACKBONE = {"backbone fape", backbone_forward, backbone_backward};

fm_tensor_ref fm_op_backbone_fape(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref target_frames,
                                  fm_tensor_ref mask, fm_tensor_ref clamped,
                                  const fm_fape_options *options) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &BACKBONE, "backbone fape", sizeof(attributes), &memory);
    attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, frames);
    assert(x->rank == 3 && x->local[2] == FM_FRAME);
    *at = (attributes){.n_batch = x->local[0], .n = x->local[1], .options = *options};
    const fm_tensor_ref inputs[] = {frames, target_frames, mask, clamped};
    for (int i = 0; i < 4; i++)
        fm_node_input(tape, node, inputs[i], true);
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}

/* -- side chains */

enum {
    C_GROUPS,
    C_ATOMS,
    C_POSITIONS,
    C_ALT_POSITIONS,
    C_EXISTS,
    C_ALT_EXISTS,
    C_AMBIGUOUS,
    C_FRAMES,
    C_ALT_FRAMES,
    C_FRAMES_EXIST
};
/* The ground truth with the better naming of ambiguous atoms. */
enum { S_POSITIONS, S_EXISTS, S_FRAMES };

static void choose(fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    fm_naming naming = {.n = at->n,
                        .atoms = fm_run_input(run, node, C_ATOMS),
                        .positions = fm_run_input(run, node, C_POSITIONS),
                        .alt_positions = fm_run_input(run, node, C_ALT_POSITIONS),
                        .exists = fm_run_input(run, node, C_EXISTS),
                        .alt_exists = fm_run_input(run, node, C_ALT_EXISTS),
                        .is_ambiguous = fm_run_input(run, node, C_AMBIGUOUS),
                        .frames = fm_run_input(run, node, C_FRAMES),
                        .alt_frames = fm_run_input(run, node, C_ALT_FRAMES),
                        .ret_positions = fm_run_saved(run, node, S_POSITIONS),
                        .ret_exists = fm_run_saved(run, node, S_EXISTS),
                        .ret_frames = fm_run_saved(run, node, S_FRAMES)};
    fm_call_choose_naming(run, &naming);
}

static fm_fape side_chain_of(const fm_run *run, const fm_node *node) {
    const attributes *at = node->attributes;
    return (fm_fape){.n_batch = 1,
                     .n_frame = at->n * FM_N_GROUP,
                     .n_point = at->n * FM_N_ATOM,
                     .clamp = at->options.clamp,
                     .length_scale = at->options.length_scale,
                     .eps = at->options.eps,
                     .frames = fm_run_input(run, node, C_GROUPS),
                     .points = fm_run_input(run, node, C_ATOMS),
                     .target_frames = fm_run_saved(run, node, S_FRAMES),
                     .target_points = fm_run_saved(run, node, S_POSITIONS),
                     .frame_mask = fm_run_input(run, node, C_FRAMES_EXIST),
                     .point_mask = fm_run_saved(run, node, S_EXISTS)};
}

static void side_chain_forward(fm_run *run, const fm_node *node) {
    choose(run, node);
    if (fm_run_wants_output(run)) {
        fm_fape args = side_chain_of(run, node);
        args.loss = fm_run_output(run, node, 0);
        fm_call_fape(run, &args);
    }
}

static void side_chain_backward(fm_run *run, const fm_node *node) {
    fm_fape args = side_chain_of(run, node);
    fm_call_fape_grad(run, &args, fm_run_output_gradient(run, node, 0),
                      fm_run_gradient(run, node, C_GROUPS), fm_run_gradient(run, node, C_ATOMS));
}

static const fm_op SIDE_CHAIN = {"side chain fape", side_chain_forward, side_chain_backward};

fm_tensor_ref fm_op_side_chain_fape(fm_tape *tape, fm_tensor_ref groups, fm_tensor_ref atoms,
                                    const fm_side_chain_truth *truth,
                                    const fm_fape_options *options) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &SIDE_CHAIN, "side chain fape", sizeof(attributes), &memory);
    attributes *at = memory;
    *at = (attributes){
        .n_batch = 1, .n = fm_tape_tensor(tape, groups)->local[0], .options = *options};
    const fm_tensor_ref inputs[] = {groups,
                                    atoms,
                                    truth->positions,
                                    truth->alt_positions,
                                    truth->exists,
                                    truth->alt_exists,
                                    truth->is_ambiguous,
                                    truth->frames,
                                    truth->alt_frames,
                                    truth->frames_exist};
    for (int i = 0; i < 10; i++)
        fm_node_input(tape, node, inputs[i], true);
    int64_t n = at->n;
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_F32, 3, (int64_t[]){n, FM_N_ATOM, 3});
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_F32, 2, (int64_t[]){n, FM_N_ATOM});
    fm_node_save(tape, node, FM_KEEP, FM_ELEMENT_F32, 3, (int64_t[]){n, FM_N_GROUP, 16});
    return fm_node_output(tape, node, tape->kernels->acc, 1, (int64_t[]){1});
}

/* -- terms */

static const fm_fape_options OPTIONS = {
    .clamp = 10, .length_scale = 10, .eps = 1e-4, .position_scale = 10};

fm_tensor_ref fm_loss_backbone_fape(fm_tape *tape, const fm_loss_inputs *in) {
    return fm_op_backbone_fape(tape, in->frames, in->backbone_frames, in->backbone_mask,
                               in->clamped, &OPTIONS);
}

fm_tensor_ref fm_loss_side_chain_fape(fm_tape *tape, const fm_loss_inputs *in) {
    return fm_op_side_chain_fape(tape, in->groups, in->atoms, &in->side_chain, &OPTIONS);
}
