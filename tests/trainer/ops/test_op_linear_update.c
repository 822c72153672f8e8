/* test_op_linear_update.c: a sublayer's end and the next LayerNorm in one node with the linear
 * layer or the transition before it: gradients, and stacks that fuse them compared with plain ones,
 * bit for bit. */
#include "tests/trainer/common/op_check.h"

#include "trainer/model/model.h"
#include "trainer/ops/arithmetic.h"
#include "trainer/ops/transition.h"

/* -- the op */

typedef struct setup {
    fm_transition_weights first, second, third;
    fm_linear_update_weights linear;
    double rate;
    bool bare;      /* only the next sublayer reads the first sum */
    bool later;     /* two sublayers read the second sum, each through its own norm */
    bool recompute; /* all nodes in one segment */
} setup;

/* x -> y = x + dropout(linear(transition(x))), n; then the second transition of n alone, or added
 * to y, and after it the third one, or, with `later`, the first one again. */
static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    fm_transition_weights first = s->first, second = s->second, third = s->third;
    first.norm = second.norm = third.norm = FM_PARAM_NONE;
    fm_linear_update_weights linear = s->linear;
    linear.next = s->second.norm;
    fm_tape_begin_segment(tape, s->recompute);
    fm_tensor_ref last = fm_op_transition(tape, "first", in[0], &s->first, false, FM_KEEP);
    fm_normed y = fm_op_linear_update(tape, "sum", in[0], last, &linear, s->rate, FM_SHARED_AXIS1);
    if (s->bare) {
        last = fm_op_transition(tape, "second", y.n, &second, false, FM_KEEP);
    } else if (s->later) {
        y = fm_op_transition_update(tape, "second", y, &second, FM_KEEP, s->third.norm,
                                    s->first.norm);
        last = fm_op_transition(tape, "third", y.n, &third, false, FM_RECOMPUTE);
        y = fm_op_transition_update(tape, "first again", fm_normed_read(y), &first, FM_KEEP,
                                    FM_PARAM_NONE, FM_PARAM_NONE);
        last = fm_op_add(tape, "both", y.x, last);
    } else {
        y = fm_op_transition_update(tape, "second", y, &second, FM_KEEP, s->third.norm,
                                    FM_PARAM_NONE);
        y = fm_op_transition_update(tape, "third", y, &third, FM_RECOMPUTE, FM_PARAM_NONE,
                                    FM_PARAM_NONE);
        y = fm_op_transition_update(tape, "first again", y, &s->first, FM_KEEP, FM_PARAM_NONE,
                                    FM_PARAM_NONE);
        last = y.x;
    }
    fm_tape_end_segment(tape);
    return last;
}

static fm_transition_weights transition_of(op_bench *bench, int64_t c, int64_t hidden) {
    fm_transition_weights w = {.hidden = hidden};
    w.norm = op_block(bench, 2, c);
    w.w1 = op_block(bench, hidden, c);
    w.b1 = op_block(bench, hidden, 0);
    w.w2 = op_block(bench, c, hidden);
    w.b2 = op_block(bench, c, 0);
    return w;
}

static void begin(op_bench *bench, setup *s) {
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){3, 5, 8}, true);
    s->first = transition_of(bench, 8, 16);
    s->second = transition_of(bench, 8, 12);
    s->third = transition_of(bench, 8, 4);
    s->linear.w = op_block(bench, 8, 8);
    s->linear.bias = op_block(bench, 8, 0);
    op_finish(bench, build, s);
}

static void gradients_match_differences(void **state) {
    (void)state;
    for (int way = 0; way < 12; way++) {
        setup s = {.rate = way & 1 ? 0.25 : 0,
                   .bare = way < 8 && way & 2,
                   .later = way >= 8,
                   .recompute = way < 8 ? way & 4 : way & 2};
        op_bench bench;
        begin(&bench, &s);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

static void recomputing_changes_no_bit(void **state) {
    (void)state;
    setup keep = {.rate = 0.25}, again = {.rate = 0.25, .recompute = true};
    op_bench a, b;
    begin(&a, &keep);
    begin(&b, &again);
    op_bench *bench[] = {&a, &b};
    for (int i = 0; i < 2; i++) {
        fm_tape_forward(&bench[i]->tape, NULL);
        fm_tape_backward(&bench[i]->tape, NULL);
        assert_int_equal(fm_tape_used_bytes(&bench[i]->tape), bench[i]->tape.size.arena_bytes);
    }
    assert_true(a.tape.size.n_step < b.tape.size.n_step);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    op_end(&a);
    op_end(&b);
}

/* -- stacks */

enum { N_RES = 7, N_SEQ = 5, C_M = 12, C_Z = 8, N_BLOCK = 3 };

typedef struct stack {
    fm_model_config config;
    fm_evoformer_weights w[N_BLOCK];
    bool fuses;
    fm_tensor_ref z;
} stack;

static fm_model_config config_of(fm_block_order order, bool global_column) {
    return (fm_model_config){.n_res = N_RES,
                             .n_seq = N_SEQ,
                             .n_block = N_BLOCK,
                             .c_m = C_M,
                             .c_z = C_Z,
                             .n_head_msa = 2,
                             .c_head_msa = 4,
                             .n_head_pair = 2,
                             .c_head_pair = 4,
                             .c_outer = 3,
                             .c_triangle = 6,
                             .transition_factor = 2,
                             .dropout_msa = 0.15,
                             .dropout_pair = 0.25,
                             .global_column = global_column,
                             .order = order};
}

static fm_tensor_ref build_stack(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    stack *s = (stack *)context;
    const fm_model_config *config = &s->config;
    fm_representations x = {in[0], in[1]};
    fm_split_mask msa = fm_split_mask_of(tape, config, in[2]),
                  pair = fm_split_mask_of(tape, config, in[3]);
    fm_recorder recorder = fm_recorder_of(tape, config, &msa, &pair);
    recorder.fuses = s->fuses;
    x = fm_evoformer_stack(&recorder, s->w, 0, N_BLOCK, x);
    s->z = x.z;
    return x.m;
}

static void run_stack(op_bench *bench, stack *s) {
    op_begin(bench, FM_ELEMENT_F64);
    for (int i = 0; i < N_BLOCK; i++) {
        fm_scope scope = {&bench->params, &bench->arena, "", "", "", -1, 0};
        s->w[i] = fm_scope_evoformer(&scope, &s->config);
    }
    op_input(bench, 3, (int64_t[]){N_SEQ, N_RES, C_M}, true);
    op_input(bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
    op_input(bench, 2, (int64_t[]){N_SEQ, N_RES}, false);
    op_input(bench, 2, (int64_t[]){N_RES, N_RES}, false);
    bench->second_output = &s->z;
    op_finish(bench, build_stack, s);
    op_fill_mask(bench, 2, 5);
    op_fill_mask(bench, 3, 6);
    void *dz = fm_state_data(&bench->state, bench->second_gradient);
    for (int64_t k = 0; k < N_RES * N_RES * C_Z; k++)
        op_set(bench, dz, k, op_uniform(89, k));
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
    assert_int_equal(fm_tape_used_bytes(&bench->tape), bench->tape.size.arena_bytes);
}

static void assert_same(const op_bench *a, const void *x, const void *y, int64_t count) {
    double size = 0, difference = 0;
    for (int64_t k = 0; k < count; k++) {
        size = fmax(size, fabs(op_get(a, x, k)));
        difference = fmax(difference, fabs(op_get(a, x, k) - op_get(a, y, k)));
    }
    assert_true(size > 0 && difference <= 1e-12 * size);
}

static void stacks_are_the_plain_blocks(void **state) {
    (void)state;
    for (int way = 0; way < 12; way++) {
        op_bench bench[2];
        stack s[2];
        for (int i = 0; i < 2; i++) {
            s[i] = (stack){.fuses = i == 1,
                           .config = config_of((fm_block_order)(way % 3), way / 3 % 2)};
            s[i].config.recompute = way / 6 ? FM_RECOMPUTE_BLOCK : FM_RECOMPUTE_NONE;
            run_stack(&bench[i], &s[i]);
        }
        for (int i = 0; i < 2; i++) {
            int64_t count = i ? N_RES * N_RES * C_Z : N_SEQ * N_RES * C_M;
            fm_tensor_ref out[2] = {i ? s[0].z : bench[0].output_tensor,
                                    i ? s[1].z : bench[1].output_tensor};
            assert_memory_equal(fm_tape_data(&bench[0].tape, out[0]),
                                fm_tape_data(&bench[1].tape, out[1]),
                                (size_t)count * sizeof(double));
            assert_same(&bench[0], fm_tape_gradient(&bench[0].tape, bench[0].input_tensor[i]),
                        fm_tape_gradient(&bench[1].tape, bench[1].input_tensor[i]), count);
        }
        assert_same(&bench[0], bench[0].params.gradient, bench[1].params.gradient,
                    bench[0].params.n_element);
        op_end(&bench[0]);
        op_end(&bench[1]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(stacks_are_the_plain_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
