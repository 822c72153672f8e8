/* scores.h: the scores of a predicted complex, in AlphaFold 3's convention, and in Protenix's.
 *
 * Both take the same expected TM-scores of pairs.h. They agree in pTM, ipTM and the pTM and ipTM of
 * chains and pairs of chains wherever frames exist. They differ where none exist (NAN against 0),
 * in what a clash is, in the score of a chain's interfaces, and in the ranking score:
 *
 *     AlphaFold 3   0.8 ipTM + 0.2 pTM, or pTM for one chain, + 0.5 disordered share - 100 clash
 *     Protenix      0.8 ipTM + 0.2 pTM - 100 clash, where ipTM is 0 for one chain
 *
 * N tokens, A atoms, K chains. */
#ifndef FM_COMPLEX_SCORES_H
#define FM_COMPLEX_SCORES_H

#include "trainer/predict/complex/pairs.h"

/* Two atoms of different residues that are nearer than this (Å) clash. */
#define FM_COMPLEX_CLASH 1.1

/* Arrays are in the arena. NAN stands for a score that does not exist. */
typedef struct fm_complex_scores {
    double ptm, iptm;
    double mean_plddt; /* 0 to 100, over all atoms */
    double fraction_disordered;
    bool has_clash;
    double ranking_score;
    double *chain_pair_iptm;    /* [K, K] ipTM of two chains; the diagonal is the chain's pTM */
    double *chain_pair_pae_min; /* [K, K] Å, from the frames of the first chain */
    double *chain_ptm;          /* [K] */
    double *chain_iptm;         /* [K] the mean ipTM with the other chains */
} fm_complex_scores;

/* Scores a structure. plddt [A] is 0 to 1, position [A, 3] is in Å. fraction_disordered is that of
 * disorder.h. FM_ERR_LIMIT when the arena is full, FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_score(const fm_complex_layout *layout,
                                       const fm_complex_pairs *pairs, const double *plddt,
                                       const float *position, double fraction_disordered,
                                       fm_arena *arena, fm_complex_scores *ret_scores,
                                       fm_error *reterr);

/* Protenix's scores, with its names. Those of no chains or frames are 0. af3_scores compares them
 * with Protenix's own; no program calls them. */
typedef struct fm_protenix_scores {
    double plddt; /* 0 to 100 */
    double gpde;  /* Å: PDE, weighted with contact probabilities */
    double ptm, iptm;
    bool has_clash;
    double ranking_score;
    double *chain_ptm, *chain_iptm, *chain_gpde;                        /* [K] */
    double *chain_plddt;                                                /* [K] 0 to 1 */
    double *chain_pair_iptm, *chain_pair_iptm_global, *chain_pair_gpde; /* [K, K] diagonal 0 */
    double *chain_pair_plddt;                                           /* [K, K] 0 to 1 */
} fm_protenix_scores;

FM_MUST_USE fm_status fm_complex_score_protenix(const fm_complex_layout *layout,
                                                const fm_complex_contacts *contacts,
                                                const fm_complex_pairs *pairs, const double *plddt,
                                                const float *position, fm_arena *arena,
                                                fm_protenix_scores *ret_scores, fm_error *reterr);

/* Whether polymers of a structure clash. AlphaFold 3 counts the atoms of a chain that are within
 * FM_COMPLEX_CLASH of an atom of another chain, or of the same chain and more than one residue
 * away; more than 100, or more than half of the chain's atoms, are a clash. Protenix counts the
 * pairs of atoms of two chains that are nearer; more than 100, or more than half the atoms of the
 * smaller chain, are a clash. Positions that are not finite clash with none. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_complex_find_clashes(const fm_complex_layout *layout,
                                              const float *position, bool *ret_has_clash,
                                              bool *ret_has_clash_protenix, fm_error *reterr);

/* Orders n structures by their ranking scores, best first, in ret_order [n]. Equal ones stay in
 * their order, and those that are not a number are last. */
void fm_complex_rank(const double *ranking_score, uint32_t n, uint32_t *ret_order);

#endif
