/* test_config.c: presets and configuration files: every preset gives all keys a value, a file
 * changes the keys that it names, and mistakes are refused with their line. */
#include "proto/template_date.h"
#include "tests/testing/model_configs.h"
#include "tests/trainer/common/most_blocks.h"
#include "trainer/app/settings/train_keys.h"
#include "trainer/model/parameters.h"
#include "trainer/app/settings/presets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static fm_bytes text_of(const char *text) {
    return (fm_bytes){(const uint8_t *)text, strlen(text)};
}

static void presets_are_whole(void **state) {
    (void)state;
    size_t n = 0;
    for (; fm_presets[n].name; n++) {
        fm_train_config config;
        fm_error error;
        assert_int_equal(fm_train_config_preset(fm_presets[n].name, &config, &error), FM_OK);
        assert_int_equal(config.model.n_res, config.data.crop_size);
        assert_int_equal(config.model.n_seq, config.data.max_msa_clusters);
        assert_string_equal(config.data.plan, fm_presets[n].name);
        char begin[64];
        snprintf(begin, sizeof begin, "; %s: ", fm_presets[n].name);
        assert_memory_equal(fm_presets[n].text, begin, strlen(begin));
        assert_true(strcspn(fm_presets[n].text, "\n") - strlen(begin) <= 57); /* for --help */
        assert_true(n == 0 || strcmp(fm_presets[n - 1].name, fm_presets[n].name) < 0);
    }
    assert_true(n >= 15);
}

static void initial_training_has_the_papers_sizes(void **state) {
    (void)state;
    fm_train_config config;
    assert_int_equal(fm_train_config_preset("af2-initial", &config, NULL), FM_OK);
    assert_int_equal(config.model.n_block, 48);
    assert_int_equal(config.model.c_m, 256);
    assert_int_equal(config.model.c_z, 128);
    assert_int_equal(config.model.n_template, 4);
    assert_int_equal(config.model.structure.n_iteration, 8);
    assert_int_equal(config.data.crop_size, 256);
    assert_true(config.optimizer.clip_norm == 0.1);
    assert_string_equal(config.data.plan, "af2-initial");
}

/* Supplement 1.11, tables 4 and 5, and 1.9.7: what the stages and models have in common and what
 * each has of its own. */
static void stages_are_those_of_the_supplement(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int64_t crop, rows, extra, templates, bins;
        bool is_first, is_last;
    } cases[] = {
        {"af2-initial", 256, 128, 1024, 4, 0, true, false},
        {"af2-model-1.1", 256, 512, 1024, 4, 0, false, false},
        {"af2-model-1.2", 256, 512, 1024, 0, 0, false, false},
        {"af2-finetuning", 384, 512, 5120, 4, 0, false, true},
        {"af2-finetuning-ptm", 384, 512, 5120, 4, 64, false, true},
        {"af2-model-1.1.2", 384, 512, 1024, 4, 0, false, true},
        {"af2-model-1.1.2-ptm", 384, 512, 1024, 4, 64, false, true},
        {"af2-model-1.2.1", 384, 512, 5120, 0, 0, false, true},
        {"af2-model-1.2.1-ptm", 384, 512, 5120, 0, 64, false, true},
        {"af2-model-1.2.3", 384, 512, 1024, 0, 0, false, true},
        {"af2-model-1.2.3-ptm", 384, 512, 1024, 0, 64, false, true},
        {"openfold-initial", 256, 132, 1024, 4, 0, true, false},
        {"openfold-finetuning", 384, 516, 5120, 4, 0, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_train_config c;
        assert_int_equal(fm_train_config_preset(cases[i].name, &c, NULL), FM_OK);
        assert_int_equal(c.data.crop_size, cases[i].crop);
        assert_int_equal(fm_model_config_rows(&c.model), cases[i].rows);
        assert_int_equal(c.data.max_extra_msa, cases[i].extra);
        assert_int_equal(c.model.n_template, cases[i].templates);
        assert_int_equal(c.model.structure.n_aligned_error_bin, cases[i].bins);
        assert_int_equal(c.data.global_batch, 128);
        assert_int_equal(c.data.max_cycle, 4);
        bool is_first = cases[i].is_first, is_last = cases[i].is_last;
        assert_true(c.optimizer.learning_rate == (is_first ? 1e-3 : 5e-4));
        assert_int_equal(c.optimizer.warmup_samples, is_first ? 128000 : 0);
        assert_int_equal(c.optimizer.decay_at_samples, is_first ? 6400000 : 0);
        assert_true(c.optimizer.decay_factor == (is_first ? 0.95 : 1));
        assert_true(c.optimizer.beta1 == 0.9 && c.optimizer.beta2 == 0.999 &&
                    c.optimizer.eps == 1e-6 && c.optimizer.clip_norm == 0.1 &&
                    c.optimizer.clip == FM_CLIP_SAMPLE && c.optimizer.ema_decay == 0.999);
        const double weights[FM_LOSS_TERMS] = {[FM_TERM_DISTOGRAM] = 0.3,
                                               [FM_TERM_MASKED_MSA] = 2,
                                               [FM_TERM_BACKBONE] = 0.5,
                                               [FM_TERM_SIDE_CHAIN] = 0.5,
                                               [FM_TERM_TORSION] = 1,
                                               [FM_TERM_PLDDT] = 0.01,
                                               [FM_TERM_RESOLVED] = is_last ? 0.01 : 0,
                                               [FM_TERM_ALIGNED_ERROR] = cases[i].bins ? 0.1 : 0,
                                               [FM_TERM_VIOLATION] = is_last ? 1 : 0};
        assert_memory_equal(c.loss, weights, sizeof weights);
        bool is_openfold = strncmp(cases[i].name, "openfold", 8) == 0;
        assert_int_equal(c.model.compat, is_openfold ? FM_COMPAT_OPENFOLD : FM_COMPAT_NONE);
    }
}

/* Supplement 1.11, table 4. */
static void finetuning_is_the_papers_second_stage(void **state) {
    (void)state;
    fm_train_config first, second;
    assert_int_equal(fm_train_config_preset("af2-initial", &first, NULL), FM_OK);
    assert_int_equal(fm_train_config_preset("af2-finetuning", &second, NULL), FM_OK);
    assert_int_equal(second.data.crop_size, 384);
    assert_int_equal(fm_model_config_rows(&second.model), 512);
    assert_int_equal(second.data.max_extra_msa, 5120);
    assert_string_equal(second.data.plan, "af2-finetuning");
    assert_true(second.optimizer.learning_rate == first.optimizer.learning_rate / 2);
    assert_int_equal(second.optimizer.warmup_samples, 0);
    assert_true(second.loss[FM_TERM_VIOLATION] == 1 && second.loss[FM_TERM_RESOLVED] == 0.01);
    second.model.n_res = first.model.n_res; /* else the same model */
    second.model.n_seq = first.model.n_seq;
    second.model.n_extra = first.model.n_extra;
    assert_memory_equal(&first.model, &second.model, sizeof first.model);
}

/* A preset that names a base has the base's values where it states none. */
static void presets_inherit(void **state) {
    (void)state;
    fm_train_config base, config;
    assert_int_equal(fm_train_config_preset("tiny", &base, NULL), FM_OK);
    assert_int_equal(fm_train_config_preset("overfit", &config, NULL), FM_OK);
    assert_true(config.model.c_m == 64 && config.loss[FM_TERM_PLDDT] == 0 &&
                config.data.max_cycle == 1);
    assert_int_equal(config.model.n_block, base.model.n_block);
    assert_int_equal(config.model.structure.c_plddt, 16);
    assert_string_equal(config.data.plan, "overfit");
    assert_int_equal(config.model.n_recycle_bin, 15); /* of tiny's own base */
}

/* Checks the rows of a preset's keys in the table, and counts them in seen[section.name]. */
static int check_rows(const char *table, const fm_train_config *config, bool all) {
    static char shown[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config_format_all(config, shown);
    int n_key = 0;
    char section[32] = "", *rest = NULL;
    for (char *line = strtok_r(shown, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[64], value[64], expected[256];
        if (sscanf(line, "[%31[a-z0-9_]]", section) == 1) continue;
        assert_int_equal(sscanf(line, "%63s = %63s", name, value), 2);
        snprintf(expected, sizeof expected, "| `[%s]` | `%s` |", section, name);
        const char *row = strstr(table, expected);
        assert_non_null(row);
        snprintf(expected, sizeof expected, "| `%s` |", value);
        bool has_default = strstr(row, expected) && strstr(row, expected) < strchr(row, '\n');
        assert_true(has_default || !all);
        n_key++;
    }
    return n_key;
}

/* The documentation has a row for each key that is shown, with the default as it is shown. */
static void every_key_is_documented(void **state) {
    (void)state;
    static char table[FM_TRAIN_CONFIG_DOCUMENT_BYTES];
    fm_train_config af2, af3;
    assert_int_equal(fm_train_config_preset("af2-initial", &af2, NULL), FM_OK);
    assert_int_equal(fm_train_config_preset("af3-initial", &af3, NULL), FM_OK);
    fm_train_config_document(&af2, &af3, table);
    int n_row = -2, n_shared = 0; /* the table's head */
    for (const char *c = table; *c; c++)
        n_row += *c == '\n';
    for (size_t i = 0; i < fm_train_n_key; i++)
        n_shared += fm_train_keys[i].of == FM_KEY_BOTH;
    int n_af2 = check_rows(table, &af2, true), n_af3 = check_rows(table, &af3, false);
    assert_int_equal(n_af2 + n_af3 - n_shared, n_row);
    assert_non_null(strstr(table, "| `[model]` | `n_block` | whole number, 1 to 64 | blocks | "
                                  "`48` | Number of Evoformer blocks (Algorithm 6). |\n"));
    assert_non_null(strstr(table, "| `[af3]` | `n_sample` | whole number, 1 to 256 | structures | "
                                  "`48` |"));
}

static const char *const af3_presets[] = {"af3-initial",    "af3-finetuning", "af3-finetuning-2",
                                          "af3-confidence", "af3-tiny",       "af3-overfit"};

/* A checkpoint's text names every setting, so it can be read into the settings of any preset. The
 * text of af2 does not name its network, so a text without a name is of af2. */
static void a_text_carries_its_network(void **state) {
    (void)state;
    static char text[FM_TRAIN_CONFIG_TEXT_BYTES], again[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config, other;
    for (size_t i = 0; i < sizeof af3_presets / sizeof af3_presets[0]; i++) {
        assert_int_equal(fm_train_config_preset(af3_presets[i], &config, NULL), FM_OK);
        assert_int_equal(config.network, FM_NETWORK_AF3);
        assert_int_equal(config.af3.n_token, config.data.crop_size);
        fm_train_config_format(&config, text);
        assert_non_null(strstr(text, "model = af3\n"));
        assert_null(strstr(text, "n_extra_block"));
        assert_int_equal(fm_train_config_preset("af2-initial", &other, NULL), FM_OK);
        assert_int_equal(fm_train_config_parse(text_of(text), &other, NULL), FM_OK);
        fm_train_config_format(&other, again);
        assert_string_equal(text, again);
    }
    assert_int_equal(fm_train_config_preset("af2-initial", &config, NULL), FM_OK);
    fm_train_config_format(&config, text);
    assert_null(strstr(text, "af2\n"));
    assert_null(strstr(text, "af3"));
}

/* A run of stored samples has no sampling plan, nor has the text of its checkpoints. */
static void texts_of_stored_samples_have_no_plan(void **state) {
    (void)state;
    static char text[FM_TRAIN_CONFIG_TEXT_BYTES], again[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config, stored;
    fm_error error = {.message = ""};
    assert_int_equal(fm_train_config_preset("af3-tiny", &config, NULL), FM_OK);
    config.data.plan[0] = '\0';
    fm_train_config_format(&config, text);
    assert_null(strstr(text, "plan"));
    if (fm_train_config_read_stored(text, "file", &stored, &error)) fail_msg("%s", error.message);
    fm_train_config_format(&stored, again);
    assert_string_equal(text, again);
}

static void refuse(const char *preset, const char *text, uint64_t line, const char *message) {
    fm_train_config config;
    fm_error error = {.message = ""};
    assert_int_equal(fm_train_config_preset(preset, &config, NULL), FM_OK);
    assert_int_equal(fm_train_config_parse(text_of(text), &config, &error), FM_ERR_USAGE);
    assert_int_equal(error.line, line);
    if (!strstr(error.message, message)) fail_msg("found: %s", error.message);
}

static void networks_keep_to_their_keys(void **state) {
    (void)state;
    refuse("af2-initial", "[af3]\nc_s = 8\n", 2, "c_s: found in section [af3], but model = af2");
    refuse("af3-tiny", "[model]\nn_block = 8\n", 2, "but model = af3 has no such key");
    refuse("af3-tiny", "[model]\nmodel = af4\n", 2, "found 'af4', expected af2 or af3");
    refuse("tiny", "[model]\nmodel = af3\n", 0, "begin with a preset of that model");
}

/* Sizes that no layer can have. */
static void every_head_and_class_has_room(void **state) {
    (void)state;
    refuse("tiny", "[model]\nn_distogram_bin = 2\n", 2, "expected a whole number from 3 to 256");
    refuse("af3-tiny", "[af3]\nn_distogram_bin = 2\n", 2, "expected a whole number from 3 to 256");
    refuse("af3-tiny", "[af3]\nc_s = 8\nn_head_single = 9\n", 0,
           "found c_s = 8 with n_head_single = 9, expected at least one channel for each head");
    refuse("af3-tiny", "[af3]\nc_token = 1\n", 0, "found c_token = 1 with n_head_token = ");
    refuse("af3-tiny", "[af3]\nc_atom = 1\n", 0, "found c_atom = 1 with n_head_atom = ");
}

static void the_stages_of_af3(void **state) {
    (void)state;
    fm_train_config c;
    assert_int_equal(fm_train_config_preset("af3-initial", &c, NULL), FM_OK);
    const fm_af3_config published = fm_af3_config_initial();
    assert_true(c.af3.n_token == 384 && c.af3.n_sample == 48 && c.af3_loss.bond == 0);
    assert_true(c.af3_loss.pae == 0 && c.af3_trains == FM_AF3_TRAINS_ALL);
    fm_af3_config same = c.af3;
    same.recompute = published.recompute;
    assert_memory_equal(&same, &published, sizeof same);
    assert_int_equal(fm_train_config_preset("af3-finetuning", &c, NULL), FM_OK);
    assert_true(c.af3.n_token == 640 && c.af3.n_sample == 32 && c.af3_loss.bond == 1);
    assert_int_equal(fm_train_config_preset("af3-confidence", &c, NULL), FM_OK);
    assert_true(c.af3_loss.pae == 1 && c.af3_loss.diffusion == 0 && c.af3_loss.distogram == 0);
    assert_int_equal(c.af3_trains, FM_AF3_TRAINS_CONFIDENCE);
}

/* Checkpoints without the key have f32, so f32 is not written. */
static void products_of_the_diffusion_module(void **state) {
    (void)state;
    static char plain[FM_TRAIN_CONFIG_TEXT_BYTES], other[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config c;
    assert_int_equal(fm_train_config_preset("af3-tiny", &c, NULL), FM_OK);
    assert_int_equal(c.af3.products, FM_AF3_PRODUCTS_AUTO);
    fm_train_config_format(&c, other);
    assert_non_null(strstr(other, "\ndiffusion_products = auto\n"));
    const char *text = "[af3]\ndiffusion_products = bf16\n";
    assert_int_equal(fm_train_config_parse(text_of(text), &c, NULL), FM_OK);
    assert_int_equal(c.af3.products, FM_AF3_PRODUCTS_BF16);
    fm_train_config_format(&c, other);
    assert_non_null(strstr(other, "\ndiffusion_products = bf16\n"));
    c.af3.products = FM_AF3_PRODUCTS_F32;
    fm_train_config_format(&c, plain);
    assert_null(strstr(plain, "diffusion_products"));
    fm_train_config_format_implied(&c, plain);
    assert_string_equal(plain,
                        "[model]\nmodel = af2\n[data]\nmax_template_date = "
                        "query\n[af3]\ndiffusion_products = f32\n[af3]\nconformers = stored\n");
    assert_int_equal(fm_train_config_preset("tiny", &c, NULL), FM_OK);
    fm_train_config_format_implied(&c, plain);
    assert_string_equal(plain, "[model]\nmodel = af2\n");
    refuse("af3-tiny", "[af3]\ndiffusion_products = fp8\n", 2,
           "found 'fp8', expected auto, f32, tf32 or bf16");
    refuse("tiny", "[af3]\ndiffusion_products = f32\n", 2, "but model = af2");
}

/* Runs of checkpoints without the key had conformers where their samples have them. */
static void places_of_conformers(void **state) {
    (void)state;
    static char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config c;
    assert_int_equal(fm_train_config_preset("af3-tiny", &c, NULL), FM_OK);
    assert_int_equal(c.af3_conformers, FM_AF3_CONFORMERS_DRAWN);
    fm_train_config_format(&c, text);
    assert_non_null(strstr(text, "\nconformers = drawn\n"));
    assert_int_equal(fm_train_config_preset("af3-overfit", &c, NULL), FM_OK);
    assert_int_equal(c.af3_conformers, FM_AF3_CONFORMERS_STORED);
    fm_train_config_format(&c, text);
    assert_null(strstr(text, "conformers"));
}

/* A key that changes no number is not part of a run's identity. */
static void checkpoints_omit_recomputation(void **state) {
    (void)state;
    static char plain[FM_TRAIN_CONFIG_TEXT_BYTES], other[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config;
    assert_int_equal(fm_train_config_preset("tiny", &config, NULL), FM_OK);
    fm_train_config_format(&config, plain);
    const char *text = "[model]\nrecompute = auto\nmemory_budget = 2.5\n";
    assert_int_equal(fm_train_config_parse(text_of(text), &config, NULL), FM_OK);
    assert_int_equal(config.model.recompute, FM_RECOMPUTE_AUTO);
    assert_true(config.memory_budget_gib == 2.5);
    fm_train_config_format(&config, other);
    assert_string_equal(plain, other);
    text = "[optimizer]\nclip = batch\n[data]\nmax_template_date = 2018-04-30\n";
    assert_int_equal(fm_train_config_parse(text_of(text), &config, NULL), FM_OK);
    assert_int_equal(config.data.max_template_date, 20180430);
    fm_train_config_format(&config, other);
    assert_non_null(strstr(plain, "\nmax_template_date = query\n"));
    assert_non_null(strstr(other, "\nmax_template_date = 2018-04-30\n"));
    assert_non_null(strstr(other, "\nclip = batch\n"));
}

/* Checkpoints of af3 without a date have that of their plan, so the text has none either. */
static void the_usual_date_of_af3_is_implied(void **state) {
    (void)state;
    static char text[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config, stored;
    assert_int_equal(fm_train_config_preset("af3-tiny", &config, NULL), FM_OK);
    assert_int_equal(config.data.max_template_date, FM_TEMPLATE_DATE_QUERY);
    fm_train_config_format(&config, text);
    assert_null(strstr(text, "max_template_date"));
    assert_int_equal(fm_train_config_read_stored(text, "x", &stored, NULL), FM_OK);
    assert_int_equal(stored.data.max_template_date, FM_TEMPLATE_DATE_QUERY);
    fm_train_config_format_implied(&config, text);
    assert_non_null(strstr(text, "[data]\nmax_template_date = query\n"));
    const char *change = "[data]\nmax_template_date = 2021-09-30\n";
    assert_int_equal(fm_train_config_parse(text_of(change), &config, NULL), FM_OK);
    fm_train_config_format(&config, text);
    assert_int_equal(fm_train_config_read_stored(text, "x", &stored, NULL), FM_OK);
    assert_int_equal(stored.data.max_template_date, 20210930);
}

static void printed_settings_parse_to_the_same(void **state) {
    (void)state;
    static char text[FM_TRAIN_CONFIG_TEXT_BYTES], again[FM_TRAIN_CONFIG_TEXT_BYTES];
    fm_train_config config, other;
    assert_int_equal(fm_train_config_preset("af2-finetuning", &config, NULL), FM_OK);
    assert_int_equal(fm_train_config_preset("tiny", &other, NULL), FM_OK);
    fm_train_config_format_all(&config, text);
    assert_non_null(strstr(text, "\nstructure_every = "));
    assert_int_equal(fm_train_config_parse(text_of(text), &other, NULL), FM_OK);
    fm_train_config_format_all(&other, again);
    assert_string_equal(text, again);
}

/* The count of the published models: monomer, without the pTM head. */
static void the_whole_model_has_93_million_parameters(void **state) {
    (void)state;
    fm_train_config config;
    fm_arena arena;
    fm_params params;
    static fm_model_weights weights;
    assert_int_equal(fm_train_config_preset("af2-initial", &config, NULL), FM_OK);
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&params, FM_MAX_PARAM, &arena, NULL), FM_OK);
    fm_model_add_parameters(&params, &arena, &config.model, &weights);
    print_message("%lld parameters\n", (long long)params.n_value);
    assert_int_equal(params.n_value, 93229082);
    fm_arena_fini(&arena);
}

/* All stacks may have the most blocks that their keys allow. */
static void the_deepest_model_has_room(void **state) {
    (void)state;
    fm_train_config config;
    fm_arena arena;
    fm_params params;
    static fm_model_weights weights;
    assert_int_equal(fm_train_config_preset("tiny", &config, NULL), FM_OK);
    assert_int_equal(fm_test_take_most_blocks(&config, "model"), 4);
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&params, FM_MAX_PARAM, &arena, NULL), FM_OK);
    fm_model_add_parameters(&params, &arena, &config.model, &weights);
    assert_true(params.n_param > 8192);
    fm_arena_fini(&arena);
}

static void a_file_changes_only_the_keys_it_names(void **state) {
    (void)state;
    fm_train_config config;
    assert_int_equal(fm_train_config_preset("tiny", &config, NULL), FM_OK);
    const char *text = "\xef\xbb\xbf[model]\norder = opm_first ; as in "
                       "multimer\nn_block=5\n\n[data]\ncrop_size = 48\n";
    assert_int_equal(fm_train_config_parse(text_of(text), &config, NULL), FM_OK);
    assert_int_equal(config.model.order, FM_ORDER_OUTER_FIRST);
    assert_int_equal(config.model.n_block, 5);
    assert_int_equal(config.model.n_res, 48);
    assert_int_equal(config.model.c_m, 32);
}

static void mistakes_are_refused_with_their_line(void **state) {
    (void)state;
    static const struct {
        const char *text;
        uint64_t line;
        const char *message;
    } cases[] = {
        {"[model]\nn_blok = 3\n", 2,
         "there is no key 'n_blok' in section [model]; the nearest is 'n_block' in [model]"},
        {"[model]\ncrop_size = 3\n", 2,
         "there is no key 'crop_size' in section [model]; the nearest is 'crop_size' in [data]"},
        {"[loss]\nmachine_learning_rate_of_a_key_that_has_a_long_name_indeed = 1\n", 2,
         "there is no key 'machine_learning_rate_of_a_key_that_has_a_long_name_indeed' in "
         "section [loss]"},
        {"[model]\nheads = 3\n", 2, "there is no key 'heads' in section [model]"},
        {"[modell]\nn_block = 3\n", 2,
         "found 'n_block' in section [modell], expected one of the sections model, data, parallel, "
         "optimizer, loss, metrics"},
        {"n_block = 3\n", 1,
         "found 'n_block' before the first section, expected one of the sections model, data, "
         "parallel, "
         "optimizer, loss, metrics"},
        {"[model]\nn_block = 3\nc_m = 8\nn_block = 4\n", 4,
         "n_block: found a second time, expected once"},
        {"\n\n[model]\nn_block = 0\n", 4,
         "n_block: found '0', expected a whole number from 1 to 64"},
        {"[model]\nn_block = 2.5\n", 2,
         "n_block: found '2.5', expected a whole number from 1 to 64"},
        {"[model]\nn_block = many\n", 2,
         "n_block: found 'many', expected a whole number from 1 to 64"},
        {"[model]\ndropout_msa = nan\n", 2,
         "dropout_msa: found 'nan', expected a number from 0 to 0.9"},
        {"[model]\norder = last\n", 2,
         "order: found 'last', expected original, opm_first or parallel"},
        {"[model]\nrecompute = all\n", 2,
         "recompute: found 'all', expected none, hidden, projections, operands, block or auto"},
        {"[optimizer]\nema_decay = 1\n", 2,
         "ema_decay: found '1', expected a number from 0 to 0.999999"},
        {"[optimizer]\nclip = never\n", 2, "clip: found 'never', expected sample or batch"},
        {"[data]\nmax_template_date = 2018-02-30\n", 2,
         "max_template_date: found '2018-02-30', expected a day as YYYY-MM-DD, query or any"},
        {"[data]\nplan = a-name-that-is-longer-than-a-plan-can-be\n", 2,
         "plan: found 'a-name-that-is-longer-than-a-plan-can-be', expected the name of a sampling "
         "plan"},
        {"[model\n", 1, "expected [section], key = value or a comment"},
        {"[model\nn_block = 1\n", 1, "expected [section], key = value or a comment"},
        {"[preset]\nbase = tiny\n", 2,
         "found 'base' in section [preset], which only the program's own presets have; --preset "
         "chooses what a file changes"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        fm_train_config config, before;
        fm_error error;
        assert_int_equal(fm_train_config_preset("tiny", &config, NULL), FM_OK);
        before = config;
        assert_int_equal(fm_train_config_parse(text_of(cases[i].text), &config, &error),
                         FM_ERR_USAGE);
        assert_string_equal(error.message, cases[i].message);
        assert_int_equal(error.line, cases[i].line);
        assert_int_equal(config.model.n_block, before.model.n_block);
    }
    fm_train_config config;
    fm_error error;
    assert_int_equal(fm_train_config_preset("huge", &config, &error), FM_ERR_USAGE);
    assert_non_null(strstr(error.message, "overfit, tiny"));
}

/* A library reads the lines into a buffer of 200 bytes and takes what follows for another line. The
 * tail of a comment must not become a setting. */
static void long_lines_and_nul_bytes_are_refused(void **state) {
    (void)state;
    enum { MOST = 198 };
    static const char tail[] = "\nclip_norm = 0.5\n";
    char text[512], ended[] = "[model]\nn_block = 3\n# \0\nc_m = 8\n";
    fm_train_config config;
    fm_error error;
    for (int extra = 0; extra <= 2; extra++) {
        assert_int_equal(fm_train_config_preset("tiny", &config, NULL), FM_OK);
        const int64_t n_block = config.model.n_block;
        int n = snprintf(text, sizeof text, "[optimizer]\n#%*s%s", MOST - 1 + extra, "", tail);
        const fm_bytes bytes = {(const uint8_t *)text, (size_t)n};
        fm_status status = fm_train_config_parse(bytes, &config, &error);
        assert_int_equal(status, extra ? FM_ERR_USAGE : FM_OK);
        if (extra) assert_true(error.line == 2 && strstr(error.message, "more than 198 bytes"));
        assert_int_equal(config.model.n_block, n_block);
    }
    snprintf(text, sizeof text, ";%*s[model]\nn_block = 1\n", MOST, "");
    refuse("tiny", text, 1, "found a line of more than 198 bytes");
    const fm_bytes bytes = {(const uint8_t *)ended, sizeof ended - 1};
    assert_int_equal(fm_train_config_parse(bytes, &config, &error), FM_ERR_USAGE);
    assert_true(error.line == 3 && error.column == 3);
    assert_string_equal(error.message, "found a NUL byte, expected text");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(long_lines_and_nul_bytes_are_refused),
        cmocka_unit_test(presets_are_whole),
        cmocka_unit_test(stages_are_those_of_the_supplement),
        cmocka_unit_test(initial_training_has_the_papers_sizes),
        cmocka_unit_test(finetuning_is_the_papers_second_stage),
        cmocka_unit_test(presets_inherit),
        cmocka_unit_test(every_key_is_documented),
        cmocka_unit_test(a_text_carries_its_network),
        cmocka_unit_test(texts_of_stored_samples_have_no_plan),
        cmocka_unit_test(networks_keep_to_their_keys),
        cmocka_unit_test(every_head_and_class_has_room),
        cmocka_unit_test(the_stages_of_af3),
        cmocka_unit_test(products_of_the_diffusion_module),
        cmocka_unit_test(places_of_conformers),
        cmocka_unit_test(checkpoints_omit_recomputation),
        cmocka_unit_test(the_usual_date_of_af3_is_implied),
        cmocka_unit_test(printed_settings_parse_to_the_same),
        cmocka_unit_test(the_whole_model_has_93_million_parameters),
        cmocka_unit_test(the_deepest_model_has_room),
        cmocka_unit_test(a_file_changes_only_the_keys_it_names),
        cmocka_unit_test(mistakes_are_refused_with_their_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
