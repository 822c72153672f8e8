/* af3_units_full.c: AlphaFold 3's blocks at their published widths; see af3_unit.h. */
#include "tests/trainer/parity/af3_unit.h"

#include "tests/trainer/parity/af3_formula.h"
#include "trainer/model/af3/blocks.h"
#include "trainer/model/af3/diffusion.h"
#include "trainer/ops/relative_position.h"
#include "trainer/ops/windows.h"

#include <stdio.h>

/* The sizes of the file's inputs. */
enum { N_TOKEN = 40, N_SAMPLE = 2, N_ATOM = 301, N_ROW = 24 };

static fm_af3_config published(void) {
    fm_af3_config config = fm_af3_config_initial();
    config.dropout_msa = config.dropout_pair = 0;
    return config;
}

static fm_tensor_ref pairs(af3_unit *u, int64_t c) {
    return unit_drawn(u, "z", 3, (int64_t[]){N_TOKEN, N_TOKEN, c});
}

static fm_af3_masks masks(af3_unit *u) {
    return (fm_af3_masks){.single = unit_ones(u, 2, (int64_t[]){1, N_TOKEN}),
                          .pair = unit_ones(u, 2, (int64_t[]){N_TOKEN, N_TOKEN}),
                          .msa = unit_ones(u, 2, (int64_t[]){N_ROW, N_TOKEN})};
}

static void record_pairformer(af3_unit *u) {
    fm_af3_config config = published();
    fm_af3_pair_of in = {unit_drawn(u, "s", 3, (int64_t[]){1, N_TOKEN, config.c_s}),
                         pairs(u, config.c_z)};
    fm_af3_masks all = masks(u);
    fm_af3_block_weights w = fm_af3_pairformer_weights(&u->scope, &config);
    fm_af3_pair_of out =
        fm_af3_pairformer(&u->tape, &config, FM_AF3_STACK_PAIRFORMER, &w, 1, &all, in);
    unit_output(u, out.s);
    unit_output(u, out.z);
}

static void record_template(af3_unit *u) {
    fm_af3_config config = published();
    fm_tensor_ref t = unit_drawn(u, "z", 4, (int64_t[]){1, N_TOKEN, N_TOKEN, config.c_template});
    fm_tensor_ref mask = unit_ones(u, 2, (int64_t[]){N_TOKEN, N_TOKEN});
    fm_af3_block_weights w = fm_af3_template_weights(&u->scope, &config);
    unit_output(u, fm_af3_template_blocks(&u->tape, &config, &w, 1, mask, t));
}

static void record_msa(af3_unit *u) {
    fm_af3_config config = published();
    fm_af3_pair_of in = {unit_drawn(u, "m", 3, (int64_t[]){N_ROW, N_TOKEN, config.c_m}),
                         pairs(u, config.c_z)};
    fm_af3_masks all = masks(u);
    fm_af3_block_weights w = fm_af3_msa_weights(&u->scope, &config, false);
    fm_af3_pair_of out = fm_af3_msa_blocks(&u->tape, &config, &w, 1, false, &all, in);
    unit_output(u, out.s);
    unit_output(u, out.z);
}

static void record_diffusion(af3_unit *u) {
    fm_af3_config config = published();
    fm_tensor_ref a = unit_drawn(u, "a", 3, (int64_t[]){N_SAMPLE, N_TOKEN, config.c_token});
    fm_tensor_ref s = unit_drawn(u, "s", 3, (int64_t[]){N_SAMPLE, N_TOKEN, config.c_s});
    fm_tensor_ref z = pairs(u, config.c_z);
    fm_conditioned_block_weights w =
        fm_af3_conditioned_block_weights(&u->scope, config.c_token, config.c_s, config.c_z,
                                         config.n_head_token, config.narrow_factor, false);
    const fm_af3_block_inputs of_z = {.z = z};
    unit_output(u, fm_af3_diffusion_transformer(&u->tape, a, s, &of_z, FM_TENSOR_NONE, &w, 1, 0));
}

static void record_atoms(af3_unit *u) {
    fm_af3_config config = published();
    int64_t n = N_ATOM, c = config.c_atom;
    fm_tensor_ref q = unit_drawn(u, "q", 3, (int64_t[]){N_SAMPLE, n, c});
    fm_tensor_ref conditioning = unit_drawn(u, "c", 2, (int64_t[]){n, c});
    fm_tensor_ref p = unit_drawn(
        u, "p", 4,
        (int64_t[]){fm_windows_count(n), FM_WINDOW_QUERIES, FM_WINDOW_KEYS, config.c_atompair});
    fm_conditioned_block_weights w = fm_af3_conditioned_block_weights(
        &u->scope, c, c, config.c_atompair, config.n_head_atom, config.narrow_factor, true);
    unit_output(u,
                fm_af3_atom_transformer(&u->tape, q, conditioning, &(fm_af3_block_inputs){.z = p},
                                        unit_ones(u, 1, &n), &w, 1, 0));
}

/* A tensor of the Fourier embedding, which has no rows among the parameters. */
static fm_tensor_ref embedding(af3_unit *u, const char *name, int64_t n) {
    char key[128];
    snprintf(key, sizeof key, "%s/fourier_embedding.%s", u->name, name);
    uint64_t hash = fnv1a(key);
    double *values = unit_numbers(u, n);
    for (int64_t i = 0; i < n; i++)
        values[i] = (double)(af3_drawn(hash, i) * 0.1f);
    return unit_made(u, u->kernels->act, 1, &n, values);
}

/* The relative positions are drawn numbers here, not one-hot classes. */
static void record_conditioning(af3_unit *u) {
    static const double level[N_SAMPLE] = {0.02, 150};
    fm_af3_config config = published();
    int64_t n = N_TOKEN, n_sample = N_SAMPLE, c_z = config.c_z;
    fm_tensor_ref relative = unit_drawn(u, "relp", 3, (int64_t[]){n, n, FM_RELATIVE_FEATURES});
    fm_af3_trunk_output trunk = {
        .s_inputs = unit_drawn(u, "s_inputs", 2, (int64_t[]){n, fm_af3_config_s_inputs(&config)}),
        .s = unit_drawn(u, "s_trunk", 2, (int64_t[]){n, config.c_s}),
        .z = unit_drawn(u, "z_trunk", 3, (int64_t[]){n, n, c_z}),
        .relative = FM_TENSOR_NONE};
    double *logs = unit_numbers(u, n_sample);
    for (int k = 0; k < N_SAMPLE; k++) {
        double factors[FM_AF3_FACTORS];
        fm_af3_noise_factors(level[k], config.noise.sigma_data, factors);
        logs[k] = factors[FM_AF3_FACTOR_LOG];
    }
    fm_af3_levels levels = {.log = unit_made(u, u->kernels->act, 1, &n_sample, logs),
                            .fourier_w = embedding(u, "w", config.c_noise),
                            .fourier_b = embedding(u, "b", config.c_noise)};
    fm_af3_conditioning_weights w = fm_af3_conditioning_add(&u->scope, &config);
    const fm_linear_weights encode = {.w = w.relative, .b = FM_PARAM_NONE, .c_out = c_z};
    fm_tensor_ref positions = fm_op_linear_all(&u->tape, "positions", relative, &encode);
    unit_output(u, fm_af3_condition_single(&u->tape, &trunk, &levels, &w));
    unit_output(u, fm_af3_condition_encoded_pairs(&u->tape, trunk.z, positions, &w));
}

const af3_unit_entry AF3_FULL_UNITS[] = {
    {"pairformer_block", record_pairformer, 0, true},
    {"template_block", record_template, 0, true},
    {"msa_block", record_msa, 0, true},
    {"diffusion_transformer_block", record_diffusion, 0, true},
    {"atom_transformer_block", record_atoms, 0, true},
    {"diffusion_conditioning", record_conditioning, 0, true},
    {NULL, NULL, 0, false},
};
