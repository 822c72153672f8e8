/* structure_truth.c: see structure_truth.h. */
#include "trainer/step/structure_truth.h"

#include "proto/chem/atom14.h"
#include "proto/chem/frames.h"
#include "proto/chem/torsions.h"

#include <assert.h>
#include <string.h>

/* -- state */

void fm_structure_declare_truth(fm_state *state, int64_t n, fm_structure_truth *ret_truth) {
    const fm_element f32 = FM_ELEMENT_F32;
    const int64_t one[] = {1}, rows[] = {n}, points[] = {n, 3}, chi[] = {n, 8}, four[] = {n, 4};
    const int64_t matrix[] = {n, 16}, groups[] = {n, 128}, group[] = {n, 8};
    const int64_t atoms[] = {n, 14}, atom_points[] = {n, 42}, atoms37[] = {n, FM_N_ATOM37};
    *ret_truth = (fm_structure_truth){
        .backbone_frames = fm_state_add(state, "backbone_rigid_tensor", f32, 2, matrix),
        .backbone_mask = fm_state_add(state, "backbone_rigid_mask", f32, 1, rows),
        .clamped = fm_state_add(state, "use_clamped_fape", f32, 1, one),
        .positions = fm_state_add(state, "atom14_gt_positions", f32, 2, atom_points),
        .alt_positions = fm_state_add(state, "atom14_alt_gt_positions", f32, 2, atom_points),
        .exists = fm_state_add(state, "atom14_gt_exists", f32, 2, atoms),
        .alt_exists = fm_state_add(state, "atom14_alt_gt_exists", f32, 2, atoms),
        .is_ambiguous = fm_state_add(state, "atom14_atom_is_ambiguous", f32, 2, atoms),
        .frames = fm_state_add(state, "rigidgroups_gt_frames", f32, 2, groups),
        .alt_frames = fm_state_add(state, "rigidgroups_alt_gt_frames", f32, 2, groups),
        .frames_exist = fm_state_add(state, "rigidgroups_gt_exists", f32, 2, group),
        .chi = fm_state_add(state, "chi_angles_sin_cos", f32, 2, chi),
        .chi_mask = fm_state_add(state, "chi_mask", f32, 2, four),
        .seq_mask = fm_state_add(state, "seq_mask of losses", f32, 1, rows),
        .atom_exists = fm_state_add(state, "atom14_atom_exists", f32, 2, atoms),
        .resolved = fm_state_add(state, "all_atom_mask", f32, 2, atoms37),
        .atom37_exists = fm_state_add(state, "atom37_atom_exists", f32, 2, atoms37),
        .ca_positions = fm_state_add(state, "true CA positions", f32, 2, points),
        .ca_mask = fm_state_add(state, "true CA mask", f32, 1, rows)};
}

int fm_structure_list_truth(const fm_structure_truth *t, int32_t *ret_tensors) {
    const int32_t all[FM_STRUCTURE_TRUTHS] = {
        t->backbone_frames, t->backbone_mask, t->clamped,      t->positions, t->alt_positions,
        t->exists,          t->alt_exists,    t->is_ambiguous, t->frames,    t->alt_frames,
        t->frames_exist,    t->chi,           t->chi_mask,     t->seq_mask,  t->atom_exists,
        t->resolved,        t->atom37_exists, t->ca_positions, t->ca_mask};
    memcpy(ret_tensors, all, sizeof all);
    return FM_STRUCTURE_TRUTHS;
}

/* -- from coordinates */

typedef struct writer {
    const fm_state *state;
    uint8_t *host;
    int64_t n; /* residues of the sample */
} writer;

static float *place(const writer *w, int32_t tensor) {
    return (float *)(void *)(w->host + w->state->offset[tensor]);
}

static void put_groups(const writer *w, const fm_structure_truth *t, const fm_atom37 *chain,
                       float *unused) {
    const fm_rigid_groups groups = {.rigidgroups_gt_frames = place(w, t->frames),
                                    .rigidgroups_gt_exists = place(w, t->frames_exist),
                                    .rigidgroups_group_exists = unused,
                                    .rigidgroups_group_is_ambiguous = unused + w->n * 8,
                                    .rigidgroups_alt_gt_frames = place(w, t->alt_frames)};
    fm_rigid_list_groups(chain, &groups);
    fm_rigid_list_backbone(chain, place(w, t->backbone_frames), place(w, t->backbone_mask));
}

static void put_torsions(const writer *w, const fm_structure_truth *t, const fm_atom37 *chain,
                         float *space) {
    const fm_torsions torsions = {.torsion_angles_sin_cos = space,
                                  .alt_torsion_angles_sin_cos = space + w->n * 14,
                                  .torsion_angles_mask = space + w->n * 28};
    fm_torsions_list(chain, &torsions);
    for (int64_t i = 0; i < w->n; i++) {
        memcpy(place(w, t->chi) + i * 8, space + i * 14 + 6, 8 * sizeof(float));
        memcpy(place(w, t->chi_mask) + i * 4, space + w->n * 28 + i * 7 + 3, 4 * sizeof(float));
    }
}

static void put_atoms(const writer *w, const fm_structure_truth *t, const fm_atom37 *chain,
                      uint8_t *indices) {
    const fm_atom14_truth truth = {.atom14_gt_exists = place(w, t->exists),
                                   .atom14_gt_positions = place(w, t->positions),
                                   .atom14_alt_gt_positions = place(w, t->alt_positions),
                                   .atom14_alt_gt_exists = place(w, t->alt_exists),
                                   .atom14_atom_is_ambiguous = place(w, t->is_ambiguous)};
    const fm_atom14_masks masks = {.atom14_atom_exists = place(w, t->atom_exists),
                                   .residx_atom14_to_atom37 = indices,
                                   .residx_atom37_to_atom14 = indices + w->n * FM_N_ATOM14,
                                   .atom37_atom_exists = place(w, t->atom37_exists)};
    fm_atom14_ground_truth(chain, &truth);
    fm_atom14_list_masks(chain, &masks);
    for (int64_t i = 0; i < w->n; i++) {
        const uint8_t *mask = chain->mask + i * FM_N_ATOM37;
        for (int64_t a = 0; a < FM_N_ATOM37; a++)
            place(w, t->resolved)[i * FM_N_ATOM37 + a] = mask[a];
        place(w, t->seq_mask)[i] = 1;
        place(w, t->ca_mask)[i] = mask[FM_ATOM37_CA];
        memcpy(place(w, t->ca_positions) + 3 * i,
               fm_atom37_position(chain, (size_t)i, FM_ATOM37_CA), 3 * sizeof(float));
    }
}

bool fm_structure_put_truth(const fm_state *state, const fm_structure_truth *t,
                            const fm_features *f, int64_t n_res, bool clamped, uint8_t *host,
                            fm_arena *scratch) {
    int32_t tensors[FM_STRUCTURE_TRUTHS];
    assert(f->n_res <= n_res);
    (void)n_res;
    for (int i = 0; i < fm_structure_list_truth(t, tensors); i++) {
        size_t bytes = (size_t)fm_tensor_local_bytes(&state->tensor[tensors[i]]);
        memset(host + state->offset[tensors[i]], 0, bytes);
    }
    writer w = {state, host, f->n_res};
    size_t mark = fm_arena_mark(scratch);
    float *space = fm_arena_alloc_array(scratch, (size_t)f->n_res * 35, sizeof *space);
    uint8_t *bytes = fm_arena_alloc_array(scratch, (size_t)f->n_res, 2 * FM_N_ATOM37 + FM_N_ATOM14);
    if (!space || !bytes) return false;
    uint8_t *mask = bytes + (size_t)f->n_res * (FM_N_ATOM37 + FM_N_ATOM14);
    for (size_t k = 0; k < (size_t)f->n_res * FM_N_ATOM37; k++)
        mask[k] = f->all_atom_mask[k / FM_N_ATOM37] >> k % FM_N_ATOM37 & 1;
    fm_atom37 chain = {f->n_res, f->aatype, f->all_atom_positions, mask};
    put_groups(&w, t, &chain, space);
    put_torsions(&w, t, &chain, space);
    put_atoms(&w, t, &chain, bytes);
    *place(&w, t->clamped) = clamped;
    fm_arena_rewind(scratch, mark);
    return true;
}

/* -- recording */

/* -- on the tape */

static fm_tensor_ref on(fm_tape *tape, int32_t state_tensor) {
    return fm_tape_state(tape, state_tensor, false);
}

void fm_structure_add_truth(fm_tape *tape, const fm_structure_truth *t, const fm_model_inputs *in,
                            fm_loss_inputs *loss) {
    loss->backbone_frames = on(tape, t->backbone_frames);
    loss->backbone_mask = on(tape, t->backbone_mask);
    loss->clamped = on(tape, t->clamped);
    loss->side_chain = (fm_side_chain_truth){.positions = on(tape, t->positions),
                                             .alt_positions = on(tape, t->alt_positions),
                                             .exists = on(tape, t->exists),
                                             .alt_exists = on(tape, t->alt_exists),
                                             .is_ambiguous = on(tape, t->is_ambiguous),
                                             .frames = on(tape, t->frames),
                                             .alt_frames = on(tape, t->alt_frames),
                                             .frames_exist = on(tape, t->frames_exist)};
    loss->torsion = (fm_torsion_truth){.chi = on(tape, t->chi),
                                       .chi_mask = on(tape, t->chi_mask),
                                       .seq_mask = on(tape, t->seq_mask),
                                       .aatype = on(tape, in->aatype),
                                       .pi_periodic = on(tape, in->tables.pi_periodic)};
    loss->violation = (fm_violation_inputs){.exists = on(tape, t->atom_exists),
                                            .residue_index = on(tape, in->residue_index),
                                            .aatype = on(tape, in->aatype),
                                            .radii = on(tape, in->tables.radii),
                                            .bounds = on(tape, in->tables.bounds)};
    loss->ca_positions = on(tape, t->ca_positions);
    loss->ca_mask = on(tape, t->ca_mask);
    loss->atoms_seen = on(tape, t->resolved);
    loss->atoms_of_residue = on(tape, t->atom37_exists);
}

fm_loss_inputs fm_loss_inputs_of(const fm_model_config *config, const fm_model_weights *w,
                                 const fm_model_outputs *out) {
    const fm_structure_outputs *o = &out->structure;
    fm_loss_inputs loss = {.n_res = config->n_res,
                           .n_distogram_bin = config->n_distogram_bin,
                           .m = out->m,
                           .z = out->z,
                           .single = out->single,
                           .distogram_head = w->distogram,
                           .masked_msa_head = w->masked_msa,
                           .has_structure = config->structure.n_iteration > 0};
    if (loss.has_structure) {
        loss.n_aligned_error_bin = config->structure.n_aligned_error_bin;
        loss.position_scale = config->structure.position_scale;
        loss.s = o->s;
        loss.frames = o->frames;
        loss.last_frames = o->last_frames;
        loss.angles = o->angles;
        loss.unnormalised = o->unnormalised;
        loss.groups = o->atoms.groups;
        loss.atoms = o->atoms.atoms;
        loss.plddt_head = w->heads.plddt;
        loss.resolved_head = w->heads.resolved;
        loss.aligned_error_head = w->heads.aligned_error;
    }
    return loss;
}
