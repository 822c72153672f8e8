/* comm_shm.h: communicators between ranks that are processes of one host. The parts of an exchange
 * go through shared memory, and sums are made in rank order, so all bits are those of comm_local.
 *
 * A rank copies what it sends into its outbox, which the others map. It reads what it receives when
 * all have sent. Nobody waits for the readers, because an outbox keeps parts until all have taken
 * them. When the run is over (fm_board_end), exchanges end at once and receive NaN, so that no
 * result passes for one.
 *
 * A run may have several hosts. Its groups that are not inside one use comm_hosts.h. */
#ifndef FM_TRAINER_COMM_SHM_H
#define FM_TRAINER_COMM_SHM_H

#include "trainer/dist/board.h"
#include "trainer/dist/groups.h"

/* When the data moves; for tests, since a program may rely on neither extreme. */
typedef enum fm_delivery {
    FM_DELIVERY_USUAL,     /* sent at begin, received at finish */
    FM_DELIVERY_AT_BEGIN,  /* sent and received at begin: shows a buffer that is still in use */
    FM_DELIVERY_AT_FINISH, /* sent and received at finish: shows one that is used again too early */
} fm_delivery;

typedef struct fm_shm_options {
    fm_delivery delivery;
    bool spoils;       /* receive buffers are NaN from begin to the delivery */
    bool delays;       /* ranks pause at random before they send and before they receive */
    double exchange_s; /* that an exchange between hosts waits; 0: as long as the opening */
    /* Ends the run for the ranks of this host and says why; NULL: fm_board_end. */
    void (*end)(fm_board *board, const char *reason);
} fm_shm_options;

typedef struct fm_shm_groups fm_shm_groups;

/* Collective over the meeting: makes the communicators of this rank. options NULL: the usual.
 * Groups that are not inside this host go over TCP (comm_hosts.h). FM_ERR_USAGE as fm_layout_check;
 * FM_ERR_IO, FM_ERR_NOMEM, and the errors of fm_meeting_gather and fm_hosts_open. */
FM_MUST_USE fm_status fm_shm_groups_open(const fm_layout *layout, const fm_kernels *kernels,
                                         fm_meeting *meeting, fm_board *board,
                                         const fm_shm_options *options, double seconds,
                                         fm_shm_groups **ret_groups, fm_error *reterr);
/* NULL is allowed. The other ranks may still read what this one has sent. */
void fm_shm_groups_close(fm_shm_groups *groups);

const fm_groups *fm_shm_groups_get(const fm_shm_groups *groups);

#endif
