/* Tests that the published model's step can be recorded and planned at its initial-training shape,
 * and that recomputing blocks saves most of the memory. Nothing is allocated or run. */
#include "trainer/model/af3/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

/* Plans the last cycle's pass; returns the bytes of its arena. */
static int64_t plan_last(fm_recompute_policy recompute) {
    fm_arena arena = {0};
    fm_params params;
    fm_state state = {0};
    fm_tape tape;
    static fm_af3_weights weights;
    fm_af3_inputs inputs;
    fm_af3_config config = fm_af3_config_initial();
    config.recompute = recompute;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    assert_int_equal(fm_arena_init(&arena, (size_t)64 << 20, NULL), FM_OK);
    assert_int_equal(fm_params_init(&params, FM_AF3_MAX_PARAM, &arena, NULL), FM_OK);
    fm_af3_add_parameters(&params, &arena, &config, &weights);
    fm_af3_declare_inputs(&state, &config, kernels, &inputs);
    assert_int_equal(fm_tape_init(&tape, kernels, &params, &state, true, NULL), FM_OK);
    fm_af3_outputs out = fm_af3_record_last(&tape, &config, &weights, &inputs);
    int32_t dx = fm_state_add_like(&state, fm_tape_tensor(&tape, out.x_denoised));
    int32_t dlogits = fm_state_add_like(&state, fm_tape_tensor(&tape, out.distogram));
    fm_tape_seed_gradient(&tape, out.x_denoised, dx);
    fm_tape_seed_gradient(&tape, out.distogram, dlogits);
    assert_int_equal(fm_tape_plan(&tape, NULL), FM_OK);
    int64_t bytes = tape.size.arena_bytes;
    print_message("%d nodes, %.1f GiB of f32\n", (int)tape.n_node,
                  (double)bytes / (double)(1 << 30));
    fm_tape_fini(&tape);
    fm_arena_fini(&arena);
    return bytes;
}

static void recomputed_blocks_save_memory(void **state) {
    (void)state;
    int64_t all = plan_last(FM_RECOMPUTE_NONE), some = plan_last(FM_RECOMPUTE_BLOCK);
    assert_true(some < all / 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(recomputed_blocks_save_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
