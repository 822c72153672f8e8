/* test_infer_draws.c: several draws of MSA rows in a cycle of a prediction: their representations
 * are averaged (AlphaFold's ensembling). */
#include "tests/trainer/infer/infer_case.h"

/* The sample with other draws of MSA rows, by their numbers among its own. */
static fm_features with_draws(const sample *s, const int *draw, uint32_t n) {
    fm_features f = s->features;
    f.n_cycle = n;
    for (uint32_t i = 0; i < n; i++)
        f.cycle[i] = s->features.cycle[draw[i]];
    return f;
}

static fm_infer *create_ensemble(int32_t n_draw) {
    fm_infer_options options = infer_options();
    options.predicts = options.spoils = true;
    options.n_draw = n_draw;
    return create_infer(&options);
}

/* The mean of equal draws is each of them, to the bit. The order of two draws changes nothing, and
 * neither of them alone gives the same. */
static void all_draws_of_a_cycle_count(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer *one = create_ensemble(1), *two = create_ensemble(2);
    const size_t bytes = sizeof(float) * N_RES * 42;
    const fm_infer_result plain = run_infer(one, &s.features, arena);
    const fm_features twice = with_draws(&s, (int[]){0, 0, 1, 1, 2, 2}, 6);
    const fm_infer_result equal = run_infer(two, &twice, arena);
    assert_int_equal(equal.n_cycle, N_CYCLE);
    assert_memory_equal(equal.atoms, plain.atoms, bytes);
    const fm_features ab = with_draws(&s, (int[]){0, 1}, 2), ba = with_draws(&s, (int[]){1, 0}, 2);
    const fm_features a = with_draws(&s, (int[]){0}, 1), b = with_draws(&s, (int[]){1}, 1);
    const fm_infer_result first = run_infer(two, &ab, arena), second = run_infer(two, &ba, arena);
    assert_int_equal(first.n_cycle, 1);
    assert_memory_equal(first.atoms, second.atoms, bytes);
    assert_memory_equal(first.plddt, second.plddt, sizeof(float) * N_RES);
    const fm_infer_result of_a = run_infer(one, &a, arena), of_b = run_infer(one, &b, arena);
    assert_memory_not_equal(first.atoms, of_a.atoms, bytes);
    assert_memory_not_equal(first.atoms, of_b.atoms, bytes);
    fm_infer_result result;
    fm_error error;
    assert_int_equal(fm_infer_run(two, &s.features, arena, &result, &error), FM_ERR_DATA);
    assert_non_null(strstr(error.message, "has 3 draws, expected a multiple of 2"));
    fm_infer_destroy(two);
    fm_infer_destroy(one);
}

/* A tensor of the state that the recording of the last chain has. */
static float *state_of(const fm_infer *infer, int32_t tensor) {
    return fm_state_data(&fm_infer_get_recording(infer)->recording.state, tensor);
}

/* The three tensors that a cycle passes to the next: m's first row, z and the pseudo-beta
 * positions. */
static void list_handed(const fm_infer *infer, int32_t tensor[3]) {
    const fm_model_inputs *in = &fm_infer_get_recording(infer)->cycles.inputs;
    tensor[0] = in->previous_m, tensor[1] = in->previous_z, tensor[2] = in->previous_pseudo_beta;
}

static size_t count_of(const fm_infer *infer, int32_t tensor) {
    return (size_t)fm_tensor_local_count(
        &fm_infer_get_recording(infer)->recording.state.tensor[tensor]);
}

/* Compares m and z after a cycle of three draws with the mean of three cycles of one draw each,
 * which begin with the results of the same cycle before. */
static void compare_with_mean(const fm_infer *many, fm_infer *one, const fm_features *draw,
                              float *const before[3], uint32_t cycle) {
    fm_forward *single = fm_infer_get_recording(one);
    int32_t handed[3];
    list_handed(many, handed);
    for (int k = 0; k < 2; k++) {
        const size_t n = count_of(many, handed[k]);
        float *mean = calloc(n, sizeof *mean);
        assert_non_null(mean);
        for (int d = 0; d < 3; d++) {
            fm_features f = draw[d];
            fm_forward_queue_cycle(single, &f, 0, 0); /* also sends what belongs to the sample */
            for (int i = 0; i < 3 && cycle > 0; i++)
                memcpy(state_of(one, handed[i]), before[i],
                       count_of(one, handed[i]) * sizeof(float));
            f.cycle[cycle] = draw[d].cycle[0];
            f.n_cycle = cycle + 1;
            if (cycle > 0) fm_forward_queue_cycle(single, &f, 0, cycle);
            for (size_t i = 0; i < n; i++)
                mean[i] += state_of(one, handed[k])[i] / 3;
        }
        for (size_t i = 0; i < n; i++)
            assert_near(&mean[i], state_of(many, handed[k]) + i, 1,
                        1e-6 * (1 + fabs((double)mean[i])));
        free(mean);
    }
}

/* A cycle passes on the mean of m's first row and of z over its draws, and all draws of the next
 * cycle begin with it. All planned memory is used. */
static void cycles_hand_on_the_mean_of_their_draws(void **state) {
    fm_arena *arena = *state;
    static sample s;
    make_sample(&s);
    fm_infer *many = create_ensemble(3), *one = create_ensemble(1);
    fm_features draw[3];
    for (int d = 0; d < 3; d++)
        draw[d] = with_draws(&s, (int[]){d}, 1);
    run_infer(one, &draw[0], arena);
    const fm_features all = with_draws(&s, (int[]){0, 1, 2, 0, 1, 2}, 6);
    fm_features first = all;
    first.n_cycle = 3;
    run_infer(many, &first, arena);
    fm_forward *t = fm_infer_get_recording(many);
    int32_t handed[3];
    float *before[3];
    list_handed(many, handed);
    for (int i = 0; i < 3; i++) {
        before[i] = fm_arena_alloc_array(arena, count_of(many, handed[i]), sizeof(float));
        memcpy(before[i], state_of(many, handed[i]), count_of(many, handed[i]) * sizeof(float));
    }
    compare_with_mean(many, one, draw, before, 0);
    fm_forward_queue_cycle(t, &all, 0, 1);
    compare_with_mean(many, one, draw, before, 1);
    int64_t used = fm_tape_used_bytes(&t->recording.tape[FM_FORWARD_RESULTS]),
            of_draws = fm_tape_used_bytes(&t->recording.tape[FM_FORWARD_BEFORE]), planned;
    assert_int_equal(used, t->recording.tape[FM_FORWARD_RESULTS].size.arena_bytes);
    assert_int_equal(of_draws, t->recording.tape[FM_FORWARD_BEFORE].size.arena_bytes);
    planned = planned_bytes(many, N_RES);
    assert_int_equal(planned,
                     fm_infer_get_params(many)->memory_bytes + fm_forward_taken(t).device_bytes);
    fm_infer_destroy(one);
    fm_infer_destroy(many);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_draws_of_a_cycle_count),
        cmocka_unit_test(cycles_hand_on_the_mean_of_their_draws),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
