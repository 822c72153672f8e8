/* bp.h: Branch Parallelism: two ranks run the two branches of a block, rank 0 that of the MSA and
 * rank 1 that of the pair array. The branches meet where the outer product mean is added to the
 * pair array.
 *
 *     join    Every rank has x, and all get the sum. Forward, one exchange computes "the MSA's
 *             update plus z". Backward, one exchange sums the gradients of both branches.
 *     share   The root has x, and all get it. Backward, the sum of all gradients goes to the root.
 *
 * The two ranks record different nodes, but the same exchanges in the same order. Both ranks run
 * the exchanges backward; a rank without a gradient sends zeros. */
#ifndef FM_TRAINER_BP_H
#define FM_TRAINER_BP_H

#include "trainer/dist/exchange.h"

/* Both functions begin an exchange; fm_exchange_finish ends it. */
fm_pending *fm_bp_join_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_tensor_ref x);

/* x: FM_TENSOR_NONE on all ranks but the root. like: description of x, the same on all ranks. */
fm_pending *fm_bp_share_begin(fm_tape *tape, const char *name, fm_comm *comm, int32_t root,
                              fm_tensor_ref x, const fm_tensor *like);

#endif
