/* sum.h: sums over a group outside the tape: parameter gradients. */
#ifndef FM_TRAINER_SUM_H
#define FM_TRAINER_SUM_H

#include "trainer/dist/comm.h"

/* x [count] (acc) becomes its sum over the ranks, in rank order: the same bits on all of them.
 * `scratch` has room for scratch_count elements; the sum goes in as many pieces as that takes.
 * comm NULL: nothing. */
void fm_comm_sum(fm_comm *comm, int64_t count, void *x, void *scratch, int64_t scratch_count,
                 fm_stream *stream);

#endif
