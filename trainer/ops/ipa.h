/* ipa.h: invariant point attention (A22): one node, and one for its pair bias.
 *
 *     s_i = s_i (+) Linear(concat over heads of the attention's scalars, points and pairs)
 *
 * Residues attend to each other by scalar products, by the distances of points that each residue
 * places in its own frame, and by the pair representation. Frames are quaternion and translation;
 * as in all of the structure module, translations are in units of 10 Å. Gradients flow to s, z and
 * the frames. Saved: the projections, the concatenated output and two numbers of the softmax per
 * row.
 *
 * The pair bias depends on z and the weights alone, so the iterations of the structure module share
 * one. Its gradient is the sum over all of them. */
#ifndef FM_TRAINER_IPA_H
#define FM_TRAINER_IPA_H

#include "trainer/autograd/tape.h"

typedef struct fm_ipa_weights {
    fm_param_ref projections, projections_bias; /* [n, c_s], [n]: q, kv, q points, kv points */
    fm_param_ref bias, bias_bias;               /* [n_head, c_z], [n_head] */
    fm_param_ref head_weights;                  /* [n_head] */
    fm_param_ref out, out_bias;                 /* [c_s, n_head (c + 4 n_v + c_z)], [c_s] */
    int64_t n_head, c, n_qk, n_v;
} fm_ipa_weights;

/* Returns the pair bias [N_res, N_res, n_head] of z [N_res, N_res, c_z]. */
fm_tensor_ref fm_op_ipa_bias(fm_tape *tape, fm_tensor_ref z, const fm_ipa_weights *weights);

/* s [N_res, c_s], z [N_res, N_res, c_z], bias from fm_op_ipa_bias, frames [N_res, 7], mask act
 * [N_res]. Adds the node; returns s + update, or the bare update when !residual. */
fm_tensor_ref fm_op_ipa(fm_tape *tape, const char *name, fm_tensor_ref s, fm_tensor_ref z,
                        fm_tensor_ref bias, fm_tensor_ref frames, fm_tensor_ref mask,
                        const fm_ipa_weights *weights, bool residual);

#endif
