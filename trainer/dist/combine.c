/* combine.c: see combine.h. A row is made in pieces that fit into a small buffer: the first source
 * is copied, the others are added in rank order, and the piece is then written or added. */
#include "trainer/dist/combine.h"

#include <assert.h>
#include <string.h>

enum { PIECE = 512 };

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
