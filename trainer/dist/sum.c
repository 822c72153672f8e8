/* sum.c: see sum.h. */
#include "trainer/dist/sum.h"

#include <assert.h>

void fm_comm_sum(fm_comm *comm, int64_t count, void *x, void *scratch, int64_t scratch_count,
                 fm_stream *stream) {
    if (!comm) return;
    fm_element acc = comm->kernels->acc;
    assert(scratch_count > 0);
    for (int64_t at = 0; at < count; at += scratch_count) {
        int64_t n = count - at < scratch_count ? count - at : scratch_count;
        void *part = (char *)x + at * (int64_t)fm_element_bytes(acc);
        fm_ticket ticket = comm->begin(comm,
                                       &(fm_message){.exchange = FM_EXCHANGE_ALL_REDUCE,
                                                     .element = acc,
                                                     .part_count = n,
                                                     .send = part,
                                                     .receive = scratch},
                                       stream);
        comm->finish(comm, ticket, stream); /* all ranks have read x now */
        size_t ratio = fm_element_bytes(acc) / fm_element_bytes(comm->kernels->act);
        comm->kernels->copy(stream, n * (int64_t)ratio, scratch, part);
    }
}
