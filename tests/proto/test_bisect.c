/* test_bisect.c: every element of sorted arrays of all small sizes is found, and nothing else. */
#include "proto/base/bisect.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static int order(const void *array, uint32_t i, const void *key) {
    const int *numbers = array, *wanted = key;
    return (numbers[i] > *wanted) - (numbers[i] < *wanted);
}

static void elements_are_found(void **state) {
    (void)state;
    int even[33];
    for (int i = 0; i < 33; i++)
        even[i] = 2 * i;
    for (uint32_t n = 0; n <= 33; n++) {
        for (int key = -1; key <= 2 * (int)n; key++) {
            uint32_t at = 99;
            bool is_there = key >= 0 && key % 2 == 0 && key < 2 * (int)n;
            assert_int_equal(fm_bisect(even, n, order, &key, &at), is_there);
            assert_int_equal(at, is_there ? (uint32_t)key / 2 : 99);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(elements_are_found)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
