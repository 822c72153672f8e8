/* combine.c: see combine.h. A row is made in pieces that fit into a small buffer: the first source
 * is copied, the others are added in rank order, and the piece is then written or added. */
#include "trainer/dist/combine.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { PIECE = 512 };

const fm_kernels *fm_comm_table(const fm_comm *comm, fm_element element) {
    const fm_kernels *kernels = comm->kernels;
    if (element != kernels->act) kernels = kernels->wide;
    assert(kernels && kernels->act == element);
    return kernels;
}

uint64_t fm_messages_digest(const fm_message *messages, int32_t count) {
    uint64_t digest = 0;
    for (int32_t i = 0; i < count; i++) {
        const fm_message *message = &messages[i];
        const uint64_t words[] = {(uint64_t)message->rows, (uint64_t)message->run,
                                  message->exchange, message->element};
        for (size_t k = 0; k < sizeof words / sizeof words[0]; k++)
            digest = (digest ^ words[k]) * 0x9e3779b97f4a7c15u;
    }
    return digest;
}

void fm_comm_spoil(const fm_comm *comm, const fm_message *message) {
    const fm_kernels *kernels = fm_comm_table(comm, message->element);
    const size_t element = fm_element_bytes(message->element);
    const int32_t parts = fm_exchange_parts_received(message->exchange, comm->size);
    for (int32_t part = 0; part < parts; part++) {
        for (int64_t row = 0; row < message->rows; row++) {
            int64_t at = part * message->received.part + row * message->received.row;
            uint8_t *to = (uint8_t *)message->receive.data + (size_t)at * element;
            kernels->fill(NULL, message->run, (double)NAN, to);
        }
    }
}

#define DEFINE_COMBINE(type, name)                                                                 \
    static void name(int64_t count, int32_t n_source, const type *const *source, fm_beta beta,     \
                     type y[]) {                                                                   \
        type sum[PIECE];                                                                           \
        for (int64_t at = 0; at < count; at += PIECE) {                                            \
            int64_t n = count - at < PIECE ? count - at : PIECE;                                   \
            memcpy(sum, source[0] + at, (size_t)n * sizeof *sum);                                  \
            for (int32_t r = 1; r < n_source; r++) {                                               \
                for (int64_t i = 0; i < n; i++)                                                    \
                    sum[i] += source[r][at + i];                                                   \
            }                                                                                      \
            for (int64_t i = 0; i < n; i++)                                                        \
                y[at + i] = beta == FM_ADD ? y[at + i] + sum[i] : sum[i];                          \
        }                                                                                          \
    }

DEFINE_COMBINE(float, combine_f32)
DEFINE_COMBINE(double, combine_f64)

/* Makes one received part from the same part of `n_source` ranks. */
static void combine_part(const fm_message *m, int32_t n_source, const void *const *source,
                         int32_t sent_part, int32_t received_part) {
    int64_t bytes = (int64_t)fm_element_bytes(m->element);
    assert(n_source >= 1 && n_source <= FM_COMBINE_RANKS);
    for (int64_t row = 0; row < m->rows; row++) {
        const void *from[FM_COMBINE_RANKS];
        for (int32_t r = 0; r < n_source; r++)
            from[r] =
                (const char *)source[r] + (sent_part * m->sent.part + row * m->sent.row) * bytes;
        void *to = (char *)m->receive.data +
                   (received_part * m->received.part + row * m->received.row) * bytes;
        if (m->element == FM_ELEMENT_F64) {
            combine_f64(m->run, n_source, (const double *const *)from, m->receive.beta, to);
        } else {
            assert(m->element == FM_ELEMENT_F32);
            combine_f32(m->run, n_source, (const float *const *)from, m->receive.beta, to);
        }
    }
}

void fm_comm_combine(const fm_message *m, int32_t rank, int32_t size, const void *const *source) {
    switch (m->exchange) {
    case FM_EXCHANGE_ALL_TO_ALL:
        for (int32_t r = 0; r < size; r++)
            combine_part(m, 1, &source[r], rank, r);
        break;
    case FM_EXCHANGE_ALL_GATHER:
        for (int32_t r = 0; r < size; r++)
            combine_part(m, 1, &source[r], 0, r);
        break;
    case FM_EXCHANGE_REDUCE_SCATTER: combine_part(m, size, source, rank, 0); break;
    case FM_EXCHANGE_ALL_REDUCE: combine_part(m, size, source, 0, 0); break;
    case FM_EXCHANGE_BROADCAST: combine_part(m, 1, &source[m->root], 0, 0); break;
    }
}
