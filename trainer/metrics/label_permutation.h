/* label_permutation.h: exchanges the labels of equivalent chains and atoms of a complex so that
 * they fit a predicted structure best (AlphaFold 3, section 4.2 of the supplement).
 *
 * Copies of one molecule have no order, and neither have, for example, the two oxygens of a
 * carboxylate. A prediction that names them in another order than the experiment is equally good.
 * So the labels are exchanged before the losses are computed:
 *
 *     chains   One predicted chain is the anchor: the one with the fewest copies in the truth, then
 *              the one with most resolved tokens. Each of these copies in turn is superposed on it
 *              and moves the whole truth. Every other predicted chain, the longest first, then
 *              takes the copy that is nearest to it and not taken yet. The anchor's copy with the
 *              smallest mean RMSD of all chains is kept.
 *     atoms    After a superposition of everything, each group of atoms takes the order with the
 *              smallest RMSD.
 *
 * The prediction may be a crop of the complex. Tokens of two chains belong together if they
 * have the same number in their chains, counted before the crop. Where two choices are equally
 * good, the first wins; the order of the truth is the first. */
#ifndef FM_TRAINER_LABEL_PERMUTATION_H
#define FM_TRAINER_LABEL_PERMUTATION_H

#include "proto/base/arena.h"
#include "proto/base/status.h"
#include "trainer/metrics/superposition.h"

#include <stdbool.h>
#include <stdint.h>

/* Tokens and atoms of a complex, or of a crop of it. Tokens of a chain are neighbours, and
 * atoms are in the order of their tokens. Tokens that belong together have the same atoms in
 * the same order. */
typedef struct fm_labelled_complex {
    int64_t n_token, n_atom;
    const int64_t *asym_id, *entity_id; /* [n_token] */
    const int64_t *number;              /* [n_token]: in its chain before the crop, ascending */
    const int64_t *first_atom;          /* [n_token + 1] */
    const int64_t *centre;              /* [n_token]: an atom, or < 0 */
    const float *position;              /* [n_atom, 3] Å */
} fm_labelled_complex;

/* Atoms of one token or residue that may exchange their labels. They are the n atoms of the
 * prediction from `first` on. In order k, atom first + i has the label of atom first +
 * order[k * n + i]. Order 0 is the given one, 0 .. n - 1. */
typedef struct fm_atom_orders {
    int64_t first, n;
    int32_t n_order;
    const int32_t *order; /* [n_order, n] */
} fm_atom_orders;

/* resolved [truth->n_atom] is 1 for atoms with a known position. Writes label [predicted->n_atom]:
 * for each predicted atom the true atom whose position it gets, or -1 for none. Uses `scratch` and
 * rewinds it. Returns FM_ERR_LIMIT if `scratch` is too small. */
FM_MUST_USE fm_status fm_permute_labels(const fm_labelled_complex *predicted,
                                        const fm_labelled_complex *truth, const float *resolved,
                                        const fm_atom_orders *orders, int64_t n_orders,
                                        int64_t *label, fm_arena *scratch, fm_error *reterr);

/* The step of atoms alone: gives each group of atoms the order with the smallest RMSD once `motion`
 * has moved the truth. label is as fm_permute_labels has written it, and only labels of the groups
 * change. `room` has space for those of the largest group. */
void fm_permute_atoms(const fm_labelled_complex *predicted, const fm_labelled_complex *truth,
                      const float *resolved, const fm_motion *motion, const fm_atom_orders *orders,
                      int64_t n_orders, int64_t *label, int64_t *room);

#endif
