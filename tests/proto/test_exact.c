/* test_exact.c: numbers are written with few digits and read back to the same bits. */
#include "proto/base/exact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void digits_are_few(void **state) {
    (void)state;
    char out[FM_EXACT_BYTES];
    fm_exact_f64(0.1, 1, out);
    assert_string_equal(out, "0.1");
    fm_exact_f64(87.5, 6, out);
    assert_string_equal(out, "87.5");
    fm_exact_f64(100, 6, out);
    assert_string_equal(out, "100");
    fm_exact_f64(1.0 / 3, 1, out);
    assert_string_equal(out, "0.3333333333333333");
    fm_exact_f32(89.99612f, 6, out);
    assert_string_equal(out, "89.99612");
    fm_exact_f32(0.1f, 1, out);
    assert_string_equal(out, "0.1");
}

static void bits_come_back(void **state) {
    (void)state;
    char out[FM_EXACT_BYTES];
    uint64_t bits = 88172645463325252u; /* xorshift */
    for (int i = 0; i < 20000; i++) {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        const uint64_t wide = (bits & 0x800fffffffffffffu) | (uint64_t)(1000 + i % 47) << 52;
        const uint32_t narrow = (uint32_t)(bits & 0x807fffffu) | (uint32_t)(110 + i % 37) << 23;
        double d, d_back;
        float f, f_back;
        memcpy(&d, &wide, sizeof d);
        memcpy(&f, &narrow, sizeof f);
        fm_exact_f64(d, 1, out);
        d_back = strtod(out, NULL);
        assert_memory_equal(&d, &d_back, sizeof d);
        fm_exact_f32(f, 1, out);
        f_back = strtof(out, NULL);
        assert_memory_equal(&f, &f_back, sizeof f);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(digits_are_few),
                                       cmocka_unit_test(bits_come_back)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
