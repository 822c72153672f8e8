/* test_status.c: errors: what is filled, what is printed, and what stays unchanged. */
#include "proto/base/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void fail_fills_and_returns(void **state) {
    (void)state;
    fm_error error;
    memset(&error, 0xff, sizeof error);
    assert_int_equal(fm_fail(&error, FM_ERR_IO, "cannot %s %d", "read", 7), FM_ERR_IO);
    assert_int_equal(error.status, FM_ERR_IO);
    assert_string_equal(error.message, "cannot read 7");
    assert_string_equal(error.source, "");
    assert_int_equal(error.line | error.column | error.offset, 0);
    assert_int_equal(fm_fail(NULL, FM_ERR_LIMIT, "nobody asks"), FM_ERR_LIMIT);
}

static void fail_at_keeps_the_place(void **state) {
    (void)state;
    fm_error error;
    char text[128];
    assert_int_equal(fm_fail_at(&error, FM_ERR_FORMAT, 4, 1, 99, "row is %d wide", 3),
                     FM_ERR_FORMAT);
    assert_int_equal(error.line, 4);
    assert_int_equal(error.column, 1);
    assert_int_equal(error.offset, 99);
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "4:1: row is 3 wide");
    assert_int_equal(fm_error_in(&error, "t.a3m"), FM_ERR_FORMAT);
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "t.a3m:4:1: row is 3 wide");
    fm_error_in(&error, "other"); /* the source that is set first stays */
    assert_string_equal(error.source, "t.a3m");
    (void)fm_fail_at(&error, FM_ERR_FORMAT, 7, 0, 0, "no such line"); /* all of it */
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "7:1: no such line");
}

static void formats_without_lines(void **state) {
    (void)state;
    fm_error error;
    char text[64];
    (void)fm_fail_at(&error, FM_ERR_CORRUPT, 0, 0, 30, "no magic");
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "byte 30: no magic");
    fm_error_in(&error, "x.npz");
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "x.npz:byte 30: no magic");
    (void)fm_fail(&error, FM_ERR_NOT_FOUND, "no such chain");
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "no such chain");
    fm_error_in(&error, "cache");
    fm_error_format(&error, text, sizeof text);
    assert_string_equal(text, "cache: no such chain");
}

static void long_and_hostile_text(void **state) {
    (void)state;
    fm_error error;
    char text[16], name[1000];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    (void)fm_fail(&error, FM_ERR_FORMAT, "%s", name);
    assert_int_equal(strlen(error.message), FM_ERROR_MESSAGE_BYTES - 1);
    fm_error_in(&error, name);
    assert_int_equal(strlen(error.source), FM_ERROR_SOURCE_BYTES - 1);
    fm_error_format(&error, text, sizeof text);
    assert_int_equal(strlen(text), sizeof text - 1);
    (void)fm_fail(&error, FM_ERR_FORMAT, "found '\x1b[31m\n!\x7f'");
    assert_string_equal(error.message, "found '?[31m?!?'");
    fm_error_in(&error, "a\nb");
    assert_string_equal(error.source, "a?b");
    fm_error_format(&error, NULL, 0); /* zero bytes of room are allowed */
}

static void every_status_has_a_name(void **state) {
    (void)state;
    for (int i = 0; i <= FM_ERR_DENIED; i++)
        assert_string_not_equal(fm_status_name((fm_status)i), "unknown");
    assert_string_equal(fm_status_name(FM_OK), "ok");
    assert_string_equal(fm_status_name((fm_status)1000), "unknown");
    assert_string_equal(fm_status_name((fm_status)-1), "unknown");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fail_fills_and_returns),  cmocka_unit_test(fail_at_keeps_the_place),
        cmocka_unit_test(formats_without_lines),   cmocka_unit_test(long_and_hostile_text),
        cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
