/* trunk.c: see trunk.h. */
#include "trainer/model/af3/trunk.h"

#include "trainer/ops/arithmetic.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/reshape.h"
#include "trainer/ops/structure_layers.h"

#include <assert.h>

/* -- parameters */

void fm_af3_template_embedder_parameters(const fm_scope *scope, const fm_af3_config *config,
                                         fm_af3_template_embedder_weights *ret_weights) {
    int64_t c_z = config->c_z, c = config->c_template;
    assert(config->n_template_block <= FM_AF3_MAX_TEMPLATE_BLOCK);
    ret_weights->norm_z = fm_af3_norm(scope, "layernorm_z", c_z);
    ret_weights->z = fm_af3_linear(scope, "linear_no_bias_z", c_z, c, FM_AF3_DEFAULT);
    ret_weights->a =
        fm_af3_linear(scope, "linear_no_bias_a", FM_AF3_TEMPLATE_PAIR, c, FM_AF3_DEFAULT);
    for (int32_t i = 0; i < config->n_template_block; i++) {
        fm_scope block = fm_af3_enter_block(scope, "pairformer_stack.blocks", i);
        ret_weights->block[i] = fm_af3_template_weights(&block, config);
    }
    ret_weights->norm_v = fm_af3_norm(scope, "layernorm_v", c);
    ret_weights->u = fm_af3_linear(scope, "linear_no_bias_u", c, c_z, FM_AF3_DEFAULT);
}

fm_linear_weights fm_af3_distogram_parameters(const fm_scope *scope, const fm_af3_config *config) {
    return fm_af3_linear_with_bias(scope, "linear", config->c_z, config->n_distogram_bin,
                                   FM_AF3_ZERO, FM_AF3_ZERO);
}

static void msa_parameters(const fm_scope *scope, const fm_af3_config *config,
                           fm_af3_trunk_weights *w) {
    int32_t n_block = config->n_msa_block;
    assert(n_block <= FM_AF3_MAX_MSA_BLOCK);
    w->msa =
        fm_af3_linear(scope, "linear_no_bias_m", FM_AF3_MSA_FEATURES, config->c_m, FM_AF3_DEFAULT);
    w->msa_s = fm_af3_linear(scope, "linear_no_bias_s", fm_af3_config_s_inputs(config), config->c_m,
                             FM_AF3_DEFAULT);
    for (int32_t i = 0; i < n_block; i++) {
        fm_scope block = fm_af3_enter_block(scope, "blocks", i);
        w->msa_block[i] = fm_af3_msa_weights(&block, config, i + 1 == n_block);
    }
}

void fm_af3_trunk_parameters(const fm_scope *root, const fm_af3_config *config,
                             fm_af3_trunk_weights *ret_weights) {
    int64_t c_s = config->c_s, c_z = config->c_z;
    fm_scope relative = fm_af3_enter(root, "relative_position_encoding."),
             templates = fm_af3_enter(root, "template_embedder."),
             msa = fm_af3_enter(root, "msa_module."),
             distogram = fm_af3_enter(root, "distogram_head.");
    ret_weights->s_init = fm_af3_linear(root, "linear_no_bias_sinit",
                                        fm_af3_config_s_inputs(config), c_s, FM_AF3_DEFAULT);
    ret_weights->z_init1 = fm_af3_linear(root, "linear_no_bias_zinit1", c_s, c_z, FM_AF3_DEFAULT);
    ret_weights->z_init2 = fm_af3_linear(root, "linear_no_bias_zinit2", c_s, c_z, FM_AF3_DEFAULT);
    ret_weights->relative =
        fm_af3_linear(&relative, "linear_no_bias", FM_RELATIVE_FEATURES, c_z, FM_AF3_DEFAULT);
    ret_weights->token_bond =
        fm_af3_linear(root, "linear_no_bias_token_bond", 1, c_z, FM_AF3_DEFAULT);
    ret_weights->norm_z = fm_af3_norm(root, "layernorm_z_cycle", c_z);
    ret_weights->z_cycle = fm_af3_linear(root, "linear_no_bias_z_cycle", c_z, c_z, FM_AF3_ZERO);
    fm_af3_template_embedder_parameters(&templates, config, &ret_weights->templates);
    msa_parameters(&msa, config, ret_weights);
    ret_weights->norm_s = fm_af3_norm(root, "layernorm_s", c_s);
    ret_weights->s_cycle = fm_af3_linear(root, "linear_no_bias_s", c_s, c_s, FM_AF3_ZERO);
    assert(config->n_pairformer_block <= FM_AF3_MAX_BLOCK);
    for (int32_t i = 0; i < config->n_pairformer_block; i++) {
        fm_scope block = fm_af3_enter_block(root, "pairformer_stack.blocks", i);
        ret_weights->pairformer[i] = fm_af3_pairformer_weights(&block, config);
    }
    ret_weights->distogram = fm_af3_distogram_parameters(&distogram, config);
}

/* -- templates */

/* Records the blocks on the features v, of one template or of several, with x, the update of z, and
 * normalises the result. */
static fm_tensor_ref template_stack(fm_tape *tape, const fm_af3_config *config,
                                    const fm_af3_template_embedder_weights *weights,
                                    fm_tensor_ref pair_mask, fm_tensor_ref v, fm_tensor_ref x) {
    v = fm_op_add(tape, "template pairs", v, x);
    v = fm_af3_template_blocks(tape, config, weights->block, config->n_template_block, pair_mask,
                               v);
    return fm_op_norm(tape, "template norm v", v, weights->norm_v, 0);
}

/* Returns the sum over all templates of this rank times `scale`. Slabs are those of one template,
 * so there the templates come one after the other. */
static fm_tensor_ref sum_of_templates(fm_tape *tape, const fm_af3_config *config,
                                      const fm_af3_template_embedder_weights *weights,
                                      fm_tensor_ref templates, fm_tensor_ref pair_mask,
                                      fm_tensor_ref x, double scale) {
    fm_tensor_ref v, sum = FM_TENSOR_NONE;
    if (tape->chunk_bytes == 0) {
        v = fm_op_linear_all(tape, "template features", templates, &weights->a);
        v = template_stack(tape, config, weights, pair_mask, v, x);
        return fm_op_sum_groups(tape, "template mean", v, scale);
    }
    const int64_t n = fm_tape_tensor(tape, templates)->local[0];
    for (int64_t t = 0; t < n; t++) {
        v = fm_op_linear_slice(tape, "template features", templates, t, &weights->a);
        v = template_stack(tape, config, weights, pair_mask, v, x);
        sum = t ? fm_op_add(tape, "template mean", sum, v) : v;
    }
    return fm_op_sum_groups(tape, "template mean", fm_op_lift(tape, "template mean", sum), scale);
}

fm_tensor_ref fm_af3_template_embedder(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_template_embedder_weights *weights,
                                       fm_tensor_ref templates, fm_tensor_ref pair_mask,
                                       fm_tensor_ref z) {
    const double eps = 1e-7;
    const fm_groups *groups = config->groups;
    int64_t n = fm_tape_tensor(tape, templates)->local[0];
    bool shares = fm_af3_split_dap(groups) && n % fm_groups_part(groups).count == 0;
    fm_tensor_ref x = fm_op_norm(tape, "template norm z", z, weights->norm_z, 0);
    x = fm_op_linear_all(tape, "template z", x, &weights->z);
    x = fm_af3_split_gather(tape, groups, "template z", x);
    if (shares) templates = fm_af3_split_rows(tape, groups, "templates", templates);
    fm_tensor_ref u =
        sum_of_templates(tape, config, weights, templates, pair_mask, x, 1 / (eps + (double)n));
    if (shares) {
        fm_gather sum = fm_dap_sum_begin(tape, "template mean", groups->dap, u);
        u = fm_dap_gather_finish(tape, &sum);
    } else {
        u = fm_af3_split_rows(tape, groups, "template mean", u);
    }
    u = fm_op_relu(tape, "template relu", u);
    return fm_op_linear_all(tape, "template update", u, &weights->u);
}

/* -- a cycle */

/* s0 is [1, N, c_s]; a rank makes its rows of z from its tokens i and all j. */
static fm_tensor_ref initial_z(fm_tape *tape, const fm_af3_config *config,
                               const fm_af3_trunk_weights *w, const fm_af3_trunk_inputs *inputs,
                               fm_tensor_ref s0) {
    const fm_model_config own = fm_af3_split_config(config);
    fm_tensor_ref i = fm_op_linear_all(tape, "z of i", s0, &w->z_init1);
    i = fm_split_slice(tape, &own, "z of i", i, 1);
    fm_tensor_ref j = fm_op_linear_all(tape, "z of j", s0, &w->z_init2);
    fm_tensor_ref z = fm_op_outer_sum(tape, "initial z", i, j);
    z = fm_op_add(tape, "initial z", z,
                  fm_op_relative_position(tape, "relative position", inputs->relative,
                                          w->relative.w, w->relative.c_out,
                                          fm_groups_part(config->groups)));
    fm_tensor_ref bonds = fm_split_slice(tape, &own, "token bonds", inputs->bonds, 0);
    return fm_op_add(tape, "initial z", z,
                     fm_op_linear_all(tape, "token bonds", bonds, &w->token_bond));
}

/* previous: the last cycle's value. Returns x0 + W LayerNorm(previous). */
static fm_tensor_ref recycled(fm_tape *tape, const char *name, fm_tensor_ref x0,
                              fm_tensor_ref previous, fm_param_ref norm,
                              const fm_linear_weights *linear) {
    fm_tensor_ref x = fm_op_norm(tape, name, previous, norm, 0);
    return fm_op_add(tape, name, x0, fm_op_linear_all(tape, name, x, linear));
}

static fm_tensor_ref msa_module(fm_tape *tape, const fm_af3_config *config,
                                const fm_af3_trunk_weights *w, const fm_af3_trunk_inputs *inputs,
                                fm_tensor_ref s_inputs, fm_tensor_ref z) {
    const fm_model_config own = fm_af3_split_config(config);
    fm_tensor_ref features = fm_split_slice(tape, &own, "msa features", inputs->msa, 1);
    fm_tensor_ref m = fm_op_linear_all(tape, "msa features", features, &w->msa);
    fm_tensor_ref of_s = fm_op_linear_all(tape, "msa of s", s_inputs, &w->msa_s);
    m = fm_op_add(tape, "msa", m, fm_split_slice(tape, &own, "msa of s", of_s, 1));
    fm_af3_pair_of in = {m, z};
    return fm_af3_msa_blocks(tape, config, w->msa_block, config->n_msa_block, true, &inputs->masks,
                             in)
        .z;
}

fm_af3_pair_of fm_af3_trunk(fm_tape *tape, const fm_af3_config *config,
                            const fm_af3_trunk_weights *w, const fm_af3_trunk_inputs *inputs,
                            fm_tensor_ref s_inputs) {
    fm_tensor_ref s0 = fm_op_linear_all(tape, "initial s", s_inputs, &w->s_init);
    fm_tensor_ref z = fm_af3_split_rows(tape, config->groups, "recycled z", inputs->previous_z);
    z = recycled(tape, "recycled z", initial_z(tape, config, w, inputs, s0), z, w->norm_z,
                 &w->z_cycle);
    if (inputs->templates != FM_TENSOR_NONE) {
        z = fm_op_add(tape, "templates", z,
                      fm_af3_template_embedder(tape, config, &w->templates, inputs->templates,
                                               inputs->masks.pair, z));
    }
    z = msa_module(tape, config, w, inputs, s_inputs, z);
    fm_tensor_ref s = recycled(tape, "recycled s", s0, inputs->previous_s, w->norm_s, &w->s_cycle);
    return fm_af3_pairformer(tape, config, FM_AF3_STACK_PAIRFORMER, w->pairformer,
                             config->n_pairformer_block, &inputs->masks, (fm_af3_pair_of){s, z});
}

fm_tensor_ref fm_af3_distogram(fm_tape *tape, const fm_groups *groups,
                               const fm_linear_weights *weights, fm_tensor_ref z) {
    fm_tensor_ref logits = fm_op_linear_all(tape, "distogram", z, weights);
    logits = fm_af3_split_gather(tape, groups, "distogram", logits);
    return fm_op_symmetrise(tape, "distogram", logits);
}
