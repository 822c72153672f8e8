/* Tests of AlphaFold 3's parameter table: how many values each module has, and how they start. */
#include "trainer/model/af3/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_counts_by_module)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
