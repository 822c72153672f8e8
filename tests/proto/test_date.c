/* test_date.c: days as numbers: which numbers are days, and round trips. */
#include "proto/template_date.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void days_are_recognised(void **state) {
    (void)state;
    static const uint32_t days[] = {10101, 20180430, 20240229, 20000229, 99991231};
    static const uint32_t others[] = {0,        1,        20180431, 20230229, 19000229,
                                      20181301, 20180001, 20180100, 100000101};
    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++)
        assert_true(fm_date_is(days[i]));
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        assert_false(fm_date_is(others[i]));
}

static void texts_survive_a_round_trip(void **state) {
    (void)state;
    static const char *const wrong[] = {"",           "2018",        "2018-4-30",  "20180430",
                                        "2018/04/30", "2018-04-300", "2018-04-31", "2O18-04-30",
                                        "0000-01-01", "-018-04-30"};
    char text[FM_DATE_TEXT_BYTES];
    assert_int_equal(fm_date_parse("2018-04-30"), 20180430);
    fm_date_format(20180430, text);
    assert_string_equal(text, "2018-04-30");
    assert_int_equal(fm_date_parse("0001-01-01"), 10101);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(fm_date_parse(wrong[i]), 0);
}

static void earlier_days_are_counted(void **state) {
    (void)state;
    static const uint32_t cases[][3] = {{20110713, 0, 20110713},    {20110713, 60, 20110514},
                                        {20110713, 12, 20110701},   {20110713, 13, 20110630},
                                        {20240301, 1, 20240229},    {20230301, 1, 20230228},
                                        {20000301, 366, 19990301},  {19000301, 1, 19000228},
                                        {10131, 30, 10101},         {10131, 31, 0},
                                        {20250101, 36525, 19250101}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_int_equal(fm_date_before(cases[i][0], cases[i][1]), cases[i][2]);
}

/* The rules for templates are days, and the two words that the protocol codes as 1 and 2. */
static void template_dates_are_days_or_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint32_t rule;
    } rules[] = {{"query", 1}, {"any", 2}, {"2018-04-30", 20180430}};
    char text[FM_DATE_TEXT_BYTES];
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(fm_template_date_parse(rules[i].text), rules[i].rule);
        assert_true(fm_template_date_is(rules[i].rule));
        fm_template_date_format(rules[i].rule, text);
        assert_string_equal(text, rules[i].text);
    }
    static const char *const wrong[] = {"", "0", "none", "Query", "2018-04-31"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(fm_template_date_parse(wrong[i]), 0);
    assert_false(fm_template_date_is(0) || fm_template_date_is(3) || fm_template_date_is(20180431));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(days_are_recognised),
        cmocka_unit_test(texts_survive_a_round_trip),
        cmocka_unit_test(earlier_days_are_counted),
        cmocka_unit_test(template_dates_are_days_or_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
