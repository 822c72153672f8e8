/* body/rigid.h: rotations, quaternions and frames, shared by the kernels of the structure module.
 *
 * A frame has seven numbers: a quaternion (w, x, y, z) and a translation. A matrix frame has
 * twelve: a rotation, row by row, and a translation. */
#include "trainer/backend/cpu/body/real.h"

enum { FRAME = 7, MATRIX = 12 };

/* The rotation of a quaternion of length 1. For other lengths it is the same quadratic form, so
 * that the gradient below holds for every length. */
static void matrix_of_quaternion(const real *quaternion, real *r) {
    real w = quaternion[0], x = quaternion[1], y = quaternion[2], z = quaternion[3];
    r[0] = w * w + x * x - y * y - z * z;
    r[1] = 2 * (x * y - w * z);
    r[2] = 2 * (x * z + w * y);
    r[3] = 2 * (x * y + w * z);
    r[4] = w * w - x * x + y * y - z * z;
    r[5] = 2 * (y * z - w * x);
    r[6] = 2 * (x * z - w * y);
    r[7] = 2 * (y * z + w * x);
    r[8] = w * w - x * x - y * y + z * z;
}

/* dquaternion = the gradient through the function above. */
static void quaternion_grad(const real *quaternion, const real *d, real *dquaternion) {
    real w = quaternion[0], x = quaternion[1], y = quaternion[2], z = quaternion[3];
    real x_axis = d[7] - d[5], y_axis = d[2] - d[6], z_axis = d[3] - d[1];
    real xy = d[1] + d[3], xz = d[2] + d[6], yz = d[5] + d[7];
    dquaternion[0] = 2 * (w * (d[0] + d[4] + d[8]) + x * x_axis + y * y_axis + z * z_axis);
    dquaternion[1] = 2 * (x * (d[0] - d[4] - d[8]) + w * x_axis + y * xy + z * xz);
    dquaternion[2] = 2 * (y * (d[4] - d[0] - d[8]) + w * y_axis + x * xy + z * yz);
    dquaternion[3] = 2 * (z * (d[8] - d[0] - d[4]) + w * z_axis + x * xz + y * yz);
}

/* y = R x. */
static void rotate(const real *r, const real *x, real *y) {
    for (int a = 0; a < 3; a++)
        y[a] = r[3 * a] * x[0] + r[3 * a + 1] * x[1] + r[3 * a + 2] * x[2];
}

/* y = R^T x. */
static void rotate_back(const real *r, const real *x, real *y) {
    for (int a = 0; a < 3; a++)
        y[a] = r[a] * x[0] + r[3 + a] * x[1] + r[6 + a] * x[2];
}

/* d[a, b] += left[a] right[b]. */
static void add_outer(real *d, const real *left, const real *right) {
    for (int a = 0; a < 3; a++)
        for (int b = 0; b < 3; b++)
            d[3 * a + b] += left[a] * right[b];
}

/* c = a b, rotations. */
static void multiply(const real *a, const real *b, real *c) {
    for (int i = 0; i < 3; i++)
        for (int j = 0; j < 3; j++)
            c[3 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[3 + j] + a[3 * i + 2] * b[6 + j];
}
