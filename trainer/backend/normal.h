/* normal.h: turns random words into numbers, the same on every device.
 *
 * A word becomes a uniform number in [-1, 1), or a normal number cut at +-2 through the inverse of
 * the distribution function. Each number takes one word, so an element depends only on its index.
 * docs/reference/numerics.md, "Random numbers". */
#ifndef FM_BACKEND_NORMAL_H
#define FM_BACKEND_NORMAL_H

#include "proto/base/rng.h"

#include <math.h>
#include <stdint.h>

/* word / 2^31 - 1. */
FM_HOST_DEVICE static inline double fm_uniform_two_sided(uint32_t word) {
    return (double)word / 2147483648.0 - 1;
}

/* top(x) / bottom(x), polynomials with coefficients from the highest power down. */
FM_HOST_DEVICE static inline double fm_ratio(const double *top, const double *bottom, int n,
                                             double x) {
    double above = 0, below = 0;
    for (int i = 0; i < n; i++) {
        above = above * x + top[i];
        below = below * x + bottom[i];
    }
    return above / below;
}

/* The inverse of the normal distribution function for 0.01 < p < 0.99: the first two ranges of
 * Wichura's rational approximation (1988, algorithm AS 241, PPND16). */
FM_HOST_DEVICE static inline double fm_inverse_normal(double p) {
    const double near_top[8] = {2.5090809287301226727e+3, 3.3430575583588128105e+4,
                                6.7265770927008700853e+4, 4.5921953931549871457e+4,
                                1.3731693765509461125e+4, 1.9715909503065514427e+3,
                                1.3314166789178437745e+2, 3.3871328727963666080e+0};
    const double near_bottom[8] = {5.2264952788528545610e+3, 2.8729085735721942674e+4,
                                   3.9307895800092710610e+4, 2.1213794301586595867e+4,
                                   5.3941960214247511077e+3, 6.8718700749205790830e+2,
                                   4.2313330701600911252e+1, 1.0};
    const double far_top[8] = {7.74545014278341407640e-4, 2.27238449892691845833e-2,
                               2.41780725177450611770e-1, 1.27045825245236838258e+0,
                               3.64784832476320460504e+0, 5.76949722146069140550e+0,
                               4.63033784615654529590e+0, 1.42343711074968357734e+0};
    const double far_bottom[8] = {1.05075007164441684324e-9, 5.47593808499534494600e-4,
                                  1.51986665636164571966e-2, 1.48103976427480074590e-1,
                                  6.89767334985100004550e-1, 1.67638483018380384940e+0,
                                  2.05319162663775882187e+0, 1.0};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) return q * fm_ratio(near_top, near_bottom, 8, 0.180625 - q * q);
    double r = sqrt(-log(q < 0 ? p : 1 - p)) - 1.6;
    double x = fm_ratio(far_top, far_bottom, 8, r);
    return q < 0 ? -x : x;
}

/* A word as a normal number cut at +-2. Error below 1e-14. */
FM_HOST_DEVICE static inline double fm_truncated_normal(uint32_t word) {
    const double below = 0.022750131948179207; /* P(x < -2) */
    double u = ((double)word + 0.5) / 4294967296.0;
    return fm_inverse_normal(below + u * (1 - 2 * below));
}

/* Two words as two independent standard normal numbers (Box and Muller). */
FM_HOST_DEVICE static inline void fm_normal_pair(const uint32_t word[2], double out[2]) {
    double u = ((double)word[0] + 0.5) / 4294967296.0, v = (double)word[1] / 4294967296.0;
    double length = sqrt(-2 * log(u)), angle = 6.283185307179586477 * v;
    out[0] = length * cos(angle);
    out[1] = length * sin(angle);
}

/* Four words as a rotation by rows, uniform over all rotations: a normal quaternion of length 1. */
FM_HOST_DEVICE static inline void fm_uniform_rotation(const uint32_t word[4], double out[9]) {
    double a[2], b[2];
    fm_normal_pair(word, a);
    fm_normal_pair(word + 2, b);
    double size = sqrt(a[0] * a[0] + a[1] * a[1] + b[0] * b[0] + b[1] * b[1]);
    double w = a[0] / size, x = a[1] / size, y = b[0] / size, z = b[1] / size;
    out[0] = 1 - 2 * (y * y + z * z), out[1] = 2 * (x * y - w * z), out[2] = 2 * (x * z + w * y);
    out[3] = 2 * (x * y + w * z), out[4] = 1 - 2 * (x * x + z * z), out[5] = 2 * (y * z - w * x);
    out[6] = 2 * (x * z - w * y), out[7] = 2 * (y * z + w * x), out[8] = 1 - 2 * (x * x + y * y);
}

#endif
