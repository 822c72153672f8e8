/* superposition.h: the rigid motion that brings one set of points closest to another.
 *
 * Horn's method: the rotation is the unit quaternion of the largest eigenvalue of a symmetric 4x4
 * matrix made of the sets' correlation (Horn 1987, J. Opt. Soc. Am. A 4:629), which is never a
 * reflection. The result is that of Kabsch's algorithm. */
#ifndef FM_TRAINER_SUPERPOSITION_H
#define FM_TRAINER_SUPERPOSITION_H

#include <stddef.h>

typedef struct fm_motion {
    double rotation[3][3];
    double translation[3]; /* of a point x: rotation x + translation */
} fm_motion;

/* The motion of moving[0..n-1] that makes the sum of squared distances to fixed[0..n-1] smallest.
 * Both are [n, 3], in C order; n >= 1. Where several are equally good (points on one line), one of
 * them. */
fm_motion fm_superpose(size_t n, const double *moving, const double *fixed);

/* out[0..2] = the moved point. out may be the point itself. */
void fm_motion_apply(const fm_motion *motion, const double *point, double *out);

#endif
