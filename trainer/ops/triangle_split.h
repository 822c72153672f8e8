/* triangle_split.h: a triangle multiplication (triangle_multiplication.h) in four nodes, for a pair
 * array that is split over ranks along its rows.
 *
 *     operands   a and b of this rank's rows
 *     product    outgoing: x_ij = sum_k a_ik b_jk of its rows i, once the caller has gathered b.
 *                incoming: its share of x_ij = sum_k a_ki b_kj of all i and j, that of its rows k;
 *                the caller sums the shares over the ranks, each of which needs its rows i
 *     gate       g, while the exchange is under way
 *     end        z_ij += dropout(sigmoid(g_ij) * (W LayerNorm(x_ij) + b))
 *
 * The numbers and the draws are those of the one node, except that shares of x are rounded. */
#ifndef FM_TRAINER_TRIANGLE_SPLIT_H
#define FM_TRAINER_TRIANGLE_SPLIT_H

#include "trainer/ops/triangle_multiplication.h"

/* Gated and masked operands, each [N_res/D, N_res, c]. */
typedef struct fm_triangle_operands {
    fm_tensor_ref a, b;
} fm_triangle_operands;

/* z and mask are split as above. Saved: the projections and gates of a and b. */
fm_triangle_operands fm_op_triangle_operands(fm_tape *tape, const char *name, fm_tensor_ref z,
                                             fm_tensor_ref mask,
                                             const fm_triangle_weights *weights);

/* Outgoing: operands->b is whole, and the result has this rank's rows. Incoming: the result
 * [N_res, N_res, c] is this rank's share. */
fm_tensor_ref fm_op_triangle_product(fm_tape *tape, const char *name, bool incoming,
                                     const fm_triangle_operands *operands);

/* Returns g, the logits of the output's gate, with the shape and the split of z. */
fm_tensor_ref fm_op_triangle_gate(fm_tape *tape, const char *name, fm_tensor_ref z,
                                  const fm_triangle_weights *weights);

/* x [N_res/D, N_res, c]. Returns the new z. */
fm_tensor_ref fm_op_triangle_end(fm_tape *tape, const char *name, fm_tensor_ref z, fm_tensor_ref x,
                                 fm_tensor_ref gate, const fm_triangle_weights *weights,
                                 double dropout);

#endif
