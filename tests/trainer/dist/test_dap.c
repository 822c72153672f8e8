/* test_dap.c: a chain of sublayers split over ranks gives the same values, gradients and dropout
 * masks at 1, 2 and 4 ranks; forward only, with recomputation, and without gradients. */
#include "tests/trainer/common/op_check.h"

#include "tests/testing/comm_local.h"
#include "trainer/dist/dap.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/transition.h"

#include <assert.h>
#include <pthread.h>

enum { N0 = 8, N1 = 4, C = 6, HEADS = 2, C_HEAD = 3, HIDDEN = 12, ALL = N0 * N1 * C };

typedef struct rank_state {
    fm_comm *comm;
    bool recompute, without_gradient;
    fm_transition_weights first, last;
    fm_attention_weights attention;
    double *y, *dx, *dw; /* shared: y and dx [N0, N1, C]; dw of this rank */
    int64_t n_dw;
} rank_state;

/* Split along rows: transition; along columns: attention with dropout; along rows: transition.
 * Another node reads the first transition's result while the exchange is under way. */
static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const rank_state *s = context;
    fm_tape_begin_segment(tape, s->recompute);
    fm_tensor_ref x = fm_op_transition(tape, "first", in[0], &s->first, true, FM_KEEP);
    fm_switch there = fm_dap_switch_begin(tape, "to columns", s->comm, x, 1, false);
    fm_tensor_ref aside = fm_op_transition(tape, "aside", x, &s->last, false, FM_KEEP);
    fm_tensor_ref columns = fm_dap_switch_finish(tape, &there);
    columns = fm_op_attention(tape, "columns", FM_AXIAL_COLUMN, columns, in[1], FM_TENSOR_NONE,
                              &s->attention, true, 0.25);
    fm_switch back = fm_dap_switch_begin(tape, "to rows", s->comm, columns, 0, true);
    fm_tensor_ref rows = fm_dap_switch_finish(tape, &back);
    rows = fm_op_transition(tape, "again", rows, &s->first, true, FM_KEEP);
    fm_tape_end_segment(tape);
    (void)aside;
    return fm_op_transition(tape, "last", rows, &s->last, true, FM_KEEP);
}

static fm_transition_weights transition(op_bench *bench) {
    return (fm_transition_weights){op_block(bench, 2, C),      op_block(bench, HIDDEN, C),
                                   op_block(bench, HIDDEN, 0), op_block(bench, C, HIDDEN),
                                   op_block(bench, C, 0),      HIDDEN};
}

static void prepare(op_bench *bench, rank_state *s) {
    op_begin(bench, FM_ELEMENT_F64);
    bench->without_gradient = s->without_gradient;
    fm_tensor x, mask;
    fm_tensor_init(&x, "x", FM_ELEMENT_F64, 3, (int64_t[]){N0, N1, C});
    fm_tensor_shard(&x, 0, s->comm->rank, s->comm->size);
    fm_tensor_init(&mask, "mask", FM_ELEMENT_F64, 2, (int64_t[]){N0, N1});
    fm_tensor_shard(&mask, 1, s->comm->rank, s->comm->size);
    op_input_described(bench, &x, true);
    op_input_described(bench, &mask, false);
    s->first = transition(bench);
    s->last = transition(bench);
    s->attention = (fm_attention_weights){
        .norm = op_block(bench, 2, C),
        .qkvg = op_block(bench, 4 * HEADS * C_HEAD, C),
        .gate_bias = op_block_after_zeros(bench, 3 * HEADS * C_HEAD, HEADS * C_HEAD, 0),
        .q_bias = FM_PARAM_NONE,
        .out = op_block(bench, C, HEADS * C_HEAD),
        .out_bias = op_block(bench, C, 0),
        .bias = FM_PARAM_NONE,
        .norm_z = FM_PARAM_NONE,
        .n_head = HEADS,
        .c_head = C_HEAD};
    op_finish(bench, build, s);
    int64_t first0 = fm_tensor_first(&x, 0), first1 = fm_tensor_first(&mask, 1);
    double *px = op_input_data(bench, 0), *pm = op_input_data(bench, 1);
    double *pg = fm_state_data(&bench->state, bench->output_gradient);
    for (int64_t k = 0; k < fm_tensor_local_count(&x); k++) {
        px[k] = op_uniform(1, first0 * N1 * C + k);
        pg[k] = op_uniform(2, first0 * N1 * C + k);
    }
    for (int64_t i = 0; i < mask.local[0]; i++) {
        for (int64_t j = 0; j < mask.local[1]; j++) {
            int64_t at = i * N1 + first1 + j;
            pm[i * mask.local[1] + j] = at == 0 || op_uniform(3, at) > -0.5;
        }
    }
}

static void *run_rank(void *argument) {
    rank_state *s = argument;
    op_bench bench;
    prepare(&bench, s);
    fm_tape_forward(&bench.tape, NULL);
    int64_t count = ALL / s->comm->size, at = s->comm->rank * count;
    memcpy(s->y + at, fm_tape_data(&bench.tape, bench.output_tensor),
           (size_t)count * sizeof(double));
    if (!s->without_gradient) {
        fm_tape_backward(&bench.tape, NULL);
        memcpy(s->dx + at, fm_tape_gradient(&bench.tape, bench.input_tensor[0]),
               (size_t)count * sizeof(double));
        s->n_dw = bench.params.n_element;
        s->dw = malloc((size_t)s->n_dw * sizeof(double));
        memcpy(s->dw, bench.params.gradient, (size_t)s->n_dw * sizeof(double));
    }
    assert(fm_tape_used_bytes(&bench.tape) == bench.tape.size.arena_bytes);
    op_end(&bench);
    return NULL;
}

/* Runs the chain on `size` ranks; the gradient of the parameters is summed over them into dw. */
static int64_t run(int32_t size, bool recompute, bool without_gradient, double *y, double *dx,
                   double *dw) {
    fm_comm_group *group;
    assert_int_equal(fm_comm_group_create(size, fm_kernels_cpu(FM_ELEMENT_F64), &group, NULL),
                     FM_OK);
    rank_state ranks[4] = {{0}};
    pthread_t threads[4];
    for (int32_t r = 0; r < size; r++) {
        ranks[r] = (rank_state){.comm = fm_comm_group_get_rank(group, r),
                                .recompute = recompute,
                                .without_gradient = without_gradient,
                                .y = y,
                                .dx = dx};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &ranks[r]), 0);
    }
    for (int32_t r = 0; r < size; r++)
        pthread_join(threads[r], NULL);
    int64_t n_dw = ranks[0].n_dw;
    for (int32_t r = 0; r < size; r++) {
        for (int64_t k = 0; k < n_dw; k++)
            dw[k] = (r ? dw[k] : 0) + ranks[r].dw[k];
        free(ranks[r].dw);
    }
    fm_comm_group_destroy(group);
    return n_dw;
}

static void expect_close(const double *a, const double *b, int64_t count) {
    for (int64_t k = 0; k < count; k++)
        assert_true(fabs(a[k] - b[k]) < 1e-11 * fmax(1, fabs(b[k])));
}

static void ranks_agree_with_one(void **state) {
    (void)state;
    enum { MOST = 2048 };
    static double y[2][ALL], dx[2][ALL], dw[2][MOST];
    int64_t n = run(1, false, false, y[0], dx[0], dw[0]);
    assert_true(n > 0 && n <= MOST);
    for (int32_t size = 1; size <= 4; size *= 2) {
        for (int recompute = 0; recompute < 2; recompute++) {
            run(size, recompute, false, y[1], dx[1], dw[1]);
            expect_close(y[1], y[0], ALL);
            expect_close(dx[1], dx[0], ALL);
            expect_close(dw[1], dw[0], n);
        }
        run(size, false, true, y[1], dx[1], dw[1]);
        expect_close(y[1], y[0], ALL);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_agree_with_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
