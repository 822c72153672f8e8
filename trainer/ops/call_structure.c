/* call_structure.c: see call_structure.h. */
#include "trainer/ops/call_structure.h"

void fm_call_ipa(fm_run *run, const fm_ipa *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->ipa_workspace(args));
    if (!run->dry) run->kernels->ipa(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_ipa_grad(fm_run *run, const fm_ipa *args, const fm_ipa_grad *grad) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->ipa_grad_workspace(args));
    if (!run->dry) run->kernels->ipa_grad(run->stream, args, grad, workspace);
    fm_run_release(run, mark);
}

void fm_call_frame_update(fm_run *run, int64_t n, const void *frames, const void *update, void *y) {
    if (!run->dry) run->kernels->frame_update(run->stream, n, frames, update, y);
}

void fm_call_frame_update_grad(fm_run *run, int64_t n, const void *frames, const void *update,
                               const void *dy, fm_out dframes, fm_out dupdate) {
    if (!run->dry) {
        run->kernels->frame_update_grad(run->stream, n, frames, update, dy, dframes, dupdate);
    }
}

void fm_call_matrix_frames(fm_run *run, int64_t n, double scale, const void *frames, void *y) {
    if (!run->dry) run->kernels->matrix_frames(run->stream, n, scale, frames, y);
}

void fm_call_matrix_frames_grad(fm_run *run, int64_t n, double scale, const void *frames,
                                const void *dy, fm_out dx) {
    if (!run->dry && dx.data) {
        run->kernels->matrix_frames_grad(run->stream, n, scale, frames, dy, dx);
    }
}

void fm_call_unit_pairs(fm_run *run, int64_t n, double eps, const void *x, void *y) {
    if (!run->dry) run->kernels->unit_pairs(run->stream, n, eps, x, y);
}

void fm_call_unit_pairs_grad(fm_run *run, int64_t n, double eps, const void *x, const void *dy,
                             fm_out dx) {
    if (!run->dry && dx.data) run->kernels->unit_pairs_grad(run->stream, n, eps, x, dy, dx);
}

void fm_call_residue_atoms(fm_run *run, const fm_residue_atoms *args) {
    if (!run->dry) run->kernels->residue_atoms(run->stream, args);
}

void fm_call_residue_atoms_grad(fm_run *run, const fm_residue_atoms *args, const void *dgroups,
                                const void *datoms, fm_out dframes, fm_out dangles) {
    if (!run->dry) {
        run->kernels->residue_atoms_grad(run->stream, args, dgroups, datoms, dframes, dangles);
    }
}

void fm_call_fape(fm_run *run, const fm_fape *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->fape_workspace(args));
    if (!run->dry) run->kernels->fape(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_fape_grad(fm_run *run, const fm_fape *args, const void *dloss, fm_out dframes,
                       fm_out dpoints) {
    if (!run->dry) run->kernels->fape_grad(run->stream, args, dloss, dframes, dpoints);
}

void fm_call_choose_naming(fm_run *run, const fm_naming *args) {
    if (!run->dry) run->kernels->choose_naming(run->stream, args);
}

void fm_call_torsion_loss(fm_run *run, const fm_torsion_loss *args) {
    if (!run->dry) run->kernels->torsion_loss(run->stream, args);
}

void fm_call_torsion_loss_grad(fm_run *run, const fm_torsion_loss *args, const void *dloss,
                               fm_out dangles, fm_out dunnormalised) {
    if (!run->dry) {
        run->kernels->torsion_loss_grad(run->stream, args, dloss, dangles, dunnormalised);
    }
}

void fm_call_lddt_bins(fm_run *run, const fm_lddt_bins *args) {
    if (!run->dry) run->kernels->lddt_bins(run->stream, args);
}

void fm_call_aligned_error_bins(fm_run *run, const fm_aligned_error_bins *args) {
    if (!run->dry) run->kernels->aligned_error_bins(run->stream, args);
}

void fm_call_binary_entropy(fm_run *run, const fm_binary_entropy *args) {
    if (!run->dry) run->kernels->binary_entropy(run->stream, args);
}

void fm_call_binary_entropy_grad(fm_run *run, const fm_binary_entropy *args, const void *dloss,
                                 fm_out dx) {
    if (!run->dry && dx.data) run->kernels->binary_entropy_grad(run->stream, args, dloss, dx);
}

void fm_call_violation(fm_run *run, const fm_violation *args) {
    int64_t mark = fm_run_mark(run);
    void *workspace = fm_run_workspace(run, (int64_t)run->kernels->violation_workspace(args));
    if (!run->dry) run->kernels->violation(run->stream, args, workspace);
    fm_run_release(run, mark);
}

void fm_call_violation_grad(fm_run *run, const fm_violation *args, const void *dloss,
                            fm_out datoms) {
    if (!run->dry && datoms.data) run->kernels->violation_grad(run->stream, args, dloss, datoms);
}

void fm_call_relu(fm_run *run, int64_t count, const void *x, void *y) {
    if (!run->dry) run->kernels->relu(run->stream, count, x, y);
}

void fm_call_pseudo_beta(fm_run *run, int64_t n, const void *atoms, const uint8_t *aatype,
                         float *y) {
    if (!run->dry) run->kernels->pseudo_beta(run->stream, n, atoms, aatype, y);
}
