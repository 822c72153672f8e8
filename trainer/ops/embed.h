/* embed.h: the embedders: input (A3, A4) and recycling (A32).
 *
 *     features   msa_feat [N_seq, N_res, 49] from ids, deletions and cluster statistics
 *     input MSA  m_si = Linear(msa_feat_si) + Linear(target_feat_i)                      A3:4
 *     input pair z_ij = Linear(target_feat_i) + Linear(target_feat_j) + relpos(i, j)     A3:1-3, A4
 *     recycle    m_1i += LayerNorm(m_1i of the last cycle)                               A32:3
 *                z_ij += LayerNorm(z_ij of the last cycle) + Linear(one-hot(d_ij)) + b   A32:1-3
 *
 * target_feat [N_res, 22] is never stored: column 0 is 0, and column 1 + aatype is 1. The recycling
 * embedder runs in the first cycle, too, on zeros. */
#ifndef FM_TRAINER_EMBED_H
#define FM_TRAINER_EMBED_H

#include "trainer/autograd/tape.h"

enum { FM_TARGET_FEATURES = 22 };

typedef struct fm_input_msa_weights {
    fm_param_ref msa, msa_bias;       /* [c_m, 49], [c_m] */
    fm_param_ref target, target_bias; /* [c_m, 22], [c_m] */
    int64_t c_m;
} fm_input_msa_weights;

typedef struct fm_input_pair_weights {
    fm_param_ref target, target_bias; /* [2 c_z, 22], [2 c_z]: of i, of j */
    fm_param_ref relpos, relpos_bias; /* [c_z, 2k+1], [c_z] */
    int64_t c_z, relpos_k;
} fm_input_pair_weights;

typedef struct fm_recycle_weights {
    fm_param_ref norm_m, norm_z;          /* [2, c_m], [2, c_z] */
    fm_param_ref distance, distance_bias; /* [c_z, n_bin], [c_z] */
    int64_t n_bin;
} fm_recycle_weights;

/* The inputs of the cluster features: tensors of the state, of the types of fm_msa_features. */
typedef struct fm_feature_inputs {
    fm_tensor_ref msa, deletion, profile, deletion_sum, cluster_size;
} fm_feature_inputs;

/* Returns [N_seq, N_res, 49], or the extra MSA's 25 columns where profile, deletion_sum and
 * cluster_size are FM_TENSOR_NONE. It has no gradient. */
fm_tensor_ref fm_op_msa_features(fm_tape *tape, const fm_feature_inputs *inputs);

/* features [N_seq, N_res, 49], which may be split along the residues; aatype u8 [N_res], whole.
 * Returns m [N_seq, N_res, c_m], split as the features are. */
fm_tensor_ref fm_op_input_msa(fm_tape *tape, fm_tensor_ref features, fm_tensor_ref aatype,
                              const fm_input_msa_weights *weights);

/* aatype u8 [N_res] and residue_index i32 [N_res] are whole. Returns z [N_res, N_res, c_z], of
 * which this rank makes the rows of `part`. */
fm_tensor_ref fm_op_input_pair(fm_tape *tape, fm_tensor_ref aatype, fm_tensor_ref residue_index,
                               const fm_input_pair_weights *weights, fm_part part);

/* previous [N_res, c_m]: the first row of m after the last cycle, split along the residues as m is.
 * Returns the new m. */
fm_tensor_ref fm_op_recycle_msa(fm_tape *tape, fm_tensor_ref m, fm_tensor_ref previous,
                                const fm_recycle_weights *weights);

/* A32:1. x f32 [N_res, 3] Å: the pseudo-beta positions that the last cycle predicted; zeros before
 * the first cycle are in no class. Returns u8 [N_res, N_res, 1], the rows of `part`: n_bin classes
 * with lower edges from 3.25 to 20.75 Å. It has no gradient. */
fm_tensor_ref fm_op_recycle_bins(fm_tape *tape, fm_tensor_ref x, int64_t n_bin, fm_part part);

/* previous [N_res, N_res, c_z], split as z is. bins u8 [N_res, N_res]: the class of the distance
 * between the last cycle's pseudo-beta positions, a value >= n_bin for none; FM_TENSOR_NONE where
 * no coordinates are predicted. Returns the new z. */
fm_tensor_ref fm_op_recycle_pair(fm_tape *tape, fm_tensor_ref z, fm_tensor_ref previous,
                                 fm_tensor_ref bins, const fm_recycle_weights *weights);

#endif
