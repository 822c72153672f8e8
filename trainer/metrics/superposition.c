/* superposition.c: see superposition.h. */
#include "trainer/metrics/superposition.h"

#include <math.h>

enum { N_SWEEP = 32 }; /* Jacobi's method converges in 6 or 7 sweeps */

/* Sums are in scalar variables; the compiler would keep arrays in memory. */
static void center_of(size_t n, const double *points, double out[3]) {
    double x = 0, y = 0, z = 0;
    for (const double *p = points; p < points + 3 * n; p += 3) {
        x += p[0];
        y += p[1];
        z += p[2];
    }
    out[0] = x / (double)n;
    out[1] = y / (double)n;
    out[2] = z / (double)n;
}

/* s[a][b] = sum over points of (moving - its centre)[a] * (fixed - its centre)[b]. */
static void correlate(size_t n, const double *moving, const double *fixed, const double from[3],
                      const double to[3], double s[3][3]) {
    double fx = from[0], fy = from[1], fz = from[2], tx = to[0], ty = to[1], tz = to[2];
    double xx = 0, xy = 0, xz = 0, yx = 0, yy = 0, yz = 0, zx = 0, zy = 0, zz = 0;
    for (size_t i = 0; i < 3 * n; i += 3) {
        double px = moving[i] - fx, py = moving[i + 1] - fy, pz = moving[i + 2] - fz;
        double qx = fixed[i] - tx, qy = fixed[i + 1] - ty, qz = fixed[i + 2] - tz;
        xx += px * qx, xy += px * qy, xz += px * qz;
        yx += py * qx, yy += py * qy, yz += py * qz;
        zx += pz * qx, zy += pz * qy, zz += pz * qz;
    }
    s[0][0] = xx, s[0][1] = xy, s[0][2] = xz;
    s[1][0] = yx, s[1][1] = yy, s[1][2] = yz;
    s[2][0] = zx, s[2][1] = zy, s[2][2] = zz;
}

/* Horn's equation (44). */
static void fill_matrix(double s[3][3], double m[4][4]) {
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
static void rotate_pair(double m[4][4], double vectors[4][4], int p, int q) {
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
static void largest_eigenvector(double m[4][4], double out[4]) {
    double vectors[4][4] = {{1, 0, 0, 0}, {0, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}};
    for (int sweep = 0; sweep < N_SWEEP; sweep++) {
        double off = 0, on = 0;
        for (int p = 0; p < 4; p++) {
            on += m[p][p] * m[p][p];
            for (int q = p + 1; q < 4; q++)
                off += m[p][q] * m[p][q];
        }
        if (off <= 1e-30 * on) break;
        for (int p = 0; p < 4; p++) {
            for (int q = p + 1; q < 4; q++)
                rotate_pair(m, vectors, p, q);
        }
    }
    int best = 0;
    for (int k = 1; k < 4; k++)
        best = m[k][k] > m[best][best] ? k : best;
    for (int k = 0; k < 4; k++)
        out[k] = vectors[k][best];
}

fm_motion fm_superpose(size_t n, const double *moving, const double *fixed) {
    double from[3], to[3], s[3][3], m[4][4], q[4];
    center_of(n, moving, from);
    center_of(n, fixed, to);
    correlate(n, moving, fixed, from, to, s);
    fill_matrix(s, m);
    largest_eigenvector(m, q);
    double w = q[0], x = q[1], y = q[2], z = q[3];
    fm_motion motion = {
        .rotation = {{w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)},
                     {2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)},
                     {2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z}}};
    for (int a = 0; a < 3; a++) {
        motion.translation[a] = to[a];
        for (int b = 0; b < 3; b++)
            motion.translation[a] -= motion.rotation[a][b] * from[b];
    }
    return motion;
}

void fm_motion_apply(const fm_motion *motion, const double *point, double *out) {
    double x = point[0], y = point[1], z = point[2];
    for (int a = 0; a < 3; a++) {
        const double *row = motion->rotation[a];
        out[a] = row[0] * x + row[1] * y + row[2] * z + motion->translation[a];
    }
}
