/* test_diffusion_losses.c: the losses on denoised structures against central differences, moves of
 * structures, and the draws of rotations and noise. */
#include "tests/trainer/common/op_check.h"

#include "trainer/backend/normal.h"
#include "trainer/loss/diffusion_losses.h"

enum { S = 2, N = 7 };
enum { IN_X, IN_TRUTH, IN_MASK, IN_WEIGHT, IN_RADIUS, IN_SCALE };

static fm_atom_truth truth_of(const fm_tensor_ref *in) {
    return (fm_atom_truth){in[IN_TRUTH], in[IN_MASK], in[IN_WEIGHT], in[IN_RADIUS]};
}

/* The aligned truth is a constant in the gradient, so here it is an input like the truth. */
enum { IN_ALIGNED = IN_SCALE + 1 };

static fm_tensor_ref build_mse(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    fm_atom_truth truth = truth_of(in);
    return fm_op_mse_loss(tape, in[IN_X], in[IN_ALIGNED], &truth, in[IN_SCALE]);
}

static fm_tensor_ref build_lddt(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    fm_atom_truth truth = truth_of(in);
    return fm_op_smooth_lddt_loss(tape, in[IN_X], &truth);
}

static void begin(op_bench *bench, op_builder build) {
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){S, N, 3}, true);
    op_input(bench, 2, (int64_t[]){N, 3}, false);
    op_input(bench, 1, (int64_t[]){N}, false);
    op_input(bench, 1, (int64_t[]){N}, false);
    op_input(bench, 1, (int64_t[]){N}, false);
    op_input(bench, 1, (int64_t[]){S}, false);
    op_input(bench, 3, (int64_t[]){S, N, 3}, false);
    op_finish(bench, build, NULL);
    op_fill_mask(bench, IN_MASK, 7);
    for (int64_t l = 0; l < N; l++)
        op_set(bench, op_input_data(bench, IN_RADIUS), l, l % 2 ? 2.0 : 0.9);
}

static void losses_match_differences(void **state) {
    (void)state;
    const op_builder build[] = {build_mse, build_lddt};
    for (int i = 0; i < 2; i++) {
        op_bench bench;
        begin(&bench, build[i]);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

static fm_tensor_ref build_bond(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    (void)context;
    fm_bonds bonds = {in[1], in[2], in[3]};
    return fm_op_bond_loss(tape, in[0], &bonds, in[4]);
}

/* With `known` bonds of four; the others have weight 0 or no atoms. */
static void begin_bonds(op_bench *bench, int known) {
    static const int32_t bond[8] = {0, 3, 2, 3, 5, 1, -1, -1};
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){S, N, 3}, true);
    op_input_of(bench, FM_ELEMENT_I32, 2, (int64_t[]){4, 2}, false);
    op_input(bench, 1, (int64_t[]){4}, false);
    op_input(bench, 1, (int64_t[]){4}, false);
    op_input(bench, 1, (int64_t[]){S}, false);
    op_finish(bench, build_bond, NULL);
    memcpy(op_input_data(bench, 1), bond, sizeof bond);
    for (int p = 0; p < 4; p++)
        op_set(bench, op_input_data(bench, 3), p, p < known);
}

static void bonds_match_differences(void **state) {
    (void)state;
    op_bench bench;
    begin_bonds(&bench, 3);
    op_check_gradients(&bench);
    op_end(&bench);
    begin_bonds(&bench, 0);
    fm_tape_forward(&bench.tape, NULL);
    assert_true(*(const double *)fm_tape_data(&bench.tape, bench.output_tensor) == 0);
    op_check_gradients(&bench);
    op_end(&bench);
}

/* -- moves */

static double determinant(const double *r) {
    return r[0] * (r[4] * r[8] - r[5] * r[7]) - r[1] * (r[3] * r[8] - r[5] * r[6]) +
           r[2] * (r[3] * r[7] - r[4] * r[6]);
}

static void expect_rotation(const double *r) {
    for (int a = 0; a < 3; a++) {
        for (int b = 0; b < 3; b++) {
            double dot = 0;
            for (int k = 0; k < 3; k++)
                dot += r[3 * a + k] * r[3 * b + k];
            assert_true(fabs(dot - (a == b)) < 1e-12);
        }
    }
    assert_true(fabs(determinant(r) - 1) < 1e-12);
}

/* Augmented copies of a structure align back onto it, and a mirror image gives a rotation too. */
static void alignment_undoes_an_augmentation(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    double x[3 * N], y[S * 3 * N], moved[S * 3 * N], mask[N], transform[S * 12];
    double rotation[S * 9], offset[S * 3];
    const fm_draw turn = {.seed = 5, .purpose = FM_PURPOSE_ROTATION};
    const fm_draw shift = {.seed = 5, .purpose = FM_PURPOSE_OFFSET};
    k->draw_rotations(NULL, S, &turn, rotation);
    k->draw_normal(NULL, S * 3, &shift, offset);
    for (int i = 0; i < 3 * N; i++)
        x[i] = op_uniform(4, i);
    for (int i = 0; i < N; i++)
        mask[i] = 1;
    k->augment(NULL, &(fm_augment){.n_sample = S,
                                   .n = N,
                                   .x = x,
                                   .mask = mask,
                                   .rotation = rotation,
                                   .offset = offset,
                                   .y = y});
    fm_rigid_align align = {.n_batch = S,
                            .n = N,
                            .x_stride = 3 * N,
                            .x = y,
                            .y = x,
                            .w = mask,
                            .moved = moved,
                            .transform = transform};
    k->rigid_align(NULL, &align);
    for (int s = 0; s < S; s++) {
        expect_rotation(rotation + 9 * s);
        expect_rotation(transform + 12 * s);
        for (int i = 0; i < 3 * N; i++)
            assert_true(fabs(moved[3 * N * s + i] - x[i]) < 1e-12);
    }
    for (int i = 0; i < S * 3 * N; i += 3)
        y[i] = -y[i];
    k->rigid_align(NULL, &align);
    expect_rotation(transform);
}

/* Unknown atoms are at 0 behind an augmentation, and do not move the centre. */
static void augmentation_leaves_unknown_atoms_at_zero(void **state) {
    (void)state;
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    const double x[9] = {1, 2, 3, 3, 2, 1, 100, 100, 100}, mask[3] = {1, 1, 0};
    const double rotation[9] = {1, 0, 0, 0, 1, 0, 0, 0, 1}, offset[3] = {0, 0, 5};
    const double expected[9] = {-1, 0, 6, 1, 0, 4, 0, 0, 0};
    double y[9];
    k->augment(NULL, &(fm_augment){.n_sample = 1,
                                   .n = 3,
                                   .x = x,
                                   .mask = mask,
                                   .rotation = rotation,
                                   .offset = offset,
                                   .y = y});
    for (int i = 0; i < 9; i++)
        assert_true(fabs(y[i] - expected[i]) < 1e-14);
}

/* Moments of 100,000 normal numbers, and of the first axis of 20,000 rotations, within five
 * deviations. A slice is the same numbers. */
static void draws_have_their_moments(void **state) {
    (void)state;
    enum { MANY = 100000, TURNS = 20000 };
    const fm_kernels *k = fm_kernels_cpu(FM_ELEMENT_F64);
    const fm_draw noise = {.seed = 11, .purpose = FM_PURPOSE_NOISE};
    double *y = calloc(TURNS * 9, sizeof *y), few[7], mean = 0, square = 0, fourth = 0;
    k->draw_normal(NULL, MANY, &noise, y);
    k->draw_normal(NULL, 7, &noise, few);
    assert_memory_equal(few, y, sizeof few);
    for (int i = 0; i < MANY; i++) {
        mean += y[i] / MANY;
        square += y[i] * y[i] / MANY;
        fourth += y[i] * y[i] * y[i] * y[i] / MANY;
    }
    assert_true(fabs(mean) < 5 / sqrt(MANY));
    assert_true(fabs(square - 1) < 5 * sqrt(2.0 / MANY));
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / MANY));
    k->draw_rotations(NULL, TURNS, &noise, y);
    double axis[3] = {0}, product = 0;
    for (int i = 0; i < TURNS; i++) {
        for (int c = 0; c < 3; c++)
            axis[c] += y[9 * i + 3 * c] / TURNS;
        product += y[9 * i] * y[9 * i] / TURNS;
    }
    for (int c = 0; c < 3; c++)
        assert_true(fabs(axis[c]) < 5 * sqrt(1.0 / 3 / TURNS));
    assert_true(fabs(product - 1.0 / 3) < 5 * sqrt(4.0 / 45 / TURNS));
    free(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match_differences),
        cmocka_unit_test(bonds_match_differences),
        cmocka_unit_test(alignment_undoes_an_augmentation),
        cmocka_unit_test(augmentation_leaves_unknown_atoms_at_zero),
        cmocka_unit_test(draws_have_their_moments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
