/* af3_step.c: see af3_step.h. The step is that of the reference: all cycles, the last with
 * gradients, a rollout on recorded draws, and the update of the parameters. */
#include "tests/trainer/af3_step.h"

#include "proto/base/hash.h"
#include "tests/trainer/af3_full.h"
#include "trainer/model/af3/rollout.h"
#include "trainer/optim/optimizer.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_TAPE = 7 };

static const double OUTPUT_GATE = 1e-5, LOSS_GATE = 3e-6, GRADIENT_GATE = 1e-4, WIDE_GATE = 1e-11;
/* Gradients that are zero in exact arithmetic are compared absolutely. */
static const double ZERO_GATE = 1e-5;
/* The same of the published model, whose floors are higher, and those of its gradients' norms. */
static const double FULL_LOSS_GATE = 1e-5, FULL_GRADIENT_GATE = 5e-4, FULL_NORM_GATE = 5e-5;
/* Updated values, absolutely. */
static const double UPDATE_GATE = 5e-5, AVERAGE_GATE = 1e-6, NOISE = 1e-5;

typedef struct step {
    af3_bench base;
    const af3_step_files *files;
    bool full; /* the published model (af3_full.h) */
    fm_tape structures, cycle, last, prepare, step, confidence;
    fm_tape hoisted; /* denoises the training structures with the biases of `prepare` */
    fm_tensor_ref hoisted_x;
    fm_af3_training_noise noise;
    fm_af3_rollout rollout;
    fm_af3_outputs out;              /* of `last` */
    const double *denoised;          /* its structures */
    fm_af3_confidence_logits logits; /* of `confidence` */
    fm_complex_targets targets;
    fm_tensor_ref term[FM_COMPLEX_TERMS], structure_total, confidence_total;
    double value[FM_COMPLEX_TERMS], loss;
    int32_t seed; /* acc [1]: the gradient of both totals, 1 over the number of ranks */
    fm_optimizer optimizer;
    int64_t last_bytes; /* that `last` has used */
    void *memory;
    uint64_t *hash; /* of the updated parameters */
} step;

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
    fm_complex_declare_targets(&s->base.state, s->base.kernels, s->base.of.config.n_token,
                               s->base.of.config.n_atom, fm_complex_count_bonds(&s->base.of.labels),
                               s->base.of.config.n_sample, &s->targets);
    s->structure_total = fm_complex_structure_losses(&s->last, s->out.x_denoised, s->out.distogram,
                                                     &s->targets, s->term);
    s->confidence_total =
        fm_complex_confidence_losses(&s->confidence, &logits, &s->targets, s->term);
    s->seed = fm_state_add(&s->base.state, "one", s->base.kernels->acc, 1, (int64_t[]){1});
    fm_tape_seed_gradient(&s->last, s->structure_total, s->seed);
    fm_tape_seed_gradient(&s->confidence, s->confidence_total, s->seed);
    fm_tape_keep(&s->last, s->structure_total);
    fm_tape_keep(&s->confidence, s->confidence_total);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_tape_keep(i < FM_COMPLEX_STRUCTURE_TERMS ? &s->last : &s->confidence, s->term[i]);
}

/* Records the module with stored biases. In `last` each block makes its bias from z. */
static void record_hoisted(step *s) {
    const fm_af3_config *config = &s->base.of.config;
    const fm_af3_inputs *in = &s->base.inputs;
    fm_tape *tape = &s->hoisted;
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    fm_af3_trunk_output trunk = fm_af3_stored_trunk(tape, in);
    fm_af3_prepared prepared = fm_af3_stored_prepared(tape, config, in);
    const fm_af3_levels levels = {.in = fm_tape_state(tape, in->training.in, false),
                                  .skip = fm_tape_state(tape, in->training.skip, false),
                                  .out = fm_tape_state(tape, in->training.out, false),
                                  .log = fm_tape_state(tape, in->training.log, false),
                                  .fourier_w = fm_tape_state(tape, in->fourier_w, false),
                                  .fourier_b = fm_tape_state(tape, in->fourier_b, false)};
    s->hoisted_x = fm_af3_diffusion_denoise(
        tape, NULL, &atoms, &trunk, &prepared, fm_tape_state(tape, in->training.x, false), &levels,
        fm_tape_state(tape, in->training.mask, false), &s->base.weights.diffusion, false);
    fm_tape_keep(tape, s->hoisted_x);
}

static fm_status record(step *s, fm_error *error) {
    struct {
        fm_tape *tape;
        bool with_gradient;
    } tapes[N_TAPE] = {{&s->structures, false}, {&s->cycle, false}, {&s->last, true},
                       {&s->prepare, false},    {&s->step, false},  {&s->confidence, true},
                       {&s->hoisted, false}};
    fm_status status = FM_OK;
    for (int i = 0; i < N_TAPE && !status; i++)
        status = fm_tape_init(tapes[i].tape, s->base.kernels, &s->base.params, &s->base.state,
                              tapes[i].with_gradient, error);
    if (status) return status;
    fm_af3_record_cycle(&s->cycle, &s->base.of.config, &s->base.weights, &s->base.inputs);
    s->out = fm_af3_record_last(&s->last, &s->base.of.config, &s->base.weights, &s->base.inputs);
    fm_af3_record_prepare(&s->prepare, &s->base.of.config, &s->base.weights, &s->base.inputs);
    fm_af3_record_rollout_step(&s->step, &s->base.of.config, &s->base.weights, &s->base.inputs,
                               &s->rollout, FM_DRAW_ROLLOUT);
    s->logits = fm_af3_record_confidence(&s->confidence, &s->base.of.config, &s->base.weights,
                                         &s->base.inputs);
    record_hoisted(s);
    keep_outputs(s);
    record_losses(s);
    fm_af3_record_training_structures(&s->structures, &s->base.of.config, &s->base.inputs,
                                      s->targets.position, s->targets.mask, &s->noise);
    int64_t largest = 1;
    for (int i = 0; i < N_TAPE && !status; i++) {
        status = fm_tape_plan(tapes[i].tape, error);
        int64_t bytes = tapes[i].tape->size.arena_bytes;
        largest = bytes > largest ? bytes : largest;
    }
    if (status) return status;
    s->memory = s->base.kernels->alloc((size_t)largest);
    if (!s->memory) return fm_fail(error, FM_ERR_NOMEM, "cannot allocate the step's arena");
    for (int i = 0; i < N_TAPE; i++) {
        fm_tape_bind(tapes[i].tape, s->memory);
        tapes[i].tape->spoils = true;
    }
    return FM_OK;
}

static fm_status build(step *s, fm_error *error) {
    fm_status status = bench_open(&s->base, s->files->config, s->files->in, s->files->pad, error);
    if (status) return status;
    fm_af3_declare_rollout(&s->base.state, &s->base.of.config, s->base.kernels, 1, true,
                           &s->rollout);
    fm_af3_declare_training_noise(&s->base.state, &s->base.of.config, s->base.kernels, true,
                                  &s->noise);
    s->base.of.config.recompute = s->files->recompute;
    status = record(s, error);
    if (!status) status = bench_allocate(&s->base, error);
    const fm_optimizer_options options = {
        .rate = case_number(&s->base.of, "optimizer.lr", 1.8e-3),
        .beta1 = case_number(&s->base.of, "optimizer.beta1", 0.9),
        .beta2 = case_number(&s->base.of, "optimizer.beta2", 0.95),
        .eps = case_number(&s->base.of, "optimizer.eps", 1e-8),
        .ema_decay = case_number(&s->base.of, "optimizer.ema", 0.999),
        .l2 = case_number(&s->base.of, "optimizer.weight_decay", 1e-8),
        .clip = FM_CLIP_BATCH,
        .clip_norm = case_number(&s->base.of, "clip", 10),
        .decay_factor = 1};
    if (!status && !s->full) {
        status = fm_optimizer_init(&s->optimizer, &s->base.params, &options, error);
    }
    return status;
}

/* -- comparing */

static void compare_outputs(step *s) {
    af3_worst w = {0};
    bench_compare(&s->base, &w, &s->last, s->out.s_inputs, "s_inputs");
    bench_compare(&s->base, &w, &s->last, s->out.s, "s");
    bench_compare(&s->base, &w, &s->last, s->out.z, "z");
    bench_compare(&s->base, &w, &s->last, s->out.distogram, "distogram");
    bench_compare(&s->base, &w, &s->last, s->out.x_denoised, "x_denoised");
    bench_report(&s->base, "out", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

static void compare_logits(step *s) {
    af3_worst w = {0};
    bench_compare(&s->base, &w, &s->confidence, s->logits.plddt, "plddt");
    bench_compare(&s->base, &w, &s->confidence, s->logits.pae, "pae");
    bench_compare(&s->base, &w, &s->confidence, s->logits.pde, "pde");
    bench_compare(&s->base, &w, &s->confidence, s->logits.resolved, "resolved");
    bench_report(&s->base, "confidence", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

/* Fetches the terms `first` to `end` of a pass and adds their weighted sum to the loss. */
static void read_terms(step *s, const fm_tape *tape, int first, int end, fm_tensor_ref total) {
    fm_element acc = s->base.kernels->acc;
    for (int i = first; i < end; i++)
        s->value[i] = *bench_fetch(&s->base, fm_tape_data(tape, s->term[i]), acc, 1);
    s->loss += *bench_fetch(&s->base, fm_tape_data(tape, total), acc, 1);
}

static void note_loss(const step *s, af3_worst *w, const char *name, double got) {
    const fm_npz *file = s->base.expected;
    double expected =
        s->full ? af3_full_loss(file, name) : case_value(case_find(file, "loss/", name), 0);
    af3_note(w, name, fabs(got - expected) / fmax(fabs(expected), 1e-30));
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
    af3_worst w = {0};
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        note_loss(s, &w, names[i], s->value[i]);
    note_loss(s, &w, "loss", s->loss);
    double gate = s->full ? FULL_LOSS_GATE : LOSS_GATE;
    bench_report(&s->base, "losses", &w, s->base.wide ? WIDE_GATE : gate);
}

/* Whether the configuration lists the parameter among those whose true gradient is 0. */
static bool is_zero_gradient(const step *s, const char *name) {
    if (s->full) return af3_full_gradient_is_zero(s->base.expected, name);
    const fm_json *list = fm_json_get_member(s->base.of.json, "zero_gradient");
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
    af3_worst w = {0}, zero = {0};
    for (int32_t p = 0; p < s->base.params.n_param; p++) {
        const fm_param *row = &s->base.params.param[p];
        const fm_npy *array = case_find(s->base.expected, "grad/", row->name);
        const double *data = bench_fetch(
            &s->base, fm_params_at(&s->base.params, s->base.params.gradient, row->offset),
            s->base.params.element, fm_param_count(row));
        if (is_zero_gradient(s, row->name)) {
            af3_note(&zero, row->name, largest(data, fm_param_count(row)));
        } else if (array) {
            af3_note(&w, row->name, af3_relative(data, array));
        }
    }
    bench_report(&s->base, "gradients", &w, s->base.wide ? WIDE_GATE : GRADIENT_GATE);
    bench_report(&s->base, "zero", &zero, ZERO_GATE);
}

/* The published model's gradients: samples and norms, one tensor at a time. */
static void compare_full_gradients(step *s) {
    const fm_npz *file = s->base.expected;
    af3_worst samples = {0}, norms = {0}, zero = {0}, all = {0};
    double total = 0, expected = case_value(case_find(file, "", "clip_total_norm_f64"), 0);
    for (int32_t p = 0; p < s->base.params.n_param; p++) {
        const fm_param *row = &s->base.params.param[p];
        int64_t n = fm_param_count(row);
        size_t mark = fm_arena_mark(&s->base.arena);
        const double *data = bench_fetch(
            &s->base, fm_params_at(&s->base.params, s->base.params.gradient, row->offset),
            s->base.params.element, n);
        for (int64_t i = 0; i < n; i++)
            total += data[i] * data[i];
        double norm_error, error = af3_full_gradient_error(file, row->name, data, n, &norm_error);
        if (is_zero_gradient(s, row->name)) {
            af3_note(&zero, row->name, largest(data, n));
        } else {
            af3_note(&samples, row->name, error);
            af3_note(&norms, row->name, norm_error);
        }
        fm_arena_rewind(&s->base.arena, mark);
    }
    af3_note(&all, "total_norm", fabs(sqrt(total) - expected) / expected);
    bench_report(&s->base, "gradients", &samples, FULL_GRADIENT_GATE);
    bench_report(&s->base, "norms", &norms, FULL_NORM_GATE);
    bench_report(&s->base, "zero", &zero, ZERO_GATE);
    bench_report(&s->base, "norm", &all, OUTPUT_GATE);
}

/* The norm before clipping. */
static void compare_norm(step *s) {
    const fm_npy *array = case_find(s->base.expected, "clip/", "total_norm");
    af3_worst w = {0};
    double norm = sqrt(fm_optimizer_get_state(&s->optimizer, NULL).norm_squared);
    af3_note(&w, "total_norm", af3_relative(&norm, array));
    bench_report(&s->base, "norm", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

/* Compares updated values absolutely. Adam's first step moves a value by the sign of its gradient,
 * so values with a gradient that may be rounding noise are left out. */
static void compare_update(step *s, const char *group, const char *prefix, void *flat,
                           double gate) {
    af3_worst w = {0};
    for (int32_t p = 0; p < s->base.params.n_param; p++) {
        const fm_param *row = &s->base.params.param[p];
        const fm_npy *array = case_find(s->base.expected, prefix, row->name);
        const fm_npy *gradient = case_find(s->base.expected, "grad/", row->name);
        if (!array || !gradient || is_zero_gradient(s, row->name)) continue;
        int64_t n = fm_param_count(row);
        const double *data = bench_fetch(&s->base, fm_params_at(&s->base.params, flat, row->offset),
                                         s->base.params.element, n);
        double most = 0, error = 0;
        for (int64_t i = 0; i < n; i++)
            most = fmax(most, fabs(case_value(gradient, i)));
        for (int64_t i = 0; i < n; i++) {
            double g = fabs(case_value(gradient, i)), e = fabs(data[i] - case_value(array, i));
            if ((g == 0 || g > NOISE * most) && !(e <= error)) error = e;
        }
        af3_note(&w, row->name, error);
    }
    if (w.count) bench_report(&s->base, group, &w, gate);
}

/* What both passes with gradients have used is what was planned. */
static void compare_memory(step *s) {
    const struct {
        const char *name;
        int64_t used, planned;
    } pass[] = {{"last", s->last_bytes, s->last.size.arena_bytes},
                {"confidence", fm_tape_used_bytes(&s->confidence), s->confidence.size.arena_bytes}};
    for (int i = 0; i < 2; i++) {
        bool ok = pass[i].used == pass[i].planned;
        s->base.failed |= !ok;
        if (ok && !bench_prints(&s->base)) continue;
        printf("step %s memory       %s: %lld bytes planned, %lld used %s\n",
               s->base.wide ? "f64" : "f32", pass[i].name, (long long)pass[i].planned,
               (long long)pass[i].used, ok ? "ok" : "FAIL");
    }
}

/* Clip, Adam with L2 and the moving average. */
static void run_update(step *s) {
    bool finite = fm_optimizer_add_sample(&s->optimizer, NULL);
    s->base.failed |= !finite;
    fm_optimizer_step(&s->optimizer, NULL);
    compare_norm(s);
    compare_update(s, "post", "post/", s->base.params.master, UPDATE_GATE);
    compare_update(s, "ema", "ema/", s->base.params.ema, AVERAGE_GATE);
    size_t bytes = (size_t)s->base.params.n_element * fm_element_bytes(s->base.params.element);
    void *master = malloc(bytes);
    assert(master);
    s->base.kernels->download(NULL, master, s->base.params.master, bytes);
    s->base.kernels->synchronize(NULL);
    *s->hash = fm_xxh3(master, bytes);
    free(master);
}

/* -- draws and structures, on the host */

/* Writes `count` numbers of an array, from number k * count on. */
static void put_part(step *s, int32_t to, const char *name, int64_t k, int64_t count) {
    const float *from = case_floats(&s->base.of, name);
    for (int64_t i = 0; i < count; i++)
        bench_put(&s->base, to, i, from[k * count + i]);
}

/* Draws and levels of the training structures. Recorded structures may have more atoms. */
static void load_structures(step *s) {
    const fm_af3_config *config = &s->base.of.config;
    int64_t n = s->base.of.sample.n_atom;
    const float *normal = case_floats(&s->base.of, "rnd_sigma_normal");
    const float *noise = case_floats(&s->base.of, "rnd_noise");
    put_part(s, s->noise.rotation, "rnd_aug_rot", 0, 9 * config->n_sample);
    put_part(s, s->noise.offset, "rnd_aug_trans", 0, 3 * config->n_sample);
    for (int64_t k = 0; k < config->n_sample; k++) {
        double sigma = fm_af3_training_level(&config->noise, normal[k]);
        bench_put(&s->base, s->noise.sigma, k, sigma);
        bench_put_level(&s->base, &s->base.inputs.training, k, sigma);
        bench_put(&s->base, s->targets.scale, k, fm_complex_scale(sigma, config->noise.sigma_data));
        for (int64_t i = 0; i < 3 * n; i++)
            bench_put(&s->base, s->noise.noise, k * 3 * config->n_atom + i, noise[k * 3 * n + i]);
    }
}

/* The biases that `prepare` has stored denoise the training structures to the bits of the pass in
 * which each block makes its bias. Call it behind `prepare`. */
static void compare_hoisted(step *s) {
    const fm_npy *array = case_find(s->base.expected, "out/", "x_denoised");
    int64_t n = fm_tensor_local_count(fm_tape_tensor(&s->last, s->out.x_denoised));
    if (s->base.groups || !array) return;
    fm_tape_forward(&s->hoisted, NULL);
    const double *x =
        bench_fetch(&s->base, fm_tape_data(&s->hoisted, s->hoisted_x), s->base.kernels->act, n);
    af3_worst w = {0};
    af3_note(&w, "x_denoised", memcmp(x, s->denoised, (size_t)n * sizeof *x) ? 1 : 0);
    bench_report(&s->base, "hoisted", &w, 0);
}

/* The rollout (18) on the recorded draws; compares the structure. */
static void run_rollout(step *s, double *x) {
    const fm_af3_config *config = &s->base.of.config;
    int64_t count = 3 * s->base.of.sample.n_atom;
    const float *init = case_floats(&s->base.of, "rnd_rollout_init");
    double *levels =
        fm_arena_alloc_array(&s->base.arena, (size_t)config->n_rollout_step + 1, sizeof *levels);
    assert(levels);
    fm_af3_schedule(&config->noise, config->n_rollout_step, levels);
    for (int64_t i = 0; i < count; i++)
        bench_put(&s->base, s->rollout.x, i, levels[0] * (double)init[i]);
    for (int64_t i = 0; i < s->base.of.sample.n_token; i++)
        bench_put(&s->base, s->rollout.mask, i, 1);
    fm_tape_forward(&s->prepare, NULL);
    compare_hoisted(s);
    for (int32_t k = 0; k < config->n_rollout_step; k++) {
        fm_af3_write_step(config, &s->rollout, levels + k, bench_put, &s->base);
        put_part(s, s->rollout.rotation, "rnd_rollout_rot", k, 9);
        put_part(s, s->rollout.offset, "rnd_rollout_trans", k, 3);
        put_part(s, s->rollout.noise, "rnd_rollout_noise", k, count);
        bench_send(&s->base);
        fm_tape_forward(&s->step, NULL);
    }
    const double *last = bench_fetch(&s->base, fm_state_data(&s->base.state, s->rollout.x),
                                     s->base.kernels->act, count);
    memcpy(x, last, (size_t)count * sizeof *x);
    af3_worst w = {0};
    af3_note(&w, "coordinate_mini",
             af3_relative(x, s->full ? case_find(s->base.expected, "", "coordinate_mini_f64")
                                     : case_find(s->base.expected, "out/", "coordinate_mini")));
    bench_report(&s->base, "rollout", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

/* -- running */

static void load_labels(step *s) {
    const fm_complex_weights weights = {
        .diffusion = case_number(&s->base.of, "loss.weight.alpha_diffusion", 4),
        .bond = case_number(&s->base.of, "loss.weight.alpha_bond", 0),
        .smooth_lddt = case_number(&s->base.of, "loss.weight.smooth_lddt", 1),
        .distogram = case_number(&s->base.of, "loss.weight.alpha_distogram", 0.03),
        .confidence = case_number(&s->base.of, "loss.weight.alpha_confidence", 1e-4),
        .pae = case_number(&s->base.of, "loss.weight.alpha_pae", 0),
        .least_resolution = case_number(&s->base.of, "loss.resolution.min", 0.1),
        .most_resolution = case_number(&s->base.of, "loss.resolution.max", 4)};
    fm_complex_write_labels(&s->base.of.labels, &weights, &s->targets, bench_put, &s->base);
    bench_put(&s->base, s->seed, 0, 1.0 / fm_groups_sample_ranks(s->base.groups));
}

static fm_status run_forward(step *s, fm_error *error) {
    fm_af3_writer to = {bench_put, &s->base};
    if (s->full) {
        af3_full_load(&s->base);
    } else {
        bench_load_parameters(&s->base);
        bench_load_fourier(&s->base);
    }
    load_structures(s);
    load_labels(s);
    fm_status status = fm_af3_write_sample(&s->base.of.sample, &s->base.of.config, &s->base.inputs,
                                           &to, &s->base.arena, error);
    int64_t n_row = s->base.of.n_row;
    for (int32_t c = 0; c < s->base.of.config.n_cycle && !status; c++) {
        bench_clear(&s->base, s->base.inputs.msa);
        bench_clear(&s->base, s->base.inputs.mask_msa);
        fm_af3_write_msa(&s->base.of.sample, &s->base.of.config, &s->base.inputs,
                         case_integers(&s->base.of, "msa_rows") + c * n_row, n_row, &to);
        bench_send(&s->base);
        if (c == 0) fm_tape_forward(&s->structures, NULL);
        fm_tape_forward(c + 1 < s->base.of.config.n_cycle ? &s->cycle : &s->last, NULL);
    }
    return status;
}

/* The tapes share one arena, so the rollout follows all that reads the last cycle's tape. */
static fm_status run(step *s, fm_error *error) {
    fm_status status = run_forward(s, error);
    if (status) return status;
    compare_outputs(s);
    s->denoised =
        bench_fetch(&s->base, fm_tape_data(&s->last, s->out.x_denoised), s->base.kernels->act,
                    fm_tensor_local_count(fm_tape_tensor(&s->last, s->out.x_denoised)));
    read_terms(s, &s->last, 0, FM_COMPLEX_STRUCTURE_TERMS, s->structure_total);
    s->base.kernels->fill(NULL, s->base.params.n_element, 0.0, s->base.params.gradient);
    fm_tape_backward(&s->last, NULL);
    s->last_bytes = fm_tape_used_bytes(&s->last);
    double *x =
        fm_arena_alloc_array(&s->base.arena, (size_t)(3 * s->base.of.sample.n_atom), sizeof *x);
    assert(x);
    run_rollout(s, x);
    const fm_af3_writer to = {bench_put, &s->base};
    status = fm_af3_write_structure(&s->base.of.sample, &s->base.of.config, &s->base.inputs, x, &to,
                                    &s->base.arena, error);
    if (status) return status;
    for (int64_t i = 0; i < 3 * s->base.of.sample.n_atom; i++)
        bench_put(&s->base, s->targets.structure, i, x[i]);
    bench_send(&s->base);
    fm_tape_forward(&s->confidence, NULL);
    compare_logits(s);
    read_terms(s, &s->confidence, FM_COMPLEX_STRUCTURE_TERMS, FM_COMPLEX_TERMS,
               s->confidence_total);
    compare_losses(s);
    fm_tape_backward(&s->confidence, NULL);
    bench_sum_gradients(&s->base);
    compare_memory(s);
    if (s->full) {
        compare_full_gradients(s);
    } else {
        compare_gradients(s);
        run_update(s);
    }
    return FM_OK;
}

bool af3_step_run(const af3_step_files *files, const fm_groups *groups, const fm_kernels *kernels,
                  uint64_t *ret_hash) {
    step *s = calloc(1, sizeof *s);
    assert(s);
    s->files = files;
    s->full = af3_full_is(files->expected);
    s->base.kernels = kernels;
    s->base.expected = files->expected;
    s->base.name = "step";
    s->base.groups = groups;
    s->hash = ret_hash;
    fm_error error = {0};
    fm_status status = build(s, &error);
    if (!status) status = run(s, &error);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    bool good = !status && !s->base.failed;
    fm_tape *const tapes[N_TAPE] = {&s->hoisted, &s->confidence, &s->step,      &s->prepare,
                                    &s->last,    &s->cycle,      &s->structures};
    for (int i = 0; i < N_TAPE; i++)
        fm_tape_fini(tapes[i]);
    fm_optimizer_fini(&s->optimizer);
    kernels->release(s->memory);
    bench_close(&s->base);
    free(s);
    return good;
}
