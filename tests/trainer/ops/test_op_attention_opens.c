/* test_op_attention_opens.c: attention whose backward begins with the gradient of the sublayer's
 * update and multiplies it by the output projection itself. Only a GPU's table does that
 * (attention_opens), so the path of the ops is tested with a table that answers yes and composes
 * the entry of two entries of the CPU's table. Sublayers and stacks must have the outputs and
 * gradients of the CPU's table, to rounding. */
#include "tests/trainer/common/op_check.h"

#include "trainer/model/model.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/linear_update.h"

/* -- the table */

static int n_opened; /* calls of the composed entry */

static const fm_kernels *cpu(void) {
    return fm_kernels_cpu(FM_ELEMENT_F64);
}

static int64_t rows_of(const fm_attention *a) {
    return a->n_group * a->n_batch * a->n_query;
}

static bool opens(const fm_attention *a, int64_t c_y) {
    return c_y == a->n_head * a->c_head;
}

/* dout = dy w, where both have the rows of o in memory. */
static fm_gemm product(const fm_attention *a, const fm_attention_grad *grad, void *dout) {
    int64_t width = a->n_head * a->c_head;
    return (fm_gemm){.m = rows_of(a),
                     .n = width,
                     .k = width,
                     .batch = 1,
                     .alpha = 1,
                     .a = grad->dy,
                     .b = grad->w,
                     .c = dout,
                     .lda = width,
                     .ldb = width,
                     .ldc = width};
}

static size_t aligned(size_t bytes) {
    return (bytes + 63) & ~(size_t)63;
}

static size_t dout_bytes(const fm_attention *a) {
    return aligned((size_t)(rows_of(a) * a->n_head * a->c_head) * sizeof(double));
}

/* dout, the workspace of the product, then that of the attention. */
static size_t opening_workspace(const fm_attention *a) {
    fm_gemm g = product(a, &(fm_attention_grad){0}, NULL);
    return dout_bytes(a) + aligned(cpu()->gemm_workspace(&g)) + cpu()->attention_grad_workspace(a);
}

static void opening_grad(fm_stream *stream, const fm_attention *a, const fm_attention_grad *grad,
                         void *workspace) {
    assert_true(!grad->dout == (grad->dy && grad->w));
    fm_attention_grad composed = *grad;
    if (!grad->dout) {
        assert_true(a->bias && opens(a, a->n_head * a->c_head));
        n_opened++;
        fm_gemm g = product(a, grad, workspace);
        char *rest = (char *)workspace + dout_bytes(a);
        cpu()->gemm(stream, &g, rest);
        composed.dout = workspace;
        workspace = rest + aligned(cpu()->gemm_workspace(&g));
    }
    cpu()->attention_grad(stream, a, &composed, workspace);
}

static const fm_kernels *opening_table(void) {
    static fm_kernels k;
    k = *cpu();
    k.name = "cpu-f64-opens";
    k.attention_opens = opens;
    k.attention_grad_workspace = opening_workspace;
    k.attention_grad = opening_grad;
    return &k;
}

/* -- comparing */

static void run(op_bench *bench) {
    fm_tape_forward(&bench->tape, NULL);
    fm_tape_backward(&bench->tape, NULL);
    assert_int_equal(fm_tape_used_bytes(&bench->tape), bench->tape.size.arena_bytes);
}

static void assert_near(const double *found, const double *expected, int64_t n) {
    double size = 0, difference = 0;
    for (int64_t i = 0; i < n; i++) {
        assert_true(isfinite(found[i]));
        size = fmax(size, fabs(expected[i]));
        difference = fmax(difference, fabs(found[i] - expected[i]));
    }
    assert_true(size > 0 && difference <= 1e-12 * size);
}

static void assert_near_tensors(const op_bench *found, fm_tensor_ref f, const op_bench *expected,
                                fm_tensor_ref e) {
    assert_near(fm_tape_data(&found->tape, f), fm_tape_data(&expected->tape, e),
                fm_tensor_local_count(fm_tape_tensor(&expected->tape, e)));
}

static void assert_near_gradients(const op_bench *found, const op_bench *expected) {
    for (int i = 0; i < expected->n_input; i++) {
        if (!expected->differentiable[i]) continue;
        assert_near(fm_tape_gradient(&found->tape, found->input_tensor[i]),
                    fm_tape_gradient(&expected->tape, expected->input_tensor[i]),
                    op_input_count(expected, i));
    }
    for (int32_t b = 0; b < expected->params.n_block; b++) {
        const fm_param_block *block = &expected->params.block[b];
        assert_near((const double *)found->params.gradient + block->offset,
                    (const double *)expected->params.gradient + block->offset, block->count);
    }
}

/* -- one sublayer */

enum { N_GROUP = 2, N_ROW = 3, N_RES = 6, N_HEAD = 2, C_HEAD = 4, C = N_HEAD * C_HEAD };

typedef enum sublayer_form {
    ONE_NODE,
    TWO_NODES, /* attention and linear_update; the normed result has no reader */
    TWO_NODES_NORMED,
    N_FORM
} sublayer_form;

typedef struct sublayer {
    fm_axial axial;
    sublayer_form form;
    bool grouped, has_biases, residual;
    bool projects_again; /* backward computes q k v g again and nothing else */
    bool recomputes;     /* all nodes in one segment */
    double dropout;
    fm_attention_weights weights;
    fm_param_ref next;
    bool passes_update; /* what the builder found */
    fm_tensor_ref normed;
} sublayer;

static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    sublayer *s = (sublayer *)context;
    fm_attention_weights w = s->weights;
    fm_tensor_ref z = s->axial == FM_AXIAL_ROW ? in[2] : FM_TENSOR_NONE, y;
    fm_tape_begin_segment(tape, s->recomputes);
    if (s->form == ONE_NODE) {
        y = fm_op_attention(tape, "sublayer", s->axial, in[0], in[1], z, &w, s->residual,
                            s->dropout);
    } else {
        fm_linear_update_weights end = {.w = w.out, .bias = w.out_bias, .next = s->next};
        w.out_bias = FM_PARAM_NONE;
        w.opens = s->dropout > 0 && fm_attention_opens(tape, s->axial, in[0], &w);
        if (!w.opens) w.out = FM_PARAM_NONE;
        end.passes_update = s->passes_update = w.opens;
        fm_tensor_ref o = fm_op_attention(tape, "gated", s->axial, in[0], in[1], z, &w, false, 0);
        fm_normed sum =
            fm_op_linear_update(tape, "sum", in[0], o, &end, s->dropout,
                                s->axial == FM_AXIAL_ENDING ? FM_SHARED_AXIS1 : FM_SHARED_AXIS0);
        s->normed = sum.n;
        y = sum.x;
    }
    fm_tape_end_segment(tape);
    return y;
}

static void begin(op_bench *bench, sublayer *s, const fm_kernels *kernels) {
    op_begin(bench, FM_ELEMENT_F64);
    bench->kernels = kernels;
    bool row = s->axial == FM_AXIAL_ROW, pairs = !row && s->axial != FM_AXIAL_COLUMN;
    const int64_t x[] = {N_GROUP, pairs ? N_RES : N_ROW, N_RES, C};
    op_input(bench, s->grouped ? 4 : 3, s->grouped ? x : x + 1, true);
    op_input(bench, 2, x + 1, false);
    if (row) op_input(bench, 3, (int64_t[]){N_RES, N_RES, 5}, true);
    s->weights = (fm_attention_weights){
        .norm = op_block(bench, 2, C),
        .qkvg = op_block(bench, 4 * C, C),
        .gate_bias = s->has_biases ? op_block_after_zeros(bench, 3 * C, C, 0) : FM_PARAM_NONE,
        .q_bias = FM_PARAM_NONE,
        .out = op_block(bench, C, C),
        .out_bias = s->has_biases ? op_block(bench, C, 0) : FM_PARAM_NONE,
        .bias = s->axial == FM_AXIAL_COLUMN ? FM_PARAM_NONE : op_block(bench, N_HEAD, row ? 5 : C),
        .norm_z = row ? op_block(bench, 2, 5) : FM_PARAM_NONE,
        .n_head = N_HEAD,
        .c_head = C_HEAD,
        .keep_qkvg = s->projects_again ? FM_RECOMPUTE : FM_KEEP};
    s->next = s->form == TWO_NODES_NORMED ? op_block(bench, 2, C) : FM_PARAM_NONE;
    if (s->form == TWO_NODES_NORMED) bench->second_output = &s->normed;
    op_finish(bench, build, s);
    op_fill_mask(bench, 1, 31);
    if (!bench->second_output) return;
    double *dn = fm_state_data(&bench->state, bench->second_gradient);
    for (int64_t k = 0; k < op_input_count(bench, 0); k++)
        dn[k] = op_uniform(89, k);
}

/* Whether a sublayer opens: one with a bias of pairs; in two nodes only with dropout, since without
 * it the update's gradient is that of the sum and needs no array. */
static bool should_open(const sublayer *s) {
    return s->axial != FM_AXIAL_COLUMN && (s->form == ONE_NODE || s->dropout > 0);
}

static void compare(const sublayer *s) {
    op_bench plain, opened;
    sublayer a = *s, b = *s;
    begin(&plain, &a, cpu());
    begin(&opened, &b, opening_table());
    n_opened = 0;
    run(&plain);
    assert_int_equal(n_opened, 0);
    run(&opened);
    assert_int_equal(n_opened, should_open(s));
    assert_false(a.passes_update);
    assert_int_equal(b.passes_update, s->form != ONE_NODE && should_open(s));
    assert_near_tensors(&opened, opened.output_tensor, &plain, plain.output_tensor);
    if (s->form == TWO_NODES_NORMED) assert_near_tensors(&opened, b.normed, &plain, a.normed);
    assert_near_gradients(&opened, &plain);
    op_end(&plain);
    op_end(&opened);
}

static void sublayers_are_those_of_the_plain_table(void **state) {
    (void)state;
    enum { GROUPED = 1, BIASES = 2, DROPS = 4, PROJECTS = 8, RECOMPUTES = 16, ALL = 32 };
    for (int axial = 0; axial <= FM_AXIAL_ENDING; axial++) {
        for (int form = 0; form < N_FORM; form++) {
            for (int way = 0; way < ALL; way++) {
                bool pairs = axial == FM_AXIAL_STARTING || axial == FM_AXIAL_ENDING;
                if (way & GROUPED && !pairs) continue;
                sublayer s = {.axial = (fm_axial)axial,
                              .form = (sublayer_form)form,
                              .grouped = way & GROUPED,
                              .has_biases = way & BIASES,
                              .dropout = way & DROPS ? 0.25 : 0,
                              .projects_again = way & PROJECTS,
                              .recomputes = way & RECOMPUTES};
                compare(&s);
                s.residual = true;
                if (form == ONE_NODE) compare(&s);
            }
        }
    }
}

static void gradients_match_differences(void **state) {
    (void)state;
    static const fm_axial axials[] = {FM_AXIAL_ROW, FM_AXIAL_STARTING, FM_AXIAL_ENDING};
    for (int i = 0; i < 6; i++) {
        sublayer s = {.axial = axials[i / 2],
                      .form = i % 2 ? TWO_NODES : ONE_NODE,
                      .has_biases = true,
                      .residual = true,
                      .dropout = 0.25};
        op_bench bench;
        begin(&bench, &s, opening_table());
        n_opened = 0;
        op_check_gradients(&bench);
        assert_true(n_opened > 0);
        op_end(&bench);
    }
}

/* -- stacks, as the model records them */

enum { N_BLOCK = 2, N_POLICY = FM_RECOMPUTE_BLOCK + 1, N_ORDER = FM_ORDER_PARALLEL + 1 };

typedef struct stack {
    fm_model_config config;
    fm_evoformer_weights w[N_BLOCK];
    bool fuses;
    fm_tensor_ref z;
} stack;

static fm_tensor_ref build_stack(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    stack *s = (stack *)context;
    fm_split_mask msa = fm_split_mask_of(tape, &s->config, in[2]),
                  pair = fm_split_mask_of(tape, &s->config, in[3]);
    fm_recorder recorder = fm_recorder_of(tape, &s->config, &msa, &pair);
    recorder.fuses = s->fuses;
    fm_representations x =
        fm_evoformer_stack(&recorder, s->w, 0, N_BLOCK, (fm_representations){in[0], in[1]});
    s->z = x.z;
    return x.m;
}

static void begin_stack(op_bench *bench, stack *s, const fm_kernels *kernels) {
    op_begin(bench, FM_ELEMENT_F64);
    bench->kernels = kernels;
    for (int i = 0; i < N_BLOCK; i++) {
        fm_scope scope = {&bench->params, &bench->arena, "", "", "", -1, 0};
        s->w[i] = fm_scope_evoformer(&scope, &s->config);
    }
    op_input(bench, 3, (int64_t[]){N_ROW, N_RES, C}, true);
    op_input(bench, 3, (int64_t[]){N_RES, N_RES, C}, true);
    op_input(bench, 2, (int64_t[]){N_ROW, N_RES}, false);
    op_input(bench, 2, (int64_t[]){N_RES, N_RES}, false);
    bench->second_output = &s->z;
    op_finish(bench, build_stack, s);
    op_fill_mask(bench, 2, 5);
    op_fill_mask(bench, 3, 6);
    double *dz = fm_state_data(&bench->state, bench->second_gradient);
    for (int64_t k = 0; k < op_input_count(bench, 1); k++)
        dz[k] = op_uniform(89, k);
}

static stack stack_of(int order, int policy, bool drops, bool fuses) {
    return (stack){.fuses = fuses,
                   .config = {.n_res = N_RES,
                              .n_seq = N_ROW,
                              .n_block = N_BLOCK,
                              .c_m = C,
                              .c_z = C,
                              .n_head_msa = N_HEAD,
                              .c_head_msa = C_HEAD,
                              .n_head_pair = N_HEAD,
                              .c_head_pair = C_HEAD,
                              .c_outer = 3,
                              .c_triangle = 6,
                              .transition_factor = 2,
                              .dropout_msa = drops ? 0.15 : 0,
                              .dropout_pair = drops ? 0.25 : 0,
                              .order = (fm_block_order)order,
                              .recompute = (fm_recompute_policy)policy}};
}

/* With dropout or without fusing, the row, starting and ending attention of each block open. */
static void stacks_are_those_of_the_plain_table(void **state) {
    (void)state;
    for (int way = 0; way < 4 * N_POLICY * N_ORDER; way++) {
        bool drops = way & 1, fuses = way & 2;
        int policy = way / 4 % N_POLICY, order = way / 4 / N_POLICY;
        stack a = stack_of(order, policy, drops, fuses), b = a;
        op_bench plain, opened;
        begin_stack(&plain, &a, cpu());
        begin_stack(&opened, &b, opening_table());
        run(&plain);
        n_opened = 0;
        run(&opened);
        assert_int_equal(n_opened, drops || !fuses ? 3 * N_BLOCK : 0);
        assert_near_tensors(&opened, opened.output_tensor, &plain, plain.output_tensor);
        assert_near_tensors(&opened, b.z, &plain, a.z);
        assert_near_gradients(&opened, &plain);
        op_end(&plain);
        op_end(&opened);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sublayers_are_those_of_the_plain_table),
        cmocka_unit_test(gradients_match_differences),
        cmocka_unit_test(stacks_are_those_of_the_plain_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
