/* link_state.cuh: the state of a link, and what kernels see of it. */
#ifndef FM_TRAINER_DIST_LINK_STATE_CUH
#define FM_TRAINER_DIST_LINK_STATE_CUH

#include "trainer/backend/cuda/core/common.cuh"
#include "trainer/dist/cuda/link.h"
#include "trainer/dist/nccl_watch.h"
#include "trainer/dist/topology.h"

namespace fm_dist {

enum {
    EXCHANGE_BLOCKS = 128, /* of an exchange, at most; each has its own flag at each peer */
    NAMES = 1024,
    TICKETS = 64, /* exchanges begun and not finished, at most */
};

/* Flags that the peers of one group write, in this rank's memory.
 *
 *     ready[e][p][m]  rank p has its message m to be read: the exchange's number, of which e is the
 *                     lowest bit, and where it is
 *     done[p][b]      block b of rank p has read all it needs of this rank's messages */
struct group_flags {
    uint64_t ready[2][FM_LINK_RANKS][FM_COMM_MESSAGES];
    uint32_t done[FM_LINK_RANKS][EXCHANGE_BLOCKS];
};

/* The kinds of failure: a rank did not arrive, did not signal that it has read, or sends from
 * another place. */
enum { STAGE_READY, STAGE_DONE, STAGE_PLACE };

/* Exchanges of a group through NCCL, counted by the device. */
struct beat {
    uint32_t begun, ended, name;
};

/* In page-locked memory: what the device writes once when something went wrong, and the beats. */
struct trouble {
    uint32_t happened; /* written last */
    uint32_t name, rank, stage;
    uint32_t stops; /* written by the host: ends all waiting */
    beat beats[FM_LINK_GROUPS];
};

/* Device memory of a link. */
struct link_memory {
    uint32_t epoch[FM_LINK_GROUPS]; /* exchanges finished */
    uint32_t ended[FM_LINK_GROUPS]; /* blocks of the current one that ended */
    uint32_t failed;                /* not 0: no kernel waits any more */
    uint64_t waited;                /* clock cycles, of the first block */
};

/* The ranks of this host have their places in it (fm_topology). */
struct region {
    char *memory;
    size_t bytes;
    void *opened[FM_LINK_RANKS]; /* by cudaIpcOpenMemHandle; NULL: this rank's own */
    char *base[FM_LINK_RANKS];   /* where the one of each place is in this process */
};

/* A group's communicator of either kind. */
struct group {
    fm_comm comm;
    fm_gpu_link *link;
    int32_t index, size;
    bool uses_nccl;               /* else peer memory: all members are on this host */
    int32_t *member;              /* [size] ranks of the run */
    int32_t place[FM_LINK_RANKS]; /* of each member on this host */
    uint32_t begun;
    cudaEvent_t asked[TICKETS], met[TICKETS], ended[TICKETS];
    void *nccl;            /* ncclComm_t, which link->watch ends */
    char *sends, *arrives; /* comm_nccl: [size] parts on their way */
};

} // namespace fm_dist

struct fm_gpu_link {
    fm_gpu_link_options options;
    int32_t rank, size;
    fm_topology topology;
    bool uses_nccl;              /* for one group or more, the same on all ranks */
    cudaStream_t stream, copies; /* of exchanges, and of the copies of patient ones */
    int32_t n_region, n_group;
    fm_dist::region region[FM_LINK_REGIONS];
    fm_dist::group *group[FM_LINK_GROUPS];
    fm_dist::group_flags *flags; /* [FM_LINK_GROUPS], region 0 */
    fm_dist::link_memory *memory;
    fm_dist::trouble *trouble;
    const char *name[fm_dist::NAMES]; /* of exchanges */
    int32_t n_name;
    fm_nccl_watch *watch; /* NULL: there is neither NCCL nor a run to watch */
    int32_t n_watched;
    fm_dist::group *watched[FM_LINK_GROUPS]; /* by their number in the watch */
};

namespace fm_dist {

/* The number of an exchange's name in link->name. */
uint32_t name_of(fm_gpu_link *link, const char *name);

/* Makes the communication stream wait for `stream`, and gives the ticket of what is queued next.
 * `queued` ends the list; fm_comm.finish of both kinds is `wait_for_end`. */
fm_ticket ask(group *g, fm_stream *stream);
void queued(group *g, fm_ticket ticket);
/* Makes the stream of copies wait for what is queued so far. */
void branch(group *g, fm_ticket ticket);
void wait_for_end(fm_comm *comm, fm_ticket ticket, fm_stream *stream);

/* comm_peer.cu, comm_nccl.cu: fm_comm.begin of each kind. */
fm_ticket begin_peer(fm_comm *comm, const fm_message *messages, int32_t count, fm_stream *stream);
fm_ticket begin_nccl(fm_comm *comm, const fm_message *messages, int32_t count, fm_stream *stream);

/* comm_nccl.cu: opens the library; makes and ends a group's communicator. Where a rank needs NCCL
 * for a group, all ranks of the run call nccl_join for theirs. */
fm_status nccl_open(fm_error *reterr);
fm_status nccl_join(fm_gpu_link *link, group *g, fm_error *reterr);
const fm_nccl *nccl_library();

} // namespace fm_dist

#endif
