/* msa_encode_avx2.c: turns letters into ids and counts the profile, 32 cells at a time. See msa.h.
 *
 * Encoding. The HHblits id of an upper-case letter depends on the letter's low code bits alone. A
 * byte shuffle looks up 16 entries, so there are two tables: one for the codes 0x40..0x4f and one
 * for 0x50..0x5f. Bit 4 of the code chooses between the two results. Bytes outside 0x40..0x5f
 * become FM_HHBLITS_NONE, and '-' becomes the gap.
 *
 * Counting. A strip of 32 columns is taken through a block of rows. For each id, comparing a row's
 * 32 cells with the id gives bytes of -1 where they match, and subtracting these adds 1 to 32
 * byte-sized counters at once. A block has at most 255 rows, so that no counter overflows. The 22
 * ids are taken in two halves, so that the 11 counters of a half stay in registers; then the counts
 * are added to the profile. */
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
        __m256i code = _mm256_and_si256(v, _mm256_set1_epi8(0x1f));
        __m256i id =
            _mm256_blendv_epi8(_mm256_shuffle_epi8(first, code), _mm256_shuffle_epi8(second, code),
                               _mm256_slli_epi16(code, 3));
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

/* Counts HALF ids, from `id` on, in WIDTH columns. The loop is unrolled so that the counters are
 * registers. */
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

/* Counts one block of at most ROWS_MAX rows. The last strip is moved left to end at column n_res.
 * It overlaps the strip before it, and its columns below `first` are not added a second time. */
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
