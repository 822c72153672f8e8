/* comm.h: communication between the ranks of a group, in two halves.
 *
 * `begin` queues an exchange and returns a ticket; `finish` makes the compute stream wait for it.
 * Between the two, the buffers named by begin belong to the communicator: the tape keeps their
 * places until the finish has run. Work that does not need the result is recorded between them, in
 * backward too: each exchange is the other's backward (all-to-all of all-to-all, reduce-scatter of
 * all-gather, all-reduce of broadcast), so what overlapped forward overlaps backward.
 *
 * Gradients that arrive by communication land in buffers of their own and are added on the compute
 * stream, in a fixed order: no exchange adds into a buffer that a kernel may be writing.
 *
 * Parts are in rank order and of equal size; what does not divide is padded by the caller. Sums
 * over ranks are in rank order: same world, same bits.
 *
 * One communicator serves one group (the ranks of a sample for DAP, the two branches for BP, all
 * groups for DP) and one stream of its own. */
#ifndef FM_TRAINER_COMM_H
#define FM_TRAINER_COMM_H

#include "trainer/backend/kernels.h"

/* An exchange under way. 0 = none. */
typedef uint32_t fm_ticket;

typedef enum fm_exchange {
    FM_EXCHANGE_ALL_TO_ALL = 1, /* part r of `send` goes to rank r; `receive` [D parts] */
    FM_EXCHANGE_ALL_GATHER,     /* `send` [1 part] of every rank; `receive` [D parts] */
    FM_EXCHANGE_REDUCE_SCATTER, /* `send` [D parts]; `receive` [1 part] = sum of part `rank` */
    FM_EXCHANGE_ALL_REDUCE,     /* `send` [1 part], `receive` [1 part] = sum over ranks */
    FM_EXCHANGE_BROADCAST,      /* `send` of rank `root` [1 part] into every `receive` */
} fm_exchange;

typedef struct fm_message {
    fm_exchange exchange;
    fm_element element;
    int64_t part_count; /* elements of one part */
    int32_t root;       /* FM_EXCHANGE_BROADCAST */
    const void *send;   /* device memory */
    void *receive;      /* device memory, not overlapping send */
} fm_message;

typedef struct fm_comm fm_comm;
struct fm_comm {
    int32_t rank, size; /* of the group */
    void *context;      /* the implementation's */
    /* Queues the exchange after all work so far on `stream`. */
    fm_ticket (*begin)(fm_comm *comm, const fm_message *message, fm_stream *stream);
    /* Work queued on `stream` from now on sees the result. */
    void (*finish)(fm_comm *comm, fm_ticket ticket, fm_stream *stream);
    const fm_kernels *kernels;
};

/* A group of one rank: every exchange is a copy. */
void fm_comm_alone(fm_comm *comm, const fm_kernels *kernels);

#endif
