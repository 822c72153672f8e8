/* atoms.c: see atoms.h. */
#include "trainer/model/af3/atoms.h"

#include "trainer/ops/arithmetic.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/concat.h"
#include "trainer/ops/layer_norm.h"
#include "trainer/ops/reshape.h"

#include <assert.h>

/* -- parameters */

static void add_blocks(const fm_scope *scope, const fm_af3_config *config, int32_t n_block,
                       fm_conditioned_block_weights *ret_blocks) {
    for (int32_t i = 0; i < n_block; i++) {
        fm_scope block =
            fm_af3_enter_block(scope, "atom_transformer.diffusion_transformer.blocks", i);
        ret_blocks[i] = fm_af3_conditioned_block_weights(&block, config->c_atom, config->c_atom,
                                                         config->c_atompair, config->n_head_atom,
                                                         config->narrow_factor, true);
    }
}

static fm_atom_feature_weights add_features(const fm_scope *scope, int64_t c) {
    fm_atom_feature_weights w = {.c = c};
    w.position = fm_af3_add_block(scope, "linear_no_bias_ref_pos.weight", c, 3, FM_AF3_DEFAULT);
    w.charge = fm_af3_add_block(scope, "linear_no_bias_ref_charge.weight", c, 1, FM_AF3_DEFAULT);
    w.one_hot =
        fm_af3_add_block(scope, "linear_no_bias_f.weight", c, FM_ATOM_ONE_HOT, FM_AF3_DEFAULT);
    return w;
}

static fm_atom_pair_weights add_pairs(const fm_scope *scope, int64_t c) {
    fm_atom_pair_weights w = {.c = c};
    w.offset = fm_af3_add_block(scope, "linear_no_bias_d.weight", c, 3, FM_AF3_DEFAULT);
    w.inverse = fm_af3_add_block(scope, "linear_no_bias_invd.weight", c, 1, FM_AF3_DEFAULT);
    w.valid = fm_af3_add_block(scope, "linear_no_bias_v.weight", c, 1, FM_AF3_DEFAULT);
    return w;
}

void fm_af3_atom_encoder_add(const fm_scope *scope, const fm_af3_config *config, int64_t c_token,
                             int32_t n_block, bool with_coordinates,
                             fm_af3_atom_encoder_weights *ret_weights) {
    int64_t c = config->c_atom, c_pair = config->c_atompair;
    *ret_weights = (fm_af3_atom_encoder_weights){.n_block = n_block};
    ret_weights->features = add_features(scope, c);
    ret_weights->pairs = add_pairs(scope, c_pair);
    if (with_coordinates) {
        ret_weights->norm_s =
            fm_af3_add_block(scope, "layernorm_s.weight", config->c_s, 0, FM_AF3_ONE);
        ret_weights->s = fm_af3_linear(scope, "linear_no_bias_s", config->c_s, c, FM_AF3_ZERO);
        ret_weights->norm_z =
            fm_af3_add_block(scope, "layernorm_z.weight", config->c_z, 0, FM_AF3_ONE);
        ret_weights->z = fm_af3_linear(scope, "linear_no_bias_z", config->c_z, c_pair, FM_AF3_ZERO);
        ret_weights->r = fm_af3_linear(scope, "linear_no_bias_r", 3, c, FM_AF3_DEFAULT);
    }
    ret_weights->cl = fm_af3_linear(scope, "linear_no_bias_cl", c, c_pair, FM_AF3_DEFAULT);
    ret_weights->cm = fm_af3_linear(scope, "linear_no_bias_cm", c, c_pair, FM_AF3_DEFAULT);
    ret_weights->mlp[0] = fm_af3_linear(scope, "small_mlp.1", c_pair, c_pair, FM_AF3_HE);
    ret_weights->mlp[1] = fm_af3_linear(scope, "small_mlp.3", c_pair, c_pair, FM_AF3_HE);
    ret_weights->mlp[2] = fm_af3_linear(scope, "small_mlp.5", c_pair, c_pair, FM_AF3_ZERO);
    add_blocks(scope, config, n_block, ret_weights->block);
    ret_weights->q = fm_af3_linear(scope, "linear_no_bias_q", c, c_token, FM_AF3_DEFAULT);
}

void fm_af3_atom_decoder_add(const fm_scope *scope, const fm_af3_config *config,
                             fm_af3_atom_decoder_weights *ret_weights) {
    int64_t c = config->c_atom;
    *ret_weights = (fm_af3_atom_decoder_weights){.n_block = config->n_atom_block};
    ret_weights->a = fm_af3_linear(scope, "linear_no_bias_a", config->c_token, c, FM_AF3_DEFAULT);
    add_blocks(scope, config, ret_weights->n_block, ret_weights->block);
    ret_weights->norm_q = fm_af3_add_block(scope, "layernorm_q.weight", c, 0, FM_AF3_ONE);
    ret_weights->out = fm_af3_linear(scope, "linear_no_bias_out", c, 3, FM_AF3_DEFAULT);
}

/* -- recording */

/* p + MLP(p): three layers, each behind a ReLU (5:11). */
static fm_tensor_ref pair_mlp(fm_tape *tape, fm_tensor_ref p,
                              const fm_af3_atom_encoder_weights *w) {
    fm_tensor_ref x = p;
    for (int i = 0; i < 3; i++)
        x = fm_op_linear_all(tape, "pair mlp", fm_op_relu(tape, "pair mlp", x), &w->mlp[i]);
    return fm_op_add(tape, "pair mlp", p, x);
}

fm_af3_atom_context fm_af3_atom_context_of(fm_tape *tape, const fm_groups *groups,
                                           const fm_af3_atoms *atoms, fm_tensor_ref s,
                                           fm_tensor_ref z, const fm_af3_atom_encoder_weights *w) {
    assert((s == FM_TENSOR_NONE) == (z == FM_TENSOR_NONE));
    fm_tape_enter_island(tape);
    fm_tensor_ref c = fm_op_atom_features(tape, &atoms->features, &w->features);
    fm_tape_leave_island(tape);
    c = fm_op_cast(tape, "atom features", c);
    if (s != FM_TENSOR_NONE) {
        fm_tensor_ref normed = fm_op_layer_norm(tape, "atom single", s, w->norm_s, FM_NORM_SCALE);
        fm_tensor_ref tokens = fm_op_linear_all(tape, "atom single", normed, &w->s);
        c = fm_op_add(tape, "atom single", c,
                      fm_op_to_atoms(tape, "atom single", tokens, &atoms->map));
        z = fm_af3_normed_linear(tape, "atom pairs", z, w->norm_z, &w->z);
        z = fm_af3_split_gather(tape, groups, "atom pairs", z);
    }
    fm_tensor_ref active = fm_op_relu(tape, "atom pairs", c);
    fm_tensor_ref q = fm_op_linear_all(tape, "atom pairs query", active, &w->cl);
    fm_tensor_ref k = fm_op_linear_all(tape, "atom pairs key", active, &w->cm);
    fm_tensor_ref p =
        fm_op_atom_pairs(tape, atoms->position, atoms->space, z, q, k, &atoms->map, &w->pairs);
    return (fm_af3_atom_context){.c = c, .p = pair_mlp(tape, p, w)};
}

fm_af3_encoded fm_af3_atom_encoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                   fm_af3_atom_context context, fm_tensor_ref r,
                                   const fm_af3_atom_encoder_weights *w, int32_t n_again) {
    const fm_af3_block_inputs in = {
        .bias = context.encoder_bias, .made = context.encoder, .z = context.p};
    fm_tensor_ref q;
    if (r == FM_TENSOR_NONE) {
        q = fm_op_lift(tape, "atoms", context.c);
    } else {
        fm_tape_enter_island(tape);
        q = fm_op_linear_all(tape, "atom positions", r, &w->r);
        fm_tape_leave_island(tape);
        q = fm_op_add(tape, "atom positions", fm_op_cast(tape, "atom positions", q), context.c);
    }
    q = fm_af3_atom_transformer(tape, q, context.c, &in, atoms->mask, w->block, w->n_block,
                                n_again);
    fm_tensor_ref a = fm_op_relu(tape, "token", fm_op_linear_all(tape, "token", q, &w->q));
    return (fm_af3_encoded){fm_op_mean_of_atoms(tape, "token", a, &atoms->map), q};
}

fm_tensor_ref fm_af3_atom_decoder(fm_tape *tape, const fm_af3_atoms *atoms,
                                  fm_af3_atom_context context, fm_af3_encoded encoded,
                                  const fm_af3_atom_decoder_weights *w, int32_t n_again) {
    const fm_af3_block_inputs in = {
        .bias = context.decoder_bias, .made = context.decoder, .z = context.p};
    fm_tensor_ref tokens = fm_op_linear_all(tape, "atom decoder", encoded.a, &w->a);
    fm_tensor_ref q = fm_op_add(
        tape, "atom decoder", fm_op_to_atoms(tape, "atom decoder", tokens, &atoms->map), encoded.q);
    q = fm_af3_atom_transformer(tape, q, context.c, &in, atoms->mask, w->block, w->n_block,
                                n_again);
    q = fm_op_layer_norm(tape, "atom decoder", q, w->norm_q, FM_NORM_SCALE);
    fm_tape_enter_island(tape);
    q = fm_op_cast(tape, "atom decoder", q);
    fm_tensor_ref update = fm_op_linear_all(tape, "atom decoder", q, &w->out);
    fm_tape_leave_island(tape);
    return update;
}

fm_tensor_ref fm_af3_input_embedder(fm_tape *tape, const fm_af3_atoms *atoms,
                                    fm_tensor_ref token_features,
                                    const fm_af3_atom_encoder_weights *w, int32_t n_again) {
    fm_af3_atom_context context =
        fm_af3_atom_context_of(tape, NULL, atoms, FM_TENSOR_NONE, FM_TENSOR_NONE, w);
    fm_af3_encoded encoded = fm_af3_atom_encoder(tape, atoms, context, FM_TENSOR_NONE, w, n_again);
    const fm_tensor_ref parts[] = {fm_op_lower(tape, "tokens", encoded.a), token_features};
    return fm_op_concat(tape, "token inputs", parts, 2);
}
