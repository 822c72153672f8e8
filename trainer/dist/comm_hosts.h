/* comm_hosts.h: communicators between ranks that compute on CPUs and are not all on one host. Parts
 * go over TCP as bytes (host_links.h), and each rank makes its sums in rank order, so all bits are
 * those of comm_shm and comm_local. It is for tests and small clusters.
 *
 * A rank packs what it sends at begin. At finish it waits until its own parts are with the network
 * and those of the others have come. When the run is over (fm_board_end), exchanges end at once and
 * receive NaN. A connection that ends, and a rank that does not send in time, end the run. */
#ifndef FM_TRAINER_COMM_HOSTS_H
#define FM_TRAINER_COMM_HOSTS_H

#include "trainer/dist/board.h"
#include "trainer/dist/topology.h"

typedef struct fm_hosts fm_hosts;

typedef struct fm_hosts_options {
    double open_s, exchange_s; /* that ranks wait for each other at the start, and in an exchange */
    /* Ends the run for the ranks of this host, as fm_board_end, and says why. */
    void (*end)(fm_board *board, const char *reason);
} fm_hosts_options;

/* Collective over the meeting, where the ranks of the board's topology are on several hosts.
 * sets[i]: the ranks of this rank's group i, or NULL where that is inside its host. FM_ERR_NOMEM
 * and the errors of fm_host_links_open. */
FM_MUST_USE fm_status fm_hosts_open(const fm_rank_set *const sets[FM_BOARD_GROUPS],
                                    fm_meeting *meeting, fm_board *board,
                                    const fm_hosts_options *options, const fm_kernels *kernels,
                                    fm_hosts **ret_hosts, fm_error *reterr);
/* NULL is allowed. */
void fm_hosts_close(fm_hosts *hosts);

/* The communicator of group i, which is not inside this host. */
fm_comm *fm_hosts_comm(fm_hosts *hosts, int32_t group);

#endif
