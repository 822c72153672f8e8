/* test_ops.c: attention, outer product mean and triangle multiplication: gradients compared with
 * central differences in f64, on odd, masked and size-one shapes and at the full-size head widths;
 * dropout; recomputation. */
#include "tests/trainer/common/op_check.h"

#include "trainer/ops/attention.h"
#include "trainer/ops/outer_product_mean.h"
#include "trainer/ops/triangle_multiplication.h"

typedef enum kind { ROW, COLUMN, STARTING, ENDING, OUTER, OUTGOING, INCOMING, N_KIND } kind;

typedef struct setup {
    kind kind;
    int64_t n_seq, n_res, c_m, c_z, n_head, c; /* c: head width or hidden width */
    bool residual, recompute;
    double dropout;
    fm_attention_weights attention;
    fm_outer_weights outer;
    fm_triangle_weights triangle;
} setup;

static bool is_pair_op(kind k) {
    return k != ROW && k != COLUMN && k != OUTER;
}

/* Inputs: 0 x, 1 the mask of x, 2 the pair array of row attention and outer product mean. */
static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    fm_tensor_ref out = FM_TENSOR_NONE;
    fm_tape_begin_segment(tape, s->recompute);
    if (s->kind == OUTER) {
        out = fm_op_outer_product_mean(tape, "outer", in[0], in[1],
                                       s->residual ? in[2] : FM_TENSOR_NONE, &s->outer);
    } else if (s->kind == OUTGOING || s->kind == INCOMING) {
        out = fm_op_triangle_multiplication(tape, "triangle", s->kind == INCOMING, in[0], in[1],
                                            &s->triangle, s->residual, s->dropout);
    } else {
        fm_axial axial = s->kind == ROW        ? FM_AXIAL_ROW
                         : s->kind == COLUMN   ? FM_AXIAL_COLUMN
                         : s->kind == STARTING ? FM_AXIAL_STARTING
                                               : FM_AXIAL_ENDING;
        out = fm_op_attention(tape, "attention", axial, in[0], in[1],
                              s->kind == ROW ? in[2] : FM_TENSOR_NONE, &s->attention, s->residual,
                              s->dropout);
    }
    fm_tape_end_segment(tape);
    return out;
}

static void add_attention(op_bench *bench, setup *s, int64_t c) {
    int64_t width = s->n_head * s->c;
    fm_attention_weights *w = &s->attention;
    w->n_head = s->n_head;
    w->c_head = s->c;
    w->norm = op_block(bench, 2, c);
    w->qkvg = op_block(bench, 4 * width, c);
    w->gate_bias = op_block_after_zeros(bench, 3 * width, width, 0);
    w->q_bias = FM_PARAM_NONE;
    w->out = op_block(bench, c, width);
    w->out_bias = op_block(bench, c, 0);
    w->bias = s->kind == COLUMN ? FM_PARAM_NONE : op_block(bench, s->n_head, s->c_z);
    w->norm_z = s->kind == ROW ? op_block(bench, 2, s->c_z) : FM_PARAM_NONE;
}

static void begin(op_bench *bench, setup *s) {
    op_begin(bench, FM_ELEMENT_F64);
    bool pair = is_pair_op(s->kind);
    int64_t n0 = pair ? s->n_res : s->n_seq, c = pair ? s->c_z : s->c_m;
    op_input(bench, 3, (int64_t[]){n0, s->n_res, c}, true);
    op_input(bench, 2, (int64_t[]){n0, s->n_res}, false);
    if (s->kind == ROW || (s->kind == OUTER && s->residual)) {
        op_input(bench, 3, (int64_t[]){s->n_res, s->n_res, s->c_z}, true);
    }
    if (s->kind == OUTER) {
        s->outer = (fm_outer_weights){.norm = op_block(bench, 2, c),
                                      .ab = op_block(bench, 2 * s->c, c),
                                      .ab_bias = op_block(bench, 2 * s->c, 0),
                                      .out = op_block(bench, s->c_z, s->c * s->c),
                                      .out_bias = op_block(bench, s->c_z, 0),
                                      .c = s->c,
                                      .c_z = s->c_z};
    } else if (s->kind == OUTGOING || s->kind == INCOMING) {
        s->triangle = (fm_triangle_weights){.norm_in = op_block(bench, 2, c),
                                            .projections = op_block(bench, 4 * s->c + c, c),
                                            .projections_bias = op_block(bench, 4 * s->c + c, 0),
                                            .norm_out = op_block(bench, 2, s->c),
                                            .out = op_block(bench, c, s->c),
                                            .out_bias = op_block(bench, c, 0),
                                            .c = s->c};
    } else {
        add_attention(bench, s, c);
    }
    op_finish(bench, build, s);
    op_fill_mask(bench, 1, 31);
}

static const int64_t SHAPES[][6] = {
    /* n_seq n_res c_m c_z n_head c */
    {3, 5, 8, 6, 2, 4},  {1, 1, 4, 4, 1, 4}, {5, 3, 7, 5, 3, 3}, {2, 4, 16, 16, 1, 32},
    {2, 3, 5, 6, 2, 16}, {3, 2, 6, 5, 3, 8}, {1, 3, 4, 3, 2, 5}, /* one row, one column */
    {3, 1, 3, 4, 2, 3},
};
enum { N_SHAPE = sizeof SHAPES / sizeof SHAPES[0] };

static setup setup_of(kind k, int shape) {
    const int64_t *s = SHAPES[shape];
    return (setup){.kind = k,
                   .n_seq = s[0],
                   .n_res = s[1],
                   .c_m = s[2],
                   .c_z = s[3],
                   .n_head = s[4],
                   .c = s[5]};
}

static void gradients_match_differences(void **state) {
    (void)state;
    for (int k = 0; k < N_KIND; k++) {
        for (int shape = 0; shape < N_SHAPE; shape++) {
            for (int residual = 0; residual < 2; residual++) {
                setup s = setup_of((kind)k, shape);
                s.residual = residual;
                s.dropout = residual && k != COLUMN && k != OUTER ? 0.25 : 0;
                op_bench bench;
                begin(&bench, &s);
                op_check_gradients(&bench);
                op_end(&bench);
            }
        }
    }
}

static void run(op_bench *bench) {
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
    assert_int_equal(fm_tape_used_bytes(&bench->tape), bench->tape.size.arena_bytes);
}

static void assert_same(const op_bench *a, const op_bench *b) {
    assert_memory_equal(a->params.gradient, b->params.gradient,
                        (size_t)a->params.n_element * sizeof(double));
    for (int i = 0; i < a->n_input; i++) {
        if (a->differentiable[i]) {
            assert_memory_equal(fm_tape_gradient(&a->tape, a->input_tensor[i]),
                                fm_tape_gradient(&b->tape, b->input_tensor[i]),
                                (size_t)op_input_count(a, i) * sizeof(double));
        }
    }
}

static void recomputing_changes_no_bit(void **state) {
    (void)state;
    for (int k = 0; k < N_KIND; k++) {
        setup keep = setup_of((kind)k, 0), drop = keep;
        keep.residual = drop.residual = true;
        keep.dropout = drop.dropout = k != COLUMN && k != OUTER ? 0.25 : 0;
        drop.recompute = true;
        op_bench a, b;
        begin(&a, &keep);
        begin(&b, &drop);
        run(&a);
        run(&b);
        assert_same(&a, &b);
        op_end(&a);
        op_end(&b);
    }
}

static void the_same_seed_gives_the_same_bits(void **state) {
    (void)state;
    setup s = setup_of(ROW, 0), t = s;
    s.residual = t.residual = true;
    s.dropout = t.dropout = 0.15;
    op_bench a, b;
    begin(&a, &s);
    begin(&b, &t);
    run(&a);
    run(&b);
    assert_same(&a, &b);
    b.tape.seed++;
    memcpy(fm_state_data(&b.state, b.output_gradient), fm_state_data(&a.state, a.output_gradient),
           sizeof(double));
    run(&b);
    assert_true(memcmp(a.params.gradient, b.params.gradient,
                       (size_t)a.params.n_element * sizeof(double)) != 0);
    op_end(&a);
    op_end(&b);
}

/* Values at masked keys must not reach unmasked positions. */
static void masked_positions_do_not_leak(void **state) {
    (void)state;
    for (int k = 0; k < N_KIND; k++) {
        setup s = setup_of((kind)k, 0);
        op_bench bench;
        begin(&bench, &s);
        double *mask = op_input_data(&bench, 1), *x = op_input_data(&bench, 0);
        int64_t n0 = is_pair_op(s.kind) ? s.n_res : s.n_seq, c = is_pair_op(s.kind) ? s.c_z : s.c_m;
        for (int64_t i = 0; i < n0 * s.n_res; i++)
            mask[i] = i / s.n_res != n0 - 1 && i % s.n_res != s.n_res - 1;
        int64_t count = fm_tensor_local_count(fm_tape_tensor(&bench.tape, bench.output_tensor));
        double *first = malloc((size_t)count * sizeof(double));
        fm_tape_forward(&bench.tape, NULL);
        memcpy(first, fm_tape_data(&bench.tape, bench.output_tensor),
               (size_t)count * sizeof(double));
        for (int64_t i = 0; i < n0 * s.n_res; i++) {
            for (int64_t j = 0; j < c && mask[i] == 0; j++)
                x[i * c + j] = -3 * x[i * c + j];
        }
        fm_tape_forward(&bench.tape, NULL);
        const double *second = fm_tape_data(&bench.tape, bench.output_tensor);
        int64_t out0 = s.kind == OUTER ? s.n_res : n0, out_c = count / (out0 * s.n_res);
        for (int64_t i = 0; i < count; i++) {
            int64_t row = i / out_c;
            bool inside = row / s.n_res != out0 - 1 && row % s.n_res != s.n_res - 1;
            assert_true(!inside || first[i] == second[i]);
        }
        free(first);
        op_end(&bench);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(recomputing_changes_no_bit),
        cmocka_unit_test(the_same_seed_gives_the_same_bits),
        cmocka_unit_test(masked_positions_do_not_leak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
