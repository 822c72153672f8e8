/* diffusion.c: see diffusion.h. */
#include "trainer/model/af3/diffusion.h"

#include "trainer/model/af3/blocks.h"
#include "trainer/ops/arithmetic.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/concat.h"
#include "trainer/ops/fourier.h"
#include "trainer/ops/layer_norm.h"
#include "trainer/ops/pair_linear.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/scale_groups.h"

#include <math.h>

/* -- parameters */

fm_af3_conditioning_weights fm_af3_conditioning_add(const fm_scope *scope,
                                                    const fm_af3_config *config) {
    static const char *const names_z[] = {"transition_z1.", "transition_z2."};
    static const char *const names_s[] = {"transition_s1.", "transition_s2."};
    int64_t c_s = config->c_s, c_z = config->c_z, c_n = config->c_noise;
    int64_t c_single = c_s + fm_af3_config_s_inputs(config);
    fm_af3_conditioning_weights w;
    w.relative = fm_af3_add_block(scope, "relpe.linear_no_bias.weight", c_z, FM_RELATIVE_FEATURES,
                                  FM_AF3_DEFAULT);
    w.norm_z = fm_af3_add_block(scope, "layernorm_z.weight", 2 * c_z, 0, FM_AF3_ONE);
    w.z = fm_af3_linear(scope, "linear_no_bias_z", 2 * c_z, c_z, FM_AF3_DEFAULT);
    for (int i = 0; i < 2; i++) {
        fm_scope transition = fm_af3_enter(scope, names_z[i]);
        w.transition_z[i] = fm_af3_transition(&transition, c_z, config->narrow_factor);
    }
    w.norm_s = fm_af3_add_block(scope, "layernorm_s.weight", c_single, 0, FM_AF3_ONE);
    w.s = fm_af3_linear(scope, "linear_no_bias_s", c_single, c_s, FM_AF3_DEFAULT);
    w.norm_n = fm_af3_add_block(scope, "layernorm_n.weight", c_n, 0, FM_AF3_ONE);
    w.n = fm_af3_linear(scope, "linear_no_bias_n", c_n, c_s, FM_AF3_DEFAULT);
    for (int i = 0; i < 2; i++) {
        fm_scope transition = fm_af3_enter(scope, names_s[i]);
        w.transition_s[i] = fm_af3_transition(&transition, c_s, config->narrow_factor);
    }
    return w;
}

void fm_af3_diffusion_add(const fm_scope *scope, const fm_af3_config *config,
                          fm_af3_diffusion_weights *ret_weights) {
    fm_scope conditioning = fm_af3_enter(scope, "diffusion_conditioning.");
    ret_weights->conditioning = fm_af3_conditioning_add(&conditioning, config);
    fm_scope encoder = fm_af3_enter(scope, "atom_attention_encoder.");
    fm_af3_atom_encoder_add(&encoder, config, config->c_token, config->n_atom_block, true,
                            &ret_weights->encoder);
    ret_weights->norm_s = fm_af3_add_block(scope, "layernorm_s.weight", config->c_s, 0, FM_AF3_ONE);
    ret_weights->s =
        fm_af3_linear(scope, "linear_no_bias_s", config->c_s, config->c_token, FM_AF3_ZERO);
    ret_weights->n_block = config->n_diffusion_block;
    for (int32_t i = 0; i < ret_weights->n_block; i++) {
        fm_scope block = fm_af3_enter_block(scope, "diffusion_transformer.blocks", i);
        ret_weights->block[i] =
            fm_af3_conditioned_block_weights(&block, config->c_token, config->c_s, config->c_z,
                                             config->n_head_token, config->narrow_factor, false);
    }
    ret_weights->norm_a =
        fm_af3_add_block(scope, "layernorm_a.weight", config->c_token, 0, FM_AF3_ONE);
    fm_scope decoder = fm_af3_enter(scope, "atom_attention_decoder.");
    fm_af3_atom_decoder_add(&decoder, config, &ret_weights->decoder);
}

/* -- conditioning */

void fm_af3_noise_factors(double t, double sigma_data, double factors[FM_AF3_FACTORS]) {
    double d2 = sigma_data * sigma_data, sum = d2 + t * t;
    factors[FM_AF3_FACTOR_IN] = 1 / sqrt(sum);
    factors[FM_AF3_FACTOR_SKIP] = d2 / sum;
    factors[FM_AF3_FACTOR_OUT] = sigma_data * t / sqrt(sum);
    factors[FM_AF3_FACTOR_LOG] = log(t / sigma_data) / 4;
}

/* LayerNorm without bias, then a linear layer. */
static fm_tensor_ref norm_linear(fm_tape *tape, const char *name, fm_tensor_ref x,
                                 fm_param_ref norm, const fm_linear_weights *linear) {
    return fm_op_linear_all(tape, name, fm_op_layer_norm(tape, name, x, norm, FM_NORM_SCALE),
                            linear);
}

static fm_tensor_ref pair_transitions(fm_tape *tape, fm_tensor_ref z,
                                      const fm_af3_conditioning_weights *w) {
    for (int i = 0; i < 2; i++)
        z = fm_op_swiglu_transition(tape, "conditioning pair transition", z, &w->transition_z[i],
                                    true, FM_RECOMPUTE);
    return z;
}

fm_tensor_ref fm_af3_condition_encoded_pairs(fm_tape *tape, fm_tensor_ref z,
                                             fm_tensor_ref positions,
                                             const fm_af3_conditioning_weights *w) {
    const fm_tensor_ref parts[] = {z, positions};
    z = fm_op_concat(tape, "conditioning pairs", parts, 2);
    z = norm_linear(tape, "conditioning pairs", z, w->norm_z, &w->z);
    return pair_transitions(tape, z, w);
}

fm_tensor_ref fm_af3_condition_pairs(fm_tape *tape, const fm_groups *groups,
                                     const fm_af3_trunk_output *trunk,
                                     const fm_af3_conditioning_weights *w) {
    if (tape->chunk_bytes > 0) {
        const fm_pair_linear features = {.norm = w->norm_z,
                                         .kind = FM_NORM_SCALE,
                                         .positions = trunk->relative,
                                         .position_weights = w->relative};
        return pair_transitions(
            tape, fm_op_pair_linear(tape, "conditioning pairs", trunk->z, &features, &w->z), w);
    }
    fm_tensor_ref positions =
        fm_op_relative_position(tape, "conditioning positions", trunk->relative, w->relative,
                                w->z.c_out, fm_groups_part(groups));
    return fm_af3_condition_encoded_pairs(tape, trunk->z, positions, w);
}

fm_tensor_ref fm_af3_condition_single(fm_tape *tape, const fm_af3_trunk_output *trunk,
                                      const fm_af3_levels *levels,
                                      const fm_af3_conditioning_weights *w) {
    fm_tape_enter_island(tape);
    const fm_tensor_ref parts[] = {fm_op_cast(tape, "conditioning single", trunk->s),
                                   fm_op_cast(tape, "conditioning single", trunk->s_inputs)};
    fm_tensor_ref s = fm_op_concat(tape, "conditioning single", parts, 2);
    s = norm_linear(tape, "conditioning single", s, w->norm_s, &w->s);
    fm_tensor_ref n = fm_op_fourier(tape, levels->log, levels->fourier_w, levels->fourier_b);
    n = norm_linear(tape, "conditioning noise", n, w->norm_n, &w->n);
    s = fm_op_outer_sum(tape, "conditioning single", n, s);
    fm_tape_leave_island(tape);
    s = fm_op_cast(tape, "conditioning single", s);
    for (int i = 0; i < 2; i++)
        s = fm_op_swiglu_transition(tape, "conditioning transition", s, &w->transition_s[i], true,
                                    FM_RECOMPUTE);
    return s;
}

/* -- the module */

fm_af3_prepared fm_af3_diffusion_prepare(fm_tape *tape, const fm_groups *groups,
                                         const fm_af3_atoms *atoms,
                                         const fm_af3_trunk_output *trunk,
                                         const fm_af3_diffusion_weights *w) {
    fm_tensor_ref z = fm_af3_condition_pairs(tape, groups, trunk, &w->conditioning);
    return (fm_af3_prepared){
        .z = z, .atoms = fm_af3_atom_context_of(tape, groups, atoms, trunk->s, z, &w->encoder)};
}

/* What the conditioning signal s adds to the tokens. */
static const char ADDED_SINGLE[] = "diffusion single";

void fm_af3_store_modulations(fm_tape *tape, const fm_af3_trunk_output *trunk,
                              const fm_af3_levels *levels, fm_tensor_ref atoms,
                              const fm_af3_diffusion_weights *w, const fm_af3_prepared *to) {
    fm_tensor_ref s = fm_af3_condition_single(tape, trunk, levels, &w->conditioning);
    fm_tensor_ref normed = fm_op_layer_norm(tape, ADDED_SINGLE, s, w->norm_s, FM_NORM_SCALE);
    fm_op_store_linear(tape, ADDED_SINGLE, normed, &w->s, to->single);
    for (int32_t i = 0; i < w->n_block; i++)
        fm_af3_store_block_modulation(tape, s, &w->block[i], &to->block[i]);
    for (int32_t i = 0; i < w->encoder.n_block; i++)
        fm_af3_store_block_modulation(tape, atoms, &w->encoder.block[i], &to->encoder[i]);
    for (int32_t i = 0; i < w->decoder.n_block; i++)
        fm_af3_store_block_modulation(tape, atoms, &w->decoder.block[i], &to->decoder[i]);
}

fm_tensor_ref fm_af3_diffusion_denoise(fm_tape *tape, const fm_groups *groups,
                                       const fm_af3_noisy *noisy, const fm_af3_diffusion_weights *w,
                                       fm_af3_again again) {
    const fm_af3_levels *levels = noisy->levels;
    const fm_af3_prepared *prepared = noisy->prepared;
    const bool made = prepared->has_modulation;
    fm_tensor_ref s = FM_TENSOR_NONE;
    if (!made) s = fm_af3_condition_single(tape, noisy->trunk, levels, &w->conditioning);
    fm_tape_enter_island(tape);
    fm_tensor_ref r = fm_op_scale_groups(tape, "noisy positions", noisy->x, levels->in);
    fm_tape_leave_island(tape);
    fm_af3_atom_context context = prepared->atoms;
    if (prepared->has_bias) {
        context.encoder_bias = prepared->encoder_bias;
        context.decoder_bias = prepared->decoder_bias;
    }
    if (made) {
        context.encoder = prepared->encoder;
        context.decoder = prepared->decoder;
    }
    fm_af3_encoded encoded =
        fm_af3_atom_encoder(tape, noisy->atoms, context, r, &w->encoder, again.encoder);
    fm_tensor_ref single =
        made ? prepared->single : norm_linear(tape, ADDED_SINGLE, s, w->norm_s, &w->s);
    fm_tensor_ref a = fm_op_add(tape, "diffusion tokens", encoded.a, single);
    const fm_af3_block_inputs in = {.bias = prepared->has_bias ? prepared->bias : NULL,
                                    .made = made ? prepared->block : NULL,
                                    .z = prepared->z,
                                    .groups = groups};
    a = fm_af3_diffusion_transformer(tape, a, s, &in, noisy->mask, w->block, w->n_block,
                                     again.diffusion);
    encoded.a = fm_op_layer_norm(tape, "diffusion tokens", a, w->norm_a, FM_NORM_SCALE);
    fm_tensor_ref update =
        fm_af3_atom_decoder(tape, noisy->atoms, context, encoded, &w->decoder, again.decoder);
    fm_tape_enter_island(tape);
    fm_tensor_ref kept = fm_op_scale_groups(tape, "denoised positions", noisy->x, levels->skip);
    update = fm_op_scale_groups(tape, "denoised positions", update, levels->out);
    fm_tensor_ref x = fm_op_add(tape, "denoised positions", kept, update);
    fm_tape_leave_island(tape);
    return x;
}
