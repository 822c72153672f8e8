/* frames.c: see frames.h. */
#include "trainer/ops/frames.h"

#include "trainer/ops/call_structure.h"

#include <assert.h>

/* -- identity */

/* Writes zeros, then ones to the first column, broadcast from one element. */
static void identity_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    const int64_t *n = node->attributes;
    void *y = fm_run_output(run, node, 0), *one = fm_run_workspace_act(run, 1);
    fm_call_fill(run, *n * FM_FRAME, 0, y);
    fm_call_fill(run, 1, 1, one);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {*n, 1},
                                            .x_stride = {0, 1},
                                            .y_stride = {FM_FRAME, 1},
                                            .alpha = 1,
                                            .x = one,
                                            .y = {y, FM_WRITE}});
}

static const fm_op IDENTITY = {"identity frames", identity_forward, NULL};

fm_tensor_ref fm_op_identity_frames(fm_tape *tape, int64_t n_res) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &IDENTITY, "identity frames", sizeof(int64_t), &memory);
    *(int64_t *)memory = n_res;
    return fm_node_output(tape, node, tape->kernels->act, 2, (int64_t[]){n_res, FM_FRAME});
}

/* -- update */

static void update_forward(fm_run *run, const fm_node *node) {
    const int64_t *n = node->attributes;
    if (fm_run_wants_output(run)) {
        fm_call_frame_update(run, *n, fm_run_input(run, node, 0), fm_run_input(run, node, 1),
                             fm_run_output(run, node, 0));
    }
}

static void update_backward(fm_run *run, const fm_node *node) {
    const int64_t *n = node->attributes;
    fm_call_frame_update_grad(run, *n, fm_run_input(run, node, 0), fm_run_input(run, node, 1),
                              fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, 0),
                              fm_run_gradient(run, node, 1));
}

static const fm_op UPDATE = {"backbone update", update_forward, update_backward};

fm_tensor_ref fm_op_frame_update(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref update) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &UPDATE, "backbone update", sizeof(int64_t), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, frames);
    int64_t *n = memory;
    *n = x->local[0];
    assert(x->local[1] == FM_FRAME);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, update)) == *n * FM_UPDATE);
    fm_node_input(tape, node, frames, true);
    fm_node_input(tape, node, update, true);
    return fm_node_output_described(tape, node, x);
}

/* -- stop rotation */

/* The output is the input's buffer. */
static void stop_forward(fm_run *run, const fm_node *node) {
    (void)run, (void)node;
}

static void stop_backward(fm_run *run, const fm_node *node) {
    const int64_t *n = node->attributes;
    fm_element act = run->kernels->act;
    fm_out dx = fm_run_gradient(run, node, 0);
    const void *dy = fm_run_output_gradient(run, node, 0);
    if (!dx.data) return;
    if (dx.beta == FM_WRITE) fm_call_fill(run, *n * FM_FRAME, 0, dx.data);
    fm_call_copy_strided(run, &(fm_strided){.rank = 2,
                                            .shape = {*n, 3},
                                            .x_stride = {FM_FRAME, 1},
                                            .y_stride = {FM_FRAME, 1},
                                            .alpha = 1,
                                            .x = fm_run_at(dy, 4, act),
                                            .y = {fm_run_at(dx.data, 4, act), FM_ADD}});
}

static const fm_op STOP = {"stop rotation", stop_forward, stop_backward};

fm_tensor_ref fm_op_stop_rotation(fm_tape *tape, fm_tensor_ref frames) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &STOP, "stop rotation", sizeof(int64_t), &memory);
    const fm_tensor *x = fm_tape_tensor(tape, frames);
    *(int64_t *)memory = x->local[0];
    fm_node_input(tape, node, frames, false);
    return fm_node_view(tape, node, 0);
}

/* -- atoms */

enum { IN_FRAMES, IN_ANGLES, IN_AATYPE, IN_GROUP_FRAMES, IN_ATOM_POSITIONS, IN_ATOM_GROUP };

typedef struct atoms_attributes {
    int64_t n;
    int64_t before; /* elements of the angles of earlier iterations */
    double position_scale;
} atoms_attributes;

static fm_residue_atoms atoms_of(const fm_run *run, const fm_node *node) {
    const atoms_attributes *at = node->attributes;
    return (fm_residue_atoms){
        .n = at->n,
        .position_scale = at->position_scale,
        .frames = fm_run_input(run, node, IN_FRAMES),
        .angles = fm_run_at(fm_run_input(run, node, IN_ANGLES), at->before, run->kernels->act),
        .aatype = fm_run_input(run, node, IN_AATYPE),
        .group_frames = fm_run_input(run, node, IN_GROUP_FRAMES),
        .atom_positions = fm_run_input(run, node, IN_ATOM_POSITIONS),
        .atom_group = fm_run_input(run, node, IN_ATOM_GROUP)};
}

static void atoms_forward(fm_run *run, const fm_node *node) {
    if (!fm_run_wants_output(run)) return;
    fm_residue_atoms args = atoms_of(run, node);
    args.groups = fm_run_output(run, node, 0);
    args.atoms = fm_run_output(run, node, 1);
    fm_call_residue_atoms(run, &args);
}

/* Returns NULL where no loss reads the output. */
static const void *gradient_of(const fm_run *run, const fm_node *node, int output) {
    const fm_tensor *tensor = fm_tape_tensor(run->tape, node->output[output]);
    return tensor->gradient == FM_TENSOR_NONE ? NULL : fm_run_output_gradient(run, node, output);
}

static void atoms_backward(fm_run *run, const fm_node *node) {
    const atoms_attributes *at = node->attributes;
    fm_residue_atoms args = atoms_of(run, node);
    fm_out dangles = fm_run_gradient(run, node, IN_ANGLES);
    assert(args.angles);
    if (dangles.data && dangles.beta == FM_WRITE && at->before > 0) {
        fm_call_fill(run, at->before, 0, dangles.data);
    }
    fm_call_residue_atoms_grad(run, &args, gradient_of(run, node, 0), gradient_of(run, node, 1),
                               fm_run_gradient(run, node, IN_FRAMES),
                               fm_out_at(dangles, at->before, run->kernels->act));
}

static const fm_op ATOMS = {"all-atom coordinates", atoms_forward, atoms_backward};

fm_atoms fm_op_atoms(fm_tape *tape, fm_tensor_ref frames, fm_tensor_ref angles,
                     fm_tensor_ref aatype, const fm_atom_tables *tables, double position_scale) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &ATOMS, "all-atom coordinates", sizeof(atoms_attributes), &memory);
    atoms_attributes *at = memory;
    const fm_tensor *x = fm_tape_tensor(tape, frames);
    *at = (atoms_attributes){.n = x->local[0], .position_scale = position_scale};
    assert(angles != FM_TENSOR_NONE || !tape->with_gradient);
    if (angles != FM_TENSOR_NONE) {
        int64_t count = fm_tensor_local_count(fm_tape_tensor(tape, angles)), one = at->n * 14;
        assert(count % one == 0);
        at->before = count - one;
    }
    const fm_tensor_ref inputs[] = {
        frames, angles, aatype, tables->group_frames, tables->atom_positions, tables->atom_group};
    for (int i = 0; i < 6; i++)
        fm_node_input(tape, node, inputs[i], true);
    fm_element act = tape->kernels->act;
    fm_atoms out;
    out.groups =
        fm_node_output(tape, node, act, 3, (int64_t[]){at->n, FM_N_GROUP, FM_MATRIX_FRAME});
    out.atoms = fm_node_output(tape, node, act, 3, (int64_t[]){at->n, FM_N_ATOM, 3});
    return out;
}

/* -- stack */

static void stack_forward(fm_run *run, const fm_node *node) {
    const int64_t *count = node->attributes;
    if (!fm_run_wants_output(run)) return;
    void *y = fm_run_output(run, node, 0);
    for (int i = 0; i < node->n_input; i++) {
        fm_call_copy(run, *count, fm_run_input(run, node, i),
                     fm_run_at(y, i * *count, run->kernels->act));
    }
}

static void stack_backward(fm_run *run, const fm_node *node) {
    const int64_t *count = node->attributes;
    const void *dy = fm_run_output_gradient(run, node, 0);
    for (int i = 0; i < node->n_input; i++) {
        fm_out dx = fm_run_gradient(run, node, i);
        if (dx.data) {
            fm_call_axpy(run, *count, 1.0, fm_run_at(dy, i * *count, run->kernels->act), dx);
        }
    }
}

static const fm_op STACK = {"stack", stack_forward, stack_backward};

fm_tensor_ref fm_op_stack(fm_tape *tape, const fm_tensor_ref *parts, int n_part) {
    void *memory;
    fm_node *node = fm_tape_add(tape, &STACK, "stack", sizeof(int64_t), &memory);
    const fm_tensor *first = fm_tape_tensor(tape, parts[0]);
    int64_t shape[FM_TENSOR_RANK] = {n_part};
    assert(n_part >= 1 && first->rank < FM_TENSOR_RANK);
    for (int i = 0; i < first->rank; i++)
        shape[i + 1] = first->local[i];
    *(int64_t *)memory = fm_tensor_local_count(first);
    for (int i = 0; i < n_part; i++) {
        assert(fm_tensor_local_count(fm_tape_tensor(tape, parts[i])) == *(int64_t *)memory);
        fm_node_input(tape, node, parts[i], false);
    }
    return fm_node_output(tape, node, first->element, first->rank + 1, shape);
}

/* -- pseudo-beta */

static void pseudo_beta_forward(fm_run *run, const fm_node *node) {
    const int64_t *n = node->attributes;
    fm_call_pseudo_beta(run, *n, fm_run_input(run, node, 0), fm_run_input(run, node, 1),
                        fm_run_input(run, node, 2));
}

static const fm_op PSEUDO_BETA = {"hand on pseudo-beta", pseudo_beta_forward, NULL};

void fm_op_store_pseudo_beta(fm_tape *tape, fm_tensor_ref atoms, fm_tensor_ref aatype,
                             fm_tensor_ref to) {
    void *memory;
    fm_node *node =
        fm_tape_add(tape, &PSEUDO_BETA, "hand on pseudo-beta", sizeof(int64_t), &memory);
    const fm_tensor *into = fm_tape_tensor(tape, to);
    assert(into->pool == FM_POOL_STATE && into->element == FM_ELEMENT_F32);
    *(int64_t *)memory = into->local[0];
    fm_node_input(tape, node, atoms, false);
    fm_node_input(tape, node, aatype, false);
    fm_node_input(tape, node, to, false);
}
