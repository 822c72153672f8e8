/* link.h: what the communicators of a GPU's rank share: the communication stream, the memory that
 * peers may read, the flags between ranks, and the word that ends all waiting when a rank fails.
 *
 * A rank is a process with one GPU. Ranks find each other through a meeting (dist/meeting.h). The
 * communicator of a group is comm_peer (peer memory) where its ranks are on one host, and comm_nccl
 * where they are not. */
#ifndef FM_TRAINER_DIST_LINK_H
#define FM_TRAINER_DIST_LINK_H

#ifdef __cplusplus
extern "C" {
#endif

#include "trainer/dist/groups.h"
#include "trainer/dist/meeting.h"

typedef enum fm_gpu_link_kind {
    FM_LINK_PEER, /* peer memory within a host, NCCL between hosts */
    FM_LINK_NCCL, /* NCCL for all groups */
} fm_gpu_link_kind;

enum {
    FM_LINK_RANKS = 16, /* of one host that read each other's memory, at most */
    FM_LINK_GROUPS = 4, /* groups of a rank, at most */
    FM_LINK_REGIONS = 12,
};

typedef struct fm_gpu_link_options {
    fm_gpu_link_kind kind;
    fm_meeting *meeting; /* of all ranks of the run; outlives the link */
    double seconds;      /* that this rank waits for others when the host talks to them */
    double wait_s;       /* that an exchange waits for another rank before it gives up */
    /* When the run is over, exchanges under way end. One through NCCL that has not ended within
     * wait_s ends the run. */
    fm_run_end run;
    bool may_share_gpus; /* for checks: ranks of one GPU take turns on it, so exchanges are slow */
} fm_gpu_link_options;

typedef struct fm_gpu_link fm_gpu_link;

/* Collective over all ranks of the run. FM_ERR_UNSUPPORTED when GPUs of this host cannot read each
 * other's memory (FM_LINK_PEER), or when NCCL is needed and missing or too old; FM_ERR_USAGE for
 * ranks of different kinds, or two ranks of one GPU that may not share it (FM_LINK_PEER);
 * FM_ERR_LIMIT for a host with more ranks than FM_LINK_RANKS (FM_LINK_PEER); FM_ERR_NOMEM; the
 * errors of fm_meeting_gather. */
FM_MUST_USE fm_status fm_gpu_link_create(const fm_gpu_link_options *options, fm_gpu_link **ret_link,
                                         fm_error *reterr);

/* Collective when no rank has failed; unshares. Call it after captured exchanges have been
 * released: NCCL waits for them. Exchanges that do not end are ended meanwhile. NULL is allowed. */
void fm_gpu_link_destroy(fm_gpu_link *link);

/* Makes a group's communicator. `members`: the ranks of the run that are in the group, by rank
 * within the group; this rank is one of them. All ranks make their groups in the same order.
 * Valid as long as the link. The errors of fm_gpu_link_create. */
FM_MUST_USE fm_status fm_gpu_link_add_group(fm_gpu_link *link, const int32_t *members, int32_t size,
                                            const fm_kernels *kernels, fm_comm **ret_comm,
                                            fm_error *reterr);

/* Collective over all ranks of the run: lets them read this device memory. What an exchange sends
 * must be in memory that was shared. FM_ERR_LIMIT after FM_LINK_REGIONS regions. */
FM_MUST_USE fm_status fm_gpu_link_share(fm_gpu_link *link, void *memory, size_t bytes,
                                        fm_error *reterr);

/* Collective when no rank has failed: closes what the others shared, and returns when they have
 * done so. Then shared memory may be released. */
void fm_gpu_link_unshare(fm_gpu_link *link);

/* Whether an exchange has failed: FM_ERR_CLOSED naming the exchange, and the rank that did not come
 * or the ranks of an exchange through NCCL. Results since then are not valid. Does not wait. */
FM_MUST_USE fm_status fm_gpu_link_check(fm_gpu_link *link, fm_error *reterr);

/* Collective: the least of all ranks' values; 0 when the meeting fails. */
int64_t fm_gpu_link_least(fm_gpu_link *link, int64_t value);

/* Seconds that exchanges of comm_peer have waited for the messages of other ranks so far: for ranks
 * that were late, and for flags on their way. Waits for the device. 0 with NCCL. */
double fm_gpu_link_waited_s(fm_gpu_link *link);

#ifdef __cplusplus
}
#endif

#endif
