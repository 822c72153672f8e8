/* af3_units_trunk.c: the units of AlphaFold 3's trunk; see af3_unit.h. */
#include "tests/trainer/parity/af3_unit.h"

#include "trainer/model/af3/confidence.h"
#include "trainer/model/af3/sample.h"
#include "trainer/model/af3/trunk.h"
#include "trainer/ops/arithmetic.h"
#include "trainer/ops/relative_position.h"

#include <assert.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- sizes */

/* Rows of a weight, which is [c_out, c_in]. */
static int64_t rows_of(const af3_unit *u, const char *key) {
    return unit_extent(u, key, 0);
}

/* The sizes of a block, from the arrays of its file; `pairs` is the prefix of its pair sublayers'
 * names. */
static fm_af3_config config_of(const af3_unit *u, const char *pairs) {
    char key[256];
    fm_af3_config c = fm_af3_config_initial();
    c.dropout_msa = c.dropout_pair = 0;
    snprintf(key, sizeof key, "w.%stri_mul_out.linear_z.weight", pairs);
    c.c_z = c.c_template = unit_extent(u, key, 0);
    c.c_triangle = unit_extent(u, key, 1);
    snprintf(key, sizeof key, "w.%stri_att_start.linear.weight", pairs);
    c.n_head_pair = rows_of(u, key);
    snprintf(key, sizeof key, "w.%stri_att_start.mha.linear_q.weight", pairs);
    c.c_head_pair = rows_of(u, key) / c.n_head_pair;
    return c;
}

/* -- sublayers of the pairs */

static void record_transition_of(af3_unit *u, int64_t factor) {
    fm_tensor_ref x = unit_input(u, "x");
    int64_t c = unit_extent(u, "w.layernorm1.weight", 0);
    fm_swiglu_transition_weights w = fm_af3_transition(&u->scope, c, factor);
    unit_output(u, fm_op_swiglu_transition(&u->tape, "transition", x, &w, false, FM_KEEP));
}

static void record_transition(af3_unit *u) {
    record_transition_of(u, 4);
}

static void record_transition_n2(af3_unit *u) {
    record_transition_of(u, 2);
}

static void record_triangle(af3_unit *u, bool incoming) {
    fm_tensor_ref z = unit_input(u, "z"), mask = unit_input(u, "mask");
    fm_triangle_weights w = fm_af3_triangle(&u->scope, unit_extent(u, "in.z", 2),
                                            unit_extent(u, "w.linear_z.weight", 1));
    unit_output(
        u, fm_op_triangle_multiplication(&u->tape, "triangle", incoming, z, mask, &w, false, 0));
}

static void record_tri_mul_out(af3_unit *u) {
    record_triangle(u, false);
}

static void record_tri_mul_in(af3_unit *u) {
    record_triangle(u, true);
}

static void record_triangle_attention(af3_unit *u, fm_axial axial) {
    fm_tensor_ref z = unit_input(u, "z"), mask = unit_input(u, "mask");
    int64_t n_head = rows_of(u, "w.linear.weight");
    fm_attention_weights w = fm_af3_triangle_attention(
        &u->scope, unit_extent(u, "in.z", 2), n_head, rows_of(u, "w.mha.linear_q.weight") / n_head);
    unit_output(u, fm_op_attention(&u->tape, "triangle attention", axial, z, mask, FM_TENSOR_NONE,
                                   &w, false, 0));
}

static void record_tri_att_start(af3_unit *u) {
    record_triangle_attention(u, FM_AXIAL_STARTING);
}

static void record_tri_att_end(af3_unit *u) {
    record_triangle_attention(u, FM_AXIAL_ENDING);
}

/* -- MSA and single */

static void record_outer(af3_unit *u) {
    fm_tensor_ref m = unit_input(u, "m"), mask = unit_input(u, "mask");
    fm_outer_weights w =
        fm_af3_outer(&u->scope, unit_extent(u, "in.m", 2), rows_of(u, "w.linear_1.weight"),
                     rows_of(u, "w.linear_out.weight"));
    unit_output(u, fm_op_outer_product_mean(&u->tape, "outer", m, mask, FM_TENSOR_NONE, &w));
}

static void record_averaging(af3_unit *u) {
    fm_tensor_ref m = unit_input(u, "m"), z = unit_input(u, "z");
    int64_t n_head = rows_of(u, "w.linear_no_bias_z.weight");
    fm_averaging_weights w =
        fm_af3_averaging(&u->scope, unit_extent(u, "in.m", 2), unit_extent(u, "in.z", 2), n_head,
                         rows_of(u, "w.linear_no_bias_mv.weight") / n_head);
    fm_tensor_ref mask =
        unit_ones(u, 2, (int64_t[]){unit_extent(u, "in.m", 0), unit_extent(u, "in.m", 1)});
    unit_output(u, fm_op_weighted_averaging(&u->tape, "averaging", m, mask, z, &w, false, 0));
}

/* in.s as [1, N, c_s]. */
static fm_tensor_ref single_input(af3_unit *u, const char *name) {
    return unit_input_as(u, name, u->kernels->act, 3,
                         (int64_t[]){1, unit_extent(u, "in.s", 0), unit_extent(u, "in.s", 1)});
}

static void record_single_attention(af3_unit *u) {
    fm_tensor_ref s = single_input(u, "s"), z = unit_input(u, "z");
    fm_attention_weights w =
        fm_af3_single_attention(&u->scope, unit_extent(u, "in.s", 1), unit_extent(u, "in.z", 2),
                                rows_of(u, "w.linear_nobias_z.weight"));
    fm_tensor_ref mask = unit_ones(u, 2, (int64_t[]){1, unit_extent(u, "in.s", 0)});
    unit_output(
        u, fm_op_attention(&u->tape, "single attention", FM_AXIAL_ROW, s, mask, z, &w, false, 0));
}

/* -- blocks */

static fm_tensor_ref pair_mask(af3_unit *u) {
    int64_t n = unit_extent(u, "in.z", 0);
    return fm_npz_find(u->file, "in.mask") ? unit_input(u, "mask")
                                           : unit_ones(u, 2, (int64_t[]){n, n});
}

static void record_pairformer(af3_unit *u, double dropout) {
    fm_af3_config config = config_of(u, "");
    config.dropout_pair = dropout;
    config.c_s = unit_extent(u, "in.s", 1);
    config.n_head_single = rows_of(u, "w.attention_pair_bias.linear_nobias_z.weight");
    fm_af3_pair_of in = {single_input(u, "s"), unit_input(u, "z")};
    fm_af3_masks masks = {.single = unit_ones(u, 2, (int64_t[]){1, unit_extent(u, "in.s", 0)}),
                          .pair = pair_mask(u),
                          .msa = FM_TENSOR_NONE};
    fm_af3_block_weights w = fm_af3_pairformer_weights(&u->scope, &config);
    fm_af3_pair_of out =
        fm_af3_pairformer(&u->tape, &config, FM_AF3_STACK_PAIRFORMER, &w, 1, &masks, in);
    unit_output(u, out.s);
    unit_output(u, out.z);
}

static void record_pairformer_block(af3_unit *u) {
    record_pairformer(u, 0);
}

static void record_pairformer_dropout(af3_unit *u) {
    record_pairformer(u, fm_af3_config_initial().dropout_pair);
}

static void record_msa(af3_unit *u, bool is_last, bool drops) {
    fm_af3_config config = config_of(u, "pair_stack.");
    if (drops) {
        config.dropout_pair = fm_af3_config_initial().dropout_pair;
        config.dropout_msa = fm_af3_config_initial().dropout_msa;
    }
    config.c_m = unit_extent(u, "in.m", 2);
    config.c_outer = rows_of(u, "w.outer_product_mean_msa.linear_1.weight");
    if (!is_last) {
        config.n_head_msa =
            rows_of(u, "w.msa_stack.msa_pair_weighted_averaging.linear_no_bias_z.weight");
        config.c_head_msa =
            rows_of(u, "w.msa_stack.msa_pair_weighted_averaging.linear_no_bias_mv.weight") /
            config.n_head_msa;
    }
    fm_af3_pair_of in = {unit_input(u, "m"), unit_input(u, "z")};
    fm_af3_masks masks = {
        .single = FM_TENSOR_NONE,
        .pair = pair_mask(u),
        .msa = unit_ones(u, 2, (int64_t[]){unit_extent(u, "in.m", 0), unit_extent(u, "in.m", 1)})};
    fm_af3_block_weights w = fm_af3_msa_weights(&u->scope, &config, is_last);
    fm_af3_pair_of out = fm_af3_msa_blocks(&u->tape, &config, &w, 1, is_last, &masks, in);
    if (!is_last) unit_output(u, out.s);
    unit_output(u, out.z);
}

static void record_msa_block(af3_unit *u) {
    record_msa(u, false, false);
}

static void record_msa_block_dropout(af3_unit *u) {
    record_msa(u, false, true);
}

static void record_msa_block_last(af3_unit *u) {
    record_msa(u, true, false);
}

/* -- embedders and heads */

/* The array as integers, in memory of the unit's life. */
static int64_t *integers_of(af3_unit *u, const char *key) {
    const fm_npy *array = unit_array(u, key);
    int64_t *values = fm_arena_alloc_array(&u->arena, array->count, sizeof *values);
    assert(values);
    for (uint64_t i = 0; i < array->count; i++)
        values[i] = (int64_t)unit_value(array, (int64_t)i);
    return values;
}

static void record_relative_position(af3_unit *u) {
    int64_t n = unit_extent(u, "in.asym_id", 0), count = FM_RELATIVE_KINDS * n * n;
    uint8_t *ids = fm_arena_alloc_array(&u->arena, (size_t)count, 1);
    assert(ids);
    fm_relative_position_classes(n, integers_of(u, "in.asym_id"),
                                 integers_of(u, "in.residue_index"), integers_of(u, "in.entity_id"),
                                 integers_of(u, "in.sym_id"), integers_of(u, "in.token_index"),
                                 ids);
    double *values = unit_numbers(u, count);
    for (int64_t i = 0; i < count; i++)
        values[i] = ids[i];
    fm_tensor_ref classes =
        unit_made(u, FM_ELEMENT_U8, 3, (int64_t[]){FM_RELATIVE_KINDS, n, n}, values);
    int64_t c = rows_of(u, "w.linear_no_bias.weight");
    fm_linear_weights w =
        fm_af3_linear(&u->scope, "linear_no_bias", FM_RELATIVE_FEATURES, c, FM_AF3_DEFAULT);
    unit_output(u, fm_op_relative_position(&u->tape, "relative position", classes, w.w, c,
                                           (fm_part){0, 1}));
}

/* The array as float32 numbers, in memory of the unit's life. */
static float *floats_of(af3_unit *u, const char *key) {
    const fm_npy *array = unit_array(u, key);
    float *values = fm_arena_alloc_array(&u->arena, array->count, sizeof *values);
    assert(values);
    for (uint64_t i = 0; i < array->count; i++)
        values[i] = (float)unit_value(array, (int64_t)i);
    return values;
}

static void put_value(void *context, int32_t tensor, int64_t at, double value) {
    (void)tensor;
    ((double *)context)[at] = value;
}

static fm_tensor_ref template_features(af3_unit *u, int64_t n_template, int64_t n) {
    int64_t count = n_template * n * n * FM_AF3_TEMPLATE_PAIR;
    const fm_af3_sample sample = {
        .n_token = n,
        .n_template = n_template,
        .asym_id = integers_of(u, "in.asym_id"),
        .template_aatype = integers_of(u, "in.template_aatype"),
        .template_distogram = floats_of(u, "in.template_distogram"),
        .template_pseudo_beta_mask = floats_of(u, "in.template_pseudo_beta_mask"),
        .template_unit_vector = floats_of(u, "in.template_unit_vector"),
        .template_backbone_frame_mask = floats_of(u, "in.template_backbone_frame_mask")};
    double *values = unit_numbers(u, count);
    memset(values, 0, (size_t)count * sizeof *values);
    if (fm_af3_write_templates(&sample, n, 0, &(fm_af3_writer){put_value, values}, &u->arena,
                               NULL)) {
        abort();
    }
    return unit_made(u, u->kernels->act, 4, (int64_t[]){n_template, n, n, FM_AF3_TEMPLATE_PAIR},
                     values);
}

/* Blocks of a stack whose weights begin with "w.PREFIX.". */
static int32_t blocks_of(const af3_unit *u, const char *prefix) {
    int32_t n = 0;
    for (size_t i = 0; i < u->file->n_array; i++) {
        int index;
        char format[256];
        snprintf(format, sizeof format, "w.%s.%%d.", prefix);
        if (sscanf(u->file->arrays[i].name, format, &index) == 1 && index >= n) n = index + 1;
    }
    return n;
}

static void record_template_embedder(af3_unit *u) {
    fm_af3_config config = config_of(u, "pairformer_stack.blocks.0.");
    config.c_z = unit_extent(u, "in.z", 2);
    config.n_template_block = blocks_of(u, "pairformer_stack.blocks");
    fm_tensor_ref z = unit_input(u, "z");
    fm_tensor_ref templates =
        template_features(u, unit_extent(u, "in.template_aatype", 0), unit_extent(u, "in.z", 0));
    fm_af3_template_embedder_weights w;
    fm_af3_template_embedder_parameters(&u->scope, &config, &w);
    unit_output(u, fm_af3_template_embedder(&u->tape, &config, &w, templates, pair_mask(u), z));
}

static void record_distogram_head(af3_unit *u) {
    fm_af3_config config = fm_af3_config_initial();
    config.c_z = unit_extent(u, "in.z", 2);
    config.n_distogram_bin = rows_of(u, "w.linear.weight");
    fm_tensor_ref z = unit_input(u, "z");
    fm_linear_weights w = fm_af3_distogram_parameters(&u->scope, &config);
    unit_output(u, fm_af3_distogram(&u->tape, NULL, &w, z));
}

/* Structure `k` and the atoms that represent its tokens. */
static void put_structure(af3_unit *u, int64_t k, int64_t n, fm_af3_confidence_inputs *in) {
    int64_t n_atom = unit_extent(u, "in.coordinate", 1), found = 0;
    const int64_t *is_representative = integers_of(u, "in.distogram_rep_atom_mask");
    const fm_npy *x = unit_array(u, "in.coordinate");
    double *atom = unit_numbers(u, n), *structure = unit_numbers(u, 3 * n_atom);
    for (int64_t l = 0; l < n_atom; l++) {
        if (is_representative[l]) atom[found++] = (double)l;
    }
    assert(found == n);
    for (int64_t i = 0; i < 3 * n_atom; i++)
        structure[i] = unit_value(x, 3 * k * n_atom + i);
    in->structure = unit_made(u, u->kernels->act, 2, (int64_t[]){n_atom, 3}, structure);
    in->representative = unit_made(u, FM_ELEMENT_I32, 1, &n, atom);
}

/* Which row of the slots' logits is that of an atom, and the reverse. */
static void put_slots(af3_unit *u, int64_t n, int64_t slots, fm_af3_confidence_inputs *in) {
    int64_t n_atom = unit_extent(u, "in.atom_to_token_idx", 0);
    const int64_t *token = integers_of(u, "in.atom_to_token_idx");
    const int64_t *slot = integers_of(u, "in.atom_to_tokatom_idx");
    double *row = unit_numbers(u, n_atom), *atom = unit_numbers(u, slots * n);
    for (int64_t r = 0; r < slots * n; r++)
        atom[r] = -1;
    for (int64_t l = 0; l < n_atom; l++) {
        row[l] = (double)(slot[l] * n + token[l]);
        atom[slot[l] * n + token[l]] = (double)l;
    }
    in->slot_row = unit_made(u, FM_ELEMENT_I32, 1, &n_atom, row);
    in->atom_of_row = unit_made(u, FM_ELEMENT_I32, 1, (int64_t[]){slots * n}, atom);
}

static fm_af3_config confidence_config(const af3_unit *u) {
    fm_af3_config config = config_of(u, "pairformer_stack.blocks.0.");
    config.c_s = unit_extent(u, "in.s_trunk", 1);
    config.c_token_in = unit_extent(u, "in.s_inputs", 1) - FM_AF3_TOKEN_FEATURES;
    config.n_head_single =
        rows_of(u, "w.pairformer_stack.blocks.0.attention_pair_bias.linear_nobias_z.weight");
    config.n_confidence_block = blocks_of(u, "pairformer_stack.blocks");
    config.max_atoms_per_token = unit_extent(u, "w.plddt_weight", 0);
    config.n_plddt_bin = unit_extent(u, "w.plddt_weight", 2);
    config.n_pae_bin = rows_of(u, "w.linear_no_bias_pae.weight");
    config.n_pde_bin = rows_of(u, "w.linear_no_bias_pde.weight");
    return config;
}

static void record_confidence_head(af3_unit *u) {
    fm_af3_config config = confidence_config(u);
    int64_t n = unit_extent(u, "in.s_inputs", 0);
    static fm_af3_confidence_weights w;
    fm_af3_confidence_add(&u->scope, &config, &w);
    fm_af3_confidence_inputs in = {.s_inputs = unit_input(u, "s_inputs"),
                                   .s = unit_input(u, "s_trunk"),
                                   .z = unit_input(u, "z_trunk"),
                                   .masks = {.single = unit_ones(u, 2, (int64_t[]){1, n}),
                                             .pair = unit_ones(u, 2, (int64_t[]){n, n}),
                                             .msa = FM_TENSOR_NONE}};
    put_slots(u, n, config.max_atoms_per_token, &in);
    for (int64_t k = 0; k < unit_extent(u, "in.coordinate", 0); k++) {
        put_structure(u, k, n, &in);
        fm_af3_confidence_logits out = fm_af3_confidence(&u->tape, &config, &w, &in);
        const fm_tensor_ref logits[] = {out.plddt, out.pae, out.pde, out.resolved};
        for (int i = 0; i < 4; i++) {
            int64_t count = fm_tensor_local_count(fm_tape_tensor(&u->tape, logits[i]));
            unit_output_part(u, logits[i], i, k * count);
        }
    }
}

const af3_unit_entry AF3_TRUNK_UNITS[] = {
    {"transition", record_transition, 0, false},
    {"transition_n2", record_transition_n2, 0, false},
    {"tri_mul_out", record_tri_mul_out, 0, false},
    {"tri_mul_in", record_tri_mul_in, 0, false},
    {"tri_att_start", record_tri_att_start, 0, false},
    {"tri_att_end", record_tri_att_end, 0, false},
    {"outer_product_mean", record_outer, 0, false},
    {"msa_pair_weighted_averaging", record_averaging, 0, false},
    {"single_attention_pair_bias", record_single_attention, 0, false},
    {"pairformer_block", record_pairformer_block, 0, false},
    {"pairformer_block_dropout", record_pairformer_dropout, 4, false},
    {"msa_block", record_msa_block, 0, false},
    {"msa_block_dropout", record_msa_block_dropout, 5, false},
    {"msa_block_last", record_msa_block_last, 0, false},
    {"relative_position_encoding", record_relative_position, 0, false},
    {"template_embedder", record_template_embedder, 0, false},
    {"distogram_head", record_distogram_head, 0, false},
    {"confidence_head", record_confidence_head, 0, false},
    {NULL, NULL, 0, false},
};
