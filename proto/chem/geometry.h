/* geometry.h: points in space, and the placing of an atom from internal coordinates.
 *
 * A bond length, an angle and a dihedral place an atom relative to three placed atoms. This is the
 * natural extension reference frame (NeRF) of Parsons et al. 2005.
 *
 * Everything here uses additions, multiplications, divisions and square roots of doubles. IEEE 754
 * rounds these in exactly one way (the project builds with -ffp-contract=off), so every machine
 * computes the same bits. For the same reason sine and cosine are computed here: those of the C
 * library differ in the last bit between versions. */
#ifndef FM_CHEM_GEOMETRY_H
#define FM_CHEM_GEOMETRY_H

typedef struct fm_vec3 {
    double x, y, z; /* Å for positions */
} fm_vec3;

static inline fm_vec3 fm_vec3_add(fm_vec3 a, fm_vec3 b) {
    return (fm_vec3){a.x + b.x, a.y + b.y, a.z + b.z};
}
static inline fm_vec3 fm_vec3_sub(fm_vec3 a, fm_vec3 b) {
    return (fm_vec3){a.x - b.x, a.y - b.y, a.z - b.z};
}
static inline fm_vec3 fm_vec3_scale(fm_vec3 a, double factor) {
    return (fm_vec3){a.x * factor, a.y * factor, a.z * factor};
}
static inline double fm_vec3_dot(fm_vec3 a, fm_vec3 b) {
    return a.x * b.x + a.y * b.y + a.z * b.z;
}
static inline fm_vec3 fm_vec3_cross(fm_vec3 a, fm_vec3 b) {
    return (fm_vec3){a.y * b.z - a.z * b.y, a.z * b.x - a.x * b.z, a.x * b.y - a.y * b.x};
}

/* Computes sine and cosine of an angle in degrees, |degrees| <= 1e6; the error is below 2e-16. */
void fm_geometry_sincos(double degrees, double *ret_sine, double *ret_cosine);

/* Returns the position d with |c d| = bond (Å), angle b-c-d and dihedral a-b-c-d (degrees; IUPAC
 * sign: looking from b to c, clockwise is positive). a, b, c must not be collinear. */
fm_vec3 fm_geometry_place(fm_vec3 a, fm_vec3 b, fm_vec3 c, double bond, double angle,
                          double dihedral);

#endif
