/* test_reference.c: embedders, heads with losses, optimiser and parameter names compared with the
 * reference's run of a tiny model (af2.npz, af2_units.npz). */
#include "tests/trainer/common/golden.h"
#include "tests/testing/model_configs.h"

#include "trainer/loss/losses.h"
#include "trainer/model/model.h"
#include "trainer/optim/optimizer.h"

enum { N_RES = 16, N_CLUST = 8, N_ROW = 10, C_M = 32, C_Z = 16 };

/* The sizes of af2_config.json. */
static const fm_model_config CONFIG = {.n_res = N_RES,
                                       .n_seq = N_CLUST,
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
                                       .n_extra = 12,
                                       .n_extra_block = 1,
                                       .c_e = 20,
                                       .c_head_extra = 6,
                                       .c_outer_extra = 5,
                                       .c_triangle_extra = 10,
                                       .n_template = 2,
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
                                       .n_recycle_bin = 15};

static const fm_param *find_openfold(const fm_params *params, const char *name) {
    for (int32_t i = 0; i < params->n_param; i++) {
        if (params->param[i].openfold && !strcmp(params->param[i].openfold, name)) {
            return &params->param[i];
        }
    }
    return NULL;
}

typedef struct context {
    fm_model_weights w;
    fm_tensor_ref second;
    int part;
} context;

static void begin(op_bench *bench, context *s, fm_element element) {
    op_begin(bench, element);
    fm_model_add_parameters(&bench->params, &bench->arena, &CONFIG, &s->w);
}

/* Compares the gradients of one module's parameters. */
static void expect_gradients(const op_bench *bench, const golden *g, const char *module) {
    int compared = 0;
    for (int32_t p = 0; p < bench->params.n_param; p++) {
        const fm_param *row = &bench->params.param[p];
        if (!strncmp(row->openfold, module, strlen(module))) {
            golden_expect(bench, row->openfold,
                          fm_params_at(&bench->params, bench->params.gradient, row->offset),
                          golden_find(g, "grad/", row->openfold), 1, 1e-4, 1e-3);
            compared++;
        }
    }
    assert_true(compared > 0);
}

/* -- embedders */

static fm_tensor_ref build_input(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    context *s = (context *)(uintptr_t)data;
    s->second = fm_op_input_pair(tape, in[1], in[2], &s->w.input_pair, (fm_part){0, 1});
    return fm_op_input_msa(tape, in[0], in[1], &s->w.input_msa);
}

static void the_input_embedder_matches(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2.npz");
    const fm_npy *aatype = golden_find(&g, "in/", "aatype");
    const fm_npy *index = golden_find(&g, "in/", "residue_index");
    for (int wide = 0; wide < 2; wide++) {
        context s = {0};
        op_bench bench;
        begin(&bench, &s, wide ? FM_ELEMENT_F64 : FM_ELEMENT_F32);
        op_input(&bench, 3, (int64_t[]){N_CLUST, N_RES, FM_MSA_FEATURES}, false);
        op_input_of(&bench, FM_ELEMENT_U8, 1, (int64_t[]){N_RES}, false);
        op_input_of(&bench, FM_ELEMENT_I32, 1, (int64_t[]){N_RES}, false);
        bench.second_output = &s.second;
        op_finish(&bench, build_input, &s);
        golden_load_parameters(&bench, &g, "w/");
        golden_load(&bench, op_input_data(&bench, 0), golden_find(&g, "in/", "msa_feat"));
        for (uint64_t i = 0; i < N_RES; i++) {
            ((uint8_t *)op_input_data(&bench, 1))[i] = (uint8_t)golden_value(aatype, i);
            ((int32_t *)op_input_data(&bench, 2))[i] = (int32_t)golden_value(index, i);
        }
        golden_load(&bench, fm_state_data(&bench.state, bench.output_gradient),
                    golden_find(&g, "dact/", "input_embedder@0.0"));
        golden_load(&bench, fm_state_data(&bench.state, bench.second_gradient),
                    golden_find(&g, "dact/", "input_embedder@0.1"));
        fm_tape_forward(&bench.tape, NULL);
        golden_expect(&bench, "m", fm_tape_data(&bench.tape, bench.output_tensor),
                      golden_find(&g, "act/", "input_embedder@0.0"), 1, 1e-5, 1e-3);
        golden_expect(&bench, "z", fm_tape_data(&bench.tape, s.second),
                      golden_find(&g, "act/", "input_embedder@0.1"), 1, 1e-5, 1e-3);
        fm_tape_backward(&bench.tape, NULL);
        expect_gradients(&bench, &g, "input_embedder.");
        op_end(&bench);
    }
    golden_close(&g);
}

static fm_tensor_ref build_recycle(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    context *s = (context *)(uintptr_t)data;
    s->second = fm_op_recycle_pair(tape, in[1], in[3], in[4], &s->w.recycle);
    return fm_op_recycle_msa(tape, in[0], in[2], &s->w.recycle);
}

/* A32:1 in the reference's f32: bin k when d^2 is between its edge and the next. */
static void put_bins(uint8_t *bins, const fm_npy *x) {
    const float *p = x->data;
    for (int i = 0; i < N_RES; i++) {
        for (int j = 0; j < N_RES; j++) {
            float d2 = 0;
            for (int a = 0; a < 3; a++)
                d2 += (p[3 * i + a] - p[3 * j + a]) * (p[3 * i + a] - p[3 * j + a]);
            int bin = -1;
            for (int k = 0; k < 15; k++) {
                float edge = 3.25f + 1.25f * (float)k;
                bin = d2 > edge * edge ? k : bin;
            }
            bins[i * N_RES + j] = bin < 0 ? 255 : (uint8_t)bin;
        }
    }
}

static void the_recycling_embedder_matches(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2_units.npz");
    const char unit[] = "recycling_embedder/";
    context s = {0};
    op_bench bench;
    begin(&bench, &s, FM_ELEMENT_F32);
    op_input(&bench, 3, (int64_t[]){1, N_RES, C_M}, true);
    op_input(&bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
    op_input(&bench, 2, (int64_t[]){N_RES, C_M}, true);
    op_input(&bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
    op_input_of(&bench, FM_ELEMENT_U8, 2, (int64_t[]){N_RES, N_RES}, false);
    bench.second_output = &s.second;
    op_finish(&bench, build_recycle, &s);
    for (int32_t p = 0; p < bench.params.n_param; p++) {
        const fm_param *row = &bench.params.param[p];
        if (!strncmp(row->openfold, "recycling_embedder.", 19)) {
            char key[128];
            snprintf(key, sizeof key, "%sw.%s", unit, row->openfold + 19);
            golden_load(&bench, fm_params_at(&bench.params, bench.params.master, row->offset),
                        golden_find(&g, key, ""));
        }
    }
    memset(op_input_data(&bench, 0), 0, N_RES * C_M * sizeof(float));
    memset(op_input_data(&bench, 1), 0, N_RES * N_RES * C_Z * sizeof(float));
    golden_load(&bench, op_input_data(&bench, 2), golden_find(&g, unit, "in.a0"));
    golden_load(&bench, op_input_data(&bench, 3), golden_find(&g, unit, "in.a1"));
    put_bins(op_input_data(&bench, 4), golden_find(&g, unit, "in.a2"));
    golden_load(&bench, fm_state_data(&bench.state, bench.output_gradient),
                golden_find(&g, unit, "gout.0"));
    golden_load(&bench, fm_state_data(&bench.state, bench.second_gradient),
                golden_find(&g, unit, "gout.1"));
    fm_tape_forward(&bench.tape, NULL);
    golden_expect(&bench, "m", fm_tape_data(&bench.tape, bench.output_tensor),
                  golden_find(&g, unit, "out.0"), 1, 1e-5, 1e-3);
    golden_expect(&bench, "z", fm_tape_data(&bench.tape, s.second), golden_find(&g, unit, "out.1"),
                  1, 1e-5, 1e-3);
    fm_tape_backward(&bench.tape, NULL);
    golden_expect(&bench, "dm", fm_tape_gradient(&bench.tape, bench.input_tensor[2]),
                  golden_find(&g, unit, "gin.a0"), 1, 1e-4, 1e-3);
    golden_expect(&bench, "dz", fm_tape_gradient(&bench.tape, bench.input_tensor[3]),
                  golden_find(&g, unit, "gin.a1"), 1, 1e-4, 1e-3);
    const char *names[] = {"linear.weight",     "linear.bias",         "layer_norm_m.weight",
                           "layer_norm_m.bias", "layer_norm_z.weight", "layer_norm_z.bias"};
    for (int i = 0; i < 6; i++) {
        char ours[64];
        snprintf(ours, sizeof ours, "recycling_embedder.%s", names[i]);
        const fm_param *row = find_openfold(&bench.params, ours);
        golden_expect(&bench, ours, fm_params_at(&bench.params, bench.params.gradient, row->offset),
                      golden_find(&g, "recycling_embedder/gw.", names[i]), 1, 1e-4, 1e-3);
    }
    op_end(&bench);
    golden_close(&g);
}

/* -- heads and losses */

static fm_tensor_ref build_losses(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    context *s = (context *)(uintptr_t)data;
    if (s->part == 0) {
        s->second = fm_op_linear(tape, "single", in[0], N_RES, &s->w.single);
        return fm_op_masked_msa_loss(tape, in[0], in[1], in[2], &s->w.masked_msa);
    }
    fm_distogram_options options = {64, 2.3125f, 21.6875f, 1e-8};
    return fm_op_distogram_loss(tape, in[0], in[1], in[2], &s->w.distogram, &options);
}

static void masked_msa_head_its_loss_and_single_match(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2.npz");
    const fm_npy *truth = golden_find(&g, "in/", "true_msa");
    for (int wide = 0; wide < 2; wide++) {
        context s = {.part = 0};
        op_bench bench;
        begin(&bench, &s, wide ? FM_ELEMENT_F64 : FM_ELEMENT_F32);
        op_input(&bench, 3, (int64_t[]){N_ROW, N_RES, C_M}, true);
        op_input_of(&bench, FM_ELEMENT_I32, 2, (int64_t[]){N_CLUST, N_RES}, false);
        op_input(&bench, 2, (int64_t[]){N_CLUST, N_RES}, false);
        bench.second_output = &s.second;
        op_finish(&bench, build_losses, &s);
        golden_load_parameters(&bench, &g, "w/");
        golden_load(&bench, op_input_data(&bench, 0), golden_find(&g, "act/", "evoformer@0.0"));
        golden_load(&bench, op_input_data(&bench, 2), golden_find(&g, "in/", "bert_mask"));
        for (uint64_t i = 0; i < N_CLUST * N_RES; i++)
            ((int32_t *)op_input_data(&bench, 1))[i] = (int32_t)golden_value(truth, i);
        op_set(&bench, fm_state_data(&bench.state, bench.output_gradient), 0, 2.0 * 4.0);
        golden_load(&bench, fm_state_data(&bench.state, bench.second_gradient),
                    golden_find(&g, "dact/", "evoformer@0.2"));
        fm_tape_forward(&bench.tape, NULL);
        golden_expect(&bench, "loss", fm_tape_data(&bench.tape, bench.output_tensor),
                      golden_find(&g, "loss/", "masked_msa"), 1, 1e-5, 1e-3);
        fm_tape_backward(&bench.tape, NULL);
        expect_gradients(&bench, &g, "aux_heads.masked_msa");
        expect_gradients(&bench, &g, "evoformer.linear");
        op_end(&bench);
    }
    golden_close(&g);
}

static void distogram_head_and_loss_match(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2.npz");
    for (int wide = 0; wide < 2; wide++) {
        context s = {.part = 1};
        op_bench bench;
        begin(&bench, &s, wide ? FM_ELEMENT_F64 : FM_ELEMENT_F32);
        op_input(&bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
        op_input_of(&bench, FM_ELEMENT_F32, 2, (int64_t[]){N_RES, 3}, false);
        op_input_of(&bench, FM_ELEMENT_F32, 1, (int64_t[]){N_RES}, false);
        op_finish(&bench, build_losses, &s);
        golden_load_parameters(&bench, &g, "w/");
        golden_load(&bench, op_input_data(&bench, 0), golden_find(&g, "out/", "pair"));
        memcpy(op_input_data(&bench, 1), golden_find(&g, "in/", "pseudo_beta")->data,
               N_RES * 3 * sizeof(float));
        memcpy(op_input_data(&bench, 2), golden_find(&g, "in/", "pseudo_beta_mask")->data,
               N_RES * sizeof(float));
        op_set(&bench, fm_state_data(&bench.state, bench.output_gradient), 0, 0.3 * 4.0);
        fm_tape_forward(&bench.tape, NULL);
        golden_expect(&bench, "loss", fm_tape_data(&bench.tape, bench.output_tensor),
                      golden_find(&g, "loss/", "distogram"), 1, 1e-5, 1e-3);
        fm_tape_backward(&bench.tape, NULL);
        expect_gradients(&bench, &g, "aux_heads.distogram");
        op_end(&bench);
    }
    golden_close(&g);
}

/* -- the stack */

static fm_tensor_ref build_stack(fm_tape *tape, const fm_tensor_ref *in, const void *data) {
    context *s = (context *)(uintptr_t)data;
    fm_model_config config = CONFIG;
    config.recompute = (fm_recompute_policy)s->part;
    fm_representations x = {in[0], in[2]};
    fm_split_mask msa_mask = fm_split_mask_of(tape, &config, in[1]);
    fm_split_mask pair_mask = fm_split_mask_of(tape, &config, in[3]);
    fm_recorder recorder = fm_recorder_of(tape, &config, &msa_mask, &pair_mask);
    recorder.fuses = false;
    x = fm_evoformer_stack(&recorder, s->w.block, 0, config.n_block, x);
    s->second = x.z;
    return x.m;
}

/* Two blocks: compares the gradient of every Evoformer parameter, starting from the gradients at
 * the end of the stack. */
static void the_evoformer_stack_matches(void **state) {
    (void)state;
    golden g, units;
    golden_open(&g, "model/af2.npz");
    golden_open(&units, "model/af2_units.npz");
    for (int policy = 0; policy < 3; policy++) {
        context s = {.part = policy};
        op_bench bench;
        begin(&bench, &s, FM_ELEMENT_F32);
        op_input(&bench, 3, (int64_t[]){N_ROW, N_RES, C_M}, true);
        op_input(&bench, 2, (int64_t[]){N_ROW, N_RES}, false);
        op_input(&bench, 3, (int64_t[]){N_RES, N_RES, C_Z}, true);
        op_input(&bench, 2, (int64_t[]){N_RES, N_RES}, false);
        bench.second_output = &s.second;
        op_finish(&bench, build_stack, &s);
        golden_load_parameters(&bench, &g, "w/");
        const char block[] = "evoformer.blocks.0/in.";
        golden_load(&bench, op_input_data(&bench, 0), golden_find(&units, block, "a0"));
        golden_load(&bench, op_input_data(&bench, 1), golden_find(&units, block, "msa_mask"));
        golden_load(&bench, op_input_data(&bench, 2), golden_find(&units, block, "a1"));
        golden_load(&bench, op_input_data(&bench, 3), golden_find(&units, block, "pair_mask"));
        fm_tape_forward(&bench.tape, NULL);
        const fm_npy *m = golden_find(&g, "act/", "evoformer@0.0");
        golden_expect(&bench, "m", fm_tape_data(&bench.tape, bench.output_tensor), m, 1, 1e-5,
                      1e-3);
        golden_expect(&bench, "z", fm_tape_data(&bench.tape, s.second),
                      golden_find(&g, "act/", "evoformer@0.1"), 1, 1e-5, 1e-3);
        op_end(&bench);
    }
    golden_close(&units);
    golden_close(&g);
}

/* -- optimiser */

/* Compares one update over all 431 arrays of the file: norm, clip, Adam, moving average. */
static void the_optimizer_matches(void **state) {
    (void)state;
    golden g;
    golden_open(&g, "model/af2.npz");
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F32);
    for (size_t i = 0; i < g.npz.n_array; i++) {
        const fm_npy *array = &g.npz.arrays[i];
        if (!strncmp(array->name, "w/", 2)) {
            fm_params_add_block(&bench.params);
            fm_params_add(&bench.params, &(fm_param){.name = array->name + 2,
                                                     .openfold = array->name + 2,
                                                     .rank = 1,
                                                     .shape = {(int64_t)array->count}});
        }
    }
    assert_int_equal(bench.params.n_param, 431);
    assert_int_equal(fm_params_allocate(&bench.params, bench.kernels, NULL), FM_OK);
    golden_load_parameters(&bench, &g, "w/");
    bench.kernels->copy(NULL, bench.params.n_element, bench.params.master, bench.params.ema);
    for (int32_t p = 0; p < bench.params.n_param; p++) {
        const fm_param *row = &bench.params.param[p];
        golden_load(&bench, fm_params_at(&bench.params, bench.params.gradient, row->offset),
                    golden_find(&g, "grad/", row->name));
    }
    fm_optimizer_options options = fm_optimizer_defaults();
    options.eps = 1e-5;
    options.warmup_samples = 0;
    fm_optimizer optimizer;
    assert_int_equal(fm_optimizer_init(&optimizer, &bench.params, &options, NULL), FM_OK);
    assert_true(fm_optimizer_add_sample(&optimizer, NULL));
    fm_step_state after = fm_optimizer_get_state(&optimizer, NULL);
    double norm = golden_value(golden_find(&g, "clip/", "total_norm"), 0);
    assert_true(fabs(sqrt(after.norm_squared) - norm) < 1e-5 * norm);
    fm_optimizer_step(&optimizer, NULL);
    for (int32_t p = 0; p < bench.params.n_param; p++) {
        const fm_param *row = &bench.params.param[p];
        golden_expect(&bench, row->name,
                      fm_params_at(&bench.params, bench.params.master, row->offset),
                      golden_find(&g, "post/", row->name), 1, 1e-6, 1e-3);
        golden_expect(&bench, row->name, fm_params_at(&bench.params, bench.params.ema, row->offset),
                      golden_find(&g, "ema/", row->name), 1, 1e-6, 1e-3);
    }
    fm_optimizer_fini(&optimizer);
    fm_params_release(&bench.params);
    fm_arena_fini(&bench.arena);
    golden_close(&g);
}

/* -- names */

/* The table has every array of the modules that we have, with its shape, and no other array. */
static void the_parameter_table_names_the_references_arrays(void **state) {
    (void)state;
    static const char *modules[] = {"w/input_embedder.",      "w/recycling_embedder.",
                                    "w/evoformer.",           "w/template_embedder.",
                                    "w/extra_msa_embedder.",  "w/extra_msa_stack.",
                                    "w/aux_heads.distogram.", "w/aux_heads.masked_msa."};
    const int n_module = sizeof modules / sizeof modules[0];
    golden g;
    golden_open(&g, "model/af2.npz");
    context s = {0};
    op_bench bench;
    begin(&bench, &s, FM_ELEMENT_F32);
    int found = 0;
    for (size_t i = 0; i < g.npz.n_array; i++) {
        const fm_npy *array = &g.npz.arrays[i];
        for (int m = 0; m < n_module; m++) {
            if (!strncmp(array->name, modules[m], strlen(modules[m]))) {
                const fm_param *row = find_openfold(&bench.params, array->name + 2);
                assert_non_null(row);
                assert_int_equal(row->rank, array->rank);
                for (size_t axis = 0; axis < array->rank; axis++)
                    assert_int_equal(row->shape[axis], array->shape[axis]);
                found++;
            }
        }
    }
    assert_int_equal(found, bench.params.n_param);
    fm_arena_fini(&bench.arena);
    golden_close(&g);
}

/* Names are distinct, and DeepMind's are distinct within a layer; the full-size count is that of
 * the published model. */
static void the_full_size_table_is_sound(void **state) {
    (void)state;
    op_bench bench;
    op_begin(&bench, FM_ELEMENT_F32);
    fm_model_config config = fm_model_config_af2_initial();
    config.n_block = 1;
    config.n_extra_block = 1;
    config.n_template_block = 1;
    static fm_model_weights w;
    fm_params params = {0};
    assert_int_equal(fm_params_init(&params, FM_MAX_PARAM, &bench.arena, NULL), FM_OK);
    fm_model_add_parameters(&params, &bench.arena, &config, &w);
    for (int32_t i = 0; i < params.n_param; i++) {
        for (int32_t j = 0; j < i; j++) {
            const fm_param *a = &params.param[i], *b = &params.param[j];
            assert_string_not_equal(a->name, b->name);
            assert_string_not_equal(a->openfold, b->openfold);
            assert_string_not_equal(a->deepmind, b->deepmind);
            assert_true(a->offset >= b->offset + fm_param_count(b));
        }
    }
    /* An Evoformer block of AlphaFold2 has 1,829,952 parameters in 93 arrays. */
    int64_t in_block = 0;
    int n_array = 0;
    for (int32_t i = 0; i < params.n_param; i++) {
        if (!strncmp(params.param[i].name, "evoformer.0.", 12)) {
            in_block += fm_param_count(&params.param[i]);
            n_array++;
        }
    }
    assert_int_equal(n_array, 93);
    assert_int_equal(in_block, 1829952);
    assert_string_equal(
        fm_params_find(&params, "evoformer.0.triangle_multiplication_incoming.a.weight")->deepmind,
        "evoformer/evoformer_iteration/triangle_multiplication_incoming/right_projection//weights");
    fm_arena_fini(&bench.arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_input_embedder_matches),
        cmocka_unit_test(the_recycling_embedder_matches),
        cmocka_unit_test(masked_msa_head_its_loss_and_single_match),
        cmocka_unit_test(distogram_head_and_loss_match),
        cmocka_unit_test(the_evoformer_stack_matches),
        cmocka_unit_test(the_optimizer_matches),
        cmocka_unit_test(the_parameter_table_names_the_references_arrays),
        cmocka_unit_test(the_full_size_table_is_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
