/* af3_case.c: see af3_case.h. */
#include "tests/trainer/parity/af3_case.h"
#include "tests/testing/model_configs.h"

#include "proto/base/file.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256 };

/* -- the files */

const fm_npy *case_find(const fm_npz *file, const char *prefix, const char *name) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return fm_npz_find(file, key);
}

const fm_npy *case_array(const af3_case *s, const char *prefix, const char *name) {
    const fm_npy *array = case_find(s->in, prefix, name);
    if (!array) {
        fprintf(stderr, "af3_parity: the file has no array %s%s\n", prefix, name);
        exit(1);
    }
    return array;
}

double case_value(const fm_npy *array, int64_t i) {
    assert(i >= 0 && (uint64_t)i < array->count);
    if (!strcmp(array->dtype, "<i8")) return (double)((const int64_t *)array->data)[i];
    return !strcmp(array->dtype, "<f8") ? ((const double *)array->data)[i]
                                        : (double)((const float *)array->data)[i];
}

const int64_t *case_integers(const af3_case *s, const char *name) {
    const fm_npy *array = case_array(s, "in/", name);
    assert(!strcmp(array->dtype, "<i8"));
    return array->data;
}

const float *case_floats(const af3_case *s, const char *name) {
    const fm_npy *array = case_array(s, "in/", name);
    assert(!strcmp(array->dtype, "<f4"));
    return array->data;
}

static int64_t extent(const af3_case *s, const char *name, size_t axis) {
    const fm_npy *array = case_array(s, "in/", name);
    assert(axis < array->rank);
    return (int64_t)array->shape[axis];
}

/* -- sizes */

/* The number at "model.hidden.c_noise"; `missing` where the text has none. */
double case_number(const af3_case *s, const char *path, double missing) {
    const fm_json *at = s->json;
    char name[KEY_BYTES];
    while (*path) {
        size_t n = strcspn(path, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        at = fm_json_get_member(at, name);
        path += n + (path[n] == '.');
    }
    return fm_json_get_number(at, missing);
}

static void read_size(const af3_case *s, const char *path, int64_t *size) {
    *size = (int64_t)case_number(s, path, (double)*size);
}

static void read_count(const af3_case *s, const char *path, int32_t *count) {
    *count = (int32_t)case_number(s, path, (double)*count);
}

static void read_widths(const af3_case *s, fm_af3_config *c) {
    read_size(s, "model.c_s", &c->c_s);
    read_size(s, "model.c_z", &c->c_z);
    read_size(s, "model.c_m", &c->c_m);
    read_size(s, "model.c_token_in", &c->c_token_in);
    read_size(s, "model.c_token", &c->c_token);
    read_size(s, "model.c_atom", &c->c_atom);
    read_size(s, "model.c_atompair", &c->c_atompair);
    read_size(s, "model.c_template", &c->c_template);
    read_size(s, "model.no_heads_single", &c->n_head_single);
    read_size(s, "model.no_heads_token", &c->n_head_token);
    read_size(s, "model.no_heads_atom", &c->n_head_atom);
    read_size(s, "model.max_atoms_per_token", &c->max_atoms_per_token);
    read_size(s, "model.hidden.c_noise", &c->c_noise);
    read_size(s, "model.hidden.c_hidden_mul", &c->c_triangle);
    read_size(s, "model.hidden.c_hidden_pair_att", &c->c_head_pair);
    read_size(s, "model.hidden.no_heads_pair", &c->n_head_pair);
    read_size(s, "model.hidden.c_hidden_msa", &c->c_head_msa);
    read_size(s, "model.hidden.no_heads_msa", &c->n_head_msa);
    read_size(s, "model.hidden.c_hidden_opm", &c->c_outer);
    read_size(s, "loss.distogram.no_bins", &c->n_distogram_bin);
    read_size(s, "loss.pae.no_bins", &c->n_pae_bin);
    read_size(s, "loss.pde.no_bins", &c->n_pde_bin);
    read_size(s, "loss.plddt.no_bins", &c->n_plddt_bin);
}

static void read_blocks(const af3_case *s, fm_af3_config *c) {
    read_count(s, "model.pairformer_blocks", &c->n_pairformer_block);
    read_count(s, "model.msa_blocks", &c->n_msa_block);
    read_count(s, "model.template_blocks", &c->n_template_block);
    read_count(s, "model.diffusion_blocks", &c->n_diffusion_block);
    read_count(s, "model.atom_blocks", &c->n_atom_block);
    read_count(s, "model.atom_blocks", &c->n_input_atom_block);
    read_count(s, "model.hidden.input_atom_blocks", &c->n_input_atom_block);
    read_count(s, "model.confidence_blocks", &c->n_confidence_block);
}

static void read_noise(const af3_case *s, fm_af3_noise *n) {
    const struct {
        const char *path;
        double *to;
    } row[] = {{"model.sigma_data", &n->sigma_data},
               {"model.p_mean", &n->p_mean},
               {"model.p_std", &n->p_std},
               {"model.s_max", &n->s_max},
               {"model.s_min", &n->s_min},
               {"model.rho", &n->rho},
               {"model.gamma0", &n->gamma0},
               {"model.gamma_min", &n->gamma_min},
               {"model.noise_scale", &n->noise_scale},
               {"model.step_scale", &n->step_scale}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++)
        *row[i].to = case_number(s, row[i].path, *row[i].to);
}

/* Constants of the reference that the program has in its code. */
static fm_status check_constants(const af3_case *s, const char *path, fm_error *error) {
    static const struct {
        const char *path;
        double value;
    } row[] = {{"loss.distogram.min_bin", 2.3125},
               {"loss.distogram.max_bin", 21.6875},
               {"loss.pae.min_bin", 0},
               {"loss.pae.max_bin", 32},
               {"loss.pde.min_bin", 0},
               {"loss.pde.max_bin", 32},
               {"loss.plddt.min_bin", 0},
               {"loss.plddt.max_bin", 1},
               {"loss.diffusion.mse.weight_dna", 5},
               {"loss.diffusion.mse.weight_rna", 5},
               {"loss.diffusion.mse.weight_ligand", 10},
               {"loss.diffusion.mse.weight_mse", 1.0 / 3},
               {"loss.weight.alpha_except_pae", 1}};
    for (size_t i = 0; i < sizeof row / sizeof row[0]; i++) {
        double found = case_number(s, row[i].path, row[i].value);
        if (found == row[i].value) continue;
        return fm_fail_in(error, FM_ERR_DATA, path, "%s: found %.9g, the program has %.9g",
                          row[i].path, found, row[i].value);
    }
    return FM_OK;
}

static fm_status read_config(af3_case *s, const char *path, int pad, fm_error *error) {
    fm_bytes text;
    fm_status status = fm_file_read(s->arena, path, (size_t)1 << 20, &text, error);
    if (status) return status;
    s->json = fm_json_parse(text.data, text.size);
    if (!s->json) return fm_fail(error, FM_ERR_FORMAT, "%s is not JSON", path);
    fm_af3_config *c = &s->config;
    *c = fm_af3_config_initial();
    read_widths(s, c);
    read_blocks(s, c);
    read_noise(s, &c->noise);
    c->n_token = extent(s, "asym_id", 0) + pad;
    c->n_atom = extent(s, "ref_pos", 0) + 2 * pad;
    s->n_row = extent(s, "msa_rows", 1);
    c->n_msa = s->n_row + pad;
    c->n_cycle = (int32_t)extent(s, "msa_rows", 0);
    c->n_template = extent(s, "template_aatype", 0);
    if (case_find(s->in, "in/", "rnd_sigma_normal")) { /* else it is a prediction */
        c->n_sample = extent(s, "rnd_sigma_normal", 0);
        c->n_rollout_step = (int32_t)extent(s, "rnd_rollout_noise", 0);
    }
    c->dropout_msa = c->dropout_pair = 0;
    return check_constants(s, path, error);
}

static void read_labels(af3_case *s) {
    s->labels =
        (fm_complex_labels){.n_token = extent(s, "asym_id", 0),
                            .n_atom = extent(s, "ref_pos", 0),
                            .coordinate = case_floats(s, "coordinate"),
                            .coordinate_mask = case_floats(s, "coordinate_mask"),
                            .is_dna = case_integers(s, "is_dna"),
                            .is_rna = case_integers(s, "is_rna"),
                            .is_ligand = case_integers(s, "is_ligand"),
                            .distogram_rep_atom_mask = case_integers(s, "distogram_rep_atom_mask"),
                            .pae_rep_atom_mask = case_integers(s, "pae_rep_atom_mask"),
                            .plddt_m_rep_atom_mask = case_integers(s, "plddt_m_rep_atom_mask"),
                            .atom_to_token_idx = case_integers(s, "atom_to_token_idx"),
                            .bond_mask = case_integers(s, "bond_mask"),
                            .frame_atom_index = case_integers(s, "frame_atom_index"),
                            .has_frame = case_integers(s, "has_frame"),
                            .resolution = case_floats(s, "resolution")[0]};
}

static void read_sample(af3_case *s) {
    s->sample = (fm_af3_sample){
        .n_token = extent(s, "asym_id", 0),
        .n_atom = extent(s, "ref_pos", 0),
        .n_msa = extent(s, "msa", 0),
        .n_template = s->config.n_template,
        .asym_id = case_integers(s, "asym_id"),
        .entity_id = case_integers(s, "entity_id"),
        .sym_id = case_integers(s, "sym_id"),
        .residue_index = case_integers(s, "residue_index"),
        .token_index = case_integers(s, "token_index"),
        .restype = case_floats(s, "restype"),
        .profile = case_floats(s, "profile"),
        .deletion_mean = case_floats(s, "deletion_mean"),
        .token_bonds = case_floats(s, "token_bonds"),
        .msa = case_integers(s, "msa"),
        .has_deletion = case_floats(s, "has_deletion"),
        .deletion_value = case_floats(s, "deletion_value"),
        .template_aatype = case_integers(s, "template_aatype"),
        .template_distogram = case_floats(s, "template_distogram"),
        .template_pseudo_beta_mask = case_floats(s, "template_pseudo_beta_mask"),
        .template_unit_vector = case_floats(s, "template_unit_vector"),
        .template_backbone_frame_mask = case_floats(s, "template_backbone_frame_mask"),
        .atom_to_token_idx = case_integers(s, "atom_to_token_idx"),
        .atom_to_tokatom_idx = case_integers(s, "atom_to_tokatom_idx"),
        .distogram_rep_atom_mask = case_integers(s, "distogram_rep_atom_mask"),
        .ref_space_uid = case_integers(s, "ref_space_uid"),
        .ref_pos = case_floats(s, "ref_pos"),
        .ref_charge = case_floats(s, "ref_charge"),
        .ref_mask = case_floats(s, "ref_mask"),
        .ref_element = case_floats(s, "ref_element"),
        .ref_atom_name_chars = case_floats(s, "ref_atom_name_chars")};
}

fm_status af3_case_open(af3_case *s, const char *path, int pad, fm_error *reterr) {
    fm_status status = read_config(s, path, pad, reterr);
    if (status) return status;
    read_sample(s);
    read_labels(s);
    return FM_OK;
}

void af3_case_close(af3_case *s) {
    fm_json_free(s->json);
}
