/* call_structure.h: the wrappers of call.h for the structure module's kernels and its losses. */
#ifndef FM_TRAINER_CALL_STRUCTURE_H
#define FM_TRAINER_CALL_STRUCTURE_H

#include "trainer/ops/call.h"

void fm_call_ipa(fm_run *run, const fm_ipa *args);
void fm_call_ipa_grad(fm_run *run, const fm_ipa *args, const fm_ipa_grad *grad);
/* Each wrapper has the name of its kernel. A gradient with a NULL place is not made. */
void fm_call_frame_update(fm_run *run, int64_t n, const void *frames, const void *update, void *y);
void fm_call_frame_update_grad(fm_run *run, int64_t n, const void *frames, const void *update,
                               const void *dy, fm_out dframes, fm_out dupdate);
void fm_call_matrix_frames(fm_run *run, int64_t n, double scale, const void *frames, void *y);
void fm_call_matrix_frames_grad(fm_run *run, int64_t n, double scale, const void *frames,
                                const void *dy, fm_out dx);
void fm_call_unit_pairs(fm_run *run, int64_t n, double eps, const void *x, void *y);
void fm_call_unit_pairs_grad(fm_run *run, int64_t n, double eps, const void *x, const void *dy,
                             fm_out dx);
void fm_call_residue_atoms(fm_run *run, const fm_residue_atoms *args);
void fm_call_residue_atoms_grad(fm_run *run, const fm_residue_atoms *args, const void *dgroups,
                                const void *datoms, fm_out dframes, fm_out dangles);
void fm_call_fape(fm_run *run, const fm_fape *args);
void fm_call_fape_grad(fm_run *run, const fm_fape *args, const void *dloss, fm_out dframes,
                       fm_out dpoints);
void fm_call_choose_naming(fm_run *run, const fm_naming *args);
void fm_call_torsion_loss(fm_run *run, const fm_torsion_loss *args);
void fm_call_torsion_loss_grad(fm_run *run, const fm_torsion_loss *args, const void *dloss,
                               fm_out dangles, fm_out dunnormalised);
void fm_call_lddt_bins(fm_run *run, const fm_lddt_bins *args);
void fm_call_aligned_error_bins(fm_run *run, const fm_aligned_error_bins *args);
void fm_call_binary_entropy(fm_run *run, const fm_binary_entropy *args);
void fm_call_binary_entropy_grad(fm_run *run, const fm_binary_entropy *args, const void *dloss,
                                 fm_out dx);
void fm_call_violation(fm_run *run, const fm_violation *args);
void fm_call_violation_grad(fm_run *run, const fm_violation *args, const void *dloss,
                            fm_out datoms);
void fm_call_pseudo_beta(fm_run *run, int64_t n, const void *atoms, const uint8_t *aatype,
                         float *y);
/* y = max(x, 0), y may be x. */
void fm_call_relu(fm_run *run, int64_t count, const void *x, void *y);

#endif
