/* test_sample_choose.c: tests the choices that a sample makes once, crop starts and templates: by
 * default as in the paper, with compat_openfold as in OpenFold (docs/reference/sampling.md, section
 * 10). Also the refusals of expansion. */
#include "featurizer/sample/choose.h"
#include "featurizer/sample/expand.h"
#include "featurizer/sample/sample.h"
#include "tests/featurizer/synthetic_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_DRAW = 20000 };

static fm_plan plan_of(const char *name) {
    fm_plan plan;
    assert_int_equal(fm_plan_find(name, &plan, NULL), FM_OK);
    return plan;
}

/* Counts how often each start is drawn for a chain of n_free residues more than the crop, in
 * 1/1000. */
static void crop_shares(const char *name, bool is_clamped, uint32_t n_free, uint32_t *share) {
    fm_plan plan = plan_of(name);
    memset(share, 0, (n_free + 1) * sizeof *share);
    for (uint64_t i = 0; i < N_DRAW; i++) {
        fm_sample_draw key = {.seed = 3, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        uint32_t start = fm_choose_crop_start(&plan, &draws, is_clamped, 100 + n_free, 100);
        assert_true(start <= n_free);
        share[start]++;
    }
    for (uint32_t s = 0; s <= n_free; s++)
        share[s] = share[s] * 1000 / N_DRAW;
}

/* Q2: uniform where FAPE is clamped. Else, and always with compat_openfold, the chance of start s
 * is (1/(n+1)) sum of 1/(e+1) over e >= s. */
static void crops(void **state) {
    (void)state;
    static const uint32_t biased[] = {456, 256, 156, 90, 40};
    static const char *const names[] = {"af2-initial", "openfold-initial"};
    uint32_t share[5];
    for (int k = 0; k < 4; k++) {
        bool is_clamped = k & 1;
        crop_shares(names[k / 2], is_clamped, 4, share);
        for (uint32_t s = 0; s <= 4; s++) {
            uint32_t expected = k == 1 ? 200 : biased[s];
            assert_in_range(share[s], expected - 12, expected + 12);
        }
    }
}

/* The crop of a whole sample follows the clamp that its header names: unclamped samples see the
 * end of the chain less often. */
static void crops_follow_the_clamp(void **state) {
    (void)state;
    enum { N_SAMPLE = 4000, N_FREE = 4 };
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)16 << 20, NULL), FM_OK);
    fm_plan plan = plan_of("tiny");
    plan.clamped_fape_q32 = (uint32_t)1 << 31;
    plan.crop_size = 3;
    uint32_t starts[2][N_FREE + 1] = {{0}}, n[2] = {0};
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        fm_arena_reset(&arena);
        fm_synthetic_record chain;
        fm_synthetic_record_make(&chain, 1, plan.crop_size + N_FREE, 0, &arena);
        fm_sample sample;
        assert_int_equal(
            fm_sample_make(
                &(fm_sample_request){
                    .plan = &plan, .record = &chain.record, .seed = 9, .index = i, .n_cycle = 1},
                &arena, &sample, NULL),
            FM_OK);
        fm_sample_draw key = {.seed = 9, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        bool clamped =
            draws.chance(draws.context, FM_SAMPLE_DRAW_CLAMPED_FAPE, plan.clamped_fape_q32);
        assert_int_equal(sample.use_clamped_fape, clamped);
        starts[clamped][sample.crop_start]++;
        n[clamped]++;
    }
    assert_in_range(starts[1][N_FREE] * 1000 / n[1], 170, 230);
    assert_in_range(starts[0][N_FREE] * 1000 / n[0], 25, 55);
    assert_in_range(starts[0][0] * 1000 / n[0], 426, 486);
    fm_arena_fini(&arena);
}

/* Counts how often k templates are kept, in 1/1000, for n usable ones; each is among the first
 * `pool`. */
static void template_shares(const char *name, uint32_t n, uint32_t pool, uint32_t share[5]) {
    fm_plan plan = plan_of(name);
    uint32_t index[64], first[64] = {0}, kept_in_all = 0;
    memset(share, 0, 5 * sizeof *share);
    for (uint64_t i = 0; i < N_DRAW; i++) {
        fm_sample_draw key = {.seed = 4, .index = i};
        const fm_draws draws = fm_draws_philox(&key);
        uint32_t kept = fm_choose_templates(&plan, &draws, n, index);
        assert_true(kept <= 4);
        share[kept]++;
        kept_in_all += kept;
        for (uint32_t k = 0; k < kept; k++) {
            assert_true(index[k] < pool);
            first[index[k]]++;
            for (uint32_t other = 0; other < k; other++)
                assert_int_not_equal(index[other], index[k]);
        }
    }
    for (uint32_t k = 0; k < pool; k++) /* none is preferred */
        assert_in_range(first[k] * pool, kept_in_all * 9 / 10, kept_in_all * 11 / 10);
    for (uint32_t k = 0; k < 5; k++)
        share[k] = share[k] * 1000 / N_DRAW;
}

/* Q7: with four usable templates, 0 to 4 are kept equally often. With twenty, the default nearly
 * always keeps four; OpenFold has chosen its four before. */
static void templates(void **state) {
    (void)state;
    uint32_t share[5];
    template_shares("openfold-initial", 4, 4, share);
    for (uint32_t k = 0; k <= 4; k++)
        assert_in_range(share[k], 188, 212);
    template_shares("af2-initial", 4, 4, share);
    for (uint32_t k = 0; k <= 4; k++)
        assert_in_range(share[k], 188, 212);
    template_shares("af2-initial", 50, 20, share);
    for (uint32_t k = 0; k <= 3; k++)
        assert_in_range(share[k], 38, 58); /* 1/21 */
    assert_in_range(share[4], 790, 830);   /* 17/21 */
    uint32_t none[1];
    fm_plan plan = plan_of("af2-initial");
    fm_sample_draw key = {.seed = 4};
    const fm_draws draws = fm_draws_philox(&key);
    assert_int_equal(fm_choose_templates(&plan, &draws, 0, none), 0);
    uint32_t best[9]; /* the plan for scoring takes the first ones as they are */
    plan = plan_of("eval");
    assert_int_equal(fm_choose_templates(&plan, &draws, 9, best), 4);
    for (uint32_t k = 0; k < 4; k++)
        assert_int_equal(best[k], k);
    assert_int_equal(fm_choose_templates(&plan, &draws, 2, best), 2);
}

/* Q8: OpenFold's presets keep 128 and 512 centres beside the templates; the paper's presets reserve
 * room for them. */
static void room_for_templates(void **state) {
    (void)state;
    assert_int_equal(plan_of("af2-initial").max_msa_clusters, 124);
    assert_int_equal(plan_of("af2-finetuning").max_msa_clusters, 508);
    assert_int_equal(plan_of("openfold-initial").max_msa_clusters, 128);
    assert_int_equal(plan_of("openfold-finetuning").max_msa_clusters, 512);
    assert_true(plan_of("openfold-initial").compat_openfold);
    assert_false(plan_of("af2-initial").compat_openfold);
}

static void expansion_refuses_wrong_sizes(void **state) {
    (void)state;
    fm_arena arena;
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 30, 40, 0, &arena);
    fm_plan plan = plan_of("tiny");
    fm_sample sample;
    fm_array arrays[FM_N_EXPANDED];
    fm_error error;
    assert_int_equal(
        fm_sample_make(
            &(fm_sample_request){
                .plan = &plan, .record = &chain.record, .seed = 1, .index = 2, .n_cycle = 2},
            &arena, &sample, NULL),
        FM_OK);
    fm_expand_sizes sizes = {64, 32, 64, 4};
    assert_int_equal(fm_expand_sample(&sample, &sizes, &arena, arrays, NULL), FM_OK);
    sizes.n_res = 39;
    assert_int_equal(fm_expand_sample(&sample, &sizes, &arena, arrays, &error), FM_ERR_DATA);
    assert_string_equal(error.message,
                        "the sample has more than 39 residues, 32 clusters or 64 extra rows");
    sizes.n_res = 64;
    fm_arena small = {.base = arena.base, .used = arena.used, .max = arena.used + 4096};
    assert_int_equal(fm_expand_sample(&sample, &sizes, &small, arrays, NULL), FM_ERR_LIMIT);
    *(uint8_t *)(uintptr_t)fm_sample_find(&sample, FM_T_AATYPE, FM_SHARED)->data = 21;
    assert_int_equal(fm_expand_sample(&sample, &sizes, &arena, arrays, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "the sample has an id outside its classes");
    sample.n_tensor--;
    assert_int_equal(fm_expand_sample(&sample, &sizes, &arena, arrays, &error), FM_ERR_DATA);
    assert_string_equal(error.message, "the sample lacks a tensor that expanding needs");
    fm_arena_fini(&arena);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops),
        cmocka_unit_test(crops_follow_the_clamp),
        cmocka_unit_test(templates),
        cmocka_unit_test(room_for_templates),
        cmocka_unit_test(expansion_refuses_wrong_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
