/* comm.h: communication between the ranks of a group. Every exchange has two halves.
 *
 * `begin` queues an exchange and returns a ticket; `finish` makes the compute stream wait for it.
 * Between the two, the buffers named in the message belong to the communicator, and the tape keeps
 * their places. Work that does not need the result is recorded between the two halves and overlaps
 * with the transfer. This also holds in backward, because the backward of an exchange is an
 * exchange too: all-to-all of all-to-all, reduce-scatter of all-gather, all-reduce of broadcast.
 *
 * A gradient that arrives from other ranks is received in a separate buffer and then added on the
 * compute stream, in a fixed order. No exchange adds into a buffer that a kernel may be writing.
 *
 * Parts are in rank order and of equal size; the caller pads what does not divide. Sums over ranks
 * are in rank order, so the same number of ranks gives the same bits.
 *
 * One communicator serves one group: the ranks of a sample for DAP, the two branches for BP, all
 * samples for DP. Each communicator uses a separate stream. */
#ifndef FM_TRAINER_COMM_H
#define FM_TRAINER_COMM_H

#include "trainer/backend/kernels.h"

/* An exchange that has begun and not finished; 0 = none. */
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
    void *context;      /* private to the implementation */
    /* Queues the exchange after all work that is queued on `stream` so far. */
    fm_ticket (*begin)(fm_comm *comm, const fm_message *message, fm_stream *stream);
    /* After this call, work queued on `stream` sees the result. */
    void (*finish)(fm_comm *comm, fm_ticket ticket, fm_stream *stream);
    const fm_kernels *kernels;
};

/* Sets up a group of one rank, where every exchange is a copy. */
void fm_comm_alone(fm_comm *comm, const fm_kernels *kernels);

#endif
