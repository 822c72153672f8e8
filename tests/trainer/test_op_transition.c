/* test_op_transition.c: the transition sublayer: gradients, recompute, in place. */
#include "tests/trainer/op_check.h"

#include "trainer/ops/transition.h"

typedef struct setup {
    fm_transition_weights weights;
    bool residual;
    fm_keep keep;
} setup;

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    const setup *s = context;
    return fm_op_transition(tape, "transition", input[0], &s->weights, s->residual, s->keep);
}

static void begin(op_bench *bench, setup *s, int64_t n0, int64_t n1, int64_t c, int64_t hidden) {
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){n0, n1, c}, true);
    s->weights.hidden = hidden;
    s->weights.norm = op_block(bench, 2, c);
    s->weights.w1 = op_block(bench, hidden, c);
    s->weights.b1 = op_block(bench, hidden, 0);
    s->weights.w2 = op_block(bench, c, hidden);
    s->weights.b2 = op_block(bench, c, 0);
    op_finish(bench, build, s);
}

static void gradients_match_differences(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {
        {3, 5, 8, 32}, {1, 1, 8, 16}, {7, 1, 5, 9}, {2, 3, 32, 128}};
    for (int i = 0; i < 4; i++) {
        for (int residual = 0; residual < 2; residual++) {
            setup s = {.residual = residual};
            op_bench bench;
            begin(&bench, &s, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3]);
            op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

static void recomputing_the_hidden_changes_no_bit(void **state) {
    (void)state;
    setup keep = {.residual = true}, drop = {.residual = true, .keep = FM_RECOMPUTE};
    op_bench a, b;
    begin(&a, &keep, 3, 5, 8, 32);
    begin(&b, &drop, 3, 5, 8, 32);
    op_bench *bench[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        fm_tape_forward(&bench[i]->tape, NULL);
        fm_tape_backward(&bench[i]->tape, NULL);
        assert_int_equal(fm_tape_used_bytes(&bench[i]->tape), bench[i]->tape.size.arena_bytes);
    }
    assert_int_equal(a.tape.size.n_step + 1, b.tape.size.n_step);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    assert_memory_equal(fm_tape_gradient(&a.tape, a.input_tensor[0]),
                        fm_tape_gradient(&b.tape, b.input_tensor[0]), 3 * 5 * 8 * sizeof(double));
    op_end(&a);
    op_end(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(recomputing_the_hidden_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
