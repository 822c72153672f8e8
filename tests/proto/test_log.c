/* Log lines: one event is one line for any values. */
#include "proto/base/log.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
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
        {"\x9b"
         "2J",
         "\"\\x9b2J\""}, /* CSI as one byte */
        {"\xc2\x9b"
         "2J",
         "\"\\xc2\\x9b2J\""}, /* and as a character */
        {"\xc2\xa0", "\"\xc2\xa0\""},
        {"\xe2\x80\xae"
         "evil",
         "\"\\xe2\\x80\\xaeevil\""}, /* right to left from here */
        {"\xe2\x81\xa6", "\"\\xe2\\x81\\xa6\""},
        {"\xe2\x84\xab", "\"\xe2\x84\xab\""},
        {"\xc3", "\"\\xc3\""}, /* cut in the middle */
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

/* Standard error as a full pipe that nobody reads: no call waits, and what was lost is reported
 * once there is room. Runs in a child, since dropping cannot be switched off again. */
static void nobody_reads(void) {
    int ends[2];
    char got[8192];
    if (pipe(ends)) _exit(10);
    fcntl(ends[1], F_SETPIPE_SZ, 4096);
    dup2(ends[1], STDERR_FILENO);
    fm_log_start_dropping((fm_log_rate){0});
    if (fcntl(STDERR_FILENO, F_GETFL) & O_NONBLOCK) _exit(11); /* it is shared with others */
    for (int i = 0; i < 1000; i++)
        fm_log(FM_LOG_INFO, "hello", "connection=%d", i);
    uint64_t dropped = fm_log_get_losses().n_dropped;
    if (dropped < 900 || dropped >= 1000) _exit(12);
    ssize_t n = read(ends[0], got, sizeof got);
    if (n < 1000 || got[n - 1] != '\n') _exit(13);
    fm_log(FM_LOG_INFO, "hello", "connection=1000");
    n = read(ends[0], got, sizeof got - 1);
    if (n < 0) _exit(14);
    got[n] = '\0';
    char expected[64];
    snprintf(expected, sizeof expected, " warn log_dropped lines=%llu\n",
             (unsigned long long)dropped);
    if (!strstr(got, expected) || !strstr(got, " info hello connection=1000\n")) _exit(15);
    _exit(0);
}

static void one_event_is_loud(void) {
    int ends[2];
    static char got[65536];
    if (pipe(ends)) _exit(10);
    dup2(ends[1], STDERR_FILENO);
    fm_log_start_dropping((fm_log_rate){.burst = 5, .per_s = 1});
    for (int i = 0; i < 100; i++)
        fm_log(FM_LOG_INFO, "hello", "connection=%d", i);
    fm_log(FM_LOG_INFO, "stopped", "samples=0");
    fm_log_start_dropping((fm_log_rate){.burst = 5, .per_s = 5});
    if (fm_log_get_losses().n_dropped || fm_log_get_losses().n_suppressed < 94) _exit(11);
    ssize_t n = read(ends[0], got, sizeof got - 1);
    if (n < 0) _exit(12);
    got[n] = '\0';
    if (!strstr(got, "connection=4\n") || !strstr(got, "stopped samples=0\n")) _exit(13);
    if (strstr(got, "connection=50\n")) _exit(14);
    _exit(0);
}

static void assert_child(void (*body)(void)) {
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        alarm(20); /* a log that waits must fail the test */
        body();
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_log_that_nobody_reads(void **state) {
    (void)state;
    assert_child(nobody_reads);
}

static void a_loud_event_does_not_drown_others(void **state) {
    (void)state;
    assert_child(one_event_is_loud);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quoting),
        cmocka_unit_test(quoting_cuts),
        cmocka_unit_test(lines),
        cmocka_unit_test(a_log_that_nobody_reads),
        cmocka_unit_test(a_loud_event_does_not_drown_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
