/* torsions.c: see torsions.h. */
#include "proto/chem/torsions.h"

#include "proto/chem/frames.h"

#include <math.h>
#include <stdbool.h>

#define ANGLE_EPSILON 1e-8f

/* clang-format off */
const fm_chi_atoms fm_residue_chi[FM_N_RESTYPE + 1] = {
    {0, {{0}}, 0},                                                               /* ALA */
    {4, {{0, 1, 3, 5}, {1, 3, 5, 11}, {3, 5, 11, 23}, {5, 11, 23, 32}}, 0},      /* ARG */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 16}}, 0},                                       /* ASN */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 16}}, 1 << 1},                                  /* ASP */
    {1, {{0, 1, 3, 10}}, 0},                                                     /* CYS */
    {3, {{0, 1, 3, 5}, {1, 3, 5, 11}, {3, 5, 11, 26}}, 0},                       /* GLN */
    {3, {{0, 1, 3, 5}, {1, 3, 5, 11}, {3, 5, 11, 26}}, 1 << 2},                  /* GLU */
    {0, {{0}}, 0},                                                               /* GLY */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 14}}, 0},                                       /* HIS */
    {2, {{0, 1, 3, 6}, {1, 3, 6, 12}}, 0},                                       /* ILE */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 12}}, 0},                                       /* LEU */
    {4, {{0, 1, 3, 5}, {1, 3, 5, 11}, {3, 5, 11, 19}, {5, 11, 19, 35}}, 0},      /* LYS */
    {3, {{0, 1, 3, 5}, {1, 3, 5, 18}, {3, 5, 18, 19}}, 0},                       /* MET */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 12}}, 1 << 1},                                  /* PHE */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 11}}, 0},                                       /* PRO */
    {1, {{0, 1, 3, 8}}, 0},                                                      /* SER */
    {1, {{0, 1, 3, 9}}, 0},                                                      /* THR */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 12}}, 0},                                       /* TRP */
    {2, {{0, 1, 3, 5}, {1, 3, 5, 12}}, 1 << 1},                                  /* TYR */
    {1, {{0, 1, 3, 6}}, 0},                                                      /* VAL */
    {0, {{0}}, 0},
};
/* clang-format on */

/* The four atoms of an angle: their positions, and whether all have coordinates. */
typedef struct angle_atoms {
    const float *position[4];
    bool exists;
} angle_atoms;

static void take_atom(angle_atoms *angle, int k, const fm_atom37 *chain, size_t residue,
                      size_t atom) {
    angle->position[k] = fm_atom37_position(chain, residue, atom);
    angle->exists &= fm_atom37_present(chain, residue, atom) != 0;
}

/* Does the same for the residue before; the first residue has zeros there. */
static void take_previous(angle_atoms *angle, int k, const fm_atom37 *chain, size_t residue,
                          size_t atom) {
    static const float nowhere[3] = {0};
    if (residue > 0) {
        take_atom(angle, k, chain, residue - 1, atom);
        return;
    }
    angle->position[k] = nowhere;
    angle->exists = false;
}

static angle_atoms atoms_of(const fm_atom37 *chain, size_t i, size_t torsion) {
    static const uint8_t psi[4] = {FM_ATOM37_N, FM_ATOM37_CA, FM_ATOM37_C, FM_ATOM37_O};
    angle_atoms angle = {.exists = true};
    if (torsion == 0) {
        take_previous(&angle, 0, chain, i, FM_ATOM37_CA);
        take_previous(&angle, 1, chain, i, FM_ATOM37_C);
        take_atom(&angle, 2, chain, i, FM_ATOM37_N);
        take_atom(&angle, 3, chain, i, FM_ATOM37_CA);
    } else if (torsion == 1) {
        take_previous(&angle, 0, chain, i, FM_ATOM37_C);
        take_atom(&angle, 1, chain, i, FM_ATOM37_N);
        take_atom(&angle, 2, chain, i, FM_ATOM37_CA);
        take_atom(&angle, 3, chain, i, FM_ATOM37_C);
    } else {
        const fm_chi_atoms *chi = &fm_residue_chi[fm_atom37_restype(chain, i)];
        size_t number = torsion - FM_TORSION_CHI1; /* not used for psi */
        bool is_psi = torsion == FM_TORSION_PSI;
        for (int k = 0; k < 4; k++)
            take_atom(&angle, k, chain, i, is_psi ? psi[k] : chi->atom[number][k]);
        if (!is_psi && number >= chi->n_chi) angle.exists = false;
    }
    return angle;
}

static void sine_and_cosine(const angle_atoms *angle, float out[2]) {
    float local[3];
    fm_rigid frame =
        fm_rigid_from_points(angle->position[1], angle->position[2], angle->position[0]);
    fm_rigid_to_local(&frame, angle->position[3], local);
    float length = sqrtf(local[2] * local[2] + local[1] * local[1] + ANGLE_EPSILON);
    out[0] = local[2] / length;
    out[1] = local[1] / length;
}

void fm_torsions_list(const fm_atom37 *chain, const fm_torsions *ret_torsions) {
    for (size_t i = 0; i < chain->n_res; i++) {
        uint8_t pi_periodic = fm_residue_chi[fm_atom37_restype(chain, i)].pi_periodic;
        for (size_t torsion = 0; torsion < FM_N_TORSION; torsion++) {
            size_t at = i * FM_N_TORSION + torsion;
            bool has_mirror =
                torsion >= FM_TORSION_CHI1 && (pi_periodic >> (torsion - FM_TORSION_CHI1) & 1);
            float mirror = has_mirror ? -1.0f : 1.0f;
            float *out = ret_torsions->torsion_angles_sin_cos + at * 2;
            angle_atoms angle = atoms_of(chain, i, torsion);
            sine_and_cosine(&angle, out);
            if (torsion == FM_TORSION_PSI) out[0] *= -1.0f, out[1] *= -1.0f;
            ret_torsions->alt_torsion_angles_sin_cos[at * 2] = out[0] * mirror;
            ret_torsions->alt_torsion_angles_sin_cos[at * 2 + 1] = out[1] * mirror;
            ret_torsions->torsion_angles_mask[at] = angle.exists;
        }
    }
}
