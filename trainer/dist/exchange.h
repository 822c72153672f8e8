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
 * Opposites: all-to-all is its own; all-gather and reduce-scatter are each other's. */
#ifndef FM_TRAINER_EXCHANGE_H
#define FM_TRAINER_EXCHANGE_H

#include "trainer/autograd/tape.h"
#include "trainer/dist/comm.h"

/* An exchange between its two nodes; lives in the tape. */
typedef struct fm_pending {
    fm_comm *comm;
    fm_exchange exchange;
    int64_t part_count;
    fm_ticket ticket;
    fm_node *begin;
    fm_tensor_ref sent, received;
} fm_pending;

/* exchange: all-to-all, all-gather or reduce-scatter of the local part of x (act). `received`
 * describes what this rank will hold. */
fm_pending *fm_exchange_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_exchange exchange,
                              fm_tensor_ref x, const fm_tensor *received);

/* Returns the received tensor, valid from here on. Once for each begin. */
fm_tensor_ref fm_exchange_finish(fm_tape *tape, fm_pending *pending);

#endif
