/* exchange.c: see exchange.h. */
#include "trainer/dist/exchange.h"

#include <assert.h>

typedef struct attributes {
    fm_pending *pending;
} attributes;

static fm_exchange opposite(fm_exchange exchange) {
    switch (exchange) {
    case FM_EXCHANGE_ALL_GATHER: return FM_EXCHANGE_REDUCE_SCATTER;
    case FM_EXCHANGE_REDUCE_SCATTER: return FM_EXCHANGE_ALL_GATHER;
    default: return exchange;
    }
}

static void queue(const fm_run *run, fm_pending *pending, fm_exchange exchange, const void *send,
                  void *receive) {
    fm_message message = {.exchange = exchange,
                          .element = run->kernels->act,
                          .part_count = pending->part_count,
                          .send = send,
                          .receive = receive};
    pending->ticket = pending->comm->begin(pending->comm, &message, run->stream);
}

static void settle(const fm_run *run, fm_pending *pending) {
    assert(pending->ticket);
    pending->comm->finish(pending->comm, pending->ticket, run->stream);
    pending->ticket = 0;
}

static fm_pending *pending_of(const fm_node *node) {
    return ((const attributes *)node->attributes)->pending;
}

static void begin_forward(fm_run *run, const fm_node *node) {
    if (!run->dry && fm_run_wants_output(run)) {
        fm_pending *pending = pending_of(node);
        queue(run, pending, pending->exchange, fm_run_input(run, node, 0),
              fm_run_output(run, node, 0));
    }
}

static void finish_forward(fm_run *run, const fm_node *node) {
    if (!run->dry && fm_run_wants_output(run)) {
        settle(run, pending_of(node));
    }
}

static void finish_backward(fm_run *run, const fm_node *node) {
    fm_out received = fm_run_gradient(run, node, 0);
    assert(received.beta == FM_WRITE); /* nobody but finish reads what begin put out */
    if (!run->dry) {
        fm_pending *pending = pending_of(node);
        queue(run, pending, opposite(pending->exchange), fm_run_output_gradient(run, node, 0),
              received.data);
    }
}

static void begin_backward(fm_run *run, const fm_node *node) {
    fm_pending *pending = pending_of(node);
    if (!run->dry) {
        settle(run, pending);
        run->kernels->axpy(run->stream,
                           fm_tensor_local_count(fm_tape_tensor(run->tape, pending->sent)), 1.0,
                           fm_run_output_gradient(run, node, 0), fm_run_gradient(run, node, 0));
    }
}

static const fm_op BEGIN = {"begin exchange", begin_forward, begin_backward};
static const fm_op FINISH = {"finish exchange", finish_forward, finish_backward};

fm_pending *fm_exchange_begin(fm_tape *tape, const char *name, fm_comm *comm, fm_exchange exchange,
                              fm_tensor_ref x, const fm_tensor *received) {
    int64_t sent_count = fm_tensor_local_count(fm_tape_tensor(tape, x));
    fm_pending *pending = fm_arena_calloc(&tape->tables, 1, sizeof *pending);
    assert(pending);
    *pending = (fm_pending){.comm = comm, .exchange = exchange, .sent = x};
    pending->part_count = exchange == FM_EXCHANGE_ALL_GATHER ? sent_count : sent_count / comm->size;
    int64_t received_count = exchange == FM_EXCHANGE_REDUCE_SCATTER
                                 ? pending->part_count
                                 : pending->part_count * comm->size;
    assert(received_count == fm_tensor_local_count(received));
    assert(received->element == tape->kernels->act);
    void *memory;
    fm_node *node = fm_tape_add(tape, &BEGIN, name, sizeof(attributes), &memory);
    ((attributes *)memory)->pending = pending;
    fm_node_input(tape, node, x, false);
    pending->received = fm_node_output_described(tape, node, received);
    pending->begin = node;
    return pending;
}

fm_tensor_ref fm_exchange_finish(fm_tape *tape, fm_pending *pending) {
    assert(fm_tape_tensor(tape, pending->sent)->version == pending->begin->input_version[0] &&
           "what is being sent was overwritten in place");
    void *memory;
    fm_node *node = fm_tape_add(tape, &FINISH, pending->begin->name, sizeof(attributes), &memory);
    ((attributes *)memory)->pending = pending;
    int at = fm_node_input(tape, node, pending->received, false);
    fm_node_holds(tape, node, pending->sent);
    fm_tensor_ref valid = fm_node_view(tape, node, at);
    pending->begin->holds_gradient_of = valid;
    return valid;
}
