/* nearest_avx2.c: compares 32 columns of four centres at once; see nearest.h.
 *
 * Rows and centres are copied and padded to whole vectors. Gaps, mask tokens and padding are
 * replaced by NEVER_IN_ROW in rows and by NEVER_IN_CENTRE in centres. As these two never compare
 * equal, every remaining match counts and the inner loop needs no further mask. A compare gives -1
 * in matching bytes; subtracting it counts in byte-sized counters, which are added up every 255
 * vectors before they overflow. */
#include "featurizer/sample/nearest.h"

#include "featurizer/sample/rows.h"
#include "proto/schema.h"

#include <immintrin.h>
#include <string.h>

enum { STRIDE = 32, CENTRES_AT_ONCE = 4, AHEAD = 8 };
enum { MAX_BLOCKS = 255 }; /* byte counters overflow after this many vectors */
enum { NEVER_IN_ROW = 254, NEVER_IN_CENTRE = 255 };

/* Returns the sums of the bytes of four vectors, as four 64-bit numbers. */
static __m256i sum_bytes(__m256i a, __m256i b, __m256i c, __m256i d) {
    const __m256i zero = _mm256_setzero_si256();
    a = _mm256_sad_epu8(a, zero);
    b = _mm256_sad_epu8(b, zero);
    c = _mm256_sad_epu8(c, zero);
    d = _mm256_sad_epu8(d, zero);
    __m256i ab = _mm256_add_epi64(_mm256_unpacklo_epi64(a, b), _mm256_unpackhi_epi64(a, b));
    __m256i cd = _mm256_add_epi64(_mm256_unpacklo_epi64(c, d), _mm256_unpackhi_epi64(c, d));
    return _mm256_add_epi64(_mm256_permute2x128_si256(ab, cd, 0x20),
                            _mm256_permute2x128_si256(ab, cd, 0x31));
}

static __m256i load(const uint8_t *bytes) {
    return _mm256_load_si256((const __m256i *)(const void *)bytes);
}

/* Counts the columns that a row shares with n_centre (1 .. 4) centres. */
static void count_shared(const uint8_t *row, const uint8_t *centre, size_t n_centre, size_t stride,
                         uint64_t shared[CENTRES_AT_ONCE]) {
    const uint8_t *at[CENTRES_AT_ONCE];
    for (size_t c = 0; c < CENTRES_AT_ONCE; c++)
        at[c] = centre + (c < n_centre ? c : 0) * stride;
    __m256i sums = _mm256_setzero_si256();
    for (size_t i = 0; i < stride;) {
        size_t stop = i + (size_t)MAX_BLOCKS * STRIDE;
        if (stop > stride) stop = stride;
        __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
        for (; i < stop; i += STRIDE) {
            __m256i own = load(row + i); /* equal bytes compare to -1 */
            a = _mm256_sub_epi8(a, _mm256_cmpeq_epi8(own, load(at[0] + i)));
            b = _mm256_sub_epi8(b, _mm256_cmpeq_epi8(own, load(at[1] + i)));
            c = _mm256_sub_epi8(c, _mm256_cmpeq_epi8(own, load(at[2] + i)));
            d = _mm256_sub_epi8(d, _mm256_cmpeq_epi8(own, load(at[3] + i)));
        }
        sums = _mm256_add_epi64(sums, sum_bytes(a, b, c, d));
    }
    _mm256_storeu_si256((__m256i *)(void *)shared, sums);
}

static void copy_padded(const uint8_t *ids, size_t n_res, uint8_t never, size_t stride,
                        uint8_t *out) {
    memcpy(out, ids, n_res);
    memset(out + n_res, never, stride - n_res);
    for (size_t i = 0; i < stride; i += STRIDE) {
        __m256i id = load(out + i); /* as signed bytes, padding is negative */
        __m256i gap = _mm256_cmpgt_epi8(id, _mm256_set1_epi8(FM_MSA_GAP - 1));
        _mm256_store_si256((__m256i *)(void *)(out + i),
                           _mm256_blendv_epi8(id, _mm256_set1_epi8((char)never), gap));
    }
}

void fm_nearest_avx2(const fm_nearest_task *task, uint32_t *best) {
    size_t n_res = task->n_res, stride = (n_res + STRIDE - 1) / STRIDE * STRIDE;
    uint8_t *row = task->scratch, *centres = row + stride;
    for (size_t c = 0; c < task->n_centre; c++)
        copy_padded(task->centres + c * n_res, n_res, NEVER_IN_CENTRE, stride,
                    centres + c * stride);
    for (size_t r = 0; r < task->n_row; r++) {
        copy_padded(task->msa + task->row[r] * n_res, n_res, NEVER_IN_ROW, stride, row);
        if (r + AHEAD < task->n_row) {
            fm_row_prefetch(task->msa + task->row[r + AHEAD] * n_res, n_res);
        }
        uint64_t most = 0, shared[CENTRES_AT_ONCE];
        uint32_t index = 0;
        for (size_t c = 0; c < task->n_centre; c += CENTRES_AT_ONCE) {
            size_t left = task->n_centre - c;
            size_t n = left < CENTRES_AT_ONCE ? left : CENTRES_AT_ONCE;
            count_shared(row, centres + c * stride, n, stride, shared);
            for (size_t k = 0; k < n; k++) {
                if (shared[k] > most) {
                    most = shared[k];
                    index = (uint32_t)(c + k);
                }
            }
        }
        best[r] = index;
    }
}
