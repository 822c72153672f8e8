/* structure_truth.c: see structure.h. */
#include "trainer/step/structure_truth.h"

#include "proto/chem/atom14.h"
#include "proto/chem/frames.h"
#include "proto/chem/torsions.h"

#include <assert.h>
#include <string.h>

static const fm_fape_options FAPE = {10, 10, 1e-4, 10};
static const double CHI_WEIGHT = 0.5, NORM_WEIGHT = 0.01;

/* ---- state ----------------------------------------------------------------------------------- */

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

/* ---- from coordinates ------------------------------------------------------------------------ */

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
        for (int64_t a = 0; a < FM_N_ATOM37; a++) {
            place(w, t->resolved)[i * FM_N_ATOM37 + a] = mask[a];
        }
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
    if (!space || !bytes) {
        return false;
    }
    uint8_t *mask = bytes + (size_t)f->n_res * (FM_N_ATOM37 + FM_N_ATOM14);
    for (size_t k = 0; k < (size_t)f->n_res * FM_N_ATOM37; k++) {
        mask[k] = f->all_atom_mask[k / FM_N_ATOM37] >> k % FM_N_ATOM37 & 1;
    }
    fm_atom37 chain = {f->n_res, f->aatype, f->all_atom_positions, mask};
    put_groups(&w, t, &chain, space);
    put_torsions(&w, t, &chain, space);
    put_atoms(&w, t, &chain, bytes);
    *place(&w, t->clamped) = clamped;
    fm_arena_rewind(scratch, mark);
    return true;
}

/* ---- recording ------------------------------------------------------------------------------- */

static void record_atom_losses(fm_tape *tape, const fm_model_inputs *in,
                               const fm_structure_truth *t, const fm_structure_outputs *o,
                               fm_tensor_ref *terms) {
    const fm_side_chain_truth side = {
        fm_tape_state(tape, t->positions, false),    fm_tape_state(tape, t->alt_positions, false),
        fm_tape_state(tape, t->exists, false),       fm_tape_state(tape, t->alt_exists, false),
        fm_tape_state(tape, t->is_ambiguous, false), fm_tape_state(tape, t->frames, false),
        fm_tape_state(tape, t->alt_frames, false),   fm_tape_state(tape, t->frames_exist, false)};
    const fm_violation_inputs violation = {
        fm_tape_state(tape, t->atom_exists, false), fm_tape_state(tape, in->residue_index, false),
        fm_tape_state(tape, in->aatype, false), fm_tape_state(tape, in->tables.radii, false),
        fm_tape_state(tape, in->tables.bounds, false)};
    terms[FM_TERM_SIDE_CHAIN] =
        fm_op_side_chain_fape(tape, o->atoms.groups, o->atoms.atoms, &side, &FAPE);
    terms[FM_TERM_VIOLATION] = fm_op_violation_loss(tape, o->atoms.atoms, &violation, NULL);
}

void fm_structure_record_losses(fm_tape *tape, const fm_model_config *config,
                                const fm_model_weights *w, const fm_model_inputs *in,
                                const fm_structure_truth *t, const fm_model_outputs *out,
                                fm_tensor_ref ret_terms[FM_STRUCTURE_TERMS]) {
    const fm_structure_outputs *o = &out->structure;
    fm_tensor_ref backbone = fm_tape_state(tape, t->backbone_frames, false);
    fm_tensor_ref backbone_mask = fm_tape_state(tape, t->backbone_mask, false);
    const fm_torsion_truth torsion = {
        fm_tape_state(tape, t->chi, false), fm_tape_state(tape, t->chi_mask, false),
        fm_tape_state(tape, t->seq_mask, false), fm_tape_state(tape, in->aatype, false),
        fm_tape_state(tape, in->tables.pi_periodic, false)};
    ret_terms[FM_TERM_BACKBONE] = fm_op_backbone_fape(
        tape, o->frames, backbone, backbone_mask, fm_tape_state(tape, t->clamped, false), &FAPE);
    ret_terms[FM_TERM_TORSION] =
        fm_op_torsion_loss(tape, o->angles, o->unnormalised, &torsion, CHI_WEIGHT, NORM_WEIGHT);
    record_atom_losses(tape, in, t, o, ret_terms);
    ret_terms[FM_TERM_PLDDT] = fm_op_plddt_loss(
        tape, fm_op_plddt_logits(tape, o->s, &w->heads.plddt), o->atoms.atoms,
        fm_tape_state(tape, t->ca_positions, false), fm_tape_state(tape, t->ca_mask, false));
    fm_tensor_ref resolved = fm_op_linear(tape, "experimentally resolved", out->single,
                                          config->n_res, &w->heads.resolved);
    ret_terms[FM_TERM_RESOLVED] =
        fm_op_resolved_loss(tape, resolved, fm_tape_state(tape, t->resolved, false),
                            fm_tape_state(tape, t->atom37_exists, false));
    ret_terms[FM_TERM_ALIGNED_ERROR] = FM_TENSOR_NONE;
    if (config->structure.n_aligned_error_bin > 0) {
        fm_tensor_ref error = fm_op_linear(tape, "aligned error", out->z,
                                           config->n_res * config->n_res, &w->heads.aligned_error);
        ret_terms[FM_TERM_ALIGNED_ERROR] = fm_op_aligned_error_loss(
            tape, error, o->last_frames, backbone, backbone_mask, config->structure.position_scale);
    }
}
