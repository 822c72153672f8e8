/* forward.c: see forward.h. */
#include "trainer/infer/forward.h"

#include "trainer/backend/where.h"
#include "trainer/dist/gather.h"
#include "trainer/ops/widen.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

/* -- recording */

/* Records the logits of a head on z, [N_res, N_res, n_bin]. Where z is this rank's part, they are
 * made from it and then gathered. */
static fm_tensor_ref record_pair_head(fm_tape *tape, const fm_groups *groups, const char *name,
                                      const fm_loss_inputs *in, const fm_linear_weights *weights) {
    fm_tensor_ref part = tape->chunk_bytes > 0 ? fm_op_widen_linear(tape, name, in->z, weights)
                                               : fm_op_linear_all(tape, name, in->z, weights);
    if (fm_tape_tensor(tape, part)->shard_axis < 0) return part;
    fm_gather gather = fm_dap_gather_begin(tape, name, groups->dap, part);
    return fm_dap_gather_finish(tape, &gather);
}

/* Records the heads whose logits are kept. The losses make their own logits inside their nodes. */
static void record_heads(fm_forward *f, fm_tape *tape, const fm_loss_inputs *in) {
    const unsigned wanted = f->options.heads;
    const fm_groups *groups = f->options.groups;
    if (wanted & 1u << FM_HEAD_PLDDT && in->has_structure) {
        f->head[FM_HEAD_PLDDT] = fm_op_plddt_logits(tape, in->s, &in->plddt_head);
    }
    if (wanted & 1u << FM_HEAD_DISTOGRAM) {
        f->head[FM_HEAD_DISTOGRAM] =
            record_pair_head(tape, groups, "distogram head", in, &in->distogram_head);
    }
    if (wanted & 1u << FM_HEAD_ALIGNED_ERROR && in->n_aligned_error_bin > 0) {
        f->head[FM_HEAD_ALIGNED_ERROR] =
            record_pair_head(tape, groups, "aligned error head", in, &in->aligned_error_head);
    }
    for (int i = 0; i < FM_HEADS; i++)
        if (f->head[i] != FM_TENSOR_NONE) fm_tape_keep(tape, f->head[i]);
}

/* Records the last draw and the end of a cycle; one recording serves every cycle. */
static void record_prediction(fm_forward *f, fm_tape *tape) {
    fm_cycles *c = &f->cycles;
    fm_model_outputs out =
        fm_model_record_cycle(tape, c->model, &c->weights, &c->inputs, FM_CYCLE_PREDICTS);
    const fm_loss_inputs in = fm_loss_inputs_of(c->model, &c->weights, &out);
    if (in.has_structure) {
        c->atoms = in.atoms;
        fm_tape_keep(tape, c->atoms);
    }
    fm_tape_enter_island(tape);
    record_heads(f, tape, &in);
    fm_tape_leave_island(tape);
}

static void record_last_cycle(fm_forward *f, fm_tape *tape) {
    fm_cycles *c = &f->cycles;
    fm_model_outputs out =
        fm_model_record_cycle(tape, c->model, &c->weights, &c->inputs, FM_CYCLE_OUTPUTS);
    fm_tape_enter_island(tape);
    const fm_loss_inputs in = fm_cycles_record_losses(c, tape, &out);
    record_heads(f, tape, &in);
    fm_tape_leave_island(tape);
}

static fm_status record(fm_forward *f, fm_error *reterr) {
    fm_cycles *c = &f->cycles;
    fm_tape *before = &f->recording.tape[FM_FORWARD_BEFORE];
    fm_tape *results = &f->recording.tape[FM_FORWARD_RESULTS];
    fm_status status = fm_recording_begin_tapes(&f->recording, reterr);
    if (status) return status;
    for (int i = 0; i < FM_HEADS; i++)
        f->head[i] = FM_TENSOR_NONE;
    if (f->options.has_losses) {
        fm_model_record_cycle(before, c->model, &c->weights, &c->inputs, FM_CYCLE_STORES);
        record_last_cycle(f, results);
    } else {
        record_prediction(f, results);
        if (c->inputs.n_draw > 1) fm_model_record_draw(before, c->model, &c->weights, &c->inputs);
    }
    return fm_recording_plan_tapes(&f->recording, reterr);
}

/* -- passes */

static void queue_results(void *context, fm_stream *stream) {
    fm_forward *f = context;
    fm_cycles_take_packet(&f->cycles, stream);
    fm_tape_forward(&f->recording.tape[FM_FORWARD_RESULTS], stream);
}

static void queue_before(void *context, fm_stream *stream) {
    fm_forward *f = context;
    fm_cycles_take_packet(&f->cycles, stream);
    fm_tape_forward(&f->recording.tape[FM_FORWARD_BEFORE], stream);
}

/* -- creating */

static fm_recording_options recording_options(const fm_forward_options *options) {
    const bool is_one = !options->has_losses && options->n_draw <= 1;
    return (fm_recording_options){.kernels = options->kernels,
                                  .groups = options->groups,
                                  .n_tape = is_one ? 1 : FM_FORWARD_TAPES,
                                  .first_of_second = FM_FORWARD_TAPES,
                                  .chunk_bytes = options->chunk_bytes,
                                  .chunks_triangles = options->chunks_triangles,
                                  .spoils = options->spoils,
                                  .direct = options->direct};
}

/* Does everything up to the memory plan. With only_plans the state gets no memory. */
static fm_status prepare(fm_forward *f, bool only_plans, fm_error *reterr) {
    fm_recording *r = &f->recording;
    const fm_forward_options *o = &f->options;
    const fm_recording_options recording = recording_options(o);
    fm_status status = fm_recording_init(r, &recording, FM_MAX_PARAM, reterr);
    if (status) return status;
    f->cycles = (fm_cycles){.recording = r,
                            .model = &o->model,
                            .weight = o->has_losses ? o->weight : NULL,
                            .n_slot = 2}; /* chains are large, and a second slot hides the copy */
    fm_model_add_parameters(&r->params, &r->arena, &o->model, &f->cycles.weights);
    fm_params_borrow(&r->params, o->params);
    fm_cycles_declare(&f->cycles, o->n_draw);
    if (!only_plans) status = fm_cycles_take_state(&f->cycles, reterr);
    if (!status) status = fm_optimizer_init_scalars(&r->optimizer, &r->params, reterr);
    return status ? status : record(f, reterr);
}

/* Creates and prepares passes, which the caller destroys also on failure. */
static fm_status prepare_new(const fm_forward_options *options, bool only_plans,
                             fm_forward **ret_forward, fm_error *reterr) {
    fm_forward *f = calloc(1, sizeof *f);
    *ret_forward = f;
    if (!f) return fm_fail(reterr, FM_ERR_NOMEM, "the memory of forward passes was refused");
    f->options = *options;
    fm_model_config *model = &f->options.model;
    *model = fm_cycles_pad(&options->model, options->groups, options->kernels);
    model->recompute = FM_RECOMPUTE_NONE; /* nothing is kept for a backward */
    if (!options->dropout) model->dropout_msa = model->dropout_pair = model->structure.dropout = 0;
    fm_status status = fm_cycles_find_kernels(model, options->kernels, FM_ELEMENT_F32,
                                              &f->options.kernels, reterr);
    return status ? status : prepare(f, only_plans, reterr);
}

fm_status fm_forward_create(const fm_forward_options *options, fm_forward **ret_forward,
                            fm_error *reterr) {
    fm_forward *f;
    fm_status status = prepare_new(options, false, &f, reterr);
    if (!status) status = fm_recording_bind(&f->recording, reterr);
    if (!status) status = fm_cycles_open(&f->cycles, reterr);
    if (status) {
        fm_forward_destroy(f);
        return status;
    }
    fm_recording_add_pass(&f->recording, queue_results, f);
    fm_recording_add_pass(&f->recording, queue_before, f);
    *ret_forward = f;
    return FM_OK;
}

void fm_forward_destroy(fm_forward *f) {
    if (!f) return;
    fm_recording_fini(&f->recording);
    fm_cycles_close(&f->cycles);
    free(f);
}

fm_forward_need fm_forward_taken(const fm_forward *f) {
    return (fm_forward_need){.device_bytes = fm_recording_bytes(&f->recording) +
                                             fm_cycles_ring_bytes(&f->cycles),
                             .locked_bytes = fm_cycles_locked_bytes(&f->cycles)};
}

fm_status fm_forward_plan(const fm_forward_options *options, fm_forward_need *ret_need,
                          fm_error *reterr) {
    fm_forward *f;
    fm_status status = prepare_new(options, true, &f, reterr);
    *ret_need = status ? (fm_forward_need){0} : fm_forward_taken(f);
    fm_forward_destroy(f);
    return status;
}

/* -- with losses */

/* Reads the loss and its terms. Returns whether all are finite. */
static bool read_losses(const fm_forward *f, const fm_features *features,
                        fm_sample_result *result) {
    const fm_cycles *c = &f->cycles;
    double value[1 + FM_LOSS_TERMS];
    int n = 0;
    fm_tensor_ref from[1 + FM_LOSS_TERMS];
    from[n++] = c->total;
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        if (c->term[i] != FM_TENSOR_NONE) from[n++] = c->term[i];
    bool finite = true;
    for (int i = 0; i < n; i++) {
        value[i] = fm_recording_read_scalar(&f->recording, FM_FORWARD_RESULTS, from[i]);
        finite = finite && isfinite(value[i]);
    }
    *result = (fm_sample_result){.loss = value[0]};
    fm_cycles_put_terms(c, features, value + 1, result);
    return finite;
}

fm_status fm_forward_score(fm_forward *f, const fm_features *features, fm_sample_result *ret_result,
                           fm_error *reterr) {
    fm_recording *r = &f->recording;
    const fm_cycles_sample sample = {.features = features, .holds = true};
    const uint32_t n = features->n_cycle;
    assert(f->options.has_losses);
    fm_status status = fm_upload_check(&f->cycles, features, reterr);
    if (status) return status;
    fm_backend_name_step(1);
    for (uint32_t c = 0; c < n; c++) {
        fm_groups_note(f->options.groups, 1, c);
        fm_cycles_run(&f->cycles, &sample, c,
                      &r->pass[c + 1 < n ? FM_FORWARD_BEFORE : FM_FORWARD_RESULTS]);
    }
    r->options.kernels->synchronize(r->stream);
    status = fm_groups_check(f->options.groups, reterr);
    if (status || read_losses(f, features, ret_result)) return status;
    return fm_cycles_name_nonfinite(&f->cycles, &sample, n, n, &r->tape[FM_FORWARD_BEFORE],
                                    &r->tape[FM_FORWARD_RESULTS], reterr);
}

/* -- predictions */

void fm_forward_queue_cycle(fm_forward *f, const fm_features *features, uint64_t seed,
                            uint32_t cycle) {
    const fm_cycles_sample sample = {.features = features, .step = seed, .holds = true};
    const uint32_t n_draw = (uint32_t)f->cycles.inputs.n_draw, first = cycle * n_draw;
    assert(!f->options.has_losses);
    fm_backend_name_step(cycle + 1);
    fm_groups_note_prediction(f->options.groups, cycle);
    for (uint32_t i = 1; i <= n_draw; i++) {
        fm_cycles_run(&f->cycles, &sample, first + i - 1,
                      &f->recording.pass[i < n_draw ? FM_FORWARD_BEFORE : FM_FORWARD_RESULTS]);
    }
}

fm_status fm_forward_name_nonfinite(fm_forward *f, const fm_features *features, uint64_t seed,
                                    uint32_t n_cycle, fm_error *reterr) {
    const fm_cycles_sample sample = {.features = features, .step = seed, .holds = true};
    const uint32_t n_draw = (uint32_t)f->cycles.inputs.n_draw;
    return fm_cycles_name_nonfinite(&f->cycles, &sample, n_cycle * n_draw, n_draw,
                                    &f->recording.tape[FM_FORWARD_BEFORE],
                                    &f->recording.tape[FM_FORWARD_RESULTS], reterr);
}
