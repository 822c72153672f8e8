/* af3_full.h: the expected results of AlphaFold 3's step at its published width and depth: norms
 * and samples of arrays, in double precision. Parameters follow from their names (af3_formula.h).
 *
 *     act_names, act_samples_f64                         outputs, by their keys "out/z" and so on
 *     param_names, grad_norm_f64, grad_samples_f64       gradients
 *     grad_is_zero                                       names of gradients that are truly 0
 *     loss_names, loss_f64, clip_total_norm_f64, coordinate_mini_f64
 *
 * Lists of names are text with one name in a line. */
#ifndef FM_TESTS_TRAINER_AF3_FULL_H
#define FM_TESTS_TRAINER_AF3_FULL_H

#include "tests/trainer/parity/af3_bench.h"

/* Whether a file is of this kind. */
bool af3_full_is(const fm_npz *file);

/* Draws all parameters and the Fourier embedding. */
void af3_full_load(af3_bench *b);

/* The relative error of the samples of "out/NAME", whose n elements are `data`; negative if the
 * file has no such array. */
double af3_full_output_error(const fm_npz *file, const char *name, const double *data, int64_t n);

/* The same for the gradient of a parameter; *ret_norm receives the relative error of its norm. */
double af3_full_gradient_error(const fm_npz *file, const char *name, const double *data, int64_t n,
                               double *ret_norm);
bool af3_full_gradient_is_zero(const fm_npz *file, const char *name);

/* The term's value; a missing one ends the program. */
double af3_full_loss(const fm_npz *file, const char *name);

#endif
