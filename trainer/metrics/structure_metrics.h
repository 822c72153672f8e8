/* structure_metrics.h: scores how close a predicted structure is to the true one.
 *
 * Points are CA atoms unless stated otherwise: f64 [n, 3] in C order, in Å, one predicted point for
 * each true point. A caller with a mask removes masked points first, as fm_structure_score does. No
 * score depends on the position or orientation of either structure. Scores are in 0..1, where 1
 * means identical; RMSD and dRMSD are in Å. All functions are pure and sum in one order. Functions
 * that search take memory from the caller's arena and rewind it.
 *
 * | score | definition                                                                         |
 * |-------|------------------------------------------------------------------------------------|
 * | lDDT  | Mariani et al. 2013, Bioinformatics 29:2722: share of the true distances below     |
 * |       | 15 Å that are kept within 0.5, 1, 2 and 4 Å, mean of the four. All pairs count     |
 * |       | alike (as in AlphaFold's lddt_ca). All-atom: pairs of atoms of different residues. |
 * | RMSD  | after the best superposition (Kabsch 1976)                                         |
 * | dRMSD | root mean square difference of all distances                                       |
 * | TM    | Zhang & Skolnick 2004, Proteins 57:702, found by the search of TMscore             |
 * | GDT   | Zemla 2003, NAR 31:3370: share of points within 1, 2, 4, 8 Å (TS) or 0.5, 1, 2,    |
 * |       | 4 Å (HA). Each threshold has its own best superposition, found by the same search. | */
#ifndef FM_TRAINER_STRUCTURE_METRICS_H
#define FM_TRAINER_STRUCTURE_METRICS_H

#include "proto/base/arena.h"
#include "proto/chem/atom14.h"

#include <math.h>

/* The number of lDDT's four thresholds within which a distance is kept. Distances are in Å. */
static inline unsigned fm_lddt_kept(double predicted, double truth) {
    double change = fabs(predicted - truth);
    return (unsigned)(change < 0.5) + (change < 1) + (change < 2) + (change < 4);
}

/* lDDT; NAN if no two true points are below 15 Å. ret_local (NULL, or [n]) receives the score of
 * each point's own pairs. */
double fm_lddt(size_t n, const double *predicted, const double *truth, double *ret_local);

/* RMSD after the best superposition; n >= 1. */
double fm_rmsd(size_t n, const double *predicted, const double *truth);

/* dRMSD; NAN if n < 2. */
double fm_drmsd(size_t n, const double *predicted, const double *truth);

/* The distance at which a residue counts one half, in Å: 1.24 (length - 15)^(1/3) - 1.8, at least
 * 0.5. */
double fm_tm_d0(size_t length);

typedef struct fm_tm_scores {
    double tm, gdt_ts, gdt_ha;
} fm_tm_scores;

/* Searches for the superpositions that give the best TM-score and GDT (see tm_score.c). length >= n
 * is the number of residues of the true chain, the denominator of TM and GDT. n >= 1. Takes 30 ms
 * for 256 points and 55 ms for 384. FM_ERR_LIMIT if the arena is full. */
FM_MUST_USE fm_status fm_tm_score(size_t n, const double *predicted, const double *truth,
                                  size_t length, fm_arena *scratch, fm_tm_scores *ret_scores,
                                  fm_error *reterr);

/* A predicted chain and its truth, in atom14 places. */
typedef struct fm_structure_pair {
    size_t n_res;
    const uint8_t *aatype;  /* [N_res] residue types; X has no atoms */
    const float *predicted; /* [N_res, 14, 3] Å; every atom of the type is set */
    const float *truth;     /* [N_res, 14, 3] Å */
    const uint8_t *mask;    /* [N_res, 14]; 1 = the true atom is known */
} fm_structure_pair;

/* All-atom lDDT. In some residues the names of two or four atoms are a convention only: Arg NH1
 * NH2, Asp, Glu, Leu CD1 CD2, Phe, Tyr, Val CG1 CG2 (as in the source). Such a residue uses the
 * naming of the prediction that agrees better with all unambiguous atoms. *ret_lddt is NAN if no
 * pair counts. FM_ERR_LIMIT if the arena is full. */
FM_MUST_USE fm_status fm_lddt_all_atom(const fm_structure_pair *pair, fm_arena *scratch,
                                       double *ret_lddt, fm_error *reterr);

typedef struct fm_structure_scores {
    size_t n; /* residues with a known true CA; if 0, all scores are NAN */
    double lddt_ca, lddt, rmsd, drmsd, tm, gdt_ts, gdt_ha; /* all but lddt use CA atoms only */
} fm_structure_scores;

/* Computes all scores; the denominator is the n residues with a known CA. FM_ERR_LIMIT if the arena
 * is full. */
FM_MUST_USE fm_status fm_structure_score(const fm_structure_pair *pair, fm_arena *scratch,
                                         fm_structure_scores *ret_scores, fm_error *reterr);

#endif
