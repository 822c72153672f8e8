/* test_nearest.c: tests the vector variants of the sampler's inner loops against the portable ones.
 * It covers nearest cluster centres for every kind of size and tie, many draws at once, and the
 * operations on rows. */
#include "featurizer/sample/sample_draw.h"
#include "featurizer/sample/nearest.h"
#include "featurizer/sample/rows.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { MAX_RES = 9001, N_SEQ = 11, N_ROW = 7, MAX_CENTRE = 19, N_VARIANT = 2 };

static uint8_t rows[N_SEQ * MAX_RES], centres[MAX_CENTRE * MAX_RES];
static uint8_t scratch[1 << 20] __attribute__((aligned(64)));

static bool has_avx512(void) {
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vpopcntdq");
}

/* Lists the vector variants that this processor runs and returns their number. */
static size_t variants(fm_nearest_fn *out) {
    size_t n = 0;
    if (__builtin_cpu_supports("avx2")) out[n++] = fm_nearest_avx2;
    if (has_avx512()) out[n++] = fm_nearest_avx512;
    return n;
}

/* A small n_letter gives many ties. */
static void fill(uint8_t *out, size_t n, uint32_t salt, uint32_t n_letter) {
    for (size_t i = 0; i < n; i++) {
        fm_philox_counter word = fm_philox(7, (fm_philox_counter){{(uint32_t)i, salt, 0, 0}});
        out[i] = (uint8_t)((word.word[0] % n_letter + salt * 13) % (21 + salt));
    }
}

static void variants_agree(void **state) {
    (void)state;
    static const uint32_t row[N_ROW] = {10, 3, 3, 0, 7, 9, 1};
    static const size_t sizes[] = {1, 31, 63, 64, 65, 97, 255, 256, 8191, MAX_RES};
    static const size_t counts[] = {1, 2, 4, 5, 8, 9, MAX_CENTRE};
    fm_nearest_fn variant[N_VARIANT];
    size_t n_variant = variants(variant);
    if (n_variant == 0) skip();
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++) {
            uint32_t n_letter = 1 + (uint32_t)((s * 7 + c * 5) % 23);
            fill(rows, N_SEQ * sizes[s], 1, n_letter);        /* 0 .. 21 */
            fill(centres, counts[c] * sizes[s], 2, n_letter); /* 0 .. 22 */
            assert_true(fm_nearest_scratch_bytes(counts[c], sizes[s]) <= sizeof scratch);
            const fm_nearest_task task = {rows, sizes[s], row, N_ROW, centres, counts[c], scratch};
            uint32_t expected[N_ROW], got[N_ROW];
            fm_nearest_portable(&task, expected);
            for (size_t v = 0; v < n_variant; v++) {
                memset(got, 0xff, sizeof got);
                variant[v](&task, got);
                assert_memory_equal(got, expected, sizeof got);
            }
        }
    }
}

static void ties_go_to_the_lowest_centre(void **state) {
    (void)state;
    enum { N_RES = 64, N_CENTRE = 12 };
    static const uint32_t row[1] = {0};
    fm_nearest_fn variant[N_VARIANT + 1] = {fm_nearest_portable};
    size_t n_variant = 1 + variants(variant + 1);
    const fm_nearest_task task = {rows, N_RES, row, 1, centres, N_CENTRE, scratch};
    for (size_t v = 0; v < n_variant; v++) {
        uint32_t best[1];
        memset(rows, 3, N_RES);
        memset(centres, 4, sizeof centres);
        memset(centres + 9 * N_RES, 3, 2 * N_RES); /* only 9 and 10 share anything: everything */
        variant[v](&task, best);
        assert_int_equal(best[0], 9);
        memset(centres + 2 * N_RES, 3, N_RES); /* a lower centre, in an earlier group */
        variant[v](&task, best);
        assert_int_equal(best[0], 2);
        memset(rows, 9, N_RES); /* nothing is shared */
        variant[v](&task, best);
        assert_int_equal(best[0], 0);
        memset(rows, 21, N_RES); /* gaps share nothing, not even with gaps */
        memset(centres + 5 * N_RES, 21, N_RES);
        variant[v](&task, best);
        assert_int_equal(best[0], 0);
    }
}

static void draws_at_once_are_the_draws(void **state) {
    (void)state;
    enum { N_PAIR = 45 };
    const fm_sample_draw draw = {
        .seed = 0x123456789abcdef0, .index = (uint64_t)9 << 33 | 5, .cycle = 3};
    static const uint32_t firsts[] = {0, 1, 1000, 0x7fffff00u};
    fm_sample_draw_fill_fn variant[N_VARIANT + 1] = {fm_sample_draw_fill_portable};
    size_t n_variant = 1;
    if (__builtin_cpu_supports("avx2")) variant[n_variant++] = fm_sample_draw_fill_avx2;
    if (has_avx512()) variant[n_variant++] = fm_sample_draw_fill_avx512;
    for (size_t v = 0; v < n_variant; v++) {
        for (size_t f = 0; f < sizeof firsts / sizeof firsts[0]; f++) {
            for (size_t n_pair = 0; n_pair <= N_PAIR; n_pair += 5) {
                uint64_t bits[2 * N_PAIR + 1];
                bits[2 * n_pair] = 77;
                variant[v](&draw, FM_SAMPLE_DRAW_MASK, firsts[f], n_pair, bits);
                for (size_t k = 0; k < 2 * n_pair; k++)
                    assert_true(bits[k] == fm_sample_draw_bits(&draw, FM_SAMPLE_DRAW_MASK,
                                                               2 * (uint64_t)firsts[f] + k));
                assert_true(bits[2 * n_pair] == 77);
            }
        }
    }
}

static void row_kernels_agree(void **state) {
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip();
    enum { MAX = 101 };
    const fm_row_kernels *portable = &fm_row_kernels_portable, *avx2 = &fm_row_kernels_avx2;
    uint8_t ids[MAX], expected[MAX], got[MAX + 1];
    uint16_t deletions[MAX];
    for (size_t n = 0; n <= MAX; n++) {
        uint32_t expected_sum[MAX + 1], got_sum[MAX + 1];
        for (size_t i = 0; i <= n; i++)
            expected_sum[i] = got_sum[i] = (uint32_t)i * 0x10001u;
        for (size_t i = 0; i < n; i++) {
            ids[i] = (uint8_t)((i * 5 + n) % 23);
            deletions[i] = (uint16_t)(65535 - i * n);
        }
        got[n] = 99;
        portable->restypes(ids, n, expected);
        avx2->restypes(ids, n, got);
        assert_memory_equal(got, expected, n);
        assert_int_equal(got[n], 99);
        portable->add_deletions(deletions, n, expected_sum);
        avx2->add_deletions(deletions, n, got_sum);
        assert_memory_equal(got_sum, expected_sum, (n + 1) * sizeof *got_sum);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(variants_agree),
        cmocka_unit_test(ties_go_to_the_lowest_centre),
        cmocka_unit_test(draws_at_once_are_the_draws),
        cmocka_unit_test(row_kernels_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
