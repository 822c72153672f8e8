/* model.h: AlphaFold 3's network: all parameters, the tensors of the state that it reads, and the
 * passes of a training step.
 *
 *     cycle      input embedder and trunk; s and z go to the state       all cycles but the last
 *     last       the same with gradients, the diffusion module on S noisy structures, and the
 *                distogram; s_inputs, s and z also go to the state
 *     prepare    what the diffusion module makes once of a trunk result  before a rollout
 *     step       one denoising step of a rollout (rollout.h)
 *     confidence the confidence head on the rollout's structure, with gradients of its parameters
 *
 * A prediction (trainer/infer/cofold_passes.h) has one recording of a cycle for all cycles, and a
 * pass for the distogram. Where no training structures are declared (n_sample 0), the z that is
 * recycled is the trunk's result, too.
 *
 * The passes are separate tapes over one state. */
#ifndef FM_TRAINER_AF3_MODEL_H
#define FM_TRAINER_AF3_MODEL_H

#include "trainer/model/af3/confidence.h"
#include "trainer/model/af3/diffusion.h"
#include "trainer/model/af3/trunk.h"

typedef struct fm_af3_weights {
    fm_af3_atom_encoder_weights input;
    fm_af3_trunk_weights trunk;
    fm_af3_diffusion_weights diffusion;
    fm_af3_confidence_weights confidence;
    fm_param_ref confidence_at;        /* the confidence head's first block; all are neighbours */
    fm_param_ref fourier_w, fourier_b; /* constants, [c_noise] each */
} fm_af3_weights;

/* Adds the parameter table of the whole network. The Fourier embedding is not trained: its two rows
 * are constants. The bounds of the distance classes have no rows. */
void fm_af3_add_parameters(fm_params *params, fm_arena *arena, const fm_af3_config *config,
                           fm_af3_weights *ret_weights);

/* Draws the initial values of the table by its laws (fm_params_draw), and the Fourier embedding
 * from the standard normal distribution. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_af3_draw_parameters(fm_params *params, uint64_t seed, fm_error *reterr);

/* FM_ERR_UNSUPPORTED when the backend does not have these products of the diffusion module. */
FM_MUST_USE fm_status fm_af3_check_products(const fm_af3_config *config, const fm_kernels *kernels,
                                            fm_error *reterr);

/* Where the state holds a set of noisy structures and the factors of their noise levels
 * (diffusion.h). S is fm_af3_split_samples of the training structures; the factors of added ones
 * may be 0. */
typedef struct fm_af3_structures {
    int32_t x;                  /* acc [S, n_atom, 3] Å */
    int32_t in, skip, out, log; /* acc [S] */
    int32_t mask;               /* [S, N] of the diffusion module's type: 0 for padding */
} fm_af3_structures;

/* Positions in the state. What islands read is of the acc type, which is the act type of the wide
 * table (island.h). */
typedef struct fm_af3_inputs {
    int32_t relative;       /* u8 [4, N, N] */
    int32_t bonds;          /* act [N, N, 1] */
    int32_t templates;      /* act [T, N, N, 108]; -1 without templates */
    int32_t msa;            /* act [M, N, 34] of one cycle */
    int32_t token_features; /* act [N, 65] */
    int32_t mask_single, mask_pair, mask_msa;
    int32_t atom_token, first_atom;                        /* i32 [n_atom]; [N + 1] */
    int32_t atom_position;                                 /* acc [n_atom, 3], as position below */
    int32_t atom_charge, atom_has_reference, atom_classes; /* acc, acc, u8 */
    int32_t position, space;                               /* f32 [n_atom, 3]; i32 [n_atom] */
    int32_t atom_mask;                                     /* acc [n_atom] */
    int32_t fourier_w, fourier_b;                          /* acc */
    int32_t previous_s, previous_z; /* of the last cycle; zeros before the first */
    fm_af3_structures training;
    /* The trunk's results: [N, c], [N, N, c_z]; without training structures z is previous_z. */
    int32_t s_inputs, s, z;
    /* Of the rollout, in the diffusion module's type. */
    int32_t prepared_c;
    int32_t prepared_bias[FM_AF3_MAX_BLOCK]; /* [N, N, n_head]: of each diffusion block */
    /* [n_window, 32, 128, n_head_atom]: of each block of the atom encoder and decoder */
    int32_t prepared_encoder_bias[FM_AF3_MAX_BLOCK], prepared_decoder_bias[FM_AF3_MAX_BLOCK];
    int32_t representative;        /* i32 [N]: an atom of each token (confidence.h) */
    int32_t slot_row, atom_of_row; /* i32 (confidence.h) */
} fm_af3_inputs;

/* Declares all tensors of the state. They are whole on every rank; the sizes of `config` are those
 * of fm_af3_split_pad. */
void fm_af3_declare_inputs(fm_state *state, const fm_af3_config *config, const fm_kernels *kernels,
                           fm_af3_inputs *ret_inputs);

/* Queues the copy of the constants into the tensors of the state that the passes read. */
void fm_af3_queue_constants(const fm_params *params, const fm_af3_weights *weights,
                            const fm_state *state, const fm_af3_inputs *inputs, fm_stream *stream);

/* Returns the atoms of the sample for the modules of atoms.h. */
fm_af3_atoms fm_af3_atoms_of(fm_tape *tape, const fm_af3_config *config,
                             const fm_af3_inputs *inputs);

void fm_af3_record_cycle(fm_tape *tape, const fm_af3_config *config, const fm_af3_weights *weights,
                         const fm_af3_inputs *inputs);

/* Records a cycle whose results s_inputs, s and z go to the state, so that any of them may be the
 * last. It has no training structures. */
void fm_af3_record_any_cycle(fm_tape *tape, const fm_af3_config *config,
                             const fm_af3_weights *weights, const fm_af3_inputs *inputs);

/* Records the distogram of z in the state. Returns logits act [N, N, 64], whole on every rank. */
fm_tensor_ref fm_af3_record_distogram(fm_tape *tape, const fm_af3_config *config,
                                      const fm_af3_weights *weights, const fm_af3_inputs *inputs);

/* All are whole on every rank. */
typedef struct fm_af3_outputs {
    fm_tensor_ref s_inputs, s, z; /* [N, c_s_inputs], [N, c_s], [N, N, c_z] */
    fm_tensor_ref x_denoised;     /* acc [n_sample, n_atom, 3] Å */
    fm_tensor_ref distogram;      /* logits act [N, N, 64] */
    /* The nodes before this one are the trunk, and leave its results. It is a room (tape.h), which
     * a rollout may use. */
    int32_t trunk_end;
} fm_af3_outputs;

fm_af3_outputs fm_af3_record_last(fm_tape *tape, const fm_af3_config *config, int64_t room_bytes,
                                  const fm_af3_weights *weights, const fm_af3_inputs *inputs);

/* Returns the trunk's results and the results of `prepare`, as tensors of the state; z is
 * FM_TENSOR_NONE. */
fm_af3_trunk_output fm_af3_stored_trunk(fm_tape *tape, const fm_af3_inputs *inputs);
fm_af3_prepared fm_af3_stored_prepared(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_inputs *inputs);

/* Begins the diffusion module on the trunk's results in the state, without z, and returns them in
 * the type of its activations. fm_tape_leave_island ends it. */
fm_af3_trunk_output fm_af3_begin_stored_diffusion(fm_tape *tape, const fm_af3_config *config,
                                                  const fm_af3_inputs *inputs);

/* Records the pass `prepare`, which has no gradient. */
void fm_af3_record_prepare(fm_tape *tape, const fm_af3_config *config,
                           const fm_af3_weights *weights, const fm_af3_inputs *inputs);

/* Records the pass `confidence`, which reads the trunk's results from the state, and the structure
 * that it judges from the tensor `structure` of the state, acc [.., n_atom, 3]. The logits are of
 * the acc type. */
fm_af3_confidence_logits fm_af3_record_confidence(fm_tape *tape, const fm_af3_config *config,
                                                  const fm_af3_weights *weights,
                                                  const fm_af3_inputs *inputs, int32_t structure);

#endif
