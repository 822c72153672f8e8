/* match_avx2.c: the alignment parsers' inner loops, 32 bytes at a time. match.c defines the result;
 * see match.h.
 *
 * Vector compares turn a chunk of 32 bytes into two 32-bit masks: `keep` marks match columns,
 * `count` marks deletions. The function take() then walks over the runs of set bits in `keep`. For
 * each run it first adds the deletions in front of it (a popcount), then copies the run with a
 * single unaligned 32-byte store. Bytes stored past the run's end are overwritten by the next run
 * or fall into the slack. Insertions are adjacent, so runs are long and few.
 *
 * A store from the middle of a chunk reads up to 32 bytes past the chunk. Near the text's end the
 * chunk is therefore copied into a zeroed buffer first. As soon as a chunk could overflow the row's
 * n_col columns, the scalar loop does the rest. */
#include "featurizer/parse/match.h"

#include <immintrin.h>
#include <string.h>

enum { CHUNK = 32, LOOK_AHEAD = 2 * CHUNK };

static inline __m256i load(const uint8_t *p, bool plain) {
    __m256i v = _mm256_loadu_si256((const __m256i *)p);
    if (!plain) return v;
    __m256i dot = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('.'));
    __m256i is_lower = _mm256_and_si256(_mm256_cmpgt_epi8(v, _mm256_set1_epi8('a' - 1)),
                                        _mm256_cmpgt_epi8(_mm256_set1_epi8('z' + 1), v));
    v = _mm256_sub_epi8(v, _mm256_and_si256(is_lower, _mm256_set1_epi8(32)));
    return _mm256_blendv_epi8(v, _mm256_set1_epi8('-'), dot);
}

static inline uint32_t mask_of(__m256i v) {
    return (uint32_t)_mm256_movemask_epi8(v);
}

/* Takes the chunk at p by its two masks. LOOK_AHEAD bytes are readable at p, and the row has
 * room. */
static inline void take(fm_match_row *row, const uint8_t *p, uint32_t keep, uint32_t count,
                        bool plain) {
    while (keep) {
        unsigned start = (unsigned)__builtin_ctz(keep);
        uint32_t before = count & ((1u << start) - 1);
        if (before) {
            row->pending += (unsigned)__builtin_popcount(before);
            count ^= before;
        }
        uint32_t not_kept = ~(keep >> start);
        unsigned run = not_kept ? (unsigned)__builtin_ctz(not_kept) : CHUNK;
        _mm256_storeu_si256((__m256i *)(row->letters + row->at), load(p + start, plain));
        if (row->pending) {
            row->deletion[row->at] = (uint16_t)row->pending;
            if (row->pending > row->max_deletion) row->max_deletion = row->pending;
            row->pending = 0;
        }
        row->at += run;
        keep = start + run >= CHUNK ? 0 : keep & (~0u << (start + run));
    }
    row->pending += (unsigned)__builtin_popcount(count);
}

/* Returns p if LOOK_AHEAD bytes are readable there, else a zero-padded copy in `buffer`. */
static inline const uint8_t *readable_at(const uint8_t *p, size_t size, size_t readable,
                                         uint8_t buffer[LOOK_AHEAD]) {
    if (readable >= LOOK_AHEAD) return p;
    memset(buffer, 0, LOOK_AHEAD);
    memcpy(buffer, p, size < CHUNK ? size : CHUNK);
    return buffer;
}

static inline uint32_t first_bits(size_t n) {
    return n >= CHUNK ? ~0u : (1u << n) - 1;
}

static void avx2_a3m(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                     uint8_t padding) {
    uint8_t buffer[LOOK_AHEAD];
    size_t i = 0;
    for (; i < size; i += CHUNK) {
        const uint8_t *p = readable_at(text + i, size - i, readable - i, buffer);
        __m256i v = load(p, false);
        __m256i is_lower = _mm256_and_si256(_mm256_cmpgt_epi8(v, _mm256_set1_epi8('a' - 1)),
                                            _mm256_cmpgt_epi8(_mm256_set1_epi8('z' + 1), v));
        uint32_t valid = first_bits(size - i), count = mask_of(is_lower) & valid;
        uint32_t keep = valid & ~count;
        if (padding) keep &= ~mask_of(_mm256_cmpeq_epi8(v, _mm256_set1_epi8((char)padding)));
        if (row->at + (unsigned)__builtin_popcount(keep) > row->n_col) break;
        take(row, p, keep, count, false);
    }
    if (i < size) fm_match_scalar.a3m(row, text + i, size - i, readable - i, padding);
}

static void avx2_stockholm(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                           const fm_match_columns *columns, size_t column) {
    uint8_t buffer[LOOK_AHEAD];
    size_t i = 0;
    bool plain = columns->plain;
    for (; i < size; i += CHUNK) {
        const uint8_t *p = readable_at(text + i, size - i, readable - i, buffer);
        uint64_t bits;
        memcpy(&bits, columns->keep + (column + i) / 8, sizeof bits);
        uint32_t valid = first_bits(size - i);
        uint32_t keep = (uint32_t)(bits >> (column + i) % 8) & valid;
        __m256i gap = _mm256_cmpeq_epi8(load(p, plain), _mm256_set1_epi8('-'));
        if (row->at + (unsigned)__builtin_popcount(keep) > row->n_col) break;
        take(row, p, keep, valid & ~keep & ~mask_of(gap), plain);
    }
    if (i < size) {
        fm_match_scalar.stockholm(row, text + i, size - i, readable - i, columns, column + i);
    }
}

const fm_match_kernel fm_match_avx2 = {"avx2", avx2_a3m, avx2_stockholm};
