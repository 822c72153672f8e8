/* test_sample.c: the sampler's promises: pure results, cycles that do not depend on the number of
 * cycles, canonical order, the plan's fractions, reported failures. test_sample_reference.c checks
 * its values. */
#include "featurizer/sample/sample.h"
#include "tests/featurizer/synthetic_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 42 };

static int set_up(void **state) {
    fm_arena *arena = calloc(1, sizeof *arena);
    *state = arena;
    return !arena || fm_arena_init(arena, (size_t)1 << 30, NULL);
}

static int tear_down(void **state) {
    fm_arena_fini(*state);
    free(*state);
    return 0;
}

static fm_sample make(fm_arena *arena, const fm_plan *plan, const fm_record *record, uint64_t index,
                      uint32_t n_cycle) {
    fm_sample sample;
    assert_int_equal(fm_sample_make(&(fm_sample_request){.plan = plan,
                                                         .record = record,
                                                         .seed = SEED,
                                                         .index = index,
                                                         .chain = 5,
                                                         .n_cycle = n_cycle},
                                    arena, &sample, NULL),
                     FM_OK);
    return sample;
}

static fm_plan tiny(void) {
    fm_plan plan;
    assert_int_equal(fm_plan_find("tiny", &plan, NULL), FM_OK);
    return plan;
}

static void assert_same_tensor(const fm_tensor_view *a, const fm_tensor_view *b) {
    assert_int_equal(a->id, b->id);
    assert_int_equal(a->cycle, b->cycle);
    assert_int_equal(a->dtype, b->dtype);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->shape, b->shape, sizeof a->shape);
    assert_memory_equal(a->data, b->data, a->bytes);
}

static void cycles_do_not_depend_on_their_number(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 90, 80, 0, arena);
    fm_plan plan = tiny();
    fm_sample one = make(arena, &plan, &chain.record, 11, 1),
              three = make(arena, &plan, &chain.record, 11, 3);
    assert_true(three.n_tensor > one.n_tensor);
    for (uint32_t t = 0; t < one.n_tensor; t++)
        assert_same_tensor(&one.tensor[t], &three.tensor[t]);
}

static void order_is_canonical(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 90, 80, 0, arena);
    fm_plan plan = tiny();
    fm_sample sample = make(arena, &plan, &chain.record, 12, 2);
    uint32_t previous = 0;
    for (uint32_t t = 0; t < sample.n_tensor; t++) {
        const fm_tensor_view *tensor = &sample.tensor[t];
        uint32_t cycle = tensor->cycle == FM_SHARED ? 0 : tensor->cycle + 1u;
        uint32_t place = cycle << 16 | tensor->id;
        assert_true(place > previous);
        previous = place;
        const fm_tensor_rule *rule = fm_schema_find(tensor->id);
        assert_non_null(rule);
        assert_int_equal(rule->per_cycle, tensor->cycle != FM_SHARED);
        assert_true(rule->dtypes >> tensor->dtype & 1);
        assert_int_equal((uintptr_t)tensor->data % 64, 0);
    }
}

/* In 200 samples, every crop start occurs, 15 % of positions are chosen and 10 % of FAPEs are
 * unclamped. */
static void fractions_are_the_plans(void **state) {
    fm_arena *arena = *state;
    fm_plan plan = tiny();
    enum { N_SAMPLE = 200, N_RES = 68 };
    uint32_t starts[N_RES] = {0}, clamped = 0;
    uint64_t chosen = 0, positions = 0;
    for (uint64_t i = 0; i < N_SAMPLE; i++) {
        fm_arena_reset(arena);
        fm_synthetic_record chain;
        fm_synthetic_record_make(&chain, 40, N_RES, 0, arena);
        fm_sample sample = make(arena, &plan, &chain.record, i, 1);
        starts[sample.crop_start]++;
        clamped += sample.use_clamped_fape;
        const uint8_t *bits = NULL;
        uint32_t n = 0;
        for (uint32_t t = 0; t < sample.n_tensor; t++) {
            const fm_tensor_view *tensor = &sample.tensor[t];
            if (tensor->id == FM_T_BERT_MASK) bits = tensor->data;
            if (tensor->id == FM_T_MSA) n = tensor->shape[0] * tensor->shape[1];
        }
        for (uint32_t k = 0; k < n; k++)
            chosen += bits[k / 8] >> (k % 8) & 1u;
        positions += n;
    }
    for (uint32_t s = 0; s <= N_RES - 64; s++)
        assert_in_range(starts[s], 20, 60); /* 40 expected */
    assert_in_range(clamped, 165, 195);
    assert_in_range(chosen * 1000 / positions, 145, 155);
}

static void a_chain_without_alignments_is_its_sequence(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 3, 30, 0, arena);
    chain.record.msa = NULL;
    chain.record.structure = NULL;
    fm_plan plan = tiny();
    fm_sample sample = make(arena, &plan, &chain.record, 1, 1);
    assert_int_equal(sample.n_seq_chain, 1);
    for (uint32_t t = 0; t < sample.n_tensor; t++) {
        const fm_tensor_view *tensor = &sample.tensor[t];
        if (tensor->id == FM_T_TRUE_MSA) {
            assert_memory_equal(tensor->data, sample.tensor[0].data, 30);
        }
        if (tensor->id == FM_T_EXTRA_MSA) assert_int_equal(tensor->shape[0], 0);
    }
}

static void unsure_residues_have_no_atoms(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    float confidence[30];
    for (size_t i = 0; i < 30; i++)
        confidence[i] = i % 3 == 0 ? 50.0f : 50.5f;
    fm_synthetic_record_make(&chain, 3, 30, 1, arena);
    chain.structure.confidence = confidence;
    fm_plan plan = tiny();
    fm_sample sample = make(arena, &plan, &chain.record, 1, 1);
    const fm_tensor_view *index = fm_sample_find(&sample, FM_T_RESIDUE_INDEX, FM_SHARED);
    const fm_tensor_view *mask = fm_sample_find(&sample, FM_T_ALL_ATOM_MASK, FM_SHARED);
    const fm_tensor_view *positions = fm_sample_find(&sample, FM_T_ALL_ATOM_POSITIONS, FM_SHARED);
    for (size_t i = 0; i < mask->shape[0]; i++) {
        size_t residue = (size_t)((const int32_t *)index->data)[i];
        uint64_t expected = residue % 3 == 0 ? 0 : 2;
        assert_true(((const uint64_t *)mask->data)[i] == expected);
        assert_true(((const float *)positions->data)[(i * FM_N_ATOM37 + 1) * 3] ==
                    (float)residue * 3.8f);
    }
}

static void contradictions_are_refused(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 3, 30, 0, arena);
    chain.structure.n_res = 29;
    fm_plan plan = tiny();
    fm_sample sample;
    fm_error error;
    assert_int_equal(fm_sample_make(
                         &(fm_sample_request){
                             .plan = &plan, .record = &chain.record, .seed = SEED, .n_cycle = 1},
                         arena, &sample, &error),
                     FM_ERR_DATA);
    assert_string_equal(error.message,
                        "chain 1syn_A: the structure has 29 residues, but the sequence has 30");
}

/* With any amount of memory, the result is a sample or FM_ERR_LIMIT. */
static void small_arenas_are_reported(void **state) {
    fm_arena *arena = *state;
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 50, 40, 0, arena);
    fm_plan plan = tiny();
    static uint8_t memory[1 << 20] __attribute__((aligned(64)));
    bool fitted = false;
    for (size_t max = 0; max <= sizeof memory && !fitted; max += 512) {
        fm_arena small = {.base = memory, .max = max};
        fm_sample sample;
        fm_status status = fm_sample_make(
            &(fm_sample_request){
                .plan = &plan, .record = &chain.record, .seed = SEED, .n_cycle = 1},
            &small, &sample, NULL);
        assert_true(!status || status == FM_ERR_LIMIT);
        fitted = !status;
    }
    assert_true(fitted);
}

static void shuffled_passes_are_permutations(void **state) {
    (void)state;
    fm_plan plan = tiny();
    for (uint32_t n = 1; n <= 70; n += 3) {
        fm_chooser *chooser;
        assert_int_equal(fm_chooser_create(&plan, n, NULL, NULL, &chooser, NULL), FM_OK);
        for (uint64_t pass = 0; pass < 3; pass++) {
            uint8_t seen[70] = {0};
            for (uint32_t k = 0; k < n; k++)
                seen[fm_chooser_chain(chooser, SEED, pass * n + k)]++;
            for (uint32_t k = 0; k < n; k++)
                assert_int_equal(seen[k], 1);
        }
        fm_chooser_destroy(chooser);
    }
}

/* The plan for scoring takes every chain once, in order and whole, with all cycles. */
static void eval_lists_whole_chains(void **state) {
    fm_arena *arena = *state;
    fm_plan plan;
    fm_error error;
    fm_chooser *chooser;
    assert_int_equal(fm_plan_find("eval", &plan, &error), FM_OK);
    assert_int_equal(fm_plan_check(&plan, &error), FM_OK);
    assert_int_equal(fm_chooser_create(&plan, 7, NULL, NULL, &chooser, &error), FM_OK);
    assert_true(plan.always_max_cycle);
    for (uint64_t i = 0; i < 21; i++)
        assert_int_equal(fm_chooser_chain(chooser, 5, i), i % 7);
    fm_chooser_destroy(chooser);
    fm_arena_reset(arena);
    fm_synthetic_record chain;
    fm_synthetic_record_make(&chain, 90, 300, 0, arena);
    fm_sample sample = make(arena, &plan, &chain.record, 3, 2);
    assert_int_equal(sample.n_res, 300);
    assert_int_equal(sample.crop_start, 0);
    assert_true(sample.use_clamped_fape);
    const fm_tensor_view *msa = fm_sample_find(&sample, FM_T_MSA, 1),
                         *truth = fm_sample_find(&sample, FM_T_TRUE_MSA, 1);
    assert_int_equal(msa->shape[0], 90); /* no row was deleted, none is masked */
    assert_memory_equal(msa->data, truth->data, msa->bytes);
}

static void plans_are_checked(void **state) {
    (void)state;
    fm_plan plan = tiny();
    fm_error error;
    assert_int_equal(fm_plan_check(&plan, &error), FM_OK);
    plan.max_cycle = 0;
    assert_int_equal(fm_plan_check(&plan, &error), FM_ERR_USAGE);
    assert_string_equal(error.message, "the plan's max_cycle is 0, expected 1 to 48");
    assert_int_equal(fm_plan_find("huge", &plan, &error), FM_ERR_NOT_FOUND);
    assert_non_null(strstr(error.message, "af2-initial"));
    const uint32_t nothing[2] = {0, 0};
    fm_chooser *chooser;
    assert_int_equal(fm_plan_find("af2-initial", &plan, &error), FM_OK);
    assert_int_equal(fm_chooser_create(&plan, 2, nothing, NULL, &chooser, &error), FM_ERR_DATA);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cycles_do_not_depend_on_their_number),
        cmocka_unit_test(order_is_canonical),
        cmocka_unit_test(fractions_are_the_plans),
        cmocka_unit_test(a_chain_without_alignments_is_its_sequence),
        cmocka_unit_test(unsure_residues_have_no_atoms),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(small_arenas_are_reported),
        cmocka_unit_test(shuffled_passes_are_permutations),
        cmocka_unit_test(eval_lists_whole_chains),
        cmocka_unit_test(plans_are_checked),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
