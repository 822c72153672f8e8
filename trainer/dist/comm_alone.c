/* comm_alone.c: the communicator of a group of one rank, where each exchange is a copy. */
#include "trainer/dist/comm.h"

#include <assert.h>

static fm_ticket begin(fm_comm *comm, const fm_message *message, fm_stream *stream) {
    assert(message->element == comm->kernels->act);
    comm->kernels->copy(stream, message->part_count, message->send, message->receive);
    return 1;
}

static void finish(fm_comm *comm, fm_ticket ticket, fm_stream *stream) {
    (void)comm;
    (void)stream;
    assert(ticket == 1);
    (void)ticket;
}

void fm_comm_alone(fm_comm *comm, const fm_kernels *kernels) {
    *comm = (fm_comm){.size = 1, .begin = begin, .finish = finish, .kernels = kernels};
}
