/* call_atoms.c: see call_atoms.h. */
#include "trainer/ops/call_atoms.h"

void fm_call_modulate(fm_run *run, const fm_modulate *args) {
    if (!run->dry) run->kernels->modulate(run->stream, args);
}

void fm_call_modulate_grad(fm_run *run, const fm_modulate *args, const fm_modulate_grad *grad) {
    if (!run->dry) run->kernels->modulate_grad(run->stream, args, grad);
}

void fm_call_adaln(fm_run *run, const fm_adaln *args) {
    fm_adaln whole = *args;
    whole.eps = FM_LAYERNORM_EPS;
    if (!run->dry) run->kernels->adaln(run->stream, &whole);
}

void fm_call_adaln_grad(fm_run *run, const fm_adaln *args, const fm_adaln_grad *grad) {
    fm_adaln whole = *args;
    whole.eps = FM_LAYERNORM_EPS;
    if (!run->dry) run->kernels->adaln_grad(run->stream, &whole, grad);
}

void fm_call_gather_rows(fm_run *run, const fm_rows *args, const void *x, fm_out y) {
    if (!run->dry && y.data) run->kernels->gather_rows(run->stream, args, x, y);
}

void fm_call_sum_rows(fm_run *run, const fm_rows *args, const void *x, fm_out y) {
    if (!run->dry && y.data) run->kernels->sum_rows(run->stream, args, x, y);
}

void fm_call_window_pairs(fm_run *run, const fm_window_pairs *args, const void *z, fm_out y) {
    if (!run->dry) run->kernels->window_pairs(run->stream, args, z, y);
}

void fm_call_window_pairs_grad(fm_run *run, const fm_window_pairs *args, const void *dy,
                               fm_out dz) {
    if (!run->dry && dz.data) run->kernels->window_pairs_grad(run->stream, args, dy, dz);
}

void fm_call_window_geometry(fm_run *run, const fm_window_geometry *args) {
    if (!run->dry) run->kernels->window_geometry(run->stream, args);
}

void fm_call_fourier(fm_run *run, int64_t rows, int64_t c, const void *x, const void *w,
                     const void *b, void *y) {
    if (!run->dry) run->kernels->fourier(run->stream, rows, c, x, w, b, y);
}
