/* structure_truth.h: the ground truth that the losses on structures read: tensors of the state,
 * made on the host from a sample's coordinates (proto/chem).
 *
 * They are f32 and padded to the recorded shape; the masks of the padding are 0. */
#ifndef FM_TRAINER_STEP_STRUCTURE_H
#define FM_TRAINER_STEP_STRUCTURE_H

#include "trainer/loss/terms.h"
#include "trainer/model/model.h"
#include "trainer/step/step_features.h"

/* Positions in the state. All tensors are f32 and have N_res rows; `clamped` has one element. */
typedef struct fm_structure_truth {
    int32_t backbone_frames, backbone_mask;   /* [N_res, 4, 4], [N_res] */
    int32_t clamped;                          /* [1] */
    int32_t positions, alt_positions;         /* [N_res, 14, 3] */
    int32_t exists, alt_exists, is_ambiguous; /* [N_res, 14] */
    int32_t frames, alt_frames, frames_exist; /* [N_res, 8, 4, 4] twice, [N_res, 8] */
    int32_t chi, chi_mask, seq_mask;          /* [N_res, 4, 2], [N_res, 4], [N_res] */
    int32_t atom_exists;                      /* [N_res, 14] */
    int32_t resolved, atom37_exists;          /* [N_res, 37] */
    int32_t ca_positions, ca_mask;            /* [N_res, 3], [N_res] */
} fm_structure_truth;

void fm_structure_declare_truth(fm_state *state, int64_t n_res, fm_structure_truth *ret_truth);

/* Fills the host's copy of the state (its device layout) from a sample of at most n_res residues.
 * It uses `scratch` and rewinds it; returns false when that is full. clamped: whether the backbone
 * errors of this sample are cut at the clamp. */
bool fm_structure_put_truth(const fm_state *state, const fm_structure_truth *truth,
                            const fm_features *features, int64_t n_res, bool clamped, uint8_t *host,
                            fm_arena *scratch);

/* Lists the tensors of the truth, for sending them; returns how many there are. */
int fm_structure_list_truth(const fm_structure_truth *truth, int32_t *ret_tensors);
enum { FM_STRUCTURE_TRUTHS = 19 };

/* Collects what the losses read of a recorded last cycle. The caller adds true_msa, bert_mask,
 * pseudo_beta and its mask; where there is a structure module, fm_structure_add_truth adds the
 * truth. */
fm_loss_inputs fm_loss_inputs_of(const fm_model_config *config, const fm_model_weights *weights,
                                 const fm_model_outputs *out);
void fm_structure_add_truth(fm_tape *tape, const fm_structure_truth *truth,
                            const fm_model_inputs *inputs, fm_loss_inputs *loss);

#endif
