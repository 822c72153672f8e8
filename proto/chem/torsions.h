/* torsions.h: a residue's seven torsion angles as sine and cosine.
 *
 * Angles: 0 pre-omega (CA and C of the residue before, N, CA), 1 phi (its C, N, CA, C), 2 psi (N,
 * CA, C, O), 3..6 chi1..chi4. The first three atoms of an angle make a frame (1st in the xy plane,
 * 2nd on the negative x axis, 3rd at the origin); the fourth atom's z and y there are sine and
 * cosine but for their length, which is divided out with 1e-8 added under the root. Psi is the
 * angle to O and is negated, as the frame of the oxygen needs it. The first residue has zeros as
 * its predecessor.
 *
 * A chi angle that is the same molecule after 180 degrees has its alternative with both signs
 * turned. Source: Jumper et al. 2021, supplementary 1.8.2 and 1.9.1. */
#ifndef FM_CHEM_TORSIONS_H
#define FM_CHEM_TORSIONS_H

#include "proto/chem/atom37.h"

enum { FM_N_TORSION = 7, FM_N_CHI = 4, FM_TORSION_PSI = 2, FM_TORSION_CHI1 = 3 };

/* The chi angles of a residue type. */
typedef struct fm_chi_atoms {
    uint8_t n_chi;
    uint8_t atom[FM_N_CHI][4]; /* atom37 places; N (0) for angles that the type does not have */
    uint8_t pi_periodic;       /* bit c set: chi c + 1 is the same after 180 degrees */
} fm_chi_atoms;

/* [restype] X has none. */
extern const fm_chi_atoms fm_residue_chi[FM_N_RESTYPE + 1];

typedef struct fm_torsions {
    float *torsion_angles_sin_cos;     /* [N_res, 7, 2] sine, cosine */
    float *alt_torsion_angles_sin_cos; /* [N_res, 7, 2] */
    float *torsion_angles_mask;        /* [N_res, 7] 1 where all four atoms have coordinates */
} fm_torsions;

/* Fills the caller's arrays; chi_angles_sin_cos [N_res, 4, 2] and chi_mask [N_res, 4] are their
 * last four angles. For a crop the residue before its first one counts as not there, so take
 * torsions of the chain, or do without pre-omega and phi of that residue. */
void fm_torsions_list(const fm_atom37 *chain, const fm_torsions *ret_torsions);

#endif
