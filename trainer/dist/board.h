/* board.h: memory that the ranks of one host share: what each rank is doing, the words by which
 * comm_shm hands over its parts, and the reason why the run is over, if it is.
 *
 * The lowest rank of the host creates the memory, and the others open it through /proc, so nothing
 * is left on disk, however a rank ends. A rank's entry is written by that rank alone. */
#ifndef FM_TRAINER_BOARD_H
#define FM_TRAINER_BOARD_H

#include "trainer/dist/meeting.h"
#include "trainer/dist/topology.h"

#include <stdatomic.h>
#include <stdbool.h>

enum {
    FM_BOARD_GROUPS = 4, /* groups of a rank: dap, bp, sample, dp */
    FM_BOARD_SLOTS = 64, /* exchanges of a group that are begun and not finished, at most */
    FM_BOARD_REASON_BYTES = 400,
};

/* One exchange of a group; see comm_shm.c. Exchanges are numbered from 1 here. */
typedef struct fm_board_slot {
    _Atomic uint32_t published; /* the newest exchange whose parts are in this rank's outbox */
    _Atomic uint32_t taken;     /* the newest exchange whose parts this rank has read */
    uint64_t digest;            /* of the messages, which must agree */
    uint64_t at;                /* offset of the parts in the outbox */
} fm_board_slot;

/* What a rank last did. */
typedef struct fm_board_rank {
    int32_t rank; /* of the run */
    int32_t process;
    int32_t outbox;             /* file descriptor of its outbox; comm_shm.c */
    _Atomic uint32_t beat;      /* raised again and again while the process runs */
    _Atomic uint32_t has_left;  /* it has ended in order */
    _Atomic uint32_t predicts;  /* its work is chains instead of training steps */
    _Atomic uint64_t step;      /* the step or chain in hand, from 1; 0 = none yet */
    _Atomic uint32_t cycle;     /* of the sample in hand, from 0 */
    _Atomic uint32_t exchange;  /* number of its last exchange */
    _Atomic uint32_t group;     /* its group, 0 .. FM_BOARD_GROUPS - 1 */
    _Atomic uint32_t is_inside; /* it waits in that exchange */
    _Atomic uint32_t works;     /* its main thread computes on a CPU, or exchanges and says so: */
    _Atomic uint32_t turns;     /* raised again and again while it waits in an exchange */
    fm_board_slot slot[FM_BOARD_GROUPS][FM_BOARD_SLOTS];
} fm_board_rank;

typedef struct fm_board fm_board;

/* Collective over the meeting: opens the board of the ranks on this host. Errors are those of
 * fm_meeting_gather, and FM_ERR_IO. */
FM_MUST_USE fm_status fm_board_open(fm_meeting *meeting, double seconds, fm_board **ret_board,
                                    fm_error *reterr);
/* NULL is allowed. */
void fm_board_close(fm_board *board);

/* Number of ranks on this host, and this rank's place among them. */
int32_t fm_board_size(const fm_board *board);
int32_t fm_board_place(const fm_board *board);
/* On which hosts the ranks of the run are; valid as long as the board. */
const fm_topology *fm_board_topology(const fm_board *board);
/* The name of this host, for messages. */
const char *fm_board_host(const fm_board *board);
/* The entry at a place. Places are in the order of ranks. */
fm_board_rank *fm_board_entry(const fm_board *board, int32_t place);
static inline fm_board_rank *fm_board_own(const fm_board *board) {
    return fm_board_entry(board, fm_board_place(board));
}
/* The place of a rank of the run; -1: it is on another host. */
int32_t fm_board_find(const fm_board *board, int32_t rank);

/* "dap", "bp", "sample" or "dp". */
const char *fm_board_group_name(int32_t group);
/* Writes "rank 2 (process 1234 on node7): step 7, cycle 0, in exchange 31 of the dap group", or
 * "chain 7" where the ranks predict. */
void fm_board_describe(const fm_board *board, int32_t place, char *out, size_t out_bytes);

/* Ends the run for all ranks of the host: every wait of comm_shm returns. Only the first reason is
 * kept. Returns true when this one is. */
bool fm_board_end(fm_board *board, const char *reason);
/* The reason, or NULL while the run is not over. It stays valid. */
const char *fm_board_reason(const fm_board *board);

/* Waits until *word has another value than `value`, the run is over, or a short time has passed. */
void fm_board_wait(const fm_board *board, const _Atomic uint32_t *word, uint32_t value);
/* Stores the value and wakes those that wait for it. */
void fm_board_store(_Atomic uint32_t *word, uint32_t value);

#endif
