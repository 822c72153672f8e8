/* gather.h: slices a tensor into the ranks' parts and gathers the parts again, as nodes of the
 * tape.
 *
 *     slice     this rank's part of a tensor that is the same on all ranks. Its backward gives the
 *               other parts a gradient of 0, since other ranks add theirs
 *     trim      the first rows of a tensor, without those that made its extent divisible
 *     gather    the parts of all ranks, in rank order, on every rank. Its backward is a
 *               reduce-scatter: the gradient of a part is the sum of all ranks' gradients of it
 *     sum       the sum over the ranks, each of which keeps its rows; its backward is a gather
 *
 * The exchange puts the parts into their places along the axis, so there is no packing. */
#ifndef FM_TRAINER_GATHER_H
#define FM_TRAINER_GATHER_H

#include "trainer/dist/exchange.h"

/* Returns this rank's part of x along `axis`. x is whole and of the act type; the extent of `axis`
 * is a multiple of part.count. */
fm_tensor_ref fm_dap_slice(fm_tape *tape, const char *name, fm_part part, fm_tensor_ref x,
                           int axis);

/* Returns the first n rows of x, which is whole; x itself if it has no more. The rows behind them
 * get a gradient of 0. */
fm_tensor_ref fm_dap_trim(fm_tape *tape, const char *name, fm_tensor_ref x, int64_t n);

typedef struct fm_gather {
    fm_pending *pending;
} fm_gather;

/* Begins the gather of x, which is split along axis 0 or 1; finish returns the whole tensor. */
fm_gather fm_dap_gather_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x);
/* Begins the sum of x, of which every rank has a share of all; finish returns this rank's rows. */
fm_gather fm_dap_sum_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x);
fm_tensor_ref fm_dap_gather_finish(fm_tape *tape, const fm_gather *gather);

#endif
