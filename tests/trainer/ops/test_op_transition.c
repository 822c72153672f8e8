/* test_op_transition.c: the transition sublayer: gradients, recompute, in place. */
#include "tests/trainer/common/op_check.h"

#include "trainer/ops/transition.h"

typedef struct setup {
    fm_transition_weights weights;
    bool residual;
    fm_keep keep;
    bool forgets; /* the table keeps no hidden layer */
} setup;

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    const setup *s = context;
    return fm_op_transition(tape, "transition", input[0], &s->weights, s->residual, s->keep);
}

static bool keeps_nothing(const fm_transition *args) {
    (void)args;
    return false;
}

/* The CPU's table, but it keeps no hidden layer, as a GPU's does in bf16. */
static const fm_kernels *forgetful_table(void) {
    static fm_kernels k;
    k = *fm_kernels_cpu(FM_ELEMENT_F64);
    k.transition_keeps = keeps_nothing;
    return &k;
}

static void begin(op_bench *bench, setup *s, int64_t n0, int64_t n1, int64_t c, int64_t hidden) {
    op_begin(bench, FM_ELEMENT_F64);
    if (s->forgets) bench->kernels = forgetful_table();
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
    for (int residual = 0; residual < 2; residual++) {
        setup keep = {.residual = residual}, drop = keep, forget = keep;
        drop.keep = FM_RECOMPUTE, forget.forgets = true;
        op_bench a, b, c, *bench[] = {&a, &b, &c};
        begin(&a, &keep, 3, 5, 8, 32);
        begin(&b, &drop, 3, 5, 8, 32);
        begin(&c, &forget, 3, 5, 8, 32);
        for (int i = 0; i < 3; i++) {
            fm_tape_forward(&bench[i]->tape, NULL);
            fm_tape_backward(&bench[i]->tape, NULL);
            assert_int_equal(fm_tape_used_bytes(&bench[i]->tape), bench[i]->tape.size.arena_bytes);
            assert_memory_equal(a.params.gradient, bench[i]->params.gradient,
                                (size_t)a.params.n_element * sizeof(double));
            assert_memory_equal(fm_tape_gradient(&a.tape, a.input_tensor[0]),
                                fm_tape_gradient(&bench[i]->tape, bench[i]->input_tensor[0]),
                                3 * 5 * 8 * sizeof(double));
        }
        assert_int_equal(a.tape.size.n_step + 1, b.tape.size.n_step);
        assert_int_equal(a.tape.size.n_step, c.tape.size.n_step);
        op_end(&a);
        op_end(&b);
        op_end(&c);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(recomputing_the_hidden_changes_no_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
