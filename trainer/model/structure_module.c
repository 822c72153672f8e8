/* structure_module.c: see structure_module.h. */
#include "trainer/model/structure_module.h"

#include "proto/chem/rigid_groups.h"
#include "proto/chem/torsions.h"

#include <assert.h>

enum { N_TYPE = FM_N_RESTYPE + 1, MAX_ITERATION = FM_NODE_INPUTS };

static const double TOLERANCE_DEVIATIONS = 12, OVERLAP_TOLERANCE = 1.5;

void fm_structure_declare_tables(fm_state *state, fm_structure_tables *ret_tables) {
    const fm_element single = FM_ELEMENT_F32, byte = FM_ELEMENT_U8;
    *ret_tables = (fm_structure_tables){
        .group_frames = fm_state_add(state, "ideal group frames", single, 3,
                                     (int64_t[]){N_TYPE, FM_N_GROUP, FM_MATRIX_FRAME}),
        .atom_positions = fm_state_add(state, "ideal atom positions", single, 3,
                                       (int64_t[]){N_TYPE, FM_N_ATOM, 3}),
        .atom_group =
            fm_state_add(state, "groups of atoms", byte, 2, (int64_t[]){N_TYPE, FM_N_ATOM}),
        .radii = fm_state_add(state, "radii of atoms", single, 2, (int64_t[]){N_TYPE, FM_N_ATOM}),
        .bounds = fm_state_add(state, "bounds of distances", single, 4,
                               (int64_t[]){N_TYPE, FM_N_ATOM, FM_N_ATOM, 2}),
        .pi_periodic = fm_state_add(state, "pi-periodic angles", byte, 1, (int64_t[]){N_TYPE})};
}

static void upload(const fm_state *state, int32_t tensor, const void *data) {
    size_t bytes = (size_t)fm_tensor_local_bytes(&state->tensor[tensor]);
    state->kernels->upload(NULL, fm_state_data(state, tensor), data, bytes);
    state->kernels->synchronize(NULL);
}

void fm_structure_upload_tables(const fm_state *state, const fm_structure_tables *tables) {
    float frames[N_TYPE * FM_N_GROUP * FM_MATRIX_FRAME], positions[N_TYPE * FM_N_ATOM * 3];
    float radii[N_TYPE * FM_N_ATOM], bounds[N_TYPE * FM_N_ATOM * FM_N_ATOM * 2];
    uint8_t group[N_TYPE * FM_N_ATOM], periodic[N_TYPE];
    fm_rigid_ideal_frames(frames);
    fm_rigid_radii(radii);
    fm_rigid_distance_bounds(TOLERANCE_DEVIATIONS, OVERLAP_TOLERANCE, bounds);
    for (int i = 0; i < N_TYPE * FM_N_ATOM; i++) {
        const fm_rigid_atom *atom = &fm_rigid_atoms[i / FM_N_ATOM][i % FM_N_ATOM];
        group[i] = atom->group;
        for (int axis = 0; axis < 3; axis++)
            positions[3 * i + axis] = atom->position[axis];
    }
    for (int i = 0; i < N_TYPE; i++)
        periodic[i] = fm_residue_chi[i].pi_periodic;
    upload(state, tables->group_frames, frames);
    upload(state, tables->atom_positions, positions);
    upload(state, tables->atom_group, group);
    upload(state, tables->radii, radii);
    upload(state, tables->bounds, bounds);
    upload(state, tables->pi_periodic, periodic);
}

static fm_tensor_ref update_single(fm_tape *tape, const fm_structure_config *c,
                                   const fm_structure_weights *w, fm_tensor_ref s, fm_tensor_ref z,
                                   fm_tensor_ref frames, fm_tensor_ref mask) {
    s = fm_op_ipa(tape, "invariant point attention", s, z, frames, mask, &w->ipa, true); /* A20:6 */
    s = fm_op_norm(tape, "ipa norm", s, w->norm_ipa, c->dropout);                        /* A20:7 */
    s = fm_op_structure_transition(tape, s, &w->transition);                             /* A20:8 */
    return fm_op_norm(tape, "transition norm", s, w->norm_transition, c->dropout);       /* A20:9 */
}

fm_structure_outputs fm_structure_record(fm_tape *tape, const fm_structure_config *c,
                                         const fm_structure_weights *w,
                                         const fm_structure_tables *tables, fm_tensor_ref single,
                                         fm_tensor_ref pair, fm_tensor_ref aatype,
                                         fm_tensor_ref mask) {
    assert(c->n_iteration >= 1 && c->n_iteration <= MAX_ITERATION);
    fm_tensor_ref frames[MAX_ITERATION], angles[MAX_ITERATION], raw[MAX_ITERATION];
    int64_t n_res = fm_tape_tensor(tape, single)->local[0];
    fm_tensor_ref initial = fm_op_norm(tape, "single norm", single, w->norm_s, 0);   /* A20:1 */
    fm_tensor_ref z = fm_op_norm(tape, "pair norm", pair, w->norm_z, 0);             /* A20:2 */
    fm_tensor_ref s = fm_op_linear(tape, "structure input", initial, n_res, &w->in); /* A20:3 */
    fm_tensor_ref now = fm_op_identity_frames(tape, n_res);                          /* A20:4 */
    int32_t last = c->n_iteration - 1;
    for (int32_t i = 0; i <= last; i++) {
        s = update_single(tape, c, w, s, z, now, mask);
        fm_tensor_ref update =
            fm_op_linear(tape, "backbone update", s, n_res, &w->update); /* A23:1 */
        frames[i] = fm_op_frame_update(tape, now, update);               /* A20:10 */
        raw[i] = fm_op_angles(tape, s, initial, &w->angles);             /* A20:11-14 */
        angles[i] = fm_op_unit_pairs(tape, raw[i]);
        if (i < last) now = fm_op_stop_rotation(tape, frames[i]); /* A20:19-20 */
    }
    fm_atom_tables atoms = {fm_tape_state(tape, tables->group_frames, false),
                            fm_tape_state(tape, tables->atom_positions, false),
                            fm_tape_state(tape, tables->atom_group, false)};
    return (fm_structure_outputs){.frames = fm_op_stack(tape, frames, c->n_iteration),
                                  .last_frames = frames[last],
                                  .angles = fm_op_stack(tape, angles, c->n_iteration),
                                  .unnormalised = fm_op_stack(tape, raw, c->n_iteration),
                                  .atoms = fm_op_atoms(tape, frames[last], angles[last], aatype,
                                                       &atoms, c->position_scale), /* A20:24-25 */
                                  .s = s};
}
