/* test_tape_where.c: the tape names the op and its module while it runs it, forward and
 * backward. */
#include "tests/trainer/common/op_check.h"

#include "trainer/backend/where.h"
#include "trainer/ops/transition.h"

enum { ROWS = 3, C = 4, HIDDEN = 8 };

/* The op that is wrapped, and the calls of the wrapper. */
static const fm_op *inner;
static int n_forward, n_backward;

static void expect_named(const fm_node *node) {
    fm_backend_where here = fm_backend_get_where();
    assert_string_equal(here.op, "watched");
    assert_string_equal(here.module, node->name);
}

static void forward(fm_run *run, const fm_node *node) {
    expect_named(node);
    n_forward++;
    inner->forward(run, node);
}

static void backward(fm_run *run, const fm_node *node) {
    expect_named(node);
    n_backward++;
    inner->backward(run, node);
}

static const fm_op watched = {.name = "watched", .forward = forward, .backward = backward};

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    fm_tensor_ref y = fm_op_transition(tape, "here", input[0], context, true, FM_KEEP);
    inner = tape->node[tape->n_node - 1].op;
    tape->node[tape->n_node - 1].op = &watched;
    return y;
}

static void ops_are_named_while_they_run(void **state) {
    (void)state;
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 2, (int64_t[]){ROWS, C}, true);
    fm_transition_weights weights = {.hidden = HIDDEN};
    weights.norm = op_block(&bench, 2, C);
    weights.w1 = op_block(&bench, HIDDEN, C);
    weights.b1 = op_block(&bench, HIDDEN, 0);
    weights.w2 = op_block(&bench, C, HIDDEN);
    weights.b2 = op_block(&bench, C, 0);
    op_finish(&bench, build, &weights);
    n_forward = n_backward = 0;
    fm_tape_forward(&bench.tape, NULL);
    assert_null(fm_backend_get_where().op);
    fm_tape_backward(&bench.tape, NULL);
    assert_null(fm_backend_get_where().op);
    assert_null(fm_backend_get_where().module);
    assert_int_equal(n_forward, 1);
    assert_int_equal(n_backward, 1);
    op_end(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(ops_are_named_while_they_run)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
