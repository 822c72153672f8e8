/* msa_encode_avx2.c: letters to ids and the profile's counts, 32 cells at a time. See msa.h.
 *
 * Encoding looks up the low five bits of an upper-case letter in two tables of 16. Counting takes
 * strips of 32 columns through at most 255 rows, so that a byte holds a count, in two halves of the
 * ids, so that the counters stay in registers. */
#include "featurizer/msa.h"
#include "proto/chem/residue.h"

#include <immintrin.h>

enum { WIDTH = 32, ROWS_MAX = 255, HALF = FM_N_HHBLITS / 2 };

static bool avx2_encode(uint8_t *cells, size_t n_cell) {
    uint8_t low[16], high[16];
    for (int i = 0; i < 16; i++) {
        low[i] = i ? fm_hhblits_from_letter['@' + i] : FM_HHBLITS_NONE;
        high[i] = i < 11 ? fm_hhblits_from_letter['P' + i] : FM_HHBLITS_NONE;
    }
    const __m256i first = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)low));
    const __m256i second = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)high));
    const __m256i gap = _mm256_set1_epi8('-'), none = _mm256_set1_epi8((char)FM_HHBLITS_NONE);
    __m256i unknown = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + WIDTH <= n_cell; i += WIDTH) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(cells + i));
        __m256i five = _mm256_and_si256(v, _mm256_set1_epi8(0x1f));
        __m256i id =
            _mm256_blendv_epi8(_mm256_shuffle_epi8(first, five), _mm256_shuffle_epi8(second, five),
                               _mm256_slli_epi16(five, 3));
        __m256i upper = _mm256_cmpeq_epi8(_mm256_and_si256(v, _mm256_set1_epi8((char)0xe0)),
                                          _mm256_set1_epi8(0x40));
        id = _mm256_blendv_epi8(none, id, upper);
        id = _mm256_blendv_epi8(id, _mm256_set1_epi8(FM_RESTYPE_GAP), _mm256_cmpeq_epi8(v, gap));
        unknown = _mm256_or_si256(unknown, _mm256_cmpeq_epi8(id, none));
        _mm256_storeu_si256((__m256i *)(cells + i), id);
    }
    bool known = _mm256_testz_si256(unknown, unknown);
    return fm_msa_scalar.encode(cells + i, n_cell - i) && known;
}

/* Counts HALF ids from `id` on in WIDTH columns. Unrolled, so that the counters are registers. */
static inline __attribute__((always_inline)) void
count_half(const uint8_t *ids, size_t n_row, size_t stride, int id, uint8_t counts[HALF][WIDTH]) {
    __m256i sum[HALF];
    for (int k = 0; k < HALF; k++)
        sum[k] = _mm256_setzero_si256();
    for (size_t row = 0; row < n_row; row++) {
        __m256i v = _mm256_loadu_si256((const __m256i *)(ids + row * stride));
#pragma GCC unroll 11
        for (int k = 0; k < HALF; k++) {
            __m256i match = _mm256_cmpeq_epi8(v, _mm256_set1_epi8((char)(id + k)));
            sum[k] = _mm256_sub_epi8(sum[k], match);
        }
    }
    for (int k = 0; k < HALF; k++)
        _mm256_storeu_si256((__m256i *)counts[k], sum[k]);
}

/* One block of at most ROWS_MAX rows. The last strip overlaps the one before; its columns below
 * `first` are done already. */
static void count_block(const uint8_t *ids, size_t n_row, size_t n_res, uint32_t *profile) {
    uint8_t counts[2][HALF][WIDTH];
    for (size_t first = 0; first < n_res; first += WIDTH) {
        size_t at = first + WIDTH <= n_res ? first : n_res - WIDTH;
        count_half(ids + at, n_row, n_res, 0, counts[0]);
        count_half(ids + at, n_row, n_res, HALF, counts[1]);
        for (size_t column = first; column < at + WIDTH; column++) {
            uint32_t *out = profile + column * FM_N_HHBLITS;
            for (int k = 0; k < HALF; k++) {
                out[k] += counts[0][k][column - at];
                out[HALF + k] += counts[1][k][column - at];
            }
        }
    }
}

static void avx2_count(const uint8_t *ids, size_t n_row, size_t n_res, uint32_t *profile) {
    if (n_res < WIDTH) {
        fm_msa_scalar.count(ids, n_row, n_res, profile);
        return;
    }
    for (size_t row = 0; row < n_row; row += ROWS_MAX) {
        size_t n = n_row - row < ROWS_MAX ? n_row - row : ROWS_MAX;
        count_block(ids + row * n_res, n, n_res, profile);
    }
}

const fm_msa_kernel fm_msa_avx2 = {"avx2", avx2_encode, avx2_count};
