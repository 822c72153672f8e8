/* sum.h: sums over a group outside the tape, for parameter gradients. */
#ifndef FM_TRAINER_SUM_H
#define FM_TRAINER_SUM_H

#include "trainer/dist/groups.h"

/* Replaces x [count] (acc type) by its sum over the ranks, in rank order, so all ranks get the same
 * bits. Each rank sums one part and all gather the sums. `scratch` has room for scratch_count
 * elements, at least FM_COMM_SUM_ALIGN; a piece of x with scratch_count elements for each rank is
 * summed at a time. comm NULL: does nothing. */
enum { FM_COMM_SUM_ALIGN = 64 };
void fm_comm_sum(fm_comm *comm, int64_t count, void *x, void *scratch, int64_t scratch_count,
                 fm_stream *stream);

/* Replaces x [count] (acc type), which the ranks of a sample have alike, by its sum over the groups
 * of data parallelism, as fm_comm_sum does and with the same bits. Where groups->is_sliced, each
 * rank of a sample sums one slice over the groups, and gives it to the others of its sample. So D
 * ranks of a sample send together what one would. */
void fm_groups_sum(const fm_groups *groups, int64_t count, void *x, void *scratch,
                   int64_t scratch_count, fm_stream *stream);

/* Whether all ranks of the communicator say yes: a sum over them for which the host waits. It needs
 * no meeting, so other ranks of the run may be elsewhere. `scratch` has room for
 * 2 * FM_COMM_SUM_ALIGN elements. comm NULL: returns `yes`. */
bool fm_comm_agree(fm_comm *comm, bool yes, void *scratch, fm_stream *stream);

#endif
