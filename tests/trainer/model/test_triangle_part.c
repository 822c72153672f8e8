/* test_triangle_part.c: a triangle multiplication without biases as one node on a part of the
 * pairs. One rank runs it with stages that the CPU's whole sublayer stands for. And what a device
 * that has no such stages counts. */
#include "tests/trainer/common/op_check.h"

#include "tests/testing/comm_local.h"
#include "trainer/backend/fallback.h"
#include "trainer/backend/triangle_block.h"
#include "trainer/model/triangle_part.h"
#include "trainer/ops/triangle_split.h"

enum { N = 6, C_Z = 4, C = 3, PLANES = 3 * C * N * N };

typedef struct setup {
    fm_comm *comm;
    fm_triangle_weights weights;
    bool incoming, by_parts;
} setup;

/* -- a table with stages */

static const fm_kernels *cpu(void) {
    return fm_kernels_cpu(FM_ELEMENT_F64);
}

/* What the node exchanges, [3, c, n, n], then what the whole sublayer keeps. */
static size_t part_kept(const fm_triangle_block *args) {
    return PLANES + fm_triangle_block_composed_kept(args);
}

static size_t part_workspace(const fm_triangle_block *args, bool of_gradient) {
    size_t planes = PLANES * sizeof(double);
    return planes + (of_gradient ? fm_triangle_block_composed_grad_workspace(cpu(), args)
                                 : fm_triangle_block_composed_workspace(cpu(), args));
}

static void expect_zeros(const double *bias, int64_t count) {
    assert_non_null(bias);
    for (int64_t i = 0; i < count; i++)
        assert_true(bias[i] == 0);
}

static void run_stage(fm_stream *stream, fm_triangle_stage stage, const fm_triangle_part *part,
                      void *workspace) {
    fm_triangle_block block = part->block;
    expect_zeros(block.projections_bias, 4 * C + C_Z);
    expect_zeros(block.out_bias, C_Z);
    double *planes = block.keeps ? block.kept : NULL, *space = workspace;
    if (planes) block.kept = planes + PLANES;
    if (stage == FM_TRIANGLE_FRONT) memset(part->block.kept, 0, PLANES * sizeof(double));
    if (stage == FM_TRIANGLE_BACK) {
        fm_triangle_block_composed(cpu(), stream, &block, space + PLANES);
    }
    if (stage == FM_TRIANGLE_BACK_GRAD) memset(space, 0, PLANES * sizeof(double));
    if (stage == FM_TRIANGLE_FRONT_GRAD) {
        fm_triangle_block_composed_grad(cpu(), stream, &block, part->grad, space + PLANES);
    }
}

static fm_kernels table_with_stages(void) {
    fm_kernels table = *cpu();
    table.triangle_part_kept = part_kept;
    table.triangle_part_workspace = part_workspace;
    table.triangle_part = run_stage;
    return table;
}

/* -- runs */

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    const fm_triangle_weights *w = &s->weights;
    if (!s->by_parts) {
        return fm_op_triangle_multiplication(tape, "whole", s->incoming, in[0], in[1], w, true,
                                             0.25);
    }
    assert_true(fm_triangle_part_exists(tape, s->comm, s->incoming, in[0], w, 0.25));
    return fm_triangle_part_add(tape, "part", s->comm, s->incoming, in[0], in[1], w, 0.25);
}

static fm_tensor_ref build_split(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    const setup *s = context;
    fm_triangle_operands operands =
        fm_op_triangle_operands(tape, "operands", in[0], in[1], &s->weights);
    return fm_op_triangle_product(tape, "product", s->incoming, &operands);
}

/* Runs `builder` on the table, forward and backward, and returns what op_run does. */
static int64_t run(const fm_kernels *table, setup *s, op_builder builder, double **ret_values) {
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    bench.kernels = table;
    fm_tensor z, mask;
    fm_tensor_init(&z, "z", FM_ELEMENT_F64, 3, (int64_t[]){N, N, C_Z});
    fm_tensor_init(&mask, "mask", FM_ELEMENT_F64, 2, (int64_t[]){N, N});
    fm_tensor_shard(&z, 0, 0, 1);
    fm_tensor_shard(&mask, 0, 0, 1);
    op_input_described(&bench, &z, true);
    op_input_described(&bench, &mask, false);
    s->weights = (fm_triangle_weights){.norm_in = op_block(&bench, 2, C_Z),
                                       .projections = op_block(&bench, 4 * C + C_Z, C_Z),
                                       .projections_bias = FM_PARAM_NONE,
                                       .norm_out = op_block(&bench, 2, C),
                                       .out = op_block(&bench, C_Z, C),
                                       .out_bias = FM_PARAM_NONE,
                                       .c = C};
    op_finish(&bench, builder, s);
    op_fill_mask(&bench, 1, 5);
    int64_t count = op_run(&bench, ret_values);
    op_end(&bench);
    return count;
}

static void parts_take_absent_biases_as_zeros(void **state) {
    (void)state;
    const fm_kernels table = table_with_stages();
    fm_comm_group *group;
    assert_int_equal(fm_comm_group_create(1, &table, &group, NULL), FM_OK);
    for (int incoming = 0; incoming < 2; incoming++) {
        setup s = {.comm = fm_comm_group_get_rank(group, 0), .incoming = incoming};
        double *whole, *part;
        int64_t n_whole = run(cpu(), &s, build, &whole);
        s.by_parts = true;
        int64_t n_part = run(&table, &s, build, &part);
        op_expect_same(n_whole, whole, n_part, part);
    }
    fm_comm_group_destroy(group);
}

static uint64_t counted(void) {
    fm_fallback all[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(all);
    return all[FM_FALLBACK_TRIANGLE].count;
}

/* A table with wide sums stands for a GPU's. The CPU's own has no faster way. */
static void composed_parts_are_counted(void **state) {
    (void)state;
    setup s = {.incoming = true};
    double *values;
    run(cpu(), &s, build_split, &values);
    free(values);
    assert_int_equal(counted(), 0);
    const fm_kernels own = *cpu();
    fm_kernels table = own;
    table.wide = &own;
    run(&table, &s, build_split, &values);
    free(values);
    assert_int_equal(counted(), 1);
    fm_fallback all[FM_FALLBACK_KINDS];
    fm_backend_fallbacks(all);
    assert_string_equal(all[FM_FALLBACK_TRIANGLE].text,
                        "triangle multiplication of 6 of 6 rows with c_z 4, c 3 runs composed, "
                        "about twice as slow");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_take_absent_biases_as_zeros),
        cmocka_unit_test(composed_parts_are_counted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
