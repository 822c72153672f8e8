/* call_noisy.h: the wrappers of call.h for the kernels of structures with noise. Each has the name
 * of its kernel. A gradient whose data pointer is NULL is not computed. */
#ifndef FM_TRAINER_CALL_NOISY_H
#define FM_TRAINER_CALL_NOISY_H

#include "trainer/ops/call.h"

void fm_call_rigid_align(fm_run *run, const fm_rigid_align *args);
void fm_call_augment(fm_run *run, const fm_augment *args);
void fm_call_draw_normal(fm_run *run, int64_t n, const fm_draw *draw, void *y);
void fm_call_draw_rotations(fm_run *run, int64_t n, const fm_draw *draw, void *y);
void fm_call_square_loss(fm_run *run, const fm_square_loss *args);
void fm_call_square_loss_grad(fm_run *run, const fm_square_loss *args, const void *dloss,
                              fm_out dx);
void fm_call_bond_loss(fm_run *run, const fm_bond_loss *args);
void fm_call_bond_loss_grad(fm_run *run, const fm_bond_loss *args, const void *dloss, fm_out dx);
void fm_call_smooth_lddt(fm_run *run, const fm_smooth_lddt *args);
void fm_call_smooth_lddt_grad(fm_run *run, const fm_smooth_lddt *args, const void *dloss,
                              fm_out dx);
void fm_call_distance_errors(fm_run *run, const fm_distance_errors *args);
void fm_call_frame_errors(fm_run *run, const fm_frame_errors *args);
void fm_call_atom_lddt(fm_run *run, const fm_atom_lddt *args);

#endif
