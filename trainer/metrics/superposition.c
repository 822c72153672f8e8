/* superposition.c: see superposition.h. */
#include "trainer/metrics/superposition.h"

#include "trainer/backend/superpose.h"

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

fm_motion fm_superpose(size_t n, const double *moving, const double *fixed) {
    double from[3], to[3], s[3][3];
    center_of(n, moving, from);
    center_of(n, fixed, to);
    correlate(n, moving, fixed, from, to, s);
    fm_motion motion;
    fm_superpose_rotation(s, motion.rotation);
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
