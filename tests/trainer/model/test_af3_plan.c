/* Tests that the published model's step can be recorded and planned at its initial-training shape.
 * Recomputing blocks or sharing the sample between ranks must save most of the memory, and the
 * steps of a rollout compute nothing that is the same in all of them. Nothing is run. */
#include "tests/testing/local_groups.h"
#include "tests/testing/model_configs.h"
#include "trainer/model/af3/island.h"
#include "trainer/model/af3/rollout.h"
#include "trainer/model/af3/split.h"
#include "trainer/step/memory_budget.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const double GIB = 1 << 30;

/* Both passes with a gradient. They take turns in one arena. */
typedef struct passes {
    fm_af3_config config;
    fm_tape_size last, confidence; /* as planned */
} passes;

/* Plans them on one of config.groups. */
static fm_status plan(void *context, fm_error *reterr) {
    passes *p = context;
    fm_arena arena = {0};
    fm_params params;
    fm_state state = {0};
    fm_tape last, confidence;
    static fm_af3_weights weights;
    fm_af3_inputs inputs;
    const fm_af3_config *config = &p->config;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    const int64_t structure[] = {1, config->n_atom, 3};
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, reterr), FM_OK);
    assert_int_equal(fm_params_init(&params, FM_AF3_MAX_PARAM, &arena, reterr), FM_OK);
    fm_af3_add_parameters(&params, &arena, config, &weights);
    fm_af3_declare_inputs(&state, config, kernels, &inputs);
    int32_t x = fm_state_add(&state, "structure", kernels->acc, 3, structure);
    assert_int_equal(fm_tape_init(&last, kernels, &params, &state, true, reterr), FM_OK);
    fm_af3_outputs out = fm_af3_record_last(&last, config, 0, &weights, &inputs);
    int32_t dx = fm_state_add_like(&state, fm_tape_tensor(&last, out.x_denoised));
    int32_t dlogits = fm_state_add_like(&state, fm_tape_tensor(&last, out.distogram));
    fm_tape_seed_gradient(&last, out.x_denoised, dx);
    fm_tape_seed_gradient(&last, out.distogram, dlogits);
    assert_int_equal(fm_tape_plan(&last, reterr), FM_OK);
    assert_int_equal(fm_tape_init(&confidence, kernels, &params, &state, true, reterr), FM_OK);
    fm_af3_confidence_logits logits =
        fm_af3_record_confidence(&confidence, config, &weights, &inputs, x);
    int32_t dpae = fm_state_add_like(&state, fm_tape_tensor(&confidence, logits.pae));
    fm_tape_seed_gradient(&confidence, logits.pae, dpae);
    assert_int_equal(fm_tape_plan(&confidence, reterr), FM_OK);
    p->last = last.size;
    p->confidence = confidence.size;
    fm_tape_fini(&confidence);
    fm_tape_fini(&last);
    fm_arena_fini(&arena);
    return FM_OK;
}

static int64_t bytes_of(const void *context) {
    const passes *p = context;
    int64_t last = p->last.arena_bytes, confidence = p->confidence.arena_bytes;
    return last > confidence ? last : confidence;
}

static int64_t bytes_with(passes *p, fm_recompute_policy policy, int32_t steps) {
    p->config.recompute = policy;
    p->config.recompute_steps = steps;
    assert_int_equal(plan(p, NULL), FM_OK);
    return bytes_of(p);
}

/* Plans the published model on one of `groups`. */
static int64_t plan_published(fm_recompute_policy recompute, const fm_groups *groups) {
    passes p = {.config = fm_af3_config_initial()};
    p.config.groups = groups;
    int64_t bytes = bytes_with(&p, recompute, 0);
    print_message("%d ranks: %d nodes, %.1f GiB of f32\n", (int)fm_groups_part(groups).count,
                  (int)p.last.n_node, (double)bytes / GIB);
    return bytes;
}

static void recomputed_blocks_save_memory(void **state) {
    (void)state;
    int64_t all = plan_published(FM_RECOMPUTE_NONE, NULL),
            some = plan_published(FM_RECOMPUTE_BLOCK, NULL);
    assert_true(some < all / 4);
}

/* Each stage of the order takes all blocks of a stack to a policy, and no stage takes one back. */
static void steps_end_with_whole_blocks(void **state) {
    (void)state;
    const fm_af3_config config = fm_af3_config_initial();
    const fm_recompute_order order = fm_af3_config_order(&config);
    const int32_t n = fm_recompute_order_steps(&order);
    for (int32_t stack = 0; stack < FM_AF3_STACKS; stack++) {
        for (int32_t i = 0; i < order.n_block[stack]; i++) {
            fm_recompute_policy last = FM_RECOMPUTE_NONE;
            for (int32_t steps = 0; steps <= n; steps++) {
                fm_recompute_policy now = fm_recompute_order_policy(&order, steps, stack, i);
                assert_true(now >= last);
                last = now;
            }
            assert_int_equal(fm_recompute_order_policy(&order, 0, stack, i), FM_RECOMPUTE_NONE);
            assert_int_equal(last, FM_RECOMPUTE_BLOCK);
        }
    }
    passes p = {.config = config};
    assert_int_equal(bytes_with(&p, FM_RECOMPUTE_AUTO, n), bytes_with(&p, FM_RECOMPUTE_BLOCK, 0));
}

/* Between nothing and all blocks, a budget is used up to the memory that one block saves. */
static void budgets_take_as_few_steps_as_fit(void **state) {
    (void)state;
    passes p = {.config = fm_af3_config_initial()};
    const fm_recompute_order order = fm_af3_config_order(&p.config);
    for (int64_t gib = 20; gib <= 200; gib += gib < 40 || gib > 80 ? 20 : 7) {
        int64_t bytes = gib << 30;
        const fm_memory_budget budget = {.device = fm_kernels_cpu(FM_ELEMENT_F32)->device,
                                         .bytes = &bytes,
                                         .policy = &p.config.recompute,
                                         .steps = &p.config.recompute_steps,
                                         .most_steps = fm_recompute_order_steps(&order),
                                         .context = &p,
                                         .record = plan,
                                         .memory_bytes = bytes_of};
        p.config.recompute = FM_RECOMPUTE_AUTO;
        assert_int_equal(fm_memory_budget_record(&budget, NULL), FM_OK);
        const int64_t planned = bytes_of(&p), least = (gib - 4) << 30;
        const int32_t steps = p.config.recompute_steps;
        assert_int_equal(bytes, gib << 30);
        assert_true(planned <= bytes);
        print_message("%d GiB: %d steps, %.1f GiB\n", (int)gib, (int)steps, (double)planned / GIB);
        if (p.config.recompute == FM_RECOMPUTE_NONE) continue;
        assert_true(planned > least);
        assert_true(bytes_with(&p, FM_RECOMPUTE_AUTO, steps - 1) > bytes);
    }
}

/* Each rank has a part of the pairs and of the structures. */
static void ranks_share_the_memory(void **state) {
    (void)state;
    int64_t one = plan_published(FM_RECOMPUTE_NONE, NULL);
    for (int32_t ranks = 2; ranks <= 4; ranks *= 2) {
        const fm_layout layout = {ranks, 1, 1};
        fm_local_groups *groups = NULL;
        assert_int_equal(
            fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, NULL), FM_OK);
        int64_t first = plan_published(FM_RECOMPUTE_NONE, fm_local_groups_get(groups, 0));
        int64_t last = plan_published(FM_RECOMPUTE_NONE, fm_local_groups_get(groups, ranks - 1));
        assert_int_equal(first, last);
        assert_true(first < one * 5 / (4 * ranks));
        fm_local_groups_destroy(groups);
    }
}

/* Returns how many nodes of the tape have this name. */
static int count(const fm_tape *tape, const char *name) {
    int n = 0;
    for (int32_t i = 0; i < tape->n_node; i++)
        n += !strcmp(tape->node[i].name, name);
    return n;
}

/* What a step may compute of the conditioning signal: nothing. */
static void expect_no_modulations(const fm_tape *prepare, const fm_tape *step,
                                  const fm_af3_config *config) {
    static const char *const names[] = {"conditioning single", "conditioning noise",
                                        "conditioning transition", "diffusion single"};
    const int sublayers = 2 * config->n_diffusion_block + 2 * 2 * config->n_atom_block;
    const int norms = sublayers + 2 * config->n_atom_block; /* and those of the keys of atoms */
    int linear = 0;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(count(step, names[i]), 0);
    for (int32_t i = 0; i < step->n_node; i++) {
        const fm_node *node = &step->node[i];
        const bool is_end = strstr(node->name, "gate") != NULL;
        linear += is_end && !strcmp(node->op->name, "linear");
        if (!strcmp(node->op->name, "adaln")) assert_int_equal(node->n_param, 0);
    }
    assert_int_equal(linear, 0);
    assert_int_equal(count(prepare, "modulation norm"), norms);
    assert_int_equal(count(prepare, "modulation gate"), norms);
    assert_int_equal(count(prepare, "modulation last"), sublayers);
}

/* The pass before the steps computes and stores the bias of each diffusion block, and all that the
 * conditioning signal gives the blocks. A step reads them. */
static void steps_make_what_is_theirs_alone(void **state) {
    (void)state;
    fm_arena arena = {0};
    fm_params params;
    fm_state values = {0};
    fm_tape prepare, step;
    static fm_af3_weights weights;
    fm_af3_inputs inputs;
    fm_af3_rollout rollout;
    const fm_af3_config config = fm_af3_config_initial();
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&params, FM_AF3_MAX_PARAM, &arena, NULL), FM_OK);
    fm_af3_add_parameters(&params, &arena, &config, &weights);
    fm_af3_declare_inputs(&values, &config, kernels, &inputs);
    fm_af3_declare_rollout(&values, &config, kernels, 1, config.n_rollout_step, false, &rollout);
    assert_int_equal(fm_tape_init(&prepare, kernels, &params, &values, false, NULL), FM_OK);
    assert_int_equal(fm_tape_init(&step, kernels, &params, &values, false, NULL), FM_OK);
    fm_af3_record_prepare(&prepare, &config, &weights, &inputs);
    fm_af3_record_modulations(&prepare, &config, &weights, &inputs, &rollout);
    fm_af3_record_rollout_step(&step, &config, &weights, &inputs, &rollout, FM_DRAW_ROLLOUT);
    /* A LayerNorm, a product and a store. */
    assert_int_equal(count(&prepare, "attention bias"), 3 * config.n_diffusion_block);
    assert_int_equal(count(&step, "attention bias"), 0);
    assert_int_equal(count(&prepare, "window bias"), 4 * config.n_atom_block);
    assert_int_equal(count(&step, "window pairs") + count(&step, "window bias"), 0);
    assert_int_equal(count(&step, "conditioning pairs") + count(&step, "atom pairs"), 0);
    expect_no_modulations(&prepare, &step, &config);
    for (int32_t i = 0; i < config.n_diffusion_block; i++) {
        const fm_tensor *bias = &values.tensor[inputs.prepared_bias[i]];
        int64_t n = config.n_token * config.n_token * config.n_head_token;
        assert_int_equal(fm_tensor_local_bytes(bias), n * (int64_t)sizeof(float));
    }
    print_message("%d nodes of prepare, %d of a step\n", (int)prepare.n_node, (int)step.n_node);
    fm_tape_fini(&step);
    fm_tape_fini(&prepare);
    fm_arena_fini(&arena);
}

/* A table with a wide one has a narrow type, too. f64 has no tf32. */
static void tables_have_some_products(void **state) {
    (void)state;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32),
                     *f64 = fm_kernels_cpu(FM_ELEMENT_F64);
    fm_kernels narrow = *kernels;
    narrow.wide = kernels;
    fm_af3_config config = fm_af3_config_initial();
    fm_error error = {0};
    config.products = FM_AF3_PRODUCTS_F32;
    assert_int_equal(fm_af3_check_products(&config, kernels, &error), FM_OK);
    assert_int_equal(fm_af3_check_products(&config, &narrow, &error), FM_OK);
    assert_ptr_equal(fm_af3_diffusion_table(&config, &narrow), kernels);
    config.products = FM_AF3_PRODUCTS_TF32;
    assert_int_equal(fm_af3_check_products(&config, kernels, &error), FM_OK);
    assert_int_equal(fm_af3_check_products(&config, &narrow, &error), FM_OK);
    assert_ptr_equal(fm_af3_diffusion_table(&config, &narrow), kernels->tf32);
    assert_int_equal(fm_af3_check_products(&config, f64, &error), FM_ERR_UNSUPPORTED);
    assert_non_null(strstr(error.message, "diffusion_products = tf32: cpu-f64"));
    config.products = FM_AF3_PRODUCTS_BF16;
    assert_int_equal(fm_af3_check_products(&config, kernels, &error), FM_ERR_UNSUPPORTED);
    assert_int_equal(fm_af3_check_products(&config, &narrow, &error), FM_OK);
    assert_ptr_equal(fm_af3_diffusion_table(&config, &narrow), &narrow);
    config.products = FM_AF3_PRODUCTS_AUTO;
    assert_int_equal(fm_af3_check_products(&config, f64, &error), FM_OK);
    assert_ptr_equal(fm_af3_diffusion_table(&config, f64), f64);
    assert_ptr_equal(fm_af3_diffusion_table(&config, kernels), kernels);
    assert_ptr_equal(fm_af3_diffusion_table(&config, &narrow), kernels->tf32);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recomputed_blocks_save_memory),
                                       cmocka_unit_test(steps_end_with_whole_blocks),
                                       cmocka_unit_test(budgets_take_as_few_steps_as_fit),
                                       cmocka_unit_test(ranks_share_the_memory),
                                       cmocka_unit_test(steps_make_what_is_theirs_alone),
                                       cmocka_unit_test(tables_have_some_products)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
