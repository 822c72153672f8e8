/* model.h: one recycling cycle of the model (A2) recorded on a tape.
 *
 * A cycle reads its inputs from the state, embeds them with what the last cycle left (A3-A5, A32),
 * lets the extra MSA speak to the pair array (A18), runs the Evoformer, and either hands m's first
 * row and z to the next cycle (a cycle without gradient) or gives them to heads and losses (the
 * last one). All cycles meet in the same state, so a step needs two recordings, whatever its number
 * of cycles. */
#ifndef FM_TRAINER_MODEL_H
#define FM_TRAINER_MODEL_H

#include "trainer/model/evoformer.h"
#include "trainer/model/structure_module.h"

/* Positions in the state of what a cycle reads; N_seq and N_res are the recorded sizes. */
typedef struct fm_model_inputs {
    int32_t aatype;        /* u8 [N_res] 0..20 */
    int32_t residue_index; /* i32 [N_res] */
    int32_t msa;           /* u8 [N_seq, N_res] 0..22 */
    int32_t deletion;      /* u16 [N_seq, N_res] */
    int32_t profile;       /* u32 [N_seq, N_res, 23] */
    int32_t deletion_sum;  /* u32 [N_seq, N_res] */
    int32_t cluster_size;  /* u32 [N_seq], >= 1 */
    int32_t msa_mask;      /* act [N_seq + N_templ, N_res]; of a template: its psi angle is known */
    int32_t pair_mask;     /* act [N_res, N_res] */
    int32_t extra_msa;     /* u8 [N_extra, N_res]; these three: -1 without an extra MSA stack */
    int32_t extra_deletion; /* u16 [N_extra, N_res] */
    int32_t extra_msa_mask; /* act [N_extra, N_res] */
    /* Templates; -1 without template embedders. A template that is not there: mask 0. */
    int32_t template_aatype;           /* u8 [N_templ, N_res] 0..21 */
    int32_t template_pseudo_beta;      /* f32 [N_templ, N_res, 3] Å */
    int32_t template_pseudo_beta_mask; /* act [N_templ, N_res] */
    int32_t template_backbone_mask;    /* act [N_templ, N_res]: N, CA and C are there */
    int32_t template_rows;             /* act [N_templ, N_res, 57]: ops/template.h */
    int32_t template_mask;             /* act [N_templ] */
    int32_t template_any;              /* act [1]: 1 when a template is there */
    /* -1: made from the ids above. Else what stands in for them, where a caller has no ids. */
    int32_t msa_feat;             /* act [N_seq, N_res, 49] */
    int32_t extra_feat;           /* act [N_extra, N_res, 25] */
    int32_t previous_pseudo_beta; /* f32 [N_res, 3] Å: what the last cycle predicted, else 0 */
    int32_t seq_mask;             /* act [N_res]; -1 without a structure module */
    fm_structure_tables tables;   /* of the structure module */
    /* These two are split along axis 0 under DAP; zeros before the first cycle. */
    int32_t previous_m; /* act [N_res, c_m] */
    int32_t previous_z; /* act [N_res, N_res, c_z] */
} fm_model_inputs;

typedef struct fm_model_outputs {
    /* [N_seq + N_templ, N_res, c_m], [N_res, N_res, c_z]; FM_TENSOR_NONE where nobody wants them: m
     * of a cycle with `store` on ranks that share a sample. Cast for islands (autograd/tape.h)
     * where something reads them there: all three without `store`, single and z for a structure
     * module. */
    fm_tensor_ref m, z;
    fm_tensor_ref single;           /* [N_res, c_s] */
    fm_structure_outputs structure; /* where there is a structure module */
} fm_model_outputs;

/* Declares the inputs. */
void fm_model_declare_inputs(fm_state *state, const fm_model_config *config,
                             const fm_kernels *kernels, fm_model_inputs *ret_inputs);

/* The template pair embedder, stack and pointwise attention (A2:9-13, A16, A17): the new z. */
fm_tensor_ref fm_model_template_pairs(fm_tape *tape, const fm_model_config *config,
                                      const fm_model_weights *weights,
                                      const fm_model_inputs *inputs, fm_tensor_ref z,
                                      const fm_views *pair_mask);

/* The extra MSA's embedder and stack (A2:15-16, A18). features [N_extra, N_res, 25], mask
 * [N_extra, N_res], whole. Returns the new z; the stack's own MSA stream ends
 * there. */
fm_tensor_ref fm_model_extra_msa(fm_tape *tape, const fm_model_config *config,
                                 const fm_model_weights *weights, fm_tensor_ref features,
                                 fm_tensor_ref mask, fm_tensor_ref z, const fm_views *pair_mask);

/* On ranks that share a sample (config->groups) all of it is split but the inputs, which each rank
 * has whole, and the structure module and the heads, which each computes on gathered arrays; what a
 * cycle hands on of m and z is this rank's part.
 *
 * Records a cycle up to and including the single representation (A2:5-17) and, where there is one,
 * the structure module (A2:18). Where `store`, m's first row, z and the predicted pseudo-beta
 * positions are left in the state for the next cycle. The structure module's tables must have been
 * uploaded before the cycle runs (fm_structure_upload_tables). */
fm_model_outputs fm_model_record_cycle(fm_tape *tape, const fm_model_config *config,
                                       const fm_model_weights *weights,
                                       const fm_model_inputs *inputs, bool store);

#endif
