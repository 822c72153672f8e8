/* Tests of AlphaFold 3's parameter table: how many values each module has, and how they start. */
#include "tests/trainer/common/golden.h"
#include "tests/trainer/parity/af3_formula.h"
#include "tests/testing/model_configs.h"
#include "trainer/model/af3/model.h"
#include "trainer/optim/optimizer.h"

enum { N_CONSTANT = 2 }; /* the Fourier embedding's w and b */

typedef struct table {
    fm_arena arena;
    fm_params params;
    fm_af3_weights weights;
} table;

static void open_table(table *t, const fm_af3_config *config) {
    *t = (table){0};
    assert_int_equal(fm_arena_init(&t->arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&t->params, FM_AF3_MAX_PARAM, &t->arena, NULL), FM_OK);
    fm_af3_add_parameters(&t->params, &t->arena, config, &t->weights);
}

static void close_table(table *t) {
    fm_arena_fini(&t->arena);
}

/* Values of all parameters whose name begins with `prefix`. */
static int64_t count_below(const table *t, const char *prefix) {
    int64_t n = 0;
    for (int32_t p = 0; p < t->params.n_param; p++) {
        const fm_param *row = &t->params.param[p];
        bool is_constant = row->offset >= fm_params_trained(&t->params) && t->params.has_constants;
        if (!is_constant && !strncmp(row->name, prefix, strlen(prefix))) n += fm_param_count(row);
    }
    return n;
}

/* The published model, whose authors state 368 million. */
static void test_counts_by_module(void **state) {
    (void)state;
    static const struct {
        const char *prefix;
        int64_t count;
    } modules[] = {
        {"diffusion_module.diffusion_transformer.", 198343680},
        {"diffusion_module.diffusion_transformer.blocks.7.", 8264320},
        {"diffusion_module.diffusion_conditioning.", 2438209},
        {"diffusion_module.atom_attention_encoder.", 1142720},
        {"diffusion_module.atom_attention_decoder.", 1036400},
        {"diffusion_module.atom_attention_decoder.atom_transformer.diffusion_transformer.blocks.1.",
         312528},
        {"pairformer_stack.", 147400704},
        {"pairformer_stack.blocks.47.", 3070848},
        {"msa_module.", 3001024},
        {"msa_module.blocks.0.", 758272},
        {"msa_module.blocks.3.", 695296},
        {"input_embedder.", 1041472},
        {"confidence_head.", 12901888},
        {"template_embedder.", 420224},
        {"template_embedder.pairformer_stack.blocks.1.", 198272},
    };
    table t;
    fm_af3_config config = fm_af3_config_initial();
    open_table(&t, &config);
    for (size_t i = 0; i < sizeof modules / sizeof modules[0]; i++) {
        int64_t count = count_below(&t, modules[i].prefix);
        if (count != modules[i].count) {
            print_error("%s: %lld values, expected %lld\n", modules[i].prefix, (long long)count,
                        (long long)modules[i].count);
        }
        assert_int_equal(count, modules[i].count);
    }
    assert_int_equal(t.params.n_value, 368484145);
    assert_int_equal(t.params.n_param, 4170 + N_CONSTANT);
    close_table(&t);
}

/* The reference's weights of the published model follow from their names. Their norms agree, so
 * names and shapes do. Every 16th row is drawn, since all have 368 million values. */
static void test_drawn_weights(void **state) {
    (void)state;
    golden file = {0};
    golden_open(&file, "af3/af3_full.npz");
    const fm_npy *names = golden_find(&file, "", "param_names");
    const double *norms = golden_find(&file, "", "weight_norm")->data;
    table t;
    fm_af3_config config = fm_af3_config_initial();
    open_table(&t, &config);
    const char *at = names->data, *end = at + names->count;
    int32_t n_row = 0;
    for (int64_t line = 0; at < end; line++) {
        char name[256];
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        int length = (int)((stop ? stop : end) - at);
        snprintf(name, sizeof name, "%.*s", length, at);
        at += length + 1;
        const fm_param *row = fm_params_find(&t.params, name);
        assert_non_null(row);
        n_row++;
        if (line % 16) continue;
        uint64_t hash = fnv1a(name);
        double square = 0;
        for (int64_t i = 0; i < fm_param_count(row); i++) {
            double value = (double)af3_drawn_parameter(row, hash, i);
            square += value * value;
        }
        assert_true(fabs(sqrt(square) - norms[line]) <= 1e-9 * norms[line]);
    }
    assert_int_equal(n_row + N_CONSTANT, t.params.n_param);
    close_table(&t);
    golden_close(&file);
}

/* -- initial values, by section 8 of the specification */

typedef enum law { ZERO, ONE, MINUS_TWO, LECUN, HE, NORMAL } law;

static bool ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* Whether the last module of the name is a LayerNorm: layernorm_z.weight, plddt_ln.bias. */
static bool is_norm(const char *name) {
    const char *leaf = strrchr(name, '.'), *module = leaf;
    while (module && module > name && module[-1] != '.')
        module--;
    if (!module) return false;
    const char *norm = strstr(module, "norm");
    return (norm && norm < leaf) || !strncmp(leaf - 3, "_ln", 3);
}

/* Finds the law of a parameter by its name. The first pattern that fits counts. Patterns that begin
 * with '^' are whole names, and others are ends of names; `of` must be part of the name. */
static law law_of(const char *name) {
    static const struct {
        const char *of, *end;
        law law;
    } laws[] = {
        {"fourier_embedding", "", NORMAL},
        /* adaptive norms */
        {"layernorm_a.", "linear_s.bias", ZERO},
        {"layernorm_kv.", "linear_s.bias", ZERO},
        {"adaln.", "linear_s.bias", ZERO},
        {"", "layernorm_a.linear_s.weight", ZERO},
        {"", "layernorm_kv.linear_s.weight", ZERO},
        {"", "adaln.linear_s.weight", ZERO},
        {"", "linear_nobias_s.weight", ZERO},
        /* gates that end a conditioned sublayer */
        {"", "linear_a_last.weight", ZERO},
        {"", "linear_a_last.bias", MINUS_TWO},
        {"conditioned_transition_block.", "linear_s.weight", ZERO},
        {"conditioned_transition_block.", "linear_s.bias", MINUS_TWO},
        {"", ".bias", ZERO},
        /* gates */
        {"", "linear_g.weight", ZERO},
        {"", "linear_a_g.weight", ZERO},
        {"", "linear_b_g.weight", ZERO},
        {"", "linear_no_bias_mg.weight", ZERO},
        /* ends of sublayers, and heads */
        {"transition", "linear_no_bias.weight", ZERO},
        {"", "msa_pair_weighted_averaging.linear_no_bias_out.weight", ZERO},
        {"", "outer_product_mean_msa.linear_out.weight", ZERO},
        {"tri_att", "mha.linear_o.weight", ZERO},
        {"tri_mul", "linear_z.weight", ZERO},
        {"diffusion_transformer", "attention.linear_o.weight", LECUN},
        {"", "attention.linear_o.weight", ZERO},
        {"", "small_mlp.5.weight", ZERO},
        {"", "distogram_head.linear.weight", ZERO},
        {"", "confidence_head.linear_no_bias_pae.weight", ZERO},
        {"", "confidence_head.linear_no_bias_pde.weight", ZERO},
        {"", "plddt_weight", ZERO},
        {"", "resolved_weight", ZERO},
        {"", "^linear_no_bias_z_cycle.weight", ZERO},
        {"", "^linear_no_bias_s.weight", ZERO},
        {"", "atom_attention_encoder.linear_no_bias_s.weight", ZERO},
        {"", "atom_attention_encoder.linear_no_bias_z.weight", ZERO},
        {"", "^diffusion_module.linear_no_bias_s.weight", ZERO},
        /* before a ReLU or SiLU */
        {"", "small_mlp.1.weight", HE},
        {"", "small_mlp.3.weight", HE},
        {"transition", "linear_no_bias_a.weight", HE},
        {"transition", "linear_no_bias_b.weight", HE},
        {"", "linear_nobias_a1.weight", HE},
        {"", "linear_nobias_a2.weight", HE},
        {"", "", LECUN},
    };
    if (is_norm(name)) return ends(name, ".weight") ? ONE : ZERO;
    for (size_t i = 0;; i++) {
        const char *end = laws[i].end;
        bool fits = *end == '^' ? !strcmp(name, end + 1) : ends(name, end);
        if (fits && strstr(name, laws[i].of)) return laws[i].law;
    }
}

/* Checks n drawn values of a parameter: constants exactly, others by their range, mean and
 * deviation, within five standard errors. */
static bool obeys(const float *value, int64_t n, law expected, double fan_in) {
    const double constant = expected == ONE ? 1 : expected == MINUS_TWO ? -2 : 0;
    double deviation = expected == NORMAL ? 1 : sqrt((expected == HE ? 2 : 1) / fan_in);
    double most = expected == NORMAL ? 7 : 2 * deviation / 0.87962566, mean = 0, square = 0;
    if (expected <= MINUS_TWO) {
        for (int64_t i = 0; i < n; i++)
            if ((double)value[i] != constant) return false;
        return true;
    }
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs((double)value[i]) <= most * 1.000001)) return false;
        mean += (double)value[i] / (double)n;
        square += (double)value[i] * (double)value[i] / (double)n;
    }
    double width = 5 / sqrt((double)n);
    return fabs(mean) <= width * deviation &&
           fabs(square / (deviation * deviation) - 1) <= 1.5 * width;
}

static fm_af3_config small(void) {
    fm_af3_config c = fm_af3_config_initial();
    c.c_s = 48, c.c_z = 32, c.c_m = 24, c.c_token_in = 48, c.c_token = 64;
    c.c_atom = 32, c.c_atompair = 8, c.c_template = 16, c.c_noise = 32;
    c.n_pairformer_block = c.n_msa_block = c.n_diffusion_block = 2;
    c.n_template_block = c.n_atom_block = c.n_input_atom_block = c.n_confidence_block = 1;
    c.n_head_single = c.n_head_token = 4;
    return c;
}

static void draw(table *t, uint64_t seed) {
    assert_int_equal(fm_af3_draw_parameters(&t->params, seed, NULL), FM_OK);
}

static void test_initial_values(void **state) {
    (void)state;
    table t;
    fm_af3_config config = small();
    open_table(&t, &config);
    assert_int_equal(fm_params_allocate(&t.params, fm_kernels_cpu(FM_ELEMENT_F32), NULL), FM_OK);
    draw(&t, 7);
    const float *master = t.params.master, *ema = t.params.ema;
    int64_t n_of[NORMAL + 1] = {0};
    int n_wrong = 0;
    for (int32_t p = 0; p < t.params.n_param; p++) {
        const fm_param *row = &t.params.param[p];
        law expected = law_of(row->name);
        double fan_in = (double)row->shape[row->rank - 1];
        n_of[expected]++;
        if (obeys(master + row->offset, fm_param_count(row), expected, fan_in)) continue;
        print_error("%s does not have its initial values\n", row->name);
        n_wrong++;
    }
    assert_int_equal(n_wrong, 0);
    for (int i = 0; i <= NORMAL; i++)
        assert_true(n_of[i] > 0);
    assert_int_equal(n_of[NORMAL], N_CONSTANT);
    assert_memory_equal(master, ema, (size_t)t.params.n_element * sizeof *master);
    fm_params_release(&t.params);
    close_table(&t);
}

/* The same seed gives the same bytes; another one gives others, in the constants as well. */
static void test_seeds(void **state) {
    (void)state;
    table t;
    fm_af3_config config = small();
    open_table(&t, &config);
    assert_int_equal(fm_params_allocate_values(&t.params, fm_kernels_cpu(FM_ELEMENT_F32), NULL),
                     FM_OK);
    const size_t bytes = (size_t)t.params.n_element * sizeof(float);
    const int64_t trained = fm_params_trained(&t.params);
    float *first = malloc(bytes), *master = t.params.master;
    assert_non_null(first);
    draw(&t, 7);
    memcpy(first, master, bytes);
    draw(&t, 8);
    assert_memory_not_equal(first, master, (size_t)trained * sizeof(float));
    assert_memory_not_equal(first + trained, master + trained, bytes - (size_t)trained * 4);
    draw(&t, 7);
    assert_memory_equal(first, master, bytes);
    free(first);
    fm_params_release(&t.params);
    close_table(&t);
}

/* Adam, its L2 term and the norm leave constants alone, whatever their gradient is. */
static void test_constants_are_not_trained(void **state) {
    (void)state;
    table t;
    fm_af3_config config = small();
    open_table(&t, &config);
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    assert_int_equal(fm_params_allocate(&t.params, kernels, NULL), FM_OK);
    draw(&t, 7);
    const int64_t first = fm_params_trained(&t.params), n = t.params.n_element - first;
    const float *w = (const float *)t.params.master + first;
    float *before = malloc((size_t)n * sizeof *before), *gradient = t.params.gradient;
    assert_non_null(before);
    memcpy(before, w, (size_t)n * sizeof *before);
    for (int64_t i = 0; i < t.params.n_element; i++)
        gradient[i] = i < first ? 0 : 1e6f;
    gradient[0] = 3;
    fm_optimizer_options options = fm_optimizer_defaults();
    options.clip = FM_CLIP_BATCH, options.l2 = 0.1, options.rate = 1, options.warmup_samples = 0;
    fm_optimizer optimizer;
    assert_int_equal(fm_optimizer_init(&optimizer, &t.params, &options, NULL), FM_OK);
    assert_true(fm_optimizer_add_sample(&optimizer, NULL));
    assert_true(fabs(fm_optimizer_get_state(&optimizer, NULL).norm_squared - 9) < 1e-6);
    fm_optimizer_step(&optimizer, NULL);
    assert_memory_equal(before, w, (size_t)n * sizeof *before);
    free(before);
    fm_optimizer_fini(&optimizer);
    fm_params_release(&t.params);
    close_table(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counts_by_module), cmocka_unit_test(test_drawn_weights),
        cmocka_unit_test(test_initial_values), cmocka_unit_test(test_seeds),
        cmocka_unit_test(test_constants_are_not_trained)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
