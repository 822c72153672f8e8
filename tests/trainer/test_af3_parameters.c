/* Tests of AlphaFold 3's parameter table: how many values each module has, and how they start. */
#include "tests/trainer/golden.h"
#include "tests/trainer/af3_formula.h"
#include "trainer/model/af3/model.h"

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
        if (!strncmp(row->name, prefix, strlen(prefix))) n += fm_param_count(row);
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
    assert_int_equal(t.params.n_param, 4170);
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
    assert_int_equal(n_row, t.params.n_param);
    close_table(&t);
    golden_close(&file);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts_by_module),
                                       cmocka_unit_test(test_drawn_weights)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
