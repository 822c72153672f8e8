/* modulation.h: what the conditioning signal gives the blocks of the diffusion module: gates and
 * shifts. They depend on the trunk and on the noise level, but not on the structures. So a rollout
 * makes those of all blocks and steps before its first step, in one product of each layer.
 *
 * A sublayer has the arguments of its AdaLN's gate (26), its shift, and the argument of the gate at
 * its end. The attention of atoms has a second AdaLN, of its keys. */
#ifndef FM_TRAINER_AF3_MODULATION_H
#define FM_TRAINER_AF3_MODULATION_H

#include "trainer/model/af3/config.h"
#include "trainer/ops/adaln.h"

/* All are [n, c], or [K, n, c] of K steps. */
typedef struct fm_af3_modulation {
    fm_adaln_signal norm;
    fm_adaln_signal norm_kv; /* of atoms only */
    fm_tensor_ref last;
} fm_af3_modulation;

typedef struct fm_af3_block_modulation {
    fm_af3_modulation attention, transition;
} fm_af3_block_modulation;

/* How many tensors a block has. */
enum { FM_AF3_TOKEN_MODULATIONS = 6, FM_AF3_ATOM_MODULATIONS = 8 };

/* Where the room of the state (tensor/state.h) holds those of a rollout of K steps, in the
 * diffusion module's type. The last part of `tokens` is what the signal adds to the tokens before
 * the first block (20). */
typedef struct fm_af3_modulations {
    int32_t tokens; /* [6 n_diffusion_block + 1, K, N, c_token] */
    int32_t atoms;  /* [8 * 2 n_atom_block, n_atom, c_atom]: encoder, then decoder; no levels */
} fm_af3_modulations;

fm_af3_modulations fm_af3_declare_modulations(fm_state *state, const fm_af3_config *config,
                                              fm_element element, int32_t n_step);

/* Return the tensors of a block, of the encoder's and decoder's atoms or of tokens, and what is
 * added to the tokens. With `row` those of tokens are those of one step, which tape->row names. */
fm_af3_block_modulation fm_af3_atom_modulation(fm_tape *tape, const fm_af3_modulations *of,
                                               int32_t block);
fm_af3_block_modulation fm_af3_token_modulation(fm_tape *tape, const fm_af3_modulations *of,
                                                int32_t block, bool row);
fm_tensor_ref fm_af3_added_single(fm_tape *tape, const fm_af3_config *config,
                                  const fm_af3_modulations *of, bool row);

#endif
