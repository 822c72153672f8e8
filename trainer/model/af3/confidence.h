/* confidence.h: AlphaFold 3's confidence head (31): a Pairformer on the trunk's results and on the
 * distances of a predicted structure, and the four heads behind it.
 *
 * The head's inputs have no gradient. */
#ifndef FM_TRAINER_AF3_CONFIDENCE_H
#define FM_TRAINER_AF3_CONFIDENCE_H

#include "trainer/model/af3/blocks.h"
#include "trainer/model/af3/split.h"

enum { FM_AF3_DISTANCE_CLASSES = 39, FM_AF3_RESOLVED_CLASSES = 2 };

typedef struct fm_af3_confidence_weights {
    fm_param_ref norm_trunk; /* [2, c_s] */
    fm_linear_weights s1, s2, distance_class, distance;
    fm_af3_block_weights block[FM_AF3_MAX_BLOCK];
    fm_param_ref norm_pae, norm_pde;        /* [2, c_z] */
    fm_linear_weights pae, pde;             /* [n_pae_bin, c_z], [n_pde_bin, c_z] */
    fm_param_ref norm_plddt, norm_resolved; /* [2, c_s] */
    fm_param_ref plddt, resolved;           /* [slots, c_s, n_plddt_bin], [slots, c_s, 2] */
} fm_af3_confidence_weights;

/* Adds the head's parameters. The name of `scope` must end in '.'. */
void fm_af3_confidence_add(const fm_scope *scope, const fm_af3_config *config,
                           fm_af3_confidence_weights *ret_weights);

typedef struct fm_af3_confidence_inputs {
    fm_tensor_ref s_inputs, s;           /* [N, c_s_inputs], [N, c_s] */
    fm_tensor_ref z;                     /* [N, N, c_z], or this rank's rows */
    fm_tensor_ref structure;             /* act [.., n_atom, 3] Å; the first one is judged */
    fm_tensor_ref representative;        /* i32 [N]: the atom for distances; < 0: padding */
    fm_tensor_ref slot_row, atom_of_row; /* i32 [n_atom]: slot * N + token of the atom, < 0:
                                            padding; [slots * N]: the reverse, < 0: none */
    fm_af3_masks masks;
} fm_af3_confidence_inputs;

/* Logits, act, whole on every rank: pae and pde [N, N, bins], plddt and resolved [n_atom, bins]. */
typedef struct fm_af3_confidence_logits {
    fm_tensor_ref plddt, pae, pde, resolved;
} fm_af3_confidence_logits;

/* Records the head, without dropout. */
fm_af3_confidence_logits fm_af3_confidence(fm_tape *tape, const fm_af3_config *config,
                                           const fm_af3_confidence_weights *weights,
                                           const fm_af3_confidence_inputs *inputs);

#endif
