/* atoms.h: AlphaFold 3's atoms: the encoder (5), the decoder (6) and the input embedder (2), and
 * their parameters. Shapes: atoms [S, n_atom, c_atom] for S samples, c [n_atom, c_atom], pairs in
 * windows [n_window, 32, 128, c_atompair]. */
#ifndef FM_TRAINER_AF3_ATOMS_H
#define FM_TRAINER_AF3_ATOMS_H

#include "trainer/model/af3/conditioned.h"
#include "trainer/ops/atom_features.h"
#include "trainer/ops/atom_pairs.h"

/* What the modules know of the atoms; tensors of the state. */
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
    /* With coordinates only. */
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

/* Scopes end in '.'. */
void fm_af3_atom_encoder_add(const fm_scope *scope, const fm_af3_config *config, int64_t c_token,
                             int32_t n_block, bool with_coordinates,
                             fm_af3_atom_encoder_weights *ret_weights);
void fm_af3_atom_decoder_add(const fm_scope *scope, const fm_af3_config *config,
                             fm_af3_atom_decoder_weights *ret_weights);

/* The part of the encoder that does not depend on the samples. */
typedef struct fm_af3_atom_context {
    fm_tensor_ref c, p;
} fm_af3_atom_context;

/* s [N, c_s]: the trunk's single; z [N, N, c_z]: the conditioned pairs. Both FM_TENSOR_NONE for the
 * encoder without coordinates. */
fm_af3_atom_context fm_af3_atom_context_of(fm_tape *tape, const fm_af3_atoms *atoms,
                                           fm_tensor_ref s, fm_tensor_ref z,
                                           const fm_af3_atom_encoder_weights *weights);

typedef struct fm_af3_encoded {
    fm_tensor_ref a; /* [S, N, c_token] */
    fm_tensor_ref q; /* [S, n_atom, c_atom] */
} fm_af3_encoded;

/* r [S, n_atom, 3], or FM_TENSOR_NONE: then S is 1. */
fm_af3_encoded fm_af3_atom_encoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                   fm_af3_atom_context context, fm_tensor_ref r,
                                   const fm_af3_atom_encoder_weights *weights, bool recompute);

/* Returns r [S, n_atom, 3]. */
fm_tensor_ref fm_af3_atom_decoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                  fm_af3_atom_context context, fm_af3_encoded encoded,
                                  const fm_af3_atom_decoder_weights *weights, bool recompute);

/* 2: a, then restype, profile and deletion_mean, which are token_features act
 * [N, FM_AF3_TOKEN_FEATURES]. Returns s_inputs [N, c_token_in + 65]. */
fm_tensor_ref fm_af3_input_embedder(fm_tape *tape, const fm_af3_atoms *atoms,
                                    fm_tensor_ref token_features,
                                    const fm_af3_atom_encoder_weights *weights, bool recompute);

#endif
