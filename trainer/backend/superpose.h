/* superpose.h: finds the rotation that best moves one set of points onto another, after Horn (J.
 * Opt. Soc. Am. A 4, 629, 1987). Its quaternion is the eigenvector of the largest eigenvalue of a
 * symmetric 4x4 matrix. The result is a rotation even if a reflection would fit better. Compiled
 * for the host and for CUDA. */
#ifndef FM_BACKEND_SUPERPOSE_H
#define FM_BACKEND_SUPERPOSE_H

#include "proto/base/rng.h"

#include <math.h>

enum { FM_SUPERPOSE_SWEEPS = 32 }; /* Jacobi's method converges in 6 or 7 sweeps */

/* Horn's equation (44). */
FM_HOST_DEVICE static inline void fm_superpose_matrix(double s[3][3], double m[4][4]) {
    m[0][0] = s[0][0] + s[1][1] + s[2][2];
    m[1][1] = s[0][0] - s[1][1] - s[2][2];
    m[2][2] = -s[0][0] + s[1][1] - s[2][2];
    m[3][3] = -s[0][0] - s[1][1] + s[2][2];
    m[0][1] = m[1][0] = s[1][2] - s[2][1];
    m[0][2] = m[2][0] = s[2][0] - s[0][2];
    m[0][3] = m[3][0] = s[0][1] - s[1][0];
    m[1][2] = m[2][1] = s[0][1] + s[1][0];
    m[1][3] = m[3][1] = s[2][0] + s[0][2];
    m[2][3] = m[3][2] = s[1][2] + s[2][1];
}

/* One Jacobi rotation: makes m[p][q] zero and rotates the eigenvectors accordingly. */
FM_HOST_DEVICE static inline void fm_superpose_rotate_pair(double m[4][4], double vectors[4][4],
                                                           int p, int q) {
    if (m[p][q] == 0) return;
    double theta = (m[q][q] - m[p][p]) / (2 * m[p][q]);
    double t = (theta < 0 ? -1 : 1) / (fabs(theta) + sqrt(theta * theta + 1));
    double c = 1 / sqrt(t * t + 1), s = t * c;
    for (int k = 0; k < 4; k++) {
        double x = m[k][p], y = m[k][q];
        m[k][p] = c * x - s * y;
        m[k][q] = s * x + c * y;
    }
    for (int k = 0; k < 4; k++) {
        double x = m[p][k], y = m[q][k];
        m[p][k] = c * x - s * y;
        m[q][k] = s * x + c * y;
        x = vectors[k][p], y = vectors[k][q];
        vectors[k][p] = c * x - s * y;
        vectors[k][q] = s * x + c * y;
    }
}

/* The unit eigenvector of the largest eigenvalue. Overwrites m. */
FM_HOST_DEVICE static inline void fm_superpose_largest_eigenvector(double m[4][4], double out[4]) {
    double vectors[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    for (int sweep = 0; sweep < FM_SUPERPOSE_SWEEPS; sweep++) {
        double off = 0, on = 0;
        for (int p = 0; p < 4; p++) {
            on += m[p][p] * m[p][p];
            for (int q = p + 1; q < 4; q++)
                off += m[p][q] * m[p][q];
        }
        if (off <= 1e-30 * on) break;
        for (int p = 0; p < 4; p++) {
            for (int q = p + 1; q < 4; q++)
                fm_superpose_rotate_pair(m, vectors, p, q);
        }
    }
    int best = 0;
    for (int k = 1; k < 4; k++)
        best = m[k][k] > m[best][best] ? k : best;
    for (int k = 0; k < 4; k++)
        out[k] = vectors[k][best];
}

/* s[a][b] = the sum over points of w (moving - its centre)[a] * (fixed - its centre)[b]. A
 * point x of the first set goes to rotation x, as a column. */
FM_HOST_DEVICE static inline void fm_superpose_rotation(double s[3][3], double rotation[3][3]) {
    double m[4][4], q[4];
    fm_superpose_matrix(s, m);
    fm_superpose_largest_eigenvector(m, q);
    double w = q[0], x = q[1], y = q[2], z = q[3];
    rotation[0][0] = w * w + x * x - y * y - z * z;
    rotation[0][1] = 2 * (x * y - w * z);
    rotation[0][2] = 2 * (x * z + w * y);
    rotation[1][0] = 2 * (x * y + w * z);
    rotation[1][1] = w * w - x * x + y * y - z * z;
    rotation[1][2] = 2 * (y * z - w * x);
    rotation[2][0] = 2 * (x * z - w * y);
    rotation[2][1] = 2 * (y * z + w * x);
    rotation[2][2] = w * w - x * x - y * y + z * z;
}

#endif
