/* test_af3_sampling.c: noise levels and steps of sampling, and the draws of noisy structures by the
 * seed and the clock. */
#include "tests/trainer/common/op_check.h"
#include "tests/testing/model_configs.h"

#include "trainer/model/af3/sampling.h"

static fm_af3_noise published(void) {
    return fm_af3_config_initial().noise;
}

static void a_schedule_falls_from_the_first_level_to_zero(void **state) {
    (void)state;
    enum { N = 20 };
    const fm_af3_noise noise = published();
    double levels[N + 1];
    fm_af3_schedule(&noise, N, levels);
    assert_true(fabs(levels[0] - 16 * 160) < 1e-9);
    assert_true(levels[N] == 0);
    for (int k = 0; k < N; k++)
        assert_true(levels[k + 1] < levels[k]);
}

/* A step to level 0 with scale 1 ends at the denoised structure; noise is added above 1 only. */
static void the_numbers_of_a_step(void **state) {
    (void)state;
    fm_af3_noise noise = published();
    const double last[2] = {0.5, 0}, high[2] = {10, 5}, low[2] = {3, 1};
    noise.step_scale = 1;
    fm_af3_step_numbers numbers = fm_af3_step_numbers_of(&noise, last);
    assert_true(numbers.t == 0.5 && numbers.spread == 0 && numbers.move == -1);
    numbers = fm_af3_step_numbers_of(&noise, high);
    assert_true(fabs(numbers.t - 18) < 1e-12);
    assert_true(fabs(numbers.spread - 1.003 * sqrt(18 * 18 - 100)) < 1e-12);
    assert_true(fabs(numbers.move - (5 - 18) / 18.0) < 1e-15);
    numbers = fm_af3_step_numbers_of(&noise, low); /* the next level is not above 1 */
    assert_true(numbers.t == 3 && numbers.spread == 0);
}

/* ln(sigma / 16) is normal with mean -1.2 and deviation 1.5, within five deviations of 50,000. */
static void levels_are_log_normal(void **state) {
    (void)state;
    enum { N = 50000 };
    const fm_af3_noise noise = published();
    uint32_t clock[FM_CLOCK_WORDS] = {3, 1, 0, 0};
    double *sigma = calloc(N, sizeof *sigma), few[5], mean = 0, square = 0;
    fm_af3_draw_levels(&noise, 5, clock, N, sigma);
    fm_af3_draw_levels(&noise, 5, clock, 5, few);
    assert_memory_equal(few, sigma, sizeof few);
    for (int i = 0; i < N; i++)
        mean += log(sigma[i] / 16) / N;
    for (int i = 0; i < N; i++)
        square += pow(log(sigma[i] / 16) - mean, 2) / N;
    assert_true(fabs(mean + 1.2) < 5 * 1.5 / sqrt(N));
    assert_true(fabs(square - 2.25) < 5 * 2.25 * sqrt(2.0 / N));
    clock[FM_CLOCK_SLOT] = 2;
    fm_af3_draw_levels(&noise, 5, clock, 5, few);
    assert_memory_not_equal(few, sigma, sizeof few);
    free(sigma);
}

/* -- draws on a tape */

enum { S = 3, N = 5 };
enum { IN_TRUTH, IN_MASK, IN_SIGMA };

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    fm_structure_draws draws =
        fm_op_draw_structures(tape, *(const fm_draw_structures *)context, S, N);
    return fm_af3_training_structures(tape, in[IN_TRUTH], in[IN_MASK], in[IN_SIGMA], &draws);
}

/* Noisy structures of a truth whose last atom is not resolved, at this clock. */
static void draw(fm_draw_structures of, uint32_t step, uint32_t cycle, double sigma, double *x) {
    uint32_t clock[FM_CLOCK_WORDS] = {step, 0, cycle, 0};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    bench.without_gradient = true;
    op_input(&bench, 2, (int64_t[]){N, 3}, false);
    op_input(&bench, 1, (int64_t[]){N}, false);
    op_input(&bench, 1, (int64_t[]){S}, false);
    op_finish(&bench, build, &of);
    bench.tape.clock = clock;
    for (int i = 0; i < N; i++)
        op_set(&bench, op_input_data(&bench, IN_MASK), i, i < N - 1);
    for (int s = 0; s < S; s++)
        op_set(&bench, op_input_data(&bench, IN_SIGMA), s, sigma);
    fm_tape_forward(&bench.tape, NULL);
    memcpy(x, fm_tape_data(&bench.tape, bench.output_tensor), S * N * 3 * sizeof *x);
    op_end(&bench);
}

static void draws_follow_the_clock_and_the_purpose(void **state) {
    (void)state;
    double first[S * N * 3], again[S * N * 3], other[S * N * 3];
    draw(FM_DRAW_TRAINING, 4, 2, 1, first);
    draw(FM_DRAW_TRAINING, 4, 2, 1, again);
    assert_memory_equal(first, again, sizeof first);
    draw(FM_DRAW_TRAINING, 5, 2, 1, other);
    assert_memory_not_equal(first, other, sizeof first);
    draw(FM_DRAW_TRAINING, 4, 3, 1, other); /* another step of a rollout */
    assert_memory_not_equal(first, other, sizeof first);
    draw(FM_DRAW_ROLLOUT, 4, 2, 1, other);
    assert_memory_not_equal(first, other, sizeof first);
    assert_memory_not_equal(first, first + N * 3, N * 3 * sizeof *first); /* samples differ */
}

/* Without noise the unresolved atom is at 0, and distances are those of the truth. */
static void augmentation_keeps_distances(void **state) {
    (void)state;
    double x[S * N * 3];
    draw(FM_DRAW_TRAINING, 1, 0, 0, x);
    for (int s = 0; s < S; s++) {
        const double *y = x + s * N * 3;
        for (int axis = 0; axis < 3; axis++)
            assert_true(y[(N - 1) * 3 + axis] == 0);
        for (int i = 0; i < N - 1; i++) {
            double here = 0, there = 0;
            for (int axis = 0; axis < 3; axis++) {
                here += pow(y[3 * i + axis] - y[axis], 2);
                there += pow(x[3 * i + axis] - x[axis], 2);
            }
            assert_true(fabs(here - there) < 1e-12);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_schedule_falls_from_the_first_level_to_zero),
        cmocka_unit_test(the_numbers_of_a_step),
        cmocka_unit_test(levels_are_log_normal),
        cmocka_unit_test(draws_follow_the_clock_and_the_purpose),
        cmocka_unit_test(augmentation_keeps_distances),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
