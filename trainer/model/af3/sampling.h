/* sampling.h: noisy structures for training, and the steps of a rollout or of sampling (18, 19).
 *
 *     training    x_noisy = augment(truth) + sigma n
 *     a step      x~ = augment(x) + spread n;  D = denoise(x~);  x = x~ + move (x~ - D)
 *
 * The numbers of a step are the same for all samples. They follow from the schedule and are put
 * into the state before the step runs, so one recording serves all steps. */
#ifndef FM_TRAINER_AF3_SAMPLING_H
#define FM_TRAINER_AF3_SAMPLING_H

#include "trainer/model/af3/config.h"
#include "trainer/ops/augment.h"

/* Levels of a schedule of n steps: levels [n + 1], from about sigma_data * s_max down, then 0. */
void fm_af3_schedule(const fm_af3_noise *noise, int64_t n, double *levels);

/* sigma of training for a standard normal number. */
double fm_af3_training_level(const fm_af3_noise *noise, double normal);

typedef struct fm_af3_step_numbers {
    double t;      /* the noise level of x~ */
    double spread; /* of the noise that is added */
    double move;   /* of x~ away from D; negative */
} fm_af3_step_numbers;

/* The numbers of the step from levels[0] to levels[1]. */
fm_af3_step_numbers fm_af3_step_numbers_of(const fm_af3_noise *noise, const double levels[2]);

/* truth act [n, 3]; mask act [n]: resolved atoms, the others are at 0 before the noise; sigma act
 * [S]. Returns x_noisy act [S, n, 3]. */
fm_tensor_ref fm_af3_training_structures(fm_tape *tape, fm_tensor_ref truth, fm_tensor_ref mask,
                                         fm_tensor_ref sigma, const fm_structure_draws *draws);

/* x act [S, n, 3]; atoms act [n]: 0 for padding, or FM_TENSOR_NONE; spread act [S]. Returns x~. */
fm_tensor_ref fm_af3_step_begin(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref atoms,
                                fm_tensor_ref spread, const fm_structure_draws *draws);

/* x~ and D act [S, n, 3]; keep and move act [S], where keep = 1 + move. Returns the new x. */
fm_tensor_ref fm_af3_step_end(fm_tape *tape, fm_tensor_ref noisy, fm_tensor_ref denoised,
                              fm_tensor_ref keep, fm_tensor_ref minus_move);

#endif
