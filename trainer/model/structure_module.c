/* structure_module.c: see structure_module.h. */
#include "trainer/model/structure_module.h"

#include "proto/chem/rigid_groups.h"
#include "proto/chem/torsions.h"
#include "trainer/dist/gather.h"
#include "trainer/ops/widen.h"

#include <assert.h>

enum { N_TYPE = FM_N_RESTYPE + 1, MAX_ITERATION = FM_MAX_ANGLE_PARTS };

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

/* What all iterations read. */
typedef struct module {
    fm_tape *tape;
    const fm_structure_config *config;
    const fm_structure_weights *weights;
    int64_t n_res;
    fm_tensor_ref z, pair_bias, mask;
} module;

/* One iteration on s and frames, which become those of the next one. */
static void iterate(const module *m, fm_tensor_ref *s, fm_tensor_ref *frames) {
    const fm_structure_weights *w = m->weights;
    double rate = m->config->dropout;
    *s = fm_op_ipa(m->tape, "invariant point attention", *s, m->z, m->pair_bias, *frames, m->mask,
                   &w->ipa, true);                                             /* A20:6 */
    *s = fm_op_norm(m->tape, "ipa norm", *s, w->norm_ipa, rate);               /* A20:7 */
    *s = fm_op_structure_transition(m->tape, *s, &w->transition);              /* A20:8 */
    *s = fm_op_norm(m->tape, "transition norm", *s, w->norm_transition, rate); /* A20:9 */
    fm_tensor_ref update =
        fm_op_linear(m->tape, "backbone update", *s, m->n_res, &w->update); /* A23:1 */
    *frames = fm_op_frame_update(m->tape, *frames, update);                 /* A20:10 */
}

fm_structure_outputs fm_structure_record(fm_tape *tape, const fm_structure_config *c,
                                         const fm_structure_weights *w,
                                         const fm_structure_inputs *in, bool backbone_only) {
    assert(c->n_iteration >= 1 && c->n_iteration <= MAX_ITERATION);
    assert(!backbone_only || !tape->with_gradient);
    fm_tensor_ref frames[MAX_ITERATION], of[MAX_ITERATION];
    module m = {tape, c, w, fm_tape_tensor(tape, in->single)->local[0], .mask = in->mask};
    fm_tensor_ref initial = fm_op_norm(tape, "single norm", in->single, w->norm_s, 0); /* A20:1 */
    m.z = tape->chunk_bytes > 0 ? fm_op_widen_norm(tape, "pair norm", in->pair, w->norm_z)
                                : fm_op_norm(tape, "pair norm", in->pair, w->norm_z, 0); /* A20:2 */
    if (in->others) {
        fm_gather gather = fm_dap_gather_begin(tape, "pair", in->others, m.z);
        m.z = fm_dap_gather_finish(tape, &gather);
    }
    m.pair_bias = fm_op_ipa_bias(tape, m.z, &w->ipa);
    fm_tensor_ref s = fm_op_linear(tape, "structure input", initial, m.n_res, &w->in); /* A20:3 */
    fm_tensor_ref now = fm_op_identity_frames(tape, m.n_res);                          /* A20:4 */
    int32_t last = c->n_iteration - 1;
    for (int32_t i = 0; i <= last; i++) {
        iterate(&m, &s, &now);
        frames[i] = now;
        /* Without gradient the next iteration updates s in place. */
        of[i] = tape->in_place && i < last && !backbone_only ? fm_op_stack(tape, &s, 1) : s;
        if (i < last) now = fm_op_stop_rotation(tape, now); /* A20:19-20 */
    }
    fm_structure_outputs out = {.frames = FM_TENSOR_NONE,
                                .last_frames = frames[last],
                                .angles = FM_TENSOR_NONE,
                                .unnormalised = FM_TENSOR_NONE,
                                .s = s};
    if (!backbone_only) {
        out.frames = fm_op_stack(tape, frames, c->n_iteration);
        out.unnormalised =
            fm_op_angles(tape, of, c->n_iteration, initial, &w->angles); /* A20:11-14 */
        out.angles = fm_op_unit_pairs(tape, out.unnormalised);
    }
    fm_atom_tables atoms = {fm_tape_state(tape, in->tables->group_frames, false),
                            fm_tape_state(tape, in->tables->atom_positions, false),
                            fm_tape_state(tape, in->tables->atom_group, false)};
    out.atoms = fm_op_atoms(tape, frames[last], out.angles, in->aatype, &atoms,
                            c->position_scale); /* A20:24-25 */
    return out;
}
