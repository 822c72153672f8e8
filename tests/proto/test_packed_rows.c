/* test_packed_rows.c: the codes of MSA rows on the wire: their bytes written out, arrays of every
 * length and density, and packed bytes that are not what the encoder writes. */
#include "proto/packed_rows.h"
#include "proto/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 700, ROOM = 2 * MOST };

static const fm_packing packings[] = {FM_PACKED_CLASSES, FM_PACKED_COUNTS};

static void bytes_are_as_documented(void **state) {
    (void)state;
    static const uint8_t classes[] = {1, 2, 3, 4, 5, 6, 7, 8, 31, 30};
    static const uint8_t packed_classes[] = {0x41, 0x0c, 0x52, 0xcc, 0x41, 0xdf, 0x03};
    static const uint8_t counts[70] = {[1] = 9, [3] = 1, [69] = 127};
    static const uint8_t packed_counts[] = {0x01, 0x01, 0x0a, 0x20, 9, 1, 127};
    const struct {
        const uint8_t *values, *packed;
        size_t n, bytes;
    } cases[] = {{classes, packed_classes, sizeof classes, sizeof packed_classes},
                 {counts, packed_counts, sizeof counts, sizeof packed_counts}};
    for (size_t i = 0; i < 2; i++) {
        uint8_t out[ROOM];
        assert_int_equal(fm_packed_bytes(packings[i], cases[i].values, cases[i].n), cases[i].bytes);
        fm_packed_encode(packings[i], cases[i].values, cases[i].n, out);
        assert_memory_equal(out, cases[i].packed, cases[i].bytes);
    }
}

/* Values of the array: all different from 0, or one in 2, 4, ... 64. */
static void fill(uint8_t *values, size_t n, uint32_t one_in) {
    for (size_t i = 0; i < n; i++) {
        uint64_t number = fm_philox(n, (fm_philox_counter){{(uint32_t)i, one_in, 0, 0}}).word[0];
        values[i] = number % one_in ? 0 : (uint8_t)(1 + number / one_in % 31);
    }
}

static void every_length_survives_a_round_trip(void **state) {
    (void)state;
    for (size_t n = 0; n <= MOST; n += n < 140 ? 1 : 37) {
        for (uint32_t one_in = 1; one_in <= 64; one_in *= 2) {
            uint8_t *values = malloc(n + 1), *got = malloc(n + 1), *packed = malloc(ROOM);
            assert_true(values && got && packed);
            fill(values, n, one_in);
            for (size_t k = 0; k < 2; k++) {
                size_t bytes = fm_packed_bytes(packings[k], values, n);
                assert_true(bytes <= fm_packed_most_bytes(packings[k], n) && bytes < ROOM);
                packed[bytes] = 0xee;
                fm_packed_encode(packings[k], values, n, packed);
                assert_int_equal(packed[bytes], 0xee);
                assert_true(fm_packed_decode(packings[k], (fm_bytes){packed, bytes}, n, got));
                assert_memory_equal(got, values, n);
            }
            free(values);
            free(got);
            free(packed);
        }
    }
}

/* Every length but the right one is refused, and what is accepted after a change of a byte is again
 * what the encoder writes. */
static void other_bytes_are_refused(void **state) {
    (void)state;
    enum { N = 70 };
    uint8_t values[N], got[N], packed[ROOM], again[ROOM];
    size_t n_refused[2] = {0};
    for (size_t k = 0; k < 2; k++) {
        fill(values, N, 3);
        memset(packed, 1, sizeof packed);
        fm_packed_encode(packings[k], values, N, packed);
        size_t bytes = fm_packed_bytes(packings[k], values, N);
        for (size_t size = 0; size < bytes + 9; size++) {
            bool is_good = fm_packed_decode(packings[k], (fm_bytes){packed, size}, N, got);
            assert_int_equal(is_good, size == bytes);
        }
        for (size_t change = 0; change < bytes * 256; change++) {
            uint8_t before = packed[change / 256];
            packed[change / 256] = (uint8_t)(change % 256);
            if (fm_packed_decode(packings[k], (fm_bytes){packed, bytes}, N, got)) {
                assert_int_equal(fm_packed_bytes(packings[k], got, N), bytes);
                fm_packed_encode(packings[k], got, N, again);
                assert_memory_equal(again, packed, bytes);
            } else {
                n_refused[k]++;
            }
            packed[change / 256] = before;
        }
    }
    assert_int_equal(n_refused[0], 192); /* the last byte's two unused bits */
    assert_true(n_refused[1] > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_are_as_documented),
        cmocka_unit_test(every_length_survives_a_round_trip),
        cmocka_unit_test(other_bytes_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
