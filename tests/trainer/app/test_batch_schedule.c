/* test_batch_schedule.c: batches by step: what is read and refused, how many samples steps have,
 * and finding the step of a score again from the samples that were used. */
#include "trainer/app/train/batch_schedule.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fm_batch_schedule parse(const char *text) {
    fm_batch_schedule schedule;
    assert_int_equal(fm_batch_schedule_parse(text, &schedule, NULL), FM_OK);
    return schedule;
}

static void steps_have_their_batches(void **state) {
    (void)state;
    const fm_batch_schedule s = parse("2@0,4@3,6@5");
    static const uint32_t batches[] = {2, 2, 2, 4, 4, 6, 6, 6};
    uint64_t n = 0;
    for (uint64_t step = 0; step < 8; step++) {
        assert_int_equal(fm_batch_at(&s, step), batches[step]);
        assert_int_equal(fm_batch_before(&s, step), n);
        n += batches[step];
    }
    const fm_batch_schedule one = fm_batch_schedule_of(3);
    assert_int_equal(fm_batch_at(&one, 1000), 3);
    assert_int_equal(fm_batch_before(&one, 1000), 3000);
    assert_false(fm_batch_is_waiting(&one));
}

/* However far the run is, the samples that it has used say when its last batch began. */
static void the_step_of_a_score_is_found_again(void **state) {
    (void)state;
    const fm_batch_schedule open = parse("2@0,4@3,12@lddt_ca>=0.75");
    assert_true(fm_batch_is_waiting(&open));
    assert_string_equal(open.score, "lddt_ca");
    assert_true(open.least == 0.75);
    assert_int_equal(fm_batch_at(&open, 1u << 20), 4);
    for (uint64_t begin = 4; begin < 9; begin++) {
        for (uint64_t step = 0; step < 12; step++) {
            fm_batch_schedule run = open, resumed = open;
            fm_batch_begin_last(&run, begin);
            fm_error error;
            assert_int_equal(
                fm_batch_find_last(&resumed, step, fm_batch_before(&run, step), &error), FM_OK);
            assert_int_equal(fm_batch_is_waiting(&resumed), step <= begin);
            if (step > begin) assert_int_equal(resumed.stage[2].step, begin);
        }
    }
    fm_batch_schedule resumed = open;
    fm_error error;
    assert_int_equal(fm_batch_find_last(&resumed, 6, 19, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "--batch-schedule: the checkpoint has used 19 samples in 6 "
                                       "steps, and this schedule has 18");
    assert_int_equal(fm_batch_find_last(&resumed, 6, 17, &error), FM_ERR_USAGE);
    fm_batch_schedule fixed = parse("2@0,4@3");
    assert_int_equal(fm_batch_find_last(&fixed, 6, 26, &error), FM_ERR_USAGE);
}

static void bad_schedules_are_refused_with_a_place(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t column;
        const char *expected;
    } cases[] = {
        {"", 1, "a number of samples"},
        {"128", 4, "@ and a step"},
        {"0@0", 1, "a number of samples"},
        {"65537@0", 1, "a number of samples"},
        {"99999999999999999999@0", 1, "a number of samples"},
        {"-2@0", 1, "a number of samples"},
        {"128@1", 5, "step 0 for the first batch"},
        {"128@lddt_ca>=0.5", 5, "step 0 for the first batch"},
        {"128@0,", 7, "a number of samples"},
        {"128@0;256@9", 6, "a comma or the end"},
        {"128@0,192@9", 7, "a multiple of the first batch"},
        {"128@0,256@0", 11, "a later step than the one before"},
        {"128@0,256@9,512@9", 17, "a later step than the one before"},
        {"128@0,256@99999999999999", 11, "a step"},
        {"128@0,256@x", 11, "a step, or a score as lddt_ca>=0.8"},
        {"128@0,256@lddt_ca<0.8", 11, "a step, or a score as lddt_ca>=0.8"},
        {"128@0,256@lddt_ca>=x", 20, "a number"},
        {"128@0,256@lddt_ca>=inf", 20, "a number"},
        {"128@0,256@lddt_ca>=0.8x", 23, "a comma or the end"},
        {"128@0,256@lddt_ca>=0.8,512@9", 23, "the end, as the score is the last"},
        {"1@0,1@1,1@2,1@3,1@4,1@5,1@6,1@7,1@8,1@9,1@10,1@11,1@12,1@13,1@14,1@15,1@16", 71,
         "at most 16 batches"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_batch_schedule schedule;
        fm_error error = {.status = FM_OK};
        assert_int_equal(fm_batch_schedule_parse(cases[i].text, &schedule, &error), FM_ERR_USAGE);
        assert_string_equal(error.source, "--batch-schedule");
        assert_int_equal(error.column, cases[i].column);
        assert_non_null(strstr(error.message, cases[i].expected));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_have_their_batches),
        cmocka_unit_test(the_step_of_a_score_is_found_again),
        cmocka_unit_test(bad_schedules_are_refused_with_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
