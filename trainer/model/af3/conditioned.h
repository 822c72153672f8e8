/* conditioned.h: the conditioned sublayers of AlphaFold 3's diffusion module: AdaLN (26), attention
 * (24) and transition (25). It also has the blocks of these sublayers, for tokens (23) and for
 * atoms (7), and adds their parameters.
 *
 * Activations are [S, n, c] for S samples. The conditioning signal is [S, n, c_s], or [n, c_s]
 * where the samples share it (atoms). All samples share the pairs. */
#ifndef FM_TRAINER_AF3_CONDITIONED_H
#define FM_TRAINER_AF3_CONDITIONED_H

#include "trainer/model/af3/modulation.h"
#include "trainer/model/af3/params.h"
#include "trainer/model/af3/split.h"
#include "trainer/ops/adaln.h"
#include "trainer/ops/window_attention.h"

typedef struct fm_conditioned_attention_weights {
    fm_adaln_weights norm;          /* of queries; for tokens also of keys */
    fm_adaln_weights norm_kv;       /* atoms only: of keys, applied to the result of `norm` */
    fm_param_ref qkvg, q_bias, out; /* [4 c, c], [c], [c, c] */
    fm_param_ref norm_z;            /* [c_z] */
    fm_linear_weights bias;         /* [n_head, c_z] */
    fm_linear_weights last;         /* [c, c_s] with bias: the gate at the end */
    int64_t n_head, c_head;
} fm_conditioned_attention_weights;

typedef struct fm_conditioned_transition_weights {
    fm_adaln_weights norm;
    fm_linear_weights in, out, last; /* [2 hidden, c], [c, hidden], [c, c_s] with bias */
} fm_conditioned_transition_weights;

typedef struct fm_conditioned_block_weights {
    fm_conditioned_attention_weights attention;
    fm_conditioned_transition_weights transition;
} fm_conditioned_block_weights;

/* -- parameters; scopes end in '.' */

fm_adaln_weights fm_af3_adaln_weights(const fm_scope *scope, int64_t c, int64_t c_s);
/* With of_atoms, keys have a separate AdaLN (norm_kv). */
fm_conditioned_attention_weights fm_af3_conditioned_attention_weights(const fm_scope *scope,
                                                                      int64_t c, int64_t c_s,
                                                                      int64_t c_z, int64_t n_head,
                                                                      bool of_atoms);
fm_conditioned_transition_weights fm_af3_conditioned_transition_weights(const fm_scope *scope,
                                                                        int64_t c, int64_t c_s,
                                                                        int64_t factor);
fm_conditioned_block_weights fm_af3_conditioned_block_weights(const fm_scope *scope, int64_t c,
                                                              int64_t c_s, int64_t c_z,
                                                              int64_t n_head, int64_t factor,
                                                              bool of_atoms);

/* -- recording */

/* Returns W LayerNorm(z) of pairs z [N, N, c_z], or of a rank's rows: [N, N, c_out]. In slabs z may
 * be of the type of the tape's other table. */
fm_tensor_ref fm_af3_normed_linear(fm_tape *tape, const char *name, fm_tensor_ref z,
                                   fm_param_ref norm, const fm_linear_weights *weights);

/* Returns the bias [N, N, n_head] that the attention of tokens adds to its logits, from z [N, N,
 * c_z]. If each rank has some rows of z, their biases are gathered. */
fm_tensor_ref fm_af3_pair_bias(fm_tape *tape, const fm_groups *groups, fm_tensor_ref z,
                               const fm_conditioned_attention_weights *weights);

/* Attention of tokens with that bias, which all samples share. mask is act [S, N] with 0 for
 * padding, or FM_TENSOR_NONE. Returns a plus the update, or the bare update when !residual. */
fm_tensor_ref fm_af3_conditioned_attention(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                           fm_tensor_ref bias, fm_tensor_ref mask,
                                           const fm_conditioned_attention_weights *weights,
                                           bool residual);
/* Returns the bias [n_window, 32, 128, n_head] that a block of atoms makes from p [n_window, 32,
 * 128, c_p]. */
fm_tensor_ref fm_af3_window_bias(fm_tape *tape, fm_tensor_ref p,
                                 const fm_conditioned_attention_weights *weights);
fm_tensor_ref fm_af3_conditioned_transition(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                            const fm_conditioned_transition_weights *weights,
                                            bool residual);

/* What the blocks of a transformer read beside activations: the biases of all of them, or the
 * pairs z, from which each block makes its bias. Pairs of atoms are in windows, so that z is p. */
typedef struct fm_af3_block_inputs {
    const fm_tensor_ref *bias; /* [n_block]; NULL: made from z */
    /* [n_block], with the biases and on a tape without gradient; NULL: made from the conditioning
     * signal, which is not read with them. */
    const fm_af3_block_modulation *made;
    fm_tensor_ref z;         /* [N, N, c_z], or this rank's rows; not read with bias */
    const fm_groups *groups; /* NULL: one rank */
} fm_af3_block_inputs;

/* Makes the modulations of a block of s, which go to the tensors of the state `to`. */
void fm_af3_store_block_modulation(fm_tape *tape, fm_tensor_ref s,
                                   const fm_conditioned_block_weights *weights,
                                   const fm_af3_block_modulation *to);

/* Both functions record n_block blocks, each as one segment. Backward runs the first n_again of
 * them again. */
fm_tensor_ref fm_af3_diffusion_transformer(fm_tape *tape, fm_tensor_ref a, fm_tensor_ref s,
                                           const fm_af3_block_inputs *in, fm_tensor_ref mask,
                                           const fm_conditioned_block_weights *weights,
                                           int32_t n_block, int32_t n_again);
fm_tensor_ref fm_af3_atom_transformer(fm_tape *tape, fm_tensor_ref q, fm_tensor_ref c,
                                      const fm_af3_block_inputs *in, fm_tensor_ref mask,
                                      const fm_conditioned_block_weights *weights, int32_t n_block,
                                      int32_t n_again);

#endif
