/* exchange.h: communication as nodes of the tape.
 *
 *     begin    queues the exchange of x; its output's buffer is the receive buffer
 *     (independent work is recorded here)
 *     finish   makes the received tensor valid: a view of that buffer
 *
 * Backward runs the other way: finish's backward queues the opposite exchange of the gradient, work
 * between the two overlaps again, and begin's backward adds what arrived to x's gradient. What
 * arrives lands in a buffer of its own. x and the gradient that is sent are held until the
 * exchange is over. All ranks record the same exchanges in the same order.
 *
 * Opposites: all-to-all and all-reduce are their own; all-gather and reduce-scatter are each
 * other's; that of a broadcast is an all-reduce, of which the root keeps the result. */
#ifndef FM_TRAINER_EXCHANGE_H
#define FM_TRAINER_EXCHANGE_H

#include "trainer/autograd/tape.h"
#include "trainer/dist/comm.h"

/* An exchange between its two nodes; lives in the tape. */
typedef struct fm_pending {
    fm_comm *comm;
    fm_exchange exchange;
    int64_t part_count;
    int32_t root; /* of a broadcast */
    fm_ticket ticket;
    fm_node *begin;
    fm_tensor_ref sent, received; /* sent: FM_TENSOR_NONE on a rank that only receives */
} fm_pending;

/* exchange: all-to-all, all-gather or reduce-scatter of the local part of x (act). `received`
 * describes what this rank will hold. */
fm_pending *fm_exchange_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_exchange exchange,
                              fm_tensor_ref x, const fm_tensor *received);

/* Ranks that record different nodes: all-reduce, or broadcast, where x is FM_TENSOR_NONE but on the
 * root. Runs backward on every rank, with zeros where what was received has no gradient. */
fm_pending *fm_exchange_begin_on_all(fm_tape *tape, const char *name, fm_comm *comm,
                                     fm_exchange exchange, int32_t root, fm_tensor_ref x,
                                     const fm_tensor *received);

/* Returns the received tensor, valid from here on. Once for each begin. */
fm_tensor_ref fm_exchange_finish(fm_tape *tape, fm_pending *pending);

#endif
