/* test_units.c: every sublayer of the Evoformer, the pair stack and whole blocks compared with the
 * reference's values: outputs, gradients of inputs and of weights (af2_units.npz). */
#include "tests/trainer/common/op_check.h"

#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"
#include "trainer/model/evoformer.h"

typedef enum kind {
    ROW,
    COLUMN,
    GLOBAL_COLUMN,
    MSA_TRANSITION,
    OUTER,
    OUTGOING,
    INCOMING,
    STARTING,
    ENDING,
    PAIR_TRANSITION,
    PAIR_STACK,
    BLOCK,
    RECYCLE_MSA,
    RECYCLE_PAIR
} kind;

/* Sizes of the stacks of the file (af2_config.json). */
static const fm_model_config EVOFORMER = {.c_m = 32,
                                          .c_z = 16,
                                          .n_head_msa = 4,
                                          .c_head_msa = 8,
                                          .n_head_pair = 2,
                                          .c_head_pair = 8,
                                          .c_outer = 6,
                                          .c_triangle = 12,
                                          .transition_factor = 4};
static const fm_model_config EXTRA = {.c_m = 20,
                                      .c_z = 16,
                                      .n_head_msa = 4,
                                      .c_head_msa = 6,
                                      .n_head_pair = 2,
                                      .c_head_pair = 8,
                                      .c_outer = 5,
                                      .c_triangle = 10,
                                      .transition_factor = 4,
                                      .global_column = true};
static const fm_model_config TEMPLATE = {
    .c_z = 12, .n_head_pair = 2, .c_head_pair = 7, .c_triangle = 9, .transition_factor = 2};

/* In its pair stacks the reference runs the ending node as a starting node on the transposed array,
 * so the inputs of those units are transposed. Our sublayer reads z as it is, which the template
 * unit and the whole pair stacks and blocks verify. */
typedef struct unit {
    const char *name;
    kind kind;
    const fm_model_config *config;
} unit;

#define STACK(prefix, config)                                                                      \
    {prefix ".pair_stack.tri_mul_out", OUTGOING, &config},                                         \
        {prefix ".pair_stack.tri_mul_in", INCOMING, &config},                                      \
        {prefix ".pair_stack.tri_att_start", STARTING, &config},                                   \
        {prefix ".pair_stack.tri_att_end", STARTING, &config},                                     \
        {prefix ".pair_stack.pair_transition", PAIR_TRANSITION, &config},                          \
        {prefix ".pair_stack", PAIR_STACK, &config}, {prefix ".msa_att_row", ROW, &config},        \
        {prefix ".msa_transition", MSA_TRANSITION, &config}, {                                     \
        prefix ".outer_product_mean", OUTER, &config                                               \
    }

static const unit UNITS[] = {
    STACK("evoformer.blocks.0", EVOFORMER),
    {"evoformer.blocks.0.msa_att_col", COLUMN, &EVOFORMER},
    {"evoformer.blocks.0", BLOCK, &EVOFORMER},
    STACK("evoformer.blocks.1", EVOFORMER),
    {"evoformer.blocks.1.msa_att_col", COLUMN, &EVOFORMER},
    {"evoformer.blocks.1", BLOCK, &EVOFORMER},
    STACK("extra_msa_stack.blocks.0", EXTRA),
    {"extra_msa_stack.blocks.0.msa_att_col", GLOBAL_COLUMN, &EXTRA},
    {"extra_msa_stack.blocks.0", BLOCK, &EXTRA},
    {"template_embedder.template_pair_stack.blocks.0.tri_mul_out", OUTGOING, &TEMPLATE},
    {"template_embedder.template_pair_stack.blocks.0.tri_mul_in", INCOMING, &TEMPLATE},
    {"template_embedder.template_pair_stack.blocks.0.tri_att_start", STARTING, &TEMPLATE},
    {"template_embedder.template_pair_stack.blocks.0.tri_att_end", ENDING, &TEMPLATE},
    {"template_embedder.template_pair_stack.blocks.0.pair_transition", PAIR_TRANSITION, &TEMPLATE},
};

typedef struct run_state {
    unit unit;
    fm_evoformer_weights w;
    fm_tensor_ref second;
} run_state;

/* Inputs: 0 x, 1 mask of x, 2 z, 3 mask of z. */
static fm_tensor_ref build(fm_tape *tape, const fm_tensor_ref *in, const void *context) {
    run_state *s = (run_state *)(uintptr_t)context;
    const fm_model_config *config = s->unit.config;
    const fm_evoformer_weights *w = &s->w;
    const fm_tensor_ref none = FM_TENSOR_NONE;
    switch (s->unit.kind) {
    case ROW: return fm_op_attention(tape, "u", FM_AXIAL_ROW, in[0], in[1], in[2], &w->row, 0, 0);
    case COLUMN:
        return fm_op_attention(tape, "u", FM_AXIAL_COLUMN, in[0], in[1], none, &w->column, 0, 0);
    case GLOBAL_COLUMN:
        return fm_op_global_attention(tape, "u", in[0], in[1], &w->global_column, false);
    case STARTING:
        return fm_op_attention(tape, "u", FM_AXIAL_STARTING, in[0], in[1], none, &w->starting, 0,
                               0);
    case ENDING:
        return fm_op_attention(tape, "u", FM_AXIAL_ENDING, in[0], in[1], none, &w->ending, 0, 0);
    case MSA_TRANSITION:
        return fm_op_transition(tape, "u", in[0], &w->msa_transition, false, FM_KEEP);
    case PAIR_TRANSITION:
        return fm_op_transition(tape, "u", in[0], &w->pair_transition, false, FM_KEEP);
    case OUTER: return fm_op_outer_product_mean(tape, "u", in[0], in[1], none, &w->outer);
    case OUTGOING:
        return fm_op_triangle_multiplication(tape, "u", false, in[0], in[1], &w->outgoing, 0, 0);
    case INCOMING:
        return fm_op_triangle_multiplication(tape, "u", true, in[0], in[1], &w->incoming, 0, 0);
    case PAIR_STACK: {
        fm_split_mask mask = fm_split_mask_of(tape, config, in[1]);
        fm_recorder recorder = fm_recorder_of(tape, config, NULL, &mask);
        recorder.fuses = false;
        return fm_evoformer_pair_stack(&recorder, w, in[0]);
    }
    default: break;
    }
    fm_split_mask msa_mask = fm_split_mask_of(tape, config, in[1]);
    fm_split_mask pair_mask = fm_split_mask_of(tape, config, in[3]);
    fm_recorder recorder = fm_recorder_of(tape, config, &msa_mask, &pair_mask);
    recorder.fuses = false;
    fm_representations out =
        fm_evoformer_stack(&recorder, w, 0, 1, (fm_representations){in[0], in[2]});
    s->second = out.z;
    return out.m;
}

static void add_weights(op_bench *bench, run_state *s) {
    const fm_model_config *c = s->unit.config;
    fm_scope scope = {&bench->params, &bench->arena, "", "", "", -1, 0};
    fm_scope column = fm_scope_enter(&scope, "", "", "");
    int64_t heads = c->n_head_pair, width = c->c_head_pair, factor = c->transition_factor;
    fm_evoformer_weights *w = &s->w;
    switch (s->unit.kind) {
    case ROW:
        w->row =
            fm_scope_attention(&scope, FM_AXIAL_ROW, c->c_m, c->c_z, c->n_head_msa, c->c_head_msa);
        break;
    case COLUMN:
        w->column =
            fm_scope_attention(&column, FM_AXIAL_COLUMN, c->c_m, 0, c->n_head_msa, c->c_head_msa);
        break;
    case GLOBAL_COLUMN:
        w->global_column = fm_scope_global_attention(&column, c->c_m, c->n_head_msa, c->c_head_msa);
        break;
    case STARTING:
        w->starting = fm_scope_attention(&scope, FM_AXIAL_STARTING, c->c_z, c->c_z, heads, width);
        break;
    case ENDING:
        w->ending = fm_scope_attention(&scope, FM_AXIAL_ENDING, c->c_z, c->c_z, heads, width);
        break;
    case MSA_TRANSITION:
        w->msa_transition = fm_scope_transition(&scope, c->c_m, factor * c->c_m);
        break;
    case PAIR_TRANSITION:
        w->pair_transition = fm_scope_transition(&scope, c->c_z, factor * c->c_z);
        break;
    case OUTER: w->outer = fm_scope_outer(&scope, c->c_m, c->c_outer, c->c_z); break;
    case OUTGOING: w->outgoing = fm_scope_triangle(&scope, false, c->c_z, c->c_triangle); break;
    case INCOMING: w->incoming = fm_scope_triangle(&scope, true, c->c_z, c->c_triangle); break;
    default: *w = fm_scope_evoformer(&scope, c); break;
    }
}

/* -- the file */

static fm_arena file_arena;
static fm_npz units;

static const fm_npy *find(const unit *u, const char *part, const char *name) {
    char key[256];
    snprintf(key, sizeof key, "%s/%s%s", u->name, part, name);
    return fm_npz_find(&units, key);
}

/* The names of the pair stack are relative to the pair stack in its own unit. */
static const fm_npy *find_weight(const unit *u, const char *part, const char *name) {
    const char prefix[] = "pair_stack.";
    bool below = u->kind == PAIR_STACK && !strncmp(name, prefix, sizeof prefix - 1);
    return find(u, part, below ? name + sizeof prefix - 1 : name);
}

/* Makes the last `rank` axes of an array an input; returns its position, or -1 without an array. */
static int add_input(op_bench *bench, const fm_npy *array, int rank, bool differentiable) {
    if (!array) return -1;
    int64_t shape[3] = {0};
    for (int i = 0; i < rank; i++)
        shape[i] = (int64_t)array->shape[array->rank - (size_t)rank + (size_t)i];
    return op_input(bench, rank, shape, differentiable);
}

static void set_all(const op_bench *bench, void *data, const fm_npy *array) {
    assert_non_null(array);
    for (uint64_t i = 0; i < array->count; i++)
        op_set(bench, data, (int64_t)i, (double)((const float *)array->data)[i]);
}

/* ||a - b|| / ||b||. One gradient has the true value zero and noise in the file, since a softmax
 * ignores a bias that is the same for all keys. It is compared absolutely. */
static void expect_close(const op_bench *bench, const unit *u, const char *what, const void *data,
                         const fm_npy *array, double tolerance) {
    assert_non_null(array);
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        double a = op_get(bench, data, (int64_t)i), b = (double)((const float *)array->data)[i];
        difference += (a - b) * (a - b);
        norm += b * b;
    }
    double floor = strstr(what, "layer_norm_z.bias") ? 1 : 1e-3;
    double error = sqrt(difference) / fmax(sqrt(norm), floor);
    if (!(error < tolerance)) {
        print_error("%s %s: relative error %.3g, at most %.0e (norm %.3g)\n", u->name, what, error,
                    tolerance, sqrt(norm));
    }
    assert_true(error < tolerance);
}

static void add_inputs(op_bench *bench, const unit *u) {
    const fm_npy *x = find(u, "in.", "a0"), *mask = find(u, "in.", "mask");
    x = x ? x : find(u, "in.", "z");
    mask = mask ? mask : find(u, "in.", u->kind == PAIR_STACK ? "pair_mask" : "msa_mask");
    add_input(bench, x, 3, true);
    if (add_input(bench, mask, 2, false) < 0) {
        op_input(bench, 2, (int64_t[]){1, 1}, false); /* transitions are not masked */
    }
    if (u->kind == ROW || u->kind == BLOCK) {
        add_input(bench, find(u, "in.", u->kind == ROW ? "z" : "a1"), 3, true);
        add_input(bench, find(u, "in.", "pair_mask"), 2, false);
    }
}

static void load(op_bench *bench, const unit *u) {
    const fm_npy *x = find(u, "in.", "a0"), *mask = find(u, "in.", "mask");
    mask = mask ? mask : find(u, "in.", u->kind == PAIR_STACK ? "pair_mask" : "msa_mask");
    set_all(bench, op_input_data(bench, 0), x ? x : find(u, "in.", "z"));
    if (mask) set_all(bench, op_input_data(bench, 1), mask);
    if (u->kind == ROW || u->kind == BLOCK) {
        set_all(bench, op_input_data(bench, 2), find(u, "in.", u->kind == ROW ? "z" : "a1"));
    }
    if (u->kind == BLOCK) {
        set_all(bench, op_input_data(bench, 3), find(u, "in.", "pair_mask"));
        set_all(bench, fm_state_data(&bench->state, bench->second_gradient), find(u, "gout.", "1"));
    }
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        const fm_npy *array = find_weight(u, "w.", row->openfold);
        assert_true(array ||
                    u->kind == PAIR_STACK); /* the table of its weights has the MSA half as well */
        if (array) {
            assert_int_equal(array->count, fm_param_count(row));
            set_all(bench, fm_params_at(&bench->params, bench->params.master, row->offset), array);
        }
    }
    set_all(bench, fm_state_data(&bench->state, bench->output_gradient), find(u, "gout.", "0"));
}

static void compare(op_bench *bench, const unit *u) {
    expect_close(bench, u, "output", fm_tape_data(&bench->tape, bench->output_tensor),
                 find(u, "out.", "0"), 1e-5);
    if (u->kind == BLOCK) {
        expect_close(bench, u, "pair output", fm_tape_data(&bench->tape, *bench->second_output),
                     find(u, "out.", "1"), 1e-5);
    }
    fm_tape_backward(&bench->tape, NULL);
    const fm_npy *dx = find(u, "gin.", "a0");
    expect_close(bench, u, "input gradient", fm_tape_gradient(&bench->tape, bench->input_tensor[0]),
                 dx ? dx : find(u, "gin.", "z"), 1e-4);
    if (u->kind == ROW || u->kind == BLOCK) {
        expect_close(bench, u, "pair gradient",
                     fm_tape_gradient(&bench->tape, bench->input_tensor[2]),
                     find(u, "gin.", u->kind == ROW ? "z" : "a1"), 1e-4);
    }
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        const fm_npy *array = find_weight(u, "gw.", row->openfold);
        if (array) {
            expect_close(bench, u, row->openfold,
                         fm_params_at(&bench->params, bench->params.gradient, row->offset), array,
                         1e-4);
        }
    }
}

static void check_unit(const unit *u, fm_element element) {
    run_state s = {.unit = *u};
    op_bench bench;
    op_begin(&bench, element);
    add_inputs(&bench, u);
    add_weights(&bench, &s);
    if (u->kind == BLOCK) bench.second_output = &s.second;
    op_finish(&bench, build, &s);
    load(&bench, u);
    fm_tape_forward(&bench.tape, NULL);
    compare(&bench, u);
    op_end(&bench);
}

static void open_file(void) {
    char path[512];
    fm_error error;
    fm_bytes content;
    assert_int_equal(fm_arena_init(&file_arena, (size_t)1 << 30, NULL), FM_OK);
    fm_test_reference_path(path, sizeof path, "model/af2_units.npz");
    assert_int_equal(fm_file_read(&file_arena, path, (size_t)64 << 20, &content, &error), FM_OK);
    assert_int_equal(fm_npz_parse(&file_arena, content, &units, &error), FM_OK);
}

static void units_match_the_reference(void **state) {
    fm_element element = *(fm_element *)*state;
    if (!fm_test_reference()) {
        print_message("FM_REFERENCE_DATA is not set: skipped\n");
        skip();
    }
    if (!units.n_array) open_file();
    for (size_t i = 0; i < sizeof UNITS / sizeof UNITS[0]; i++)
        check_unit(&UNITS[i], element);
}

int main(void) {
    fm_element single = FM_ELEMENT_F32, twice = FM_ELEMENT_F64;
    const struct CMUnitTest tests[] = {
        {"units in f32", units_match_the_reference, NULL, NULL, &single},
        {"units in f64", units_match_the_reference, NULL, NULL, &twice},
    };
    int failures = cmocka_run_group_tests(tests, NULL, NULL);
    fm_arena_fini(&file_arena);
    return failures;
}
