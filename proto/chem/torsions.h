/* torsions.h: a residue's seven torsion angles as sine and cosine.
 *
 *     angle         atoms
 *     0  pre-omega  CA and C of the residue before, N, CA
 *     1  phi        C of the residue before, N, CA, C
 *     2  psi        N, CA, C, O
 *     3..6          chi1..chi4
 *
 * The first three atoms of an angle define a frame: the 1st in the xy plane, the 2nd on the
 * negative x axis, the 3rd at the origin. In it, the fourth atom's z and y are sine and cosine up
 * to a common length, which is divided out with 1e-8 added under the root. Psi is measured to O and
 * negated, because the oxygen's frame needs it so. The first residue has zeros as its predecessor.
 *
 * For a chi angle that gives the same molecule after 180 degrees, the alternative has both signs
 * reversed. Source: Jumper et al. 2021, supplementary 1.8.2 and 1.9.1. */
#ifndef FM_CHEM_TORSIONS_H
#define FM_CHEM_TORSIONS_H

#include "proto/chem/atom37.h"

enum { FM_N_TORSION = 7, FM_N_CHI = 4, FM_TORSION_PSI = 2, FM_TORSION_CHI1 = 3 };

/* The chi angles of a residue type. */
typedef struct fm_chi_atoms {
    uint8_t n_chi;
    uint8_t atom[FM_N_CHI][4]; /* atom37 positions; N (0) for angles that the type lacks */
    uint8_t pi_periodic;       /* bit c set: chi c + 1 is the same after 180 degrees */
} fm_chi_atoms;

/* [restype]; X has no angles. */
extern const fm_chi_atoms fm_residue_chi[FM_N_RESTYPE + 1];

typedef struct fm_torsions {
    float *torsion_angles_sin_cos;     /* [N_res, 7, 2] sine, cosine */
    float *alt_torsion_angles_sin_cos; /* [N_res, 7, 2] */
    float *torsion_angles_mask;        /* [N_res, 7] 1 where all four atoms have coordinates */
} fm_torsions;

/* Fills the caller's arrays; chi_angles_sin_cos [N_res, 4, 2] and chi_mask [N_res, 4] are their
 * last four angles. In a crop, the residue before the first one counts as absent. To have pre-omega
 * and phi of the first residue, compute the torsions of the whole chain. */
void fm_torsions_list(const fm_atom37 *chain, const fm_torsions *ret_torsions);

#endif
