/* call_atoms.h: the wrappers of call.h for the kernels of atoms and tokens. Each has the name of
 * its kernel. A gradient whose data pointer is NULL is not computed. */
#ifndef FM_TRAINER_CALL_ATOMS_H
#define FM_TRAINER_CALL_ATOMS_H

#include "trainer/ops/call.h"

void fm_call_modulate(fm_run *run, const fm_modulate *args);
void fm_call_modulate_grad(fm_run *run, const fm_modulate *args, const fm_modulate_grad *grad);
/* Callers leave eps empty. */
void fm_call_adaln(fm_run *run, const fm_adaln *args);
void fm_call_adaln_grad(fm_run *run, const fm_adaln *args, const fm_adaln_grad *grad);
void fm_call_gather_rows(fm_run *run, const fm_rows *args, const void *x, fm_out y);
void fm_call_sum_rows(fm_run *run, const fm_rows *args, const void *x, fm_out y);
void fm_call_window_pairs(fm_run *run, const fm_window_pairs *args, const void *z, fm_out y);
void fm_call_window_pairs_grad(fm_run *run, const fm_window_pairs *args, const void *dy, fm_out dz);
void fm_call_window_geometry(fm_run *run, const fm_window_geometry *args);
void fm_call_fourier(fm_run *run, int64_t rows, int64_t c, const void *x, const void *w,
                     const void *b, void *y);

#endif
