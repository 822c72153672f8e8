/* atom_pairs.h: the pairs of atoms in windows (AF3-5), one node:
 *
 *     p_lm = W_d v d_lm + W_invd v / (1 + |d_lm|^2) + W_v v + z_(token l, token m) + q_l + k_m
 *
 * with d_lm = x_l - x_m, and v = 1 where both atoms are of one residue or ligand, else 0. z is
 * already projected to [n_token, n_token, c], and q and k to [n_atom, c]. The geometry is never
 * stored; backward computes it again. */
#ifndef FM_TRAINER_ATOM_PAIRS_H
#define FM_TRAINER_ATOM_PAIRS_H

#include "trainer/ops/gather.h"

typedef struct fm_atom_pair_weights {
    fm_param_ref offset, inverse, valid; /* [c, 3], [c, 1], [c, 1] */
    int64_t c;
} fm_atom_pair_weights;

/* position f32 [n_atom, 3] Å and space i32 [n_atom] (an id of the residue or ligand, < 0 for
 * padding) are tensors of the state. z may be FM_TENSOR_NONE. Returns p [n_window, 32, 128, c];
 * pairs with a position outside the atoms have unspecified values, which no reader may use. */
fm_tensor_ref fm_op_atom_pairs(fm_tape *tape, fm_tensor_ref position, fm_tensor_ref space,
                               fm_tensor_ref z, fm_tensor_ref q, fm_tensor_ref k,
                               const fm_atom_map *map, const fm_atom_pair_weights *weights);

#endif
