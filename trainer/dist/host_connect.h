/* host_connect.h: makes TCP connections between ranks of a run that have met (meeting.h), for
 * exchanges between hosts and for the tree of a meeting.
 *
 * Each rank listens on the address by which it is connected to the meeting, and tells the others
 * through the meeting where that is, with a random word. Who connects must know this word. */
#ifndef FM_TRAINER_HOST_CONNECT_H
#define FM_TRAINER_HOST_CONNECT_H

#include "trainer/dist/meeting.h"
#include "trainer/dist/topology.h"

/* The other end of a connection. Both ends give the same group, so two ranks may have several. */
typedef struct fm_host_end {
    int32_t group, rank; /* the rank is of the run */
} fm_host_end;

/* Collective over the meeting: makes the connections of this rank, [n] or none. fds[i] leads to
 * ends[i]; it is non-blocking. Gathers wait `seconds`. Connections wait half of that, at most 60 s,
 * since all ranks are there by then. FM_ERR_CLOSED names the ranks that do not connect in time,
 * with their hosts. FM_ERR_IO, FM_ERR_NOMEM, and the errors of fm_address_connect and
 * fm_meeting_gather. After a failure no connection is left. One rank may fail alone; the caller
 * tells the others. */
FM_MUST_USE fm_status fm_host_connect(fm_meeting *meeting, const fm_topology *topology,
                                      const fm_host_end *ends, int32_t n, double seconds, int *fds,
                                      fm_error *reterr);

#endif
