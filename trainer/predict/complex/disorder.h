/* disorder.h: the share of a complex's protein residues that are disordered, as AlphaFold 3 defines
 * it: residues in whose neighbourhood most of the surface meets water.
 *
 * The surface is DSSP's (Kabsch and Sander 1983, with 401 dots on a sphere), relative to the
 * largest one that a residue has (Rost and Sander 1994). A residue is disordered if the mean over a
 * window of 25 residues is above 0.581. */
#ifndef FM_COMPLEX_DISORDER_H
#define FM_COMPLEX_DISORDER_H

#include "proto/complex_atoms.h"

/* A chain of a protein. Arrays are borrowed. */
typedef struct fm_disorder_chain {
    uint32_t n_atom, n_residue;
    const char *const *atom_name; /* [n_atom] */
    const int32_t *atom_residue;  /* [n_atom] first_residue + 0 to n_residue - 1, ascending */
    int32_t first_residue;
    const uint8_t *residue_letter; /* [n_residue] */
    const float *position;         /* [n_atom, 3] Å; an atom that is not finite is left out */
} fm_disorder_chain;

/* Writes for each residue with the atoms N, CA, C and O its surface in whole Å^2 and the mean of
 * the relative surfaces around it, 0 to 1, to the first *ret_n places of ret_surface and ret_mean
 * [n_residue]. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_disorder_measure(const fm_disorder_chain *chain, uint32_t *ret_n,
                                          int32_t *ret_surface, double *ret_mean, fm_error *reterr);

/* Counts the disordered ones of n means. */
uint32_t fm_disorder_count(const double *mean, uint32_t n);

/* Finds the share of all proteins of a complex; position is [A, 3]. Of chains with equal letters
 * the first counts for all. Without proteins it is 0. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_find_disorder(const fm_complex_atoms *atoms, const float *position,
                                               double *ret_fraction, fm_error *reterr);

#endif
