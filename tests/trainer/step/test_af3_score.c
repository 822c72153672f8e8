/* test_af3_score.c: the scores of a sampled structure: a moved copy of the truth, one atom that is
 * out of place, atoms that are not known, and complexes that cannot be scored. */
#include "trainer/step/af3/score.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { N = 12 };

typedef struct bench {
    float truth[3 * N], mask[N];
    double x[3 * N];
    fm_complex_labels labels;
    fm_arena scratch;
} bench;

/* A helix, and as its prediction the same turned by 90 degrees and moved. */
static void open_bench(bench *b) {
    *b = (bench){.labels = {.n_atom = N}};
    assert_int_equal(fm_arena_init(&b->scratch, 1 << 16, NULL), FM_OK);
    for (int i = 0; i < N; i++) {
        b->mask[i] = 1;
        b->truth[3 * i] = (float)(2.3 * cos(1.7 * i));
        b->truth[3 * i + 1] = (float)(2.3 * sin(1.7 * i));
        b->truth[3 * i + 2] = (float)(1.5 * i);
        b->x[3 * i] = (double)b->truth[3 * i + 1] + 7;
        b->x[3 * i + 1] = -(double)b->truth[3 * i] - 40;
        b->x[3 * i + 2] = (double)b->truth[3 * i + 2] + 3;
    }
    b->labels.coordinate = b->truth;
    b->labels.coordinate_mask = b->mask;
}

static fm_af3_score score(bench *b) {
    fm_af3_score s;
    assert_int_equal(fm_af3_score_structure(&b->labels, b->x, &b->scratch, &s, NULL), FM_OK);
    return s;
}

static void a_moved_copy_is_the_structure(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    fm_af3_score s = score(&b);
    assert_true(s.is_known && s.rmsd < 1e-5 && s.lddt == 1);
    assert_true(s.mirror_rmsd > 0.5);
    fm_arena_fini(&b.scratch);
}

/* An atom 100 Å away loses all of its pairs: 11 of the 66 that are below 15 Å, less those that are
 * longer. */
static void one_atom_out_of_place_costs_its_pairs(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    b.x[2] -= 100;
    int all = 0, lost = 0;
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < i; j++) {
            double square = 0;
            for (int axis = 0; axis < 3; axis++)
                square += pow((double)b.truth[3 * i + axis] - (double)b.truth[3 * j + axis], 2);
            all += sqrt(square) < 15;
            lost += sqrt(square) < 15 && j == 0;
        }
    }
    fm_af3_score s = score(&b);
    assert_true(lost > 5 && lost < all);
    assert_true(fabs(s.lddt - (double)(all - lost) / all) < 1e-12);
    assert_true(s.rmsd > 10 && s.rmsd < 100 / sqrt(N));
    b.mask[0] = 0; /* it is not known, so it does not count */
    s = score(&b);
    assert_true(s.is_known && s.rmsd < 1e-5 && s.lddt == 1);
    fm_arena_fini(&b.scratch);
}

/* The other hand of a structure keeps its distances, but no superposition brings it back. */
static void a_mirror_image_is_another_structure(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    for (int i = 0; i < N; i++)
        b.x[3 * i] = -b.x[3 * i];
    fm_af3_score s = score(&b);
    assert_true(s.lddt == 1 && s.rmsd > 0.5 && s.mirror_rmsd < 1e-5);
    fm_arena_fini(&b.scratch);
}

static void what_has_no_pairs_has_no_score(void **state) {
    (void)state;
    bench b;
    open_bench(&b);
    for (int known = 0; known < 2; known++) {
        for (int i = 0; i < N; i++)
            b.mask[i] = (float)(i < known);
        assert_false(score(&b).is_known);
    }
    fm_arena small;
    fm_af3_score s;
    assert_int_equal(fm_arena_init(&small, 64, NULL), FM_OK);
    while (fm_arena_alloc(&small, 16))
        ;
    assert_int_equal(fm_af3_score_structure(&b.labels, b.x, &small, &s, NULL), FM_ERR_LIMIT);
    fm_arena_fini(&small);
    fm_arena_fini(&b.scratch);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_moved_copy_is_the_structure),
                                       cmocka_unit_test(one_atom_out_of_place_costs_its_pairs),
                                       cmocka_unit_test(a_mirror_image_is_another_structure),
                                       cmocka_unit_test(what_has_no_pairs_has_no_score)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
