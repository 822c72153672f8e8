/* parameters_structure.c: the rows of the structure module and its heads; see parameters.h. */
#include "trainer/model/structure_module.h"

#include "proto/chem/residue.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>

/* softplus^-1(1): at the start, points have the same weight as scalars. */
static const double HEAD_WEIGHT_START = 0.54132485461291802;

typedef enum start { START_ZERO, START_LECUN, START_HE } start;

/* Adds one array to the newest block; a vector has c_in 0. */
static void add(const fm_scope *scope, const char *name, const char *openfold, const char *deepmind,
                int64_t c_out, int64_t c_in, start kind) {
    fm_scope named = fm_scope_enter(scope, name, openfold, deepmind);
    fm_param param = {.name = named.name,
                      .openfold = named.openfold,
                      .deepmind = named.deepmind,
                      .deepmind_layer = scope->deepmind_layer,
                      .deepmind_layout = c_in ? FM_DEEPMIND_TRANSPOSED : FM_DEEPMIND_SAME,
                      .rank = c_in ? 2 : 1,
                      .shape = {c_out, c_in}};
    if (kind != START_ZERO) {
        param.init = FM_INIT_TRUNCATED_NORMAL;
        param.init_scale = sqrt((kind == START_HE ? 2.0 : 1.0) / (double)c_in);
    }
    fm_params_add(scope->params, &param);
}

static fm_param_ref add_norm(const fm_scope *scope, const char *name, const char *openfold,
                             const char *deepmind, int64_t c) {
    fm_scope named = fm_scope_enter(scope, name, openfold, deepmind);
    fm_scope weight = fm_scope_enter(&named, ".weight", ".weight", "//scale");
    fm_param_ref block = fm_params_add_block(scope->params);
    fm_params_add(scope->params, &(fm_param){.name = weight.name,
                                             .openfold = weight.openfold,
                                             .deepmind = weight.deepmind,
                                             .deepmind_layer = scope->deepmind_layer,
                                             .rank = 1,
                                             .shape = {c},
                                             .init = FM_INIT_CONSTANT,
                                             .init_scale = 1});
    add(&named, ".bias", ".bias", "//offset", c, 0, START_ZERO);
    return block;
}

/* One of the linear layers that are stored side by side in one block of weights and one of biases.
 */
typedef struct layer {
    const char *name, *openfold, *deepmind;
    int64_t c_out;
    start start;
} layer;

static void add_layers(const fm_scope *scope, const layer *layers, int n, int64_t c_in,
                       fm_param_ref *ret_w, fm_param_ref *ret_b) {
    *ret_w = fm_params_add_block(scope->params);
    for (int i = 0; i < n; i++) {
        const layer *l = &layers[i];
        fm_scope inner = fm_scope_enter(scope, l->name, l->openfold, l->deepmind);
        add(&inner, ".weight", ".weight", "//weights", l->c_out, c_in, l->start);
    }
    *ret_b = fm_params_add_block(scope->params);
    for (int i = 0; i < n; i++) {
        const layer *l = &layers[i];
        fm_scope inner = fm_scope_enter(scope, l->name, l->openfold, l->deepmind);
        add(&inner, ".bias", ".bias", "//bias", l->c_out, 0, START_ZERO);
    }
}

fm_ipa_weights fm_scope_ipa(const fm_scope *scope, const fm_structure_config *c) {
    int64_t points = 3 * c->n_head;
    const layer projections[] = {
        {"q", "linear_q", "q_scalar", c->n_head * c->c_head, START_LECUN},
        {"kv", "linear_kv", "kv_scalar", 2 * c->n_head * c->c_head, START_LECUN},
        {"q_points", "linear_q_points.linear", "q_point_local", points * c->n_qk, START_LECUN},
        {"kv_points", "linear_kv_points.linear", "kv_point_local", points * (c->n_qk + c->n_v),
         START_LECUN}};
    const layer bias[] = {{"pair_bias", "linear_b", "attention_2d", c->n_head, START_LECUN}};
    const layer out[] = {{"out", "linear_out", "output_projection", c->c_s, START_ZERO}};
    fm_ipa_weights w = {.n_head = c->n_head, .c = c->c_head, .n_qk = c->n_qk, .n_v = c->n_v};
    add_layers(scope, projections, 4, c->c_s, &w.projections, &w.projections_bias);
    add_layers(scope, bias, 1, c->c_z, &w.bias, &w.bias_bias);
    fm_scope head =
        fm_scope_enter(scope, "head_weights", "head_weights", "/trainable_point_weights");
    w.head_weights = fm_params_add_block(scope->params);
    fm_params_add(scope->params, &(fm_param){.name = head.name,
                                             .openfold = head.openfold,
                                             .deepmind = head.deepmind,
                                             .deepmind_layer = scope->deepmind_layer,
                                             .rank = 1,
                                             .shape = {c->n_head},
                                             .init = FM_INIT_CONSTANT,
                                             .init_scale = HEAD_WEIGHT_START});
    add_layers(scope, out, 1, c->n_head * (c->c_head + 4 * c->n_v + c->c_z), &w.out, &w.out_bias);
    return w;
}

fm_structure_transition_weights fm_scope_structure_transition(const fm_scope *scope, int64_t c_s,
                                                              fm_param_ref *ret_norm) {
    const layer layers[] = {{"transition.1", "layers.0.linear_1", "transition", c_s, START_HE},
                            {"transition.2", "layers.0.linear_2", "transition_1", c_s, START_HE},
                            {"transition.3", "layers.0.linear_3", "transition_2", c_s, START_ZERO}};
    fm_structure_transition_weights w;
    add_layers(scope, layers, 3, c_s, &w.w, &w.b);
    *ret_norm = add_norm(scope, "transition.norm", "layer_norm", "transition_layer_norm", c_s);
    return w;
}

/* DeepMind numbers the layers of one kind from the second on. */
static void add_angle_block(const fm_scope *scope, const fm_structure_config *config, int block,
                            bool bias) {
    for (int i = 1; i <= 2; i++) {
        char ours[32], openfold[32], deepmind[32], number[16] = "";
        if (block) snprintf(number, sizeof number, "_%d", block);
        snprintf(ours, sizeof ours, "%d.%d.", block, i);
        snprintf(openfold, sizeof openfold, "layers.%d.linear_%d.", block, i);
        snprintf(deepmind, sizeof deepmind, "resblock%d%s//", i, number);
        fm_scope inner = fm_scope_enter(scope, ours, openfold, deepmind);
        if (bias) {
            add(&inner, "bias", "bias", "bias", config->c_angle, 0, START_ZERO);
        } else {
            add(&inner, "weight", "weight", "weights", config->c_angle, config->c_angle,
                i == 1 ? START_HE : START_ZERO);
        }
    }
}

fm_angle_weights fm_scope_angles(const fm_scope *scope, const fm_structure_config *c) {
    const layer in[] = {
        {"in", "linear_in", "input_projection", c->c_angle, START_LECUN},
        {"initial", "linear_initial", "input_projection_1", c->c_angle, START_LECUN}};
    const layer out[] = {{"out", "linear_out", "unnormalized_angles", 2 * FM_N_ANGLE, START_LECUN}};
    fm_angle_weights w = {.c = c->c_angle, .n_block = c->n_angle_block};
    add_layers(scope, in, 2, c->c_s, &w.in, &w.in_bias);
    w.hidden = fm_params_add_block(scope->params);
    for (int i = 0; i < c->n_angle_block; i++)
        add_angle_block(scope, c, i, false);
    w.hidden_bias = fm_params_add_block(scope->params);
    for (int i = 0; i < c->n_angle_block; i++)
        add_angle_block(scope, c, i, true);
    add_layers(scope, out, 1, c->c_angle, &w.out, &w.out_bias);
    return w;
}

fm_structure_weights fm_scope_structure(const fm_scope *scope, const fm_structure_config *c) {
    fm_scope fold = fm_scope_enter(scope, "", "", "fold_iteration/");
    fm_scope ipa = fm_scope_enter(&fold, "ipa.", "ipa.", "invariant_point_attention/");
    fm_scope transition = fm_scope_enter(&fold, "", "transition.", "");
    fm_scope update = fm_scope_enter(&fold, "backbone_update", "bb_update.linear", "affine_update");
    fm_scope angles = fm_scope_enter(&fold, "angles.", "angle_resnet.", "rigid_sidechain/");
    fm_scope in = fm_scope_enter(scope, "in", "linear_in", "initial_projection");
    fm_structure_weights w;
    w.norm_s = add_norm(scope, "norm_s", "layer_norm_s", "single_layer_norm", c->c_s);
    w.norm_z = add_norm(scope, "norm_z", "layer_norm_z", "pair_layer_norm", c->c_z);
    w.in = fm_scope_linear(&in, c->c_s, c->c_s, false);
    w.ipa = fm_scope_ipa(&ipa, c);
    w.norm_ipa = add_norm(&fold, "ipa.norm", "layer_norm_ipa", "attention_layer_norm", c->c_s);
    w.transition = fm_scope_structure_transition(&transition, c->c_s, &w.norm_transition);
    w.update = fm_scope_linear(&update, c->c_s, 6, true);
    w.angles = fm_scope_angles(&angles, c);
    return w;
}

fm_plddt_weights fm_scope_plddt(const fm_scope *scope, const fm_structure_config *c) {
    fm_plddt_weights w = {.c = c->c_plddt, .n_bin = c->n_plddt_bin};
    const layer first[] = {{"1", "linear_1", "act_0", c->c_plddt, START_HE}};
    const layer second[] = {{"2", "linear_2", "act_1", c->c_plddt, START_HE}};
    const layer logits[] = {{"logits", "linear_3", "logits", c->n_plddt_bin, START_ZERO}};
    w.norm = add_norm(scope, "norm", "layer_norm", "input_layer_norm", c->c_s);
    add_layers(scope, first, 1, c->c_s, &w.w1, &w.b1);
    add_layers(scope, second, 1, c->c_plddt, &w.w2, &w.b2);
    add_layers(scope, logits, 1, c->c_plddt, &w.w3, &w.b3);
    return w;
}

fm_structure_heads fm_scope_structure_heads(const fm_scope *root, const fm_structure_config *c) {
    fm_scope plddt = fm_scope_enter(root, "plddt.", "aux_heads.plddt.", "predicted_lddt_head/");
    fm_scope resolved =
        fm_scope_enter(root, "experimentally_resolved", "aux_heads.experimentally_resolved.linear",
                       "experimentally_resolved_head/logits");
    fm_scope aligned = fm_scope_enter(root, "aligned_error", "aux_heads.tm.linear",
                                      "predicted_aligned_error_head/logits");
    fm_structure_heads heads = {.plddt = fm_scope_plddt(&plddt, c)};
    heads.resolved = fm_scope_linear(&resolved, c->c_s, FM_N_ATOM37, true);
    if (c->n_aligned_error_bin) {
        heads.aligned_error = fm_scope_linear(&aligned, c->c_z, c->n_aligned_error_bin, true);
    }
    return heads;
}
