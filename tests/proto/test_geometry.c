/* test_geometry.c: placing atoms: a placed atom has the requested bond, angle and dihedral,
 * measured here with the C library. The ideal residues close their rings and have the chirality of
 * nature. */
#include "proto/chem/geometry.h"
#include "proto/chem/ideal_geometry.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const double degree = 3.14159265358979323846 / 180.0;

static double distance(fm_vec3 a, fm_vec3 b) {
    fm_vec3 d = fm_vec3_sub(a, b);
    return sqrt(fm_vec3_dot(d, d));
}

static double angle_of(fm_vec3 a, fm_vec3 b, fm_vec3 c) {
    fm_vec3 u = fm_vec3_sub(a, b), v = fm_vec3_sub(c, b);
    fm_vec3 normal = fm_vec3_cross(u, v);
    return atan2(sqrt(fm_vec3_dot(normal, normal)), fm_vec3_dot(u, v)) / degree;
}

static double dihedral_of(fm_vec3 a, fm_vec3 b, fm_vec3 c, fm_vec3 d) {
    fm_vec3 first = fm_vec3_cross(fm_vec3_sub(b, a), fm_vec3_sub(c, b));
    fm_vec3 second = fm_vec3_cross(fm_vec3_sub(c, b), fm_vec3_sub(d, c));
    fm_vec3 turn = fm_vec3_cross(first, second), axis = fm_vec3_sub(c, b);
    double sine = fm_vec3_dot(turn, axis) / sqrt(fm_vec3_dot(axis, axis));
    return atan2(sine, fm_vec3_dot(first, second)) / degree;
}

static void sine_and_cosine_agree_with_the_c_library(void **state) {
    (void)state;
    for (int i = -100000; i <= 100000; i++) {
        double degrees = i * 0.01037, sine, cosine;
        fm_geometry_sincos(degrees, &sine, &cosine);
        assert_true(fabs(sine - sin(degrees * degree)) < 4e-15);
        assert_true(fabs(cosine - cos(degrees * degree)) < 4e-15);
    }
    double sine, cosine;
    fm_geometry_sincos(-90, &sine, &cosine);
    assert_true(sine == -1.0 && cosine == 0.0);
}

static void placed_atoms_have_the_requested_geometry(void **state) {
    (void)state;
    fm_vec3 a = {1.0, -2.0, 0.5}, b = {0.25, 0.5, -1.0}, c = {1.5, 1.25, 0.0};
    for (double angle = 60; angle < 175; angle += 13) {
        for (double dihedral = -179; dihedral < 180; dihedral += 17) {
            fm_vec3 d = fm_geometry_place(a, b, c, 1.53, angle, dihedral);
            assert_true(fabs(distance(c, d) - 1.53) < 1e-12);
            assert_true(fabs(angle_of(b, c, d) - angle) < 1e-9);
            assert_true(fabs(dihedral_of(a, b, c, d) - dihedral) < 1e-9);
        }
    }
}

typedef struct built {
    const fm_ideal_residue *ideal;
    fm_vec3 atoms[FM_IDEAL_MAX_ATOMS];
} built;

static built build(unsigned aatype) {
    built residue = {.ideal = fm_ideal_residue_of(aatype)};
    double chi[4] = {-60, 180, 180, 180};
    if (residue.ideal->chi_kind[0] == FM_CHI_PUCKER) chi[0] = 28, chi[1] = -33;
    fm_vec3 *at = residue.atoms;
    at[1] = (fm_vec3){FM_IDEAL_N_CA, 0, 0};
    at[2] = fm_geometry_place((fm_vec3){0, 1, 0}, at[0], at[1], FM_IDEAL_CA_C, FM_IDEAL_N_CA_C, 0);
    for (unsigned i = 0; i < residue.ideal->n_side; i++) {
        const fm_ideal_atom *atom = &residue.ideal->side[i];
        assert_true(atom->from[0] < i + 4 && atom->from[1] < i + 4 && atom->from[2] < i + 4);
        double dihedral = atom->dihedral + (atom->chi ? chi[atom->chi - 1] : 0);
        at[i + 4] = fm_geometry_place(at[atom->from[0]], at[atom->from[1]], at[atom->from[2]],
                                      atom->bond, atom->angle, dihedral);
    }
    return residue;
}

static fm_vec3 atom_named(const built *residue, const char *name) {
    for (unsigned i = 0; i < residue->ideal->n_side; i++) {
        if (strcmp(residue->ideal->side[i].name, name) == 0) return residue->atoms[i + 4];
    }
    assert_string_equal(name, "N");
    return residue->atoms[0];
}

static void rings_close(void **state) {
    (void)state;
    static const struct {
        unsigned aatype;
        const char *from, *to;
        double bond;
    } closures[] = {
        {8, "CE1", "NE2", 1.321},  {13, "CE2", "CZ", 1.382},  {14, "CD", "N", 1.473},
        {17, "NE1", "CE2", 1.370}, {17, "CZ3", "CH2", 1.400}, {18, "CE2", "CZ", 1.378},
    };
    for (size_t i = 0; i < sizeof closures / sizeof closures[0]; i++) {
        built residue = build(closures[i].aatype);
        double bond =
            distance(atom_named(&residue, closures[i].from), atom_named(&residue, closures[i].to));
        assert_true(fabs(bond - closures[i].bond) < 0.02);
    }
}

/* (N - CA) x (C - CA) . (CB - CA) is positive for L residues. The second centres of isoleucine and
 * threonine, and the names of valine's and leucine's ends, follow from their chi differences. */
static void residues_have_the_l_configuration(void **state) {
    (void)state;
    for (unsigned aatype = 0; aatype < FM_IDEAL_N_RESIDUE; aatype++) {
        built residue = build(aatype);
        if (residue.ideal->n_side == 0) continue;
        const fm_vec3 *at = residue.atoms;
        fm_vec3 normal = fm_vec3_cross(fm_vec3_sub(at[0], at[1]), fm_vec3_sub(at[2], at[1]));
        assert_true(fm_vec3_dot(normal, fm_vec3_sub(at[4], at[1])) > 0);
    }
    static const struct {
        unsigned aatype;
        unsigned from[3];
        const char *first, *second;
        double apart;
    } pairs[] = {{9, {0, 1, 4}, "CG1", "CG2", -122},
                 {16, {0, 1, 4}, "OG1", "CG2", -120},
                 {19, {0, 1, 4}, "CG1", "CG2", 122},
                 {10, {1, 4, 5}, "CD1", "CD2", 122}};
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        built residue = build(pairs[i].aatype);
        const fm_vec3 *at = residue.atoms;
        const unsigned *from = pairs[i].from;
        double first = dihedral_of(at[from[0]], at[from[1]], at[from[2]],
                                   atom_named(&residue, pairs[i].first));
        double second = dihedral_of(at[from[0]], at[from[1]], at[from[2]],
                                    atom_named(&residue, pairs[i].second));
        double apart = remainder(second - first, 360);
        assert_true(fabs(apart - pairs[i].apart) < 4);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sine_and_cosine_agree_with_the_c_library),
        cmocka_unit_test(placed_atoms_have_the_requested_geometry),
        cmocka_unit_test(rings_close),
        cmocka_unit_test(residues_have_the_l_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
