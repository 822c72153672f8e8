/* test_stacks.c: the modules that update the pair array before the Evoformer: templates and the
 * extra MSA. Ops are compared with central differences, whole stacks with the reference's run of a
 * tiny model. */
#include "tests/trainer/common/golden.h"

#include "trainer/model/model.h"

/* -- global column attention */

typedef struct setup {
    fm_global_attention_weights w;
    bool residual;
} setup;

static fm_tensor_ref build_global(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    const setup *s = data;
    return fm_op_global_attention(tape, "global", in[0], in[1], &s->w, s->residual);
}

static void begin_global(op_bench *bench, setup *s, const int64_t shape[3], int64_t n_head,
                         int64_t c_head) {
    int64_t width = n_head * c_head, c = shape[2];
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, shape, true);
    op_input(bench, 2, shape, false);
    s->w = (fm_global_attention_weights){.norm = op_block(bench, 2, c),
                                         .q = op_block(bench, width, c),
                                         .kvg = op_block(bench, 2 * c_head + width, c),
                                         .gate_bias =
                                             op_block_after_zeros(bench, 2 * c_head, width, 0),
                                         .out = op_block(bench, c, width),
                                         .out_bias = op_block(bench, c, 0),
                                         .n_head = n_head,
                                         .c_head = c_head};
}

static void global_attention_gradients_match_differences(void **state) {
    (void)state;
    static const struct {
        int64_t shape[3], n_head, c_head;
    } cases[] = {{{5, 3, 7}, 2, 3}, {{1, 1, 3}, 1, 1}, {{4, 2, 12}, 8, 8}, {{7, 1, 5}, 1, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int residual = 0; residual < 2; residual++) {
            setup s = {.residual = residual};
            op_bench bench;
            begin_global(&bench, &s, cases[i].shape, cases[i].n_head, cases[i].c_head);
            op_finish(&bench, build_global, &s);
            op_fill_mask(&bench, 1, 21);
            op_check_gradients(&bench);
            op_end(&bench);
        }
    }
}

/* A masked row changes no other row's result. */
static void masked_rows_do_not_leak(void **state) {
    (void)state;
    enum { N_SEQ = 4, N_RES = 3, C = 5 };
    setup s = {.residual = true};
    op_bench bench;
    begin_global(&bench, &s, (int64_t[]){N_SEQ, N_RES, C}, 2, 3);
    op_finish(&bench, build_global, &s);
    double seen[2][(N_SEQ - 1) * N_RES * C];
    for (int64_t k = 0; k < N_SEQ * N_RES; k++)
        op_set(&bench, op_input_data(&bench, 1), k, k < (N_SEQ - 1) * N_RES);
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t k = (N_SEQ - 1) * N_RES * C; pass && k < N_SEQ * N_RES * C; k++)
            op_set(&bench, op_input_data(&bench, 0), k, 3 * op_uniform(31, k));
        fm_tape_forward(&bench.tape, NULL);
        memcpy(seen[pass], fm_tape_data(&bench.tape, bench.output_tensor), sizeof seen[pass]);
    }
    assert_memory_equal(seen[0], seen[1], sizeof seen[0]);
    op_end(&bench);
}

/* -- template ops */

typedef enum template_part { PART_PAIR, PART_PAIRS, PART_ATTENTION, PART_ROWS } template_part;

typedef struct template_setup {
    template_part part;
    int64_t n, n_templ, c_t, c_z, n_head, c_head;
    bool residual;
    bool stacked; /* attention: one input [N_templ, N_res, N_res, c_t] */
    fm_template_pair_weights pair;
    fm_template_attention_weights attention;
    fm_template_row_weights rows;
} template_setup;

/* Odd, of size one, and at AlphaFold2's head width; the parts share them. */
static const template_setup TEMPLATE_SHAPES[] = {
    {.n = 5, .n_templ = 3, .c_t = 3, .c_z = 4, .n_head = 2, .c_head = 3},
    {.n = 1, .n_templ = 1, .c_t = 1, .c_z = 2, .n_head = 1, .c_head = 1},
    {.n = 3, .n_templ = 2, .c_t = 8, .c_z = 8, .n_head = 4, .c_head = 16},
};
enum { N_TEMPLATE_SHAPE = sizeof TEMPLATE_SHAPES / sizeof TEMPLATE_SHAPES[0] };

static template_setup setup_of(template_part part, int shape) {
    template_setup s = TEMPLATE_SHAPES[shape];
    s.part = part;
    return s;
}

static fm_tensor_ref build_template(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    const template_setup *s = data;
    if (s->part == PART_PAIR || s->part == PART_PAIRS) {
        const fm_template_pair_inputs inputs = {in[0], in[1], in[2], in[3]};
        if (s->part == PART_PAIRS) {
            return fm_op_template_pairs(tape, &inputs, &s->pair, (fm_part){0, 1});
        }
        return fm_op_template_pair(tape, &inputs, s->n_templ - 1, &s->pair, (fm_part){0, 1});
    }
    if (s->part == PART_ROWS) return fm_op_template_rows(tape, in[0], in[1], &s->rows);
    return fm_op_template_attention(tape, in[0], in + 3, s->stacked ? 1 : (int)s->n_templ, in[1],
                                    in[2], &s->attention, s->residual);
}

static void check_template_pair(template_setup *s) {
    const int64_t rows[] = {s->n_templ, s->n}, points[] = {s->n_templ, s->n, 3};
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F64);
    op_input_of(&bench, FM_ELEMENT_U8, 2, rows, false);
    op_input_of(&bench, FM_ELEMENT_F32, 3, points, false);
    op_input(&bench, 2, rows, false);
    op_input(&bench, 2, rows, false);
    s->pair = (fm_template_pair_weights){op_block(&bench, s->c_t, FM_TEMPLATE_PAIR_FEATURES),
                                         op_block(&bench, s->c_t, 0), s->c_t};
    op_finish(&bench, build_template, s);
    for (int64_t k = 0; k < s->n_templ * s->n; k++) {
        ((uint8_t *)op_input_data(&bench, 0))[k] = (uint8_t)(k % FM_TEMPLATE_CLASSES);
        for (int64_t a = 0; a < 3; a++) {
            ((float *)op_input_data(&bench, 1))[3 * k + a] =
                (float)(20 * op_uniform(41, 3 * k + a));
        }
    }
    op_fill_mask(&bench, 2, 42);
    op_fill_mask(&bench, 3, 43);
    op_check_gradients(&bench);
    op_end(&bench);
}

static void template_pair_gradients_match_differences(void **state) {
    (void)state;
    for (int i = 0; i < 2 * N_TEMPLATE_SHAPE; i++) {
        template_setup s = setup_of(i % 2 ? PART_PAIRS : PART_PAIR, i / 2);
        check_template_pair(&s);
    }
}

static void begin_template_attention(op_bench *bench, template_setup *s) {
    int64_t width = s->n_head * s->c_head;
    op_begin(bench, FM_ELEMENT_F64);
    op_input(bench, 3, (int64_t[]){s->n, s->n, s->c_z}, true);
    op_input(bench, 1, (int64_t[]){s->n_templ}, false);
    op_input(bench, 1, (int64_t[]){1}, false);
    for (int t = 0; t < s->n_templ && !s->stacked; t++)
        op_input(bench, 3, (int64_t[]){s->n, s->n, s->c_t}, true);
    if (s->stacked) op_input(bench, 4, (int64_t[]){s->n_templ, s->n, s->n, s->c_t}, true);
    s->attention = (fm_template_attention_weights){.norm = op_block(bench, 2, s->c_t),
                                                   .q = op_block(bench, width, s->c_z),
                                                   .kv = op_block(bench, 2 * width, s->c_t),
                                                   .out = op_block(bench, s->c_z, width),
                                                   .out_bias = op_block(bench, s->c_z, 0),
                                                   .n_head = s->n_head,
                                                   .c_head = s->c_head};
    op_finish(bench, build_template, s);
}

static void template_attention_gradients_match_differences(void **state) {
    (void)state;
    for (int i = 0; i < 4 * N_TEMPLATE_SHAPE; i++) {
        template_setup s = setup_of(PART_ATTENTION, i / 4);
        op_bench bench;
        s.residual = i % 2;
        s.stacked = i / 2 % 2;
        begin_template_attention(&bench, &s);
        for (int t = 0; t < s.n_templ; t++)
            op_set(&bench, op_input_data(&bench, 1), t, t != 1);
        op_set(&bench, op_input_data(&bench, 2), 0, 1);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* Without a template z passes through unchanged, and no parameter of the module has a gradient. */
static void no_template_is_no_update(void **state) {
    (void)state;
    template_setup s = setup_of(PART_ATTENTION, 0);
    op_bench bench;
    s.residual = true;
    begin_template_attention(&bench, &s);
    memset(op_input_data(&bench, 1), 0, (size_t)s.n_templ * sizeof(double));
    memset(op_input_data(&bench, 2), 0, sizeof(double));
    fm_tape_forward(&bench.tape, NULL);
    assert_memory_equal(fm_tape_data(&bench.tape, bench.output_tensor), op_input_data(&bench, 0),
                        (size_t)(s.n * s.n * s.c_z) * sizeof(double));
    fm_tape_backward(&bench.tape, NULL);
    for (int64_t k = 0; k < bench.params.n_element; k++)
        assert_true(((const double *)bench.params.gradient)[k] == 0);
    op_end(&bench);
}

static void template_row_gradients_match_differences(void **state) {
    (void)state;
    for (int shape = 0; shape < N_TEMPLATE_SHAPE; shape++) {
        template_setup s = setup_of(PART_ROWS, shape);
        op_bench bench;
        op_begin(&bench, FM_ELEMENT_F64);
        op_input(&bench, 3, (int64_t[]){2, s.n, s.c_z}, true);
        op_input(&bench, 3, (int64_t[]){s.n_templ, s.n, FM_TEMPLATE_ROW_FEATURES}, true);
        s.rows = (fm_template_row_weights){
            op_block(&bench, s.c_z, FM_TEMPLATE_ROW_FEATURES), op_block(&bench, s.c_z, 0),
            op_block(&bench, s.c_z, s.c_z), op_block(&bench, s.c_z, 0), s.c_z};
        op_finish(&bench, build_template, &s);
        op_check_gradients(&bench);
        op_end(&bench);
    }
}

/* -- against the reference */

enum { N_RES = 16, N_CLUST = 8, N_EXTRA = 12, N_TEMPL = 2, C_M = 32, C_Z = 16 };

static fm_model_config config_of(bool outer_first) {
    return (fm_model_config){.n_res = N_RES,
                             .n_seq = N_CLUST,
                             .n_extra = N_EXTRA,
                             .n_block = 2,
                             .c_m = C_M,
                             .c_z = C_Z,
                             .c_s = 24,
                             .n_head_msa = 4,
                             .c_head_msa = 8,
                             .n_head_pair = 2,
                             .c_head_pair = 8,
                             .c_outer = 6,
                             .c_triangle = 12,
                             .transition_factor = 4,
                             .n_extra_block = outer_first ? 2 : 1,
                             .c_e = 20,
                             .c_head_extra = 6,
                             .c_outer_extra = 5,
                             .c_triangle_extra = 10,
                             .n_template = N_TEMPL,
                             .n_template_block = 1,
                             .c_t = 12,
                             .n_head_template = 2,
                             .c_head_template = 7,
                             .c_triangle_template = 9,
                             .template_transition_factor = 2,
                             .n_head_pointwise = 2,
                             .c_head_pointwise = 6,
                             .relpos_k = 32,
                             .n_distogram_bin = 64,
                             .n_recycle_bin = 15,
                             .order = outer_first ? FM_ORDER_OUTER_FIRST : FM_ORDER_ORIGINAL};
}

typedef struct model {
    fm_model_config config;
    fm_model_weights w;
} model;

static fm_tensor_ref build_extra(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    const model *m = data;
    fm_split_mask mask = fm_split_mask_of(tape, &m->config, in[3]);
    return fm_model_extra_msa(tape, &m->config, &m->w, in[0], in[1], in[2], &mask);
}

/* Sums arrays into an input. */
static void load_sum(const op_bench *bench, void *data, const golden *g, const char *const *names) {
    for (int n = 0; names[n]; n++) {
        const fm_npy *array = golden_find(g, "act/", names[n]);
        for (uint64_t i = 0; i < array->count; i++) {
            double before = n ? op_get(bench, data, (int64_t)i) : 0;
            op_set(bench, data, (int64_t)i, before + golden_value(array, i));
        }
    }
}

/* The 25 columns of A2:14 from the reference's separate arrays. */
static void load_features(const op_bench *bench, void *data, const golden *g) {
    const fm_npy *msa = golden_find(g, "in/", "extra_msa");
    const fm_npy *has = golden_find(g, "in/", "extra_has_deletion");
    const fm_npy *value = golden_find(g, "in/", "extra_deletion_value");
    for (uint64_t k = 0; k < N_EXTRA * N_RES; k++) {
        int64_t row = (int64_t)k * FM_EXTRA_MSA_FEATURES;
        for (int64_t i = 0; i < FM_MSA_CLASSES; i++)
            op_set(bench, data, row + i, (double)i == golden_value(msa, k));
        op_set(bench, data, row + 23, golden_value(has, k));
        op_set(bench, data, row + 24, golden_value(value, k));
    }
}

static void load_pair_mask(const op_bench *bench, void *data, const golden *g) {
    const fm_npy *mask = golden_find(g, "in/", "seq_mask");
    for (uint64_t i = 0; i < N_RES * N_RES; i++) {
        op_set(bench, data, (int64_t)i,
               golden_value(mask, i / N_RES) * golden_value(mask, i % N_RES));
    }
}

/* The true gradient of some parameters (a bias that all keys share) is zero, so the file has
 * rounding noise there; the floor makes those comparisons absolute. */
static void expect_module(const op_bench *bench, const golden *g, const char *module) {
    int compared = 0;
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        if (!strncmp(row->openfold, module, strlen(module))) {
            golden_expect(bench, row->openfold,
                          fm_params_at(&bench->params, bench->params.gradient, row->offset),
                          golden_find(g, "grad/", row->openfold), 1, 1e-4,
                          strstr(row->openfold, "layer_norm_z.bias") ? 1 : 1e-2);
            compared++;
        }
    }
    assert_true(compared > 0);
}

static void check_extra_msa(const char *file, bool outer_first, fm_element element) {
    static const char *const before[] = {"input_embedder@0.1", "recycling_embedder@0.1",
                                         "template_embedder@0.template_pair_embedding", NULL};
    static model m;
    golden g;
    golden_open(&g, file);
    m.config = config_of(outer_first);
    op_bench bench;
    op_begin(&bench, element);
    fm_model_add_parameters(&bench.params, &bench.arena, &m.config, &m.w);
    op_input(&bench, 3, (int64_t[]){N_EXTRA, N_RES, FM_EXTRA_MSA_FEATURES}, false);
    op_input(&bench, 2, (int64_t[]){N_EXTRA, N_RES}, false);
    op_input(&bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
    op_input(&bench, 2, (int64_t[]){N_RES, N_RES}, false);
    op_finish(&bench, build_extra, &m);
    golden_load_parameters(&bench, &g, "w/");
    load_features(&bench, op_input_data(&bench, 0), &g);
    golden_load(&bench, op_input_data(&bench, 1), golden_find(&g, "in/", "extra_msa_mask"));
    load_sum(&bench, op_input_data(&bench, 2), &g, before);
    load_pair_mask(&bench, op_input_data(&bench, 3), &g);
    golden_load(&bench, fm_state_data(&bench.state, bench.output_gradient),
                golden_find(&g, "dact/", "extra_msa_stack@0.0"));
    fm_tape_forward(&bench.tape, NULL);
    golden_expect(&bench, "z", fm_tape_data(&bench.tape, bench.output_tensor),
                  golden_find(&g, "act/", "extra_msa_stack@0"), 1, 1e-5, 1e-3);
    fm_tape_backward(&bench.tape, NULL);
    expect_module(&bench, &g, "extra_msa_");
    op_end(&bench);
    golden_close(&g);
}

static void the_extra_msa_stack_matches(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++) {
        fm_element element = wide ? FM_ELEMENT_F64 : FM_ELEMENT_F32;
        check_extra_msa("model/af2.npz", false, element);
        check_extra_msa("model/opm_first.npz", true, element);
    }
}

/* Inputs of build_templates. */
enum {
    T_IN_Z,
    T_IN_M,
    T_IN_PAIR_MASK,
    T_IN_AATYPE,
    T_IN_BETA,
    T_IN_BETA_MASK,
    T_IN_BACKBONE,
    T_IN_MASK_AND_ANY
};

typedef struct template_model {
    model m;
    fm_model_inputs inputs;
    bool together;    /* one node for all templates */
    int32_t torsions; /* in the state */
    fm_tensor_ref rows;
} template_model;

static fm_tensor_ref build_templates(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    template_model *t = (template_model *)(uintptr_t)data;
    t->rows = fm_op_template_rows(tape, in[T_IN_M], fm_tape_state(tape, t->torsions, false),
                                  &t->m.w.template_rows);
    fm_split_mask mask = fm_split_mask_of(tape, &t->m.config, in[T_IN_PAIR_MASK]);
    return fm_model_template_pairs(tape, &t->m.config, &t->m.w, &t->inputs, in[T_IN_Z], &mask,
                                   t->together);
}

static void declare_template_inputs(op_bench *bench, template_model *t) {
    const int64_t rows[] = {N_TEMPL, N_RES};
    op_input(bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
    op_input(bench, 3, (int64_t[]){N_CLUST, N_RES, C_M}, true);
    op_input(bench, 2, (int64_t[]){N_RES, N_RES}, false);
    op_input_of(bench, FM_ELEMENT_U8, 2, rows, false);
    op_input_of(bench, FM_ELEMENT_F32, 3, (int64_t[]){N_TEMPL, N_RES, 3}, false);
    op_input(bench, 2, rows, false);
    op_input(bench, 2, rows, false);
    op_input(bench, 1, (int64_t[]){N_TEMPL}, false);
    fm_element act = bench->kernels->act;
    t->inputs = (fm_model_inputs){.template_aatype = bench->input[T_IN_AATYPE],
                                  .template_pseudo_beta = bench->input[T_IN_BETA],
                                  .template_pseudo_beta_mask = bench->input[T_IN_BETA_MASK],
                                  .template_backbone_mask = bench->input[T_IN_BACKBONE],
                                  .template_mask = bench->input[T_IN_MASK_AND_ANY],
                                  .template_any =
                                      fm_state_add(&bench->state, "any", act, 1, (int64_t[]){1})};
    t->torsions = fm_state_add(&bench->state, "torsions", act, 3,
                               (int64_t[]){N_TEMPL, N_RES, FM_TEMPLATE_ROW_FEATURES});
}

/* One-hot type (22) | sines and cosines (14) | those of the alternative naming (14) | masks (7). */
static void load_torsions(const op_bench *bench, void *data, const golden *g) {
    static const struct {
        const char *name;
        int64_t first, count;
    } parts[] = {{"template_torsion_angles_sin_cos", 22, 14},
                 {"template_alt_torsion_angles_sin_cos", 36, 14},
                 {"template_torsion_angles_mask", 50, 7}};
    const fm_npy *aatype = golden_find(g, "in/", "template_aatype");
    for (int64_t k = 0; k < N_TEMPL * N_RES; k++) {
        int64_t row = k * FM_TEMPLATE_ROW_FEATURES;
        for (int64_t i = 0; i < FM_TEMPLATE_CLASSES; i++)
            op_set(bench, data, row + i, (double)i == golden_value(aatype, (uint64_t)k));
        for (int p = 0; p < 3; p++) {
            const fm_npy *part = golden_find(g, "in/", parts[p].name);
            for (int64_t i = 0; i < parts[p].count; i++) {
                op_set(bench, data, row + parts[p].first + i,
                       golden_value(part, (uint64_t)(k * parts[p].count + i)));
            }
        }
    }
}

static void load_template_inputs(op_bench *bench, const template_model *t, const golden *g) {
    static const char *const before[] = {"input_embedder@0.1", "recycling_embedder@0.1", NULL};
    const fm_npy *aatype = golden_find(g, "in/", "template_aatype");
    const fm_npy *atoms = golden_find(g, "in/", "template_all_atom_mask");
    const fm_npy *mask = golden_find(g, "in/", "template_mask");
    load_sum(bench, op_input_data(bench, T_IN_Z), g, before);
    load_pair_mask(bench, op_input_data(bench, T_IN_PAIR_MASK), g);
    for (uint64_t k = 0; k < N_TEMPL * N_RES; k++) {
        ((uint8_t *)op_input_data(bench, T_IN_AATYPE))[k] = (uint8_t)golden_value(aatype, k);
        double backbone = 1;
        for (uint64_t atom = 0; atom < 3; atom++) /* N, CA, C */
            backbone *= golden_value(atoms, k * 37 + atom);
        op_set(bench, op_input_data(bench, T_IN_BACKBONE), (int64_t)k, backbone);
    }
    memcpy(op_input_data(bench, T_IN_BETA), golden_find(g, "in/", "template_pseudo_beta")->data,
           N_TEMPL * N_RES * 3 * sizeof(float));
    golden_load(bench, op_input_data(bench, T_IN_BETA_MASK),
                golden_find(g, "in/", "template_pseudo_beta_mask"));
    golden_load(bench, op_input_data(bench, T_IN_MASK_AND_ANY), mask);
    op_set(bench, fm_state_data(&bench->state, t->inputs.template_any), 0, 1);
    load_torsions(bench, fm_state_data(&bench->state, t->torsions), g);
}

static void load_template_gradients(op_bench *bench, const golden *g) {
    const fm_npy *drows = golden_find(g, "dact/", "template_embedder@0.1");
    void *rows = fm_state_data(&bench->state, bench->second_gradient);
    golden_load(bench, fm_state_data(&bench->state, bench->output_gradient),
                golden_find(g, "dact/", "template_embedder@0.0"));
    for (int64_t i = 0; i < N_CLUST * N_RES * C_M; i++)
        op_set(bench, rows, i, 0);
    for (uint64_t i = 0; i < drows->count; i++)
        op_set(bench, rows, N_CLUST * N_RES * C_M + (int64_t)i, golden_value(drows, i));
}

/* Compares the update of z, which is the sum less z; values at masked pairs depend on the precision
 * and are left out. */
static void expect_template_outputs(op_bench *bench, const template_model *t, const golden *g) {
    const void *z = fm_tape_data(&bench->tape, bench->output_tensor);
    const fm_npy *expected = golden_find(g, "act/", "template_embedder@0.template_pair_embedding");
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < N_RES * N_RES * C_Z; i++) {
        double mask = op_get(bench, op_input_data(bench, T_IN_PAIR_MASK), i / C_Z);
        double a = op_get(bench, z, i) - op_get(bench, op_input_data(bench, T_IN_Z), i);
        double b = golden_value(expected, (uint64_t)i);
        difference += mask * (a - b) * (a - b);
        norm += mask * b * b;
    }
    if (!(sqrt(difference) < 1e-5 * sqrt(norm))) {
        print_error("pair update: relative error %.3g\n", sqrt(difference) / sqrt(norm));
    }
    assert_true(sqrt(difference) < 1e-5 * sqrt(norm));
    const char *rows = fm_tape_data(&bench->tape, t->rows);
    int64_t head = N_CLUST * N_RES * C_M * (int64_t)fm_element_bytes(bench->kernels->act);
    assert_memory_equal(rows, op_input_data(bench, T_IN_M), (size_t)head);
    golden_expect(bench, "rows", rows + head,
                  golden_find(g, "act/", "template_embedder@0.template_single_embedding"), 1, 1e-5,
                  1e-3);
}

/* With one template the softmax is 1 for any q and k. In af2_masks their gradients, and with them
 * the last bits of others, are therefore rounding noise and compared absolutely. */
static void check_templates(const char *file, fm_element element, bool together) {
    static template_model t;
    golden g;
    golden_open(&g, file);
    t.m.config = config_of(false);
    t.together = together;
    op_bench bench;
    op_begin(&bench, element);
    fm_model_add_parameters(&bench.params, &bench.arena, &t.m.config, &t.m.w);
    declare_template_inputs(&bench, &t);
    bench.second_output = &t.rows;
    op_finish(&bench, build_templates, &t);
    golden_load_parameters(&bench, &g, "w/");
    load_template_inputs(&bench, &t, &g);
    load_template_gradients(&bench, &g);
    fm_tape_forward(&bench.tape, NULL);
    expect_template_outputs(&bench, &t, &g);
    fm_tape_backward(&bench.tape, NULL);
    expect_module(&bench, &g, "template_embedder.");
    op_end(&bench);
    golden_close(&g);
}

static void the_template_embedders_match(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        fm_element element = i % 2 ? FM_ELEMENT_F64 : FM_ELEMENT_F32;
        check_templates("model/af2.npz", element, i / 2);
        check_templates("model/opm_first.npz", element, i / 2);
        check_templates("model/af2_masks.npz", element, i / 2);
    }
}

/* The nodes of all templates together give what nodes of each template give, and with the same
 * dropout masks: blocks, templates and what follows them have the draws that they had. */
static void templates_together_are_those_alone(void **state) {
    (void)state;
    static template_model t;
    golden g;
    golden_open(&g, "model/af2.npz");
    t.m.config = config_of(false);
    t.m.config.n_template_block = 2;
    t.m.config.dropout_pair = 0.25;
    double *value[3];
    int64_t n[3];
    uint32_t n_draw[3];
    for (int i = 0; i < 3; i++) { /* alone, together, and together with whole blocks recomputed */
        op_bench bench;
        t.together = i > 0;
        t.m.config.recompute = i == 2 ? FM_RECOMPUTE_BLOCK : FM_RECOMPUTE_NONE;
        op_begin(&bench, FM_ELEMENT_F64);
        fm_model_add_parameters(&bench.params, &bench.arena, &t.m.config, &t.m.w);
        declare_template_inputs(&bench, &t);
        bench.second_output = &t.rows;
        op_finish(&bench, build_templates, &t);
        load_template_inputs(&bench, &t, &g);
        load_template_gradients(&bench, &g);
        for (int64_t k = 0; k < N_TEMPL; k++)
            op_set(&bench, op_input_data(&bench, T_IN_MASK_AND_ANY), k, 1);
        n_draw[i] = bench.tape.n_draw;
        n[i] = op_run(&bench, &value[i]);
        op_end(&bench);
    }
    golden_close(&g);
    assert_int_equal(n_draw[0], N_TEMPL * 2 * fm_template_block_draws());
    assert_int_equal(n_draw[0], n_draw[1]);
    assert_int_equal(n[1], n[2]);
    assert_memory_equal(value[1], value[2], (size_t)n[1] * sizeof(double));
    op_expect_same(n[0], value[0], n[1], value[1]);
    free(value[2]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(global_attention_gradients_match_differences),
        cmocka_unit_test(masked_rows_do_not_leak),
        cmocka_unit_test(template_pair_gradients_match_differences),
        cmocka_unit_test(template_attention_gradients_match_differences),
        cmocka_unit_test(no_template_is_no_update),
        cmocka_unit_test(template_row_gradients_match_differences),
        cmocka_unit_test(the_extra_msa_stack_matches),
        cmocka_unit_test(the_template_embedders_match),
        cmocka_unit_test(templates_together_are_those_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
