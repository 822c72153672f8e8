/* split.h: how the model's arrays lie on the ranks of a sample: the one place that knows.
 *
 * DAP (config->groups->dap, D ranks) splits
 *
 *     m  [N_seq, N_res, c_m]   along sequences (axis 0) for row attention, along residues (axis 1)
 *                              for column attention, transition, outer product mean, embedders
 *     z  [N_res, N_res, c_z]   along rows (axis 0) for outgoing edges and starting nodes, along
 *                              columns (axis 1) for incoming edges and ending nodes
 *
 * and what a sublayer needs of other ranks is gathered. BP (config->groups->bp, 2 ranks) runs the
 * MSA half of a block on rank 0 and the pair half on rank 1. On one rank every function here is the
 * plain op or nothing at all. docs/parallelism.md has the whole table. */
#ifndef FM_TRAINER_MODEL_SPLIT_H
#define FM_TRAINER_MODEL_SPLIT_H

#include "trainer/dist/bp.h"
#include "trainer/dist/dap.h"
#include "trainer/dist/gather.h"
#include "trainer/model/model_config.h"

/* A mask as it is wanted by arrays that are whole, split along axis 0, and split along axis 1. */
typedef struct fm_views {
    fm_tensor_ref whole, rows, columns;
} fm_views;

/* mask [n0, n1], both multiples of D. */
fm_views fm_split_views(fm_tape *tape, const fm_model_config *config, fm_tensor_ref mask);

/* Sizes as they are recorded: N_res, N_extra and all rows of m are multiples of D; what is added
 * has masks of 0. */
fm_model_config fm_split_pad(const fm_model_config *config);

/* Whether arrays are split at all (DAP). */
bool fm_split_is_split(const fm_model_config *config);

/* Whether one rank has all of everything (neither DAP nor BP). */
bool fm_split_is_whole(const fm_model_config *config);

/* Which branches this rank runs. */
bool fm_split_has_msa(const fm_model_config *config);
bool fm_split_has_pair(const fm_model_config *config);

/* ---- changes --------------------------------------------------------------------------------- */

/* An exchange under way, or on one rank the tensor itself. */
typedef struct fm_change {
    fm_tensor_ref x; /* FM_TENSOR_NONE while under way */
    fm_switch exchange;
} fm_change;

/* Splits x along `axis`, 0 or 1, in place of the other. */
fm_change fm_split_change_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                                fm_tensor_ref x, int axis);
fm_tensor_ref fm_split_change_finish(fm_tape *tape, const fm_change *change);
fm_tensor_ref fm_split_change(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x, int axis);

/* The parts of all ranks on every rank; this rank's part of what all have (no gradient). */
fm_tensor_ref fm_split_gather(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x);
fm_tensor_ref fm_split_slice(fm_tape *tape, const fm_model_config *config, const char *name,
                             fm_tensor_ref x, int axis);

/* ---- branches -------------------------------------------------------------------------------- */

/* x of this rank plus that of the other branch's, on both; on one rank x. */
fm_tensor_ref fm_split_join(fm_tape *tape, const fm_model_config *config, const char *name,
                            fm_tensor_ref x);

/* A tensor of the branch that has it (root 0: the MSA's, 1: the pair's) on both; `like` describes
 * it. x is FM_TENSOR_NONE on the other rank. On one rank x. */
fm_tensor_ref fm_split_share(fm_tape *tape, const fm_model_config *config, const char *name,
                             int32_t root, fm_tensor_ref x, const fm_tensor *like);

#endif
