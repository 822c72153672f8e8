/* atoms.h: records AlphaFold 3's atom encoder (5), atom decoder (6) and input embedder (2), and
 * adds their parameters. Atom activations are [S, n_atom, c_atom] for S samples. The conditioning c
 * is [n_atom, c_atom]. Pairs of atoms are stored in windows, [n_window, 32, 128, c_atompair]. */
#ifndef FM_TRAINER_AF3_ATOMS_H
#define FM_TRAINER_AF3_ATOMS_H

#include "trainer/model/af3/conditioned.h"
#include "trainer/ops/atom_features.h"
#include "trainer/ops/atom_pairs.h"

/* The atoms of a complex as the modules read them. All are tensors of the state. */
typedef struct fm_af3_atoms {
    fm_atom_map map;
    fm_atom_feature_inputs features;
    fm_tensor_ref position; /* f32 [n_atom, 3]: the reference conformers, Å */
    fm_tensor_ref space;    /* i32 [n_atom]: one id per residue or ligand copy; < 0: padding */
    fm_tensor_ref mask;     /* act [n_atom]: 0 for padding */
} fm_af3_atoms;

typedef struct fm_af3_atom_encoder_weights {
    fm_atom_feature_weights features;
    fm_atom_pair_weights pairs;
    fm_linear_weights cl, cm; /* [c_atompair, c_atom] */
    fm_linear_weights mlp[3]; /* [c_atompair, c_atompair] */
    fm_linear_weights q;      /* [c_token, c_atom] */
    /* Used only by the encoder with coordinates. */
    fm_param_ref norm_s, norm_z; /* [c_s], [c_z] */
    fm_linear_weights s, z, r;   /* [c_atom, c_s], [c_atompair, c_z], [c_atom, 3] */
    int32_t n_block;
    fm_conditioned_block_weights block[FM_AF3_MAX_BLOCK];
} fm_af3_atom_encoder_weights;

typedef struct fm_af3_atom_decoder_weights {
    fm_linear_weights a, out; /* [c_atom, c_token], [3, c_atom] */
    fm_param_ref norm_q;      /* [c_atom] */
    int32_t n_block;
    fm_conditioned_block_weights block[FM_AF3_MAX_BLOCK];
} fm_af3_atom_decoder_weights;

/* Add the parameters of an encoder and of a decoder. The name of `scope` must end in '.'. Without
 * with_coordinates the encoder is the input embedder's, which lacks s, z and r. */
void fm_af3_atom_encoder_add(const fm_scope *scope, const fm_af3_config *config, int64_t c_token,
                             int32_t n_block, bool with_coordinates,
                             fm_af3_atom_encoder_weights *ret_weights);
void fm_af3_atom_decoder_add(const fm_scope *scope, const fm_af3_config *config,
                             fm_af3_atom_decoder_weights *ret_weights);

/* The part of the encoder's work that does not depend on the samples: the conditioning c and the
 * pairs p, or the biases that the blocks of the encoder and of the decoder make from p. */
typedef struct fm_af3_atom_context {
    fm_tensor_ref c, p;                               /* p is not read with biases */
    const fm_tensor_ref *encoder_bias, *decoder_bias; /* one per block; NULL: made from p */
    const fm_af3_block_modulation *encoder, *decoder; /* the same; NULL: made from c */
} fm_af3_atom_context;

/* Records that part. s [N, c_s] is the trunk's single representation, and z [N, N, c_z] the
 * conditioned pairs, or this rank's rows of them. Both are FM_TENSOR_NONE for the encoder without
 * coordinates. */
fm_af3_atom_context fm_af3_atom_context_of(fm_tape *tape, const fm_groups *groups,
                                           const fm_af3_atoms *atoms, fm_tensor_ref s,
                                           fm_tensor_ref z,
                                           const fm_af3_atom_encoder_weights *weights);

typedef struct fm_af3_encoded {
    fm_tensor_ref a; /* [S, N, c_token] */
    fm_tensor_ref q; /* [S, n_atom, c_atom] */
} fm_af3_encoded;

/* Records the encoder. r [S, n_atom, 3] has the scaled coordinates. It is FM_TENSOR_NONE for the
 * encoder without coordinates, where S is 1. Backward runs the first n_again blocks
 * again, here and below. */
fm_af3_encoded fm_af3_atom_encoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                   fm_af3_atom_context context, fm_tensor_ref r,
                                   const fm_af3_atom_encoder_weights *weights, int32_t n_again);

/* Records the decoder. Returns the update r [S, n_atom, 3] of the coordinates. */
fm_tensor_ref fm_af3_atom_decoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                  fm_af3_atom_context context, fm_af3_encoded encoded,
                                  const fm_af3_atom_decoder_weights *weights, int32_t n_again);

/* Records algorithm 2. token_features, act [N, FM_AF3_TOKEN_FEATURES], has restype, profile and
 * deletion_mean of each token. Returns s_inputs [N, c_token_in + 65]: the encoder's a, followed by
 * token_features. */
fm_tensor_ref fm_af3_input_embedder(fm_tape *tape, const fm_af3_atoms *atoms,
                                    fm_tensor_ref token_features,
                                    const fm_af3_atom_encoder_weights *weights, int32_t n_again);

#endif
