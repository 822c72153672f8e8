/* af3_step.c: see af3_step.h. The step is that of the reference: all cycles, the last with
 * gradients, a rollout on recorded draws, and the update of the parameters. */
#include "tests/trainer/parity/af3_step.h"

#include "proto/base/hash.h"
#include "tests/trainer/parity/af3_full.h"
#include "trainer/step/af3/step.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double OUTPUT_GATE = 1e-5, LOSS_GATE = 3e-6, GRADIENT_GATE = 1e-4, WIDE_GATE = 1e-11;
/* Gradients that are zero in exact arithmetic are compared absolutely. */
static const double ZERO_GATE = 1e-5;
/* In bf16 they are sums of rounded terms, so they are compared with the gradient of the weights of
 * the same norm, whose terms are of the same size. */
static const double ZERO_BF16_GATE = 1e-2;
/* The same of the published model, whose floors are higher, and those of its gradients' norms. */
static const double FULL_LOSS_GATE = 1e-5, FULL_GRADIENT_GATE = 5e-4, FULL_NORM_GATE = 5e-5;
/* Updated values, absolutely. */
static const double UPDATE_GATE = 5e-5, AVERAGE_GATE = 1e-6, NOISE = 1e-5;

typedef struct step {
    af3_bench base;
    const af3_step_files *files;
    bool full; /* the published model (af3_full.h) */
    fm_af3_trainer *trainer;
    fm_af3_draws draws;
    fm_af3_features features;
    fm_tape hoisted; /* denoises the training structures with the biases of `prepare` */
    fm_tensor_ref hoisted_x;
    void *hoisted_memory;
    uint64_t *hash; /* of the updated parameters */
} step;

/* -- building */

static fm_complex_weights loss_weights(const af3_case *of) {
    return (fm_complex_weights){.diffusion = case_number(of, "loss.weight.alpha_diffusion", 4),
                                .bond = case_number(of, "loss.weight.alpha_bond", 0),
                                .smooth_lddt = case_number(of, "loss.weight.smooth_lddt", 1),
                                .distogram = case_number(of, "loss.weight.alpha_distogram", 0.03),
                                .confidence = case_number(of, "loss.weight.alpha_confidence", 1e-4),
                                .pae = case_number(of, "loss.weight.alpha_pae", 0),
                                .least_resolution = case_number(of, "loss.resolution.min", 0.1),
                                .most_resolution = case_number(of, "loss.resolution.max", 4)};
}

static fm_optimizer_options optimizer_options(const af3_case *of) {
    return (fm_optimizer_options){.rate = case_number(of, "optimizer.lr", 1.8e-3),
                                  .beta1 = case_number(of, "optimizer.beta1", 0.9),
                                  .beta2 = case_number(of, "optimizer.beta2", 0.95),
                                  .eps = case_number(of, "optimizer.eps", 1e-8),
                                  .ema_decay = case_number(of, "optimizer.ema", 0.999),
                                  .l2 = case_number(of, "optimizer.weight_decay", 1e-8),
                                  .clip = FM_CLIP_BATCH,
                                  .clip_norm = case_number(of, "clip", 10),
                                  .decay_factor = 1};
}

/* The sample with its recorded draws. Labels stay as they are, as in the reference's run. */
static void make_features(step *s) {
    const af3_case *of = &s->base.of;
    s->draws = (fm_af3_draws){.start = case_floats(of, "rnd_rollout_init"),
                              .rotation = case_floats(of, "rnd_rollout_rot"),
                              .offset = case_floats(of, "rnd_rollout_trans"),
                              .noise = case_floats(of, "rnd_rollout_noise"),
                              .level = case_floats(of, "rnd_sigma_normal"),
                              .training_rotation = case_floats(of, "rnd_aug_rot"),
                              .training_offset = case_floats(of, "rnd_aug_trans"),
                              .training_noise = case_floats(of, "rnd_noise")};
    s->features = (fm_af3_features){.sample = of->sample,
                                    .labels = of->labels,
                                    .n_cycle = (uint32_t)of->config.n_cycle,
                                    .msa_rows = case_integers(of, "msa_rows"),
                                    .n_row = of->n_row,
                                    .draws = &s->draws};
}

/* Records the diffusion module with stored biases. In the last cycle each block makes its bias from
 * z. */
static fm_status record_hoisted(step *s, fm_error *error) {
    const fm_af3_trainer *t = s->trainer;
    const fm_af3_config *config = &t->options.model;
    const fm_af3_inputs *in = &t->inputs;
    fm_tape *tape = &s->hoisted;
    fm_status status =
        fm_tape_init(tape, s->base.kernels, s->base.params, &t->recording.state, false, error);
    if (status) return status;
    fm_af3_atoms atoms = fm_af3_atoms_of(tape, config, in);
    fm_af3_trunk_output trunk = fm_af3_stored_trunk(tape, in);
    fm_af3_prepared prepared = fm_af3_stored_prepared(tape, config, in);
    const fm_af3_levels levels = {.in = fm_tape_state(tape, in->training.in, false),
                                  .skip = fm_tape_state(tape, in->training.skip, false),
                                  .out = fm_tape_state(tape, in->training.out, false),
                                  .log = fm_tape_state(tape, in->training.log, false),
                                  .fourier_w = fm_tape_state(tape, in->fourier_w, false),
                                  .fourier_b = fm_tape_state(tape, in->fourier_b, false)};
    const fm_af3_noisy noisy = {.atoms = &atoms,
                                .trunk = &trunk,
                                .prepared = &prepared,
                                .x = fm_tape_state(tape, in->training.x, false),
                                .levels = &levels,
                                .mask = fm_tape_state(tape, in->training.mask, false)};
    s->hoisted_x =
        fm_af3_diffusion_denoise(tape, NULL, &noisy, &t->weights.diffusion, (fm_af3_again){0});
    fm_tape_keep(tape, s->hoisted_x);
    status = fm_tape_plan(tape, error);
    if (status) return status;
    s->hoisted_memory = s->base.kernels->alloc((size_t)tape->size.arena_bytes);
    if (!s->hoisted_memory) return fm_fail(error, FM_ERR_NOMEM, "cannot allocate an arena");
    fm_tape_bind(tape, s->hoisted_memory);
    tape->spoils = true;
    return FM_OK;
}

static fm_status build(step *s, fm_error *error) {
    const af3_step_files *files = s->files;
    fm_status status = bench_open_case(&s->base, files->config, files->in, files->pad, error);
    if (status) return status;
    s->base.of.config.recompute = files->recompute;
    s->base.of.config.products = files->products;
    const fm_af3_trainer_options options = {.model = s->base.of.config,
                                            .optimizer = optimizer_options(&s->base.of),
                                            .loss = loss_weights(&s->base.of),
                                            .kernels = s->base.kernels,
                                            .n_bond = fm_complex_count_bonds(&s->base.of.labels),
                                            .given = true,
                                            .keeps_outputs = true,
                                            .spoils = true,
                                            .rounds = files->noise && files->noise->is_bf16 &&
                                                      !files->noise->known};
    status = fm_af3_trainer_create(&options, &s->trainer, error);
    if (status) return status;
    s->base.params = &s->trainer->recording.params;
    make_features(s);
    return files->noise ? FM_OK : record_hoisted(s, error);
}

/* -- comparing */

static void compare_outputs(step *s) {
    af3_worst w = {0};
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_LAST], s->trainer->out.s_inputs,
                  "s_inputs");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_LAST], s->trainer->out.s, "s");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_LAST], s->trainer->out.z, "z");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_LAST], s->trainer->out.distogram,
                  "distogram");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_LAST],
                  s->trainer->out.x_denoised, "x_denoised");
    bench_report(&s->base, "out", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

static void compare_logits(step *s) {
    af3_worst w = {0};
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_CONFIDENCE],
                  s->trainer->logits.plddt, "plddt");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_CONFIDENCE],
                  s->trainer->logits.pae, "pae");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_CONFIDENCE],
                  s->trainer->logits.pde, "pde");
    bench_compare(&s->base, &w, &s->trainer->recording.tape[FM_AF3_CONFIDENCE],
                  s->trainer->logits.resolved, "resolved");
    bench_report(&s->base, "confidence", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
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
        note_loss(s, &w, names[i], s->trainer->result.term[i]);
    note_loss(s, &w, "loss", s->trainer->result.loss);
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

/* Returns the largest gradient of the entries whose expected gradient is exactly 0: columns of
 * features that the sample does not have. Adds their number to *ret_count. */
static double largest_untouched(const double *data, const fm_npy *expected, int64_t *ret_count) {
    double most = 0;
    for (int64_t i = 0; i < (int64_t)expected->count; i++) {
        if (case_value(expected, i) != 0) continue;
        ++*ret_count;
        if (!(fabs(data[i]) <= most)) most = fabs(data[i]);
    }
    return most;
}

/* The error of a gradient whose true value is 0. */
static double zero_error(const step *s, const char *name, double most) {
    char weight[AF3_NAME_BYTES];
    size_t n = strlen(name) - strlen("bias");
    if (!s->base.noise || strcmp(name + n, "bias") != 0) return most;
    snprintf(weight, sizeof weight, "%.*sweight", (int)n, name);
    const fm_npy *array = case_find(s->base.expected, "grad/", weight);
    double norm = 0;
    for (uint64_t i = 0; array && i < array->count; i++)
        norm += case_value(array, (int64_t)i) * case_value(array, (int64_t)i);
    return norm > 0 ? most / sqrt(norm) : most;
}

static void compare_gradients(step *s) {
    af3_worst w = {0}, diffusion = {0}, zero = {0}, untouched = {0};
    for (int32_t p = 0; p < s->base.params->n_param; p++) {
        const fm_param *row = &s->base.params->param[p];
        const fm_npy *array = case_find(s->base.expected, "grad/", row->name);
        const double *data = bench_fetch(
            &s->base, fm_params_at(s->base.params, s->base.params->gradient, row->offset),
            s->base.params->element, fm_param_count(row));
        if (is_zero_gradient(s, row->name)) {
            double most = largest(data, fm_param_count(row));
            af3_note(&zero, row->name, zero_error(s, row->name, most));
        } else if (array) {
            int64_t count = 0;
            double most = largest_untouched(data, array, &count);
            bool is_diffusion =
                !strncmp(row->name, "diffusion_module.", strlen("diffusion_module."));
            af3_note(is_diffusion ? &diffusion : &w, row->name, af3_relative(data, array));
            if (count) af3_note(&untouched, row->name, most);
        }
    }
    bench_report(&s->base, "untouched", &untouched, 0);
    bench_report(&s->base, "gradients", &w, s->base.wide ? WIDE_GATE : GRADIENT_GATE);
    bench_report(&s->base, "diffusion", &diffusion, s->base.wide ? WIDE_GATE : GRADIENT_GATE);
    bench_report_gate(&s->base, "zero", &zero, s->base.noise ? ZERO_BF16_GATE : ZERO_GATE);
}

/* The published model's gradients: samples and norms, one tensor at a time. */
static void compare_full_gradients(step *s) {
    const fm_npz *file = s->base.expected;
    af3_worst samples = {0}, norms = {0}, zero = {0}, all = {0};
    double total = 0, expected = case_value(case_find(file, "", "clip_total_norm_f64"), 0);
    for (int32_t p = 0; p < s->base.params->n_param; p++) {
        const fm_param *row = &s->base.params->param[p];
        if (row->offset >= fm_params_trained(s->base.params)) break; /* constants */
        int64_t n = fm_param_count(row);
        size_t mark = fm_arena_mark(&s->base.arena);
        const double *data = bench_fetch(
            &s->base, fm_params_at(s->base.params, s->base.params->gradient, row->offset),
            s->base.params->element, n);
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
    double norm = sqrt(fm_optimizer_get_state(&s->trainer->recording.optimizer, NULL).norm_squared);
    af3_note(&w, "total_norm", af3_relative(&norm, array));
    bench_report(&s->base, "norm", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

/* Compares updated values absolutely. Adam's first step moves a value by the sign of its gradient,
 * so values with a gradient that may be rounding noise are left out. */
static void compare_update(step *s, const char *group, const char *prefix, void *flat,
                           double gate) {
    af3_worst w = {0};
    for (int32_t p = 0; p < s->base.params->n_param; p++) {
        const fm_param *row = &s->base.params->param[p];
        const fm_npy *array = case_find(s->base.expected, prefix, row->name);
        const fm_npy *gradient = case_find(s->base.expected, "grad/", row->name);
        if (!array || !gradient || is_zero_gradient(s, row->name)) continue;
        int64_t n = fm_param_count(row);
        const double *data = bench_fetch(&s->base, fm_params_at(s->base.params, flat, row->offset),
                                         s->base.params->element, n);
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

static void compare_memory(step *s) {
    static const char *const names[FM_AF3_TAPES] = {
        [FM_AF3_CYCLE] = "cycle",           [FM_AF3_LAST] = "last",
        [FM_AF3_CONFIDENCE] = "confidence", [FM_AF3_PREPARE] = "prepare",
        [FM_AF3_DENOISE] = "denoise",       [FM_AF3_STRUCTURES] = "structures"};
    for (int i = 0; i < FM_AF3_TAPES; i++)
        bench_report_memory(&s->base, names[i], &s->trainer->recording.tape[i]);
}

/* Clip, Adam with L2 and the moving average. */
static void run_update(step *s) {
    bool finite = fm_optimizer_add_sample(&s->trainer->recording.optimizer, NULL);
    s->base.failed |= !finite;
    fm_optimizer_step(&s->trainer->recording.optimizer, NULL);
    if (s->base.noise) return; /* Adam takes only signs, so the error of one number is chance */
    compare_norm(s);
    compare_update(s, "post", "post/", s->base.params->master, UPDATE_GATE);
    compare_update(s, "ema", "ema/", s->base.params->ema, AVERAGE_GATE);
    size_t bytes = (size_t)s->base.params->n_element * fm_element_bytes(s->base.params->element);
    void *master = malloc(bytes);
    assert(master);
    s->base.kernels->download(NULL, master, s->base.params->master, bytes);
    s->base.kernels->synchronize(NULL);
    *s->hash = fm_xxh3(master, bytes);
    free(master);
}

/* -- running */

static void compare_rollout(step *s) {
    const fm_npy *expected = s->full ? case_find(s->base.expected, "", "coordinate_mini_f64")
                                     : case_find(s->base.expected, "out/", "coordinate_mini");
    af3_worst w = {0};
    af3_note(&w, "coordinate_mini", af3_relative(s->trainer->x, expected));
    bench_report(&s->base, "rollout", &w, s->base.wide ? WIDE_GATE : OUTPUT_GATE);
}

/* The stored biases give the bits of the last cycle. With several ranks or added structures the
 * last cycle has other arrays. */
static void compare_hoisted(step *s) {
    const fm_af3_trainer *t = s->trainer;
    const fm_element act = s->base.kernels->act; /* without noise, acc too */
    int64_t n =
        fm_tensor_local_count(fm_tape_tensor(&t->recording.tape[FM_AF3_LAST], t->out.x_denoised));
    if (s->base.groups || s->base.noise) return;
    const double *x = bench_fetch(
        &s->base, fm_tape_data(&t->recording.tape[FM_AF3_LAST], t->out.x_denoised), act, n);
    fm_tape_forward(&s->hoisted, NULL);
    const double *hoisted = bench_fetch(&s->base, fm_tape_data(&s->hoisted, s->hoisted_x), act, n);
    af3_worst w = {0};
    af3_note(&w, "x_denoised", memcmp(x, hoisted, (size_t)n * sizeof *x) ? 1 : 0);
    bench_report(&s->base, "hoisted", &w, 0);
}

/* Runs the parts of the trainer's step, and compares what each leaves. */
static fm_status run(step *s, fm_error *error) {
    fm_af3_trainer *trainer = s->trainer;
    if (s->full) {
        af3_full_load(&s->base);
    } else {
        bench_load_parameters(&s->base);
    }
    fm_status status = fm_af3_trainer_begin(trainer, &s->features, error);
    if (status) return status;
    fm_af3_trainer_trunk(trainer);
    status = fm_af3_trainer_rollout(trainer, error);
    if (status) return status;
    compare_rollout(s);
    status = fm_af3_trainer_label(trainer, error);
    if (status) return status;
    fm_af3_trainer_learn(trainer);
    compare_outputs(s);
    compare_hoisted(s);
    fm_af3_trainer_confidence(trainer);
    fm_af3_trainer_sum_gradients(trainer);
    compare_logits(s);
    compare_losses(s);
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
    s->base.noise = files->noise;
    s->base.expected = files->expected;
    s->base.name = "step";
    s->base.groups = groups;
    s->hash = ret_hash;
    fm_error error = {0};
    fm_status status = build(s, &error);
    if (!status) status = run(s, &error);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    bool good = !status && !s->base.failed;
    fm_tape_fini(&s->hoisted);
    kernels->release(s->hoisted_memory);
    fm_af3_trainer_destroy(s->trainer);
    bench_close(&s->base);
    free(s);
    return good;
}
