/* sampling.c: see sampling.h. */
#include "trainer/model/af3/sampling.h"

#include "trainer/ops/arithmetic.h"
#include "trainer/ops/scale_groups.h"

#include <math.h>

void fm_af3_schedule(const fm_af3_noise *noise, int64_t n, double *levels) {
    double first = pow(noise->s_max, 1 / noise->rho), last = pow(noise->s_min, 1 / noise->rho);
    for (int64_t k = 0; k < n; k++)
        levels[k] =
            noise->sigma_data * pow(first + (double)k / (double)n * (last - first), noise->rho);
    levels[n] = 0;
}

double fm_af3_training_level(const fm_af3_noise *noise, double normal) {
    return noise->sigma_data * exp(noise->p_mean + noise->p_std * normal);
}

fm_af3_step_numbers fm_af3_step_numbers_of(const fm_af3_noise *noise, const double levels[2]) {
    double gamma = levels[1] > noise->gamma_min ? noise->gamma0 : 0;
    double t = levels[0] * (1 + gamma);
    return (fm_af3_step_numbers){.t = t,
                                 .spread = noise->noise_scale * sqrt(t * t - levels[0] * levels[0]),
                                 .move = noise->step_scale * (levels[1] - t) / t};
}

fm_tensor_ref fm_af3_training_structures(fm_tape *tape, fm_tensor_ref truth, fm_tensor_ref mask,
                                         fm_tensor_ref sigma, const fm_structure_draws *draws) {
    fm_tensor_ref moved = fm_op_augment(tape, truth, mask, draws);
    return fm_op_add(tape, "noisy structures", moved,
                     fm_op_scale_groups(tape, "noise", draws->noise, sigma));
}

fm_tensor_ref fm_af3_step_begin(fm_tape *tape, fm_tensor_ref x, fm_tensor_ref atoms,
                                fm_tensor_ref spread, const fm_structure_draws *draws) {
    return fm_af3_training_structures(tape, x, atoms, spread, draws);
}

fm_tensor_ref fm_af3_step_end(fm_tape *tape, fm_tensor_ref noisy, fm_tensor_ref denoised,
                              fm_tensor_ref keep, fm_tensor_ref minus_move) {
    fm_tensor_ref kept = fm_op_scale_groups(tape, "denoising step", noisy, keep);
    fm_tensor_ref moved = fm_op_scale_groups(tape, "denoising step", denoised, minus_move);
    return fm_op_add(tape, "denoising step", kept, moved);
}
