/* split.h: how the model's arrays are split over the ranks of a sample. No other file decides it.
 *
 * DAP (config->groups->dap, D ranks) splits
 *
 *     m  [N_seq, N_res, c_m]   along sequences (axis 0) for row attention, along residues (axis 1)
 *                              for column attention, transition, outer product mean, embedders
 *     z  [N_res, N_res, c_z]   along rows (axis 0) for both triangle multiplications and starting
 *                              nodes, along columns (axis 1) for ending nodes and transition
 *
 * and gathers a sublayer's inputs from other ranks. BP (config->groups->bp, 2 ranks) runs the MSA
 * half of a block on rank 0 and the pair half on rank 1. On one rank the functions here record
 * nothing. docs/reference/parallelism.md has the whole table. */
#ifndef FM_TRAINER_MODEL_SPLIT_H
#define FM_TRAINER_MODEL_SPLIT_H

#include "trainer/dist/bp.h"
#include "trainer/dist/dap.h"
#include "trainer/dist/gather.h"
#include "trainer/model/model_config.h"

/* A mask for arrays that are whole, split along axis 0, and split along axis 1. */
typedef struct fm_split_mask {
    fm_tensor_ref whole, rows, columns;
} fm_split_mask;

/* mask [n0, n1] is whole; both extents are multiples of D. */
fm_split_mask fm_split_mask_of(fm_tape *tape, const fm_model_config *config, fm_tensor_ref mask);

/* Returns the recorded sizes: N_res, N_extra and the number of rows of m are rounded up to
 * multiples of D times config->axis_multiple, so that a part has fast kernels, too. The masks
 * of the added elements are 0. */
fm_model_config fm_split_pad(const fm_model_config *config);

/* Whether arrays are split (DAP). */
bool fm_split_is_split(const fm_model_config *config);

/* Whether each rank has whole templates in the template pair stack: all of them, or under DAP its
 * share, where D divides their number. Else the array of each template is split. */
bool fm_split_has_whole_templates(const fm_model_config *config);

/* Whether this rank runs the branch. */
bool fm_split_has_msa(const fm_model_config *config);
bool fm_split_has_pair(const fm_model_config *config);

/* -- changes of the split axis */

/* A change of the split axis between begin and finish; on one rank the tensor itself. */
typedef struct fm_axis_change {
    fm_tensor_ref x; /* FM_TENSOR_NONE while under way */
    fm_switch exchange;
} fm_axis_change;

/* Splits x along `axis`, 0 or 1, instead of along the other one. patient: much other work is
 * recorded between begin and finish. */
fm_axis_change fm_split_change_begin(fm_tape *tape, const fm_model_config *config, const char *name,
                                     fm_tensor_ref x, int axis, bool patient);
fm_tensor_ref fm_split_change_finish(fm_tape *tape, const fm_axis_change *change);
fm_tensor_ref fm_split_change(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x, int axis);

/* gather returns the parts of all ranks, on every rank; slice returns this rank's part of a tensor
 * that all ranks have, without a gradient. */
fm_tensor_ref fm_split_gather(fm_tape *tape, const fm_model_config *config, const char *name,
                              fm_tensor_ref x);
fm_tensor_ref fm_split_slice(fm_tape *tape, const fm_model_config *config, const char *name,
                             fm_tensor_ref x, int axis);

/* -- branches */

/* Returns, on both ranks, the sum of x of both branches; on one rank x. */
fm_tensor_ref fm_split_join(fm_tape *tape, const fm_model_config *config, const char *name,
                            fm_tensor_ref x);

/* Returns, on both ranks, the tensor of the branch that has it (root 0: the MSA branch, 1: the pair
 * branch). `like` describes it; x is FM_TENSOR_NONE on the other rank. On one rank it returns x. */
fm_tensor_ref fm_split_share(fm_tape *tape, const fm_model_config *config, const char *name,
                             int32_t root, fm_tensor_ref x, const fm_tensor *like);

#endif
