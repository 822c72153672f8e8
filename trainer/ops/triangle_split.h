/* triangle_split.h: a triangle multiplication (triangle_multiplication.h) in three nodes, for a
 * pair array that is split over ranks: along axis 0 for outgoing edges, along axis 1 for incoming
 * ones. Let a' = a and b' = b for outgoing edges, and the transposes a'_ik = a_ki and b'_jk = b_kj
 * for incoming edges. Then x_ij = sum_k a'_ik b'_jk in both cases, and each rank has the rows of a'
 * and b' of its part.
 *
 *     operands   a' and b' of this rank's part; the caller gathers one: b' for outgoing edges, a' for
 *                incoming edges
 *     gate       g, while the gather is under way
 *     core       z_ij += dropout(sigmoid(g_ij) * (W LayerNorm(x_ij) + b))
 *
 * The numbers and the draws are those of the one node. */
#ifndef FM_TRAINER_TRIANGLE_SPLIT_H
#define FM_TRAINER_TRIANGLE_SPLIT_H

#include "trainer/ops/triangle_multiplication.h"

/* Gated and masked operands, each [N_res/D, N_res, c]. */
typedef struct fm_triangle_operands {
    fm_tensor_ref a, b;
} fm_triangle_operands;

/* z and mask are split as above. Saved: the projections and gates of a and b. */
fm_triangle_operands fm_op_triangle_operands(fm_tape *tape, const char *name, bool incoming,
                                             fm_tensor_ref z, fm_tensor_ref mask,
                                             const fm_triangle_weights *weights);

/* Returns g, the logits of the output's gate, with the shape and the split of z. */
fm_tensor_ref fm_op_triangle_gate(fm_tape *tape, const char *name, fm_tensor_ref z,
                                  const fm_triangle_weights *weights);

/* One of the operands has been gathered: [N_res, N_res, c]. Returns the new z. Saved: x. */
fm_tensor_ref fm_op_triangle_core(fm_tape *tape, const char *name, fm_tensor_ref z,
                                  const fm_triangle_operands *operands, fm_tensor_ref gate,
                                  const fm_triangle_weights *weights, double dropout);

#endif
