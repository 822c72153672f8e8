/* model.h: records one recycling cycle of the model (A2) on a tape.
 *
 * A cycle reads its inputs from the state and embeds them together with the results of the last
 * cycle (A3-A5, A32). The template and extra MSA stacks (A16, A18) update the pair array, then
 * the Evoformer runs (A6). A cycle without gradient stores m's first row and z for the next
 * cycle. The last cycle passes m, z and the single representation on to heads and losses. All
 * cycles use the same tensors of the state, so a step needs two recordings for any number of
 * cycles. */
#ifndef FM_TRAINER_MODEL_H
#define FM_TRAINER_MODEL_H

#include "trainer/model/evoformer.h"
#include "trainer/model/structure_module.h"

/* The inputs of a cycle, by their positions in the state. N_seq and N_res are the recorded sizes.
 */
typedef struct fm_model_inputs {
    int32_t aatype;        /* u8 [N_res] 0..20 */
    int32_t residue_index; /* i32 [N_res] */
    int32_t msa;           /* u8 [N_seq, N_res] 0..22 */
    int32_t deletion;      /* u16 [N_seq, N_res] */
    int32_t profile;       /* u32 [N_seq, N_res, 23] */
    int32_t deletion_sum;  /* u32 [N_seq, N_res] */
    int32_t cluster_size;  /* u32 [N_seq], >= 1 */
    int32_t msa_mask;  /* act [N_seq + N_templ, N_res]; in template rows: 1 where psi is known */
    int32_t pair_mask; /* act [N_res, N_res] */
    int32_t extra_msa; /* u8 [N_extra, N_res]; these three: -1 without an extra MSA stack */
    int32_t extra_deletion; /* u16 [N_extra, N_res] */
    int32_t extra_msa_mask; /* act [N_extra, N_res] */
    /* Templates; -1 without template embedders. An absent template has a mask of 0. */
    int32_t template_aatype;           /* u8 [N_templ, N_res] 0..21 */
    int32_t template_pseudo_beta;      /* f32 [N_templ, N_res, 3] Å */
    int32_t template_pseudo_beta_mask; /* act [N_templ, N_res] */
    int32_t template_backbone_mask;    /* act [N_templ, N_res]: 1 where N, CA and C are known */
    int32_t template_rows;             /* act [N_templ, N_res, 57]: ops/template.h */
    int32_t template_mask;             /* act [N_templ] */
    int32_t template_any;              /* act [1]: 1 when there is at least one template */
    /* -1: the features are made from the ids above. A caller without ids, such as a parity test,
     * gives the features here. */
    int32_t msa_feat;   /* act [N_seq, N_res, 49] */
    int32_t extra_feat; /* act [N_extra, N_res, 25] */
    /* f32 [N_res, 3] Å, predicted by the last cycle; 0 before the first one. */
    int32_t previous_pseudo_beta;
    int32_t seq_mask;           /* act [N_res]; -1 without a structure module */
    fm_structure_tables tables; /* of the structure module */
    /* Under DAP these two are split along axis 0. They are zeros before the first cycle. */
    int32_t previous_m; /* act [N_res, c_m] */
    int32_t previous_z; /* act [N_res, N_res, c_z] */
    /* With several draws of MSA rows in a cycle: how many, and the sums of m's first row and of z
     * over the draws so far, like the two above. One draw: n_draw is 1 and the sums are -1. */
    int32_t n_draw, sum_m, sum_z;
} fm_model_inputs;

/* How a cycle ends. */
typedef enum fm_cycle_end {
    FM_CYCLE_STORES = 1,   /* leaves the inputs of the next cycle in the state */
    FM_CYCLE_OUTPUTS = 2,  /* has outputs for heads and losses */
    FM_CYCLE_PREDICTS = 3, /* both, without m for the losses: any cycle may be the last one */
} fm_cycle_end;

typedef struct fm_model_outputs {
    /* m [N_seq + N_templ, N_res, c_m] and z [N_res, N_res, c_z], cast for islands (autograd/tape.h)
     * where something reads them there: all three with FM_CYCLE_OUTPUTS, single and z with a
     * structure module. FM_TENSOR_NONE where nothing reads them: m of a cycle that stores on ranks
     * that share a sample. With FM_CYCLE_PREDICTS, z on such ranks is this rank's part, and on a
     * tape that works slab by slab it is not cast. */
    fm_tensor_ref m, z;
    fm_tensor_ref single;           /* [N_res, c_s] */
    fm_structure_outputs structure; /* set where there is a structure module */
} fm_model_outputs;

/* Declares the inputs in the state and returns their positions. There is one draw in a cycle. */
void fm_model_declare_inputs(fm_state *state, const fm_model_config *config,
                             const fm_kernels *kernels, fm_model_inputs *ret_inputs);

/* Declares the sums of a cycle with n_draw > 1 draws of MSA rows. */
void fm_model_declare_draws(fm_state *state, int32_t n_draw, fm_model_inputs *inputs);

/* Records the template pair embedder, stack and pointwise attention (A2:9-13, A16, A17). Returns
 * the new z. `together`: where each rank has whole templates, all of its templates are one node
 * instead of one each. Dropout masks are the same, and results agree to rounding. */
fm_tensor_ref fm_model_template_pairs(fm_tape *tape, const fm_model_config *config,
                                      const fm_model_weights *weights,
                                      const fm_model_inputs *inputs, fm_tensor_ref z,
                                      const fm_split_mask *pair_mask, bool together);

/* Records the extra MSA's embedder and stack (A2:15-16, A18). features [N_extra, N_res, 25] and
 * mask [N_extra, N_res] are whole. Returns the new z; the stack's MSA representation is not used
 * further. */
fm_tensor_ref fm_model_extra_msa(fm_tape *tape, const fm_model_config *config,
                                 const fm_model_weights *weights, fm_tensor_ref features,
                                 fm_tensor_ref mask, fm_tensor_ref z,
                                 const fm_split_mask *pair_mask);

/* Records a cycle up to and including the single representation (A2:5-17) and, where there is one,
 * the structure module (A2:18). With FM_CYCLE_STORES the nodes at the end leave m's first row, z
 * and the predicted pseudo-beta positions in the state for the next cycle. The structure module's
 * tables must have been uploaded before the cycle runs (fm_structure_upload_tables).
 *
 * On ranks that share a sample (config->groups) each rank has the whole inputs and computes its
 * part of all arrays. The structure module and the heads run on every rank, on gathered arrays. A
 * cycle stores this rank's parts of m and z. */
fm_model_outputs fm_model_record_cycle(fm_tape *tape, const fm_model_config *config,
                                       const fm_model_weights *weights,
                                       const fm_model_inputs *inputs, fm_cycle_end end);

/* Records a draw of a cycle with several draws, but not the last one: all that precedes the single
 * representation, and the sums of its m and z. fm_model_record_cycle then records the last draw.
 * From the single representation on, it uses the means over all draws, as AlphaFold's ensembling
 * does. There is no gradient. */
void fm_model_record_draw(fm_tape *tape, const fm_model_config *config,
                          const fm_model_weights *weights, const fm_model_inputs *inputs);

#endif
