/* exchange.h: communication as nodes of the tape.
 *
 *     begin    queues the exchange of x; its output's buffer is the receive buffer
 *     (independent work is recorded here)
 *     finish   waits for the exchange and makes the received tensor valid: a view of that buffer
 *
 * Backward runs the other way. The backward of finish queues the opposite exchange of the gradient,
 * and the work in between overlaps again. The backward of begin waits for it. Where x has no other
 * reader that ran backward before, the gradient is received in the buffer of x's gradient. Else it
 * is received in a separate buffer, which the backward of begin adds to x's gradient. x, and the
 * gradient that is sent, stay alive until the exchange has finished. All ranks record the same
 * exchanges in the same order.
 *
 *     exchange         its opposite in backward
 *     all-to-all       all-to-all
 *     all-reduce       all-reduce
 *     all-gather       reduce-scatter
 *     reduce-scatter   all-gather
 *     broadcast        all-reduce, of which only the root uses the result */
#ifndef FM_TRAINER_EXCHANGE_H
#define FM_TRAINER_EXCHANGE_H

#include "trainer/autograd/tape.h"
#include "trainer/dist/comm.h"

/* The parts of a message: see fm_message. Backward has the two sides the other way round. */
typedef struct fm_exchange_shape {
    int64_t rows, run;
    fm_parts sent, received;
    bool patient; /* much other work is recorded before it is finished */
} fm_exchange_shape;

/* An exchange between its two nodes; stored in the tape's arena. */
typedef struct fm_pending fm_pending;
struct fm_pending {
    fm_comm *comm;
    fm_exchange exchange;
    fm_exchange_shape shape;
    int32_t root; /* of a broadcast */
    fm_ticket ticket;
    fm_pending *rider, *carrier; /* fm_exchange_join */
    fm_message message;          /* of a rider that waits for its carrier */
    bool is_waiting;
    fm_node *begin;
    fm_tensor_ref sent, received; /* sent: FM_TENSOR_NONE on a rank that only receives */
};

/* Begins an all-to-all, all-gather or reduce-scatter of the local part of x (act type). `received`
 * describes what this rank receives. */
fm_pending *fm_exchange_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_exchange exchange,
                              const fm_exchange_shape *shape, fm_tensor_ref x,
                              const fm_tensor *received);

/* Begins an all-reduce or a broadcast between ranks that record different nodes. In a broadcast, x
 * is FM_TENSOR_NONE on all ranks but the root. Every rank runs the backward; a rank whose received
 * tensor has no gradient sends zeros. */
fm_pending *fm_exchange_begin_on_all(fm_tape *tape, const char *name, fm_comm *comm,
                                     fm_exchange exchange, int32_t root, fm_tensor_ref x,
                                     const fm_tensor *received);

/* Sends the message of `rider` with that of `carrier`, which was begun after it, as one exchange of
 * two messages. In backward `rider` must be the first of the two again, so its second half is
 * recorded after the other's. If the tape recomputes only one of them, each is sent alone. */
void fm_exchange_join(fm_pending *rider, fm_pending *carrier);

/* Records the second half and returns the received tensor, valid from here on. Call it once for
 * each begin. */
fm_tensor_ref fm_exchange_finish(fm_tape *tape, fm_pending *pending);

#endif
