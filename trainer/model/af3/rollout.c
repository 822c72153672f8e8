/* rollout.c: see rollout.h. */
#include "trainer/model/af3/rollout.h"

#include "trainer/model/af3/island.h"
#include "trainer/ops/store.h"

void fm_af3_declare_rollout(fm_state *state, const fm_af3_config *config, const fm_kernels *kernels,
                            int64_t n_sample, bool given, fm_af3_rollout *r) {
    fm_element acc = kernels->acc;
    const int64_t atoms[] = {n_sample, config->n_atom, 3}, tokens[] = {n_sample, config->n_token};
    const int64_t rotations[] = {n_sample, 9}, offsets[] = {n_sample, 3};
    *r = (fm_af3_rollout){.n_sample = n_sample, .rotation = -1, .offset = -1, .noise = -1};
    r->x = fm_state_add(state, "rollout", acc, 3, atoms);
    r->spread = fm_state_add(state, "spread of noise", acc, 1, &n_sample);
    r->keep = fm_state_add(state, "kept part", acc, 1, &n_sample);
    r->minus_move = fm_state_add(state, "moved part", acc, 1, &n_sample);
    r->in = fm_state_add(state, "factor in", acc, 1, &n_sample);
    r->skip = fm_state_add(state, "factor skip", acc, 1, &n_sample);
    r->out = fm_state_add(state, "factor out", acc, 1, &n_sample);
    r->log = fm_state_add(state, "log of noise", acc, 1, &n_sample);
    r->mask =
        fm_state_add(state, "token masks", fm_af3_diffusion_table(config, kernels)->act, 2, tokens);
    if (!given) return;
    r->rotation = fm_state_add(state, "rotations", acc, 2, rotations);
    r->offset = fm_state_add(state, "offsets", acc, 2, offsets);
    r->noise = fm_state_add(state, "noise", acc, 3, atoms);
}

static fm_tensor_ref in_state(fm_tape *tape, int32_t tensor) {
    return fm_tape_state(tape, tensor, false);
}

/* Returns the draws of the state if `noise` is declared there, else draws from the tape's seed. */
static fm_structure_draws draws_of(fm_tape *tape, fm_draw_structures of, int64_t n_sample,
                                   int64_t n_atom, int32_t rotation, int32_t offset,
                                   int32_t noise) {
    if (noise < 0) return fm_op_draw_structures(tape, of, n_sample, n_atom);
    return (fm_structure_draws){in_state(tape, rotation), in_state(tape, offset),
                                in_state(tape, noise)};
}

/* The ranks that share the structures of a rollout; NULL if every rank has all. */
static const fm_groups *sharing(const fm_af3_config *config, const fm_af3_rollout *r) {
    return r->n_sample % fm_groups_part(config->groups).count == 0 ? config->groups : NULL;
}

static fm_tensor_ref of_rank(fm_tape *tape, const fm_groups *groups, int32_t tensor) {
    return fm_af3_split_rows(tape, groups, "structures", in_state(tape, tensor));
}

/* Records the diffusion module of a step on x, the noisy structures of this rank. */
static fm_tensor_ref denoise_step(fm_tape *tape, const fm_af3_config *config,
                                  const fm_groups *groups, const fm_af3_weights *weights,
                                  const fm_af3_inputs *inputs, const fm_af3_rollout *r,
                                  const fm_af3_levels *levels, fm_tensor_ref x) {
    fm_af3_trunk_output trunk = fm_af3_begin_stored_diffusion(tape, config, inputs);
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, inputs);
    fm_af3_prepared prepared = fm_af3_stored_prepared(tape, config, inputs);
    const fm_af3_noisy noisy = {.atoms = &atoms,
                                .trunk = &trunk,
                                .prepared = &prepared,
                                .x = x,
                                .levels = levels,
                                .mask = of_rank(tape, groups, r->mask)};
    x = fm_af3_diffusion_denoise(tape, groups, &noisy, &weights->diffusion, (fm_af3_again){0});
    fm_tape_leave_island(tape);
    return x;
}

fm_af3_step_results fm_af3_record_rollout_step(fm_tape *tape, const fm_af3_config *config,
                                               const fm_af3_weights *weights,
                                               const fm_af3_inputs *inputs, const fm_af3_rollout *r,
                                               fm_draw_structures of) {
    fm_tape_enter_island(tape);
    fm_structure_draws draws =
        draws_of(tape, of, r->n_sample, config->n_atom, r->rotation, r->offset, r->noise);
    const fm_groups *groups = sharing(config, r);
    const fm_af3_levels levels = {.in = of_rank(tape, groups, r->in),
                                  .skip = of_rank(tape, groups, r->skip),
                                  .out = of_rank(tape, groups, r->out),
                                  .log = of_rank(tape, groups, r->log),
                                  .fourier_w = in_state(tape, inputs->fourier_w),
                                  .fourier_b = in_state(tape, inputs->fourier_b)};
    fm_tensor_ref x = in_state(tape, r->x);
    fm_tensor_ref noisy = fm_af3_step_begin(tape, x, in_state(tape, inputs->atom_mask),
                                            in_state(tape, r->spread), &draws);
    fm_tensor_ref denoised = fm_af3_split_rows(tape, groups, "structures", noisy);
    fm_tape_leave_island(tape);
    denoised = denoise_step(tape, config, groups, weights, inputs, r, &levels, denoised);
    fm_tape_enter_island(tape);
    denoised = fm_af3_split_gather(tape, groups, "structures", denoised);
    fm_tensor_ref next = fm_af3_step_end(tape, noisy, denoised, in_state(tape, r->keep),
                                         in_state(tape, r->minus_move));
    fm_op_store(tape, "rollout", next, x);
    fm_tape_leave_island(tape);
    return (fm_af3_step_results){noisy, denoised};
}

void fm_af3_write_step(const fm_af3_config *config, const fm_af3_rollout *r, const double levels[2],
                       fm_state_put *put, void *context) {
    fm_af3_step_numbers numbers = fm_af3_step_numbers_of(&config->noise, levels);
    double factors[FM_AF3_FACTORS];
    fm_af3_noise_factors(numbers.t, config->noise.sigma_data, factors);
    for (int64_t s = 0; s < r->n_sample; s++) {
        put(context, r->spread, s, numbers.spread);
        put(context, r->keep, s, 1 + numbers.move);
        put(context, r->minus_move, s, -numbers.move);
        put(context, r->in, s, factors[FM_AF3_FACTOR_IN]);
        put(context, r->skip, s, factors[FM_AF3_FACTOR_SKIP]);
        put(context, r->out, s, factors[FM_AF3_FACTOR_OUT]);
        put(context, r->log, s, factors[FM_AF3_FACTOR_LOG]);
    }
}

void fm_af3_declare_training_noise(fm_state *state, const fm_af3_config *config,
                                   const fm_kernels *kernels, bool given,
                                   fm_af3_training_noise *ret_noise) {
    fm_element acc = kernels->acc;
    int64_t n_sample = fm_af3_split_samples(config);
    const int64_t atoms[] = {n_sample, config->n_atom, 3};
    const int64_t rotations[] = {n_sample, 9}, offsets[] = {n_sample, 3};
    *ret_noise = (fm_af3_training_noise){.rotation = -1, .offset = -1, .noise = -1};
    ret_noise->sigma = fm_state_add(state, "noise levels", acc, 1, &n_sample);
    if (!given) return;
    ret_noise->rotation = fm_state_add(state, "rotations", acc, 2, rotations);
    ret_noise->offset = fm_state_add(state, "offsets", acc, 2, offsets);
    ret_noise->noise = fm_state_add(state, "noise", acc, 3, atoms);
}

void fm_af3_record_training_structures(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_inputs *inputs, int32_t position, int32_t mask,
                                       const fm_af3_training_noise *n) {
    fm_tape_enter_island(tape);
    fm_structure_draws draws = draws_of(tape, FM_DRAW_TRAINING, fm_af3_split_samples(config),
                                        config->n_atom, n->rotation, n->offset, n->noise);
    fm_tensor_ref x = fm_af3_training_structures(
        tape, in_state(tape, position), in_state(tape, mask), in_state(tape, n->sigma), &draws);
    fm_op_store(tape, "noisy structures", x, in_state(tape, inputs->training.x));
    fm_tape_leave_island(tape);
}
