/* recorder.h: how a sublayer is recorded on a tape.
 *
 * The list of a block defines the computation; the recorder decides which nodes perform it:
 *
 *     plain   one node per sublayer, from LayerNorm to residual
 *     fused   an attention or a transition ends with the LayerNorm of the sublayer that reads its
 *             result next, which saves passes over memory. An attention has a second node for its
 *             end (ops/linear_update.h)
 *     split   several nodes, for arrays that are split over ranks (DAP, split.h), with an exchange
 *             between ranks that runs between `begin` and `finish`
 *
 * All forms draw the same dropout masks and give the same numbers, to rounding. `begin` reads,
 * `finish` updates; nodes that are recorded between the two run while the exchange is under way.
 *
 * Arrays that are whole are always fused. On split arrays a sublayer is fused with its reader where
 * both need the same split. */
#ifndef FM_TRAINER_MODEL_RECORDER_H
#define FM_TRAINER_MODEL_RECORDER_H

#include "trainer/model/split.h"
#include "trainer/model/sublayer.h"
#include "trainer/ops/global_attention.h"
#include "trainer/ops/outer_product_mean.h"
#include "trainer/ops/linear_update.h"
#include "trainer/ops/transition.h"

typedef struct fm_recorder {
    fm_tape *tape;
    const fm_model_config *config; /* of the block that is recorded */
    /* [N_seq, N_res] and [N_res, N_res]; zeros where this rank does not run the branch. */
    fm_split_mask mask[FM_N_REPRESENTATION];
    bool fuses; /* false: for comparisons */
} fm_recorder;

/* Makes a recorder for the ranks of config->groups. A mask may be NULL where this rank does not
 * run that branch or the blocks do not have it. */
fm_recorder fm_recorder_of(fm_tape *tape, const fm_model_config *config,
                           const fm_split_mask *msa_mask, const fm_split_mask *pair_mask);

/* A sublayer between begin and finish. */
typedef struct fm_begun {
    fm_normed from; /* the representation of fm_sublayer_reads */
    fm_gather gather;
    fm_tensor_ref qkvg; /* of an attention that made them with its bias; else FM_TENSOR_NONE */
    fm_outer_operands operands;
} fm_begun;

/* Returns whether the sublayer computes a bias from the pairs, as attentions and pair-weighted
 * averaging do. It can do so before the pairs change their split axis. */
bool fm_recorder_has_bias(const fm_sublayer *sublayer);

/* Records only the bias, from pairs that are split along either axis. */
fm_begun fm_recorder_begin_bias(const fm_recorder *recorder, const fm_sublayer *sublayer,
                                const void *weights, fm_normed from);

/* Records the sublayer's inputs. `weights`: those of the block; from: the representation of
 * fm_sublayer_reads. */
fm_begun fm_recorder_begin(const fm_recorder *recorder, const fm_sublayer *sublayer,
                           const void *weights, fm_normed from);

/* Records the rest of the sublayer. `x` is the representation that it updates, or FM_TENSOR_NONE
 * for the bare update of an outer product mean. `next` has the LayerNorm weights of the sublayer
 * that reads the result next, and `later` of the one after that; FM_PARAM_NONE: there is none.
 * Returns the new x, normalised by `next` and by `later` where this recorder fuses that. */
fm_normed fm_recorder_finish(const fm_recorder *recorder, const fm_sublayer *sublayer,
                             const void *weights, const fm_begun *begun, fm_normed x,
                             fm_param_ref next, fm_param_ref later);

/* Returns the weights of the LayerNorm through which the sublayer reads a representation, if the
 * recorder can apply it earlier. FM_PARAM_NONE: the sublayer applies it itself, or has none. */
fm_param_ref fm_recorder_norm(const fm_sublayer *sublayer, const void *weights,
                              fm_representation of);

#endif
