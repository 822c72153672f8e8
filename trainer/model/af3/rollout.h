/* rollout.h: records three passes. One makes the noisy structures of a training step. The others
 * are of a rollout, or of sampling (18). The first makes what the noise levels of its steps give to
 * the blocks (modulation.h). The second is one step: augmentation, noise, the diffusion module, and
 * the move. The structures stay in the state, so the same pass runs for every step. */
#ifndef FM_TRAINER_AF3_ROLLOUT_H
#define FM_TRAINER_AF3_ROLLOUT_H

#include "trainer/model/af3/model.h"
#include "trainer/model/af3/sampling.h"

/* Where the state holds the tensors of a rollout of S structures. Those of K steps have a row of
 * [S] or [S, ..] for each. */
typedef struct fm_af3_rollout {
    int64_t n_sample;
    int32_t n_step;
    int32_t x; /* acc [S, n_atom, 3] Å: noise times the first level before */
    int32_t spread, keep, minus_move; /* acc [K, S]: the numbers of the steps (sampling.h) */
    int32_t in, skip, out;            /* acc [K, S]: the factors of their levels (diffusion.h) */
    int32_t log;                      /* acc [K] */
    int32_t mask;                     /* [S, N] of the diffusion module's type: 0 for padding */
    int32_t rotation, offset, noise;  /* given draws (ops/augment.h), acc [K, S, ..] */
    fm_af3_modulations made;
} fm_af3_rollout;

/* Declares the tensors, of which the modulations are in the room of the state. With `given`, the
 * draws are tensors of the state too, which the caller fills. */
void fm_af3_declare_rollout(fm_state *state, const fm_af3_config *config, const fm_kernels *kernels,
                            int64_t n_sample, int32_t n_step, bool given,
                            fm_af3_rollout *ret_rollout);

/* Records what all K steps read beside the results of `prepare`, which it follows. */
void fm_af3_record_modulations(fm_tape *tape, const fm_af3_config *config,
                               const fm_af3_weights *weights, const fm_af3_inputs *inputs,
                               const fm_af3_rollout *rollout);

/* Intermediate results of a step, whole on every rank; the new structures go to the state. */
typedef struct fm_af3_step_results {
    fm_tensor_ref noisy, denoised; /* acc [S, n_atom, 3] Å */
} fm_af3_step_results;

/* Records one step, that of tape->row. If D divides S, each rank denoises its structures; else
 * every rank denoises all. It reads the results of the passes before from the state. Draws are read
 * from the state if they were declared there. Otherwise they are made for `of`, and the clock's
 * cycle is the number of the step. */
fm_af3_step_results fm_af3_record_rollout_step(fm_tape *tape, const fm_af3_config *config,
                                               const fm_af3_weights *weights,
                                               const fm_af3_inputs *inputs,
                                               const fm_af3_rollout *rollout,
                                               fm_draw_structures of);

/* Where the state holds the noise of a training step. */
typedef struct fm_af3_training_noise {
    int32_t sigma; /* acc [S], S as fm_af3_split_samples; 0 for added structures */
    int32_t rotation, offset, noise; /* draws, where they are given */
} fm_af3_training_noise;

void fm_af3_declare_training_noise(fm_state *state, const fm_af3_config *config,
                                   const fm_kernels *kernels, bool given,
                                   fm_af3_training_noise *ret_noise);

/* Records the noisy structures of a training step, which go to inputs->training.x. `position`, acc
 * [n_atom, 3], and `mask`, acc [n_atom], are the tensors of the true structure in the state. */
void fm_af3_record_training_structures(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_inputs *inputs, int32_t position, int32_t mask,
                                       const fm_af3_training_noise *noise);

/* Writes the numbers of step k, from noise level levels[0] to levels[1], for all structures. */
void fm_af3_write_step(const fm_af3_config *config, const fm_af3_rollout *rollout, int32_t k,
                       const double levels[2], fm_state_put *put, void *context);

#endif
