/* af3_predict_run.c: see af3_predict_run.h. */
#include "tests/trainer/parity/af3_predict_run.h"

#include "proto/base/hash.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is stored in f32 only has the reference's own error in f32. */
static const double OUTPUT_GATE = 1e-5, WIDE_GATE = 1e-11;

typedef struct prediction {
    af3_bench base;
    const af3_predict_files *files;
    fm_cofold *cofold;
    fm_cofold_draws draws;
    int64_t n_step, n_structure, n_token, n_atom;
} prediction;

static const float *floats_of(const prediction *p, const char *name) {
    return case_floats(&p->base.of, name);
}

static fm_status build(prediction *p, fm_error *error) {
    af3_bench *b = &p->base;
    fm_status status = bench_open_case(b, p->files->config, p->files->in, 0, error);
    if (status) return status;
    const fm_npy *noise = case_array(&b->of, "in/", "rnd_noise");
    p->n_step = (int64_t)noise->shape[0];
    p->n_structure = (int64_t)noise->shape[1];
    p->n_token = b->of.sample.n_token;
    p->n_atom = b->of.sample.n_atom;
    p->draws = (fm_cofold_draws){.msa_rows = case_integers(&b->of, "msa_rows"),
                                 .n_row = b->of.n_row,
                                 .start = floats_of(p, "rnd_init"),
                                 .rotation = floats_of(p, "rnd_rot"),
                                 .offset = floats_of(p, "rnd_trans"),
                                 .noise = floats_of(p, "rnd_noise"),
                                 .n_structure = p->n_structure};
    fm_cofold_options options = {.model = b->of.config,
                                 .kernels = b->kernels,
                                 .n_cycle = b->of.config.n_cycle,
                                 .n_step = (int32_t)p->n_step,
                                 .n_structure = p->n_structure,
                                 .n_row = b->of.n_row,
                                 .slabs = p->files->slabs,
                                 .side = p->files->side,
                                 .exact = !p->files->padded,
                                 .given = true,
                                 .spoils = true,
                                 .rounds = p->files->rounds};
    options.model.products = p->files->products;
    status = fm_cofold_create(&options, &p->cofold, error);
    if (status) return status;
    af3_load_parameters(p->files->weights, fm_cofold_get_params(p->cofold));
    return FM_OK;
}

/* -- values */

/* Notes the error of values against PREFIX NAME, if there is one. */
static void note(prediction *p, af3_worst *w, const char *prefix, const char *name,
                 const double *data) {
    const fm_npy *array = case_find(p->files->in, prefix, name);
    if (array) af3_note(w, name, af3_relative(data, array));
}

/* The same against the doubles of the reference, where the run has doubles, too. */
static void note_wide(prediction *p, af3_worst *w, const char *name, const double *data) {
    note(p, w, p->base.wide ? "f64/" : "out/", name, data);
}

/* Fetches a tensor [.., n, c] of the device, of which the first `row` of n rows are kept. */
static double *fetch_rows(prediction *p, const void *device, const fm_tensor *tensor,
                          int64_t rows) {
    double *all = bench_fetch(&p->base, device, tensor->element, fm_tensor_local_count(tensor));
    const int64_t c = tensor->local[tensor->rank - 1], n = tensor->local[tensor->rank - 2];
    const int64_t groups = fm_tensor_local_count(tensor) / (n * c);
    for (int64_t g = 1; g < groups; g++)
        memmove(all + g * rows * c, all + g * n * c, (size_t)(rows * c) * sizeof *all);
    return all;
}

static double *fetch_state(prediction *p, int32_t tensor, int64_t rows) {
    const fm_recording *r = &fm_cofold_get_passes(p->cofold)->recording;
    return fetch_rows(p, fm_state_data(&r->state, tensor), &r->state.tensor[tensor], rows);
}

static double norm_of(const double *x, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

/* -- the parts of a run, step by step */

/* Runs the cycles and compares the norms of s and z after each, and the last ones. */
static void run_trunk(prediction *p) {
    af3_bench *b = &p->base;
    fm_cofold_passes *passes = fm_cofold_get_passes(p->cofold);
    const fm_af3_config *config = &b->of.config;
    const int64_t n = p->n_token;
    af3_worst norms = {0}, trunk = {0};
    for (int32_t c = 0; c < config->n_cycle; c++) {
        size_t mark = fm_arena_mark(&b->arena);
        fm_cofold_passes_queue_cycle(passes, (uint32_t)c);
        b->kernels->synchronize(passes->recording.stream);
        const double *s = fetch_state(p, passes->inputs.s, n);
        const double *z = fetch_state(p, passes->inputs.z, n);
        const double norm[] = {norm_of(s, n * config->c_s), norm_of(z, n * n * config->c_z)};
        char name[32];
        snprintf(name, sizeof name, "cycle%d_norm", (int)c);
        note_wide(p, &norms, name, norm);
        if (c + 1 == config->n_cycle) {
            note(p, &trunk, "out/", "s_inputs", fetch_state(p, passes->inputs.s_inputs, n));
            note(p, &trunk, "out/", "s", s);
            note(p, &trunk, "out/", "z", z);
        }
        fm_arena_rewind(&b->arena, mark);
    }
    bench_report(b, "cycles", &norms, b->wide ? WIDE_GATE : OUTPUT_GATE);
    bench_report(b, "trunk", &trunk, OUTPUT_GATE);
}

/* Copies the structures of a step into place: to [K, N, A, 3]. */
static void take_step(prediction *p, fm_tensor_ref tensor, int64_t k, int64_t first, int64_t n,
                      double *to) {
    const fm_tape *tape = &fm_cofold_get_passes(p->cofold)->recording.tape[FM_COFOLD_STEP];
    size_t mark = fm_arena_mark(&p->base.arena);
    const double *x =
        fetch_rows(p, fm_tape_data(tape, tensor), fm_tape_tensor(tape, tensor), p->n_atom);
    const int64_t count = 3 * p->n_atom;
    memcpy(to + (k * p->n_structure + first) * count, x, (size_t)(n * count) * sizeof *to);
    fm_arena_rewind(&p->base.arena, mark);
}

static double *room(prediction *p, int64_t n) {
    double *numbers = fm_arena_alloc_array(&p->base.arena, (size_t)n, sizeof *numbers);
    assert(numbers);
    return numbers;
}

/* Runs the steps; x receives the structures. */
static fm_status run_steps(prediction *p, double *x, fm_error *error) {
    af3_bench *b = &p->base;
    fm_cofold_passes *passes = fm_cofold_get_passes(p->cofold);
    const fm_af3_noise *noise = &b->of.config.noise;
    const int64_t all = p->n_structure, count = 3 * p->n_atom, side = passes->options.n_structure;
    double *levels = room(p, p->n_step + 1), *t_hat = room(p, p->n_step * all);
    double *noisy = room(p, p->n_step * all * count), *denoised = room(p, p->n_step * all * count);
    fm_status status = FM_OK;
    fm_af3_schedule(noise, p->n_step, levels);
    fm_cofold_passes_queue_prepare(passes);
    for (int64_t first = 0; first < all && !status; first += side) {
        const int64_t n = all - first < side ? all - first : side;
        status = fm_cofold_passes_start(passes, first, n, error);
        for (int64_t k = 0; k < p->n_step && !status; k++) {
            fm_cofold_passes_queue_step(passes, (int32_t)k);
            b->kernels->synchronize(passes->recording.stream);
            take_step(p, passes->made.noisy, k, first, n, noisy);
            take_step(p, passes->made.denoised, k, first, n, denoised);
            for (int64_t i = 0; i < n; i++)
                t_hat[k * all + first + i] = fm_af3_step_numbers_of(noise, levels + k).t;
        }
        if (!status) status = fm_cofold_passes_read(passes, n, x + first * count, error);
    }
    af3_worst stored = {0}, steps = {0};
    note(p, &stored, "out/", "t_hat", t_hat);
    note(p, &stored, "out/", "x_noisy", noisy);
    note_wide(p, &steps, "schedule", levels);
    note_wide(p, &steps, "x_denoised", denoised);
    bench_report(b, "noisy", &stored, OUTPUT_GATE);
    bench_report(b, "steps", &steps, b->wide ? WIDE_GATE : OUTPUT_GATE);
    return status;
}

/* -- logits */

/* Appends the rows of logits of a head; NULL rows: all atoms. Returns the end. */
static fm_status append(prediction *p, fm_cofold_head head, const fm_npy *rows, double **to,
                        fm_error *error) {
    const int64_t n_row = rows ? (int64_t)rows->count : 1;
    fm_status status = FM_OK;
    for (int64_t r = 0; r < n_row && !status; r++) {
        size_t mark = fm_arena_mark(&p->base.arena);
        const int64_t n = rows ? 1 : p->n_atom, line = rows ? p->n_token : 1;
        const int64_t count = n * line * fm_cofold_bins(p->cofold, head);
        float *logits;
        status = fm_cofold_logits(p->cofold, head, rows ? (int64_t)case_value(rows, r) : 0, n,
                                  &p->base.arena, &logits, error);
        for (int64_t i = 0; i < count && !status; i++)
            *(*to)++ = (double)logits[i];
        fm_arena_rewind(&p->base.arena, mark);
    }
    return status;
}

typedef struct head_file {
    fm_cofold_head head;
    const char *name;
    bool of_pairs;
} head_file;

static const head_file HEADS[] = {{FM_COFOLD_PLDDT, "plddt_logits", false},
                                  {FM_COFOLD_RESOLVED, "resolved_logits", false},
                                  {FM_COFOLD_ALIGNED_ERROR, "pae_logits", true},
                                  {FM_COFOLD_DISTANCE_ERROR, "pde_logits", true}};
enum { N_HEAD = sizeof HEADS / sizeof HEADS[0] };

static double *room_of(prediction *p, const char *name) {
    return room(p, (int64_t)case_array(&(af3_case){.in = p->files->in}, "out/", name)->count);
}

static fm_status run_heads(prediction *p, fm_error *error) {
    const fm_npy *rows = case_array(&p->base.of, "in/", "logit_rows");
    double *logits[N_HEAD], *next[N_HEAD], *distogram = room_of(p, "distogram_logits");
    fm_status status = FM_OK;
    for (int h = 0; h < N_HEAD; h++)
        logits[h] = next[h] = room_of(p, HEADS[h].name);
    for (int64_t k = 0; k < p->n_structure && !status; k++) {
        fm_cofold_judge(p->cofold, k);
        for (int h = 0; h < N_HEAD && !status; h++)
            status = append(p, HEADS[h].head, HEADS[h].of_pairs ? rows : NULL, &next[h], error);
    }
    fm_cofold_distogram(p->cofold);
    double *end = distogram;
    if (!status) status = append(p, FM_COFOLD_DISTANCE, rows, &end, error);
    if (status) return status;
    af3_worst w = {0};
    for (int h = 0; h < N_HEAD; h++)
        note(p, &w, "out/", HEADS[h].name, logits[h]);
    note(p, &w, "out/", "distogram_logits", distogram);
    bench_report(&p->base, "logits", &w, OUTPUT_GATE);
    return FM_OK;
}

static void compare_memory(prediction *p) {
    static const char *const names[FM_COFOLD_TAPES] = {[FM_COFOLD_CYCLE] = "cycle",
                                                       [FM_COFOLD_DISTOGRAM] = "distogram",
                                                       [FM_COFOLD_PREPARE] = "prepare",
                                                       [FM_COFOLD_STEP] = "step",
                                                       [FM_COFOLD_CONFIDENCE] = "confidence"};
    for (int i = 0; i < FM_COFOLD_TAPES; i++)
        bench_report_memory(&p->base, names[i],
                            &fm_cofold_get_passes(p->cofold)->recording.tape[i]);
}

/* Predicts as a program does, compares the structures, and then repeats it part by part. */
static fm_status run(prediction *p, uint64_t *ret_hash, fm_error *error) {
    af3_bench *b = &p->base;
    const int64_t n = p->n_structure * 3 * p->n_atom;
    double *again = room(p, n);
    fm_cofold_times times;
    fm_status status = fm_cofold_run(p->cofold, &b->of.sample, 0, &p->draws, &times, error);
    if (status) return status;
    const double *x = fm_cofold_structure(p->cofold, 0);
    af3_worst w = {0};
    note_wide(p, &w, "x", x);
    bench_report(b, "structures", &w, b->wide ? WIDE_GATE : OUTPUT_GATE);
    *ret_hash = fm_xxh3(x, (size_t)n * sizeof *x);
    fm_cofold_passes *passes = fm_cofold_get_passes(p->cofold);
    status = fm_cofold_passes_begin(passes, &b->of.sample, 0, &p->draws, error);
    if (status) return status;
    run_trunk(p);
    status = run_steps(p, again, error);
    if (!status) status = run_heads(p, error);
    if (status) return status;
    const bool same = !memcmp(again, x, (size_t)n * sizeof *x);
    b->failed |= !same;
    if (!same) printf("%s bits         the second run has other structures FAIL\n", b->name);
    compare_memory(p);
    return FM_OK;
}

bool af3_predict_run(const af3_predict_files *files, const fm_groups *groups,
                     const fm_kernels *kernels, uint64_t *ret_hash) {
    prediction *p = calloc(1, sizeof *p);
    assert(p);
    p->files = files;
    p->base.kernels = kernels;
    p->base.expected = files->in;
    p->base.name = "prediction";
    p->base.groups = groups;
    p->base.noise = files->noise;
    fm_error error = {0};
    fm_status status = build(p, &error);
    if (!status) status = run(p, ret_hash, &error);
    if (status) fprintf(stderr, "af3_predict: %s\n", error.message);
    bool good = !status && !p->base.failed;
    fm_cofold_destroy(p->cofold);
    bench_close(&p->base);
    free(p);
    return good;
}
