/* comm_nccl.cu: exchanges through NCCL, which is opened when it is first used (dist/nccl.h). The
 * way between hosts, and what comm_peer is compared with.
 *
 * A message is cut into pieces that fit into staging memory. Each piece is packed, sent from
 * point to point, and combined in rank order by the rule of comm.h. NCCL never adds, so sums
 * have the same bits as with other communicators. Everything runs on the communication stream
 * and can be captured.
 *
 * The device counts the exchanges that begin and end, and a thread looks at these numbers
 * (dist/nccl_watch.h). Nothing of NCCL is called once that has aborted the communicators. */
#include "trainer/dist/cuda/link_state.cuh"
#include "trainer/dist/nccl.h"

#include <stdio.h>
#include <stdlib.h>

namespace fm_dist {

using fm_cuda::bf16;

enum { STAGE_BYTES = 64 << 20 /* of each side */, BYTES = 1 /* ncclUint8 */ };

/* -- the library */

static fm_nccl nccl;

const fm_nccl *nccl_library() {
    return &nccl;
}

fm_status nccl_open(fm_error *reterr) {
    if (nccl.text) return FM_OK;
    fm_nccl_set_environment();
    return fm_nccl_open(&nccl, reterr);
}

/* Errors of communicators that are being aborted mean nothing. */
#define FM_NCCL(link, call)                                                                        \
    do {                                                                                           \
        int error = nccl.call;                                                                     \
        if (error && !fm_nccl_watch_is_over((link)->watch)) {                                      \
            fm_cuda::call_failed("nccl " #call, nccl.text(error), __FILE__, __LINE__);             \
        }                                                                                          \
    } while (0)

/* "ranks 0, 8 and 16", or "ranks 0, 8, 16, 24 and 256 others". */
static void name_members(const group *g, char *out, size_t out_bytes) {
    enum { NAMED = 4 };
    const int32_t shown = fm_cuda::min_size(g->size, NAMED), rest = g->size - shown;
    size_t at = (size_t)snprintf(out, out_bytes, "ranks %d", (int)g->member[0]);
    for (int32_t r = 1; r < shown; r++) {
        const char *before = rest == 0 && r == shown - 1 ? " and" : ",";
        at += (size_t)snprintf(out + at, out_bytes - at, "%s %d", before, (int)g->member[r]);
    }
    if (rest > 0) snprintf(out + at, out_bytes - at, " and %d others", (int)rest);
}

/* All ranks of the run offer a name; the first rank's of the group counts. */
fm_status nccl_join(fm_gpu_link *link, group *g, fm_error *reterr) {
    fm_nccl_id own = {}, *all = (fm_nccl_id *)calloc((size_t)link->size, sizeof *all);
    if (!all) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a group of ranks");
    int error = g->uses_nccl && g->comm.rank == 0 ? nccl.make_id(&own) : 0;
    fm_status status = fm_meeting_gather(link->options.meeting, &own, sizeof own, all,
                                         link->options.seconds, reterr);
    const fm_nccl_id id = all[g->member[0]];
    free(all);
    if (status || !g->uses_nccl) return status;
    if (!error) error = nccl.join(&g->nccl, g->size, id, g->comm.rank);
    if (error) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "NCCL does not start on rank %d: %s",
                       (int)link->rank, nccl.text(error));
    }
    char what[FM_NCCL_WATCH_GROUP_BYTES];
    name_members(g, what, sizeof what);
    link->watched[link->n_watched++] = g;
    fm_nccl_watch_add(link->watch, g->nccl, what);
    if (cudaMalloc((void **)&g->sends, STAGE_BYTES) != cudaSuccess ||
        cudaMalloc((void **)&g->arrives, STAGE_BYTES) != cudaSuccess) {
        (void)cudaGetLastError();
        return fm_fail(reterr, FM_ERR_NOMEM, "the GPU refused memory for exchanges");
    }
    return FM_OK;
}

/* -- exchanges */

/* Elements [first, first + n) of every part of a message. */
struct piece {
    const fm_message *message;
    int64_t first, n;
};

/* stage[part][n] = the piece of each part that this rank sends. */
template <typename T> static void pack(const group *g, const piece &p) {
    const fm_message m = *p.message;
    int64_t n = p.n, first = p.first;
    T *stage = (T *)g->sends;
    const T *x = (const T *)m.send;
    fm_cuda::each((fm_stream *)g->link->stream, n * fm_exchange_parts_sent(m.exchange, g->size),
                  [=] __device__(int64_t i) {
                      int64_t part = i / n, at = first + i % n;
                      stage[i] = x[part * m.sent.part + at / m.run * m.sent.row + at % m.run];
                  });
}

/* Writes the result from stage[source][n]; a broadcast has one source. */
template <typename T> static void combine(const group *g, const piece &p) {
    const fm_message m = *p.message;
    int64_t n = p.n, first = p.first;
    const T *stage = (const T *)g->arrives;
    T *y = (T *)m.receive.data;
    int32_t n_part = fm_exchange_parts_received(m.exchange, g->size);
    int32_t n_source = fm_exchange_sums(m.exchange) ? g->size : 1;
    fm_cuda::each((fm_stream *)g->link->stream, n * n_part, [=] __device__(int64_t i) {
        int64_t part = i / n, at = first + i % n;
        T *to = y + part * m.received.part + at / m.run * m.received.row + at % m.run;
        float sum = fm_cuda::get(stage[i]);
        for (int32_t source = 1; source < n_source; source++)
            sum += fm_cuda::get(stage[source * n + i]);
        if (n_source == 1 && m.receive.beta == FM_WRITE) {
            *to = stage[i];
        } else {
            fm_cuda::put(to, m.receive.beta, sum);
        }
    });
}

/* Counts an exchange that begins on the device, for the thread that watches. */
__global__ void mark_begun(beat *b, uint32_t name) {
    b->name = name;
    __threadfence_system();
    *(volatile uint32_t *)&b->begun = b->begun + 1;
}
__global__ void mark_ended(beat *b) {
    __threadfence_system();
    *(volatile uint32_t *)&b->ended = b->begun;
}

static void transfer(const group *g, const piece &p, size_t element_bytes) {
    const fm_message *m = p.message;
    size_t bytes = (size_t)p.n * element_bytes;
    bool many = fm_exchange_parts_sent(m->exchange, g->size) > 1;
    bool spreads = m->exchange == FM_EXCHANGE_BROADCAST;
    FM_NCCL(g->link, start());
    for (int32_t r = 0; r < g->size; r++) {
        if (!spreads || g->comm.rank == m->root) {
            FM_NCCL(g->link, send(g->sends + (many ? (size_t)r * bytes : 0), bytes, BYTES, r,
                                  g->nccl, g->link->stream));
        }
        if (!spreads || r == m->root) {
            FM_NCCL(g->link, receive(g->arrives + (spreads ? 0 : (size_t)r * bytes), bytes, BYTES,
                                     r, g->nccl, g->link->stream));
        }
    }
    FM_NCCL(g->link, end());
}

template <typename T> static void exchange(const group *g, const fm_message *m) {
    int64_t count = m->rows * m->run;
    int64_t most = STAGE_BYTES / g->size / (int64_t)sizeof(T);
    for (int64_t first = 0; first < count; first += most) {
        const piece p = {m, first, fm_cuda::min_size(most, count - first)};
        if (m->send) pack<T>(g, p);
        transfer(g, p, sizeof(T));
        combine<T>(g, p);
    }
}

static void exchange_all(group *g, const fm_message *messages, int32_t count) {
    beat *b = &g->link->trouble->beats[g->index];
    mark_begun<<<1, 1, 0, g->link->stream>>>(b, name_of(g->link, messages[0].name));
    FM_LAUNCHED();
    for (int32_t i = 0; i < count; i++) {
        if (messages[i].element == FM_ELEMENT_F32) {
            exchange<float>(g, &messages[i]);
        } else {
            assert(messages[i].element == FM_ELEMENT_BF16);
            exchange<bf16>(g, &messages[i]);
        }
    }
    mark_ended<<<1, 1, 0, g->link->stream>>>(b);
    FM_LAUNCHED();
}

fm_ticket begin_nccl(fm_comm *comm, const fm_message *messages, int32_t count, fm_stream *stream) {
    group *g = (group *)comm->context;
    assert(count >= 1 && count <= FM_COMM_MESSAGES);
    fm_ticket ticket = ask(g, stream);
    if (fm_nccl_watch_enter(g->link->watch)) {
        exchange_all(g, messages, count);
        fm_nccl_watch_leave(g->link->watch);
    }
    queued(g, ticket);
    return ticket;
}

} // namespace fm_dist
