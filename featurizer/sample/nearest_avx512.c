/* nearest_avx512.c: compares 64 columns of eight centres at once, in bit planes; see nearest.h.
 *
 * An id has 5 bits. Bit b of 64 columns forms one word, a bit plane. Two rows differ in the columns
 * where the OR of the five XORs of their planes has a 1, so the number of shared columns is the
 * popcount of the complement. Ids that must never count become NEVER_IN_ROW in rows and
 * NEVER_IN_CENTRE in centres. So do the columns that fill up the last word and the centres that
 * fill up the last group.
 *
 * Layout: centres are [group of 8][word][plane][8], so that one vector holds one plane of eight
 * centres. A row's words are [word][plane] and are broadcast to all eight lanes. Four rows share
 * each load of the centres' planes. */
#include "featurizer/sample/nearest.h"

#include "featurizer/sample/rows.h"
#include "proto/schema.h"

#include <immintrin.h>

enum { N_PLANE = 5, N_LANE = 8, ROWS_AT_ONCE = 4, AHEAD = 8, WORD_COLUMNS = 64 };
enum { NEVER_IN_ROW = 30, NEVER_IN_CENTRE = 31 };
enum { OR_XOR = 0xF6, NOT_OR_XOR = 0x09 }; /* a | (b ^ c), and its complement */

/* Writes the five plane words of n ids, 1 .. 64, spaced by `stride` words. */
static void encode_word(const uint8_t *ids, size_t n, char never, uint64_t *planes, size_t stride) {
    __mmask64 in_row = n == WORD_COLUMNS ? ~(__mmask64)0 : ((__mmask64)1 << n) - 1;
    __m512i fill = _mm512_set1_epi8(never);
    __m512i id = _mm512_mask_loadu_epi8(fill, in_row, ids);
    id = _mm512_mask_mov_epi8(id, _mm512_cmpge_epu8_mask(id, _mm512_set1_epi8(FM_MSA_GAP)), fill);
    for (int plane = 0; plane < N_PLANE; plane++) {
        planes[(size_t)plane * stride] =
            _mm512_test_epi8_mask(id, _mm512_set1_epi8((char)(1 << plane)));
    }
}

static void encode_row(const uint8_t *ids, size_t n_res, char never, uint64_t *planes,
                       size_t word_stride, size_t plane_stride) {
    for (size_t at = 0; at < n_res; at += WORD_COLUMNS, planes += word_stride) {
        size_t n = n_res - at < WORD_COLUMNS ? n_res - at : WORD_COLUMNS;
        encode_word(ids + at, n, never, planes, plane_stride);
    }
}

static void encode_centres(const fm_nearest_task *task, size_t words, uint64_t *planes) {
    size_t groups = (task->n_centre + N_LANE - 1) / N_LANE;
    for (size_t c = 0; c < groups * N_LANE; c++) {
        uint64_t *out = planes + c / N_LANE * words * N_PLANE * N_LANE + c % N_LANE;
        if (c < task->n_centre) {
            encode_row(task->centres + c * task->n_res, task->n_res, NEVER_IN_CENTRE, out,
                       N_PLANE * N_LANE, N_LANE);
            continue;
        }
        for (size_t k = 0; k < words * N_PLANE; k++)
            out[k * N_LANE] = ~(uint64_t)0; /* NEVER_IN_CENTRE everywhere */
    }
}

/* Returns a 1 for every column in which a row's word equals the planes of each of eight centres. */
static inline __m512i same(const __m512i plane[N_PLANE], const uint64_t *row) {
    const long long *word = (const long long *)(const void *)row;
    __m512i m = _mm512_xor_si512(plane[0], _mm512_set1_epi64(word[0]));
    m = _mm512_ternarylogic_epi64(m, plane[1], _mm512_set1_epi64(word[1]), OR_XOR);
    m = _mm512_ternarylogic_epi64(m, plane[2], _mm512_set1_epi64(word[2]), OR_XOR);
    m = _mm512_ternarylogic_epi64(m, plane[3], _mm512_set1_epi64(word[3]), OR_XOR);
    return _mm512_ternarylogic_epi64(m, plane[4], _mm512_set1_epi64(word[4]), NOT_OR_XOR);
}

/* Counts the columns that each of four rows shares with each of a group's eight centres. Written
 * out for four rows so that all counters stay in registers. */
__attribute__((target("avx512vpopcntdq"))) static void
count_group(const uint64_t *centres, const uint64_t *rows, size_t words, __m512i *shared) {
    __m512i a = _mm512_setzero_si512(), b = a, c = a, d = a;
    size_t stride = words * N_PLANE;
    for (size_t w = 0; w < words; w++, centres += N_PLANE * N_LANE, rows += N_PLANE) {
        const __m512i *from = (const __m512i *)(const void *)centres;
        const __m512i plane[N_PLANE] = {from[0], from[1], from[2], from[3], from[4]};
        a = _mm512_add_epi64(a, _mm512_popcnt_epi64(same(plane, rows)));
        b = _mm512_add_epi64(b, _mm512_popcnt_epi64(same(plane, rows + stride)));
        c = _mm512_add_epi64(c, _mm512_popcnt_epi64(same(plane, rows + 2 * stride)));
        d = _mm512_add_epi64(d, _mm512_popcnt_epi64(same(plane, rows + 3 * stride)));
    }
    shared[0] = a;
    shared[1] = b;
    shared[2] = c;
    shared[3] = d;
}

/* Returns the lowest centre among the lanes with the most shared columns. A lane holds the first of
 * its groups that reached its count. */
static uint32_t lowest_of_most(__m512i most, __m512i group) {
    __m512i top = _mm512_set1_epi64(_mm512_reduce_max_epi64(most));
    __m512i centre =
        _mm512_add_epi64(_mm512_slli_epi64(group, 3), _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    return (uint32_t)_mm512_mask_reduce_min_epi64(_mm512_cmpeq_epi64_mask(most, top), centre);
}

void fm_nearest_avx512(const fm_nearest_task *task, uint32_t *best) {
    size_t words = (task->n_res + WORD_COLUMNS - 1) / WORD_COLUMNS;
    size_t groups = (task->n_centre + N_LANE - 1) / N_LANE;
    uint64_t *centres = task->scratch, *rows = centres + groups * words * N_PLANE * N_LANE;
    encode_centres(task, words, centres);
    for (size_t first = 0; first < task->n_row; first += ROWS_AT_ONCE) {
        __m512i most[ROWS_AT_ONCE], group[ROWS_AT_ONCE], shared[ROWS_AT_ONCE];
        size_t n = task->n_row - first < ROWS_AT_ONCE ? task->n_row - first : ROWS_AT_ONCE;
        for (size_t r = 0; r < ROWS_AT_ONCE; r++) {
            uint32_t row = task->row[first + (r < n ? r : 0)]; /* the last block repeats a row */
            if (first + r + AHEAD < task->n_row) {
                fm_row_prefetch(task->msa + task->row[first + r + AHEAD] * task->n_res,
                                task->n_res);
            }
            encode_row(task->msa + row * task->n_res, task->n_res, NEVER_IN_ROW,
                       rows + r * words * N_PLANE, N_PLANE, 1);
            most[r] = group[r] = _mm512_setzero_si512();
        }
        for (size_t g = 0; g < groups; g++) {
            count_group(centres + g * words * N_PLANE * N_LANE, rows, words, shared);
            for (size_t r = 0; r < ROWS_AT_ONCE; r++) {
                __mmask8 more = _mm512_cmpgt_epi64_mask(shared[r], most[r]);
                most[r] = _mm512_mask_mov_epi64(most[r], more, shared[r]);
                group[r] = _mm512_mask_mov_epi64(group[r], more, _mm512_set1_epi64((long long)g));
            }
        }
        for (size_t r = 0; r < n; r++)
            best[first + r] = lowest_of_most(most[r], group[r]);
    }
}
