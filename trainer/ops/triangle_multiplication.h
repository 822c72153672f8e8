/* triangle_multiplication.h: triangle multiplicative updates of the pair array: outgoing edges
 * (A11) and incoming edges (A12).
 *
 *     z_ij += dropout(sigmoid(g_ij) * (W LayerNorm(x_ij) + b)),   x_ij = sum_k a_ik b_jk  (A11)
 *                                                                 x_ij = sum_k a_ki b_kj  (A12)
 *
 * with a = mask * sigmoid(a_g) * a_p, and b likewise. a_p, a_g, b_p, b_g and g are linear in
 * LayerNorm(z), made by one fused projection. z [N_res, N_res, c_z], or several with one mask,
 * [n_group, N_res, N_res, c_z]; mask [N_res, N_res]. Dropout shares its mask over axis 0.
 * In AlphaFold 3 (12, 13) no layer has a bias. Saved, kept or recomputed as the caller says: what
 * the kernel table's triangle_block keeps, such as a, b, x and g. */
#ifndef FM_TRAINER_TRIANGLE_MULTIPLICATION_H
#define FM_TRAINER_TRIANGLE_MULTIPLICATION_H

#include "trainer/autograd/tape.h"

typedef struct fm_triangle_weights {
    fm_param_ref norm_in;                       /* [2, c_z] */
    fm_param_ref projections, projections_bias; /* [4c + c_z, c_z], [4c + c_z]: a_p a_g b_p b_g g */
    fm_param_ref norm_out;                      /* [2, c] */
    fm_param_ref out, out_bias;                 /* [c_z, c], [c_z] */
    /* Both biases may be FM_PARAM_NONE. */
    int64_t c;
    fm_keep keep_operands;
} fm_triangle_weights;

/* Adds the node. Returns the new z, or the bare update when !residual. */
fm_tensor_ref fm_op_triangle_multiplication(fm_tape *tape, const char *name, bool incoming,
                                            fm_tensor_ref z, fm_tensor_ref mask,
                                            const fm_triangle_weights *weights, bool residual,
                                            double dropout);

/* The same for tapes without gradient that work slab by slab (fm_tape.chunks_triangles), on a whole
 * z [N_res, N_res, c_z] in place. Layers have biases. Beside slabs it holds one operand of all
 * pairs with outgoing edges, and both with incoming ones. Returns the new z. */
fm_tensor_ref fm_op_triangle_chunked(fm_tape *tape, const char *name, bool incoming,
                                     fm_tensor_ref z, fm_tensor_ref mask,
                                     const fm_triangle_weights *weights, double dropout);

#endif
