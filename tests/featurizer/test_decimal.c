/* test_decimal.c: conversion of decimal text to double: exact, and nothing but decimals. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "featurizer/parse/decimal.h"
#include "proto/base/rng.h"

static bool parse(const char *text, double *ret_value) {
    return fm_decimal_parse((const uint8_t *)text, strlen(text), false, ret_value);
}

static void assert_exact(const char *text) {
    double found = -1, expected = strtod(text, NULL);
    assert_true(parse(text, &found));
    assert_memory_equal(&found, &expected, sizeof found); /* memory, since -0.0 == 0.0 */
}

static void decimals_are_rounded_as_strtod_does(void **state) {
    (void)state;
    static const char *const texts[] = {"0",
                                        "-0.000",
                                        "+1.5",
                                        "12.345",
                                        "-103.001",
                                        ".5",
                                        "5.",
                                        "1e3",
                                        "-2.5E-3",
                                        "1e400",
                                        "1e-400",
                                        "9007199254740992",
                                        "9007199254740993",
                                        "9007199254740993.1",
                                        "0.1",
                                        "123456789012345.6789",
                                        "0.00000000000000000000000000001",
                                        "1234567890.1234567",
                                        "99999999999999999999999"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_exact(texts[i]);
    for (uint32_t i = 0; i < 20000; i++) {
        fm_philox_counter dice = fm_philox(7, (fm_philox_counter){{i, 0, 0, 0}});
        char text[64];
        snprintf(text, sizeof text, "%s%u.%0*u", dice.word[0] & 1 ? "-" : "",
                 dice.word[1] >> (dice.word[0] % 31), 1 + (int)(dice.word[2] % 10),
                 dice.word[3] >> (dice.word[2] >> 8) % 31);
        assert_exact(text);
    }
}

static void malformed_decimals_are_refused(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        ".",
        "-",
        "+",
        "e5",
        "1e",
        "1e+",
        "1.2.3",
        "0x10",
        "1 ",
        " 1",
        "nan",
        "inf",
        "1_0",
        "1,5",
        "12a",
        "--1",
        "?",
        "0000000000000000000000000000000000000000000000000000000000000001"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double value = 42;
        if (parse(texts[i], &value)) fprintf(stderr, "accepted '%s'\n", texts[i]);
        assert_true(value == 42);
    }
    double value;
    assert_true(fm_decimal_parse((const uint8_t *)"-Infinity", 9, true, &value));
    assert_true(value < -1e308);
    assert_true(fm_decimal_parse((const uint8_t *)"nan", 3, true, &value));
    assert_true(value != value);
    assert_false(fm_decimal_parse((const uint8_t *)"nan(1)", 6, true, &value));
    assert_false(fm_decimal_parse((const uint8_t *)"1\0", 2, true, &value));
}

static bool parse_integer(const char *text, int32_t *ret_value) {
    return fm_integer_parse((const uint8_t *)text, strlen(text), ret_value);
}

static void integers_are_whole_and_fit(void **state) {
    (void)state;
    int32_t value = 42;
    assert_true(parse_integer("-7", &value));
    assert_int_equal(value, -7);
    assert_true(parse_integer("+0012", &value));
    assert_int_equal(value, 12);
    assert_true(parse_integer("2147483647", &value));
    assert_int_equal(value, INT32_MAX);
    static const char *const texts[] = {"",   "-", "1.0", "2147483648", "99999999999999999999",
                                        " 1", "a"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(parse_integer(texts[i], &value));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decimals_are_rounded_as_strtod_does),
        cmocka_unit_test(malformed_decimals_are_refused),
        cmocka_unit_test(integers_are_whole_and_fit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
