/* superposition.h: finds the rigid motion that brings one set of points closest to another.
 *
 * Horn's method (Horn 1987, J. Opt. Soc. Am. A 4:629): the correlation of the two sets gives a
 * symmetric 4x4 matrix. The unit eigenvector of its largest eigenvalue, read as a quaternion, is
 * the best rotation. It is never a reflection. The result is that of Kabsch's algorithm. */
#ifndef FM_TRAINER_SUPERPOSITION_H
#define FM_TRAINER_SUPERPOSITION_H

#include <stddef.h>

typedef struct fm_motion {
    double rotation[3][3];
    double translation[3]; /* moves a point x to rotation x + translation */
} fm_motion;

/* Returns the motion of moving[0..n-1] that minimises the sum of squared distances to
 * fixed[0..n-1]. Both are [n, 3] in C order; n >= 1. If several motions are equally good (points on
 * one line), it is one of them. */
fm_motion fm_superpose(size_t n, const double *moving, const double *fixed);

/* out[0..2] = the moved point. out may be `point`. */
void fm_motion_apply(const fm_motion *motion, const double *point, double *out);

#endif
