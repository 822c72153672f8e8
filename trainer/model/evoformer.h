/* evoformer.h: one block of the Evoformer (A6) in its three orders, and of the extra MSA stack
 * (A18), which differs in its column attention alone (config->global_column). */
#ifndef FM_TRAINER_EVOFORMER_H
#define FM_TRAINER_EVOFORMER_H

#include "trainer/model/split.h"

/* Random draws of a block of the template pair stack. */
enum { FM_TEMPLATE_BLOCK_DRAWS = 4 };

typedef struct fm_pair_of_streams {
    fm_tensor_ref m, z; /* [N_seq, N_res, c_m], [N_res, N_res, c_z] */
} fm_pair_of_streams;

/* Under DAP z is split along axis 0 before and after a block; m along the axis that the order's
 * first sublayer of it wants, fm_evoformer_axis, and after the last block along axis 1. Under BP m
 * is FM_TENSOR_NONE on the pair's rank; z, in the order FM_ORDER_OUTER_FIRST, on the MSA's.
 * FM_ORDER_ORIGINAL has no two branches: asserted. */
static inline int fm_evoformer_axis(fm_block_order order) {
    return order == FM_ORDER_OUTER_FIRST ? 1 : 0;
}

/* Records a block as one segment. msa_mask [N_seq, N_res], pair_mask [N_res, N_res]. last: the last
 * of its stack. */
fm_pair_of_streams fm_evoformer_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *weights, fm_pair_of_streams in,
                                      const fm_views *msa_mask, const fm_views *pair_mask,
                                      bool last);

/* Records a block of the template pair stack (A16) as one segment. t [N_res, N_res, c_t]. */
fm_tensor_ref fm_template_block(fm_tape *tape, const fm_model_config *config,
                                const fm_template_block_weights *weights, fm_tensor_ref t,
                                const fm_views *pair_mask);

/* The same on one rank, for all blocks of a stack, of which `first` is the first among all: each
 * update is added together with the next sublayer's LayerNorm (ops/update_norm.h). The blocks above
 * are its plain twin, to rounding, with the same draws. */
fm_pair_of_streams fm_evoformer_whole_stack(fm_tape *tape, const fm_model_config *config,
                                            const fm_evoformer_weights *weights, int32_t first,
                                            int32_t n_block, fm_pair_of_streams in,
                                            fm_tensor_ref msa_mask, fm_tensor_ref pair_mask);
fm_tensor_ref fm_template_whole_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_template_block_weights *weights, fm_tensor_ref t,
                                      fm_tensor_ref pair_mask);

/* The pair half alone (A6:6-10), without a segment of its own. */
fm_tensor_ref fm_evoformer_pair_stack(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *weights, fm_tensor_ref z,
                                      const fm_views *pair_mask);

#endif
