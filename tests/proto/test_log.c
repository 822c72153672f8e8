/* Log lines: one event is one line for any values. */
#include "proto/base/log.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void quoting(void **state) {
    (void)state;
    static const struct {
        const char *text, *quoted;
    } cases[] = {
        {"1abc_A", "1abc_A"},
        {"tcp://127.0.0.1:7420", "tcp://127.0.0.1:7420"},
        {"", "\"\""},
        {"two words", "\"two words\""},
        {"a=b", "\"a=b\""},
        {"say \"hi\"", "\"say \\\"hi\\\"\""},
        {"back\\slash", "\"back\\\\slash\""},
        {"line\nfeed\x1b[2J", "\"line\\x0afeed\\x1b[2J\""},
        {"\x7f", "\"\\x7f\""},
        {"\xc3\x85", "\"\xc3\x85\""},
    };
    char out[128];
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_ptr_equal(fm_log_quote(out, sizeof out, cases[i].text), out);
        assert_string_equal(out, cases[i].quoted);
    }
}

/* For every size the result is terminated, inside its room, and closed by its quote. */
static void quoting_cuts(void **state) {
    (void)state;
    char out[64];
    static const char text[] =
        "a long value\x01\x02 with \"everything\" in it, and some more of it";
    for (size_t size = 8; size <= sizeof out; size++) {
        memset(out, 'Z', sizeof out);
        fm_log_quote(out, size, text);
        size_t length = strnlen(out, size);
        assert_true(length < size);
        assert_string_equal(out + length - 4, "...\"");
        for (size_t i = size; i < sizeof out; i++)
            assert_int_equal(out[i], 'Z');
    }
    fm_log_quote(out, 8, "1234567"); /* the longest bare value that fits */
    assert_string_equal(out, "1234567");
}

/* What fm_log writes while standard error is a pipe; returns the bytes of it. */
static size_t capture(char *out, size_t out_bytes, fm_log_level level, const char *value) {
    int ends[2], kept = dup(STDERR_FILENO);
    assert_int_equal(pipe(ends), 0);
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    fm_log(level, "listening", "address=%s chains=%d", value, 22);
    dup2(kept, STDERR_FILENO);
    close(kept);
    ssize_t got = read(ends[0], out, out_bytes - 1);
    close(ends[0]);
    assert_true(got >= 0);
    out[got] = '\0';
    return (size_t)got;
}

static void lines(void **state) {
    (void)state;
    char line[8192], value[5000];
    capture(line, sizeof line, FM_LOG_INFO, "unix:/tmp/s");
    assert_int_equal(line[10], 'T');
    assert_string_equal(strchr(line, ' '), " info listening address=unix:/tmp/s chains=22\n");
    assert_int_equal(capture(line, sizeof line, FM_LOG_DEBUG, "x"), 0);
    fm_log_set_level(FM_LOG_ERROR);
    assert_int_equal(capture(line, sizeof line, FM_LOG_WARN, "x"), 0);
    assert_true(capture(line, sizeof line, FM_LOG_ERROR, "x") > 0);
    fm_log_set_level(FM_LOG_INFO);
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    size_t bytes = capture(line, sizeof line, FM_LOG_INFO, value);
    assert_true(bytes <= 2048);
    assert_int_equal(line[bytes - 1], '\n');
    assert_ptr_equal(strchr(line, '\n'), line + bytes - 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quoting),
        cmocka_unit_test(quoting_cuts),
        cmocka_unit_test(lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
