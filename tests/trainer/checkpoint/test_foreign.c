/* test_foreign.c: tests weights of other programs: the names and shapes of DeepMind's files, and
 * layouts element by element. Also round trips through every naming and format, and the reports
 * about files that do not fit. */
#include "trainer/checkpoint/foreign.h"

#include "proto/base/file.h"
#include "proto/npz.h"
#include "tests/testing/testing.h"
#include "tests/trainer/checkpoint/deepmind_names.h"
#include "tests/testing/model_configs.h"
#include "proto/safetensors.h"
#include "trainer/model/parameters.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[256], path[512];
static fm_arena arena;

static int set_up(void **state) {
    (void)state;
    fm_test_make_folder(folder, sizeof folder);
    return fm_arena_init(&arena, (size_t)1 << 32, NULL) ? -1 : 0;
}

static int tear_down(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    fm_test_remove_tree(folder);
    return 0;
}

static const char *in_folder(const char *name) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static fm_model_config full_config(void) {
    fm_model_config config = fm_model_config_af2_initial();
    config.structure = (fm_structure_config){.n_iteration = 8,
                                             .n_head = 12,
                                             .c_head = 16,
                                             .n_qk = 4,
                                             .n_v = 8,
                                             .c_angle = 128,
                                             .n_angle_block = 2,
                                             .c_plddt = 128,
                                             .n_plddt_bin = 50};
    return config;
}

/* All blocks of the full model, with widths that differ from each other where possible. */
static fm_model_config narrow_config(void) {
    fm_model_config config = full_config();
    config.c_m = 6, config.c_z = 5, config.c_s = 7, config.c_e = 4, config.c_t = 3;
    config.n_head_msa = 2, config.c_head_msa = 3, config.c_head_extra = 2;
    config.n_head_pair = 3, config.c_head_pair = 2;
    config.c_outer = 3, config.c_outer_extra = 2, config.c_triangle = 4;
    config.c_triangle_extra = 3, config.c_triangle_template = 2;
    config.n_head_template = 2, config.c_head_template = 1;
    config.n_head_pointwise = 3, config.c_head_pointwise = 2;
    config.transition_factor = 2;
    config.structure.n_head = 2, config.structure.c_head = 3, config.structure.n_qk = 2;
    config.structure.n_v = 3, config.structure.c_angle = 4, config.structure.c_plddt = 3;
    config.structure.n_aligned_error_bin = 64;
    return config;
}

static void make_table(const fm_model_config *config, fm_params *params) {
    fm_model_weights *weights = calloc(1, sizeof *weights);
    assert_non_null(weights);
    assert_int_equal(fm_params_init(params, FM_MAX_PARAM, &arena, NULL), FM_OK);
    fm_model_add_parameters(params, &arena, config, weights);
    free(weights);
}

/* All values are different; gaps are zero. */
static void make_params(const fm_model_config *config, bool filled, fm_params *params) {
    make_table(config, params);
    assert_int_equal(fm_params_allocate(params, fm_kernels_cpu(FM_ELEMENT_F32), NULL), FM_OK);
    for (int32_t row = 0; filled && row < params->n_param; row++) {
        for (int64_t i = 0; i < fm_param_count(&params->param[row]); i++) {
            int64_t at = params->param[row].offset + i;
            ((float *)params->master)[at] = (float)(at + 1) * 0.25f;
            ((float *)params->ema)[at] = -(float)(at + 1);
        }
    }
}

static void the_full_model_has_the_names_and_shapes_of_deepmind(void **state) {
    (void)state;
    fm_params params;
    fm_foreign_list list;
    fm_model_config config = full_config();
    make_table(&config, &params);
    assert_int_equal(params.n_value, 93229082);
    assert_int_equal(fm_foreign_list_arrays(&params, FM_NAMING_DEEPMIND, &arena, &list, NULL),
                     FM_OK);
    size_t n = sizeof deepmind_names / sizeof deepmind_names[0];
    assert_int_equal(list.n_array, n);
    for (size_t i = 0; i < n; i++) {
        char name[256];
        snprintf(name, sizeof name, "alphafold/alphafold_iteration/%s", deepmind_names[i].name);
        assert_string_equal(list.array[i].name, name);
        assert_int_equal(list.array[i].rank, deepmind_names[i].rank);
        for (int axis = 0; axis < list.array[i].rank; axis++)
            assert_int_equal(list.array[i].shape[axis], deepmind_names[i].shape[axis]);
    }
}

static void openfold_has_a_name_for_every_parameter(void **state) {
    (void)state;
    fm_params params;
    fm_foreign_list list;
    fm_model_config config = narrow_config();
    make_table(&config, &params);
    static const struct {
        fm_weight_names naming;
        const char *name;
    } some[] = {
        {FM_NAMING_OPENFOLD, "evoformer.blocks.47.pair_stack.tri_mul_out.linear_a_p.weight"},
        {FM_NAMING_OPENFOLD, "structure_module.ipa.linear_q_points.linear.weight"},
        {FM_NAMING_OPENFOLD, "template_embedder.template_single_embedder.linear_1.weight"},
        {FM_NAMING_OPENFOLD_1, "evoformer.blocks.47.core.tri_mul_out.linear_a_p.weight"},
        {FM_NAMING_OPENFOLD_1, "extra_msa_stack.blocks.3.core.msa_transition.linear_1.bias"},
        {FM_NAMING_OPENFOLD_1, "evoformer.blocks.0.core.outer_product_mean.linear_1.weight"},
        {FM_NAMING_OPENFOLD_1, "evoformer.blocks.0.core.pair_transition.layer_norm.weight"},
        {FM_NAMING_OPENFOLD_1, "evoformer.blocks.9.msa_att_row.layer_norm_z.weight"},
        {FM_NAMING_OPENFOLD_1, "structure_module.ipa.linear_q_points.weight"},
        {FM_NAMING_OPENFOLD_1, "structure_module.ipa.linear_kv_points.bias"},
        {FM_NAMING_OPENFOLD_1, "template_angle_embedder.linear_1.weight"},
        {FM_NAMING_OPENFOLD_1, "template_pair_stack.blocks.1.tri_att_start.linear.weight"},
        {FM_NAMING_OPENFOLD_1, "template_pointwise_att.mha.linear_q.weight"},
    };
    for (size_t s = 0; s < sizeof some / sizeof some[0]; s++) {
        assert_int_equal(fm_foreign_list_arrays(&params, some[s].naming, &arena, &list, NULL),
                         FM_OK);
        assert_int_equal(list.n_array, params.n_param);
        size_t i = 0;
        while (i < list.n_array && strcmp(list.array[i].name, some[s].name) != 0)
            i++;
        if (i == list.n_array) fail_msg("there is no %s", some[s].name);
    }
}

static float value_of(const fm_params *params, const char *name, int64_t at) {
    const fm_param *param = fm_params_find(params, name);
    assert_non_null(param);
    assert_true(at < fm_param_count(param));
    return ((const float *)params->ema)[param->offset + at];
}

static const float *array_of(const fm_npz *npz, const char *name, const uint64_t *shape,
                             size_t rank) {
    char whole[256];
    snprintf(whole, sizeof whole, "alphafold/alphafold_iteration/%s", name);
    const fm_npy *array = fm_npz_find(npz, whole);
    assert_non_null(array);
    assert_string_equal(array->dtype, "<f4");
    assert_int_equal(array->rank, rank);
    for (size_t axis = 0; axis < rank; axis++)
        assert_int_equal(array->shape[axis], shape[axis]);
    return array->data;
}

/* DeepMind: query_w [block, c_in, head, c], output_w [block, head, c, c_out], linear [c_in, c_out];
 * ours [c_out, c_in] with c_out or c_in = head * C + c. */
static void layouts_are_deepminds_element_by_element(void **state) {
    (void)state;
    fm_params params;
    fm_bytes content;
    fm_npz npz;
    fm_model_config config = narrow_config();
    make_params(&config, true, &params);
    assert_int_equal(fm_foreign_export(in_folder("layout.npz"), FM_WEIGHTS_NPZ, FM_NAMING_DEEPMIND,
                                       &params, params.ema, NULL, &arena, NULL),
                     FM_OK);
    assert_int_equal(fm_file_read(&arena, path, (size_t)1 << 28, &content, NULL), FM_OK);
    assert_int_equal(fm_npz_parse(&arena, content, &npz, NULL), FM_OK);
    const float *q = array_of(
        &npz, "evoformer/evoformer_iteration/msa_row_attention_with_pair_bias/attention//query_w",
        (const uint64_t[]){48, 6, 2, 3}, 4);
    const float *out =
        array_of(&npz, "evoformer/extra_msa_stack/msa_column_global_attention/attention//output_w",
                 (const uint64_t[]){4, 2, 2, 4}, 4);
    const float *opm = array_of(&npz, "evoformer/evoformer_iteration/outer_product_mean//output_w",
                                (const uint64_t[]){48, 3, 3, 5}, 4);
    const float *key =
        array_of(&npz, "evoformer/extra_msa_stack/msa_column_global_attention/attention//key_w",
                 (const uint64_t[]){4, 4, 2}, 3);
    const float *gate = array_of(
        &npz, "evoformer/evoformer_iteration/triangle_attention_ending_node/attention//gating_b",
        (const uint64_t[]){48, 3, 2}, 3);
    const float *linear =
        array_of(&npz, "distogram_head/half_logits//weights", (const uint64_t[]){5, 64}, 2);
    for (int b = 0; b < 4; b++) {
        char name[128];
        for (int i = 0; i < 6; i++) {
            for (int h = 0; h < 2; h++) {
                for (int c = 0; c < 3; c++) {
                    snprintf(name, sizeof name, "evoformer.%d.msa_row_attention.q.weight", b);
                    assert_true(q[((b * 6 + i) * 2 + h) * 3 + c] ==
                                value_of(&params, name, (h * 3 + c) * 6 + i));
                }
            }
        }
        for (int h = 0; h < 2; h++) {
            for (int c = 0; c < 2; c++) {
                for (int o = 0; o < 4; o++) {
                    snprintf(name, sizeof name,
                             "extra_msa_stack.%d.msa_column_attention.out.weight", b);
                    assert_true(out[((b * 2 + h) * 2 + c) * 4 + o] ==
                                value_of(&params, name, o * 4 + h * 2 + c));
                }
            }
        }
        snprintf(name, sizeof name, "evoformer.%d.outer_product_mean.out.weight", b);
        assert_true(opm[((b * 3 + 2) * 3 + 1) * 5 + 4] ==
                    value_of(&params, name, 4 * 9 + 2 * 3 + 1));
        snprintf(name, sizeof name, "extra_msa_stack.%d.msa_column_attention.k.weight", b);
        assert_true(key[(b * 4 + 3) * 2 + 1] == value_of(&params, name, 1 * 4 + 3));
        snprintf(name, sizeof name, "evoformer.%d.triangle_attention_ending.gate.bias", b);
        assert_true(gate[(b * 3 + 2) * 2 + 1] == value_of(&params, name, 5));
    }
    assert_true(linear[3 * 64 + 17] == value_of(&params, "distogram.weight", 17 * 5 + 3));
    fm_params_release(&params);
}

static void assert_same(const fm_params *params, const void *got, const void *want) {
    assert_memory_equal(got, want, (size_t)params->n_element * sizeof(float));
}

static void every_naming_and_format_round_trips(void **state) {
    (void)state;
    static const char text[] = "[model]\nn_block = 1\n";
    fm_params params, other;
    fm_weights_file *file;
    fm_model_config config = narrow_config();
    make_params(&config, true, &params);
    for (int naming = 0; naming < FM_N_NAMING; naming++) {
        for (int format = FM_WEIGHTS_NPZ; format <= FM_WEIGHTS_SAFETENSORS; format++) {
            fm_import_report report;
            fm_error error = {.message = ""};
            const fm_import_options strict = {false, false};
            make_params(&config, false, &other);
            assert_int_equal(fm_foreign_export(in_folder("weights"), (fm_weights_format)format,
                                               (fm_weight_names)naming, &params, params.master,
                                               text, &arena, NULL),
                             FM_OK);
            assert_int_equal(fm_weights_file_open(path, &file, NULL), FM_OK);
            const char *kept = fm_weights_file_settings(file);
            assert_true(format == FM_WEIGHTS_NPZ ? !kept : kept && strcmp(kept, text) == 0);
            fm_weights_file_close(file);
            if (fm_foreign_import(path, &other, &strict, &arena, &report, &error)) {
                fail_msg("%s %d: %s", fm_weight_names_word((fm_weight_names)naming), format,
                         error.message);
            }
            assert_int_equal(report.naming, naming);
            assert_string_equal(report.prefix, "");
            assert_string_equal(report.text, "");
            assert_same(&params, other.master, params.master);
            assert_same(&params, other.ema, params.master);
            fm_params_release(&other);
        }
    }
    fm_params_release(&params);
}

/* -- files that do not fit; a model of one block, so that a report is short */

static fm_model_config small_config(void) {
    fm_model_config config = narrow_config();
    config.n_block = 2, config.n_extra_block = 0, config.n_template = 0;
    return config;
}

/* The arrays of a naming, all values 0.5, as a table that a test may damage. */
static fm_weights_out *make_arrays(const fm_params *params, fm_weight_names naming, size_t *ret_n) {
    fm_foreign_list list;
    assert_int_equal(fm_foreign_list_arrays(params, naming, &arena, &list, NULL), FM_OK);
    fm_weights_out *array = fm_arena_calloc(&arena, list.n_array + 2, sizeof *array);
    float *values = fm_arena_alloc_array(&arena, (size_t)params->n_element, sizeof *values);
    assert_true(array && values);
    for (int64_t i = 0; i < params->n_element; i++)
        values[i] = 0.5f;
    for (size_t i = 0; i < list.n_array; i++) {
        array[i] = (fm_weights_out){
            .name = list.array[i].name, .rank = list.array[i].rank, .data = values};
        memcpy(array[i].shape, list.array[i].shape, sizeof list.array[i].shape);
    }
    *ret_n = list.n_array;
    return array;
}

static size_t index_of(const fm_weights_out *array, size_t n, const char *name) {
    size_t i = 0;
    while (i < n && strcmp(array[i].name, name) != 0)
        i++;
    assert_true(i < n);
    return i;
}

static void all_errors_are_reported_at_once(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, true, &params);
    size_t n, i;
    fm_weights_out *array = make_arrays(&params, FM_NAMING_OPENFOLD, &n);
    i = index_of(array, n, "evoformer.blocks.1.msa_att_row.mha.linear_q.weight");
    array[i].shape[0] = 5;
    i = index_of(array, n, "evoformer.linear.bias");
    array[i].rank = 2, array[i].shape[1] = 1;
    array[n++] = (fm_weights_out){"aux_heads.tm.linear.wait", 1, {3}, array[0].data};
    i = index_of(array, n, "structure_module.ipa.head_weights");
    array[i] = array[--n];
    i = index_of(array, n, "input_embedder.linear_tf_m.bias");
    array[i] = array[--n];
    assert_int_equal(fm_weights_file_write(in_folder("wrong.safetensors"), FM_WEIGHTS_SAFETENSORS,
                                           array, n, NULL, NULL),
                     FM_OK);
    fm_import_report report;
    fm_error error;
    fm_import_options options = {false, false};
    size_t bytes = (size_t)params.n_element * sizeof(float);
    void *before = fm_arena_alloc(&arena, bytes);
    memcpy(before, params.master, bytes);
    assert_int_equal(fm_foreign_import(path, &params, &options, &arena, &report, &error),
                     FM_ERR_DATA);
    assert_string_equal(report.text,
                        "shape    evoformer.blocks.1.msa_att_row.mha.linear_q.weight is [5, 6], "
                        "expected [6, 6]\n"
                        "shape    evoformer.linear.bias is [7, 1], expected [7]\n"
                        "missing  input_embedder.linear_tf_m.bias [6]\n"
                        "missing  structure_module.ipa.head_weights [2]\n"
                        "extra    aux_heads.tm.linear.wait [3]\n");
    assert_true(report.n_missing == 2 && report.n_extra == 1 && report.n_wrong == 2);
    assert_non_null(strstr(error.message, "2 arrays are missing, 1 extra, 2 of another shape"));
    assert_non_null(strstr(error.source, "wrong.safetensors"));
    options = (fm_import_options){true, true}; /* another shape is never allowed */
    assert_int_equal(fm_foreign_import(path, &params, &options, &arena, &report, &error),
                     FM_ERR_DATA);
    assert_same(&params, params.master, before);
    fm_params_release(&params);
}

static void missing_and_extra_arrays_may_be_allowed(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, true, &params);
    size_t n;
    fm_weights_out *array = make_arrays(&params, FM_NAMING_DEEPMIND, &n);
    const char *gone = "alphafold/alphafold_iteration/structure_module/pair_layer_norm//scale";
    array[index_of(array, n, gone)].name = "something/else";
    assert_int_equal(
        fm_weights_file_write(in_folder("part.npz"), FM_WEIGHTS_NPZ, array, n, NULL, NULL), FM_OK);
    fm_import_report report;
    fm_import_options options = {true, false};
    assert_int_equal(fm_foreign_import(path, &params, &options, &arena, &report, NULL),
                     FM_ERR_DATA);
    options = (fm_import_options){false, true};
    assert_int_equal(fm_foreign_import(path, &params, &options, &arena, &report, NULL),
                     FM_ERR_DATA);
    options = (fm_import_options){true, true};
    const fm_param *kept = fm_params_find(&params, "structure.norm_z.weight");
    assert_non_null(kept);
    float before = ((float *)params.master)[kept->offset];
    assert_int_equal(fm_foreign_import(path, &params, &options, &arena, &report, NULL), FM_OK);
    assert_true(report.n_missing == 1 && report.n_extra == 1 && report.n_array == n - 1);
    assert_true(((float *)params.master)[kept->offset] == before);
    /* its bias, the next parameter */
    assert_true(((float *)params.master)[kept->offset + 5] == 0.5f);
    fm_params_release(&params);
}

/* Puts a prefix before the names of n arrays. */
static void add_prefix(fm_weights_out *array, size_t n, const char *prefix) {
    char(*name)[256] = fm_arena_alloc_array(&arena, n, sizeof *name);
    assert_non_null(name);
    for (size_t i = 0; i < n; i++) {
        snprintf(name[i], sizeof *name, "%s%s", prefix, array[i].name);
        array[i].name = name[i];
    }
}

/* Writes the arrays, and imports the file, which must be whole. */
static void import_all(const fm_weights_out *array, size_t n, fm_params *params,
                       fm_import_report *ret_report) {
    const fm_import_options strict = {false, false};
    assert_int_equal(fm_weights_file_write(in_folder("all.safetensors"), FM_WEIGHTS_SAFETENSORS,
                                           array, n, NULL, NULL),
                     FM_OK);
    assert_int_equal(fm_foreign_import(path, params, &strict, &arena, ret_report, NULL), FM_OK);
}

/* Names after a prefix: a state_dict of a wrapped module. Names without the prefix belong to
 * something else and are ignored. */
static void a_prefix_is_found_out(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, true, &params);
    size_t n;
    fm_weights_out *array = make_arrays(&params, FM_NAMING_OPENFOLD, &n);
    add_prefix(array, n, "module.");
    array[n++] = (fm_weights_out){"optimizer.step", 1, {1}, array[0].data};
    fm_import_report report;
    import_all(array, n, &params, &report);
    assert_string_equal(report.prefix, "module.");
    assert_int_equal(report.n_array, n - 1);
    assert_int_equal(report.n_outside, 1);
    assert_string_equal(report.outside, "optimizer.step");
    fm_params_release(&params);
}

/* A checkpoint of OpenFold's training has the raw parameters, and the average that OpenFold takes.
 */
static void of_two_sets_the_average_is_taken(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, true, &params);
    size_t n;
    fm_weights_out *array = make_arrays(&params, FM_NAMING_OPENFOLD, &n);
    fm_weights_out *both = fm_arena_alloc_array(&arena, 2 * n, sizeof *both);
    assert_non_null(both);
    for (size_t i = 0; i < 2 * n; i++)
        both[i] = array[i % n];
    add_prefix(both, n, "ema.params.");
    add_prefix(both + n, n, "state_dict.model.");
    fm_import_report report;
    import_all(both, 2 * n, &params, &report);
    assert_string_equal(report.prefix, "ema.params.");
    assert_int_equal(report.n_array, n);
    assert_int_equal(report.n_outside, n);
    fm_params_release(&params);
}

/* What no tensor has could be anything: bytes behind the last one, or a gap before one. */
static void bytes_without_a_tensor_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *second; /* where the second tensor's bytes are */
        size_t n;           /* bytes behind the header */
        const char *expected;
    } cases[] = {{"[4,8]", 8, NULL},
                 {"[4,8]", 9, "bytes follow the last tensor"},
                 {"[8,12]", 12, "a gap or an overlap before: b"},
                 {"[0,4]", 8, "a gap or an overlap before"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_safetensors *file;
        fm_error error;
        uint8_t bytes[300] = {0};
        int n = snprintf((char *)bytes + 8, sizeof bytes - 8,
                         "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
                         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":%s}}",
                         cases[i].second);
        bytes[0] = (uint8_t)n;
        memset(bytes + 8 + n, 0, sizeof bytes - 8 - (size_t)n);
        assert_int_equal(fm_file_write_atomic(in_folder("places.safetensors"), bytes,
                                              8 + (size_t)n + cases[i].n, NULL),
                         FM_OK);
        fm_status status = fm_safetensors_open(path, &file, &error);
        assert_int_equal(status, cases[i].expected ? FM_ERR_CORRUPT : FM_OK);
        if (cases[i].expected) assert_non_null(strstr(error.message, cases[i].expected));
        if (!status) fm_safetensors_close(file);
    }
}

static void halves_and_doubles_are_read_as_floats(void **state) {
    (void)state;
    static const uint16_t half[] = {0x3c00, 0xc000, 0x0001, 0x83ff, 0x7bff, 0x0400, 0x0000, 0x3555};
    static const float half_values[] = {1,        -2,       0x1p-24f, -1023 * 0x1p-24f,
                                        65504.0f, 0x1p-14f, 0,        0.333251953125f};
    static const uint16_t brain[] = {0x3f80, 0xc000, 0x3eab};
    static const float brain_values[] = {1, -2, 0.333984375f};
    static const double wide[] = {1.0, 1e-3, -7.25};
    fm_safetensor tensors[] = {
        {.name = "bf16", .dtype = "BF16", .rank = 1, .shape = {3}, .data = brain, .bytes = 6},
        {.name = "f16", .dtype = "F16", .rank = 2, .shape = {2, 4}, .data = half, .bytes = 16},
        {.name = "f64", .dtype = "F64", .rank = 1, .shape = {3}, .data = wide, .bytes = 24},
        {.name = "i32", .dtype = "I32", .rank = 1, .shape = {3}, .data = wide, .bytes = 12}};
    assert_int_equal(
        fm_safetensors_write(in_folder("types.safetensors"), tensors, 4, NULL, 0, NULL), FM_OK);
    fm_weights_file *file;
    float values[8];
    assert_int_equal(fm_weights_file_open(path, &file, NULL), FM_OK);
    assert_int_equal(fm_weights_file_read(file, fm_weights_file_find(file, "bf16"), values, NULL),
                     FM_OK);
    assert_memory_equal(values, brain_values, sizeof brain_values);
    assert_int_equal(fm_weights_file_read(file, fm_weights_file_find(file, "f16"), values, NULL),
                     FM_OK);
    assert_memory_equal(values, half_values, sizeof half_values);
    assert_int_equal(fm_weights_file_read(file, fm_weights_file_find(file, "f64"), values, NULL),
                     FM_OK);
    assert_true(values[1] == 1e-3f && values[2] == -7.25f);
    assert_false(fm_weights_file_find(file, "i32")->is_float);
    assert_null(fm_weights_file_find(file, "i3"));
    fm_weights_file_close(file);

    fm_npz_writer *writer;
    const uint64_t shape[] = {8};
    assert_int_equal(fm_npz_writer_create(in_folder("types.npz"), &writer, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_append(writer, "h", "<f2", 1, shape, half, NULL), FM_OK);
    assert_int_equal(fm_npz_writer_finish(writer, NULL), FM_OK);
    assert_int_equal(fm_weights_file_open(path, &file, NULL), FM_OK);
    assert_int_equal(fm_weights_file_read(file, fm_weights_file_find(file, "h"), values, NULL),
                     FM_OK);
    assert_memory_equal(values, half_values, sizeof half_values);
    fm_weights_file_close(file);
}

static void a_value_that_is_not_finite_is_refused(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, false, &params);
    size_t n;
    fm_weights_out *array = make_arrays(&params, FM_NAMING_FOLDMILL, &n);
    static float bad[7] = {0, 0, 0, 0, 0, NAN, 0};
    array[index_of(array, n, "single.bias")].data = bad;
    assert_int_equal(
        fm_weights_file_write(in_folder("nan.npz"), FM_WEIGHTS_NPZ, array, n, NULL, NULL), FM_OK);
    fm_import_report report;
    fm_error error;
    const fm_import_options strict = {false, false};
    assert_int_equal(fm_foreign_import(path, &params, &strict, &arena, &report, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message, "single.bias: element 5 is not finite");
    for (int64_t i = 0; i < params.n_element; i++)
        assert_true(((float *)params.master)[i] == 0);
    fm_params_release(&params);
}

static void files_of_something_else_are_refused(void **state) {
    (void)state;
    fm_params params;
    fm_model_config config = small_config();
    make_params(&config, false, &params);
    fm_import_report report;
    fm_error error;
    const fm_import_options lax = {true, true};
    float value = 1;
    const fm_weights_out other = {"fc.weight", 1, {1}, &value};
    assert_int_equal(
        fm_weights_file_write(in_folder("other.npz"), FM_WEIGHTS_NPZ, &other, 1, NULL, NULL),
        FM_OK);
    assert_int_equal(fm_foreign_import(path, &params, &lax, &arena, &report, &error),
                     FM_ERR_FORMAT);
    assert_non_null(strstr(error.message, "none of its 1 array has a name that"));
    assert_int_equal(
        fm_foreign_import(in_folder("nowhere"), &params, &lax, &arena, &report, &error),
        FM_ERR_NOT_FOUND);
    assert_int_equal(
        fm_file_write_atomic(in_folder("cut.npz"), "PK\3\4 and then nothing", 22, NULL), FM_OK);
    assert_int_not_equal(fm_foreign_import(path, &params, &lax, &arena, &report, &error), FM_OK);
    assert_int_equal(fm_file_write_atomic(in_folder("empty"), "", 0, NULL), FM_OK);
    assert_int_equal(fm_foreign_import(path, &params, &lax, &arena, &report, &error),
                     FM_ERR_CORRUPT);
    fm_params_release(&params);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_full_model_has_the_names_and_shapes_of_deepmind),
        cmocka_unit_test(openfold_has_a_name_for_every_parameter),
        cmocka_unit_test(layouts_are_deepminds_element_by_element),
        cmocka_unit_test(every_naming_and_format_round_trips),
        cmocka_unit_test(all_errors_are_reported_at_once),
        cmocka_unit_test(missing_and_extra_arrays_may_be_allowed),
        cmocka_unit_test(a_prefix_is_found_out),
        cmocka_unit_test(of_two_sets_the_average_is_taken),
        cmocka_unit_test(bytes_without_a_tensor_are_refused),
        cmocka_unit_test(halves_and_doubles_are_read_as_floats),
        cmocka_unit_test(a_value_that_is_not_finite_is_refused),
        cmocka_unit_test(files_of_something_else_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
