/* dap.h: Dynamic Axial Parallelism: an activation [n0, n1, ..] is split over D ranks along axis 0
 * or axis 1. One all-to-all changes between the two splits, so work along either axis is local.
 *
 *     split along 0   rank r holds x[r*n0/D .. , :, :]      row attention, transitions, ...
 *     split along 1   rank r holds x[:, r*n1/D .. , :]      column attention, ...
 *
 * Both extents must be multiples of D: the recorded shape is padded, and masks switch the padding
 * off. The exchange has two halves (exchange.h). It transposes, so there is no packing. */
#ifndef FM_TRAINER_DAP_H
#define FM_TRAINER_DAP_H

#include "trainer/dist/exchange.h"

typedef struct fm_switch {
    fm_pending *pending;
} fm_switch;

/* Begins the change of x, which is split along axis 1 - to_axis, to a split along to_axis; finish
 * returns the result. patient: much other work is recorded before that (fm_message). */
fm_switch fm_dap_switch_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x,
                              int to_axis, bool patient);
fm_tensor_ref fm_dap_switch_finish(fm_tape *tape, const fm_switch *change);

#endif
