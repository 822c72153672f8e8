/* sampling.h: noisy structures for training, and the steps of a rollout or of sampling (18, 19).
 *
 *     training    x_noisy = augment(truth) + sigma n
 *     a step      x~ = augment(x) + spread n;  D = denoise(x~);  x = x~ + move (x~ - D)
 *
 * The numbers of a step are the same for all samples. They follow from the schedule, and the host
 * writes them to the state before the step runs. So one recording serves all steps. */
#ifndef FM_TRAINER_AF3_SAMPLING_H
#define FM_TRAINER_AF3_SAMPLING_H

#include "trainer/model/af3/config.h"
#include "trainer/ops/augment.h"

/* Writes the noise levels of a schedule of n steps to levels [n + 1]. They fall from about
 * sigma_data * s_max, and the last one is 0. */
void fm_af3_schedule(const fm_af3_noise *noise, int64_t n, double *levels);

/* Returns the noise level of training for a standard normal number. */
double fm_af3_training_level(const fm_af3_noise *noise, double normal);

/* Draws the noise levels of n training structures on the host: sigma [n]. `clock` is that of
 * fm_draw. */
void fm_af3_draw_levels(const fm_af3_noise *noise, uint64_t seed, const uint32_t *clock, int64_t n,
                        double *sigma);

typedef struct fm_af3_step_numbers {
    double t;      /* the noise level of x~ */
    double spread; /* factor of the added noise */
    double move;   /* factor of x~ - D in the move; negative */
} fm_af3_step_numbers;

/* Returns the numbers of the step from levels[0] to levels[1]. */
fm_af3_step_numbers fm_af3_step_numbers_of(const fm_af3_noise *noise, const double levels[2]);

/* Records the noisy structures of training. truth is act [n, 3] and sigma act [S]. mask, act [n],
 * is 1 for resolved atoms; the others are at 0 before the noise. Returns x_noisy, act [S, n, 3]. */
fm_tensor_ref fm_af3_training_structures(fm_tape *tape, fm_tensor_ref truth, fm_tensor_ref mask,
                                         fm_tensor_ref sigma, const fm_structure_draws *draws);

/* Records the first half of a step. x is act [S, n, 3] and spread act [S]. atoms is act [n] with 0
 * for padding, or FM_TENSOR_NONE. Returns x~. */
fm_tensor_ref fm_af3_step_begin(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref atoms,
                                fm_tensor_ref spread, const fm_structure_draws *draws);

/* Records the second half. noisy (x~) and denoised (D) are act [S, n, 3]. keep = 1 + move and
 * minus_move = -move are act [S]. Returns the new x. */
fm_tensor_ref fm_af3_step_end(fm_tape *tape, fm_tensor_ref noisy, fm_tensor_ref denoised,
                              fm_tensor_ref keep, fm_tensor_ref minus_move);

#endif
