/* exchange.c: the nodes "begin exchange" and "finish exchange"; see exchange.h.
 *
 * Both nodes share one fm_pending with the ticket of the exchange that is under way. Forward, begin
 * queues the exchange into its output's buffer and finish waits for it. Finish's output is a view
 * of the same buffer with a separate gradient, so the gradient that arrives and the gradient that
 * is sent have different buffers. Backward, finish queues the opposite exchange from its output's
 * gradient into its input's gradient, which has the shape of x. Begin waits for it. If no other
 * node has written x's gradient by then, the two are one buffer; else begin adds what arrived.
 *
 *     forward    x --begin--> buffer              buffer --finish--> view
 *     backward   dx (+)= dbuffer <--begin         dbuffer <--opposite exchange-- dview
 *
 * Two exchanges may be joined. Forward and backward, the one that begins first leaves its message
 * to the other, which sends both; its buffers are the communicator's from its own begin on.
 *
 * The tape must not reuse a buffer while an exchange uses it. Forward, finish therefore holds x;
 * backward, begin holds the gradient of the view (holds_gradient_of). The plan keeps both until a
 * later exchange has finished, which begins after this one has ended, where there is one
 * (fm_step.held). */
#include "trainer/dist/exchange.h"

#include <assert.h>

/* The ticket of a message whose exchange has ended with that of the joined message. */
static const fm_ticket IS_FINISHED = UINT32_MAX;

typedef struct attributes {
    fm_pending *pending;
} attributes;

static fm_exchange opposite(fm_exchange exchange) {
    switch (exchange) {
    case FM_EXCHANGE_ALL_GATHER: return FM_EXCHANGE_REDUCE_SCATTER;
    case FM_EXCHANGE_REDUCE_SCATTER: return FM_EXCHANGE_ALL_GATHER;
    case FM_EXCHANGE_BROADCAST: return FM_EXCHANGE_ALL_REDUCE;
    default: return exchange;
    }
}

static void queue(const fm_run *run, fm_pending *pending, fm_exchange exchange, const void *send,
                  void *receive) {
    const fm_exchange_shape *shape = &pending->shape;
    bool back = run->tape->step[run->step].phase == FM_PHASE_BACKWARD;
    fm_message message = {.exchange = exchange,
                          .element = run->kernels->act,
                          .name = pending->begin->name,
                          .rows = shape->rows,
                          .run = shape->run,
                          .sent = back ? shape->received : shape->sent,
                          .received = back ? shape->sent : shape->received,
                          .root = pending->root,
                          .held = run->tape->step[run->step].held,
                          .patient = shape->patient,
                          .send = send,
                          .receive = {receive, FM_WRITE}};
    if (pending->carrier) {
        pending->message = message;
        pending->is_waiting = true;
        return;
    }
    fm_message messages[2] = {message};
    fm_pending *rider = pending->rider;
    bool joins = rider && rider->is_waiting;
    if (joins) messages[1] = rider->message;
    pending->ticket = pending->comm->begin(pending->comm, messages, joins ? 2 : 1, run->stream);
    if (!joins) return;
    rider->is_waiting = false;
    rider->ticket = pending->ticket;
}

/* Waits for the exchange. Of two joined messages, the first one to be finished waits for both. */
static void settle(const fm_run *run, fm_pending *pending) {
    fm_pending *other = pending->rider ? pending->rider : pending->carrier;
    if (pending->is_waiting) {
        pending->ticket = pending->comm->begin(pending->comm, &pending->message, 1, run->stream);
        pending->is_waiting = false;
    }
    assert(pending->ticket);
    if (pending->ticket != IS_FINISHED) {
        pending->comm->finish(pending->comm, pending->ticket, run->stream);
        if (other && other->ticket == pending->ticket) other->ticket = IS_FINISHED;
    }
    pending->ticket = 0;
}

static fm_pending *pending_of(const fm_node *node) {
    return ((const attributes *)node->attributes)->pending;
}

static void begin_forward(fm_run *run, const fm_node *node) {
    if (!run->dry && fm_run_wants_output(run)) {
        fm_pending *pending = pending_of(node);
        const void *sent = pending->sent == FM_TENSOR_NONE ? NULL : fm_run_input(run, node, 0);
        queue(run, pending, pending->exchange, sent, fm_run_output(run, node, 0));
    }
}

static void finish_forward(fm_run *run, const fm_node *node) {
    if (!run->dry && fm_run_wants_output(run)) settle(run, pending_of(node));
}

static void finish_backward(fm_run *run, const fm_node *node) {
    fm_out received = fm_run_gradient(run, node, 0);
    assert(received.beta == FM_WRITE); /* only finish reads begin's output */
    if (!run->dry) {
        fm_pending *pending = pending_of(node);
        void *sent = fm_run_output_gradient(run, node, 0);
        if (node->gradient_is_zero) {
            const fm_tensor *tensor = fm_tape_tensor(run->tape, node->output[0]);
            run->kernels->fill(run->stream, fm_tensor_local_count(tensor), 0.0, sent);
        }
        queue(run, pending, opposite(pending->exchange), sent, received.data);
    }
}

static void begin_backward(fm_run *run, const fm_node *node) {
    fm_pending *pending = pending_of(node);
    if (run->dry) return;
    settle(run, pending);
    if (pending->sent == FM_TENSOR_NONE) return;
    const void *arrived = fm_run_output_gradient(run, node, 0);
    fm_out dx = fm_run_gradient(run, node, 0);
    if (dx.data && dx.data != arrived) {
        int64_t count = fm_tensor_local_count(fm_tape_tensor(run->tape, pending->sent));
        run->kernels->axpy(run->stream, count, 1.0, arrived, dx);
    }
}

static const fm_op BEGIN = {"begin exchange", begin_forward, begin_backward};
static const fm_op FINISH = {"finish exchange", finish_forward, finish_backward};

static fm_pending *add_pending(fm_tape *tape, fm_comm *comm, fm_exchange exchange, fm_tensor_ref x,
                               const fm_exchange_shape *shape) {
    fm_pending *pending = fm_arena_calloc(&tape->tables, 1, sizeof *pending);
    assert(pending);
    *pending = (fm_pending){.comm = comm, .exchange = exchange, .shape = *shape, .sent = x};
    return pending;
}

static void add_begin(fm_tape *tape, const char *name, fm_pending *pending, bool on_all,
                      const fm_tensor *received) {
    assert(received->element == tape->kernels->act);
    void *memory;
    fm_node *node = fm_tape_add(tape, &BEGIN, name, sizeof(attributes), &memory);
    ((attributes *)memory)->pending = pending;
    node->on_all_ranks = on_all;
    node->begins_forward = true;
    if (pending->sent != FM_TENSOR_NONE) {
        fm_node_passes_if_first(node, fm_node_input(tape, node, pending->sent, false));
    }
    pending->received = fm_node_output_described(tape, node, received);
    pending->begin = node;
}

fm_pending *fm_exchange_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_exchange exchange,
                              const fm_exchange_shape *shape, fm_tensor_ref x,
                              const fm_tensor *received) {
    int64_t part_count = shape->rows * shape->run;
    assert(exchange <= FM_EXCHANGE_REDUCE_SCATTER);
    assert(fm_tensor_local_count(fm_tape_tensor(tape, x)) ==
           part_count * fm_exchange_parts_sent(exchange, comm->size));
    assert(fm_tensor_local_count(received) ==
           part_count * fm_exchange_parts_received(exchange, comm->size));
    (void)part_count;
    fm_pending *pending = add_pending(tape, comm, exchange, x, shape);
    add_begin(tape, name, pending, false, received);
    return pending;
}

fm_pending *fm_exchange_begin_on_all(fm_tape *tape, const char *name, fm_comm *comm,
                                     fm_exchange exchange, int32_t root, fm_tensor_ref x,
                                     const fm_tensor *received) {
    assert(exchange == FM_EXCHANGE_ALL_REDUCE || exchange == FM_EXCHANGE_BROADCAST);
    int64_t count = fm_tensor_local_count(received);
    assert(x == FM_TENSOR_NONE || fm_tensor_local_count(fm_tape_tensor(tape, x)) == count);
    const fm_exchange_shape whole = {1, count, {count, count}, {count, count}, false};
    fm_pending *pending = add_pending(tape, comm, exchange, x, &whole);
    pending->root = root;
    add_begin(tape, name, pending, true, received);
    return pending;
}

void fm_exchange_join(fm_pending *rider, fm_pending *carrier) {
    assert(rider->comm == carrier->comm && rider->begin < carrier->begin);
    rider->carrier = carrier;
    carrier->rider = rider;
}

fm_tensor_ref fm_exchange_finish(fm_tape *tape, fm_pending *pending) {
    assert((pending->sent == FM_TENSOR_NONE ||
            fm_tape_tensor(tape, pending->sent)->version == pending->begin->input_version[0]) &&
           "what is being sent was overwritten in place");
    void *memory;
    fm_node *node = fm_tape_add(tape, &FINISH, pending->begin->name, sizeof(attributes), &memory);
    ((attributes *)memory)->pending = pending;
    node->on_all_ranks = pending->begin->on_all_ranks;
    node->begins_backward = true;
    int at = fm_node_input(tape, node, pending->received, false);
    if (pending->sent != FM_TENSOR_NONE) {
        fm_node_holds(tape, node, pending->sent);
        node->gradient_like = pending->sent;
    }
    fm_tensor_ref valid = fm_node_view(tape, node, at);
    pending->begin->holds_gradient_of = valid;
    return valid;
}
