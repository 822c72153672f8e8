/* test_watchdog.c: tests tests/testing/watchdog.h, with which kbench runs its cases: items that
 * crash, hang or run out of time do not stop the others. */
#include "tests/testing/testing.h"
#include "tests/testing/watchdog.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST = 8 };

/* What each item does, one letter per item: g good, a abort, h hang, x exit, s says much. */
typedef struct record {
    const char *items;
    int prepare_status;
    int n_heard[MOST];
    char last[MOST][FM_WATCHDOG_LINE];
    char lost[MOST][64];
    int n_prepared;
} record;

static int prepare(void *context, int fd) {
    record *r = context;
    fm_watchdog_say(fd, "prepared");
    return r->prepare_status;
}

static void run(void *context, int item, int fd) {
    record *r = context;
    fm_watchdog_say(fd, "begin %d", item);
    switch (r->items[item]) {
    case 'a': abort();
    case 'x': _exit(5);
    case 'h':
        for (;;)
            pause();
    case 's':
        for (int i = 0; i < 3000; i++)
            fm_watchdog_say(fd, "line %d%0*d", i, 100, 0);
        fm_watchdog_say(fd, "%0*d", FM_WATCHDOG_LINE * 2, 7);
        break;
    default: break;
    }
    fm_watchdog_say(fd, "end %d", item);
}

static void hear(void *context, int item, const char *line) {
    record *r = context;
    if (item < 0) {
        assert_string_equal(line, "prepared");
        r->n_prepared++;
        return;
    }
    r->n_heard[item]++;
    snprintf(r->last[item], sizeof r->last[item], "%s", line);
}

static void lost(void *context, int item, const char *why) {
    record *r = context;
    assert_string_equal(r->lost[item], "");
    snprintf(r->lost[item], sizeof r->lost[item], "%s", why);
}

static int run_items(record *r, double item_seconds, double total_seconds) {
    const fm_watchdog dog = {.n_item = (int)strlen(r->items),
                             .item_seconds = item_seconds,
                             .total_seconds = total_seconds,
                             .context = r,
                             .prepare = prepare,
                             .run = run,
                             .hear = hear,
                             .lost = lost};
    return fm_watchdog_run(&dog);
}

static void assert_good(const record *r, int item) {
    char line[32];
    snprintf(line, sizeof line, "end %d", item);
    assert_string_equal(r->last[item], line);
    assert_string_equal(r->lost[item], "");
}

static void test_good(void **state) {
    (void)state;
    record r = {.items = "gsg"};
    assert_int_equal(run_items(&r, 60, 0), 0);
    for (int i = 0; i < 3; i++)
        assert_good(&r, i);
    assert_int_equal(r.n_prepared, 1);
    assert_int_equal(r.n_heard[0], 2);
    assert_int_equal(r.n_heard[1], 3003); /* none lost, the long one cut */
}

static void test_crashes(void **state) {
    (void)state;
    record r = {.items = "gagxag"};
    assert_int_equal(run_items(&r, 60, 0), 0);
    assert_good(&r, 0);
    assert_good(&r, 2);
    assert_good(&r, 5);
    assert_string_equal(r.lost[1], "killed by signal 6");
    assert_string_equal(r.lost[3], "exit status 5");
    assert_string_equal(r.lost[4], "killed by signal 6");
    assert_string_equal(r.last[3], "begin 3"); /* lines before the crash are kept */
    assert_int_equal(r.n_prepared, 4);
}

static void test_hangs(void **state) {
    (void)state;
    record r = {.items = "ha"};
    assert_int_equal(run_items(&r, 0.5, 0), 0);
    assert_string_equal(r.lost[0], "no end after 0.5 s");
    assert_string_equal(r.lost[1], "killed by signal 6");
}

/* The current item may end; no other begins. */
static void test_out_of_time(void **state) {
    (void)state;
    record r = {.items = "hgg"};
    assert_int_equal(run_items(&r, 0.5, 0.1), 0);
    assert_string_equal(r.lost[0], "no end after 0.5 s");
    assert_string_equal(r.lost[1], "no time left");
    assert_string_equal(r.lost[2], "no time left");
    assert_int_equal(r.n_prepared, 1);
}

static void test_cannot_prepare(void **state) {
    (void)state;
    record r = {.items = "gg", .prepare_status = FM_TEST_SKIPPED};
    assert_int_equal(run_items(&r, 60, 0), FM_TEST_SKIPPED);
    assert_int_equal(r.n_heard[0], 0);
    assert_string_equal(r.lost[0], "");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good), cmocka_unit_test(test_crashes), cmocka_unit_test(test_hangs),
        cmocka_unit_test(test_out_of_time), cmocka_unit_test(test_cannot_prepare)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
