/* structure_layers.h: the structure module's layers on the single representation (A20).
 *
 *     norm        y = LayerNorm(dropout(x)): the end of a sublayer of A20 (lines 7, 9)
 *     transition  y = x + W3 relu(W2 relu(W1 x + b1) + b2) + b3                       A20:8
 *     angles      unnormalised torsion angles from s and the initial s                A20:11-14
 *     unit        pairs (sine, cosine) divided by their length
 *
 * The inputs of the angles pass a ReLU first, as in the code of the published weights; the text of
 * the supplement does not have it. Dropout here draws for each element separately. */
#ifndef FM_TRAINER_STRUCTURE_OPS_H
#define FM_TRAINER_STRUCTURE_OPS_H

#include "trainer/autograd/tape.h"

enum { FM_N_ANGLE = 7, FM_MAX_ANGLE_PARTS = FM_NODE_INPUTS - 1 };

/* x [.., c], weights [2, c]: gamma, beta. rate 0: no dropout. */
fm_tensor_ref fm_op_norm(fm_tape *tape, const char *name, fm_tensor_ref x, fm_param_ref weights,
                         double rate);

typedef struct fm_structure_transition_weights {
    fm_param_ref w, b; /* three [c, c] side by side: [3 c, c]; [3, c] */
} fm_structure_transition_weights;

/* s [N_res, c_s]. */
fm_tensor_ref fm_op_structure_transition(fm_tape *tape, fm_tensor_ref s,
                                         const fm_structure_transition_weights *weights);

typedef struct fm_angle_weights {
    fm_param_ref in, in_bias;         /* [2 c, c_s]: of s, of the initial s; [2, c] */
    fm_param_ref hidden, hidden_bias; /* [n_block, 2, c, c], [n_block, 2, c] */
    fm_param_ref out, out_bias;       /* [14, c], [14] */
    int64_t c;
    int32_t n_block; /* 2 */
} fm_angle_weights;

/* s[0 .. n_part-1], those of the iterations, and initial, each [N_res, c_s]. Returns
 * [n_part, N_res, 7, 2]. */
fm_tensor_ref fm_op_angles(fm_tape *tape, const fm_tensor_ref *s, int n_part, fm_tensor_ref initial,
                           const fm_angle_weights *weights);

/* x [.., 2]. Returns x / sqrt(max(|x|^2, 1e-8)). */
fm_tensor_ref fm_op_unit_pairs(fm_tape *tape, fm_tensor_ref x);

#endif
