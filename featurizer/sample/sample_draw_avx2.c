/* sample_draw_avx2.c: runs four Philox counters at once, one in the low half of each 64-bit lane;
 * see sample_draw.h and sample_draw_avx512.c. */
#include "featurizer/sample/sample_draw.h"

#include <immintrin.h>

enum { LANES = 4 };

static __m256i word(uint32_t value) {
    return _mm256_set1_epi64x(value);
}

static __m256i xor3(__m256i a, __m256i b, __m256i c) {
    return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}

static void philox(uint64_t seed, __m256i counter[4]) {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        __m256i product0 = _mm256_mul_epu32(counter[0], word(0xD2511F53u));
        __m256i product1 = _mm256_mul_epu32(counter[2], word(0xCD9E8D57u));
        counter[0] = xor3(_mm256_srli_epi64(product1, 32), counter[1], word(key0));
        counter[1] = product1;
        counter[2] = xor3(_mm256_srli_epi64(product0, 32), counter[3], word(key1));
        counter[3] = product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

static __m256i join(__m256i low, __m256i high) {
    return _mm256_or_si256(_mm256_and_si256(low, word(UINT32_MAX)), _mm256_slli_epi64(high, 32));
}

void fm_sample_draw_fill_avx2(const fm_sample_draw *draw, fm_sample_purpose purpose,
                              uint32_t first_pair, size_t n_pair, uint64_t *ret_bits) {
    const __m256i lane = _mm256_set_epi64x(3, 2, 1, 0);
    size_t p = 0;
    for (; p + LANES <= n_pair; p += LANES) {
        __m256i counter[4] = {_mm256_add_epi64(word(first_pair + (uint32_t)p), lane),
                              word((uint32_t)purpose << 16 | draw->cycle),
                              word((uint32_t)draw->index), word((uint32_t)(draw->index >> 32))};
        philox(draw->seed, counter);
        __m256i even = join(counter[0], counter[1]), odd = join(counter[2], counter[3]);
        __m256i outer = _mm256_unpacklo_epi64(even, odd); /* pairs 0 and 2 */
        __m256i inner = _mm256_unpackhi_epi64(even, odd); /* pairs 1 and 3 */
        __m256i *out = (__m256i *)(void *)(ret_bits + 2 * p);
        _mm256_storeu_si256(out, _mm256_permute2x128_si256(outer, inner, 0x20));
        _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(outer, inner, 0x31));
    }
    fm_sample_draw_fill_portable(draw, purpose, first_pair + (uint32_t)p, n_pair - p,
                                 ret_bits + 2 * p);
}
