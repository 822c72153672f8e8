/* buckets.c: see buckets.h. When bucket k is ready, the exchanges of three buckets move on:
 *
 *     k - 2    its gather ends
 *     k - 1    its scatter ends, its gather begins
 *     k        its scatter begins
 *
 * So bucket k uses the part k modulo 3 of the scratch memory, which k - 3 has left. */
#include "trainer/step/buckets.h"

#include "trainer/dist/sum.h"

#include <assert.h>
#include <string.h>

/* -- planning */

/* The last step of backward that writes the gradient of an element in [first, end). */
static int32_t last_writer(const fm_tape *tape, int64_t first, int64_t end) {
    int32_t at = tape->n_step;
    while (--at >= tape->n_forward) {
        const fm_node *node = &tape->node[tape->step[at].node];
        if (tape->step[at].phase != FM_PHASE_BACKWARD) continue;
        for (int j = 0; j < node->n_param; j++) {
            if (node->param[j] == FM_PARAM_NONE) continue;
            const fm_param_block *block = &tape->params->block[node->param[j]];
            if (block->offset < end && block->offset + block->count > first) return at;
        }
    }
    return at; /* no step does */
}

/* Buckets that are ready together stay in the order of their elements. */
static void insert(fm_buckets *buckets, fm_bucket bucket) {
    int32_t at = buckets->n++;
    for (; at > 0 && buckets->bucket[at - 1].ready > bucket.ready; at--)
        buckets->bucket[at] = buckets->bucket[at - 1];
    buckets->bucket[at] = bucket;
}

fm_buckets fm_buckets_plan(const fm_tape *tape, const fm_comm *comm, int64_t scratch_count,
                           bool alike) {
    const int64_t align = FM_COMM_SUM_ALIGN, n = tape->params->n_element;
    fm_buckets buckets = {.n = 0};
    int64_t most = scratch_count / FM_BUCKET_PARTS / align * align;
    int64_t step = comm->size * align * FM_MOST_BUCKETS;
    int64_t part = (n + step - 1) / step * align;
    buckets.part = part < most ? part : most;
    int64_t size = buckets.part * comm->size;
    int32_t count = size == 0                    ? 0
                    : n / size < FM_MOST_BUCKETS ? (int32_t)(n / size)
                                                 : FM_MOST_BUCKETS;
    buckets.rest = count * size;
    for (int32_t i = 0; i < count; i++) {
        fm_bucket bucket = {.first = i * size, .ready = tape->n_step - 1};
        if (alike) bucket.ready = last_writer(tape, bucket.first, bucket.first + size);
        insert(&buckets, bucket);
    }
    return buckets;
}

/* -- running */

/* What the sums of a run of backward share. */
typedef struct sums {
    const fm_buckets *buckets;
    const fm_params *params;
    fm_comm *comm;
    char *scratch;
    fm_stream *stream;
    fm_ticket scatter[FM_MOST_BUCKETS], gather[FM_MOST_BUCKETS];
} sums;

static fm_message message_of(const sums *s, fm_exchange exchange, int32_t k) {
    const int64_t part = s->buckets->part;
    size_t at = (size_t)(k % FM_BUCKET_PARTS * part) * fm_element_bytes(s->comm->kernels->acc);
    void *x = fm_params_at(s->params, s->params->gradient, s->buckets->bucket[k].first);
    void *sum = s->scratch + at;
    bool gathers = exchange == FM_EXCHANGE_ALL_GATHER;
    fm_message message = fm_message_plain(exchange, s->comm->kernels->acc, part, gathers ? sum : x,
                                          gathers ? x : sum);
    message.name = "gradients";
    return message;
}

static fm_ticket begin(const sums *s, fm_exchange exchange, int32_t k) {
    const fm_message message = message_of(s, exchange, k);
    return s->comm->begin(s->comm, &message, 1, s->stream);
}

/* Moves on when bucket k is ready; the two numbers behind the last bucket end the rest. */
static void move_on(sums *s, int32_t k) {
    const int32_t n = s->buckets->n;
    if (k >= 2) s->comm->finish(s->comm, s->gather[k - 2], s->stream);
    if (k >= 1 && k <= n) {
        s->comm->finish(s->comm, s->scatter[k - 1], s->stream);
        s->gather[k - 1] = begin(s, FM_EXCHANGE_ALL_GATHER, k - 1);
    }
    if (k < n) s->scatter[k] = begin(s, FM_EXCHANGE_REDUCE_SCATTER, k);
}

void fm_buckets_backward(const fm_buckets *buckets, fm_tape *tape, fm_comm *comm, void *scratch,
                         int64_t scratch_count, fm_stream *stream) {
    const fm_params *params = tape->params;
    sums s = {buckets, params, comm, scratch, stream, {0}, {0}};
    int32_t at = tape->n_forward;
    for (int32_t k = 0; k < buckets->n; k++) {
        int32_t end = buckets->bucket[k].ready + 1;
        if (end > at) fm_tape_backward_part(tape, at, end, stream);
        at = end > at ? end : at;
        move_on(&s, k);
    }
    fm_tape_backward_part(tape, at, tape->n_step, stream);
    for (int32_t k = buckets->n; buckets->n > 0 && k < buckets->n + 2; k++)
        move_on(&s, k);
    fm_comm_sum(comm, params->n_element - buckets->rest,
                fm_params_at(params, params->gradient, buckets->rest), scratch, scratch_count,
                stream);
}
