/* rollout.c: see rollout.h. */
#include "trainer/model/af3/rollout.h"

#include "trainer/model/af3/island.h"
#include "trainer/ops/store.h"

void fm_af3_declare_rollout(fm_state *state, const fm_af3_config *config, const fm_kernels *kernels,
                            int64_t n_sample, int32_t n_step, bool given, fm_af3_rollout *r) {
    fm_element acc = kernels->acc, element = fm_af3_diffusion_table(config, kernels)->act;
    const int64_t atoms[] = {n_step, n_sample, config->n_atom, 3};
    const int64_t tokens[] = {n_sample, config->n_token}, rows[] = {n_step, n_sample};
    const int64_t rotations[] = {n_step, n_sample, 9}, offsets[] = {n_step, n_sample, 3};
    *r = (fm_af3_rollout){.n_sample = n_sample,
                          .n_step = n_step,
                          .rotation = -1,
                          .offset = -1,
                          .noise = -1,
                          .made = fm_af3_declare_modulations(state, config, element, n_step)};
    r->x = fm_state_add(state, "rollout", acc, 3, atoms + 1);
    r->spread = fm_state_add(state, "spread of noise", acc, 2, rows);
    r->keep = fm_state_add(state, "kept part", acc, 2, rows);
    r->minus_move = fm_state_add(state, "moved part", acc, 2, rows);
    r->in = fm_state_add(state, "factor in", acc, 2, rows);
    r->skip = fm_state_add(state, "factor skip", acc, 2, rows);
    r->out = fm_state_add(state, "factor out", acc, 2, rows);
    r->log = fm_state_add(state, "log of noise", acc, 1, rows);
    r->mask = fm_state_add(state, "token masks", element, 2, tokens);
    if (!given) return;
    r->rotation = fm_state_add(state, "rotations", acc, 3, rotations);
    r->offset = fm_state_add(state, "offsets", acc, 3, offsets);
    r->noise = fm_state_add(state, "noise", acc, 4, atoms);
}

static fm_tensor_ref in_state(fm_tape *tape, int32_t tensor) {
    return fm_tape_state(tape, tensor, false);
}

/* The row of the step. */
static fm_tensor_ref of_step(fm_tape *tape, int32_t tensor) {
    return fm_tape_state_row(tape, in_state(tape, tensor));
}

/* Returns the draws of the state if they are declared there, else draws from the tape's seed. */
static fm_structure_draws draws_of_step(fm_tape *tape, const fm_af3_config *config,
                                        const fm_af3_rollout *r, fm_draw_structures of) {
    if (r->noise < 0) return fm_op_draw_structures(tape, of, r->n_sample, config->n_atom);
    return (fm_structure_draws){of_step(tape, r->rotation), of_step(tape, r->offset),
                                of_step(tape, r->noise)};
}

/* The ranks that share the structures of a rollout; NULL if every rank has all. */
static const fm_groups *sharing(const fm_af3_config *config, const fm_af3_rollout *r) {
    return r->n_sample % fm_groups_part(config->groups).count == 0 ? config->groups : NULL;
}

static fm_tensor_ref of_rank(fm_tape *tape, const fm_groups *groups, fm_tensor_ref x) {
    return fm_af3_split_rows(tape, groups, "structures", x);
}

/* Adds the modulations of all steps to what `prepare` has made, or those of a step. */
static void add_modulations(fm_tape *tape, const fm_af3_config *config, const fm_af3_rollout *r,
                            bool row, fm_af3_prepared *prepared) {
    const int32_t n = config->n_atom_block;
    prepared->has_modulation = true;
    prepared->single = fm_af3_added_single(tape, config, &r->made, row);
    for (int32_t i = 0; i < config->n_diffusion_block; i++)
        prepared->block[i] = fm_af3_token_modulation(tape, &r->made, i, row);
    for (int32_t i = 0; i < n; i++) {
        prepared->encoder[i] = fm_af3_atom_modulation(tape, &r->made, i);
        prepared->decoder[i] = fm_af3_atom_modulation(tape, &r->made, n + i);
    }
}

void fm_af3_record_modulations(fm_tape *tape, const fm_af3_config *config,
                               const fm_af3_weights *weights, const fm_af3_inputs *inputs,
                               const fm_af3_rollout *r) {
    fm_af3_trunk_output trunk = fm_af3_begin_stored_diffusion(tape, config, inputs);
    const fm_af3_levels levels = {.log = in_state(tape, r->log),
                                  .fourier_w = in_state(tape, inputs->fourier_w),
                                  .fourier_b = in_state(tape, inputs->fourier_b)};
    fm_af3_prepared prepared = fm_af3_stored_prepared(tape, config, inputs);
    add_modulations(tape, config, r, false, &prepared);
    fm_af3_store_modulations(tape, &trunk, &levels, prepared.atoms.c, &weights->diffusion,
                             &prepared);
    fm_tape_leave_island(tape);
}

/* Records the diffusion module of a step on x, the noisy structures of this rank. */
static fm_tensor_ref denoise_step(fm_tape *tape, const fm_af3_config *config,
                                  const fm_groups *groups, const fm_af3_weights *weights,
                                  const fm_af3_inputs *inputs, const fm_af3_rollout *r,
                                  const fm_af3_levels *levels, fm_tensor_ref x) {
    fm_tape_enter_table(tape, fm_af3_diffusion_table(config, tape->main_kernels));
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, inputs);
    fm_af3_prepared prepared = fm_af3_stored_prepared(tape, config, inputs);
    add_modulations(tape, config, r, true, &prepared);
    const fm_af3_noisy noisy = {.atoms = &atoms,
                                .prepared = &prepared,
                                .x = x,
                                .levels = levels,
                                .mask = of_rank(tape, groups, in_state(tape, r->mask))};
    x = fm_af3_diffusion_denoise(tape, groups, &noisy, &weights->diffusion, (fm_af3_again){0});
    fm_tape_leave_island(tape);
    return x;
}

fm_af3_step_results fm_af3_record_rollout_step(fm_tape *tape, const fm_af3_config *config,
                                               const fm_af3_weights *weights,
                                               const fm_af3_inputs *inputs, const fm_af3_rollout *r,
                                               fm_draw_structures of) {
    fm_tape_enter_island(tape);
    fm_structure_draws draws = draws_of_step(tape, config, r, of);
    const fm_groups *groups = sharing(config, r);
    const fm_af3_levels levels = {.in = of_rank(tape, groups, of_step(tape, r->in)),
                                  .skip = of_rank(tape, groups, of_step(tape, r->skip)),
                                  .out = of_rank(tape, groups, of_step(tape, r->out)),
                                  .log = FM_TENSOR_NONE,
                                  .fourier_w = FM_TENSOR_NONE,
                                  .fourier_b = FM_TENSOR_NONE};
    fm_tensor_ref x = in_state(tape, r->x);
    fm_tensor_ref noisy = fm_af3_step_begin(tape, x, in_state(tape, inputs->atom_mask),
                                            of_step(tape, r->spread), &draws);
    fm_tensor_ref denoised = of_rank(tape, groups, noisy);
    fm_tape_leave_island(tape);
    denoised = denoise_step(tape, config, groups, weights, inputs, r, &levels, denoised);
    fm_tape_enter_island(tape);
    denoised = fm_af3_split_gather(tape, groups, "structures", denoised);
    fm_tensor_ref next = fm_af3_step_end(tape, noisy, denoised, of_step(tape, r->keep),
                                         of_step(tape, r->minus_move));
    fm_op_store(tape, "rollout", next, x);
    fm_tape_leave_island(tape);
    return (fm_af3_step_results){noisy, denoised};
}

void fm_af3_write_step(const fm_af3_config *config, const fm_af3_rollout *r, int32_t k,
                       const double levels[2], fm_state_put *put, void *context) {
    fm_af3_step_numbers numbers = fm_af3_step_numbers_of(&config->noise, levels);
    double factors[FM_AF3_FACTORS];
    fm_af3_noise_factors(numbers.t, config->noise.sigma_data, factors);
    put(context, r->log, k, factors[FM_AF3_FACTOR_LOG]);
    for (int64_t s = k * r->n_sample; s < (k + 1) * r->n_sample; s++) {
        put(context, r->spread, s, numbers.spread);
        put(context, r->keep, s, 1 + numbers.move);
        put(context, r->minus_move, s, -numbers.move);
        put(context, r->in, s, factors[FM_AF3_FACTOR_IN]);
        put(context, r->skip, s, factors[FM_AF3_FACTOR_SKIP]);
        put(context, r->out, s, factors[FM_AF3_FACTOR_OUT]);
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
    fm_structure_draws draws =
        n->noise < 0 ? fm_op_draw_structures(tape, FM_DRAW_TRAINING, fm_af3_split_samples(config),
                                             config->n_atom)
                     : (fm_structure_draws){in_state(tape, n->rotation), in_state(tape, n->offset),
                                            in_state(tape, n->noise)};
    fm_tensor_ref x = fm_af3_training_structures(
        tape, in_state(tape, position), in_state(tape, mask), in_state(tape, n->sigma), &draws);
    fm_op_store(tape, "noisy structures", x, in_state(tape, inputs->training.x));
    fm_tape_leave_island(tape);
}
