/* atom14.h: the compact order of a residue's atoms, and the pseudo-beta position.
 *
 * A residue type has at most 14 heavy atoms (tryptophan). The atom14 order is N CA C O CB and then
 * outwards along the side chain; places that a type does not use are empty. Some names are only a
 * convention. Turning the last chi angle of Asp, Glu, Phe or Tyr by 180 degrees gives the same
 * molecule with two (or two pairs of) names swapped. The alternative ground truth has these names
 * swapped, so that a loss can use the better of the two. Pseudo-beta is CB, or CA for glycine.
 *
 * Source: Jumper et al. 2021, supplementary 1.2.1, table 3 and algorithm 26. */
#ifndef FM_CHEM_ATOM14_H
#define FM_CHEM_ATOM14_H

#include "proto/chem/atom37.h"

enum { FM_N_ATOM14 = 14 };

/* [restype, atom14] the atom37 position, FM_ATOM37_NONE where the type has no such atom; X has
 * none. */
extern const uint8_t fm_atom14_to_atom37[FM_N_RESTYPE + 1][FM_N_ATOM14];

/* [restype, atom14] the atom14 place with which this one may swap names; itself where there is no
 * ambiguity. */
extern const uint8_t fm_atom14_swap[FM_N_RESTYPE + 1][FM_N_ATOM14];

/* Masks and maps that follow from the residue types alone. Places without an atom map to 0. */
typedef struct fm_atom14_masks {
    float *atom14_atom_exists;        /* [N_res, 14] */
    uint8_t *residx_atom14_to_atom37; /* [N_res, 14] */
    uint8_t *residx_atom37_to_atom14; /* [N_res, 37] */
    float *atom37_atom_exists;        /* [N_res, 37] */
} fm_atom14_masks;

/* Fills the caller's arrays from chain->aatype; positions and mask are not used. */
void fm_atom14_list_masks(const fm_atom37 *chain, const fm_atom14_masks *ret_masks);

/* Positions in Å; zeros (of either sign) for atoms without coordinates. */
typedef struct fm_atom14_truth {
    float *atom14_gt_exists;         /* [N_res, 14] */
    float *atom14_gt_positions;      /* [N_res, 14, 3] */
    float *atom14_alt_gt_positions;  /* [N_res, 14, 3] with the ambiguous names swapped */
    float *atom14_alt_gt_exists;     /* [N_res, 14] */
    float *atom14_atom_is_ambiguous; /* [N_res, 14] */
} fm_atom14_truth;

/* Fills the caller's arrays. */
void fm_atom14_ground_truth(const fm_atom37 *chain, const fm_atom14_truth *ret_truth);

/* Fills pseudo_beta [N_res, 3] Å and pseudo_beta_mask [N_res]; neither may be NULL. */
void fm_atom14_pseudo_beta(const fm_atom37 *chain, float *ret_pseudo_beta, float *ret_mask);

#endif
