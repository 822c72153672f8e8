/* comm.h: communication between the ranks of a group. Every exchange has two halves.
 *
 * `begin` queues the exchange of a list of messages and returns a ticket; `finish` makes the
 * compute stream wait for it. Between the two, the buffers named in the messages belong to the
 * communicator, and the tape keeps their places. Work that does not need the result is recorded
 * between the two halves and overlaps with the transfer. This also holds in backward, because the
 * backward of an exchange is an exchange too: all-to-all of all-to-all, reduce-scatter of
 * all-gather, all-reduce of broadcast.
 *
 * Parts are in rank order and of equal size; the caller pads what does not divide. A part may be
 * strided on both sides, so an exchange also transposes, and no node packs or unpacks.
 *
 * Sums over ranks are in rank order. A sum is made in f32 (of f64 in f64), rounded once to the
 * type of the message, and is not split: an element that is added to its old value becomes
 * old + (x0 + x1 + ..). The same number of ranks gives the same bits with every communicator of a
 * device.
 *
 * All ranks of a group begin and finish the same exchanges in the same order. A rank has one
 * communication stream, on which the exchanges of all its groups run in the order of their begins.
 *
 * One communicator serves one group: the ranks of a sample for DAP, the two branches for BP, all
 * samples for DP. */
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

/* Where the parts of one side are: the distances in elements between two parts and between two
 * rows of a part. */
typedef struct fm_parts {
    int64_t part, row;
} fm_parts;

typedef struct fm_message {
    fm_exchange exchange;
    fm_element element;
    const char *name;        /* for reports of trouble; outlives the communicator */
    int64_t rows, run;       /* a part has `rows` rows of `run` contiguous elements */
    fm_parts sent, received; /* `part` is not read on a side that has one part */
    int32_t root;            /* FM_EXCHANGE_BROADCAST */
    /* `send` stays unchanged until this rank has finished an exchange of the group that began after
     * this one was finished. Then this exchange need not wait for its readers. */
    bool held;
    /* `finish` is called much later, so the exchange may take longer if it leaves the
     * multiprocessors to other work. */
    bool patient;
    const void *send; /* device memory; NULL on ranks that only receive */
    fm_out receive;   /* device memory, not overlapping send */
} fm_message;

/* The largest number of messages of one exchange. */
enum { FM_COMM_MESSAGES = 4 };

/* A message whose parts are contiguous and follow each other on both sides. */
static inline fm_message fm_message_plain(fm_exchange exchange, fm_element element,
                                          int64_t part_count, const void *send, void *receive) {
    fm_message message = {.exchange = exchange,
                          .element = element,
                          .name = NULL,
                          .rows = 1,
                          .run = part_count,
                          .sent = {part_count, part_count},
                          .received = {part_count, part_count},
                          .root = 0,
                          .held = false,
                          .patient = false,
                          .send = send,
                          .receive = {receive, FM_WRITE}};
    return message;
}

/* Whether the exchange adds the ranks' parts up. */
static inline bool fm_exchange_sums(fm_exchange exchange) {
    return exchange == FM_EXCHANGE_REDUCE_SCATTER || exchange == FM_EXCHANGE_ALL_REDUCE;
}

/* Parts that a rank sends and receives. */
static inline int32_t fm_exchange_parts_sent(fm_exchange exchange, int32_t size) {
    bool many = exchange == FM_EXCHANGE_ALL_TO_ALL || exchange == FM_EXCHANGE_REDUCE_SCATTER;
    return many ? size : 1;
}
static inline int32_t fm_exchange_parts_received(fm_exchange exchange, int32_t size) {
    bool many = exchange == FM_EXCHANGE_ALL_TO_ALL || exchange == FM_EXCHANGE_ALL_GATHER;
    return many ? size : 1;
}

typedef struct fm_comm fm_comm;
struct fm_comm {
    int32_t rank, size; /* of the group */
    void *context;      /* private to the implementation */
    /* Queues the exchange of `count` messages, 1 to FM_COMM_MESSAGES, after all work that is queued
     * on `stream` so far. */
    fm_ticket (*begin)(fm_comm *comm, const fm_message *messages, int32_t count, fm_stream *stream);
    /* After this call, work queued on `stream` sees the result. */
    void (*finish)(fm_comm *comm, fm_ticket ticket, fm_stream *stream);
    const fm_kernels *kernels;
};

#endif
