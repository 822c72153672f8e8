/* structure_metrics.h: how close a predicted structure is to the true one.
 *
 * Points are CA atoms unless said otherwise, in Å, f64 [n, 3] in C order, one predicted for each
 * true one; who has a mask takes the points out first (fm_structure_score does). No score depends
 * on how either structure lies in space. Scores are in 0..1, 1 = the same; RMSD and dRMSD in Å. All
 * are pure functions with one order of summation; those that search use the caller's arena and give
 * back what they took.
 *
 * | score   | definition |
 * |---------|------------|
 * | lDDT    | Mariani et al. 2013, Bioinformatics 29:2722: share of true distances below 15 Å that
 * |         | are kept within 0.5, 1, 2, 4 Å, mean of the four; all pairs count alike (as
 * AlphaFold's |         | lddt_ca). All-atom: pairs of atoms of different residues | | RMSD    |
 * after the best superposition (Kabsch 1976) | | dRMSD   | root mean square difference of all
 * distances | | TM      | Zhang & Skolnick 2004, Proteins 57:702, by TMscore's search | | GDT     |
 * Zemla 2003, NAR 31:3370: share of points within 1, 2, 4, 8 Å (TS) or 0.5, 1, 2, 4 Å |         |
 * (HA), each threshold under its own best superposition, found by the same search | */
#ifndef FM_TRAINER_STRUCTURE_METRICS_H
#define FM_TRAINER_STRUCTURE_METRICS_H

#include "proto/base/arena.h"
#include "proto/chem/atom14.h"

/* NAN where no two points are close enough to count. ret_local, if not NULL, [n]: of the pairs of
 * each point alone. */
double fm_lddt(size_t n, const double *predicted, const double *truth, double *ret_local);

/* n >= 1. */
double fm_rmsd(size_t n, const double *predicted, const double *truth);

/* NAN where n < 2. */
double fm_drmsd(size_t n, const double *predicted, const double *truth);

/* The distance at which a residue counts one half: 1.24 (length - 15)^(1/3) - 1.8, at least 0.5. */
double fm_tm_d0(size_t length);

typedef struct fm_tm_scores {
    double tm, gdt_ts, gdt_ha;
} fm_tm_scores;

/* Fragments of n, n/2, n/4 ... 4 points, at every place, are superposed and grown from the points
 * that come close, up to 20 times; the best of all motions counts. length >= n, the residues of the
 * true chain, is what TM and GDT are shares of. 30 ms for 256 points, 55 ms for 384. n >= 1.
 * FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_tm_score(size_t n, const double *predicted, const double *truth,
                                  size_t length, fm_arena *scratch, fm_tm_scores *ret_scores,
                                  fm_error *reterr);

/* A predicted chain and its truth, by atom14 places. */
typedef struct fm_structure_pair {
    size_t n_res;
    const uint8_t *aatype;  /* [N_res] restypes; X has no atoms */
    const float *predicted; /* [N_res, 14, 3] Å, all atoms that the type has */
    const float *truth;     /* [N_res, 14, 3] Å */
    const uint8_t *mask;    /* [N_res, 14] 1 = the true atom is known */
} fm_structure_pair;

/* All-atom lDDT. Residues with two or four atoms that are named by convention only (Arg NH1 NH2,
 * Asp, Glu, Leu CD1 CD2, Phe, Tyr, Val CG1 CG2, as in the source) take the naming of the prediction
 * that agrees better with all atoms that have one name. NAN where no pair counts. FM_ERR_LIMIT when
 * the arena is full. */
FM_MUST_USE fm_status fm_lddt_all_atom(const fm_structure_pair *pair, fm_arena *scratch,
                                       double *ret_lddt, fm_error *reterr);

typedef struct fm_structure_scores {
    size_t n; /* residues whose true CA is known; all scores are NAN where it is 0 */
    double lddt_ca, lddt, rmsd, drmsd, tm, gdt_ts, gdt_ha; /* all but lddt: of CA atoms */
} fm_structure_scores;

/* Everything; shares are of the n residues. */
FM_MUST_USE fm_status fm_structure_score(const fm_structure_pair *pair, fm_arena *scratch,
                                         fm_structure_scores *ret_scores, fm_error *reterr);

/* lDDT-CA alone, the cheap one. */
FM_MUST_USE fm_status fm_structure_lddt_ca(const fm_structure_pair *pair, fm_arena *scratch,
                                           double *ret_lddt, fm_error *reterr);

#endif
