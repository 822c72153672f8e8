/* geometry.c: see geometry.h. */
#include "proto/chem/geometry.h"

#include <assert.h>
#include <math.h>

/* Taylor series for |x| <= pi/4, where the first dropped term is below 1e-17. */
static double sine_near_zero(double x) {
    static const double factor[] = {
        -1.0 / 6,        1.0 / 120,          -1.0 / 5040,           1.0 / 362880,
        -1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0};
    double square = x * x, sum = 0;
    for (int i = 6; i >= 0; i--)
        sum = (sum + factor[i]) * square;
    return x + x * sum;
}

static double cosine_near_zero(double x) {
    static const double factor[] = {
        -1.0 / 2,       1.0 / 24,          -1.0 / 720,           1.0 / 40320,
        -1.0 / 3628800, 1.0 / 479001600.0, -1.0 / 87178291200.0, 1.0 / 20922789888000.0};
    double square = x * x, sum = 0;
    for (int i = 7; i >= 0; i--)
        sum = (sum + factor[i]) * square;
    return 1.0 + sum;
}

void fm_geometry_sincos(double degrees, double *ret_sine, double *ret_cosine) {
    assert(fabs(degrees) <= 1e6);
    /* The reduction to [-45, 45] degrees is exact, because multiples of 90 are exact doubles. */
    long quarter = (long)floor(degrees / 90.0 + 0.5);
    double x = (degrees - 90.0 * (double)quarter) * (3.14159265358979323846 / 180.0);
    double s = sine_near_zero(x), c = cosine_near_zero(x);
    switch (((quarter % 4) + 4) % 4) {
    case 0: *ret_sine = s, *ret_cosine = c; break;
    case 1: *ret_sine = c, *ret_cosine = -s; break;
    case 2: *ret_sine = -s, *ret_cosine = -c; break;
    default: *ret_sine = -c, *ret_cosine = s; break;
    }
}

static fm_vec3 unit(fm_vec3 v) {
    return fm_vec3_scale(v, 1.0 / sqrt(fm_vec3_dot(v, v)));
}

fm_vec3 fm_geometry_place(fm_vec3 a, fm_vec3 b, fm_vec3 c, double bond, double angle,
                          double dihedral) {
    fm_vec3 along = unit(fm_vec3_sub(c, b));
    fm_vec3 normal = unit(fm_vec3_cross(fm_vec3_sub(b, a), along));
    fm_vec3 third = fm_vec3_cross(normal, along);
    double sin_angle, cos_angle, sin_dihedral, cos_dihedral;
    fm_geometry_sincos(angle, &sin_angle, &cos_angle);
    fm_geometry_sincos(dihedral, &sin_dihedral, &cos_dihedral);
    fm_vec3 d = fm_vec3_scale(along, -bond * cos_angle);
    d = fm_vec3_add(d, fm_vec3_scale(third, bond * sin_angle * cos_dihedral));
    d = fm_vec3_add(d, fm_vec3_scale(normal, bond * sin_angle * sin_dihedral));
    return fm_vec3_add(c, d);
}
