/* diffusion.h: AlphaFold 3's diffusion module (20) with its conditioning (21, 22), for S noisy
 * structures of one complex, and its parameters.
 *
 * The work has two parts. `prepare` does not depend on the noise: it runs once and serves all
 * samples and all steps of a rollout. `denoise` runs for S structures, each with its noise level.
 */
#ifndef FM_TRAINER_AF3_DIFFUSION_H
#define FM_TRAINER_AF3_DIFFUSION_H

#include "trainer/model/af3/atoms.h"
#include "trainer/ops/swiglu_transition.h"

typedef struct fm_af3_conditioning_weights {
    fm_param_ref relative;               /* [c_z, 139] */
    fm_param_ref norm_z, norm_s, norm_n; /* [2 c_z], [..], [c_noise] */
    fm_linear_weights z, s, n;           /* without biases */
    fm_swiglu_transition_weights transition_z[2], transition_s[2];
} fm_af3_conditioning_weights;

typedef struct fm_af3_diffusion_weights {
    fm_af3_conditioning_weights conditioning;
    fm_af3_atom_encoder_weights encoder;
    fm_param_ref norm_s, norm_a; /* [c_s], [c_token] */
    fm_linear_weights s;         /* [c_token, c_s] */
    int32_t n_block;
    fm_conditioned_block_weights block[FM_AF3_MAX_BLOCK];
    fm_af3_atom_decoder_weights decoder;
} fm_af3_diffusion_weights;

/* Both functions add parameters. The name of `scope` must end in '.'. The Fourier embedding is not
 * trained and has no rows in the table. */
fm_af3_conditioning_weights fm_af3_conditioning_add(const fm_scope *scope,
                                                    const fm_af3_config *config);
void fm_af3_diffusion_add(const fm_scope *scope, const fm_af3_config *config,
                          fm_af3_diffusion_weights *ret_weights);

/* The trunk's results and the relative positions. s_inputs and s are [N, c]. z is [N, N, c_z], or
 * this rank's rows. */
typedef struct fm_af3_trunk_output {
    fm_tensor_ref s_inputs, s, z;
    fm_tensor_ref relative; /* u8 [4, N, N]: classes of ops/relative_position.h */
} fm_af3_trunk_output;

/* Factors that follow from the noise level t of each of S samples. They are tensors of the state,
 * acc [S], with the values of fm_af3_noise_factors. */
typedef struct fm_af3_levels {
    fm_tensor_ref in, skip, out;        /* of x_noisy to r, of x_noisy and r' to x_denoised */
    fm_tensor_ref log;                  /* the embedded number; of any number of levels */
    fm_tensor_ref fourier_w, fourier_b; /* acc [c_noise] */
} fm_af3_levels;

enum { FM_AF3_FACTOR_IN, FM_AF3_FACTOR_SKIP, FM_AF3_FACTOR_OUT, FM_AF3_FACTOR_LOG, FM_AF3_FACTORS };
/* The factors of level t > 0: 1/sqrt(t^2 + d^2), d^2/(d^2 + t^2), d t/sqrt(d^2 + t^2) and
 * ln(t/d)/4, where d is sigma_data. */
void fm_af3_noise_factors(double t, double sigma_data, double factors[FM_AF3_FACTORS]);

/* Records the pair part of algorithm 21. Returns the conditioned pairs, [N, N, c_z], or this rank's
 * rows. */
fm_tensor_ref fm_af3_condition_pairs(fm_tape *tape, const fm_groups *groups,
                                     const fm_af3_trunk_output *trunk,
                                     const fm_af3_conditioning_weights *weights);
/* The same with given encodings of the relative positions, [N, N, c_z]. */
fm_tensor_ref fm_af3_condition_encoded_pairs(fm_tape *tape, fm_tensor_ref z,
                                             fm_tensor_ref positions,
                                             const fm_af3_conditioning_weights *weights);
/* Records the single part of algorithm 21. Returns s [S, N, c_s]. */
fm_tensor_ref fm_af3_condition_single(fm_tape *tape, const fm_af3_trunk_output *trunk,
                                      const fm_af3_levels *levels,
                                      const fm_af3_conditioning_weights *weights);

typedef struct fm_af3_prepared {
    fm_tensor_ref z; /* the conditioned pairs, or this rank's rows; not read with biases */
    fm_af3_atom_context atoms;
    /* The biases of all blocks of a rollout: [N, N, n_head] each, and those of windows for the atom
     * encoder and decoder. Training makes each in its block, where recomputation drops it. */
    bool has_bias;
    fm_tensor_ref bias[FM_AF3_MAX_BLOCK];
    fm_tensor_ref encoder_bias[FM_AF3_MAX_BLOCK], decoder_bias[FM_AF3_MAX_BLOCK];
    /* What the conditioning signal gives all blocks, and adds to the tokens: [N, c_token]. The
     * trunk and the levels' `log` are not read then. */
    bool has_modulation;
    fm_tensor_ref single;
    fm_af3_block_modulation block[FM_AF3_MAX_BLOCK];
    fm_af3_block_modulation encoder[FM_AF3_MAX_BLOCK], decoder[FM_AF3_MAX_BLOCK];
} fm_af3_prepared;

/* Records the part without the biases. */
fm_af3_prepared fm_af3_diffusion_prepare(fm_tape *tape, const fm_groups *groups,
                                         const fm_af3_atoms *atoms,
                                         const fm_af3_trunk_output *trunk,
                                         const fm_af3_diffusion_weights *weights);

/* Records the single part of algorithm 21 for K levels, and stores what it gives the blocks. The
 * tensors of `to` are of the state, with all K steps. atoms [n_atom, c_atom] is the conditioning of
 * atoms. */
void fm_af3_store_modulations(fm_tape *tape, const fm_af3_trunk_output *trunk,
                              const fm_af3_levels *levels, fm_tensor_ref atoms,
                              const fm_af3_diffusion_weights *weights, const fm_af3_prepared *to);

/* How many of the first blocks backward runs again. */
typedef struct fm_af3_again {
    int32_t encoder, diffusion, decoder;
} fm_af3_again;

typedef struct fm_af3_noisy {
    const fm_af3_atoms *atoms;
    const fm_af3_trunk_output *trunk;
    const fm_af3_prepared *prepared;
    fm_tensor_ref x; /* acc [S, n_atom, 3] Å */
    const fm_af3_levels *levels;
    fm_tensor_ref mask; /* act [S, N] with 0 for padding, or FM_TENSOR_NONE */
} fm_af3_noisy;

/* Records algorithm 20 after `prepare`. The act type is that of the current table (island.h).
 * Returns x_denoised, of the type and shape of noisy->x. If the ranks share the S structures, x,
 * levels and mask are this rank's, and so is the result. */
fm_tensor_ref fm_af3_diffusion_denoise(fm_tape *tape, const fm_groups *groups,
                                       const fm_af3_noisy *noisy,
                                       const fm_af3_diffusion_weights *weights, fm_af3_again again);

#endif
