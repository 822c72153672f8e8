/* test_rng.c: Philox against the known answers published with Random123, and the integer range
 * reduction at its ends. */
#include "proto/base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void philox_known_answers(void **state) {
    (void)state;
    static const struct {
        uint64_t key;
        fm_philox_counter counter, expected;
    } cases[] = {
        {0, {{0, 0, 0, 0}}, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {UINT64_MAX,
         {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {0x299f31d0a4093822,
         {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_philox_counter got = fm_philox(cases[i].key, cases[i].counter);
        assert_memory_equal(&got, &cases[i].expected, sizeof got);
    }
}

static void uniform_below_covers_its_range(void **state) {
    (void)state;
    assert_int_equal(fm_uniform_below(0, 7), 0);
    assert_int_equal(fm_uniform_below(UINT64_MAX, 7), 6);
    assert_int_equal(fm_uniform_below(UINT64_MAX, 1), 0);
    assert_int_equal(fm_uniform_below(UINT64_MAX, UINT32_MAX), UINT32_MAX - 1);
    assert_int_equal(fm_uniform_below(UINT64_MAX / 2, 2), 0);
    assert_int_equal(fm_uniform_below(UINT64_MAX / 2 + 1, 2), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_known_answers),
        cmocka_unit_test(uniform_below_covers_its_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
