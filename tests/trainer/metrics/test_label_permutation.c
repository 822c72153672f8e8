/* test_label_permutation.c: tests that equivalent chains and atoms get the labels that fit the
 * prediction. */
#include "trainer/metrics/label_permutation.h"

#include "proto/base/rng.h"
#include "trainer/backend/normal.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* Five chains: A A A of six tokens with two atoms each, B with one token of four atoms, and an
 * ion C of one atom. */
enum { N_CHAIN = 5, LONG = 6, TOKENS = 3 * LONG + 2, ATOMS = 3 * LONG * 2 + 5 };

typedef struct model {
    int64_t asym[TOKENS], entity[TOKENS], number[TOKENS], first[TOKENS + 1], centre[TOKENS];
    float x[3 * ATOMS];
    fm_labelled_complex complex;
} model;

static float random_coordinate(uint64_t i) {
    fm_philox_counter counter = {{(uint32_t)i, 0, 0, 0}};
    return (float)(20 * fm_uniform_two_sided(fm_philox(9, counter).word[0]));
}

static void fill(model *m) {
    int64_t token = 0, atom = 0;
    for (int64_t c = 0; c < N_CHAIN; c++) {
        int64_t n = c < 3 ? LONG : 1, per_token = c < 3 ? 2 : c == 3 ? 4 : 1;
        for (int64_t i = 0; i < n; i++, token++) {
            m->asym[token] = c;
            m->entity[token] = c < 3 ? 0 : c;
            m->number[token] = i;
            m->first[token] = m->centre[token] = atom;
            atom += per_token;
        }
    }
    m->first[TOKENS] = atom;
    assert_int_equal(token, TOKENS);
    assert_int_equal(atom, ATOMS);
    for (int i = 0; i < 3 * ATOMS; i++)
        m->x[i] = random_coordinate((uint64_t)i);
    m->complex = (fm_labelled_complex){TOKENS,    ATOMS,    m->asym,   m->entity,
                                       m->number, m->first, m->centre, m->x};
}

/* Turns by 90 degrees about z and moves. */
static void move(model *m) {
    for (int i = 0; i < ATOMS; i++) {
        float x = m->x[3 * i], y = m->x[3 * i + 1];
        m->x[3 * i] = -y + 3;
        m->x[3 * i + 1] = x - 7;
        m->x[3 * i + 2] += 11;
    }
}

static void copy_chain(const model *from, int64_t chain, model *to, int64_t as) {
    int64_t atoms = 2 * LONG;
    memcpy(to->x + 3 * as * atoms, from->x + 3 * chain * atoms,
           (size_t)(3 * atoms) * sizeof(float));
}

static void permute(const model *predicted, const model *truth, const float *resolved,
                    const fm_atom_orders *orders, int64_t n_orders, int64_t *label) {
    fm_arena arena;
    fm_error error = {0};
    assert_int_equal(fm_arena_init(&arena, (size_t)1 << 20, NULL), FM_OK);
    assert_int_equal(fm_permute_labels(&predicted->complex, &truth->complex, resolved, orders,
                                       n_orders, label, &arena, &error),
                     FM_OK);
    fm_arena_fini(&arena);
}

static void all_resolved(float *resolved) {
    for (int i = 0; i < ATOMS; i++)
        resolved[i] = 1;
}

static void a_prediction_in_the_given_order_keeps_it(void **state) {
    (void)state;
    model truth, predicted;
    float resolved[ATOMS];
    int64_t label[ATOMS];
    fill(&truth), fill(&predicted);
    move(&predicted);
    all_resolved(resolved);
    permute(&predicted, &truth, resolved, NULL, 0, label);
    for (int i = 0; i < ATOMS; i++)
        assert_int_equal(label[i], i);
}

/* The prediction has the structures of chains 1, 2, 0 under the names 0, 1, 2. */
static void exchanged_chains_are_found(void **state) {
    (void)state;
    static const int64_t source[3] = {1, 2, 0};
    model truth, predicted;
    float resolved[ATOMS];
    int64_t label[ATOMS];
    fill(&truth), fill(&predicted);
    for (int64_t c = 0; c < 3; c++)
        copy_chain(&truth, source[c], &predicted, c);
    move(&predicted);
    all_resolved(resolved);
    resolved[3] = resolved[20] = 0;
    permute(&predicted, &truth, resolved, NULL, 0, label);
    for (int64_t i = 0; i < ATOMS; i++) {
        int64_t c = i / (2 * LONG);
        assert_int_equal(label[i], c < 3 ? source[c] * 2 * LONG + i % (2 * LONG) : i);
    }
}

/* A crop of two of the three chains, with tokens 2 to 5 of the first and 1 to 4 of the second. */
static void a_crop_is_matched_by_the_numbers_of_its_tokens(void **state) {
    (void)state;
    enum { PART = 4 };
    static const int64_t source[2] = {2, 0}, from[2] = {2, 1};
    model truth, predicted;
    float resolved[ATOMS];
    int64_t label[ATOMS], at = 0;
    fill(&truth), fill(&predicted);
    all_resolved(resolved);
    for (int64_t c = 0; c < 2; c++) {
        for (int64_t i = 0; i < PART; i++, at++) {
            predicted.asym[at] = c;
            predicted.entity[at] = 0;
            predicted.number[at] = from[c] + i;
            predicted.first[at] = predicted.centre[at] = 2 * at;
            memcpy(predicted.x + 6 * at, truth.x + 3 * ((source[c] * LONG + from[c] + i) * 2),
                   6 * sizeof(float));
        }
    }
    predicted.first[at] = 2 * at;
    predicted.complex.n_token = at;
    predicted.complex.n_atom = 2 * at;
    permute(&predicted, &truth, resolved, NULL, 0, label);
    for (int64_t i = 0; i < 2 * at; i++) {
        int64_t c = i / (2 * PART), k = i % (2 * PART);
        assert_int_equal(label[i], (source[c] * LONG + from[c]) * 2 + k);
    }
}

/* Two of the four atoms of chain 3 are predicted the other way round; the other group is not. */
static void atoms_take_the_order_that_fits(void **state) {
    (void)state;
    static const int32_t swap_last[8] = {0, 1, 2, 3, 0, 1, 3, 2}, swap[4] = {0, 1, 1, 0};
    int64_t first = 3 * LONG * 2;
    const fm_atom_orders orders[2] = {{first, 4, 2, swap_last}, {0, 2, 2, swap}};
    model truth, predicted;
    float resolved[ATOMS];
    int64_t label[ATOMS];
    fill(&truth), fill(&predicted);
    for (int axis = 0; axis < 3; axis++) {
        predicted.x[3 * (first + 2) + axis] = truth.x[3 * (first + 3) + axis];
        predicted.x[3 * (first + 3) + axis] = truth.x[3 * (first + 2) + axis];
    }
    move(&predicted);
    all_resolved(resolved);
    permute(&predicted, &truth, resolved, orders, 2, label);
    for (int64_t i = 0; i < ATOMS; i++) {
        int64_t expected = i == first + 2 ? first + 3 : i == first + 3 ? first + 2 : i;
        assert_int_equal(label[i], expected);
    }
}

/* Without three resolved atoms to superpose, every chain keeps its own labels. */
static void nothing_to_superpose_keeps_the_names(void **state) {
    (void)state;
    model truth, predicted;
    float resolved[ATOMS] = {0};
    int64_t label[ATOMS];
    fill(&truth), fill(&predicted);
    copy_chain(&truth, 1, &predicted, 0);
    resolved[0] = resolved[2] = 1;
    permute(&predicted, &truth, resolved, NULL, 0, label);
    for (int i = 0; i < ATOMS; i++)
        assert_int_equal(label[i], i);
}

/* A small arena is an error, and leaves it as it was. */
static void too_little_memory_is_an_error(void **state) {
    (void)state;
    model truth, predicted;
    float resolved[ATOMS];
    int64_t label[ATOMS];
    fm_arena arena;
    fm_error error = {0};
    fill(&truth), fill(&predicted);
    all_resolved(resolved);
    assert_int_equal(fm_arena_init(&arena, 256, NULL), FM_OK);
    size_t mark = fm_arena_mark(&arena);
    assert_int_equal(fm_permute_labels(&predicted.complex, &truth.complex, resolved, NULL, 0, label,
                                       &arena, &error),
                     FM_ERR_LIMIT);
    assert_int_equal(fm_arena_mark(&arena), mark);
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_prediction_in_the_given_order_keeps_it),
        cmocka_unit_test(exchanged_chains_are_found),
        cmocka_unit_test(a_crop_is_matched_by_the_numbers_of_its_tokens),
        cmocka_unit_test(atoms_take_the_order_that_fits),
        cmocka_unit_test(nothing_to_superpose_keeps_the_names),
        cmocka_unit_test(too_little_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
