/* af3_units_kernels.h: finds outputs of AlphaFold 3's units that no node of a tape has, by calling
 * kernels. The results live as long as the unit. */
#ifndef FM_TESTS_TRAINER_AF3_UNITS_KERNELS_H
#define FM_TESTS_TRAINER_AF3_UNITS_KERNELS_H

#include "tests/trainer/parity/af3_unit.h"

/* The true structure. */
typedef struct af3_atoms {
    int64_t n;
    const double *truth;                   /* [n, 3] Å */
    const double *mask, *radius, *partner; /* [n]; as fm_atom_lddt has them */
} af3_atoms;

/* The pairs that the smooth lDDT counts, [n, n]: 1 where the pair (l, m) counts for l. */
double *af3_smooth_lddt_pairs(af3_unit *u, const af3_atoms *atoms);

/* The number of partners of each atom, [n], in the lDDT that the confidence head predicts. */
double *af3_lddt_partners(af3_unit *u, const af3_atoms *atoms);

/* The sum over an atom's partners of its scores, quarters, in structures x [n_batch, n, 3]:
 * [n_batch, n]. */
double *af3_lddt_sums(af3_unit *u, const af3_atoms *atoms, int64_t n_batch, const double *x,
                      const double *partners);

/* The rotations [n_batch, 3, 3] and translations [n_batch, 3] that move x onto y. */
void af3_alignments(af3_unit *u, int64_t n_batch, int64_t n, const double *x, const double *y,
                    const double *weight, double *rotation, double *translation);

#endif
