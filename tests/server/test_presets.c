/* test_presets.c: the plans of the server and the presets of the trainer: each preset has the plan
 * of its name, with the same sizes, so that one name stands for one way to train. */
#include "featurizer/sample/plan.h"
#include "trainer/app/settings/presets.h"
#include "trainer/app/settings/train_config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void check_complexes(const fm_plan *plan, const fm_train_config *config) {
    assert_int_equal(plan->kind, FM_SAMPLE_OF_COMPLEX);
    assert_int_equal(plan->max_atoms, config->data.max_atoms);
    assert_int_equal(plan->max_msa, config->data.max_msa);
    assert_int_equal(plan->max_templates, config->data.n_template);
    assert_int_equal(plan->max_planned_msa, 16384);
    assert_int_equal(plan->template_days, 60);
    char name[40];
    fm_plan evaluation;
    snprintf(name, sizeof name, "%s-eval", plan->name);
    assert_int_equal(fm_plan_find(name, &evaluation, NULL), FM_OK);
    assert_int_equal(fm_plan_check(&evaluation, NULL), FM_OK);
    assert_string_equal(evaluation.name, name);
    assert_true(evaluation.order == FM_ORDER_LISTED && evaluation.global_batch == 1 &&
                evaluation.always_max_cycle && evaluation.best_templates);
    assert_int_equal(evaluation.crop_size, plan->crop_size);
    assert_int_equal(evaluation.max_templates, plan->max_templates);
    assert_int_equal(plan->max_template_date, config->data.max_template_date);
}

static void a_preset_and_its_plan_agree(void **state) {
    (void)state;
    for (const fm_preset *p = fm_presets; p->name; p++) {
        fm_train_config config;
        fm_plan plan;
        fm_error error = {.message = ""};
        assert_int_equal(fm_train_config_preset(p->name, &config, &error), FM_OK);
        if (fm_plan_find(p->name, &plan, &error)) fail_msg("%s", error.message);
        assert_int_equal(fm_plan_check(&plan, &error), FM_OK);
        assert_int_equal(plan.global_batch, config.data.global_batch);
        assert_int_equal(plan.crop_size, config.data.crop_size);
        assert_int_equal(plan.max_cycle, config.data.max_cycle);
        if (config.network == FM_NETWORK_AF3) {
            check_complexes(&plan, &config);
            continue;
        }
        assert_int_equal(plan.kind, FM_SAMPLE_OF_CHAIN);
        assert_int_equal(plan.max_msa_clusters, config.data.max_msa_clusters);
        assert_int_equal(plan.max_extra_msa, config.data.max_extra_msa);
        assert_int_equal(plan.max_template_date, config.data.max_template_date);
        assert_int_equal(plan.compat_openfold, config.model.compat == FM_COMPAT_OPENFOLD);
        /* The small models read fewer templates than their plans draw; no model reads more. */
        bool is_small = strcmp(p->name, "tiny") == 0 || strcmp(p->name, "overfit") == 0;
        assert_true(is_small ? plan.max_templates >= config.model.n_template
                             : plan.max_templates == config.model.n_template);
        assert_true(plan.clamped_fape_q32 > 0 && plan.n_delete_block == 5 &&
                    plan.template_pool == 20 && plan.max_distillation_msa == 1000);
    }
}

static void chains_have_their_own_evaluation(void **state) {
    (void)state;
    fm_plan plan;
    assert_int_equal(fm_plan_find("tiny-eval", &plan, NULL), FM_ERR_NOT_FOUND);
    assert_int_equal(fm_plan_find("af3-tiny-", &plan, NULL), FM_ERR_NOT_FOUND);
    assert_int_equal(fm_plan_find("af3-tiny-eval-eval", &plan, NULL), FM_ERR_NOT_FOUND);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_preset_and_its_plan_agree),
        cmocka_unit_test(chains_have_their_own_evaluation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
