/* af3_sample.c: see af3_sample.h. No tape has gradients, so updates are in place. */
#include "tests/trainer/parity/af3_sample.h"

#include "proto/base/hash.h"
#include "tests/trainer/parity/af3_bench.h"
#include "trainer/model/af3/rollout.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

enum { N_TAPE = 5 };

static const double OUTPUT_GATE = 1e-5, WIDE_GATE = 1e-11;

typedef struct sampling {
    af3_bench base;
    const af3_sample_files *files;
    fm_tape cycle, last, prepare, step, confidence;
    fm_af3_rollout rollout;
    fm_af3_outputs out;
    fm_af3_step_results made;
    fm_af3_confidence_logits logits;
    int64_t n_step, n_sample, n_atom, n_recorded; /* n_recorded: atoms with the padding */
    int32_t structure; /* that the confidence head judges; in the state */
    void *memory;      /* the arena, then the state's room */
    uint64_t *hash;    /* of the structures */
} sampling;

static const fm_npy *draws_of(const sampling *s, const char *name) {
    const fm_npy *array = case_find(s->files->draws, "in/", name);
    assert(array);
    return array;
}

/* -- building */

static void record(sampling *s) {
    af3_bench *b = &s->base;
    const fm_af3_config *config = &b->of.config;
    fm_af3_record_cycle(&s->cycle, config, &b->weights, &b->inputs);
    s->out = fm_af3_record_last(&s->last, config, 0, &b->weights, &b->inputs);
    fm_af3_record_prepare(&s->prepare, config, &b->weights, &b->inputs);
    fm_af3_record_modulations(&s->prepare, config, &b->weights, &b->inputs, &s->rollout);
    s->made = fm_af3_record_rollout_step(&s->step, config, &b->weights, &b->inputs, &s->rollout,
                                         FM_DRAW_SAMPLING);
    s->logits =
        fm_af3_record_confidence(&s->confidence, config, &b->weights, &b->inputs, s->structure);
    fm_tape_keep(&s->last, s->out.s_inputs);
    fm_tape_keep(&s->last, s->out.s);
    fm_tape_keep(&s->last, s->out.z);
    fm_tape_keep(&s->step, s->made.noisy);
    fm_tape_keep(&s->step, s->made.denoised);
    fm_tape_keep(&s->confidence, s->logits.plddt);
    fm_tape_keep(&s->confidence, s->logits.pae);
    fm_tape_keep(&s->confidence, s->logits.resolved);
}

static fm_status build(sampling *s, fm_error *error) {
    af3_bench *b = &s->base;
    fm_tape *const tapes[N_TAPE] = {&s->cycle, &s->last, &s->prepare, &s->step, &s->confidence};
    fm_status status = bench_open(b, s->files->config, s->files->features, s->files->pad, error);
    if (status) return status;
    const fm_npy *noise = draws_of(s, "rnd_noise");
    s->n_step = (int64_t)noise->shape[0];
    s->n_sample = (int64_t)noise->shape[1];
    s->n_atom = b->of.sample.n_atom;
    s->n_recorded = b->of.config.n_atom;
    fm_af3_declare_rollout(&b->state, &b->of.config, b->kernels, s->n_sample, (int32_t)s->n_step,
                           true, &s->rollout);
    const int64_t atoms[] = {s->n_recorded, 3};
    s->structure = fm_state_add(&b->state, "structure", b->kernels->act, 2, atoms);
    for (int i = 0; i < N_TAPE && !status; i++)
        status = fm_tape_init(tapes[i], b->kernels, b->params, &b->state, false, error);
    if (status) return status;
    record(s);
    int64_t largest = 1;
    for (int i = 0; i < N_TAPE && !status; i++) {
        status = fm_tape_plan(tapes[i], error);
        largest = tapes[i]->size.arena_bytes > largest ? tapes[i]->size.arena_bytes : largest;
    }
    if (!status) status = bench_allocate(b, error);
    if (status) return status;
    largest = fm_plan_round(largest);
    s->memory = b->kernels->alloc((size_t)(largest + b->state.room_bytes));
    if (!s->memory) return fm_fail(error, FM_ERR_NOMEM, "cannot allocate the arena of a run");
    b->state.room = (char *)s->memory + largest;
    for (int i = 0; i < N_TAPE; i++) {
        fm_tape_bind(tapes[i], s->memory);
        tapes[i]->spoils = true;
    }
    return FM_OK;
}

/* -- running */

static fm_status run_trunk(sampling *s, fm_error *error) {
    af3_bench *b = &s->base;
    const fm_af3_writer to = {bench_put, b};
    bench_load_parameters(b);
    fm_af3_queue_constants(b->params, &b->weights, &b->state, &b->inputs, NULL);
    fm_status status =
        fm_af3_write_sample(&b->of.sample, &b->of.config, &b->inputs, &to, &b->arena, error);
    fm_af3_write_conformers(b->of.sample.n_atom, b->of.sample.ref_pos, &b->inputs, &to);
    for (int32_t c = 0; c < b->of.config.n_cycle && !status; c++) {
        bench_clear(b, b->inputs.msa);
        bench_clear(b, b->inputs.mask_msa);
        fm_af3_write_msa(&b->of.sample, &b->of.config, &b->inputs,
                         case_integers(&b->of, "msa_rows") + c * b->of.n_row, b->of.n_row, &to);
        bench_send(b);
        fm_tape_forward(c + 1 < b->of.config.n_cycle ? &s->cycle : &s->last, NULL);
    }
    if (status) return status;
    af3_worst w = {0};
    bench_compare(b, &w, &s->last, s->out.s_inputs, "s_inputs");
    bench_compare(b, &w, &s->last, s->out.s, "s");
    bench_compare(b, &w, &s->last, s->out.z, "z");
    bench_report(b, "trunk", &w, b->wide ? WIDE_GATE : OUTPUT_GATE);
    return FM_OK;
}

/* Appends the value of a kept tensor to `to`, without its padding; returns the end. The last axes
 * of out/NAME have the extents without padding. */
static double *append(sampling *s, const fm_tape *tape, fm_tensor_ref tensor, const char *name,
                      double *to) {
    const fm_npy *array = case_find(s->base.expected, "out/", name);
    const fm_tensor *described = fm_tape_tensor(tape, tensor);
    int64_t n = fm_tensor_local_count(described);
    const double *data = bench_fetch(&s->base, fm_tape_data(tape, tensor), described->element, n);
    for (int64_t i = 0; i < n; i++) {
        bool inside = true;
        for (int axis = 0; axis < described->rank && inside; axis++) {
            int64_t at = i / described->stride[axis] % described->local[axis];
            inside = at < (int64_t)array->shape[(int)array->rank - described->rank + axis];
        }
        if (inside) *to++ = data[i];
    }
    return to;
}

static double *room(sampling *s, const char *name) {
    const fm_npy *array = case_find(s->base.expected, "out/", name);
    assert(array);
    double *numbers = fm_arena_alloc_array(&s->base.arena, array->count, sizeof *numbers);
    assert(numbers);
    return numbers;
}

static void note(sampling *s, af3_worst *w, const char *name, const double *data) {
    af3_note(w, name, af3_relative(data, case_find(s->base.expected, "out/", name)));
}

/* Writes the part of an array that belongs to step k, structure by structure. */
static void put_draws(sampling *s, int32_t to, const char *name, int64_t k) {
    const fm_npy *array = draws_of(s, name);
    int64_t room = fm_tensor_local_count(&s->base.state.tensor[to]) / s->n_step / s->n_sample;
    int64_t count = (int64_t)array->count / s->n_step / s->n_sample;
    assert(count <= room);
    for (int64_t of = 0; of < s->n_sample; of++) {
        for (int64_t i = 0; i < count; i++) {
            double value = case_value(array, (k * s->n_sample + of) * count + i);
            bench_put(&s->base, to, (k * s->n_sample + of) * room + i, value);
        }
    }
}

static void begin_structures(sampling *s, double first_level) {
    af3_bench *b = &s->base;
    const fm_npy *init = draws_of(s, "rnd_init");
    for (int64_t i = 0; i < (int64_t)init->count; i++) {
        int64_t of = i / (3 * s->n_atom), at = i % (3 * s->n_atom);
        bench_put(b, s->rollout.x, of * 3 * s->n_recorded + at, first_level * case_value(init, i));
    }
    for (int64_t k = 0; k < s->n_sample; k++) {
        for (int64_t i = 0; i < b->of.sample.n_token; i++)
            bench_put(b, s->rollout.mask, k * b->of.config.n_token + i, 1);
    }
}

static void run_steps(sampling *s) {
    af3_bench *b = &s->base;
    double *levels = room(s, "schedule"), *noisy = room(s, "x_noisy");
    double *denoised = room(s, "x_denoised"), *next[2] = {noisy, denoised};
    fm_af3_schedule(&b->of.config.noise, s->n_step, levels);
    begin_structures(s, levels[0]);
    for (int64_t k = 0; k < s->n_step; k++) {
        fm_af3_write_step(&b->of.config, &s->rollout, (int32_t)k, levels + k, bench_put, b);
        put_draws(s, s->rollout.rotation, "rnd_rot", k);
        put_draws(s, s->rollout.offset, "rnd_trans", k);
        put_draws(s, s->rollout.noise, "rnd_noise", k);
    }
    bench_send(b);
    fm_tape_forward(&s->prepare, NULL);
    for (s->step.row = 0; s->step.row < s->n_step; s->step.row++) {
        fm_tape_forward(&s->step, NULL);
        next[0] = append(s, &s->step, s->made.noisy, "x_noisy", next[0]);
        next[1] = append(s, &s->step, s->made.denoised, "x_denoised", next[1]);
    }
    af3_worst w = {0};
    note(s, &w, "schedule", levels);
    note(s, &w, "x_noisy", noisy);
    note(s, &w, "x_denoised", denoised);
    bench_report(b, "steps", &w, b->wide ? WIDE_GATE : OUTPUT_GATE);
}

static void run_confidence(sampling *s) {
    af3_bench *b = &s->base;
    const int64_t n = 3 * s->n_atom, recorded = 3 * s->n_recorded;
    const double *all = bench_fetch(b, fm_state_data(&b->state, s->rollout.x), b->kernels->act,
                                    s->n_sample * recorded);
    double *x = room(s, "x");
    for (int64_t i = 0; i < s->n_sample * n; i++)
        x[i] = all[i / n * recorded + i % n];
    double *plddt = room(s, "plddt"), *pae = room(s, "pae"), *resolved = room(s, "resolved");
    double *next[3] = {plddt, pae, resolved};
    for (int64_t k = 0; k < s->n_sample; k++) {
        for (int64_t i = 0; i < recorded; i++)
            bench_put(b, s->structure, i, all[k * recorded + i]);
        bench_send(b);
        fm_tape_forward(&s->confidence, NULL);
        next[0] = append(s, &s->confidence, s->logits.plddt, "plddt", next[0]);
        next[1] = append(s, &s->confidence, s->logits.pae, "pae", next[1]);
        next[2] = append(s, &s->confidence, s->logits.resolved, "resolved", next[2]);
    }
    *s->hash = fm_xxh3(x, (size_t)(s->n_sample * n) * sizeof *x);
    af3_worst w = {0};
    note(s, &w, "x", x);
    note(s, &w, "plddt", plddt);
    note(s, &w, "pae", pae);
    note(s, &w, "resolved", resolved);
    bench_report(b, "samples", &w, b->wide ? WIDE_GATE : OUTPUT_GATE);
}

static void compare_memory(sampling *s) {
    bench_report_memory(&s->base, "cycle", &s->cycle);
    bench_report_memory(&s->base, "last", &s->last);
    bench_report_memory(&s->base, "prepare", &s->prepare);
    bench_report_memory(&s->base, "step", &s->step);
    bench_report_memory(&s->base, "confidence", &s->confidence);
}

bool af3_sample_run(const af3_sample_files *files, const fm_groups *groups,
                    const fm_kernels *kernels, uint64_t *ret_hash) {
    sampling *s = calloc(1, sizeof *s);
    assert(s);
    s->files = files;
    s->base.kernels = kernels;
    s->base.expected = files->expected;
    s->base.name = "sampling";
    s->base.groups = groups;
    s->hash = ret_hash;
    fm_error error = {0};
    fm_status status = build(s, &error);
    if (!status) status = run_trunk(s, &error);
    if (!status) run_steps(s);
    if (!status) run_confidence(s);
    if (!status) compare_memory(s);
    if (status) fprintf(stderr, "af3_parity: %s\n", error.message);
    bool good = !status && !s->base.failed;
    fm_tape *const tapes[N_TAPE] = {&s->cycle, &s->last, &s->prepare, &s->step, &s->confidence};
    for (int i = 0; i < N_TAPE; i++)
        fm_tape_fini(tapes[i]);
    kernels->release(s->memory);
    bench_close(&s->base);
    free(s);
    return good;
}
