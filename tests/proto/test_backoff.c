/* The pauses before a server is asked again: they grow, they differ, and they end. */
#include "proto/backoff.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MS = 1000000 };

static void pauses_grow_up_to_a_bound(void **state) {
    (void)state;
    uint64_t now = 77, usual_ms = 500;
    fm_backoff backoff = fm_backoff_begin(1000000, now);
    for (int i = 0; i < 20; i++) {
        uint32_t pause = fm_backoff_next(&backoff, now);
        assert_in_range(pause, usual_ms * 3 / 4, usual_ms * 5 / 4);
        now += (uint64_t)pause * MS;
        if (usual_ms < 16000) usual_ms *= 2;
    }
}

/* The last pause ends at the limit, and the attempt after it is the last. */
static void the_last_attempt_is_at_the_limit(void **state) {
    (void)state;
    uint64_t begin = 5000, now = begin;
    fm_backoff backoff = fm_backoff_begin(60000, begin);
    uint32_t n = 0;
    for (uint32_t pause; (pause = fm_backoff_next(&backoff, now)) != 0; n++)
        now += (uint64_t)pause * MS;
    assert_int_equal((now - begin) / MS, 60000);
    assert_in_range(n, 6, 12);
    fm_backoff none = fm_backoff_begin(0, begin);
    assert_int_equal(fm_backoff_next(&none, begin), 0);
}

static void two_moments_differ(void **state) {
    (void)state;
    uint32_t n_same = 0, first = 0;
    for (uint64_t now = 0; now < 50; now++) {
        fm_backoff backoff = fm_backoff_begin(60000, now * 12345);
        uint32_t pause = fm_backoff_next(&backoff, now * 12345);
        if (now == 0) first = pause;
        n_same += pause == first;
    }
    assert_true(n_same < 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pauses_grow_up_to_a_bound),
        cmocka_unit_test(the_last_attempt_is_at_the_limit),
        cmocka_unit_test(two_moments_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
