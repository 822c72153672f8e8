/* test_forecast.c: forecasts agree with their formula and with steps that were measured. */
#include "tests/testing/testing.h"

#include "server/simulate/forecast.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

static void expect_near(double found, double expected, double relative) {
    if (fabs(found - expected) <= relative * fabs(expected)) return;
    fprintf(stderr, "found %.6g, expected %.6g\n", found, expected);
    assert_true(false);
}

/* The forecast of a layout that was measured on one host is the measured step itself. */
static void measured_steps_are_themselves(void **state) {
    (void)state;
    const fm_forecast_plan plans[] = {{"af2-initial", 1, 1, 1, 8, 1, 45},
                                      {"af2-initial", 4, 1, 4, 8, 1, 45},
                                      {"af2-finetuning", 2, 2, 4, 8, 1, 45},
                                      {"af3-initial", 2, 1, 2, 8, 1, 45}};
    const double ms[] = {206.2, 126.0, 417, 567.8};
    for (size_t i = 0; i < sizeof ms / sizeof ms[0]; i++) {
        fm_forecast f;
        assert_int_equal(fm_forecast_compute(&plans[i], &f, NULL), FM_OK);
        expect_near(f.step_ms.value, ms[i], 0);
        assert_int_equal(f.step_ms.mark, FM_FORECAST_MEASURED);
        assert_int_equal(f.samples, 1);
        assert_string_equal(f.bound, "computing");
    }
}

static void the_model_holds_what_was_measured(void **state) {
    (void)state;
    for (const fm_forecast_check *c = fm_forecast_checks; c->preset; c++) {
        const fm_forecast_plan plan = {c->preset, c->dap, c->bp, c->gpus, 8, c->batch, 45};
        fm_forecast f;
        assert_int_equal(fm_forecast_compute(&plan, &f, NULL), FM_OK);
        expect_near(f.step_ms.value, c->measured_ms, 0.02);
        assert_int_equal(f.step_ms.mark, FM_FORECAST_EXTRAPOLATED);
    }
}

/* 32 hosts of 8, one sample for each group of two GPUs. */
static void many_hosts_follow_the_formula(void **state) {
    (void)state;
    const fm_forecast_plan plan = {"af2-initial", 2, 1, 256, 8, 128, 45};
    fm_forecast f;
    assert_int_equal(fm_forecast_compute(&plan, &f, NULL), FM_OK);
    expect_near(f.compute_ms, 156.2 * 1.03, 1e-12);
    expect_near(f.sum_ms, 2 * 373.0 / 2 * 127 / 128 / 45 + 373.0 / 2 / 330 + 2 * 127 * 1.5e-3,
                1e-12);
    /* Rank 0 passes words to 16 leaders, one of these to 15, and each to 7 of its host. */
    expect_near(f.words_ms, 3 + 2 * (7 + 16 + 1) * 256 * 568 / 6e6, 0.5);
    expect_near(f.step_ms.value, f.compute_ms + f.sum_ms + f.words_ms, 1e-12);
    expect_near(f.samples_s, 128e3 / f.step_ms.value, 1e-12);
    expect_near(f.efficiency, 128 * 206.2 / 256 / f.step_ms.value, 1e-12);
    expect_near(f.stream_gbit, f.samples_s * 2 * 3.2 * 8e-3, 1e-12);
    assert_string_equal(f.bound, "sum of gradients");
}

static void impossible_plans_are_refused(void **state) {
    (void)state;
    static const struct {
        fm_forecast_plan plan;
        const char *message;
    } cases[] = {
        {{"tiny", 1, 1, 8, 8, 128, 45}, "tiny has no step with dap 1 and bp 1 in the table"},
        {{"af2-initial", 3, 1, 9, 8, 9, 45},
         "af2-initial has no step with dap 3 and bp 1 in the table"},
        {{"af2-initial", 4, 1, 10, 8, 128, 45}, "10 GPUs cannot be divided into groups of 4"},
        {{"af2-initial", 1, 1, 6, 8, 128, 45}, "6 groups do not divide a batch of 128"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_forecast f;
        fm_error error;
        assert_int_equal(fm_forecast_compute(&cases[i].plan, &f, &error), FM_ERR_USAGE);
        assert_string_equal(error.message, cases[i].message);
    }
}

/* Of 1,000 GPUs 512 can share 128 samples by DAP-4, which is faster than 128 alone. */
static void the_fastest_layout_is_chosen(void **state) {
    (void)state;
    fm_forecast_plan plan = {"af2-initial", 1, 1, 1000, 8, 128, 45};
    fm_forecast f;
    fm_error error;
    assert_int_equal(fm_forecast_choose(&plan, &f, NULL), FM_OK);
    assert_int_equal(plan.dap * plan.bp, 4);
    assert_int_equal(plan.gpus, 512);
    for (const fm_forecast_schedule *s = fm_forecast_schedules; s->name; s++) {
        for (int i = 0; i < s->n_stage; i++) {
            fm_forecast_plan stage = {s->stage[i].preset, 1, 1, 64, 8, s->stage[i].batch, 45};
            assert_int_equal(fm_forecast_choose(&stage, &f, NULL), FM_OK);
        }
    }
    plan.preset = "tiny";
    assert_int_equal(fm_forecast_choose(&plan, &f, &error), FM_ERR_USAGE);
}

static void networks_have_names_or_rates(void **state) {
    (void)state;
    fm_forecast_network network;
    assert_true(fm_forecast_find_network("ethernet", &network));
    expect_near(network.gb_s, 1.4, 0);
    assert_true(fm_forecast_find_network("12.5", &network));
    expect_near(network.gb_s, 12.5, 0);
    static const char *const bad[] = {"", "fast", "0", "-1", "1x", "nan", "inf"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(fm_forecast_find_network(bad[i], &network));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measured_steps_are_themselves),
        cmocka_unit_test(the_model_holds_what_was_measured),
        cmocka_unit_test(many_hosts_follow_the_formula),
        cmocka_unit_test(impossible_plans_are_refused),
        cmocka_unit_test(the_fastest_layout_is_chosen),
        cmocka_unit_test(networks_have_names_or_rates),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
