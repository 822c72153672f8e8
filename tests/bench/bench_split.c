/* bench_split.c: computes how much memory a rank's step takes if a sample is split over ranks.
 *
 *     bench_split
 *
 * It records and plans the last cycle of AlphaFold2's trunk at the shapes of both training stages.
 * The trunk has embedders, templates, extra MSA, 48 blocks, distogram and masked MSA losses, and no
 * structure module. It prints the step arena of each branch's rank in GiB, for f32 of the CPU's
 * table. Nothing is computed: planned bytes are used bytes (tests/trainer/step/test_split.c). */
#include "tests/testing/local_groups.h"
#include "tests/testing/model_configs.h"
#include "trainer/loss/losses.h"
#include "trainer/model/model.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct stage {
    const char *name;
    int64_t n_res, n_seq, n_extra;
} stage;

static fm_tensor_ref losses(fm_tape *tape, fm_state *state, const fm_model_config *c,
                            const fm_model_weights *w, const fm_model_outputs *out) {
    const int64_t msa[] = {c->n_seq, c->n_res}, points[] = {c->n_res, 3}, n_res[] = {c->n_res};
    const fm_distogram_options options = {(int32_t)c->n_distogram_bin, 2.3125f, 21.6875f, 1e-8};
    int32_t truth = fm_state_add(state, "true_msa", FM_ELEMENT_I32, 2, msa);
    int32_t mask = fm_state_add(state, "bert_mask", FM_ELEMENT_F32, 2, msa);
    int32_t beta = fm_state_add(state, "pseudo_beta", FM_ELEMENT_F32, 2, points);
    int32_t beta_mask = fm_state_add(state, "pseudo_beta_mask", FM_ELEMENT_F32, 1, n_res);
    int32_t factors = fm_state_add(state, "factors", FM_ELEMENT_F64, 1, (int64_t[]){2});
    const fm_tensor_ref terms[] = {
        fm_op_distogram_loss(tape, out->z, fm_tape_state(tape, beta, false),
                             fm_tape_state(tape, beta_mask, false), &w->distogram, &options),
        fm_op_masked_msa_loss(tape, out->m, fm_tape_state(tape, truth, false),
                              fm_tape_state(tape, mask, false), &w->masked_msa)};
    return fm_op_total_loss(tape, terms, 2, fm_tape_state(tape, factors, false));
}

/* Bytes of the step arena of one rank. */
static int64_t plan(const fm_model_config *config) {
    static fm_model_weights weights;
    const fm_kernels *kernels = fm_kernels_cpu(FM_ELEMENT_F32);
    fm_arena arena;
    fm_params params;
    fm_state state = {0};
    fm_model_inputs inputs;
    fm_tape tape;
    fm_error error = {0};
    fm_status status = fm_arena_init(&arena, (size_t)1 << 28, &error);
    status = status ? status : fm_params_init(&params, FM_MAX_PARAM, &arena, &error);
    assert(!status);
    fm_model_add_parameters(&params, &arena, config, &weights);
    fm_model_declare_inputs(&state, config, kernels, &inputs);
    status = fm_tape_init(&tape, kernels, &params, &state, true, &error);
    assert(!status);
    fm_model_outputs out =
        fm_model_record_cycle(&tape, config, &weights, &inputs, FM_CYCLE_OUTPUTS);
    fm_tensor_ref total = losses(&tape, &state, config, &weights, &out);
    int32_t seed = fm_state_add(&state, "seed", FM_ELEMENT_F32, 1, (int64_t[]){1});
    fm_tape_seed_gradient(&tape, total, seed);
    status = fm_tape_plan(&tape, &error);
    assert(!status);
    (void)status;
    int64_t bytes = tape.size.arena_bytes;
    fm_tape_fini(&tape);
    fm_arena_fini(&arena);
    return bytes;
}

static void print_case(const stage *s, fm_recompute_policy recompute, fm_layout layout) {
    fm_model_config config = fm_model_config_af2_initial();
    config.n_res = s->n_res;
    config.n_seq = s->n_seq;
    config.n_extra = s->n_extra;
    config.recompute = recompute;
    config.order = layout.bp > 1 ? FM_ORDER_OUTER_FIRST : FM_ORDER_ORIGINAL;
    fm_local_groups *groups;
    fm_error error = {0};
    if (fm_local_groups_create(&layout, fm_kernels_cpu(FM_ELEMENT_F32), &groups, &error)) {
        fprintf(stderr, "bench_split: %s\n", error.message);
        exit(1);
    }
    printf("%-16s recompute %-6s dap %d bp %d ", s->name,
           recompute == FM_RECOMPUTE_BLOCK ? "block" : "none", (int)layout.dap, (int)layout.bp);
    for (int32_t branch = 0; branch < layout.bp; branch++) {
        config.groups =
            fm_layout_ranks(&layout) > 1 ? fm_local_groups_get(groups, branch * layout.dap) : NULL;
        fm_model_config padded = fm_split_pad(&config);
        printf(" %7.2f GiB", (double)plan(&padded) / (1 << 30));
    }
    printf("\n");
    fm_local_groups_destroy(groups);
}

int main(void) {
    static const stage stages[] = {{"af2-initial", 256, 124, 1024},
                                   {"af2-finetuning", 384, 508, 5120}};
    static const fm_layout layouts[] = {{1, 1, 1}, {2, 1, 1}, {4, 1, 1},
                                        {8, 1, 1}, {1, 2, 1}, {4, 2, 1}};
    for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++) {
        for (int block = 0; block < 2; block++) {
            for (size_t l = 0; l < sizeof layouts / sizeof layouts[0]; l++)
                print_case(&stages[s], block ? FM_RECOMPUTE_BLOCK : FM_RECOMPUTE_NONE, layouts[l]);
        }
    }
    return 0;
}
