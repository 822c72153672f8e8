/* cofold_passes.c: see cofold_passes.h. */
#include "trainer/infer/cofold_passes.h"

#include "trainer/backend/draw.h"
#include "trainer/backend/normal.h"
#include "trainer/step/af3/features.h"

#include <assert.h>
#include <stdlib.h>

static const size_t SCRATCH_BYTES = (size_t)1 << 36; /* address space */

/* -- recording */

static void declare_state(fm_cofold_passes *p) {
    const fm_cofold_passes_options *o = &p->options;
    fm_recording *r = &p->recording;
    const int64_t atoms[] = {o->model.n_atom, 3}, clocks[] = {o->n_structure, FM_CLOCK_WORDS};
    fm_af3_declare_inputs(&r->state, &o->model, o->kernels, &p->inputs);
    /* One step at a time: what the steps of a long schedule would share takes too much memory. */
    fm_af3_declare_rollout(&r->state, &o->model, o->kernels, o->n_structure, 1, o->given,
                           &p->rollout);
    p->structure = fm_state_add(&r->state, "structure", o->kernels->acc, 2, atoms);
    fm_recording_declare_clock(r);
    p->clocks = fm_state_add(&r->state, "clocks of structures", FM_ELEMENT_U32, 2, clocks);
    fm_af3_declare_step_rows(&r->state, &p->rollout, p->clocks, o->n_step, &p->rows);
}

static fm_status record(fm_cofold_passes *p, fm_error *reterr) {
    const fm_af3_config *config = &p->options.model;
    fm_tape *tape = p->recording.tape;
    fm_status status = fm_recording_begin_tapes(&p->recording, reterr);
    if (status) return status;
    fm_af3_record_any_cycle(&tape[FM_COFOLD_CYCLE], config, &p->weights, &p->inputs);
    p->distogram =
        fm_af3_record_distogram(&tape[FM_COFOLD_DISTOGRAM], config, &p->weights, &p->inputs);
    fm_af3_record_prepare(&tape[FM_COFOLD_PREPARE], config, &p->weights, &p->inputs);
    if (p->recording.state.memory) {
        tape[FM_COFOLD_STEP].clock = fm_state_data(&p->recording.state, p->clocks);
    }
    fm_af3_record_modulations(&tape[FM_COFOLD_STEP], config, &p->weights, &p->inputs, &p->rollout);
    p->made = fm_af3_record_rollout_step(&tape[FM_COFOLD_STEP], config, &p->weights, &p->inputs,
                                         &p->rollout, FM_DRAW_SAMPLING);
    p->logits = fm_af3_record_confidence(&tape[FM_COFOLD_CONFIDENCE], config, &p->weights,
                                         &p->inputs, p->structure);
    const fm_tensor_ref logits[] = {p->logits.plddt, p->logits.pae, p->logits.pde,
                                    p->logits.resolved};
    for (size_t i = 0; i < sizeof logits / sizeof logits[0]; i++)
        fm_tape_keep(&tape[FM_COFOLD_CONFIDENCE], logits[i]);
    fm_tape_keep(&tape[FM_COFOLD_DISTOGRAM], p->distogram);
    fm_tape_keep(&tape[FM_COFOLD_STEP], p->made.noisy);
    fm_tape_keep(&tape[FM_COFOLD_STEP], p->made.denoised);
    return fm_recording_plan_tapes(&p->recording, reterr);
}

/* Adds the tensors that the host writes to the mirror. */
static void choose_mirrored(fm_cofold_passes *p) {
    const fm_af3_inputs *in = &p->inputs;
    const int32_t written[] = {in->relative,
                               in->bonds,
                               in->templates,
                               in->msa,
                               in->token_features,
                               in->mask_single,
                               in->mask_pair,
                               in->mask_msa,
                               in->atom_token,
                               in->first_atom,
                               in->atom_position,
                               in->atom_charge,
                               in->atom_has_reference,
                               in->atom_classes,
                               in->position,
                               in->space,
                               in->atom_mask,
                               in->representative,
                               in->slot_row,
                               in->atom_of_row,
                               p->clocks,
                               p->rollout.x,
                               p->rollout.mask,
                               p->structure};
    fm_mirror_add(&p->mirror, written, sizeof written / sizeof written[0]);
    fm_af3_mirror_step_rows(&p->rows, &p->mirror);
}

/* -- the passes */

static void queue_cycle(void *context, fm_stream *stream) {
    fm_cofold_passes *p = context;
    fm_tape_forward(&p->recording.tape[FM_COFOLD_CYCLE], stream);
}

static void queue_distogram(void *context, fm_stream *stream) {
    fm_cofold_passes *p = context;
    fm_tape_forward(&p->recording.tape[FM_COFOLD_DISTOGRAM], stream);
}

static void queue_prepare(void *context, fm_stream *stream) {
    fm_cofold_passes *p = context;
    fm_recording *r = &p->recording;
    fm_af3_queue_constants(&r->params, &p->weights, &r->state, &p->inputs, stream);
    fm_tape_forward(&r->tape[FM_COFOLD_PREPARE], stream);
}

static void queue_step(void *context, fm_stream *stream) {
    fm_cofold_passes *p = context;
    fm_tape_forward(&p->recording.tape[FM_COFOLD_STEP], stream);
}

static void queue_confidence(void *context, fm_stream *stream) {
    fm_cofold_passes *p = context;
    fm_tape_forward(&p->recording.tape[FM_COFOLD_CONFIDENCE], stream);
}

static void make_passes(fm_cofold_passes *p) {
    void (*const queue[FM_COFOLD_TAPES])(void *,
                                         fm_stream *) = {[FM_COFOLD_CYCLE] = queue_cycle,
                                                         [FM_COFOLD_DISTOGRAM] = queue_distogram,
                                                         [FM_COFOLD_PREPARE] = queue_prepare,
                                                         [FM_COFOLD_STEP] = queue_step,
                                                         [FM_COFOLD_CONFIDENCE] = queue_confidence};
    for (int i = 0; i < FM_COFOLD_TAPES; i++)
        fm_recording_add_pass(&p->recording, queue[i], p);
}

static void run(fm_cofold_passes *p, fm_cofold_tape pass) {
    fm_pass_run(&p->recording.pass[pass], p->recording.stream);
}

/* -- creating */

static fm_status take_room(fm_cofold_passes *p, fm_error *reterr) {
    fm_state *state = &p->recording.state;
    p->room = state->room = p->options.kernels->alloc((size_t)state->room_bytes);
    if (p->room) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "cannot allocate %.1f MiB of device memory for a step",
                   (double)state->room_bytes / (1 << 20));
}

/* Does everything up to the memory plan. With only_plans the state gets no memory. */
static fm_status prepare(fm_cofold_passes *p, bool only_plans, fm_error *reterr) {
    const fm_cofold_passes_options *o = &p->options;
    fm_recording *r = &p->recording;
    const fm_recording_options options = {.kernels = o->kernels,
                                          .groups = o->model.groups,
                                          .n_tape = FM_COFOLD_TAPES,
                                          .first_of_second = FM_COFOLD_TAPES,
                                          .chunk_bytes = o->slabs.chunk_bytes,
                                          .chunks_triangles = o->slabs.chunks_triangles,
                                          .spoils = o->spoils,
                                          .rounds = o->rounds,
                                          .direct = o->direct};
    fm_status status = fm_af3_check_products(&o->model, o->kernels, reterr);
    if (!status) status = fm_recording_init(r, &options, FM_AF3_MAX_PARAM, reterr);
    if (!status) status = fm_arena_init(&p->scratch, SCRATCH_BYTES, reterr);
    if (status) return status;
    fm_af3_add_parameters(&r->params, &r->arena, &o->model, &p->weights);
    fm_params_borrow(&r->params, o->params);
    declare_state(p);
    choose_mirrored(p);
    if (!only_plans) status = fm_state_allocate(&r->state, o->kernels, reterr);
    if (!status && !only_plans) status = take_room(p, reterr);
    if (!status && !only_plans) status = fm_mirror_allocate(&p->mirror, &r->state, reterr);
    return status ? status : record(p, reterr);
}

/* Creates and prepares passes, which the caller destroys also on failure. */
static fm_status prepare_new(const fm_cofold_passes_options *options, bool only_plans,
                             fm_cofold_passes **ret_passes, fm_error *reterr) {
    fm_cofold_passes *p = calloc(1, sizeof *p);
    *ret_passes = p;
    if (!p) return fm_fail(reterr, FM_ERR_NOMEM, "the memory of forward passes was refused");
    p->options = *options;
    fm_af3_config *model = &p->options.model;
    *model = fm_af3_split_pad(&options->model);
    model->n_sample = 0;
    model->recompute = FM_RECOMPUTE_NONE; /* nothing is kept for a backward */
    model->dropout_msa = model->dropout_pair = 0;
    assert(options->n_step >= 1 && options->n_step <= FM_COFOLD_STEPS);
    return prepare(p, only_plans, reterr);
}

fm_status fm_cofold_passes_create(const fm_cofold_passes_options *options,
                                  fm_cofold_passes **ret_passes, fm_error *reterr) {
    fm_cofold_passes *p;
    fm_status status = prepare_new(options, false, &p, reterr);
    if (!status) status = fm_recording_bind(&p->recording, reterr);
    if (status) {
        fm_cofold_passes_destroy(p);
        return status;
    }
    make_passes(p);
    *ret_passes = p;
    return FM_OK;
}

void fm_cofold_passes_destroy(fm_cofold_passes *p) {
    if (!p) return;
    if (p->recording.stream) p->options.kernels->synchronize(p->recording.stream);
    fm_mirror_fini(&p->mirror);
    fm_recording_fini(&p->recording);
    p->options.kernels->release(p->room);
    fm_arena_fini(&p->scratch);
    free(p);
}

fm_cofold_bytes fm_cofold_passes_taken(const fm_cofold_passes *p) {
    const fm_recording *r = &p->recording;
    /* The parameters are another owner's, so they are not counted here. */
    fm_cofold_bytes bytes = {.device = fm_recording_bytes(r) + r->state.room_bytes,
                             .state = r->state.bytes + r->state.room_bytes};
    for (int i = 0; i < FM_COFOLD_TAPES; i++)
        bytes.tape[i] = r->tape[i].size.arena_bytes;
    if (p->options.kernels->device->is_asynchronous) {
        bytes.locked = fm_mirror_bytes(&p->mirror, &r->state);
    }
    return bytes;
}

fm_status fm_cofold_passes_plan(const fm_cofold_passes_options *options, fm_cofold_bytes *ret_bytes,
                                fm_error *reterr) {
    fm_cofold_passes *p;
    fm_status status = prepare_new(options, true, &p, reterr);
    *ret_bytes = status ? (fm_cofold_bytes){0} : fm_cofold_passes_taken(p);
    fm_cofold_passes_destroy(p);
    return status;
}

/* -- the complex in hand */

/* The clock of a structure's draws, or of a cycle's. The seed takes the place of the step. */
static void set_clock(const fm_cofold_passes *p, uint32_t slot, uint32_t cycle,
                      uint32_t clock[FM_CLOCK_WORDS]) {
    clock[FM_CLOCK_STEP] = p->seed;
    clock[FM_CLOCK_SLOT] = slot;
    clock[FM_CLOCK_CYCLE] = cycle;
    clock[FM_CLOCK_WORDS - 1] = 0;
}

/* Writes the reference conformers, whose places are drawn unless all draws are given. */
static fm_status write_conformers(fm_cofold_passes *p, fm_error *reterr) {
    const fm_af3_sample *sample = p->sample;
    const fm_af3_writer to = {fm_mirror_put, &p->mirror};
    uint32_t clock[FM_CLOCK_WORDS];
    size_t mark = fm_arena_mark(&p->scratch);
    float *placed = fm_arena_alloc_array(&p->scratch, (size_t)sample->n_atom, 3 * sizeof *placed);
    if (!placed) return fm_arena_full(&p->scratch, reterr);
    set_clock(p, 0, 0, clock);
    fm_af3_place_conformers(0, clock, sample, placed);
    fm_af3_write_conformers(sample->n_atom, p->draws ? sample->ref_pos : placed, &p->inputs, &to);
    fm_arena_rewind(&p->scratch, mark);
    return FM_OK;
}

fm_status fm_cofold_passes_begin(fm_cofold_passes *p, const fm_af3_sample *sample, uint32_t seed,
                                 const fm_cofold_draws *draws, fm_error *reterr) {
    const fm_kernels *kernels = p->options.kernels;
    fm_recording *r = &p->recording;
    const fm_af3_writer to = {fm_mirror_put, &p->mirror};
    const int32_t recycled[] = {p->inputs.previous_s, p->inputs.previous_z};
    assert(!draws == !p->options.given);
    p->sample = sample;
    p->draws = draws;
    p->seed = seed;
    fm_mirror_begin(&p->mirror);
    fm_mirror_clear_all(&p->mirror);
    fm_status status =
        fm_af3_write_sample(sample, &p->options.model, &p->inputs, &to, &p->scratch, reterr);
    if (!status) status = write_conformers(p, reterr);
    if (status) return status;
    for (int64_t s = 0; s < p->options.n_structure; s++)
        for (int64_t i = 0; i < sample->n_token; i++)
            fm_mirror_put(&p->mirror, p->rollout.mask, s * p->options.model.n_token + i, 1);
    for (int i = 0; i < 2; i++)
        kernels->fill(r->stream, fm_tensor_local_count(&r->state.tensor[recycled[i]]), 0.0,
                      fm_state_data(&r->state, recycled[i]));
    return FM_OK;
}

/* Returns how many rows a cycle reads; they are in *ret_rows. */
static int64_t choose_rows(fm_cofold_passes *p, uint32_t cycle, const int64_t **ret_rows) {
    const int64_t n_msa = p->sample->n_msa;
    if (p->draws) {
        int64_t n = 0;
        const int64_t *rows = p->draws->msa_rows + (int64_t)cycle * p->draws->n_row;
        while (n < p->draws->n_row && rows[n] >= 0)
            n++;
        *ret_rows = rows;
        return n;
    }
    uint32_t clock[FM_CLOCK_WORDS];
    set_clock(p, 0, cycle, clock);
    int64_t *drawn = fm_arena_alloc_array(&p->scratch, (size_t)n_msa, sizeof *drawn);
    assert(drawn); /* the arena has room for far larger things */
    *ret_rows = drawn;
    return fm_af3_draw_msa_rows(0, clock, n_msa, p->options.model.n_msa, drawn);
}

void fm_cofold_passes_queue_cycle(fm_cofold_passes *p, uint32_t cycle) {
    const fm_af3_writer to = {fm_mirror_put, &p->mirror};
    const int64_t *rows;
    size_t mark = fm_arena_mark(&p->scratch);
    fm_mirror_begin(&p->mirror); /* the cycle before it runs while this one's rows are written */
    fm_mirror_clear(&p->mirror, p->inputs.msa);
    fm_mirror_clear(&p->mirror, p->inputs.mask_msa);
    const int64_t n_row = choose_rows(p, cycle, &rows);
    fm_af3_write_msa(p->sample, &p->options.model, &p->inputs, rows, n_row, &to);
    fm_arena_rewind(&p->scratch, mark);
    fm_mirror_send(&p->mirror, p->recording.stream);
    fm_groups_note_prediction(p->options.model.groups, cycle);
    run(p, FM_COFOLD_CYCLE);
}

void fm_cofold_passes_queue_prepare(fm_cofold_passes *p) {
    run(p, FM_COFOLD_PREPARE);
}

void fm_cofold_passes_queue_distogram(fm_cofold_passes *p) {
    run(p, FM_COFOLD_DISTOGRAM);
}

/* -- structures */

/* Writes structure `number` as the s-th one at noise level `level`. */
static void write_start(fm_cofold_passes *p, int64_t s, int64_t number, double level) {
    const int64_t n = 3 * p->sample->n_atom, room = 3 * p->options.model.n_atom;
    uint32_t clock[FM_CLOCK_WORDS];
    set_clock(p, (uint32_t)number, 0, clock);
    const fm_draw draw = {0, clock, FM_DRAW_SAMPLING, FM_PURPOSE_START};
    for (int64_t i = 0; i < n; i++) {
        double pair[2];
        fm_normal_pair(&fm_draw_block(&draw, (uint64_t)i).word[i & 2], pair);
        const double normal = p->draws ? (double)p->draws->start[number * n + i] : pair[i & 1];
        fm_mirror_put(&p->mirror, p->rollout.x, s * room + i, level * normal);
    }
}

/* Writes the recorded draws of a step, for structure `number` as the s-th one. */
static void put_draws(const fm_cofold_passes *p, fm_af3_step_writer *to, int64_t s,
                      int64_t number) {
    const fm_cofold_draws *d = p->draws;
    const int64_t at = to->k * d->n_structure + number, n = 3 * p->sample->n_atom;
    for (int64_t i = 0; i < 9; i++)
        fm_af3_step_put(to, p->rollout.rotation, 9 * s + i, (double)d->rotation[9 * at + i]);
    for (int64_t i = 0; i < 3; i++)
        fm_af3_step_put(to, p->rollout.offset, 3 * s + i, (double)d->offset[3 * at + i]);
    for (int64_t i = 0; i < n; i++)
        fm_af3_step_put(to, p->rollout.noise, s * 3 * p->options.model.n_atom + i,
                        (double)d->noise[at * n + i]);
}

fm_status fm_cofold_passes_start(fm_cofold_passes *p, int64_t first, int64_t n, fm_error *reterr) {
    const fm_af3_config *config = &p->options.model;
    const int32_t n_step = p->options.n_step;
    size_t mark = fm_arena_mark(&p->scratch);
    double *levels = fm_arena_alloc_array(&p->scratch, (size_t)n_step + 1, sizeof *levels);
    if (!levels) return fm_arena_full(&p->scratch, reterr);
    assert(n <= p->options.n_structure);
    fm_af3_schedule(&config->noise, n_step, levels);
    fm_mirror_begin(&p->mirror);
    fm_mirror_clear(&p->mirror, p->rollout.x);
    for (int64_t s = 0; s < n; s++)
        write_start(p, s, first + s, levels[0]);
    for (int32_t k = 0; k < n_step; k++) {
        fm_af3_step_writer to = {&p->rows, &p->mirror, k};
        fm_af3_write_step(config, &p->rollout, 0, levels + k, fm_af3_step_put, &to);
        for (int64_t s = 0; s < p->options.n_structure; s++) {
            uint32_t clock[FM_CLOCK_WORDS];
            set_clock(p, (uint32_t)(first + s), (uint32_t)k, clock);
            for (int i = 0; i < FM_CLOCK_WORDS; i++)
                fm_af3_step_put(&to, p->clocks, s * FM_CLOCK_WORDS + i, clock[i]);
            if (p->draws && s < n) put_draws(p, &to, s, first + s);
        }
    }
    fm_mirror_send(&p->mirror, p->recording.stream);
    fm_arena_rewind(&p->scratch, mark);
    return FM_OK;
}

void fm_cofold_passes_queue_step(fm_cofold_passes *p, int32_t k) {
    fm_af3_queue_step_rows(&p->rows, &p->recording.state, k, p->recording.stream);
    run(p, FM_COFOLD_STEP);
}

fm_status fm_cofold_passes_read(fm_cofold_passes *p, int64_t n, double *x, fm_error *reterr) {
    const fm_recording *r = &p->recording;
    const int64_t count = 3 * p->sample->n_atom, room = 3 * p->options.model.n_atom;
    size_t mark = fm_arena_mark(&p->scratch);
    double *raw = fm_arena_alloc_array(&p->scratch, (size_t)count, sizeof *raw);
    if (!raw) return fm_arena_full(&p->scratch, reterr);
    const fm_element acc = p->options.kernels->acc;
    const char *data = fm_state_data(&r->state, p->rollout.x);
    for (int64_t s = 0; s < n; s++)
        fm_mirror_fetch(p->options.kernels, r->stream,
                        data + s * room * (int64_t)fm_element_bytes(acc), acc, count, raw,
                        x + s * count);
    fm_arena_rewind(&p->scratch, mark);
    return FM_OK;
}

void fm_cofold_passes_queue_confidence(fm_cofold_passes *p, const double *x) {
    fm_mirror_begin(&p->mirror);
    fm_mirror_clear(&p->mirror, p->structure);
    for (int64_t i = 0; i < 3 * p->sample->n_atom; i++)
        fm_mirror_put(&p->mirror, p->structure, i, x[i]);
    fm_mirror_send(&p->mirror, p->recording.stream);
    run(p, FM_COFOLD_CONFIDENCE);
}
