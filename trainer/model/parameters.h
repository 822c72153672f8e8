/* parameters.h: the table of the model's parameters: name, shape, initialisation, and the names of
 * the same array in OpenFold's checkpoints and in DeepMind's params_model_*.npz.
 *
 * A scope carries the three prefixes of a module. Each function below adds the blocks of one kind
 * of module and returns the weights struct that its op takes. Only these functions decide which
 * matrices are stored side by side in a block. Names are allocated in the arena of the scope.
 *
 * Our names have the form "evoformer.0.msa_row_attention.q.weight". DeepMind's are below
 * "alphafold/alphafold_iteration/"; its per-block arrays are slices of a stacked array
 * (fm_param.deepmind_layer).
 *
 * Initialisation (supplement 1.11.4): LeCun for linear layers, He before a ReLU, Glorot for q k v,
 * 0 with bias 1 for gates, and 0 for the last linear layer of every residual update and of every
 * head. */
#ifndef FM_TRAINER_PARAMETERS_H
#define FM_TRAINER_PARAMETERS_H

#include "trainer/model/model_config.h"
#include "trainer/ops/attention.h"
#include "trainer/ops/embed.h"
#include "trainer/ops/ipa.h"
#include "trainer/ops/global_attention.h"
#include "trainer/ops/linear.h"
#include "trainer/ops/outer_product_mean.h"
#include "trainer/ops/plddt.h"
#include "trainer/ops/structure_layers.h"
#include "trainer/ops/template.h"
#include "trainer/ops/transition.h"
#include "trainer/ops/triangle_multiplication.h"

typedef struct fm_scope {
    fm_params *params;
    fm_arena *arena;
    const char *name, *openfold, *deepmind; /* prefixes, "" or ending in '.', '.' and '/' */
    int32_t deepmind_layer;                 /* -1 = arrays are not stacked */
    int64_t deepmind_heads;                 /* heads of the arrays that have an axis of heads */
} fm_scope;

/* Returns the scope of a module inside another, with the prefixes appended. Running out of arena is
 * asserted. */
fm_scope fm_scope_enter(const fm_scope *scope, const char *name, const char *openfold,
                        const char *deepmind);

/* c_z: channels of the array that the bias is made from; ignored in columns. */
fm_attention_weights fm_scope_attention(const fm_scope *scope, fm_axial axial, int64_t c,
                                        int64_t c_z, int64_t n_head, int64_t c_head);
fm_global_attention_weights fm_scope_global_attention(const fm_scope *scope, int64_t c,
                                                      int64_t n_head, int64_t c_head);
fm_transition_weights fm_scope_transition(const fm_scope *scope, int64_t c, int64_t hidden);
fm_outer_weights fm_scope_outer(const fm_scope *scope, int64_t c_m, int64_t c, int64_t c_z);
fm_triangle_weights fm_scope_triangle(const fm_scope *scope, bool incoming, int64_t c_z, int64_t c);
/* The scope's prefixes are the layer's own names, without the last '.'. zero: the weight starts as
 * 0. */
fm_linear_weights fm_scope_linear(const fm_scope *scope, int64_t c_in, int64_t c_out, bool zero);

/* The weights of one Evoformer block, or of one block of the extra MSA stack, whose column
 * attention is global. */
typedef struct fm_evoformer_weights {
    fm_attention_weights row, column, starting, ending;
    fm_global_attention_weights global_column;
    fm_transition_weights msa_transition, pair_transition;
    fm_outer_weights outer;
    fm_triangle_weights outgoing, incoming;
} fm_evoformer_weights;

/* The weights of one block of the template pair stack (A16). */
typedef struct fm_template_block_weights {
    fm_attention_weights starting, ending;
    fm_triangle_weights outgoing, incoming;
    fm_transition_weights transition;
} fm_template_block_weights;

fm_evoformer_weights fm_scope_evoformer(const fm_scope *scope, const fm_model_config *config);

typedef struct fm_structure_weights {
    fm_param_ref norm_s, norm_z; /* [2, c_s], [2, c_z] */
    fm_linear_weights in;        /* [c_s, c_s] */
    fm_ipa_weights ipa;
    fm_param_ref norm_ipa; /* [2, c_s] */
    fm_structure_transition_weights transition;
    fm_param_ref norm_transition; /* [2, c_s] */
    fm_linear_weights update;     /* [6, c_s] */
    fm_angle_weights angles;
} fm_structure_weights;

/* These add the rows of a module; the prefixes of the scope end in a separator. */
fm_ipa_weights fm_scope_ipa(const fm_scope *scope, const fm_structure_config *config);
/* The LayerNorm behind the transition is included, since OpenFold keeps it in the same module. */
fm_structure_transition_weights fm_scope_structure_transition(const fm_scope *scope, int64_t c_s,
                                                              fm_param_ref *ret_norm);
fm_angle_weights fm_scope_angles(const fm_scope *scope, const fm_structure_config *config);
fm_structure_weights fm_scope_structure(const fm_scope *scope, const fm_structure_config *config);

/* The heads that read the output of the structure module and of the Evoformer. */
typedef struct fm_structure_heads {
    fm_plddt_weights plddt;
    fm_linear_weights resolved;      /* [37, c_s] */
    fm_linear_weights aligned_error; /* [n_aligned_error_bin, c_z]; absent when that is 0 */
} fm_structure_heads;

fm_plddt_weights fm_scope_plddt(const fm_scope *scope, const fm_structure_config *config);
/* root: the scope of the whole model. */
fm_structure_heads fm_scope_structure_heads(const fm_scope *root,
                                            const fm_structure_config *config);

enum {
    FM_MAX_BLOCK = 64,
    FM_MAX_EXTRA_BLOCK = 16,
    FM_MAX_TEMPLATE_BLOCK = 16,
    FM_MAX_PARAM = 16384
};

/* The weights of the whole model. */
typedef struct fm_model_weights {
    fm_input_msa_weights input_msa;
    fm_input_pair_weights input_pair;
    fm_recycle_weights recycle;
    fm_template_pair_weights template_pair;
    fm_template_block_weights template_block[FM_MAX_TEMPLATE_BLOCK];
    fm_template_attention_weights template_attention;
    fm_template_row_weights template_rows;
    fm_linear_weights extra_msa;
    fm_evoformer_weights extra_block[FM_MAX_EXTRA_BLOCK];
    fm_evoformer_weights block[FM_MAX_BLOCK];
    fm_linear_weights single, distogram, masked_msa;
    fm_structure_weights structure;
    fm_structure_heads heads;
} fm_model_weights;

/* Adds the table of the whole model and returns the weights of all modules. */
void fm_model_add_parameters(fm_params *params, fm_arena *arena, const fm_model_config *config,
                             fm_model_weights *ret_weights);

#endif
