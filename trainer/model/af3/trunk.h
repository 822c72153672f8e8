/* trunk.h: AlphaFold 3's trunk (1): initial representations, recycling, template embedder (16), MSA
 * module (8), Pairformer (17) and the distogram head.
 *
 *     s0 = W s_inputs,  z0_ij = W1 s0_i + W2 s0_j + relative position of ij + W_b bond_ij
 *     each cycle:  z = z0 + W_z LayerNorm(z);  z += templates(z);  z = msa(z)
 *                  s = s0 + W_s LayerNorm(s);  s, z = Pairformer(s, z)
 *
 * The state holds s and z of the last cycle; they are zero before the first. A single
 * representation is [1, N, c]. */
#ifndef FM_TRAINER_AF3_TRUNK_H
#define FM_TRAINER_AF3_TRUNK_H

#include "trainer/model/af3/blocks.h"
#include "trainer/model/af3/split.h"

enum { FM_AF3_MAX_TEMPLATE_BLOCK = 8, FM_AF3_MAX_MSA_BLOCK = 16 };

typedef struct fm_af3_template_embedder_weights {
    fm_param_ref norm_z; /* [2, c_z] */
    fm_linear_weights z, a;
    fm_af3_block_weights block[FM_AF3_MAX_TEMPLATE_BLOCK];
    fm_param_ref norm_v; /* [2, c_template] */
    fm_linear_weights u;
} fm_af3_template_embedder_weights;

typedef struct fm_af3_trunk_weights {
    fm_linear_weights s_init, z_init1, z_init2, token_bond, relative;
    fm_param_ref norm_z, norm_s; /* of the recycled values */
    fm_linear_weights z_cycle, s_cycle;
    fm_af3_template_embedder_weights templates;
    fm_linear_weights msa, msa_s;
    fm_af3_block_weights msa_block[FM_AF3_MAX_MSA_BLOCK];
    fm_af3_block_weights pairformer[FM_AF3_MAX_BLOCK];
    fm_linear_weights distogram;
} fm_af3_trunk_weights;

/* `scope` is the template embedder's, with the prefix "template_embedder.". */
void fm_af3_template_embedder_parameters(const fm_scope *scope, const fm_af3_config *config,
                                         fm_af3_template_embedder_weights *ret_weights);
fm_linear_weights fm_af3_distogram_parameters(const fm_scope *scope, const fm_af3_config *config);
/* `root` is the scope of the whole model. */
void fm_af3_trunk_parameters(const fm_scope *root, const fm_af3_config *config,
                             fm_af3_trunk_weights *ret_weights);

/* Tensors of the state. */
typedef struct fm_af3_trunk_inputs {
    fm_tensor_ref relative;   /* u8 [4, N, N] (ops/relative_position.h) */
    fm_tensor_ref bonds;      /* act [N, N, 1] */
    fm_tensor_ref templates;  /* act [T, N, N, 108]; FM_TENSOR_NONE without templates */
    fm_tensor_ref msa;        /* act [M, N, 34] of this cycle */
    fm_tensor_ref previous_s; /* act [1, N, c_s] */
    fm_tensor_ref previous_z; /* act [N, N, c_z] */
    fm_af3_masks masks;
} fm_af3_trunk_inputs;

/* Records the template embedder. `templates` is [T, N, N, 108], whole. z, and its update, which is
 * returned, are [N, N, c_z], or this rank's rows. */
fm_tensor_ref fm_af3_template_embedder(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_template_embedder_weights *weights,
                                       fm_tensor_ref templates, fm_tensor_ref pair_mask,
                                       fm_tensor_ref z);

/* Records one cycle. s_inputs [1, N, c_s_inputs]. Returns s and z, or this rank's rows of z; the
 * caller stores them for the next cycle. */
fm_af3_pair_of fm_af3_trunk(fm_tape *tape, const fm_af3_config *config,
                            const fm_af3_trunk_weights *weights, const fm_af3_trunk_inputs *inputs,
                            fm_tensor_ref s_inputs);

/* Returns the logits [N, N, 64] of the distogram, whole. */
fm_tensor_ref fm_af3_distogram(fm_tape *tape, const fm_groups *groups,
                               const fm_linear_weights *weights, fm_tensor_ref z);

#endif
