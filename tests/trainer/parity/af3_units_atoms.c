/* af3_units_atoms.c: the units of AlphaFold 3's atoms and of its diffusion module; see
 * af3_unit.h. */
#include "tests/trainer/parity/af3_unit.h"

#include "trainer/model/af3/diffusion.h"
#include "trainer/ops/fourier.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/windows.h"

#include <math.h>
#include <stdio.h>

/* -- sizes */

static int64_t extent_below(const af3_unit *u, const char *prefix, const char *name, int axis) {
    char key[256];
    snprintf(key, sizeof key, "w.%s%s", prefix, name);
    return unit_extent(u, key, axis);
}

/* Blocks of a stack: how many of NAME.I.SUFFIX there are. */
static int32_t count_blocks(const af3_unit *u, const char *prefix) {
    for (int32_t i = 0;; i++) {
        char key[256];
        snprintf(key, sizeof key, "w.%s.%d.attention_pair_bias.linear_nobias_z.weight", prefix,
                 (int)i);
        if (!fm_npz_find(u->file, key)) return i;
    }
}

static const char ATOM_BLOCKS[] = "atom_transformer.diffusion_transformer.blocks";

/* The sizes of the atoms' modules below `prefix`. */
static void read_atom_sizes(const af3_unit *u, const char *prefix, fm_af3_config *config) {
    char blocks[256], bias[320];
    snprintf(blocks, sizeof blocks, "%s%s", prefix, ATOM_BLOCKS);
    snprintf(bias, sizeof bias, "w.%s.0.attention_pair_bias.linear_nobias_z.weight", blocks);
    config->n_atom_block = config->n_input_atom_block = count_blocks(u, blocks);
    config->n_head_atom = unit_extent(u, bias, 0);
    config->c_atompair = unit_extent(u, bias, 1);
    snprintf(bias, sizeof bias, "w.%s.0.attention_pair_bias.attention.linear_q.weight", blocks);
    config->c_atom = unit_extent(u, bias, 0);
}

/* -- features of atoms */

/* The class of a one-hot row; 255 if all are 0. */
static double class_of(const fm_npy *array, int64_t first, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        if (unit_value(array, first + i) != 0) return (double)i;
    }
    return 255;
}

static fm_atom_map atom_map(af3_unit *u, int64_t n_token) {
    const fm_npy *index = unit_array(u, "in.atom_to_token_idx");
    int64_t n = (int64_t)index->count;
    double *token = unit_numbers(u, n), *first = unit_numbers(u, n_token + 1);
    for (int64_t l = 0; l < n; l++)
        token[l] = unit_value(index, l);
    for (int64_t t = 0, l = 0; t <= n_token; t++) {
        while (l < n && token[l] < (double)t)
            l++;
        first[t] = (double)l;
    }
    return (fm_atom_map){unit_made(u, FM_ELEMENT_I32, 1, &n, token),
                         unit_made(u, FM_ELEMENT_I32, 1, (int64_t[]){n_token + 1}, first), n,
                         n_token};
}

static fm_tensor_ref classes_input(af3_unit *u, int64_t n) {
    const fm_npy *element = unit_array(u, "in.ref_element");
    const fm_npy *chars = unit_array(u, "in.ref_atom_name_chars");
    double *classes = unit_numbers(u, FM_ATOM_CLASSES * n);
    for (int64_t l = 0; l < n; l++) {
        classes[l] = 0;
        classes[n + l] = class_of(element, l * FM_ATOM_ELEMENTS, FM_ATOM_ELEMENTS);
        for (int64_t k = 0; k < 4; k++)
            classes[(2 + k) * n + l] =
                class_of(chars, (l * 4 + k) * FM_ATOM_CHARACTERS, FM_ATOM_CHARACTERS);
    }
    return unit_made(u, FM_ELEMENT_U8, 2, (int64_t[]){FM_ATOM_CLASSES, n}, classes);
}

static fm_af3_atoms atoms_input(af3_unit *u, int64_t n_token) {
    fm_af3_atoms atoms = {.map = atom_map(u, n_token)};
    int64_t n = atoms.map.n_atom;
    const fm_npy *charge = unit_array(u, "in.ref_charge");
    double *squashed = unit_numbers(u, n);
    for (int64_t l = 0; l < n; l++)
        squashed[l] = asinh(unit_value(charge, l));
    atoms.features.position = unit_input(u, "ref_pos");
    atoms.features.charge = unit_made(u, u->kernels->act, 2, (int64_t[]){n, 1}, squashed);
    atoms.features.mask = unit_input(u, "ref_mask");
    atoms.features.classes = classes_input(u, n);
    atoms.position = unit_input_as(u, "ref_pos", FM_ELEMENT_F32, 2, (int64_t[]){n, 3});
    atoms.space = unit_input_as(u, "ref_space_uid", FM_ELEMENT_I32, 1, &n);
    atoms.mask = unit_ones(u, 1, &n);
    return atoms;
}

/* 1 for every pair in windows that has both atoms, for each of c channels. */
static const double *inside(af3_unit *u, int64_t n_atom, int64_t c) {
    int64_t n_window = fm_windows_count(n_atom);
    double *known = unit_numbers(u, n_window * FM_WINDOW_QUERIES * FM_WINDOW_KEYS * c);
    int64_t at = 0;
    for (int64_t b = 0; b < n_window; b++)
        for (int64_t q = 0; q < FM_WINDOW_QUERIES; q++)
            for (int64_t k = 0; k < FM_WINDOW_KEYS; k++) {
                int64_t query = b * FM_WINDOW_QUERIES + q;
                int64_t key = b * FM_WINDOW_QUERIES - FM_WINDOW_BEFORE + k;
                bool is = query < n_atom && key >= 0 && key < n_atom;
                for (int64_t i = 0; i < c; i++)
                    known[at++] = is;
            }
    return known;
}

/* in.NAME of shape [1, ..] or [..] as an act tensor of this shape. */
static fm_tensor_ref input_shaped(af3_unit *u, const char *name, int rank, const int64_t *shape) {
    return unit_input_as(u, name, u->kernels->act, rank, shape);
}

/* -- conditioned sublayers */

static void record_adaln(af3_unit *u) {
    fm_tensor_ref a = unit_input(u, "a"), s = unit_input(u, "s");
    fm_adaln_weights w =
        fm_af3_adaln_weights(&u->scope, unit_extent(u, "in.a", 2), unit_extent(u, "in.s", 2));
    unit_output(u, fm_op_adaln(&u->tape, "adaln", a, s, &w));
}

static void record_transition(af3_unit *u) {
    fm_tensor_ref a = unit_input(u, "a"), s = unit_input(u, "s");
    int64_t c = unit_extent(u, "in.a", 2);
    fm_conditioned_transition_weights w =
        fm_af3_conditioned_transition_weights(&u->scope, c, unit_extent(u, "in.s", 2),
                                              unit_extent(u, "w.linear_nobias_a1.weight", 0) / c);
    unit_output(u, fm_af3_conditioned_transition(&u->tape, a, s, &w, false));
}

static fm_tensor_ref pairs_input(af3_unit *u) {
    int64_t n = unit_extent(u, "in.z", 2);
    return input_shaped(u, "z", 3, (int64_t[]){n, n, unit_extent(u, "in.z", 3)});
}

static void record_attention(af3_unit *u) {
    fm_tensor_ref a = unit_input(u, "a"), s = unit_input(u, "s"), z = pairs_input(u);
    fm_conditioned_attention_weights w = fm_af3_conditioned_attention_weights(
        &u->scope, unit_extent(u, "in.a", 2), unit_extent(u, "in.s", 2), unit_extent(u, "in.z", 3),
        unit_extent(u, "w.linear_nobias_z.weight", 0), false);
    fm_tensor_ref bias = fm_af3_pair_bias(&u->tape, NULL, z, &w);
    unit_output(u, fm_af3_conditioned_attention(&u->tape, a, s, bias, FM_TENSOR_NONE, &w, false));
}

/* A block of the diffusion transformer: the factor of its transition is that of its arrays. */
static fm_conditioned_block_weights block_weights(af3_unit *u, int64_t c, int64_t c_s, int64_t c_z,
                                                  bool of_atoms) {
    int64_t n_head = unit_extent(u, "w.attention_pair_bias.linear_nobias_z.weight", 0);
    int64_t hidden = unit_extent(u, "w.conditioned_transition_block.linear_nobias_a1.weight", 0);
    return fm_af3_conditioned_block_weights(&u->scope, c, c_s, c_z, n_head, hidden / c, of_atoms);
}

static void record_diffusion_block(af3_unit *u) {
    fm_tensor_ref a = unit_input(u, "a"), s = unit_input(u, "s"), z = pairs_input(u);
    fm_conditioned_block_weights w = block_weights(
        u, unit_extent(u, "in.a", 2), unit_extent(u, "in.s", 2), unit_extent(u, "in.z", 3), false);
    const fm_af3_block_inputs pairs = {.z = z};
    unit_output(u, fm_af3_diffusion_transformer(&u->tape, a, s, &pairs, FM_TENSOR_NONE, &w, 1, 0));
}

static void record_atom_block(af3_unit *u) {
    int64_t n = unit_extent(u, "in.q", 0), c = unit_extent(u, "in.q", 1);
    fm_tensor_ref q = input_shaped(u, "q", 3, (int64_t[]){1, n, c});
    fm_tensor_ref conditioning = unit_input(u, "c"), p = unit_input(u, "p");
    fm_conditioned_block_weights w = block_weights(u, c, c, unit_extent(u, "in.p", 3), true);
    unit_output(u,
                fm_af3_atom_transformer(&u->tape, q, conditioning, &(fm_af3_block_inputs){.z = p},
                                        unit_ones(u, 1, &n), &w, 1, 1));
}

/* -- encoder and decoder */

static void record_encoder(af3_unit *u) {
    int64_t n_token = unit_extent(u, "in.s", 1);
    fm_af3_atoms atoms = atoms_input(u, n_token);
    fm_af3_config config = fm_af3_config_initial();
    read_atom_sizes(u, "", &config);
    config.c_s = unit_extent(u, "in.s", 2);
    config.c_z = unit_extent(u, "in.z", 3);
    fm_tensor_ref r = unit_input(u, "r"), z = pairs_input(u);
    fm_tensor_ref s = input_shaped(u, "s", 2, (int64_t[]){n_token, config.c_s});
    static fm_af3_atom_encoder_weights w;
    fm_af3_atom_encoder_add(&u->scope, &config, unit_extent(u, "w.linear_no_bias_q.weight", 0),
                            config.n_atom_block, true, &w);
    fm_af3_atom_context context = fm_af3_atom_context_of(&u->tape, NULL, &atoms, s, z, &w);
    fm_af3_encoded encoded =
        fm_af3_atom_encoder(&u->tape, &atoms, context, r, &w, config.n_atom_block);
    unit_output(u, encoded.a);
    unit_output(u, encoded.q);
    unit_output(u, context.c);
    unit_output(u, context.p);
    u->output[3].count = inside(u, atoms.map.n_atom, config.c_atompair);
}

static void record_decoder(af3_unit *u) {
    fm_af3_config config = fm_af3_config_initial();
    read_atom_sizes(u, "", &config);
    config.c_token = unit_extent(u, "in.a", 2);
    fm_af3_atoms atoms = {.map = atom_map(u, unit_extent(u, "in.a", 1))};
    int64_t n = atoms.map.n_atom;
    atoms.mask = unit_ones(u, 1, &n);
    fm_af3_encoded encoded = {unit_input(u, "a"), unit_input(u, "q")};
    fm_tensor_ref c = input_shaped(u, "c", 2, (int64_t[]){n, config.c_atom});
    fm_tensor_ref p = input_shaped(
        u, "p", 4,
        (int64_t[]){fm_windows_count(n), FM_WINDOW_QUERIES, FM_WINDOW_KEYS, config.c_atompair});
    const fm_af3_atom_context context = {.c = c, .p = p};
    static fm_af3_atom_decoder_weights w;
    fm_af3_atom_decoder_add(&u->scope, &config, &w);
    unit_output(u,
                fm_af3_atom_decoder(&u->tape, &atoms, context, encoded, &w, config.n_atom_block));
}

static void record_input_embedder(af3_unit *u) {
    int64_t n_token = unit_extent(u, "in.restype", 0);
    fm_af3_atoms atoms = atoms_input(u, n_token);
    fm_af3_config config = fm_af3_config_initial();
    read_atom_sizes(u, "atom_attention_encoder.", &config);
    double *features = unit_numbers(u, n_token * FM_AF3_TOKEN_FEATURES), *to = features;
    for (int64_t i = 0; i < n_token; i++) {
        for (int64_t k = 0; k < FM_AF3_RESTYPES; k++)
            *to++ = unit_value(unit_array(u, "in.restype"), i * FM_AF3_RESTYPES + k);
        for (int64_t k = 0; k < FM_AF3_RESTYPES; k++)
            *to++ = unit_value(unit_array(u, "in.profile"), i * FM_AF3_RESTYPES + k);
        *to++ = unit_value(unit_array(u, "in.deletion_mean"), i);
    }
    fm_tensor_ref tokens =
        unit_made(u, u->kernels->act, 2, (int64_t[]){n_token, FM_AF3_TOKEN_FEATURES}, features);
    static fm_af3_atom_encoder_weights w;
    fm_scope scope = fm_af3_enter(&u->scope, "atom_attention_encoder.");
    fm_af3_atom_encoder_add(
        &scope, &config, extent_below(u, "atom_attention_encoder.", "linear_no_bias_q.weight", 0),
        config.n_input_atom_block, false, &w);
    unit_output(u, fm_af3_input_embedder(&u->tape, &atoms, tokens, &w, config.n_input_atom_block));
}

/* -- conditioning and the whole module */

/* Levels of in.t_hat, and the embedding of the scope `prefix`. */
static fm_af3_levels levels_input(af3_unit *u, const char *prefix) {
    const double sigma_data = 16;
    const fm_npy *t = unit_array(u, "in.t_hat");
    int64_t n = (int64_t)t->count;
    fm_af3_levels levels;
    fm_tensor_ref *to[FM_AF3_FACTORS] = {&levels.in, &levels.skip, &levels.out, &levels.log};
    double *values[FM_AF3_FACTORS];
    for (int i = 0; i < FM_AF3_FACTORS; i++)
        values[i] = unit_numbers(u, n);
    for (int64_t k = 0; k < n; k++) {
        double factors[FM_AF3_FACTORS];
        fm_af3_noise_factors(unit_value(t, k), sigma_data, factors);
        for (int i = 0; i < FM_AF3_FACTORS; i++)
            values[i][k] = factors[i];
    }
    for (int i = 0; i < FM_AF3_FACTORS; i++)
        *to[i] = unit_made(u, u->kernels->act, 1, &n, values[i]);
    fm_tensor_ref *embedding[2] = {&levels.fourier_w, &levels.fourier_b};
    for (int i = 0; i < 2; i++) {
        char key[256];
        snprintf(key, sizeof key, "w.%s%s", prefix, i ? "b" : "w");
        const fm_npy *array = unit_array(u, key);
        int64_t c = (int64_t)array->count;
        double *numbers = unit_numbers(u, c);
        for (int64_t k = 0; k < c; k++)
            numbers[k] = unit_value(array, k);
        *embedding[i] = unit_made(u, u->kernels->act, 1, &c, numbers);
    }
    return levels;
}

static void record_fourier(af3_unit *u) {
    fm_af3_levels levels = levels_input(u, "");
    unit_output(u, fm_op_fourier(&u->tape, levels.log, levels.fourier_w, levels.fourier_b));
}

/* The classes of the one-hot array in.relp. */
static fm_tensor_ref relative_input(af3_unit *u) {
    static const int64_t first[FM_RELATIVE_KINDS + 1] = {0, 66, 132, 133, 139};
    const fm_npy *array = unit_array(u, "in.relp");
    int64_t n = unit_extent(u, "in.relp", 0);
    double *classes = unit_numbers(u, FM_RELATIVE_KINDS * n * n);
    for (int64_t at = 0; at < n * n; at++)
        for (int k = 0; k < FM_RELATIVE_KINDS; k++)
            classes[k * n * n + at] =
                class_of(array, at * FM_RELATIVE_FEATURES + first[k], first[k + 1] - first[k]);
    return unit_made(u, FM_ELEMENT_U8, 3, (int64_t[]){FM_RELATIVE_KINDS, n, n}, classes);
}

static fm_af3_trunk_output trunk_input(af3_unit *u) {
    return (fm_af3_trunk_output){.s_inputs = unit_input(u, "s_inputs"),
                                 .s = unit_input(u, "s_trunk"),
                                 .z = unit_input(u, "z_trunk"),
                                 .relative = relative_input(u)};
}

static void read_trunk_sizes(const af3_unit *u, const char *prefix, fm_af3_config *config) {
    config->c_s = unit_extent(u, "in.s_trunk", 1);
    config->c_z = unit_extent(u, "in.z_trunk", 2);
    config->c_token_in = unit_extent(u, "in.s_inputs", 1) - FM_AF3_TOKEN_FEATURES;
    config->c_noise = extent_below(u, prefix, "fourier_embedding.w", 0);
    config->narrow_factor =
        extent_below(u, prefix, "transition_z1.linear_no_bias_a.weight", 0) / config->c_z;
}

static void record_conditioning(af3_unit *u) {
    fm_af3_config config = fm_af3_config_initial();
    read_trunk_sizes(u, "", &config);
    fm_af3_trunk_output trunk = trunk_input(u);
    fm_af3_levels levels = levels_input(u, "fourier_embedding.");
    fm_af3_conditioning_weights w = fm_af3_conditioning_add(&u->scope, &config);
    unit_output(u, fm_af3_condition_single(&u->tape, &trunk, &levels, &w));
    unit_output(u, fm_af3_condition_pairs(&u->tape, NULL, &trunk, &w));
}

static void record_diffusion(af3_unit *u) {
    fm_af3_config config = fm_af3_config_initial();
    fm_af3_atoms atoms = atoms_input(u, unit_extent(u, "in.s_trunk", 0));
    read_atom_sizes(u, "atom_attention_encoder.", &config);
    read_trunk_sizes(u, "diffusion_conditioning.", &config);
    config.n_diffusion_block = count_blocks(u, "diffusion_transformer.blocks");
    config.n_head_token = unit_extent(
        u, "w.diffusion_transformer.blocks.0.attention_pair_bias.linear_nobias_z.weight", 0);
    config.c_token = unit_extent(u, "w.layernorm_a.weight", 0);
    fm_af3_trunk_output trunk = trunk_input(u);
    fm_tensor_ref x = unit_input(u, "x_noisy");
    fm_af3_levels levels = levels_input(u, "diffusion_conditioning.fourier_embedding.");
    static fm_af3_diffusion_weights w;
    fm_af3_diffusion_add(&u->scope, &config, &w);
    fm_af3_prepared prepared = fm_af3_diffusion_prepare(&u->tape, NULL, &atoms, &trunk, &w);
    const fm_af3_again all = {config.n_atom_block, config.n_diffusion_block, config.n_atom_block};
    const fm_af3_noisy noisy = {.atoms = &atoms,
                                .trunk = &trunk,
                                .prepared = &prepared,
                                .x = x,
                                .levels = &levels,
                                .mask = FM_TENSOR_NONE};
    unit_output(u, fm_af3_diffusion_denoise(&u->tape, NULL, &noisy, &w, all));
}

const af3_unit_entry AF3_ATOM_UNITS[] = {
    {"adaptive_layer_norm", record_adaln, 0, false},
    {"conditioned_transition", record_transition, 0, false},
    {"attention_pair_bias", record_attention, 0, false},
    {"diffusion_transformer_block", record_diffusion_block, 0, false},
    {"atom_transformer_block", record_atom_block, 0, false},
    {"atom_attention_encoder", record_encoder, 0, false},
    {"atom_attention_decoder", record_decoder, 0, false},
    {"input_embedder", record_input_embedder, 0, false},
    {"fourier_embedding", record_fourier, 0, false},
    {"diffusion_conditioning", record_conditioning, 0, false},
    {"diffusion_module", record_diffusion, 0, false},
    {NULL, NULL, 0, false},
};
