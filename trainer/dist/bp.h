/* bp.h: Branch Parallelism: two ranks run the two branches of a block, the MSA's (rank 0) and the
 * pair array's (rank 1), and meet where the outer product mean is added to the pair array.
 *
 *     join    every rank has x; all get the sum. Forward that is "the MSA's update plus z", in one
 *             exchange; backward the sum of what both branches have of its gradient, in one more
 *     share   the root has x; all get it. Backward the sum of all gradients goes to the root
 *
 * The two ranks record different nodes, but these exchanges in the same order. Both run them
 * backward, with a gradient of zeros where nothing behind them has one. */
#ifndef FM_TRAINER_BP_H
#define FM_TRAINER_BP_H

#include "trainer/dist/exchange.h"

/* Both end with fm_exchange_finish. */
fm_pending *fm_bp_join_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x);

/* x: FM_TENSOR_NONE but on the root; like: its description, the same on all ranks. */
fm_pending *fm_bp_share_begin(fm_tape *tape, const char *name, fm_comm *comm, int32_t root,
                              fm_tensor_ref x, const fm_tensor *like);

#endif
