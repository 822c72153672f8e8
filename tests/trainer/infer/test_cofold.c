/* test_cofold.c: predictions of complexes. A structure depends on its number and the seed alone,
 * not on how many there are or how many run side by side; steps beyond the 256th have draws of
 * their own; slabs and padding change results by rounding; memory is refused before anything runs.
 */
#include "tests/testing/complex_sample.h"

#include "trainer/app/settings/setup.h"
#include "trainer/infer/cofold.h"
#include "trainer/step/af3/stored.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N_X = 3 * FM_TEST_ATOMS };

typedef struct bench {
    fm_test_complex complex;
    fm_arena arena;
    fm_af3_features features;
    fm_cofold_options options;
    fm_cofold *cofold;
} bench;

static void open_bench(bench *b) {
    fm_train_config config;
    fm_error error = {.message = ""};
    *b = (bench){.cofold = NULL};
    fm_test_complex_make(&b->complex, 3);
    assert_int_equal(fm_arena_init(&b->arena, (size_t)1 << 24, NULL), FM_OK);
    if (fm_stored_sample_check(&b->complex.npz, &b->arena, &b->features, &error)) {
        fail_msg("%s", error.message);
    }
    assert_int_equal(fm_train_config_preset("af3-tiny", &config, NULL), FM_OK);
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    b->options = (fm_cofold_options){.model = fm_af3_trainer_options_of(&config, kernels, 1).model,
                                     .kernels = kernels,
                                     .n_cycle = 2,
                                     .n_step = 3,
                                     .n_structure = 3,
                                     .n_row = FM_TEST_ROWS};
}

static void close_bench(bench *b) {
    fm_cofold_destroy(b->cofold);
    fm_arena_fini(&b->arena);
    fm_test_complex_free(&b->complex);
}

/* Creates it anew with the options as they are, with random weights. */
static void create(bench *b) {
    fm_error error = {.message = ""};
    fm_cofold_destroy(b->cofold);
    b->cofold = NULL;
    if (fm_cofold_create(&b->options, &b->cofold, &error)) fail_msg("%s", error.message);
    fm_params *params = fm_cofold_get_params(b->cofold);
    if (fm_af3_draw_parameters(params, 7, &error)) fail_msg("%s", error.message);
}

static void run(bench *b, uint32_t seed) {
    fm_cofold_times times;
    fm_error error = {.message = ""};
    if (fm_cofold_run(b->cofold, &b->features.sample, seed, NULL, &times, &error)) {
        fail_msg("%s", error.message);
    }
}

/* Runs with the options as they are, and copies structure k. */
static void predict(bench *b, uint32_t seed, int64_t k, double x[N_X]) {
    create(b);
    run(b, seed);
    memcpy(x, fm_cofold_structure(b->cofold, k), N_X * sizeof *x);
}

static double distance(const double *a, const double *b) {
    double sum = 0;
    for (int i = 0; i < N_X; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sqrt(sum / N_X);
}

static void test_structure_depends_on_its_number(void **state) {
    (void)state;
    bench b;
    double first[N_X], third[N_X], x[N_X];
    open_bench(&b);
    for (int64_t side = 1; side <= 2; side++) { /* with two, the third one runs beside none */
        b.options.side = side;
        b.options.n_structure = 3;
        predict(&b, 5, 0, first);
        memcpy(third, fm_cofold_structure(b.cofold, 2), sizeof third);
        assert_true(distance(first, third) > 1e-3);
        b.options.n_structure = 5;
        predict(&b, 5, 2, x);
        assert_memory_equal(x, third, sizeof x);
        b.options.n_structure = 1;
        predict(&b, 5, 0, x);
        assert_memory_equal(x, first, sizeof x);
    }
    close_bench(&b);
}

static void test_seed_decides(void **state) {
    (void)state;
    bench b;
    double first[N_X], x[N_X];
    open_bench(&b);
    predict(&b, 5, 0, first);
    run(&b, 6); /* with the same recording */
    assert_true(distance(fm_cofold_structure(b.cofold, 0), first) > 1e-3);
    run(&b, 5);
    assert_memory_equal(fm_cofold_structure(b.cofold, 0), first, sizeof first);
    b.options.spoils = true;
    predict(&b, 5, 0, x);
    assert_memory_equal(x, first, sizeof x);
    close_bench(&b);
}

/* Fetches the noisy structures of a step that begins at the same structures. */
static void noisy_of_step(bench *b, int32_t k, float *x) {
    fm_cofold_passes *p = fm_cofold_get_passes(b->cofold);
    float *values;
    assert_int_equal(fm_cofold_passes_start(p, 0, 1, NULL), FM_OK);
    fm_cofold_passes_queue_step(p, k);
    size_t mark = fm_arena_mark(&b->arena);
    assert_int_equal(fm_recording_download(&p->recording, FM_COFOLD_STEP, p->made.noisy, 0, N_X,
                                           &b->arena, &values, NULL),
                     FM_OK);
    memcpy(x, values, N_X * sizeof *x);
    fm_arena_rewind(&b->arena, mark);
}

static void test_steps_have_draws_of_their_own(void **state) {
    (void)state;
    bench b;
    float x[3][N_X];
    open_bench(&b);
    b.options.n_step = 300;
    b.options.n_structure = 1;
    b.options.n_cycle = 1;
    b.options.exact = true;
    create(&b);
    run(&b, 1);
    noisy_of_step(&b, 40, x[0]);
    noisy_of_step(&b, 40, x[1]);
    noisy_of_step(&b, 40 + 256, x[2]);
    assert_memory_equal(x[0], x[1], sizeof x[0]);
    /* The levels of the steps differ, but equal draws would give equal directions. */
    int same = 0;
    for (int i = 3; i < N_X; i++)
        same += (x[0][i] > x[0][i - 3]) == (x[2][i] > x[2][i - 3]);
    assert_true(same < N_X - 8);
    close_bench(&b);
}

static void test_slabs_and_padding_round(void **state) {
    (void)state;
    bench b;
    double whole[N_X], x[N_X];
    open_bench(&b);
    predict(&b, 5, 0, whole);
    b.options.exact = true;
    predict(&b, 5, 0, x);
    assert_true(distance(x, whole) < 1e-3);
    b.options.exact = false;
    for (int triangles = 0; triangles < 2; triangles++) {
        b.options.slabs = (fm_slabs){1, triangles};
        predict(&b, 5, 0, x);
        assert_true(distance(x, whole) < 1e-3);
    }
    close_bench(&b);
}

static void test_memory_is_planned(void **state) {
    (void)state;
    bench b;
    fm_cofold_need need;
    fm_error error = {.message = ""};
    fm_cofold_times times;
    const fm_cofold_sizes sizes = {FM_TEST_TOKENS, FM_TEST_ATOMS, FM_TEST_ROWS, FM_TEST_TEMPLATES};
    open_bench(&b);
    create(&b);
    assert_int_equal(fm_cofold_find_need(b.cofold, &sizes, &need, &error), FM_OK);
    run(&b, 1);
    const fm_cofold_passes *p = fm_cofold_get_passes(b.cofold);
    assert_int_equal(fm_cofold_passes_taken(p).device, need.part.device);
    for (int i = 0; i < FM_COFOLD_TAPES; i++)
        assert_true(need.part.state + need.part.tape[i] <= need.part.device);
    b.options.memory_budget_bytes = need.bytes / 4;
    create(&b);
    assert_int_equal(fm_cofold_run(b.cofold, &b.features.sample, 1, NULL, &times, &error),
                     FM_ERR_LIMIT);
    assert_non_null(strstr(error.message, "a complex of 8 tokens, 14 atoms and"));
    assert_non_null(strstr(error.message, "GiB of"));
    close_bench(&b);
}

static void test_samples_are_checked(void **state) {
    (void)state;
    bench b;
    fm_cofold_times times;
    fm_error error = {.message = ""};
    open_bench(&b);
    b.options.model.max_atoms_per_token = 1;
    create(&b);
    assert_int_equal(fm_cofold_run(b.cofold, &b.features.sample, 1, NULL, &times, &error),
                     FM_ERR_LIMIT);
    assert_string_equal(error.message, "found atom 1 in slot 1, expected at most 0");
    close_bench(&b);
}

static void test_bad_weights_are_named(void **state) {
    (void)state;
    bench b;
    fm_cofold_times times;
    fm_error error = {.message = ""};
    open_bench(&b);
    create(&b);
    const fm_params *params = fm_cofold_get_params(b.cofold);
    float *master = params->master; /* on the CPU */
    for (int64_t i = 0; i < params->n_element; i++)
        master[i] = NAN;
    assert_int_equal(fm_cofold_run(b.cofold, &b.features.sample, 1, NULL, &times, &error),
                     FM_ERR_DATA);
    assert_non_null(strstr(error.message, "is not finite"));
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_structure_depends_on_its_number),
        cmocka_unit_test(test_seed_decides),
        cmocka_unit_test(test_steps_have_draws_of_their_own),
        cmocka_unit_test(test_slabs_and_padding_round),
        cmocka_unit_test(test_memory_is_planned),
        cmocka_unit_test(test_samples_are_checked),
        cmocka_unit_test(test_bad_weights_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
