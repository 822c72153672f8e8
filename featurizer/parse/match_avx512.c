/* match_avx512.c: the alignment parsers' inner loops, 64 bytes at a time. match.c defines the
 * result; see match.h. Needs AVX-512 VBMI2.
 *
 * Compares turn a chunk of 64 bytes into two 64-bit masks: `keep` marks match columns, `count`
 * marks deletions. One compress instruction moves the kept bytes together, however they are
 * scattered. Few chunks of a real alignment have deletions, so note_deletions() visits only the
 * groups of set bits in `count`. Masked loads and stores touch no byte outside the stated ranges;
 * as soon as a chunk could overflow the row's n_col columns, the scalar loop does the rest. */
#include "featurizer/parse/match.h"

#include <immintrin.h>
#include <string.h>

enum { CHUNK = 64 };

#define VBMI2 __attribute__((target("avx512vbmi,avx512vbmi2,popcnt,bmi,bmi2")))

static inline uint64_t first_bits(size_t n) {
    return n >= CHUNK ? ~UINT64_C(0) : (UINT64_C(1) << n) - 1;
}

VBMI2 static inline size_t count_bits(uint64_t bits) {
    return (size_t)_mm_popcnt_u64(bits);
}

static inline void store_deletions(fm_match_row *row, size_t column) {
    row->deletion[column] = (uint16_t)row->pending;
    if (row->pending > row->max_deletion) row->max_deletion = row->pending;
    row->pending = 0;
}

/* Stores the deletions before each kept byte of a chunk, of which `keep` is not 0. */
VBMI2 static inline void note_deletions(fm_match_row *row, uint64_t keep, uint64_t count) {
    if (row->pending && !(count & (_blsi_u64(keep) - 1))) store_deletions(row, row->at);
    while (count) {
        uint64_t after = keep & ~(_blsmsk_u64(count)); /* kept bytes after the first deletion */
        uint64_t before = after ? _blsi_u64(after) - 1 : ~UINT64_C(0);
        row->pending += count_bits(count & before);
        count &= ~before;
        if (after) store_deletions(row, row->at + count_bits(keep & before));
    }
}

/* Takes the chunk v by its two masks. The row has room. */
VBMI2 static inline void take(fm_match_row *row, __m512i v, uint64_t keep, uint64_t count) {
    if (!keep) {
        row->pending += count_bits(count);
        return;
    }
    size_t n = count_bits(keep);
    _mm512_mask_storeu_epi8(row->letters + row->at, first_bits(n),
                            _mm512_maskz_compress_epi8(keep, v));
    if (count || row->pending) note_deletions(row, keep, count);
    row->at += n;
}

static inline uint64_t lower_case(__m512i v) {
    return _mm512_cmplt_epu8_mask(_mm512_sub_epi8(v, _mm512_set1_epi8('a')), _mm512_set1_epi8(26));
}

VBMI2 static void avx512_a3m(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                             uint8_t padding) {
    size_t i = 0;
    for (; i < size; i += CHUNK) {
        uint64_t valid = first_bits(size - i);
        __m512i v = _mm512_maskz_loadu_epi8(valid, text + i);
        uint64_t count = lower_case(v) & valid, keep = valid & ~count;
        if (padding) keep &= ~_mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8((char)padding));
        if (row->at + count_bits(keep) > row->n_col) break;
        take(row, v, keep, count);
    }
    if (i < size) fm_match_scalar.a3m(row, text + i, size - i, readable - i, padding);
}

/* Returns 64 bits of `keep` from bit `column` on; the set ends with 8 zero bytes. */
static inline uint64_t columns_at(const fm_match_columns *columns, size_t column, size_t n) {
    uint64_t low;
    memcpy(&low, columns->keep + column / 8, sizeof low);
    unsigned shift = column % 8;
    uint64_t bits = low >> shift;
    if (shift && n > CHUNK - shift) bits |= (uint64_t)columns->keep[column / 8 + 8] << (64 - shift);
    return bits;
}

VBMI2 static void avx512_stockholm(fm_match_row *row, const uint8_t *text, size_t size,
                                   size_t readable, const fm_match_columns *columns,
                                   size_t column) {
    const __m512i gap = _mm512_set1_epi8('-');
    size_t i = 0;
    for (; i < size; i += CHUNK) {
        uint64_t valid = first_bits(size - i);
        uint64_t keep = columns_at(columns, column + i, size - i) & valid;
        __m512i v = _mm512_maskz_loadu_epi8(valid, text + i);
        if (columns->plain) {
            v = _mm512_mask_sub_epi8(v, lower_case(v), v, _mm512_set1_epi8(32));
            v = _mm512_mask_mov_epi8(v, _mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8('.')), gap);
        }
        uint64_t count = _mm512_cmpneq_epi8_mask(v, gap) & valid & ~keep;
        if (row->at + count_bits(keep) > row->n_col) break;
        take(row, v, keep, count);
    }
    if (i < size) {
        fm_match_scalar.stockholm(row, text + i, size - i, readable - i, columns, column + i);
    }
}

const fm_match_kernel fm_match_avx512 = {"avx512", avx512_a3m, avx512_stockholm};
