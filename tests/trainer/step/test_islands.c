/* test_islands.c: nodes of another kernel table inside a tape: in a chain, and in whole steps. */
#include "tests/trainer/common/mixed_table.h"
#include "tests/trainer/common/step_sample.h"
#include "tests/trainer/common/team.h"

#include "trainer/ops/cast.h"
#include "trainer/ops/frames.h"
#include "trainer/ops/transition.h"

#include <assert.h>

enum { ROWS = 6, C = 8, HIDDEN = 24, N_LINK = 4 };

static double distance(const double *a, const double *b, int64_t n) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(difference / norm);
}

/* -- a chain */

typedef struct chain {
    fm_transition_weights weights[N_LINK];
    bool recompute, island;
} chain;

static fm_tensor_ref link_of(fm_tape *tape, const chain *s, int i, fm_tensor_ref x) {
    return fm_op_transition(tape, "link", x, &s->weights[i], true,
                            s->recompute ? FM_RECOMPUTE : FM_KEEP);
}

/* Two links, then two in an island beside one outside. The tensor that enters the island already
 * has a gradient from outside; the gradient from the island is added to it. */
static fm_tensor_ref build_chain(fm_tape *tape, const fm_tensor_ref *input, const void *context) {
    const chain *s = context;
    fm_tape_begin_segment(tape, s->recompute);
    fm_tensor_ref x = link_of(tape, s, 1, link_of(tape, s, 0, input[0]));
    fm_tape_end_segment(tape);
    fm_tape_begin_segment(tape, s->recompute);
    fm_tensor_ref parts[] = {x, FM_TENSOR_NONE};
    if (s->island) {
        fm_tape_enter_island(tape);
        parts[0] = fm_op_cast(tape, "in", x);
    }
    parts[0] = link_of(tape, s, 3, link_of(tape, s, 2, parts[0]));
    if (s->island) {
        fm_tape_leave_island(tape);
        parts[0] = fm_op_cast(tape, "out", parts[0]);
    }
    fm_tape_end_segment(tape);
    parts[1] = link_of(tape, s, 0, x);
    return fm_op_stack(tape, parts, 2);
}

static void begin(op_bench *bench, chain *s, const fm_kernels *kernels) {
    op_begin(bench, FM_ELEMENT_F64);
    bench->kernels = kernels;
    op_input(bench, 2, (int64_t[]){ROWS, C}, true);
    for (int i = 0; i < N_LINK; i++) {
        s->weights[i].hidden = HIDDEN;
        s->weights[i].norm = op_block(bench, 2, C);
        s->weights[i].w1 = op_block(bench, HIDDEN, C);
        s->weights[i].b1 = op_block(bench, HIDDEN, 0);
        s->weights[i].w2 = op_block(bench, C, HIDDEN);
        s->weights[i].b2 = op_block(bench, C, 0);
    }
    op_finish(bench, build_chain, s);
    for (int64_t k = 0; k < bench->params.n_element; k++) /* f64 in both tables */
        ((double *)bench->params.master)[k] = op_uniform(77, k);
    fm_params_refresh_copy(&bench->params);
}

static void run(op_bench *bench) {
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
    assert_int_equal(fm_tape_used_bytes(&bench->tape), bench->tape.size.arena_bytes);
}

/* Reads the output and the gradient of the input as f64. */
static void read_results(const op_bench *bench, double out[2 * ROWS * C], double dx[ROWS * C]) {
    const fm_tape *tape = &bench->tape;
    for (int i = 0; i < 2 * ROWS * C; i++)
        out[i] = op_get(bench, fm_tape_data(tape, bench->output_tensor), i);
    for (int i = 0; i < ROWS * C; i++)
        dx[i] = op_get(bench, fm_tape_gradient(tape, bench->input_tensor[0]), i);
}

static void an_island_is_within_the_rounding_of_the_wide_table(void **state) {
    (void)state;
    double exact[2][2 * ROWS * C], mixed[2][2 * ROWS * C];
    for (int recompute = 0; recompute < 2; recompute++) {
        chain plain = {.recompute = recompute}, s = {.recompute = recompute, .island = true};
        op_bench a, b;
        begin(&a, &plain, fm_kernels_cpu(FM_ELEMENT_F64));
        begin(&b, &s, mixed_table());
        assert_int_equal(b.tape.n_node, a.tape.n_node + 2);
        run(&a);
        run(&b);
        read_results(&a, exact[0], exact[1]);
        read_results(&b, mixed[0], mixed[1]);
        assert_true(distance(mixed[0], exact[0], (int64_t)2 * ROWS * C) < 1e-6);
        assert_true(distance(mixed[1], exact[1], (int64_t)ROWS * C) < 1e-6);
        assert_true(distance(b.params.gradient, a.params.gradient, a.params.n_element) < 1e-6);
        op_end(&a);
        op_end(&b);
    }
}

static void recomputing_an_island_changes_no_bit(void **state) {
    (void)state;
    chain keep = {.island = true}, drop = {.island = true, .recompute = true};
    op_bench a, b;
    begin(&a, &keep, mixed_table());
    begin(&b, &drop, mixed_table());
    run(&a);
    run(&a);
    run(&b);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    assert_true(b.tape.size.saved_bytes < a.tape.size.saved_bytes);
    op_end(&a);
    op_end(&b);
}

/* The narrow copy of the island's blocks and the master of the other blocks are never read. */
static void an_island_reads_the_master(void **state) {
    (void)state;
    chain s = {.island = true};
    op_bench bench;
    begin(&bench, &s, mixed_table());
    run(&bench);
    size_t bytes = (size_t)bench.params.n_element * sizeof(double);
    double *before = malloc(bytes);
    assert_non_null(before);
    memcpy(before, bench.params.gradient, bytes);
    int64_t inner = bench.params.block[s.weights[2].norm].offset;
    for (int64_t k = 0; k < bench.params.n_element; k++) {
        if (k < inner) {
            ((double *)bench.params.master)[k] = NAN;
        } else {
            ((float *)bench.params.copy)[k] = NAN;
        }
    }
    run(&bench);
    assert_memory_equal(before, bench.params.gradient, bytes);
    free(before);
    op_end(&bench);
}

static void with_one_table_nothing_is_cast(void **state) {
    (void)state;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F64);
    chain plain = {0}, s = {.island = true};
    op_bench a, b;
    begin(&a, &plain, kernels);
    begin(&b, &s, kernels);
    assert_memory_equal(&a.tape.size, &b.tape.size, sizeof a.tape.size);
    run(&a);
    run(&b);
    assert_memory_equal(a.params.gradient, b.params.gradient,
                        (size_t)a.params.n_element * sizeof(double));
    op_end(&a);
    op_end(&b);
}

/* -- whole steps */

static fm_trainer_options options_of(const fm_kernels *kernels) {
    fm_trainer_options options = small_options();
    options.kernels = kernels;
    return options;
}

static void assert_same_parameters(const fm_trainer *a, const fm_trainer *b) {
    size_t bytes = (size_t)a->recording.params.n_element * sizeof(double);
    assert_memory_equal(a->recording.params.master, b->recording.params.master, bytes);
    assert_memory_equal(a->recording.params.gradient, b->recording.params.gradient, bytes);
    assert_memory_equal(a->recording.params.copy, b->recording.params.copy, bytes / 2);
}

/* Nodes from the casts on run on the wide table, the nodes before them on the narrow one. */
static void assert_tables(const fm_tape *tape) {
    bool inside = false;
    for (int32_t n = 0; n < tape->n_node; n++) {
        const fm_node *node = &tape->node[n];
        inside |= node->casts;
        assert_ptr_equal(node->kernels, inside ? tape->main_kernels->wide : tape->main_kernels);
    }
    assert_true(inside);
}

static void a_step_is_within_the_rounding_of_the_pure_ones(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    fm_trainer_options wide = options_of(fm_kernels_cpu(FM_ELEMENT_F64));
    fm_trainer_options both = options_of(mixed_table());
    fm_trainer *exact = create(&wide), *mixed = create(&both);
    assert_tables(&mixed->recording.tape[FM_TRAINER_CYCLE]);
    assert_tables(&mixed->recording.tape[FM_TRAINER_LAST]);
    assert_int_equal(
        fm_tape_tensor(&mixed->recording.tape[FM_TRAINER_LAST], mixed->cycles.atoms)->element,
        FM_ELEMENT_F64);
    assert_memory_equal(mixed->recording.params.master, exact->recording.params.master,
                        (size_t)exact->recording.params.n_element * sizeof(double));
    fm_sample_result a = take(exact, &s.features), b = take(mixed, &s.features);
    assert_true(fabs(a.loss - b.loss) < 1e-6 * a.loss);
    assert_true(fabs(a.gradient_norm - b.gradient_norm) < 1e-5 * a.gradient_norm);
    assert_true(distance(mixed->recording.params.gradient, exact->recording.params.gradient,
                         exact->recording.params.n_element) < 1e-5);
    fm_trainer_options single = options_of(fm_kernels_cpu(FM_ELEMENT_F32));
    fm_trainer *narrow = create(&single);
    fm_sample_result c = take(narrow, &s.features);
    assert_true(fabs(b.loss - c.loss) < 1e-6 * c.loss);
    assert_true(fabs(b.gradient_norm - c.gradient_norm) < 1e-5 * c.gradient_norm);
    fm_trainer_destroy(narrow);
    fm_trainer_destroy(exact);
    fm_trainer_destroy(mixed);
}

static void planned_bytes_are_used_and_policies_change_no_bit(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    for (int order = 0; order < 3; order++) {
        fm_trainer_options options = options_of(mixed_table());
        options.model.order = (fm_block_order)order;
        fm_trainer *first = NULL;
        for (int policy = 0; policy <= FM_RECOMPUTE_BLOCK; policy++) {
            options.model.recompute = (fm_recompute_policy)policy;
            fm_trainer *trainer = create(&options);
            for (int step = 0; step < 2; step++) {
                take(trainer, &s.features);
                fm_trainer_update(trainer);
            }
            assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_CYCLE]),
                             trainer->recording.tape[FM_TRAINER_CYCLE].size.arena_bytes);
            assert_int_equal(fm_tape_used_bytes(&trainer->recording.tape[FM_TRAINER_LAST]),
                             trainer->recording.tape[FM_TRAINER_LAST].size.arena_bytes);
            if (first) {
                assert_same_parameters(first, trainer);
                fm_trainer_destroy(trainer);
            } else {
                first = trainer;
            }
        }
        fm_trainer_destroy(first);
    }
}

/* Four ranks gather the narrow outputs of the trunk, and each runs the whole island. */
static void ranks_of_a_sample_have_the_numbers_of_one(void **state) {
    (void)state;
    static sample s;
    make_sample(&s);
    const fm_layout layout = {.dap = 2, .bp = 2, .dp = 1};
    fm_trainer_options options = options_of(mixed_table());
    options.model.order = FM_ORDER_PARALLEL;
    options.model.recompute = FM_RECOMPUTE_BLOCK;
    fm_trainer *one = create(&options);
    fm_sample_result a = take(one, &s.features), b = {0};
    rank_team *team = team_create(&options, &layout);
    fm_error error;
    fm_trainer *first = team_get_first(team);
    assert_tables(&first->recording.tape[FM_TRAINER_LAST]);
    assert_int_equal(team_queue(team, &s.features, true, &error), FM_OK);
    assert_int_equal(team_collect(team, &b, &error), FM_OK);
    assert_true(fabs(a.loss - b.loss) < 1e-6 * a.loss);
    assert_true(distance(first->recording.params.gradient, one->recording.params.gradient,
                         one->recording.params.n_element) < 1e-5);
    assert_int_equal(fm_tape_used_bytes(&first->recording.tape[FM_TRAINER_LAST]),
                     first->recording.tape[FM_TRAINER_LAST].size.arena_bytes);
    team_destroy(team);
    fm_trainer_destroy(one);
}

/* -- bf16, recorded only */

static void fill_bf16(fm_stream *stream, int64_t n, double value, void *y) {
    (void)stream;
    assert(value == 0);
    memset(y, 0, (size_t)n * 2);
}

static void copy_bf16(fm_stream *stream, int64_t n, const void *x, void *y) {
    (void)stream;
    memmove(y, x, (size_t)n * 2);
}

static void cast_bf16(fm_stream *stream, int64_t n, fm_element from, const void *x, void *y) {
    (void)stream;
    assert(from == FM_ELEMENT_F32);
    for (int64_t i = 0; i < n; i++)
        memcpy((uint16_t *)y + i, (const uint16_t *)x + 2 * i + 1, 2); /* truncated to bf16 */
}

/* A whole step over a table that has bf16's sizes. Recording asserts that the casts are the only
 * nodes of an island that read bf16 tensors; this test asserts that all other nodes have bf16
 * outputs. */
static void a_bf16_step_has_f32_structure_and_losses(void **state) {
    (void)state;
    fm_kernels narrow = *fm_kernels_cpu(FM_ELEMENT_F32);
    narrow.wide = fm_kernels_cpu(FM_ELEMENT_F32);
    narrow.act = FM_ELEMENT_BF16;
    narrow.fill = fill_bf16;
    narrow.copy = copy_bf16;
    narrow.cast = cast_bf16;
    fm_trainer_options options = options_of(&narrow);
    fm_trainer *trainer = create(&options);
    const fm_tape *tapes[] = {&trainer->recording.tape[FM_TRAINER_CYCLE],
                              &trainer->recording.tape[FM_TRAINER_LAST]};
    for (int t = 0; t < 2; t++) {
        assert_tables(tapes[t]);
        for (int32_t n = 0; n < tapes[t]->n_node; n++) {
            const fm_node *node = &tapes[t]->node[n];
            for (int i = 0; i < node->n_output; i++) {
                fm_element element = fm_tape_tensor(tapes[t], node->output[i])->element;
                assert_true(element == node->kernels->act || element == FM_ELEMENT_U8);
            }
        }
    }
    fm_trainer_destroy(trainer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_island_is_within_the_rounding_of_the_wide_table),
        cmocka_unit_test(recomputing_an_island_changes_no_bit),
        cmocka_unit_test(an_island_reads_the_master),
        cmocka_unit_test(with_one_table_nothing_is_cast),
        cmocka_unit_test(a_step_is_within_the_rounding_of_the_pure_ones),
        cmocka_unit_test(planned_bytes_are_used_and_policies_change_no_bit),
        cmocka_unit_test(ranks_of_a_sample_have_the_numbers_of_one),
        cmocka_unit_test(a_bf16_step_has_f32_structure_and_losses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
