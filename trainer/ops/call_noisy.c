/* call_noisy.c: see call_noisy.h. */
#include "trainer/ops/call_noisy.h"

void fm_call_rigid_align(fm_run *run, const fm_rigid_align *args) {
    if (!run->dry) run->kernels->rigid_align(run->stream, args);
}

void fm_call_augment(fm_run *run, const fm_augment *args) {
    if (!run->dry) run->kernels->augment(run->stream, args);
}

void fm_call_square_loss(fm_run *run, const fm_square_loss *args) {
    if (!run->dry) run->kernels->square_loss(run->stream, args);
}

void fm_call_bond_loss(fm_run *run, const fm_bond_loss *args) {
    if (!run->dry) run->kernels->bond_loss(run->stream, args);
}

void fm_call_distance_errors(fm_run *run, const fm_distance_errors *args) {
    if (!run->dry) run->kernels->distance_errors(run->stream, args);
}

void fm_call_frame_errors(fm_run *run, const fm_frame_errors *args) {
    if (!run->dry) run->kernels->frame_errors(run->stream, args);
}

void fm_call_atom_lddt(fm_run *run, const fm_atom_lddt *args) {
    if (!run->dry) run->kernels->atom_lddt(run->stream, args);
}

void fm_call_draw_normal(fm_run *run, int64_t n, const fm_draw *draw, void *y) {
    if (!run->dry) run->kernels->draw_normal(run->stream, n, draw, y);
}

void fm_call_draw_rotations(fm_run *run, int64_t n, const fm_draw *draw, void *y) {
    if (!run->dry) run->kernels->draw_rotations(run->stream, n, draw, y);
}

void fm_call_square_loss_grad(fm_run *run, const fm_square_loss *args, const void *dloss,
                              fm_out dx) {
    if (!run->dry && dx.data) run->kernels->square_loss_grad(run->stream, args, dloss, dx);
}

void fm_call_bond_loss_grad(fm_run *run, const fm_bond_loss *args, const void *dloss, fm_out dx) {
    if (!run->dry && dx.data) run->kernels->bond_loss_grad(run->stream, args, dloss, dx);
}

void fm_call_smooth_lddt_grad(fm_run *run, const fm_smooth_lddt *args, const void *dloss,
                              fm_out dx) {
    if (!run->dry && dx.data) run->kernels->smooth_lddt_grad(run->stream, args, dloss, dx);
}

void fm_call_smooth_lddt(fm_run *run, const fm_smooth_lddt *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->smooth_lddt_workspace(args));
    if (!run->dry) run->kernels->smooth_lddt(run->stream, args, workspace);
    fm_run_release(run, mark);
}
