/* test_sample_shares.c: tests how often the datasets of a snapshot with shares are drawn, and the
 * chains within them (docs/reference/sampling.md, section 4). The draws are the same in every run,
 * so these tests cannot fail by chance. */
#include "featurizer/sample/plan.h"
#include "proto/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_DRAW = 1000000, N_CHAIN = 60, N_DATASET = 2, SEED = 20260720 };

/* Three chains of dataset 0 between any two of dataset 1, so that the chains of a dataset are not
 * next to each other and the larger dataset has the smaller share. */
typedef struct mixture {
    uint32_t weights[N_CHAIN];
    uint8_t of_chain[N_CHAIN];
    uint32_t share[N_DATASET];
    uint32_t drawn[N_CHAIN];
} mixture;

static fm_plan plan_of(const char *name) {
    fm_plan plan;
    assert_int_equal(fm_plan_find(name, &plan, NULL), FM_OK);
    return plan;
}

static void draw(mixture *m) {
    const fm_chooser_shares shares = {N_DATASET, m->share, m->of_chain};
    fm_plan plan = plan_of("af2-initial");
    fm_chooser *chooser;
    assert_int_equal(fm_chooser_create(&plan, N_CHAIN, m->weights, &shares, &chooser, NULL), FM_OK);
    for (uint64_t i = 0; i < N_DRAW; i++)
        m->drawn[fm_chooser_chain(chooser, SEED, i)]++;
    fm_chooser_destroy(chooser);
}

/* The value that chi-square with so many degrees of freedom exceeds once in a thousand times
 * (Wilson and Hilferty's approximation). */
static double critical(uint32_t freedom) {
    const double z = 3.0902, part = 2.0 / (9.0 * freedom);
    return freedom * pow(1.0 - part + z * sqrt(part), 3.0);
}

static double add_square(double found, double expected) {
    return (found - expected) * (found - expected) / expected;
}

/* Chi-square of the datasets' counts against their shares. */
static double square_of_shares(const mixture *m, const double share[N_DATASET]) {
    double n[N_DATASET] = {0}, square = 0;
    for (uint32_t i = 0; i < N_CHAIN; i++)
        n[m->of_chain[i]] += m->drawn[i];
    for (uint32_t k = 0; k < N_DATASET; k++)
        square += add_square(n[k], share[k] * N_DRAW);
    return square;
}

/* Chi-square of the chains of one dataset against their weights; *ret_freedom = its degrees of
 * freedom. */
static double square_of_weights(const mixture *m, uint32_t dataset, uint32_t *ret_freedom) {
    double n = 0, weight = 0, square = 0;
    uint32_t n_chain = 0;
    for (uint32_t i = 0; i < N_CHAIN; i++) {
        if (m->of_chain[i] != dataset) continue;
        n += m->drawn[i];
        weight += m->weights[i];
        n_chain += m->weights[i] > 0;
    }
    for (uint32_t i = 0; i < N_CHAIN; i++) {
        if (m->of_chain[i] != dataset) continue;
        if (m->weights[i] == 0) {
            assert_int_equal(m->drawn[i], 0);
        } else {
            square += add_square(m->drawn[i], n * m->weights[i] / weight);
        }
    }
    *ret_freedom = n_chain - 1;
    return square;
}

/* AlphaFold2's mixture: a quarter from the dataset with three quarters of the chains. */
static void a_million_draws_follow_shares_and_weights(void **state) {
    (void)state;
    static mixture m;
    for (uint32_t i = 0; i < N_CHAIN; i++) {
        m.of_chain[i] = i % 4 == 3;
        m.weights[i] = i % 15 == 7 ? 0 : 256 + i * i % 257;
    }
    m.share[0] = 250000000;
    m.share[1] = 750000000;
    draw(&m);
    static const double shares[] = {0.25, 0.75}, others[] = {0.252, 0.748};
    assert_true(square_of_shares(&m, shares) < critical(1));
    assert_true(square_of_shares(&m, others) > critical(1)); /* the test can tell them apart */
    for (uint32_t k = 0; k < N_DATASET; k++) {
        uint32_t freedom;
        double square = square_of_weights(&m, k, &freedom);
        assert_true(freedom > 10 && square < critical(freedom));
    }
    uint32_t freedom;
    m.weights[3] += m.weights[3] / 20; /* the test would see a weight that is off by a twentieth */
    assert_true(square_of_weights(&m, 1, &freedom) > critical(freedom));
}

/* With one dataset the chains are those of the snapshot without shares. */
static void one_share_changes_no_draw(void **state) {
    (void)state;
    static const uint32_t weights[] = {3, 0, 5, 1, 9}, share[] = {1000000000};
    static const uint8_t of_chain[5] = {0};
    const fm_chooser_shares shares = {1, share, of_chain};
    fm_plan plan = plan_of("af2-initial");
    fm_chooser *with, *without;
    assert_int_equal(fm_chooser_create(&plan, 5, weights, &shares, &with, NULL), FM_OK);
    assert_int_equal(fm_chooser_create(&plan, 5, weights, NULL, &without, NULL), FM_OK);
    for (uint64_t i = 0; i < 2000; i++)
        assert_int_equal(fm_chooser_chain(with, SEED, i), fm_chooser_chain(without, SEED, i));
    fm_chooser_destroy(with);
    fm_chooser_destroy(without);
}

/* Without replacement every chain comes once in a pass, whatever the shares. */
static void shuffled_passes_ignore_shares(void **state) {
    (void)state;
    static const uint32_t weights[] = {3, 0, 5, 1, 9}, share[] = {1, 3};
    static const uint8_t of_chain[] = {0, 1, 0, 1, 0};
    const fm_chooser_shares shares = {2, share, of_chain};
    fm_plan plan = plan_of("tiny");
    fm_chooser *with, *without;
    assert_int_equal(fm_chooser_create(&plan, 5, weights, &shares, &with, NULL), FM_OK);
    assert_int_equal(fm_chooser_create(&plan, 5, weights, NULL, &without, NULL), FM_OK);
    for (uint64_t i = 0; i < 50; i++)
        assert_int_equal(fm_chooser_chain(with, SEED, i), fm_chooser_chain(without, SEED, i));
    fm_chooser_destroy(with);
    fm_chooser_destroy(without);
}

static void a_dataset_without_weight_is_refused(void **state) {
    (void)state;
    static const uint32_t weights[] = {3, 0, 5}, share[] = {1, 3};
    static const uint8_t of_chain[] = {0, 1, 0}, none_of_first[] = {1, 1, 1};
    fm_chooser_shares shares = {2, share, of_chain};
    fm_plan plan = plan_of("af2-initial");
    fm_chooser *chooser;
    fm_error error;
    assert_int_equal(fm_chooser_create(&plan, 3, weights, &shares, &chooser, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "no chain of dataset 2 of the snapshot's 2 has a weight");
    shares.of_chain = none_of_first;
    assert_int_equal(fm_chooser_create(&plan, 3, weights, &shares, &chooser, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "no chain of dataset 1 of the snapshot's 2 has a weight");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_draws_follow_shares_and_weights),
        cmocka_unit_test(one_share_changes_no_draw),
        cmocka_unit_test(shuffled_passes_ignore_shares),
        cmocka_unit_test(a_dataset_without_weight_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
