/* test_kernels_draw.c: tests random draws. A slice of a tensor gets the words of its global
 * elements, every part of the counter has an effect, and the dropout index follows the shared
 * axis. */
#include "trainer/backend/kernels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void words_are_philox_blocks(void **state) {
    (void)state;
    const uint32_t clock[FM_CLOCK_WORDS] = {7, 3, 2, 0};
    fm_draw draw = {0x0123456789abcdefu, clock, 41, FM_PURPOSE_DROPOUT};
    for (uint64_t index = 0; index < 9; index++) {
        fm_philox_counter counter = {{(uint32_t)(index / 4), 7, 41, 2u << 24 | 2u << 16 | 3}};
        assert_int_equal(fm_draw_word(&draw, index),
                         fm_philox(0x0123456789abcdefu, counter).word[index % 4]);
    }
}

static void every_part_moves_the_word(void **state) {
    (void)state;
    fm_draw draw = {1, NULL, 2, FM_PURPOSE_DROPOUT};
    const uint32_t base = fm_draw_word(&draw, 5);
    for (int word = 0; word < 3; word++) {
        uint32_t clock[FM_CLOCK_WORDS] = {0};
        clock[word] = 1;
        fm_draw moved = draw;
        moved.clock = clock;
        assert_int_not_equal(fm_draw_word(&moved, 5), base);
    }
    fm_draw other_seed = draw, other_layer = draw, other_purpose = draw;
    other_seed.seed++;
    other_layer.layer++;
    other_purpose.purpose = FM_PURPOSE_INIT;
    assert_int_not_equal(fm_draw_word(&other_seed, 5), base);
    assert_int_not_equal(fm_draw_word(&other_layer, 5), base);
    assert_int_not_equal(fm_draw_word(&other_purpose, 5), base);
    assert_int_not_equal(fm_draw_word(&draw, 6), base);
}

static void dropout_index_follows_the_shared_axis(void **state) {
    (void)state;
    /* global [*, 10, 4]: element (2, 3, 1) */
    assert_int_equal(fm_dropout_index(FM_SHARED_AXIS0, 2, 3, 1, 10, 4), 3 * 4 + 1);
    assert_int_equal(fm_dropout_index(FM_SHARED_AXIS1, 2, 3, 1, 10, 4), 2 * 4 + 1);
    assert_int_equal(fm_dropout_index(FM_SHARED_NONE, 2, 3, 1, 10, 4), 23 * 4 + 1);
    assert_int_equal(fm_drop_threshold(0.25), 0x40000000u);
    assert_int_equal(fm_drop_threshold(0), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_philox_blocks),
        cmocka_unit_test(every_part_moves_the_word),
        cmocka_unit_test(dropout_index_follows_the_shared_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
