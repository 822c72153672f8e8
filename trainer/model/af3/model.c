/* model.c: see model.h. */
#include "trainer/model/af3/model.h"

#include "trainer/backend/normal.h"
#include "trainer/model/af3/island.h"
#include "trainer/ops/cast.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/reshape.h"
#include "trainer/ops/store.h"
#include "trainer/ops/windows.h"

#include <assert.h>
#include <stdlib.h>

/* -- parameters */

void fm_af3_add_parameters(fm_params *params, fm_arena *arena, const fm_af3_config *config,
                           fm_af3_weights *ret_weights) {
    const fm_scope root = {
        .params = params, .arena = arena, .name = "", .openfold = "", .deepmind_layer = -1};
    fm_scope input = fm_af3_enter(&root, "input_embedder.atom_attention_encoder."),
             diffusion = fm_af3_enter(&root, "diffusion_module."),
             confidence = fm_af3_enter(&root, "confidence_head.");
    fm_af3_atom_encoder_add(&input, config, config->c_token_in, config->n_input_atom_block, false,
                            &ret_weights->input);
    fm_af3_trunk_parameters(&root, config, &ret_weights->trunk);
    fm_af3_diffusion_add(&diffusion, config, &ret_weights->diffusion);
    ret_weights->confidence_at = params->n_block;
    fm_af3_confidence_add(&confidence, config, &ret_weights->confidence);
    fm_scope fourier = fm_af3_enter(&diffusion, "diffusion_conditioning.fourier_embedding.");
    fm_params_begin_constants(params);
    ret_weights->fourier_w = fm_af3_add_block(&fourier, "w", config->c_noise, 0, FM_AF3_ZERO);
    ret_weights->fourier_b = fm_af3_add_block(&fourier, "b", config->c_noise, 0, FM_AF3_ZERO);
}

/* Writes standard normal numbers to a row, in its values and in their average. */
static fm_status draw_normal(fm_params *params, const fm_param *row, const fm_draw *draw,
                             fm_error *reterr) {
    int64_t n = fm_param_count(row);
    size_t size = fm_element_bytes(params->element), bytes = (size_t)n * size;
    void *host = malloc(bytes + 1);
    if (!host) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the Fourier embedding");
    for (int64_t i = 0; i < n; i++) {
        double pair[2];
        fm_normal_pair(&fm_draw_block(draw, (uint64_t)i).word[i & 2], pair);
        if (params->element == FM_ELEMENT_F64) {
            ((double *)host)[i] = pair[i & 1];
        } else {
            ((float *)host)[i] = (float)pair[i & 1];
        }
    }
    void *const flat[] = {params->master, params->ema};
    for (int k = 0; k < 2; k++) {
        if (!flat[k]) continue;
        params->kernels->upload(NULL, fm_params_at(params, flat[k], row->offset), host, bytes);
    }
    params->kernels->synchronize(NULL);
    free(host);
    return FM_OK;
}

fm_status fm_af3_draw_parameters(fm_params *params, uint64_t seed, fm_error *reterr) {
    fm_params_draw(params, seed);
    fm_status status = FM_OK;
    uint32_t n_constant = 0;
    for (int32_t p = 0; p < params->n_param && !status; p++) {
        const fm_draw draw = {.seed = seed, .layer = n_constant, .purpose = FM_PURPOSE_CONSTANT};
        if (params->param[p].offset < fm_params_trained(params)) continue;
        status = draw_normal(params, &params->param[p], &draw, reterr);
        n_constant++;
    }
    fm_params_refresh_copy(params);
    return status;
}

void fm_af3_queue_constants(const fm_params *params, const fm_af3_weights *weights,
                            const fm_state *state, const fm_af3_inputs *inputs, fm_stream *stream) {
    const struct {
        fm_param_ref from;
        int32_t to;
    } constants[] = {{weights->fourier_w, inputs->fourier_w},
                     {weights->fourier_b, inputs->fourier_b}};
    const fm_kernels *wide = params->kernels->wide ? params->kernels->wide : params->kernels;
    for (int i = 0; i < 2; i++) {
        const fm_param_block *from = &params->block[constants[i].from];
        wide->cast(stream, from->count, params->element,
                   fm_params_at(params, params->master, from->offset),
                   fm_state_data(state, constants[i].to));
    }
}

/* -- products */

fm_status fm_af3_check_products(const fm_af3_config *config, const fm_kernels *kernels,
                                fm_error *reterr) {
    if (config->products == FM_AF3_PRODUCTS_BF16 && !kernels->wide) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "[af3] diffusion_products = bf16: the activations of %s are not bf16",
                       kernels->name);
    }
    if (config->products == FM_AF3_PRODUCTS_TF32 && !kernels->tf32) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "[af3] diffusion_products = tf32: %s has no such products", kernels->name);
    }
    return FM_OK;
}

/* -- the state */

static fm_af3_structures declare_structures(fm_state *state, const fm_af3_config *c,
                                            const fm_kernels *kernels, int64_t n_sample) {
    fm_element acc = kernels->acc, element = fm_af3_diffusion_table(c, kernels)->act;
    const int64_t atoms[] = {n_sample, c->n_atom, 3}, tokens[] = {n_sample, c->n_token};
    return (fm_af3_structures){.x = fm_state_add(state, "noisy positions", acc, 3, atoms),
                               .in = fm_state_add(state, "factor in", acc, 1, &n_sample),
                               .skip = fm_state_add(state, "factor skip", acc, 1, &n_sample),
                               .out = fm_state_add(state, "factor out", acc, 1, &n_sample),
                               .log = fm_state_add(state, "log of noise", acc, 1, &n_sample),
                               .mask = fm_state_add(state, "token masks", element, 2, tokens)};
}

static void declare_atoms(fm_state *state, const fm_af3_config *c, fm_element acc,
                          fm_af3_inputs *in) {
    const int64_t n = c->n_atom, first = c->n_token + 1;
    const int64_t points[] = {n, 3}, columns[] = {n, 1}, classes[] = {FM_ATOM_CLASSES, n};
    in->atom_token = fm_state_add(state, "token of atom", FM_ELEMENT_I32, 1, &n);
    in->first_atom = fm_state_add(state, "first atom", FM_ELEMENT_I32, 1, &first);
    in->atom_position = fm_state_add(state, "reference positions", acc, 2, points);
    in->atom_charge = fm_state_add(state, "charges", acc, 2, columns);
    in->atom_has_reference = fm_state_add(state, "reference mask", acc, 1, &n);
    in->atom_classes = fm_state_add(state, "atom classes", FM_ELEMENT_U8, 2, classes);
    in->position = fm_state_add(state, "positions", FM_ELEMENT_F32, 2, points);
    in->space = fm_state_add(state, "reference space", FM_ELEMENT_I32, 1, &n);
    in->atom_mask = fm_state_add(state, "atom mask", acc, 1, &n);
}

static void declare_results(fm_state *state, const fm_af3_config *c, const fm_kernels *kernels,
                            fm_af3_inputs *in) {
    fm_element act = kernels->act, element = fm_af3_diffusion_table(c, kernels)->act;
    const int64_t n = c->n_token, single[] = {1, n, c->c_s}, rows[] = {n, c->c_s};
    const int64_t pair[] = {n, n, c->c_z}, inputs[] = {n, fm_af3_config_s_inputs(c)};
    const int64_t bias[] = {n, n, c->n_head_token};
    const int64_t atoms[] = {c->n_atom, c->c_atom};
    const int64_t windows[] = {fm_windows_count(c->n_atom), FM_WINDOW_QUERIES, FM_WINDOW_KEYS,
                               c->n_head_atom};
    in->previous_s = fm_state_add(state, "previous s", act, 3, single);
    in->previous_z = fm_state_add(state, "previous z", act, 3, pair);
    in->s_inputs = fm_state_add(state, "s inputs", act, 2, inputs);
    in->s = fm_state_add(state, "s", act, 2, rows);
    in->z = c->n_sample > 0 ? fm_state_add(state, "z", act, 3, pair) : in->previous_z;
    in->prepared_c = fm_state_add(state, "atom conditioning", element, 2, atoms);
    for (int32_t i = 0; i < c->n_atom_block; i++) {
        in->prepared_encoder_bias[i] = fm_state_add(state, "encoder bias", element, 4, windows);
        in->prepared_decoder_bias[i] = fm_state_add(state, "decoder bias", element, 4, windows);
    }
    for (int32_t i = 0; i < c->n_diffusion_block; i++)
        in->prepared_bias[i] = fm_state_add(state, "attention bias", element, 3, bias);
    const int64_t rows_of_slots = c->max_atoms_per_token * n;
    in->representative = fm_state_add(state, "representative atoms", FM_ELEMENT_I32, 1, &n);
    in->slot_row = fm_state_add(state, "slot of atom", FM_ELEMENT_I32, 1, &c->n_atom);
    in->atom_of_row = fm_state_add(state, "atom of slot", FM_ELEMENT_I32, 1, &rows_of_slots);
}

void fm_af3_declare_inputs(fm_state *state, const fm_af3_config *c, const fm_kernels *kernels,
                           fm_af3_inputs *ret_inputs) {
    fm_element act = kernels->act;
    const int64_t n = c->n_token, relative[] = {FM_RELATIVE_KINDS, n, n}, bonds[] = {n, n, 1};
    const int64_t templates[] = {c->n_template, n, n, FM_AF3_TEMPLATE_PAIR};
    const int64_t msa[] = {c->n_msa, n, FM_AF3_MSA_FEATURES}, single[] = {1, n};
    const int64_t features[] = {n, FM_AF3_TOKEN_FEATURES};
    *ret_inputs = (fm_af3_inputs){.templates = -1};
    ret_inputs->relative = fm_state_add(state, "relative positions", FM_ELEMENT_U8, 3, relative);
    ret_inputs->bonds = fm_state_add(state, "token bonds", act, 3, bonds);
    if (c->n_template) ret_inputs->templates = fm_state_add(state, "templates", act, 4, templates);
    ret_inputs->msa = fm_state_add(state, "msa features", act, 3, msa);
    ret_inputs->token_features = fm_state_add(state, "token features", act, 2, features);
    ret_inputs->mask_single = fm_state_add(state, "token mask", act, 2, single);
    ret_inputs->mask_pair = fm_state_add(state, "pair mask", act, 2, bonds);
    ret_inputs->mask_msa = fm_state_add(state, "msa mask", act, 2, msa);
    ret_inputs->fourier_w = fm_state_add(state, "fourier w", kernels->acc, 1, &c->c_noise);
    ret_inputs->fourier_b = fm_state_add(state, "fourier b", kernels->acc, 1, &c->c_noise);
    declare_atoms(state, c, kernels->acc, ret_inputs);
    declare_results(state, c, kernels, ret_inputs);
    const int64_t n_sample = fm_af3_split_samples(c);
    if (n_sample > 0) ret_inputs->training = declare_structures(state, c, kernels, n_sample);
}

fm_af3_atoms fm_af3_atoms_of(fm_tape *tape, const fm_af3_config *config, const fm_af3_inputs *in) {
    fm_tensor_ref mask = fm_tape_state(tape, in->atom_mask, false);
    return (fm_af3_atoms){.map = {.token = fm_tape_state(tape, in->atom_token, false),
                                  .first = fm_tape_state(tape, in->first_atom, false),
                                  .n_atom = config->n_atom,
                                  .n_token = config->n_token},
                          .features = {.position = fm_tape_state(tape, in->atom_position, false),
                                       .charge = fm_tape_state(tape, in->atom_charge, false),
                                       .mask = fm_tape_state(tape, in->atom_has_reference, false),
                                       .classes = fm_tape_state(tape, in->atom_classes, false)},
                          .position = fm_tape_state(tape, in->position, false),
                          .space = fm_tape_state(tape, in->space, false),
                          .mask = fm_op_cast(tape, "atom mask", mask)};
}

/* -- the passes */

/* How many of blocks `first` to `end` - 1 of a stack, the first ones, backward runs again. */
static int32_t again(const fm_af3_config *config, int32_t stack, int32_t first, int32_t end) {
    int32_t i = first;
    while (i < end && fm_af3_config_policy(config, stack, i) == FM_RECOMPUTE_BLOCK)
        i++;
    return i - first;
}

static fm_af3_masks masks_of(fm_tape *tape, const fm_af3_inputs *in) {
    return (fm_af3_masks){.single = fm_tape_state(tape, in->mask_single, false),
                          .pair = fm_tape_state(tape, in->mask_pair, false),
                          .msa = fm_tape_state(tape, in->mask_msa, false)};
}

/* Input embedder and trunk. */
static fm_af3_trunk_output record_trunk(fm_tape *tape, const fm_af3_config *config,
                                        const fm_af3_weights *w, const fm_af3_inputs *in) {
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    const fm_af3_trunk_inputs inputs = {
        .relative = fm_tape_state(tape, in->relative, false),
        .bonds = fm_tape_state(tape, in->bonds, false),
        .templates = in->templates < 0 ? FM_TENSOR_NONE : fm_tape_state(tape, in->templates, false),
        .msa = fm_tape_state(tape, in->msa, false),
        .previous_s = fm_tape_state(tape, in->previous_s, false),
        .previous_z = fm_tape_state(tape, in->previous_z, false),
        .masks = masks_of(tape, in)};
    fm_tensor_ref features = fm_tape_state(tape, in->token_features, false);
    fm_tensor_ref s_inputs =
        fm_af3_input_embedder(tape, &atoms, features, &w->input,
                              again(config, FM_AF3_STACK_INPUT, 0, config->n_input_atom_block));
    fm_af3_pair_of x =
        fm_af3_trunk(tape, config, &w->trunk, &inputs, fm_op_lift(tape, "single inputs", s_inputs));
    return (fm_af3_trunk_output){.s_inputs = s_inputs,
                                 .s = fm_op_lower(tape, "single", x.s),
                                 .z = x.z,
                                 .relative = inputs.relative};
}

static void store(fm_tape *tape, const char *name, fm_tensor_ref x, int32_t to) {
    fm_op_store(tape, name, x, fm_tape_state(tape, to, false));
}

void fm_af3_record_cycle(fm_tape *tape, const fm_af3_config *config, const fm_af3_weights *w,
                         const fm_af3_inputs *in) {
    fm_af3_trunk_output trunk = record_trunk(tape, config, w, in);
    store(tape, "recycled s", trunk.s, in->previous_s);
    store(tape, "recycled z", fm_af3_split_gather(tape, config->groups, "recycled z", trunk.z),
          in->previous_z);
}

void fm_af3_record_any_cycle(fm_tape *tape, const fm_af3_config *config, const fm_af3_weights *w,
                             const fm_af3_inputs *in) {
    assert(in->z == in->previous_z);
    fm_af3_trunk_output trunk = record_trunk(tape, config, w, in);
    store(tape, "s inputs", trunk.s_inputs, in->s_inputs);
    store(tape, "recycled s", trunk.s, in->previous_s);
    store(tape, "s", trunk.s, in->s);
    store(tape, "z", fm_af3_split_gather(tape, config->groups, "z", trunk.z), in->z);
}

fm_tensor_ref fm_af3_record_distogram(fm_tape *tape, const fm_af3_config *config,
                                      const fm_af3_weights *w, const fm_af3_inputs *in) {
    fm_tensor_ref z =
        fm_af3_split_rows(tape, config->groups, "z", fm_tape_state(tape, in->z, false));
    return fm_af3_distogram(tape, config->groups, &w->trunk.distogram, z);
}

/* This rank's part of a tensor of the structures. */
static fm_tensor_ref of_rank(fm_tape *tape, const fm_af3_config *config, int32_t tensor) {
    return fm_af3_split_rows(tape, config->groups, "structures",
                             fm_tape_state(tape, tensor, false));
}

static fm_af3_levels levels_of(fm_tape *tape, const fm_af3_config *config, const fm_af3_inputs *in,
                               const fm_af3_structures *structures) {
    return (fm_af3_levels){.in = of_rank(tape, config, structures->in),
                           .skip = of_rank(tape, config, structures->skip),
                           .out = of_rank(tape, config, structures->out),
                           .log = of_rank(tape, config, structures->log),
                           .fourier_w = fm_tape_state(tape, in->fourier_w, false),
                           .fourier_b = fm_tape_state(tape, in->fourier_b, false)};
}

/* Denoises the training structures, of which each rank has some. The result is an island's. */
static fm_tensor_ref denoise(fm_tape *tape, const fm_af3_config *config, const fm_af3_weights *w,
                             const fm_af3_inputs *in, const fm_af3_trunk_output *trunk,
                             const fm_af3_prepared *prepared) {
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    fm_tensor_ref mask = of_rank(tape, config, in->training.mask);
    fm_tape_enter_island(tape);
    fm_af3_levels levels = levels_of(tape, config, in, &in->training);
    fm_tensor_ref x = of_rank(tape, config, in->training.x);
    fm_tape_leave_island(tape);
    const int32_t n = config->n_atom_block;
    const fm_af3_again blocks = {
        .encoder = again(config, FM_AF3_STACK_ATOM, 0, n),
        .diffusion = again(config, FM_AF3_STACK_DIFFUSION, 0, config->n_diffusion_block),
        .decoder = again(config, FM_AF3_STACK_ATOM, n, 2 * n)};
    const fm_af3_noisy noisy = {.atoms = &atoms,
                                .trunk = trunk,
                                .prepared = prepared,
                                .x = x,
                                .levels = &levels,
                                .mask = mask};
    x = fm_af3_diffusion_denoise(tape, config->groups, &noisy, &w->diffusion, blocks);
    fm_tape_enter_island(tape);
    x = fm_af3_split_gather(tape, config->groups, "structures", x);
    x = fm_dap_trim(tape, "structures", x, config->n_sample);
    fm_tape_leave_island(tape);
    return x;
}

/* Begins the diffusion module, which ends with fm_tape_leave_island. Returns the trunk's results in
 * the type of its activations. On a tape that works in slabs z keeps its type: each slab casts its
 * own part. */
static fm_af3_trunk_output begin_diffusion(fm_tape *tape, const fm_af3_config *config,
                                           const fm_af3_trunk_output *trunk) {
    fm_tape_enter_table(tape, fm_af3_diffusion_table(config, tape->main_kernels));
    return (fm_af3_trunk_output){.s_inputs = fm_op_cast(tape, "single inputs", trunk->s_inputs),
                                 .s = fm_op_cast(tape, "single", trunk->s),
                                 .z = tape->chunk_bytes > 0 ? trunk->z
                                                            : fm_op_cast(tape, "pairs", trunk->z),
                                 .relative = trunk->relative};
}

fm_af3_outputs fm_af3_record_last(fm_tape *tape, const fm_af3_config *config, int64_t room_bytes,
                                  const fm_af3_weights *w, const fm_af3_inputs *in) {
    fm_af3_trunk_output trunk = record_trunk(tape, config, w, in);
    store(tape, "s inputs", trunk.s_inputs, in->s_inputs);
    store(tape, "s", trunk.s, in->s);
    fm_tensor_ref z = fm_af3_split_gather(tape, config->groups, "z", trunk.z);
    store(tape, "z", z, in->z);
    fm_af3_outputs out = {.s_inputs = trunk.s_inputs,
                          .s = trunk.s,
                          .z = z,
                          .trunk_end = fm_tape_add_room(tape, "rollout", room_bytes)};
    out.distogram = fm_af3_distogram(tape, config->groups, &w->trunk.distogram, trunk.z);
    trunk = begin_diffusion(tape, config, &trunk);
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    fm_af3_prepared prepared =
        fm_af3_diffusion_prepare(tape, config->groups, &atoms, &trunk, &w->diffusion);
    out.x_denoised = denoise(tape, config, w, in, &trunk, &prepared);
    fm_tape_leave_island(tape);
    return out;
}

fm_af3_trunk_output fm_af3_stored_trunk(fm_tape *tape, const fm_af3_inputs *in) {
    return (fm_af3_trunk_output){.s_inputs = fm_tape_state(tape, in->s_inputs, false),
                                 .s = fm_tape_state(tape, in->s, false),
                                 .z = FM_TENSOR_NONE,
                                 .relative = fm_tape_state(tape, in->relative, false)};
}

/* The same with this rank's rows of z. */
static fm_af3_trunk_output stored_trunk_with_pairs(fm_tape *tape, const fm_af3_config *config,
                                                   const fm_af3_inputs *in) {
    fm_af3_trunk_output trunk = fm_af3_stored_trunk(tape, in);
    trunk.z = fm_af3_split_rows(tape, config->groups, "z", fm_tape_state(tape, in->z, false));
    return trunk;
}

fm_af3_trunk_output fm_af3_begin_stored_diffusion(fm_tape *tape, const fm_af3_config *config,
                                                  const fm_af3_inputs *in) {
    fm_af3_trunk_output trunk = fm_af3_stored_trunk(tape, in);
    return begin_diffusion(tape, config, &trunk);
}

void fm_af3_record_prepare(fm_tape *tape, const fm_af3_config *config, const fm_af3_weights *w,
                           const fm_af3_inputs *in) {
    fm_af3_trunk_output trunk = stored_trunk_with_pairs(tape, config, in);
    trunk = begin_diffusion(tape, config, &trunk);
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    fm_af3_prepared prepared =
        fm_af3_diffusion_prepare(tape, config->groups, &atoms, &trunk, &w->diffusion);
    store(tape, "atom conditioning", prepared.atoms.c, in->prepared_c);
    for (int32_t i = 0; i < config->n_atom_block; i++) {
        store(tape, "window bias",
              fm_af3_window_bias(tape, prepared.atoms.p, &w->diffusion.encoder.block[i].attention),
              in->prepared_encoder_bias[i]);
        store(tape, "window bias",
              fm_af3_window_bias(tape, prepared.atoms.p, &w->diffusion.decoder.block[i].attention),
              in->prepared_decoder_bias[i]);
    }
    for (int32_t i = 0; i < config->n_diffusion_block; i++)
        store(tape, "attention bias",
              fm_af3_pair_bias(tape, config->groups, prepared.z, &w->diffusion.block[i].attention),
              in->prepared_bias[i]);
    fm_tape_leave_island(tape);
}

fm_af3_prepared fm_af3_stored_prepared(fm_tape *tape, const fm_af3_config *config,
                                       const fm_af3_inputs *in) {
    fm_af3_prepared prepared = {
        .z = FM_TENSOR_NONE,
        .atoms = {.c = fm_tape_state(tape, in->prepared_c, false), .p = FM_TENSOR_NONE},
        .has_bias = true};
    for (int32_t i = 0; i < config->n_diffusion_block; i++)
        prepared.bias[i] = fm_tape_state(tape, in->prepared_bias[i], false);
    for (int32_t i = 0; i < config->n_atom_block; i++) {
        prepared.encoder_bias[i] = fm_tape_state(tape, in->prepared_encoder_bias[i], false);
        prepared.decoder_bias[i] = fm_tape_state(tape, in->prepared_decoder_bias[i], false);
    }
    return prepared;
}

fm_af3_confidence_logits fm_af3_record_confidence(fm_tape *tape, const fm_af3_config *config,
                                                  const fm_af3_weights *w, const fm_af3_inputs *in,
                                                  int32_t structure) {
    fm_af3_trunk_output trunk = stored_trunk_with_pairs(tape, config, in);
    const fm_af3_confidence_inputs inputs = {
        .s_inputs = trunk.s_inputs,
        .s = trunk.s,
        .z = trunk.z,
        .structure = fm_tape_state(tape, structure, false),
        .representative = fm_tape_state(tape, in->representative, false),
        .slot_row = fm_tape_state(tape, in->slot_row, false),
        .atom_of_row = fm_tape_state(tape, in->atom_of_row, false),
        .masks = masks_of(tape, in)};
    return fm_af3_confidence(tape, config, &w->confidence, &inputs);
}
