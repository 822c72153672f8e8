/* frame_of_atoms.h: expresses a point in the frame of three atoms (AF3-29). Compiled for the host
 * and for CUDA. */
#ifndef FM_BACKEND_FRAME_OF_ATOMS_H
#define FM_BACKEND_FRAME_OF_ATOMS_H

#include "proto/base/rng.h"

#include <math.h>

FM_HOST_DEVICE static inline void fm_frame_unit(double v[3]) {
    double size = sqrt(v[0] * v[0] + v[1] * v[1] + v[2] * v[2]);
    size = size > 1e-8 ? size : 1e-8;
    for (int axis = 0; axis < 3; axis++)
        v[axis] /= size;
}

/* The origin is atom b. The first axis halves the angle at b, the second is in the plane of the
 * three and points from a towards c, the third is their cross product. */
FM_HOST_DEVICE static inline void fm_express_in_frame(const double a[3], const double b[3],
                                                      const double c[3], const double x[3],
                                                      double out[3]) {
    double w1[3], w2[3], e1[3], e2[3], d[3];
    for (int axis = 0; axis < 3; axis++) {
        w1[axis] = a[axis] - b[axis];
        w2[axis] = c[axis] - b[axis];
        d[axis] = x[axis] - b[axis];
    }
    fm_frame_unit(w1);
    fm_frame_unit(w2);
    for (int axis = 0; axis < 3; axis++) {
        e1[axis] = w1[axis] + w2[axis];
        e2[axis] = w2[axis] - w1[axis];
    }
    fm_frame_unit(e1);
    fm_frame_unit(e2);
    out[0] = e1[0] * d[0] + e1[1] * d[1] + e1[2] * d[2];
    out[1] = e2[0] * d[0] + e2[1] * d[1] + e2[2] * d[2];
    out[2] = (e1[1] * e2[2] - e1[2] * e2[1]) * d[0] + (e1[2] * e2[0] - e1[0] * e2[2]) * d[1] +
             (e1[0] * e2[1] - e1[1] * e2[0]) * d[2];
}

#endif
