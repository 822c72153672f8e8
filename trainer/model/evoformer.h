/* evoformer.h: the Evoformer (A6) in its three block orders, the extra MSA stack (A18), which
 * differs in its column attention alone (config->global_column), and the template pair stack (A16).
 *
 * evoformer.c states each order once, as a list of sublayers; block.h records it. */
#ifndef FM_TRAINER_EVOFORMER_H
#define FM_TRAINER_EVOFORMER_H

#include "trainer/model/block.h"
#include "trainer/model/parameters.h"

typedef struct fm_representations {
    fm_tensor_ref m, z; /* [N_seq, N_res, c_m], [N_res, N_res, c_z] */
} fm_representations;

/* Records a stack of n_block blocks in the order recorder->config->order, each as one segment;
 * weights [n_block]. recorder->config describes the stack; `first` is the number of its first block
 * among those of all stacks (fm_model_config_block).
 *
 * Under DAP m enters and leaves split along axis 1, z along axis 0. Under BP m is FM_TENSOR_NONE on
 * the pair branch's rank; z is FM_TENSOR_NONE on the MSA branch's, in the order
 * FM_ORDER_OUTER_FIRST. FM_ORDER_ORIGINAL has no two branches: asserted. */
fm_representations fm_evoformer_stack(const fm_recorder *recorder,
                                      const fm_evoformer_weights *weights, int32_t first,
                                      int32_t n_block, fm_representations in);

/* The pair half of a block alone (A6:6-10), without a segment. z split along axis 0. The reference
 * has its values and gradients, which a test compares. */
fm_tensor_ref fm_evoformer_pair_stack(const fm_recorder *recorder,
                                      const fm_evoformer_weights *weights, fm_tensor_ref z);

/* Records the template pair stack (A16) on one template, t [N_res, N_res, c_t], split along axis 0,
 * or on all, t [N_templ, N_res, N_res, c_t], which is whole. Each block is one segment. All
 * templates together take the random draws of the first; fm_tape_group_draws gives the step to
 * those of the next one. */
fm_tensor_ref fm_template_stack(const fm_recorder *recorder,
                                const fm_template_block_weights *weights, int32_t first,
                                int32_t n_block, fm_tensor_ref t);

/* Numbers of random draws that one block of the template pair stack takes. */
uint32_t fm_template_block_draws(void);

#endif
