/* The simulation of a run's waits: distributions, cases whose waits can be computed by hand, and a
 * small run on the real server with the same times. */
#include "tests/server/server_fixture.h"

#include "server/simulate/simulation.h"

#include <math.h>

static fm_prepare_times times_of(const char *text) {
    fm_prepare_times times;
    fm_error error;
    fm_bytes bytes = {(const uint8_t *)text, strlen(text)};
    if (fm_prepare_times_parse(bytes, &times, &error)) fail_msg("%s", error.message);
    return times;
}

static void assert_near(double found, double expected, double tolerance) {
    if (fabs(found - expected) > tolerance) fail_msg("%g, expected %g", found, expected);
}

/* -- distributions */

static const char metrics[] = "# TYPE foldmill_prepare_seconds histogram\n"
                              "foldmill_streams 3\n"
                              "foldmill_prepare_seconds_bucket{le=\"0.01\"} 0\n"
                              "foldmill_prepare_seconds_bucket{le=\"0.03\"} 90\n"
                              "foldmill_prepare_seconds_bucket{le=\"0.2\"} 100\n"
                              "foldmill_prepare_seconds_bucket{le=\"+Inf\"} 100\n"
                              "foldmill_consumer_prepare_seconds_bucket{le=\"9\"} 5\n";

static void lists_and_metrics_are_read(void **state) {
    (void)state;
    fm_prepare_times times = times_of("\xef\xbb\xbf# ms\n200 10\n20 89\n\n2000\n");
    assert_near(fm_prepare_times_mean(&times), (89 * 20 + 10 * 200 + 2000) / 100.0, 1e-9);
    assert_near(fm_prepare_times_at(&times, 0), 20, 0);
    assert_near(fm_prepare_times_at(&times, 0.88), 20, 0);
    assert_near(fm_prepare_times_at(&times, 0.9), 200, 0);
    assert_near(fm_prepare_times_at(&times, 0.995), 2000, 0);
    fm_prepare_times_fini(&times);
    times = times_of(metrics);
    assert_near(fm_prepare_times_mean(&times), 0.9 * 20 + 0.1 * 115, 1e-9);
    assert_near(fm_prepare_times_at(&times, 0.45), 20, 1e-9);
    assert_near(fm_prepare_times_at(&times, 0.95), 115, 1e-9);
    fm_prepare_times_fini(&times);
}

static void other_texts_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        fm_status status;
        uint64_t line;
    } cases[] = {
        {"", FM_ERR_DATA, 0},
        {"# nothing\n", FM_ERR_DATA, 0},
        {"5 0\n", FM_ERR_DATA, 0},
        {"foldmill_streams 3\n", FM_ERR_DATA, 0},
        {"1\nx\n", FM_ERR_FORMAT, 2},
        {"1\n2 3 4\n", FM_ERR_FORMAT, 2},
        {"-1\n", FM_ERR_FORMAT, 1},
        {"1e300\n", FM_ERR_FORMAT, 1},
        {"nan\n", FM_ERR_FORMAT, 1},
        {"0x14\n", FM_ERR_FORMAT, 1},
        {"5 0x2\n", FM_ERR_FORMAT, 1},
        {"foldmill_prepare_seconds_bucket{le=\"0x1p3\"} 2\n", FM_ERR_FORMAT, 1},
        {"1 \n2ms\n", FM_ERR_FORMAT, 2},
        {"1\nfoldmill_prepare_seconds_bucket{le=\"1\"} 2\n", FM_ERR_FORMAT, 2},
        {"foldmill_prepare_seconds_bucket{le=\"1\"} 2\n"
         "foldmill_prepare_seconds_bucket{le=\"2\"} 1\n",
         FM_ERR_FORMAT, 2},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_prepare_times times;
        fm_error error = {0};
        fm_bytes bytes = {(const uint8_t *)cases[i].text, strlen(cases[i].text)};
        assert_int_equal(fm_prepare_times_parse(bytes, &times, &error), cases[i].status);
        assert_int_equal(error.line, cases[i].line);
        assert_null(times.rows);
    }
}

/* -- cases with known waits */

static const fm_simulation small = {.n_rank = 1,
                                    .per_rank = 1,
                                    .n_server = 1,
                                    .n_worker = 1,
                                    .ahead = 4,
                                    .order = FM_SIMULATED_STRICT,
                                    .n_warm = 50,
                                    .n_step = 200,
                                    .step_ms = 10};

static fm_simulated simulate(fm_simulation plan, const char *text) {
    fm_prepare_times times = times_of(text);
    fm_simulated result;
    fm_error error;
    if (fm_simulate(&plan, &times, &result, &error)) fail_msg("%s", error.message);
    fm_prepare_times_fini(&times);
    assert_int_equal(result.wait_ns.n, plan.n_step);
    assert_near(result.steps_ms, plan.n_step * plan.step_ms, 1e-6);
    return result;
}

/* Equal samples: a server that is quick enough never lets a step wait; one that is not is waited
 * for in every step for what it lacks. */
static void equal_samples_wait_for_what_is_lacking(void **state) {
    (void)state;
    static const fm_simulated_order orders[] = {FM_SIMULATED_STRICT, FM_SIMULATED_BOUNDED,
                                                FM_SIMULATED_FREE, FM_SIMULATED_LOADER};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++) {
        fm_simulation plan = small;
        plan.order = orders[i];
        plan.window = orders[i] == FM_SIMULATED_BOUNDED ? 4 : 0;
        assert_near(simulate(plan, "9.5\n").wait_ms, 0, 0);
        assert_near(simulate(plan, "25\n").wait_ms, 200 * 15, 1e-6);
        plan.n_worker = 3;
        assert_near(simulate(plan, "25\n").wait_ms, 0, 0);
        plan.n_rank = 3; /* 3 samples of 25 ms by 3 workers in a step */
        assert_near(simulate(plan, "25\n").wait_ms, 200 * 15, 1e-6);
        plan.n_rank = 1;
        plan.per_rank = 3;
        assert_near(simulate(plan, "25\n").wait_ms, 200 * 15, 1e-6);
    }
}

/* The link of a server carries one sample at a time. */
static void the_network_is_waited_for(void **state) {
    (void)state;
    fm_simulation plan = small;
    plan.n_rank = 4;
    plan.n_worker = 8;
    plan.send_ms = 5;
    assert_near(simulate(plan, "1\n").wait_ms, 200 * (4 * 5 - 10), 200);
    plan.n_server = 2;
    assert_near(simulate(plan, "1\n").wait_ms, 0, 0);
}

/* ScaleFold's figure 5: one sample in a hundred takes 20 steps. A loader stops for it; an order
 * that may overtake does not. */
static void a_slow_sample_delays_no_step_that_may_overtake_it(void **state) {
    (void)state;
    fm_simulation plan = small;
    plan.n_rank = 8;
    plan.n_worker = 24;
    plan.n_warm = 300;
    plan.n_step = 500;
    const char text[] = "2 890\n20 100\n200 10\n";
    double strict = simulate(plan, text).wait_ms;
    plan.order = FM_SIMULATED_BOUNDED;
    plan.window = 32;
    double bounded = simulate(plan, text).wait_ms;
    plan.order = FM_SIMULATED_FREE;
    plan.window = 0;
    double any = simulate(plan, text).wait_ms;
    plan.order = FM_SIMULATED_LOADER;
    double loader = simulate(plan, text).wait_ms;
    assert_true(loader > strict && strict > 10 * bounded + 100);
    assert_true(any <= bounded);
}

static void numbers_out_of_range_are_named(void **state) {
    (void)state;
    fm_prepare_times times = times_of("1\n");
    const struct {
        fm_simulation plan;
        const char *words;
    } cases[] = {
        {{.n_rank = 0}, "ranks: found 0"},
        {{.n_rank = 2, .per_rank = 1, .n_server = 3}, "servers: found 3, expected 1 to 2"},
        {{.n_rank = 2, .per_rank = 3, .n_server = 1, .n_worker = 1, .ahead = 2}, "samples ahead"},
        {{.n_rank = 2,
          .per_rank = 1,
          .n_server = 1,
          .n_worker = 1,
          .ahead = 2,
          .n_step = 1,
          .step_ms = 1,
          .order = FM_SIMULATED_LOADER},
         "a worker for each of 2 ranks"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_simulated result;
        fm_error error;
        assert_int_equal(fm_simulate(&cases[i].plan, &times, &result, &error), FM_ERR_USAGE);
        if (!strstr(error.message, cases[i].words)) fail_msg("%s", error.message);
    }
    fm_prepare_times_fini(&times);
}

/* -- the real server */

enum { N_RANK = 3, REAL_STEP_MS = 10, REAL_STEPS = 150, REAL_SEED = 5 };

typedef struct real_run {
    const char *url;
    fm_wire_order order;
    uint32_t window;
    pthread_barrier_t barrier;
    uint64_t begin_ns, end_ns;
} real_run;

typedef struct real_rank {
    real_run *run;
    uint32_t rank;
    slab into;
} real_rank;

static const fm_prepare_times *real_times;

static uint32_t delay_of(uint64_t index) {
    return (uint32_t)fm_simulated_time_ms(real_times, REAL_SEED, (uint32_t)(index % N_RANK),
                                          index / N_RANK);
}

static void *use_samples(void *argument) {
    real_rank *r = argument;
    fm_wire_open params = stream_of(REAL_STEPS);
    params.global_batch = N_RANK;
    params.group = r->rank;
    params.n_group = N_RANK;
    params.order = r->run->order;
    params.window = r->run->window;
    params.credit_items = small.ahead;
    fm_client *client = connect_to(r->run->url);
    (void)open_on(client, &params);
    pthread_barrier_wait(&r->run->barrier);
    if (r->rank == 0) r->run->begin_ns = fm_clock_ns();
    for (int i = 0; i < REAL_STEPS; i++) {
        fm_client_event event = next_on(client, &r->into);
        pthread_barrier_wait(&r->run->barrier);
        sleep_ms(REAL_STEP_MS);
        release_on(client, &event);
    }
    pthread_barrier_wait(&r->run->barrier);
    if (r->rank == 0) r->run->end_ns = fm_clock_ns();
    fm_client_close(client);
    return NULL;
}

/* What the same run takes on the server, in ms. Samples sleep instead of being made. */
static double measure(fm_wire_order order, uint32_t window, uint32_t n_worker) {
    server_fixture f;
    static real_rank ranks[N_RANK];
    pthread_t thread[N_RANK];
    server_prepare(&f);
    f.options.n_job = n_worker;
    f.test.delay_ms = delay_of;
    server_start(&f);
    real_run run = {.url = f.unix_url, .order = order, .window = window};
    assert_int_equal(pthread_barrier_init(&run.barrier, NULL, N_RANK), 0);
    for (uint32_t r = 0; r < N_RANK; r++) {
        ranks[r].run = &run;
        ranks[r].rank = r;
        assert_int_equal(pthread_create(&thread[r], NULL, use_samples, &ranks[r]), 0);
    }
    for (uint32_t r = 0; r < N_RANK; r++)
        pthread_join(thread[r], NULL);
    pthread_barrier_destroy(&run.barrier);
    server_finish(&f);
    return (double)(run.end_ns - run.begin_ns) * 1e-6;
}

/* Sleeping is never shorter than it was asked to be, so a run cannot end much before its
 * simulation. A machine that is busy with other things makes it end later. */
static void the_real_server_agrees(void **state) {
    (void)state;
    static const struct {
        fm_wire_order order;
        fm_simulated_order simulated;
        uint32_t window;
    } orders[] = {{FM_WIRE_STRICT, FM_SIMULATED_STRICT, 0},
                  {FM_WIRE_BOUNDED, FM_SIMULATED_BOUNDED, 16},
                  {FM_WIRE_FREE, FM_SIMULATED_FREE, 0}};
    fm_prepare_times times = times_of("4 85\n40 12\n400 3\n");
    double wait[3];
    real_times = &times;
    for (size_t i = 0; i < 3; i++) {
        fm_simulation plan = small;
        plan.n_rank = N_RANK;
        plan.n_worker = 8;
        plan.n_warm = 0;
        plan.n_step = REAL_STEPS;
        plan.step_ms = REAL_STEP_MS;
        plan.order = orders[i].simulated;
        plan.window = orders[i].window;
        plan.seed = REAL_SEED;
        fm_simulated result;
        assert_int_equal(fm_simulate(&plan, &times, &result, NULL), FM_OK);
        double expected = result.wait_ms + result.steps_ms;
        double found = measure(orders[i].order, orders[i].window, plan.n_worker);
        wait[i] = result.wait_ms;
        if (found < 0.8 * expected || found > 4 * expected + 2000) {
            fail_msg("order %u took %.0f ms, by simulation %.0f", orders[i].order, found, expected);
        }
    }
    assert_true(wait[0] > 2 * wait[1] && wait[1] >= wait[2]);
    fm_prepare_times_fini(&times);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_metrics_are_read),
        cmocka_unit_test(other_texts_are_refused),
        cmocka_unit_test(equal_samples_wait_for_what_is_lacking),
        cmocka_unit_test(the_network_is_waited_for),
        cmocka_unit_test(a_slow_sample_delays_no_step_that_may_overtake_it),
        cmocka_unit_test(numbers_out_of_range_are_named),
        cmocka_unit_test(the_real_server_agrees),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
