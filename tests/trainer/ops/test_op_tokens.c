/* test_op_tokens.c: tests the ops that AlphaFold 3 composes its pairs of: distances between tokens,
 * parts of whole arrays, sums of rows, and averages with given weights. */
#include "tests/trainer/common/op_check.h"

#include "trainer/dist/gather.h"
#include "trainer/ops/arithmetic.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/token_distances.h"
#include "trainer/ops/weighted_averaging.h"

/* -- distances */

enum { ATOMS = 6, TOKENS = 4, NONE = 255 };

static const fm_distance_bounds BOUNDS = {39, 3.25, 50.75};

typedef struct wanted {
    fm_part part;
    bool classes;
} wanted;

static fm_tensor_ref build_distances(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const wanted *w = context;
    fm_token_distances out = fm_op_token_distances(tape, in[0], in[1], &BOUNDS, w->part);
    return w->classes ? out.classes : out.distance;
}

/* Tokens 0 to 3: two at one place; one 5 Å away, in a class; one without atom, 3.25 Å from the
 * first two, exactly at a bound. */
static void begin_distances(op_bench *bench, fm_element element, const wanted *w) {
    static const double x[ATOMS][3] = {{3.25, 0, 0}, {9, 9, 9}, {3.25, 0, 0},
                                       {8, 8, 8},    {7, 7, 7}, {3.25, 3, 4}};
    static const int32_t atom[TOKENS] = {0, 2, 5, -1};
    op_begin(bench, element);
    bench->without_gradient = true;
    op_input(bench, 2, (int64_t[]){ATOMS, 3}, false);
    op_input_of(bench, FM_ELEMENT_I32, 1, (int64_t[]){TOKENS}, false);
    op_finish(bench, build_distances, w);
    for (int64_t i = 0; i < ATOMS * 3; i++)
        op_set(bench, op_input_data(bench, 0), i, x[i / 3][i % 3]);
    memcpy(op_input_data(bench, 1), atom, sizeof atom);
    fm_tape_forward(&bench->tape, NULL);
}

static void distances_and_classes(void **state) {
    (void)state;
    const double far = sqrt(3.25 * 3.25 + 25);
    const double expected[TOKENS][TOKENS] = {
        {0, 0, 5, 3.25}, {0, 0, 5, 3.25}, {5, 5, 0, far}, {3.25, 3.25, far, 0}};
    static const uint8_t classes[TOKENS][TOKENS] = {
        {NONE, NONE, 1, NONE}, {NONE, NONE, 1, NONE}, {1, 1, NONE, 2}, {NONE, NONE, 2, NONE}};
    const fm_element elements[] = {FM_ELEMENT_F32, FM_ELEMENT_F64};
    for (int e = 0; e < 2; e++) {
        for (int32_t r = 0; r < 3; r++) { /* the whole, and each of two ranks */
            const fm_part part = r ? (fm_part){r - 1, 2} : (fm_part){0, 1};
            int64_t rows = TOKENS / part.count, first = part.rank * rows;
            op_bench bench;
            const wanted distance = {part, false}, ids = {part, true};
            begin_distances(&bench, elements[e], &distance);
            for (int64_t i = 0; i < rows * TOKENS; i++) {
                double got = op_get(&bench, fm_tape_data(&bench.tape, bench.output_tensor), i);
                assert_true(fabs(got - expected[first + i / TOKENS][i % TOKENS]) < 1e-6);
            }
            op_end(&bench);
            begin_distances(&bench, elements[e], &ids);
            assert_memory_equal(fm_tape_data(&bench.tape, bench.output_tensor), classes[first],
                                (size_t)(rows * TOKENS));
            op_end(&bench);
        }
    }
}

/* -- parts of whole arrays */

enum { SLICE_ROWS, SLICE_COLUMNS, TRIM, OUTER, N_PART };

static fm_tensor_ref build_part(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    switch (*(const int *)context) {
    case SLICE_ROWS: return fm_dap_slice(tape, "rows", (fm_part){1, 3}, in[0], 0);
    case SLICE_COLUMNS: return fm_dap_slice(tape, "columns", (fm_part){1, 2}, in[0], 1);
    case TRIM: return fm_dap_trim(tape, "trim", in[0], 4);
    default:
        return fm_op_outer_sum(tape, "outer", fm_dap_slice(tape, "i", (fm_part){2, 3}, in[0], 0),
                               in[0]);
    }
}

/* Elements outside the part have gradient 0. */
static void parts_match_differences(void **state) {
    (void)state;
    static const int64_t shape[] = {6, 4, 3}, single[] = {6, 3};
    for (int which = 0; which < N_PART; which++) {
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, which == OUTER ? 2 : 3, which == OUTER ? single : shape, true);
        op_finish(&bench, build_part, &which);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

static void trimming_nothing_records_nothing(void **state) {
    (void)state;
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 3, (int64_t[]){4, 2, 3}, true);
    const int which = TRIM;
    op_finish(&bench, build_part, &which);
    assert_int_equal(bench.tape.n_node, 0);
    op_end(&bench);
}

/* -- relative positions */

typedef struct positions {
    fm_param_ref w;
    fm_part part;
} positions;

static fm_tensor_ref build_positions(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const positions *p = context;
    return fm_op_relative_position(tape, "positions", in[0], p->w, 3, p->part);
}

/* The rows of a part, and their gradients, are those of the pairs with these rows. */
static void positions_match_differences(void **state) {
    (void)state;
    enum { N = 4 };
    for (int32_t count = 1; count <= 2; count++) {
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input_of(&bench, FM_ELEMENT_U8, 3, (int64_t[]){FM_RELATIVE_KINDS, N, N}, false);
        positions p = {op_block(&bench, 3, FM_RELATIVE_FEATURES), {count - 1, count}};
        op_finish(&bench, build_positions, &p);
        uint8_t *classes = op_input_data(&bench, 0);
        for (int i = 0; i < FM_RELATIVE_KINDS * N * N; i++)
            classes[i] = (uint8_t)(i / (N * N) == 2 ? i % 2 * NONE : i % 6);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* -- averages with given weights */

static fm_tensor_ref build_averages(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    return fm_op_weighted_averaging(tape, "averages", in[0], in[1], in[2], context, true, 0);
}

static void averages_with_a_given_bias_match_differences(void **state) {
    (void)state;
    enum { ROWS = 2, N = 3, C = 4, HEADS = 2, C_HEAD = 3 };
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input(&bench, 3, (int64_t[]){ROWS, N, C}, true);
    op_input(&bench, 2, (int64_t[]){ROWS, N}, false);
    op_input(&bench, 3, (int64_t[]){N, N, HEADS}, true);
    fm_averaging_weights w = {
        .norm_z = FM_PARAM_NONE, .bias = FM_PARAM_NONE, .n_head = HEADS, .c_head = C_HEAD};
    w.norm = op_block(&bench, 2, C);
    w.vg = op_block(&bench, 2 * HEADS * C_HEAD, C);
    w.out = op_block(&bench, C, HEADS * C_HEAD);
    op_finish(&bench, build_averages, &w);
    op_fill_mask(&bench, 1, 5);
    op_check_gradients(&bench);
    op_end(&bench);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distances_and_classes),
        cmocka_unit_test(parts_match_differences),
        cmocka_unit_test(trimming_nothing_records_nothing),
        cmocka_unit_test(positions_match_differences),
        cmocka_unit_test(averages_with_a_given_bias_match_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
