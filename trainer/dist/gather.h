/* gather.h: from parts to wholes and back, as nodes of the tape.
 *
 *     slice     this rank's part of a tensor that is the same on all ranks; no gradient
 *     gather    the parts of all ranks, in rank order, on every rank. Its backward is a
 *               reduce-scatter: a part's gradient is the sum of what all ranks have of it
 *
 * A gather of parts along axis 0 needs no packing: what arrives lies in order. */
#ifndef FM_TRAINER_GATHER_H
#define FM_TRAINER_GATHER_H

#include "trainer/dist/exchange.h"

/* x act, whole, its axis a multiple of the ranks -> this rank's part of it along `axis`. */
fm_tensor_ref fm_dap_slice(fm_tape *tape, const char *name, fm_part part, fm_tensor_ref x,
                           int axis);

typedef struct fm_gather {
    fm_pending *pending;
    fm_tensor result;
    int axis;
    int64_t outer, local, inner; /* of a part: x [outer, local, inner], `local` along the axis */
} fm_gather;

/* x is split along axis 0 or 1. */
fm_gather fm_dap_gather_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x);
fm_tensor_ref fm_dap_gather_finish(fm_tape *tape, const fm_gather *gather);

#endif
