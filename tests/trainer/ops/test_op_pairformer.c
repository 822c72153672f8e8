/* test_op_pairformer.c: the sublayers of a Pairformer block: SwiGLU transition, attention with pair
 * bias of the single representation, triangle attention without biases. They are compared with the
 * algorithms written out, with central differences in f64, f32 with f64, and as one block. */
#include "tests/trainer/common/op_check.h"

#include "trainer/ops/attention.h"
#include "trainer/ops/attention_split.h"
#include "trainer/ops/linear_update.h"
#include "trainer/ops/swiglu_transition.h"

/* -- the algorithms written out */

static const double *param(const op_bench *bench, fm_param_ref ref) {
    return ref == FM_PARAM_NONE
               ? NULL
               : (const double *)bench->params.master + bench->params.block[ref].offset;
}

static double *numbers(int64_t n) {
    double *x = calloc((size_t)n, sizeof *x);
    assert_non_null(x);
    return x;
}

/* LayerNorm of rows of c; weights: gamma, beta. The caller frees the result. */
static double *normalised(const double *x, int64_t rows, int64_t c, const double *weights) {
    double *y = numbers(rows * c);
    for (int64_t r = 0; r < rows; r++) {
        double mean = 0, variance = 0;
        for (int64_t i = 0; i < c; i++)
            mean += x[r * c + i] / (double)c;
        for (int64_t i = 0; i < c; i++)
            variance += pow(x[r * c + i] - mean, 2) / (double)c;
        for (int64_t i = 0; i < c; i++) {
            y[r * c + i] =
                (x[r * c + i] - mean) / sqrt(variance + 1e-5) * weights[i] + weights[c + i];
        }
    }
    return y;
}

/* x W^T + bias (or none) over rows. The caller frees the result. */
static double *projected(const double *x, int64_t rows, int64_t c_in, int64_t c_out,
                         const double *w, const double *bias) {
    double *y = numbers(rows * c_out);
    for (int64_t at = 0; at < rows * c_out; at++) {
        int64_t r = at / c_out, o = at % c_out;
        y[at] = bias ? bias[o] : 0;
        for (int64_t i = 0; i < c_in; i++)
            y[at] += x[r * c_in + i] * w[o * c_in + i];
    }
    return y;
}

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}

static void assert_near(const double *found, const double *expected, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        assert_true(fabs(found[i] - expected[i]) < 1e-10 * (1 + fabs(expected[i])));
}

/* The largest distance, relative to its tensor, of any gradient or the output of two runs. */
static double distance_of(const op_bench *one, const void *a, const op_bench *two, const void *b,
                          int64_t n) {
    double difference = 0, size = 1e-300;
    for (int64_t i = 0; i < n; i++) {
        double x = op_get(one, a, i), y = op_get(two, b, i);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    return sqrt(difference / size);
}

static void run(op_bench *bench) {
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
}

static void assert_single_is_near(op_bench *one, op_bench *two) {
    run(one), run(two);
    int64_t n = fm_tensor_local_count(fm_tape_tensor(&two->tape, two->output_tensor));
    assert_true(distance_of(one, fm_tape_data(&one->tape, one->output_tensor), two,
                            fm_tape_data(&two->tape, two->output_tensor), n) < 2e-6);
    assert_true(distance_of(one, fm_tape_gradient(&one->tape, one->input_tensor[0]), two,
                            fm_tape_gradient(&two->tape, two->input_tensor[0]),
                            op_input_count(two, 0)) < 4e-6);
    assert_true(distance_of(one, one->params.gradient, two, two->params.gradient,
                            two->params.n_element) < 4e-6);
}

static void assert_same_gradients(const op_bench *a, const op_bench *b) {
    assert_memory_equal(a->params.gradient, b->params.gradient,
                        (size_t)a->params.n_element * sizeof(double));
    assert_memory_equal(fm_tape_gradient(&a->tape, a->input_tensor[0]),
                        fm_tape_gradient(&b->tape, b->input_tensor[0]),
                        (size_t)op_input_count(a, 0) * sizeof(double));
}

/* -- transition */

typedef struct transition {
    int64_t n0, n1, c;
    bool residual;
    fm_keep keep;
    fm_swiglu_transition_weights weights;
} transition;

static fm_tensor_ref build_transition(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const transition *t = context;
    return fm_op_swiglu_transition(tape, "transition", in[0], &t->weights, t->residual, t->keep);
}

static fm_swiglu_transition_weights transition_weights(op_bench *bench, int64_t c, int64_t hidden) {
    return (fm_swiglu_transition_weights){.norm = op_block(bench, 2, c),
                                          .w1 = op_block(bench, 2 * hidden, c),
                                          .w2 = op_block(bench, c, hidden),
                                          .hidden = hidden};
}

static void begin_transition(op_bench *bench, transition *t, fm_element element, int64_t hidden) {
    op_begin(bench, element);
    op_input(bench, 3, (int64_t[]){t->n0, t->n1, t->c}, true);
    t->weights = transition_weights(bench, t->c, hidden);
    op_finish(bench, build_transition, t);
}

/* AF3-11, line by line. */
static void transition_is_the_algorithm(op_bench *bench, const transition *t) {
    int64_t rows = t->n0 * t->n1, c = t->c, hidden = t->weights.hidden;
    const double *x = op_input_data(bench, 0), *w1 = param(bench, t->weights.w1);
    double *normed = normalised(x, rows, c, param(bench, t->weights.norm));
    double *a = projected(normed, rows, c, hidden, w1, NULL);
    double *b = projected(normed, rows, c, hidden, w1 + hidden * c, NULL);
    for (int64_t i = 0; i < rows * hidden; i++)
        a[i] *= sigmoid(a[i]) * b[i];
    double *y = projected(a, rows, hidden, c, param(bench, t->weights.w2), NULL);
    for (int64_t i = 0; t->residual && i < rows * c; i++)
        y[i] += x[i];
    fm_tape_forward(&bench->tape, NULL);
    assert_near(fm_tape_data(&bench->tape, bench->output_tensor), y, rows * c);
    free(normed), free(a), free(b), free(y);
}

static void transitions(void **state) {
    (void)state;
    static const int64_t shapes[][4] = {{3, 5, 8, 32}, {1, 7, 6, 24}, {1, 1, 5, 3}, {2, 2, 9, 36}};
    for (int i = 0; i < 4; i++) {
        for (int residual = 0; residual < 2; residual++) {
            transition t = {
                .n0 = shapes[i][0], .n1 = shapes[i][1], .c = shapes[i][2], .residual = residual};
            op_bench bench, single;
            begin_transition(&bench, &t, FM_ELEMENT_F64, shapes[i][3]);
            transition_is_the_algorithm(&bench, &t);
            begin_transition(&single, &t, FM_ELEMENT_F32, shapes[i][3]);
            assert_single_is_near(&single, &bench);
            op_end(&single);
            op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

static void recomputing_the_projection_changes_no_bit(void **state) {
    (void)state;
    transition keep = {.n0 = 3, .n1 = 5, .c = 8, .residual = true}, drop = keep;
    drop.keep = FM_RECOMPUTE;
    op_bench a, b;
    begin_transition(&a, &keep, FM_ELEMENT_F64, 32);
    begin_transition(&b, &drop, FM_ELEMENT_F64, 32);
    run(&a), run(&b);
    assert_int_equal(fm_tape_used_bytes(&a.tape), a.tape.size.arena_bytes);
    assert_int_equal(fm_tape_used_bytes(&b.tape), b.tape.size.arena_bytes);
    assert_int_equal(a.tape.size.n_step + 1, b.tape.size.n_step);
    assert_same_gradients(&a, &b);
    op_end(&a);
    op_end(&b);
}

/* -- attention */

typedef struct attention {
    fm_axial axial;
    int64_t n0, n1, c, c_z, n_head, c_head;
    bool q_bias, gate_bias, out_bias;
    bool split; /* in three nodes */
    bool recompute;
    bool projects_again; /* backward computes q k v g again and nothing else */
    double dropout;
    fm_attention_weights weights;
} attention;

static fm_tensor_ref build_attention(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const attention *s = context;
    const fm_attention_weights *w = &s->weights;
    fm_tensor_ref x = in[0], mask = in[1], z = s->axial == FM_AXIAL_ROW ? in[2] : FM_TENSOR_NONE;
    if (s->split) {
        fm_tensor_ref from = s->axial == FM_AXIAL_ROW ? z : x;
        fm_shared_axis shared = s->axial == FM_AXIAL_ENDING ? FM_SHARED_AXIS1 : FM_SHARED_AXIS0;
        bool at_once = s->axial == FM_AXIAL_STARTING; /* an ending node's bias is made before */
        fm_tensor_ref bias = FM_TENSOR_NONE;
        if (!at_once) bias = fm_op_attention_bias(tape, "bias", s->axial, from, w);
        fm_tensor_ref qkvg = fm_op_attention_project(tape, "project", x, w, at_once ? &bias : NULL);
        fm_tensor_ref o = fm_op_attention_core(tape, "core", s->axial, x, qkvg, mask, bias, w);
        const fm_linear_update_weights end = {
            .w = w->out, .bias = w->out_bias, .next = FM_PARAM_NONE};
        return fm_op_linear_update(tape, "update", x, o, &end, s->dropout, shared).x;
    }
    fm_tape_begin_segment(tape, s->recompute);
    x = fm_op_attention(tape, "attention", s->axial, x, mask, z, w, true, s->dropout);
    fm_tape_end_segment(tape);
    return x;
}

static fm_attention_weights attention_weights(op_bench *bench, const attention *s) {
    int64_t width = s->n_head * s->c_head, c_z = s->axial == FM_AXIAL_ROW ? s->c_z : s->c;
    fm_attention_weights w = {.norm = op_block(bench, 2, s->c),
                              .qkvg = op_block(bench, 4 * width, s->c),
                              .gate_bias = FM_PARAM_NONE,
                              .q_bias = FM_PARAM_NONE,
                              .out = op_block(bench, s->c, width),
                              .out_bias = FM_PARAM_NONE,
                              .bias = op_block(bench, s->n_head, c_z),
                              .norm_z = FM_PARAM_NONE,
                              .n_head = s->n_head,
                              .c_head = s->c_head,
                              .keep_qkvg = s->projects_again ? FM_RECOMPUTE : FM_KEEP};
    if (s->gate_bias) w.gate_bias = op_block_after_zeros(bench, 3 * width, width, 0);
    if (s->q_bias) w.q_bias = op_block(bench, width, 0);
    if (s->out_bias) w.out_bias = op_block(bench, s->c, 0);
    if (s->axial == FM_AXIAL_ROW) w.norm_z = op_block(bench, 2, s->c_z);
    return w;
}

static void begin_attention(op_bench *bench, attention *s, fm_element element) {
    op_begin(bench, element);
    op_input(bench, 3, (int64_t[]){s->n0, s->n1, s->c}, true);
    op_input(bench, 2, (int64_t[]){s->n0, s->n1}, false);
    if (s->axial == FM_AXIAL_ROW) op_input(bench, 3, (int64_t[]){s->n1, s->n1, s->c_z}, true);
    s->weights = attention_weights(bench, s);
    op_finish(bench, build_attention, s);
    op_fill_mask(bench, 1, 31);
}

/* One query of one head: o [c_head] of the values, gated. qkvg in rows of 4 width; bias [n, n,
 * n_head]. */
static void attend(const attention *s, const double *qkvg, const double *bias, const double *mask,
                   int64_t batch, int64_t query, int64_t head, double *o) {
    int64_t width = s->n_head * s->c_head, ld = 4 * width, n = s->n1;
    bool ending = s->axial == FM_AXIAL_ENDING;
    int64_t row = ending ? query * n + batch : batch * n + query;
    double *weight = numbers(n), total = 0, top = -INFINITY;
    for (int64_t key = 0; key < n; key++) {
        int64_t at = ending ? key * n + batch : batch * n + key;
        for (int64_t i = 0; i < s->c_head; i++) {
            weight[key] += qkvg[row * ld + head * s->c_head + i] *
                           qkvg[at * ld + width + head * s->c_head + i] / sqrt((double)s->c_head);
        }
        weight[key] += bias[(ending ? key * n + query : query * n + key) * s->n_head + head];
        weight[key] += mask[at] > 0 ? 0 : -1e9;
        top = fmax(top, weight[key]);
    }
    for (int64_t key = 0; key < n; key++)
        total += weight[key] = exp(weight[key] - top);
    for (int64_t i = 0; i < s->c_head; i++) {
        o[i] = 0;
        for (int64_t key = 0; key < n; key++) {
            int64_t at = ending ? key * n + batch : batch * n + key;
            o[i] += weight[key] / total * qkvg[at * ld + 2 * width + head * s->c_head + i];
        }
        o[i] *= sigmoid(qkvg[row * ld + 3 * width + head * s->c_head + i]);
    }
    free(weight);
}

/* AF3-24 without conditioning; AF3's 14 and 15. */
static void attention_is_the_algorithm(op_bench *bench, const attention *s) {
    const fm_attention_weights *w = &s->weights;
    int64_t rows = s->n0 * s->n1, width = s->n_head * s->c_head, n = s->n1;
    bool is_row = s->axial == FM_AXIAL_ROW;
    const double *x = op_input_data(bench, 0), *mask = op_input_data(bench, 1);
    double *all_bias = numbers(4 * width), *o = numbers(rows * width);
    for (int64_t i = 0; i < width; i++) {
        all_bias[i] = s->q_bias ? param(bench, w->q_bias)[i] : 0;
        all_bias[3 * width + i] = s->gate_bias ? param(bench, w->gate_bias)[i] : 0;
    }
    double *normed = normalised(x, rows, s->c, param(bench, w->norm));
    double *pair = is_row
                       ? normalised(op_input_data(bench, 2), n * n, s->c_z, param(bench, w->norm_z))
                       : normalised(x, rows, s->c, param(bench, w->norm));
    double *qkvg = projected(normed, rows, s->c, 4 * width, param(bench, w->qkvg), all_bias);
    double *bias =
        projected(pair, n * n, is_row ? s->c_z : s->c, s->n_head, param(bench, w->bias), NULL);
    for (int64_t at = 0; at < s->n0 * n * s->n_head; at++) {
        int64_t head = at % s->n_head, query = at / s->n_head % n, batch = at / s->n_head / n;
        int64_t row = s->axial == FM_AXIAL_ENDING ? query * n + batch : batch * n + query;
        attend(s, qkvg, bias, mask, batch, query, head, o + row * width + head * s->c_head);
    }
    double *y = projected(o, rows, width, s->c, param(bench, w->out), param(bench, w->out_bias));
    for (int64_t i = 0; i < rows * s->c; i++)
        y[i] += x[i];
    fm_tape_forward(&bench->tape, NULL);
    assert_near(fm_tape_data(&bench->tape, bench->output_tensor), y, rows * s->c);
    free(all_bias), free(o), free(normed), free(pair), free(qkvg), free(bias), free(y);
}

static const attention FORMS[] = {
    /* the single representation: a bias of q alone; then all ways to have biases */
    {.axial = FM_AXIAL_ROW, .n0 = 1, .n1 = 7, .c = 9, .c_z = 5, .n_head = 4, .c_head = 24},
    {.axial = FM_AXIAL_ROW, .n0 = 1, .n1 = 1, .c = 4, .c_z = 3, .n_head = 2, .c_head = 3},
    {.axial = FM_AXIAL_ROW, .n0 = 2, .n1 = 4, .c = 6, .c_z = 5, .n_head = 2, .c_head = 3},
    /* the pair representation */
    {.axial = FM_AXIAL_STARTING, .n0 = 5, .n1 = 5, .c = 6, .n_head = 2, .c_head = 4},
    {.axial = FM_AXIAL_ENDING, .n0 = 5, .n1 = 5, .c = 6, .n_head = 2, .c_head = 4},
};

static void attention_in_all_forms(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++) {
        for (int biases = 0; biases < 8; biases++) {
            attention s = FORMS[i];
            s.q_bias = biases & 1;
            s.gate_bias = biases & 2;
            s.out_bias = biases & 4;
            op_bench bench, single;
            begin_attention(&bench, &s, FM_ELEMENT_F64);
            attention_is_the_algorithm(&bench, &s);
            begin_attention(&single, &s, FM_ELEMENT_F32);
            assert_single_is_near(&single, &bench);
            op_end(&single);
            if (biases < 2) op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

static void split_and_recomputed_attention_have_the_same_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof FORMS / sizeof FORMS[0]; i++) {
        attention whole = FORMS[i];
        whole.q_bias = i % 2 == 0;
        whole.dropout = i < 3 ? 0 : 0.25;
        attention split = whole, again = whole, projects = whole;
        split.split = true;
        again.recompute = true;
        projects.projects_again = true;
        op_bench a, b, c, d;
        begin_attention(&a, &whole, FM_ELEMENT_F64);
        begin_attention(&b, &split, FM_ELEMENT_F64);
        begin_attention(&c, &again, FM_ELEMENT_F64);
        begin_attention(&d, &projects, FM_ELEMENT_F64);
        run(&a), run(&b), run(&c), run(&d);
        assert_same_gradients(&a, &c);
        assert_same_gradients(&a, &d);
        assert_true(d.tape.size.saved_bytes < a.tape.size.saved_bytes);
        int64_t n = op_input_count(&a, 0);
        assert_memory_equal(fm_tape_data(&a.tape, a.output_tensor),
                            fm_tape_data(&b.tape, b.output_tensor), (size_t)n * sizeof(double));
        assert_true(distance_of(&a, a.params.gradient, &b, b.params.gradient, a.params.n_element) <
                    1e-13);
        op_end(&a);
        op_end(&b);
        op_end(&c);
        op_end(&d);
    }
}

/* -- a block */

enum { N = 5, C_S = 6, C_Z = 8 };

typedef struct block {
    fm_attention_weights starting, ending, single;
    fm_swiglu_transition_weights pair_transition, single_transition;
} block;

/* AF3-17 without its triangle multiplications. Inputs: s [1, N, c_s], its mask [1, N], z, z's mask.
 */
static fm_tensor_ref build_block(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const block *w = context;
    fm_tensor_ref s = in[0], z = in[2], none = FM_TENSOR_NONE;
    z = fm_op_attention(tape, "starting", FM_AXIAL_STARTING, z, in[3], none, &w->starting, true,
                        0.25);
    z = fm_op_attention(tape, "ending", FM_AXIAL_ENDING, z, in[3], none, &w->ending, true, 0.25);
    z = fm_op_swiglu_transition(tape, "pair", z, &w->pair_transition, true, FM_RECOMPUTE);
    s = fm_op_attention(tape, "single", FM_AXIAL_ROW, s, in[1], z, &w->single, true, 0);
    return fm_op_swiglu_transition(tape, "single", s, &w->single_transition, true, FM_KEEP);
}

static void a_block_has_the_gradients_of_differences(void **state) {
    (void)state;
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 3, (int64_t[]){1, N, C_S}, true);
    op_input(&bench, 2, (int64_t[]){1, N}, false);
    op_input(&bench, 3, (int64_t[]){N, N, C_Z}, true);
    op_input(&bench, 2, (int64_t[]){N, N}, false);
    attention pair = {.axial = FM_AXIAL_STARTING, .c = C_Z, .n_head = 2, .c_head = 4};
    attention single = {
        .axial = FM_AXIAL_ROW, .c = C_S, .c_z = C_Z, .n_head = 2, .c_head = 3, .q_bias = true};
    block w;
    w.starting = attention_weights(&bench, &pair);
    w.ending = attention_weights(&bench, &pair);
    w.single = attention_weights(&bench, &single);
    w.pair_transition = transition_weights(&bench, C_Z, 4 * C_Z);
    w.single_transition = transition_weights(&bench, C_S, 4 * C_S);
    op_finish(&bench, build_block, &w);
    op_fill_mask(&bench, 1, 31);
    op_fill_mask(&bench, 3, 32);
    op_check_gradients(&bench);
    op_end(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transitions),
        cmocka_unit_test(recomputing_the_projection_changes_no_bit),
        cmocka_unit_test(attention_in_all_forms),
        cmocka_unit_test(split_and_recomputed_attention_have_the_same_bits),
        cmocka_unit_test(a_block_has_the_gradients_of_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
