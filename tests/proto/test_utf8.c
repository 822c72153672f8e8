/* test_utf8.c: characters of UTF-8, and texts made plain. */
#include "proto/base/utf8.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Checks every code point, encoded here; every other sequence of up to three bytes is not a
 * character. */
static void sizes(void **state) {
    (void)state;
    for (uint32_t c = 0; c <= 0x10ffff; c++) {
        uint8_t at[4];
        size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
        static const uint8_t lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
        for (size_t i = n; i-- > 0;)
            at[i] = (uint8_t)((n == 1 ? 0
                               : i    ? 0x80
                                      : lead[n]) |
                              (n == 1 ? c : c >> 6 * (n - 1 - i) & (i ? 0x3f : 0x1f)));
        bool is_surrogate = c >= 0xd800 && c < 0xe000;
        if (fm_utf8_size(at, n) != (is_surrogate ? 0 : n)) fail_msg("U+%04X", (unsigned)c);
        if (n > 1 && fm_utf8_size(at, n - 1)) fail_msg("U+%04X cut short", (unsigned)c);
    }
    uint32_t n_two = 0, n_three = 0;
    for (uint32_t i = 0; i < 1u << 24; i++) {
        const uint8_t at[] = {(uint8_t)(i >> 16), (uint8_t)(i >> 8), (uint8_t)i};
        size_t n = fm_utf8_size(at, 3);
        n_two += n == 2 && at[2] == 0;
        n_three += n == 3;
    }
    assert_int_equal(n_two, 0x800 - 0x80);
    assert_int_equal(n_three, 0x10000 - 0x800 - 0x800);
}

static void plain(void **state) {
    (void)state;
    static const struct {
        const char *text, *plain;
    } cases[] = {
        {"", ""},
        {"2.5 \xc3\x85", "2.5 \xc3\x85"},
        {"a\tb\n\x1b[1m\x7f", "a?b??[1m?"},
        {"\x9b"
         "1m \xc2\x9b",
         "?1m ??"}, /* the terminal's CSI in one byte, and in two */
        {"\xff\xc3", "??"},
        {"\xe2\x82", "??"},
        {"\xc0\xaf \xed\xa0\x80", "?? ???"},
        {"\xf0\x9f\xa7\xac", "\xf0\x9f\xa7\xac"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s", cases[i].text);
        fm_utf8_make_plain(text);
        assert_string_equal(text, cases[i].plain);
    }
}

static void prefixes(void **state) {
    (void)state;
    const char *text = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\xa7\xac.";
    static const size_t bytes[] = {0, 1, 3, 6, 10, 11, 11};
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        assert_int_equal(fm_utf8_prefix(text, i), bytes[i]);
    assert_int_equal(fm_utf8_prefix(text, SIZE_MAX), 11);
    assert_int_equal(fm_utf8_prefix("", 5), 0);
}

static void whole_texts(void **state) {
    (void)state;
    const char *text = "a\xc3\xa9\xe2\x82\xac";
    assert_true(fm_utf8_is_whole(text, 6));
    assert_true(fm_utf8_is_whole(text, 3));
    assert_true(fm_utf8_is_whole(text, 0));
    assert_false(fm_utf8_is_whole(text, 5));
    assert_false(fm_utf8_is_whole(text + 2, 1));
    assert_false(fm_utf8_is_whole("x\xff", 2));
}

static void marks(void **state) {
    (void)state;
    static const uint8_t text[] = {0xef, 0xbb, 0xbf, 'a'};
    assert_int_equal(fm_utf8_mark(text, 4), 3);
    assert_int_equal(fm_utf8_mark(text, 3), 3);
    assert_int_equal(fm_utf8_mark(text, 2), 0);
    assert_int_equal(fm_utf8_mark(text + 1, 3), 0);
    assert_int_equal(fm_utf8_mark(NULL, 0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(sizes), cmocka_unit_test(plain),
                                       cmocka_unit_test(prefixes), cmocka_unit_test(whole_texts),
                                       cmocka_unit_test(marks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
