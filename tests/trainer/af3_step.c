/* af3_step.c: see af3_step.h. The step is that of the reference: all cycles, the last with
 * gradients, a rollout on the host's recorded draws, and the update of the parameters. */
#include "tests/trainer/af3_step.h"

#include "proto/base/file.h"
#include "proto/base/json_tree.h"
#include "trainer/loss/complex.h"
#include "trainer/model/af3/sample.h"
#include "trainer/optim/optimizer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_BYTES = 256, N_TAPE = 5 };

static const double OUTPUT_GATE = 1e-5, LOSS_GATE = 3e-6, GRADIENT_GATE = 1e-4, WIDE_GATE = 1e-11;
/* Gradients that are zero in exact arithmetic are compared absolutely. */
static const double ZERO_GATE = 1e-5;
/* Updated values, absolutely. */
static const double UPDATE_GATE = 5e-5, AVERAGE_GATE = 1e-6, NOISE = 1e-5;

typedef struct step {
    const af3_step_files *files;
    const fm_kernels *kernels;
    bool wide, failed;
    fm_json *json;
    fm_arena arena;
    fm_af3_config config;
    fm_af3_sample sample;
    fm_params params;
    fm_af3_weights weights;
    fm_state state;
    fm_af3_inputs inputs;
    fm_tape cycle, last, prepare, denoise, confidence;
    fm_af3_outputs out;              /* of `last` */
    fm_af3_confidence_logits logits; /* of `confidence` */
    fm_complex_labels labels;
    fm_complex_targets targets;
    fm_tensor_ref term[FM_COMPLEX_TERMS], structure_total, confidence_total;
    double value[FM_COMPLEX_TERMS], loss;
    int32_t seed; /* acc [1] of 1: the gradient of both totals */
    fm_optimizer optimizer;
    void *memory;
    uint8_t *host; /* mirror of the state */
    bool written[FM_STATE_TENSORS];
} step;

/* -- the files */

static const fm_npy *find(const fm_npz *file, const char *prefix, const char *name) {
    char key[KEY_BYTES];
    snprintf(key, sizeof key, "%s%s", prefix, name);
    return fm_npz_find(file, key);
}

static const fm_npy *need(const step *s, const char *prefix, const char *name) {
    const fm_npy *array = find(s->files->in, prefix, name);
    if (!array) {
        fprintf(stderr, "af3_parity: the file has no array %s%s\n", prefix, name);
        exit(1);
    }
    return array;
}

static double value_of(const fm_npy *array, int64_t i) {
    assert(i >= 0 && (uint64_t)i < array->count);
    if (!strcmp(array->dtype, "<i8")) return (double)((const int64_t *)array->data)[i];
    return !strcmp(array->dtype, "<f8") ? ((const double *)array->data)[i]
                                        : (double)((const float *)array->data)[i];
}

static const int64_t *integers(const step *s, const char *name) {
    const fm_npy *array = need(s, "in/", name);
    assert(!strcmp(array->dtype, "<i8"));
    return array->data;
}

static const float *floats(const step *s, const char *name) {
    const fm_npy *array = need(s, "in/", name);
    assert(!strcmp(array->dtype, "<f4"));
    return array->data;
}

static int64_t extent(const step *s, const char *name, size_t axis) {
    const fm_npy *array = need(s, "in/", name);
    assert(axis < array->rank);
    return (int64_t)array->shape[axis];
}

/* -- sizes */

/* The number at "model.hidden.c_noise"; `missing` where the text has none. */
static double number_at(const step *s, const char *path, double missing) {
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

static void read_size(const step *s, const char *path, int64_t *size) {
    *size = (int64_t)number_at(s, path, (double)*size);
}

static void read_count(const step *s, const char *path, int32_t *count) {
    *count = (int32_t)number_at(s, path, (double)*count);
}

static void read_widths(const step *s, fm_af3_config *c) {
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

static void read_blocks(const step *s, fm_af3_config *c) {
    read_count(s, "model.pairformer_blocks", &c->n_pairformer_block);
    read_count(s, "model.msa_blocks", &c->n_msa_block);
    read_count(s, "model.template_blocks", &c->n_template_block);
    read_count(s, "model.diffusion_blocks", &c->n_diffusion_block);
    read_count(s, "model.atom_blocks", &c->n_atom_block);
    read_count(s, "model.atom_blocks", &c->n_input_atom_block);
    read_count(s, "model.hidden.input_atom_blocks", &c->n_input_atom_block);
    read_count(s, "model.confidence_blocks", &c->n_confidence_block);
}

static void read_noise(const step *s, fm_af3_noise *n) {
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
        *row[i].to = number_at(s, row[i].path, *row[i].to);
}

static fm_status read_config(step *s, fm_error *error) {
    fm_bytes text;
    fm_status status = fm_file_read(&s->arena, s->files->config, (size_t)1 << 20, &text, error);
    if (status) return status;
    s->json = fm_json_parse(text.data, text.size);
    if (!s->json) return fm_fail(error, FM_ERR_FORMAT, "%s is not JSON", s->files->config);
    fm_af3_config *c = &s->config;
    *c = fm_af3_config_initial();
    read_widths(s, c);
    read_blocks(s, c);
    read_noise(s, &c->noise);
    c->n_token = extent(s, "asym_id", 0);
    c->n_atom = extent(s, "ref_pos", 0);
    c->n_msa = extent(s, "msa_rows", 1);
    c->n_cycle = (int32_t)extent(s, "msa_rows", 0);
    c->n_template = extent(s, "template_aatype", 0);
    c->n_sample = extent(s, "rnd_sigma_normal", 0);
    c->n_rollout_step = (int32_t)extent(s, "rnd_rollout_noise", 0);
    c->dropout_msa = c->dropout_pair = 0;
    return FM_OK;
}

static void read_labels(step *s) {
    s->labels =
        (fm_complex_labels){.n_token = s->config.n_token,
                            .n_atom = s->config.n_atom,
                            .coordinate = floats(s, "coordinate"),
                            .coordinate_mask = floats(s, "coordinate_mask"),
                            .is_dna = integers(s, "is_dna"),
                            .is_rna = integers(s, "is_rna"),
                            .is_ligand = integers(s, "is_ligand"),
                            .distogram_rep_atom_mask = integers(s, "distogram_rep_atom_mask"),
                            .pae_rep_atom_mask = integers(s, "pae_rep_atom_mask"),
                            .plddt_m_rep_atom_mask = integers(s, "plddt_m_rep_atom_mask"),
                            .atom_to_token_idx = integers(s, "atom_to_token_idx"),
                            .bond_mask = integers(s, "bond_mask"),
                            .frame_atom_index = integers(s, "frame_atom_index"),
                            .has_frame = integers(s, "has_frame"),
                            .resolution = floats(s, "resolution")[0]};
}

static void read_sample(step *s) {
    s->sample =
        (fm_af3_sample){.n_token = s->config.n_token,
                        .n_atom = s->config.n_atom,
                        .n_msa = extent(s, "msa", 0),
                        .n_template = s->config.n_template,
                        .asym_id = integers(s, "asym_id"),
                        .entity_id = integers(s, "entity_id"),
                        .sym_id = integers(s, "sym_id"),
                        .residue_index = integers(s, "residue_index"),
                        .token_index = integers(s, "token_index"),
                        .restype = floats(s, "restype"),
                        .profile = floats(s, "profile"),
                        .deletion_mean = floats(s, "deletion_mean"),
                        .token_bonds = floats(s, "token_bonds"),
                        .msa = integers(s, "msa"),
                        .has_deletion = floats(s, "has_deletion"),
                        .deletion_value = floats(s, "deletion_value"),
                        .template_aatype = integers(s, "template_aatype"),
                        .template_distogram = floats(s, "template_distogram"),
                        .template_pseudo_beta_mask = floats(s, "template_pseudo_beta_mask"),
                        .template_unit_vector = floats(s, "template_unit_vector"),
                        .template_backbone_frame_mask = floats(s, "template_backbone_frame_mask"),
                        .atom_to_token_idx = integers(s, "atom_to_token_idx"),
                        .atom_to_tokatom_idx = integers(s, "atom_to_tokatom_idx"),
                        .distogram_rep_atom_mask = integers(s, "distogram_rep_atom_mask"),
                        .ref_space_uid = integers(s, "ref_space_uid"),
                        .ref_pos = floats(s, "ref_pos"),
                        .ref_charge = floats(s, "ref_charge"),
                        .ref_mask = floats(s, "ref_mask"),
                        .ref_element = floats(s, "ref_element"),
                        .ref_atom_name_chars = floats(s, "ref_atom_name_chars")};
}

/* -- values of the state */

static void put_element(fm_element element, void *data, int64_t i, double value) {
    switch (element) {
    case FM_ELEMENT_F64: ((double *)data)[i] = value; break;
    case FM_ELEMENT_F32: ((float *)data)[i] = (float)value; break;
    case FM_ELEMENT_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    case FM_ELEMENT_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    default: assert(!"a type of an input");
    }
}

static void put(void *context, int32_t tensor, int64_t at, double value) {
    step *s = context;
    const fm_tensor *to = &s->state.tensor[tensor];
    assert(at >= 0 && at < fm_tensor_local_count(to));
    put_element(to->element, s->host + s->state.offset[tensor], at, value);
    s->written[tensor] = true;
}

static void clear(step *s, int32_t tensor) {
    memset(s->host + s->state.offset[tensor], 0,
           (size_t)fm_tensor_local_bytes(&s->state.tensor[tensor]));
    s->written[tensor] = true;
}

/* Uploads what has been written since the last call. */
static void send(step *s) {
    for (int32_t t = 0; t < s->state.n_tensor; t++) {
        if (!s->written[t]) continue;
        s->kernels->upload(NULL, fm_state_data(&s->state, t), s->host + s->state.offset[t],
                           (size_t)fm_tensor_local_bytes(&s->state.tensor[t]));
        s->written[t] = false;
    }
    s->kernels->synchronize(NULL);
}

/* Returns numbers of the device in memory of the step's life. */
static double *fetch(step *s, const void *device, fm_element element, int64_t count) {
    size_t bytes = (size_t)count * fm_element_bytes(element);
    void *host = malloc(bytes + 1);
    double *values = fm_arena_alloc_array(&s->arena, (size_t)count, sizeof *values);
    assert(host && values);
    s->kernels->download(NULL, host, device, bytes);
    s->kernels->synchronize(NULL);
    for (int64_t i = 0; i < count; i++)
        values[i] = element == FM_ELEMENT_F64 ? ((double *)host)[i] : (double)((float *)host)[i];
    free(host);
    return values;
}

/* -- building */

static void keep_outputs(step *s) {
    const fm_tensor_ref out[] = {s->out.s_inputs, s->out.s, s->out.z, s->out.x_denoised,
                                 s->out.distogram};
    const fm_tensor_ref logits[] = {s->logits.plddt, s->logits.pae, s->logits.pde,
                                    s->logits.resolved};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        fm_tape_keep(&s->last, out[i]);
    for (size_t i = 0; i < sizeof logits / sizeof logits[0]; i++)
        fm_tape_keep(&s->confidence, logits[i]);
}

/* Records the losses behind both passes with gradients. */
static void record_losses(step *s) {
    const fm_complex_logits logits = {s->logits.plddt, s->logits.pde, s->logits.resolved,
                                      s->logits.pae};
    fm_complex_declare_targets(&s->state, s->kernels, s->config.n_token, s->config.n_atom,
                               fm_complex_count_bonds(&s->labels), s->config.n_sample, &s->targets);
    s->structure_total = fm_complex_structure_losses(&s->last, s->out.x_denoised, s->out.distogram,
                                                     &s->targets, s->term);
    s->confidence_total =
        fm_complex_confidence_losses(&s->confidence, &logits, &s->targets, s->term);
    s->seed = fm_state_add(&s->state, "one", s->kernels->acc, 1, (int64_t[]){1});
    fm_tape_seed_gradient(&s->last, s->structure_total, s->seed);
    fm_tape_seed_gradient(&s->confidence, s->confidence_total, s->seed);
    fm_tape_keep(&s->last, s->structure_total);
    fm_tape_keep(&s->confidence, s->confidence_total);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_tape_keep(i < FM_COMPLEX_STRUCTURE_TERMS ? &s->last : &s->confidence, s->term[i]);
}

static fm_status record(step *s, fm_error *error) {
    struct {
        fm_tape *tape;
        bool with_gradient;
    } tapes[N_TAPE] = {{&s->cycle, false},
                       {&s->last, true},
                       {&s->prepare, false},
                       {&s->denoise, false},
                       {&s->confidence, true}};
    fm_status status = FM_OK;
    for (int i = 0; i < N_TAPE && !status; i++)
        status = fm_tape_init(tapes[i].tape, s->kernels, &s->params, &s->state,
                              tapes[i].with_gradient, error);
    if (status) return status;
    fm_af3_record_cycle(&s->cycle, &s->config, &s->weights, &s->inputs);
    s->out = fm_af3_record_last(&s->last, &s->config, &s->weights, &s->inputs);
    fm_af3_record_prepare(&s->prepare, &s->config, &s->weights, &s->inputs);
    fm_af3_record_denoise(&s->denoise, &s->config, &s->weights, &s->inputs);
    s->logits = fm_af3_record_confidence(&s->confidence, &s->config, &s->weights, &s->inputs);
    keep_outputs(s);
    record_losses(s);
    int64_t largest = 1;
    for (int i = 0; i < N_TAPE && !status; i++) {
        status = fm_tape_plan(tapes[i].tape, error);
        int64_t bytes = tapes[i].tape->size.arena_bytes;
        largest = bytes > largest ? bytes : largest;
    }
    if (status) return status;
    s->memory = s->kernels->alloc((size_t)largest);
    if (!s->memory) return fm_fail(error, FM_ERR_NOMEM, "cannot allocate the step's arena");
    for (int i = 0; i < N_TAPE; i++)
        fm_tape_bind(tapes[i].tape, s->memory);
    return FM_OK;
}

static fm_status build(step *s, fm_error *error) {
    fm_status status = fm_arena_init(&s->arena, (size_t)8 << 30, error);
    if (!status) status = read_config(s, error);
    if (!status) status = fm_params_init(&s->params, FM_AF3_MAX_PARAM, &s->arena, error);
    if (status) return status;
    read_sample(s);
    read_labels(s);
    fm_af3_add_parameters(&s->params, &s->arena, &s->config, &s->weights);
    fm_af3_declare_inputs(&s->state, &s->config, s->kernels, &s->inputs);
    status = record(s, error);
    if (!status) status = fm_params_allocate(&s->params, s->kernels, error);
    if (!status) status = fm_state_allocate(&s->state, s->kernels, error);
    const fm_optimizer_options options = {.rate = number_at(s, "optimizer.lr", 1.8e-3),
                                          .beta1 = number_at(s, "optimizer.beta1", 0.9),
                                          .beta2 = number_at(s, "optimizer.beta2", 0.95),
                                          .eps = number_at(s, "optimizer.eps", 1e-8),
                                          .ema_decay = number_at(s, "optimizer.ema", 0.999),
                                          .l2 = number_at(s, "optimizer.weight_decay", 1e-8),
                                          .clip = FM_CLIP_BATCH,
                                          .clip_norm = number_at(s, "clip", 10),
                                          .decay_factor = 1};
    if (!status) status = fm_optimizer_init(&s->optimizer, &s->params, &options, error);
    if (status) return status;
    s->host = calloc(1, (size_t)s->state.bytes);
    assert(s->host);
    return FM_OK;
}

static void load_parameters(step *s) {
    size_t size = fm_element_bytes(s->params.element);
    void *master = calloc((size_t)s->params.n_element, size);
    assert(master);
    for (int32_t p = 0; p < s->params.n_param; p++) {
        const fm_param *row = &s->params.param[p];
        const fm_npy *array = need(s, "w/", row->name);
        assert((int64_t)array->count == fm_param_count(row));
        for (int64_t i = 0; i < (int64_t)array->count; i++)
            put_element(s->params.element, master, row->offset + i, value_of(array, i));
    }
    s->kernels->upload(NULL, s->params.master, master, (size_t)s->params.n_element * size);
    s->kernels->upload(NULL, s->params.ema, master, (size_t)s->params.n_element * size);
    s->kernels->synchronize(NULL);
    free(master);
}

/* -- comparing */

typedef struct worst {
    double error;
    char name[KEY_BYTES];
    int count;
} worst;

static void note(worst *w, const char *name, double error) {
    if (!(error <= w->error) || w->count == 0) { /* not-a-number is the worst */
        w->error = error;
        snprintf(w->name, sizeof w->name, "%s", name);
    }
    w->count++;
}

static double relative(const double *data, const fm_npy *array) {
    double difference = 0, norm = 0;
    for (uint64_t i = 0; i < array->count; i++) {
        double b = value_of(array, (int64_t)i), e = data[i] - b;
        difference += e * e;
        norm += b * b;
    }
    return sqrt(difference) / fmax(sqrt(norm), 1e-30);
}

static void report(step *s, const char *group, const worst *w, double gate) {
    bool ok = w->count > 0 && w->error <= gate;
    printf("step %s %-12s %4d arrays, worst %.2e of %s (gate %.0e) %s\n", s->wide ? "f64" : "f32",
           group, w->count, w->error, w->count ? w->name : "none", gate, ok ? "ok" : "FAIL");
    s->failed |= !ok;
}

static void compare_tensor(step *s, worst *w, const fm_tape *tape, fm_tensor_ref tensor,
                           const char *name) {
    const fm_npy *array = find(s->files->expected, "out/", name);
    if (!array) return;
    const fm_tensor *described = fm_tape_tensor(tape, tensor);
    assert(fm_tensor_local_count(described) == (int64_t)array->count);
    const double *data =
        fetch(s, fm_tape_data(tape, tensor), described->element, (int64_t)array->count);
    note(w, name, relative(data, array));
}

static void compare_outputs(step *s) {
    worst w = {0};
    compare_tensor(s, &w, &s->last, s->out.s_inputs, "s_inputs");
    compare_tensor(s, &w, &s->last, s->out.s, "s");
    compare_tensor(s, &w, &s->last, s->out.z, "z");
    compare_tensor(s, &w, &s->last, s->out.distogram, "distogram");
    compare_tensor(s, &w, &s->last, s->out.x_denoised, "x_denoised");
    report(s, "out", &w, s->wide ? WIDE_GATE : OUTPUT_GATE);
}

static void compare_logits(step *s) {
    worst w = {0};
    compare_tensor(s, &w, &s->confidence, s->logits.plddt, "plddt");
    compare_tensor(s, &w, &s->confidence, s->logits.pae, "pae");
    compare_tensor(s, &w, &s->confidence, s->logits.pde, "pde");
    compare_tensor(s, &w, &s->confidence, s->logits.resolved, "resolved");
    report(s, "confidence", &w, s->wide ? WIDE_GATE : OUTPUT_GATE);
}

/* Fetches the terms `first` to `end` of a pass and adds their weighted sum to the loss. */
static void read_terms(step *s, const fm_tape *tape, int first, int end, fm_tensor_ref total) {
    fm_element acc = s->kernels->acc;
    for (int i = first; i < end; i++)
        s->value[i] = *fetch(s, fm_tape_data(tape, s->term[i]), acc, 1);
    s->loss += *fetch(s, fm_tape_data(tape, total), acc, 1);
}

static void compare_losses(step *s) {
    static const char *const names[FM_COMPLEX_TERMS] = {[FM_COMPLEX_MSE] = "mse_loss",
                                                        [FM_COMPLEX_BOND] = "bond_loss",
                                                        [FM_COMPLEX_SMOOTH_LDDT] =
                                                            "smooth_lddt_loss",
                                                        [FM_COMPLEX_DISTOGRAM] = "distogram_loss",
                                                        [FM_COMPLEX_PLDDT] = "plddt_loss",
                                                        [FM_COMPLEX_PDE] = "pde_loss",
                                                        [FM_COMPLEX_RESOLVED] = "resolved_loss",
                                                        [FM_COMPLEX_PAE] = "pae_loss"};
    worst w = {0};
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        note(&w, names[i], relative(&s->value[i], find(s->files->expected, "loss/", names[i])));
    note(&w, "loss", relative(&s->loss, find(s->files->expected, "loss/", "loss")));
    report(s, "losses", &w, s->wide ? WIDE_GATE : LOSS_GATE);
}

/* Whether the configuration lists the parameter among those whose true gradient is 0. */
static bool is_zero_gradient(const step *s, const char *name) {
    const fm_json *list = fm_json_get_member(s->json, "zero_gradient");
    for (size_t i = 0; i < fm_json_count(list); i++) {
        const char *text = fm_json_get_text(fm_json_get_element(list, i));
        if (text && !strcmp(text, name)) return true;
    }
    return false;
}

static double largest(const double *data, int64_t n) {
    double most = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(data[i]) <= most)) most = fabs(data[i]);
    }
    return most;
}

static void compare_gradients(step *s) {
    worst w = {0}, zero = {0};
    for (int32_t p = 0; p < s->params.n_param; p++) {
        const fm_param *row = &s->params.param[p];
        const fm_npy *array = find(s->files->expected, "grad/", row->name);
        const double *data = fetch(s, fm_params_at(&s->params, s->params.gradient, row->offset),
                                   s->params.element, fm_param_count(row));
        if (is_zero_gradient(s, row->name)) {
            note(&zero, row->name, largest(data, fm_param_count(row)));
        } else if (array) {
            note(&w, row->name, relative(data, array));
        }
    }
    report(s, "gradients", &w, s->wide ? WIDE_GATE : GRADIENT_GATE);
    report(s, "zero", &zero, ZERO_GATE);
}

/* The norm before clipping. */
static void compare_norm(step *s) {
    const fm_npy *array = find(s->files->expected, "clip/", "total_norm");
    worst w = {0};
    double norm = sqrt(fm_optimizer_get_state(&s->optimizer, NULL).norm_squared);
    note(&w, "total_norm", relative(&norm, array));
    report(s, "norm", &w, s->wide ? WIDE_GATE : OUTPUT_GATE);
}

/* Compares updated values absolutely. Adam's first step moves a value by the sign of its gradient,
 * so values with a gradient that may be rounding noise are left out. */
static void compare_update(step *s, const char *group, const char *prefix, void *flat,
                           double gate) {
    worst w = {0};
    for (int32_t p = 0; p < s->params.n_param; p++) {
        const fm_param *row = &s->params.param[p];
        const fm_npy *array = find(s->files->expected, prefix, row->name);
        const fm_npy *gradient = find(s->files->expected, "grad/", row->name);
        if (!array || !gradient || is_zero_gradient(s, row->name)) continue;
        int64_t n = fm_param_count(row);
        const double *data =
            fetch(s, fm_params_at(&s->params, flat, row->offset), s->params.element, n);
        double most = 0, error = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmax(most, fabs(value_of(gradient, i)));
        for (int64_t i = 0; i < n; i++) {
            double g = fabs(value_of(gradient, i)), e = fabs(data[i] - value_of(array, i));
            if ((g == 0 || g > NOISE * most) && !(e <= error)) error = e;
        }
        note(&w, row->name, error);
    }
    if (w.count) report(s, group, &w, gate);
}

/* Clip, Adam with L2 and the moving average. */
static void run_update(step *s) {
    bool finite = fm_optimizer_add_sample(&s->optimizer, NULL);
    s->failed |= !finite;
    fm_optimizer_step(&s->optimizer, NULL);
    compare_norm(s);
    compare_update(s, "post", "post/", s->params.master, UPDATE_GATE);
    compare_update(s, "ema", "ema/", s->params.ema, AVERAGE_GATE);
}

/* -- draws and structures, on the host */

/* The factors of a noise level for structure `at` of a set. */
static void put_level(step *s, const fm_af3_structures *to, int64_t at, double t) {
    double factors[FM_AF3_FACTORS];
    fm_af3_noise_factors(t, s->config.noise.sigma_data, factors);
    put(s, to->in, at, factors[FM_AF3_FACTOR_IN]);
    put(s, to->skip, at, factors[FM_AF3_FACTOR_SKIP]);
    put(s, to->out, at, factors[FM_AF3_FACTOR_OUT]);
    put(s, to->log, at, factors[FM_AF3_FACTOR_LOG]);
}

/* x [n, 3] minus the mean over the atoms with mask, times R^T, plus t. mask NULL: all atoms. */
static void augment(int64_t n, const double *x, const float *mask, const float *rotation,
                    const float *translation, double *y) {
    double mean[3] = {0}, total = mask ? 1e-12 : 0;
    for (int64_t l = 0; l < n; l++) {
        double weight = mask ? mask[l] : 1;
        total += weight;
        for (int k = 0; k < 3; k++)
            mean[k] += weight * x[3 * l + k];
    }
    for (int64_t l = 0; l < n; l++) {
        double centred[3];
        for (int k = 0; k < 3; k++)
            centred[k] = x[3 * l + k] - mean[k] / total;
        for (int i = 0; i < 3; i++) {
            double turned = translation[i];
            for (int k = 0; k < 3; k++)
                turned += (double)rotation[3 * i + k] * centred[k];
            y[3 * l + i] = mask ? mask[l] * turned : turned;
        }
    }
}

/* The noisy structures of training. */
static void load_structures(step *s) {
    int64_t n = s->config.n_atom;
    const float *rotation = floats(s, "rnd_aug_rot"), *translation = floats(s, "rnd_aug_trans");
    const float *normal = floats(s, "rnd_sigma_normal"), *noise = floats(s, "rnd_noise");
    const float *truth = floats(s, "coordinate"), *mask = floats(s, "coordinate_mask");
    double *x = malloc((size_t)(6 * n) * sizeof *x), *y = x + 3 * n;
    assert(x);
    for (int64_t i = 0; i < 3 * n; i++)
        x[i] = truth[i];
    for (int64_t k = 0; k < s->config.n_sample; k++) {
        const fm_af3_noise *of = &s->config.noise;
        double sigma = of->sigma_data * exp(of->p_mean + of->p_std * (double)normal[k]);
        augment(n, x, mask, rotation + 9 * k, translation + 3 * k, y);
        put_level(s, &s->inputs.training, k, sigma);
        put(s, s->targets.scale, k, fm_complex_scale(sigma, of->sigma_data));
        for (int64_t i = 0; i < 3 * n; i++)
            put(s, s->inputs.training.x, k * 3 * n + i,
                y[i] + sigma * (double)noise[k * 3 * n + i]);
    }
    free(x);
}

static double level_of(const fm_af3_noise *of, int32_t k, int32_t n) {
    double a = pow(of->s_max, 1 / of->rho), b = pow(of->s_min, 1 / of->rho);
    return k == n ? 0 : of->sigma_data * pow(a + (double)k / n * (b - a), of->rho);
}

/* The rollout (18) on the recorded draws; compares the structure. */
static void run_rollout(step *s, double *x) {
    int64_t n = s->config.n_atom;
    int32_t n_step = s->config.n_rollout_step;
    const fm_af3_noise *of = &s->config.noise;
    const float *init = floats(s, "rnd_rollout_init"), *rot = floats(s, "rnd_rollout_rot");
    const float *trans = floats(s, "rnd_rollout_trans"), *noise = floats(s, "rnd_rollout_noise");
    double *y = malloc((size_t)(3 * n) * sizeof *y);
    assert(y);
    for (int64_t i = 0; i < 3 * n; i++)
        x[i] = level_of(of, 0, n_step) * (double)init[i];
    fm_tape_forward(&s->prepare, NULL);
    for (int32_t k = 0; k < n_step; k++) {
        double level = level_of(of, k, n_step), next = level_of(of, k + 1, n_step);
        double t = level * (1 + (next > of->gamma_min ? of->gamma0 : 0));
        double churn = of->noise_scale * sqrt(t * t - level * level);
        augment(n, x, NULL, rot + 9 * k, trans + 3 * k, y);
        put_level(s, &s->inputs.rollout, 0, t);
        for (int64_t i = 0; i < 3 * n; i++) {
            y[i] += churn * (double)noise[k * 3 * n + i];
            put(s, s->inputs.rollout.x, i, y[i]);
        }
        send(s);
        fm_tape_forward(&s->denoise, NULL);
        const double *denoised =
            fetch(s, fm_state_data(&s->state, s->inputs.denoised), s->kernels->act, 3 * n);
        for (int64_t i = 0; i < 3 * n; i++)
            x[i] = y[i] + of->step_scale * (next - t) * (y[i] - denoised[i]) / t;
    }
    free(y);
    worst w = {0};
    note(&w, "coordinate_mini", relative(x, find(s->files->expected, "out/", "coordinate_mini")));
    report(s, "rollout", &w, s->wide ? WIDE_GATE : OUTPUT_GATE);
}

/* -- running */

static void load_fourier(step *s) {
    static const char *const names[] = {"w", "b"};
    const int32_t to[] = {s->inputs.fourier_w, s->inputs.fourier_b};
    for (int i = 0; i < 2; i++) {
        const fm_npy *array =
            need(s, "w/diffusion_module.diffusion_conditioning.fourier_embedding.", names[i]);
        for (int64_t k = 0; k < (int64_t)array->count; k++)
            put(s, to[i], k, value_of(array, k));
    }
}

static void load_labels(step *s) {
    const fm_complex_weights weights = {
        .diffusion = number_at(s, "loss.weight.alpha_diffusion", 4),
        .bond = number_at(s, "loss.weight.alpha_bond", 0),
        .smooth_lddt = number_at(s, "loss.weight.smooth_lddt", 1),
        .distogram = number_at(s, "loss.weight.alpha_distogram", 0.03),
        .confidence = number_at(s, "loss.weight.alpha_confidence", 1e-4),
        .pae = number_at(s, "loss.weight.alpha_pae", 0),
        .least_resolution = number_at(s, "loss.resolution.min", 0.1),
        .most_resolution = number_at(s, "loss.resolution.max", 4)};
    fm_complex_write_labels(&s->labels, &weights, &s->targets, put, s);
    put(s, s->seed, 0, 1);
}

static fm_status run_forward(step *s, fm_error *error) {
    fm_af3_writer to = {put, s};
    load_parameters(s);
    load_fourier(s);
    load_structures(s);
    load_labels(s);
    fm_status status =
        fm_af3_write_sample(&s->sample, &s->config, &s->inputs, &to, &s->arena, error);
    for (int32_t c = 0; c < s->config.n_cycle && !status; c++) {
        clear(s, s->inputs.msa);
        clear(s, s->inputs.mask_msa);
        fm_af3_write_msa(&s->sample, &s->config, &s->inputs,
                         integers(s, "msa_rows") + c * s->config.n_msa, s->config.n_msa, &to);
        send(s);
        fm_tape_forward(c + 1 < s->config.n_cycle ? &s->cycle : &s->last, NULL);
    }
    return status;
}

/* The tapes share one arena, so the rollout follows all that reads the last cycle's tape. */
static fm_status run(step *s, fm_error *error) {
    fm_status status = run_forward(s, error);
    if (status) return status;
    compare_outputs(s);
    read_terms(s, &s->last, 0, FM_COMPLEX_STRUCTURE_TERMS, s->structure_total);
    s->kernels->fill(NULL, s->params.n_element, 0.0, s->params.gradient);
    fm_tape_backward(&s->last, NULL);
    double *x = fm_arena_alloc_array(&s->arena, (size_t)(3 * s->config.n_atom), sizeof *x);
    assert(x);
    run_rollout(s, x);
    const fm_af3_writer to = {put, s};
    status = fm_af3_write_structure(&s->sample, &s->config, &s->inputs, x, &to, &s->arena, error);
    if (status) return status;
    for (int64_t i = 0; i < 3 * s->config.n_atom; i++)
        put(s, s->targets.structure, i, x[i]);
    send(s);
    fm_tape_forward(&s->confidence, NULL);
    compare_logits(s);
    read_terms(s, &s->confidence, FM_COMPLEX_STRUCTURE_TERMS, FM_COMPLEX_TERMS,
               s->confidence_total);
    compare_losses(s);
    fm_tape_backward(&s->confidence, NULL);
    compare_gradients(s);
    run_update(s);
    return FM_OK;
}

bool af3_step_run(const af3_step_files *files, const fm_kernels *kernels) {
    step *s = calloc(1, sizeof *s);
    assert(s);
    s->files = files;
    s->kernels = kernels;
    s->wide = kernels->act == FM_ELEMENT_F64;
    fm_error error = {0};
    fm_status status = build(s, &error);
    if (!status) status = run(s, &error);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    bool good = !status && !s->failed;
    fm_tape *const tapes[N_TAPE] = {&s->confidence, &s->denoise, &s->prepare, &s->last, &s->cycle};
    for (int i = 0; i < N_TAPE; i++)
        fm_tape_fini(tapes[i]);
    fm_optimizer_fini(&s->optimizer);
    kernels->release(s->memory);
    fm_state_release(&s->state);
    fm_params_release(&s->params);
    fm_json_free(s->json);
    free(s->host);
    fm_arena_fini(&s->arena);
    free(s);
    return good;
}
