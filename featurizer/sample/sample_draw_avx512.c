/* sample_draw_avx512.c: runs eight Philox counters at once, one in the low half of each 64-bit
 * lane; see sample_draw.h.
 *
 * The high halves of products stay in the lanes: the next multiplication reads low halves only, and
 * the last step clears the high halves. */
#include "featurizer/sample/sample_draw.h"

#include <immintrin.h>

enum { LANES = 8 };

static __m512i word(uint32_t value) {
    return _mm512_set1_epi64(value);
}

static void philox(uint64_t seed, __m512i counter[4]) {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)(seed >> 32);
    for (int round = 0; round < 10; round++) {
        __m512i product0 = _mm512_mul_epu32(counter[0], word(0xD2511F53u));
        __m512i product1 = _mm512_mul_epu32(counter[2], word(0xCD9E8D57u));
        counter[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product1, 32), counter[1],
                                               word(key0), 0x96); /* xor of three */
        counter[1] = product1;
        counter[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(product0, 32), counter[3],
                                               word(key1), 0x96);
        counter[3] = product0;
        key0 += 0x9E3779B9u;
        key1 += 0xBB67AE85u;
    }
}

/* Joins the low half of `low` and, above it, the low half of `high`. */
static __m512i join(__m512i low, __m512i high) {
    return _mm512_or_si512(_mm512_and_si512(low, word(UINT32_MAX)), _mm512_slli_epi64(high, 32));
}

void fm_sample_draw_fill_avx512(const fm_sample_draw *draw, fm_sample_purpose purpose,
                                uint32_t first_pair, size_t n_pair, uint64_t *ret_bits) {
    const __m512i lane = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i first_half = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
    const __m512i second_half = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
    size_t p = 0;
    for (; p + LANES <= n_pair; p += LANES) {
        __m512i counter[4] = {_mm512_add_epi64(word(first_pair + (uint32_t)p), lane),
                              word((uint32_t)purpose << 16 | draw->cycle),
                              word((uint32_t)draw->index), word((uint32_t)(draw->index >> 32))};
        philox(draw->seed, counter);
        __m512i even = join(counter[0], counter[1]), odd = join(counter[2], counter[3]);
        _mm512_storeu_si512(ret_bits + 2 * p, _mm512_permutex2var_epi64(even, first_half, odd));
        _mm512_storeu_si512(ret_bits + 2 * p + LANES,
                            _mm512_permutex2var_epi64(even, second_half, odd));
    }
    fm_sample_draw_fill_portable(draw, purpose, first_pair + (uint32_t)p, n_pair - p,
                                 ret_bits + 2 * p);
}
