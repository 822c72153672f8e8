/* atom37.h: residues with coordinates, the input of everything that is computed from them.
 *
 * The functions of atom14.h, frames.h and torsions.h take a chain (or a crop of one) in atom37
 * order and fill the caller's arrays. They are pure and allocate nothing. They use float additions,
 * multiplications, divisions and square roots in a fixed order, so their bits are the same on every
 * machine (the project builds with -ffp-contract=off). They equal the bits of the reference,
 * OpenFold's data transforms in float32. For this reason a term that is multiplied by zero is kept:
 * it decides the sign of a zero. */
#ifndef FM_CHEM_ATOM37_H
#define FM_CHEM_ATOM37_H

#include "proto/chem/residue.h"

/* Borrowed arrays. Positions of absent atoms are usually zeros, but need not be. */
typedef struct fm_atom37 {
    size_t n_res;
    const uint8_t *aatype;  /* [N_res] restypes 0..19, X 20; a gap, 21, counts as X */
    const float *positions; /* [N_res, 37, 3] Å */
    const uint8_t *mask;    /* [N_res, 37] 1 if the atom has coordinates, else 0 */
} fm_atom37;

static inline uint8_t fm_atom37_restype(const fm_atom37 *chain, size_t residue) {
    uint8_t restype = chain->aatype[residue];
    return restype < FM_N_RESTYPE ? restype : (uint8_t)FM_RESTYPE_X;
}

static inline const float *fm_atom37_position(const fm_atom37 *chain, size_t residue, size_t atom) {
    return chain->positions + (residue * FM_N_ATOM37 + atom) * 3;
}

static inline uint8_t fm_atom37_present(const fm_atom37 *chain, size_t residue, size_t atom) {
    return chain->mask[residue * FM_N_ATOM37 + atom];
}

#endif
