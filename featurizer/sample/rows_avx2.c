/* rows_avx2.c: converts 32 ids at once by two byte shuffles, one per half of the 32-entry table,
 * and adds 8 deletions at once. See rows.h. */
#include "featurizer/sample/rows.h"

#include "proto/chem/residue.h"
#include "proto/schema.h"

#include <immintrin.h>
#include <string.h>

enum { HALF = 16, IDS = 32, SUMS = 8 };

static void restypes(const uint8_t *ids, size_t n, uint8_t *ret_restypes) {
    uint8_t table[2 * HALF] = {0};
    memcpy(table, fm_restype_from_hhblits, FM_N_HHBLITS);
    table[FM_MSA_MASK] = FM_MSA_MASK;
    const __m128i *halves = (const __m128i *)(const void *)table;
    const __m256i low = _mm256_broadcastsi128_si256(_mm_loadu_si128(halves));
    const __m256i high = _mm256_broadcastsi128_si256(_mm_loadu_si128(halves + 1));
    size_t i = 0;
    for (; i + IDS <= n; i += IDS) {
        __m256i id = _mm256_loadu_si256((const __m256i *)(const void *)(ids + i));
        __m256i in_high = _mm256_cmpgt_epi8(id, _mm256_set1_epi8(HALF - 1));
        __m256i restype = _mm256_blendv_epi8(_mm256_shuffle_epi8(low, id),
                                             _mm256_shuffle_epi8(high, id), in_high);
        _mm256_storeu_si256((__m256i *)(void *)(ret_restypes + i), restype);
    }
    fm_row_kernels_portable.restypes(ids + i, n - i, ret_restypes + i);
}

static void add_deletions(const uint16_t *deletions, size_t n, uint32_t *sum) {
    size_t i = 0;
    for (; i + SUMS <= n; i += SUMS) {
        __m128i counts = _mm_loadu_si128((const __m128i *)(const void *)(deletions + i));
        __m256i *out = (__m256i *)(void *)(sum + i);
        _mm256_storeu_si256(
            out, _mm256_add_epi32(_mm256_loadu_si256(out), _mm256_cvtepu16_epi32(counts)));
    }
    fm_row_kernels_portable.add_deletions(deletions + i, n - i, sum + i);
}

const fm_row_kernels fm_row_kernels_avx2 = {restypes, add_deletions};
