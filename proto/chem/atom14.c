/* atom14.c: see atom14.h. */
#include "proto/chem/atom14.h"

#include <stdbool.h>

/* clang-format off */
#define NO FM_ATOM37_NONE
const uint8_t fm_atom14_to_atom37[FM_N_RESTYPE + 1][FM_N_ATOM14] = {
    {0, 1, 2, 4, 3, NO, NO, NO, NO, NO, NO, NO, NO, NO}, /* ALA */
    {0, 1, 2, 4, 3, 5, 11, 23, 32, 29, 30, NO, NO, NO},  /* ARG */
    {0, 1, 2, 4, 3, 5, 16, 15, NO, NO, NO, NO, NO, NO},  /* ASN */
    {0, 1, 2, 4, 3, 5, 16, 17, NO, NO, NO, NO, NO, NO},  /* ASP */
    {0, 1, 2, 4, 3, 10, NO, NO, NO, NO, NO, NO, NO, NO}, /* CYS */
    {0, 1, 2, 4, 3, 5, 11, 26, 25, NO, NO, NO, NO, NO},  /* GLN */
    {0, 1, 2, 4, 3, 5, 11, 26, 27, NO, NO, NO, NO, NO},  /* GLU */
    {0, 1, 2, 4, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO}, /* GLY */
    {0, 1, 2, 4, 3, 5, 14, 13, 20, 25, NO, NO, NO, NO},  /* HIS */
    {0, 1, 2, 4, 3, 6, 7, 12, NO, NO, NO, NO, NO, NO},   /* ILE */
    {0, 1, 2, 4, 3, 5, 12, 13, NO, NO, NO, NO, NO, NO},  /* LEU */
    {0, 1, 2, 4, 3, 5, 11, 19, 35, NO, NO, NO, NO, NO},  /* LYS */
    {0, 1, 2, 4, 3, 5, 18, 19, NO, NO, NO, NO, NO, NO},  /* MET */
    {0, 1, 2, 4, 3, 5, 12, 13, 20, 21, 32, NO, NO, NO},  /* PHE */
    {0, 1, 2, 4, 3, 5, 11, NO, NO, NO, NO, NO, NO, NO},  /* PRO */
    {0, 1, 2, 4, 3, 8, NO, NO, NO, NO, NO, NO, NO, NO},  /* SER */
    {0, 1, 2, 4, 3, 9, 7, NO, NO, NO, NO, NO, NO, NO},   /* THR */
    {0, 1, 2, 4, 3, 5, 12, 13, 24, 21, 22, 33, 34, 28},  /* TRP */
    {0, 1, 2, 4, 3, 5, 12, 13, 20, 21, 32, 31, NO, NO},  /* TYR */
    {0, 1, 2, 4, 3, 6, 7, NO, NO, NO, NO, NO, NO, NO},   /* VAL */
    {NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO},
};
#undef NO

#define SAME {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13}
const uint8_t fm_atom14_swap[FM_N_RESTYPE + 1][FM_N_ATOM14] = {
    SAME, SAME, SAME,
    {0, 1, 2, 3, 4, 5, 7, 6, 8, 9, 10, 11, 12, 13}, /* ASP OD1 OD2 */
    SAME, SAME,
    {0, 1, 2, 3, 4, 5, 6, 8, 7, 9, 10, 11, 12, 13}, /* GLU OE1 OE2 */
    SAME, SAME, SAME, SAME, SAME, SAME,
    {0, 1, 2, 3, 4, 5, 7, 6, 9, 8, 10, 11, 12, 13}, /* PHE CD1 CD2, CE1 CE2 */
    SAME, SAME, SAME, SAME,
    {0, 1, 2, 3, 4, 5, 7, 6, 9, 8, 10, 11, 12, 13}, /* TYR CD1 CD2, CE1 CE2 */
    SAME, SAME,
};
#undef SAME
/* clang-format on */

void fm_atom14_list_masks(const fm_atom37 *chain, const fm_atom14_masks *ret_masks) {
    for (size_t i = 0; i < chain->n_res; i++) {
        uint8_t restype = fm_atom37_restype(chain, i);
        uint8_t *to_atom14 = ret_masks->residx_atom37_to_atom14 + i * FM_N_ATOM37;
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
            bool exists = fm_restype_atom37[restype] >> atom & 1;
            ret_masks->atom37_atom_exists[i * FM_N_ATOM37 + atom] = exists;
            to_atom14[atom] = 0;
        }
        for (size_t place = 0; place < FM_N_ATOM14; place++) {
            uint8_t atom = fm_atom14_to_atom37[restype][place];
            bool exists = atom != FM_ATOM37_NONE;
            ret_masks->atom14_atom_exists[i * FM_N_ATOM14 + place] = exists;
            ret_masks->residx_atom14_to_atom37[i * FM_N_ATOM14 + place] = exists ? atom : 0;
            if (exists) to_atom14[atom] = (uint8_t)place;
        }
    }
}

/* Places without an atom take N's coordinates times zero, so their zeros have N's signs, as in the
 * reference. */
static void fill_truth(const fm_atom37 *chain, size_t i, uint8_t restype,
                       const fm_atom14_truth *truth) {
    for (size_t place = 0; place < FM_N_ATOM14; place++) {
        size_t at = i * FM_N_ATOM14 + place;
        uint8_t atom = fm_atom14_to_atom37[restype][place];
        bool exists = atom != FM_ATOM37_NONE;
        if (!exists) atom = FM_ATOM37_N;
        const float *position = fm_atom37_position(chain, i, atom);
        float mask = exists && fm_atom37_present(chain, i, atom) ? 1.0f : 0.0f;
        truth->atom14_gt_exists[at] = mask;
        for (size_t axis = 0; axis < 3; axis++)
            truth->atom14_gt_positions[at * 3 + axis] = mask * position[axis];
    }
}

/* The reference swaps by multiplying with a matrix of zeros and ones, which turns every zero into a
 * positive one. Adding 0.0f does the same. */
static void fill_alternative(size_t i, uint8_t restype, const fm_atom14_truth *truth) {
    for (size_t place = 0; place < FM_N_ATOM14; place++) {
        uint8_t other = fm_atom14_swap[restype][place];
        size_t at = i * FM_N_ATOM14 + place, from = i * FM_N_ATOM14 + other;
        truth->atom14_atom_is_ambiguous[at] = other != place;
        truth->atom14_alt_gt_exists[at] = truth->atom14_gt_exists[from];
        for (size_t axis = 0; axis < 3; axis++) {
            truth->atom14_alt_gt_positions[at * 3 + axis] =
                truth->atom14_gt_positions[from * 3 + axis] + 0.0f;
        }
    }
}

void fm_atom14_ground_truth(const fm_atom37 *chain, const fm_atom14_truth *ret_truth) {
    for (size_t i = 0; i < chain->n_res; i++) {
        uint8_t restype = fm_atom37_restype(chain, i);
        fill_truth(chain, i, restype, ret_truth);
        fill_alternative(i, restype, ret_truth);
    }
}

void fm_atom14_pseudo_beta(const fm_atom37 *chain, float *ret_pseudo_beta, float *ret_mask) {
    const uint8_t glycine = fm_restype_from_letter('G');
    for (size_t i = 0; i < chain->n_res; i++) {
        size_t atom = chain->aatype[i] == glycine ? FM_ATOM37_CA : FM_ATOM37_CB;
        const float *position = fm_atom37_position(chain, i, atom);
        for (size_t axis = 0; axis < 3; axis++)
            ret_pseudo_beta[i * 3 + axis] = position[axis];
        ret_mask[i] = fm_atom37_present(chain, i, atom);
    }
}
