/* evoformer.h: one block of the Evoformer (A6) in its three orders, and of the extra MSA stack
 * (A18), which differs in its column attention alone (config->global_column). */
#ifndef FM_TRAINER_EVOFORMER_H
#define FM_TRAINER_EVOFORMER_H

#include "trainer/model/parameters.h"

typedef struct fm_pair_of_streams {
    fm_tensor_ref m, z; /* [N_seq, N_res, c_m], [N_res, N_res, c_z] */
} fm_pair_of_streams;

/* Records a block as one segment. msa_mask [N_seq, N_res], pair_mask [N_res, N_res]. */
fm_pair_of_streams fm_evoformer_block(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *weights, fm_pair_of_streams in,
                                      fm_tensor_ref msa_mask, fm_tensor_ref pair_mask);

/* Records a block of the template pair stack (A16) as one segment. t [N_res, N_res, c_t]. */
fm_tensor_ref fm_template_block(fm_tape *tape, const fm_model_config *config,
                                const fm_template_block_weights *weights, fm_tensor_ref t,
                                fm_tensor_ref pair_mask);

/* The pair half alone (A6:6-10), without a segment of its own. */
fm_tensor_ref fm_evoformer_pair_stack(fm_tape *tape, const fm_model_config *config,
                                      const fm_evoformer_weights *weights, fm_tensor_ref z,
                                      fm_tensor_ref pair_mask);

#endif
