/* step.c: creates and records a trainer; see step.h. Queueing and collecting samples is in
 * step_run.c, packing a sample into packets in upload.c. */
#include "trainer/step/step.h"

#include "trainer/dist/sum.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* -- building */

static void record_last_cycle(fm_trainer *t) {
    fm_cycles *c = &t->cycles;
    fm_tape *tape = &t->recording.tape[FM_TRAINER_LAST];
    fm_model_outputs out =
        fm_model_record_cycle(tape, c->model, &c->weights, &c->inputs, FM_CYCLE_OUTPUTS);
    fm_tape_enter_island(tape);
    fm_cycles_record_losses(c, tape, &out);
    fm_tape_leave_island(tape);
    fm_tape_seed_gradient(tape, c->total, c->seed_gradient);
}

/* Records and plans both tapes, with the config as it is. */
static fm_status record(void *context, fm_error *reterr) {
    fm_trainer *t = context;
    fm_cycles *c = &t->cycles;
    fm_status status = fm_recording_begin_tapes(&t->recording, reterr);
    if (status) return status;
    fm_model_record_cycle(&t->recording.tape[FM_TRAINER_CYCLE], c->model, &c->weights, &c->inputs,
                          FM_CYCLE_STORES);
    record_last_cycle(t);
    return fm_recording_plan_tapes(&t->recording, reterr);
}

int64_t fm_trainer_memory_bytes(const fm_trainer *t) {
    return fm_recording_bytes(&t->recording) + fm_cycles_ring_bytes(&t->cycles);
}

static int64_t memory_bytes(const void *context) {
    return fm_trainer_memory_bytes(context);
}

static fm_status plan_memory(fm_trainer *t, fm_error *reterr) {
    fm_model_config *model = &t->options.model;
    const fm_recompute_order order = fm_model_config_order(model);
    const bool has_norms =
        !(model->groups && model->groups->dap); /* else what they keep is split */
    const fm_memory_budget budget = {.bytes = &t->options.memory_budget_bytes,
                                     .policy = &model->recompute,
                                     .steps = &model->recompute_steps,
                                     .most_steps = fm_recompute_order_steps(&order),
                                     .norm_blocks = has_norms ? &model->norm_blocks : NULL,
                                     .most_norm_blocks = fm_model_config_blocks(model),
                                     .context = t,
                                     .record = record,
                                     .memory_bytes = memory_bytes};
    return fm_recording_plan(&t->recording, &budget, reterr);
}

/* -- queues */

static void queue_cycle(void *context, fm_stream *stream) {
    fm_trainer *t = context;
    fm_recording_queue_stamp(&t->recording, FM_STAMP_BEGIN, stream);
    fm_cycles_take_packet(&t->cycles, stream);
    fm_tape_forward(&t->recording.tape[FM_TRAINER_CYCLE], stream);
}

static void queue_report(fm_trainer *t, fm_stream *stream) {
    const fm_cycles *c = &t->cycles;
    const fm_tape *last = &t->recording.tape[FM_TRAINER_LAST];
    fm_report report = {.n_term = 1,
                        .n_record = FM_MOST_QUEUED,
                        .term = {fm_tape_data(last, c->total)},
                        .step = t->recording.optimizer.state,
                        .n_made = t->n_made,
                        .record = t->record};
    static_assert(1 + FM_LOSS_TERMS <= FM_STEP_RECORD_TERMS, "a record has room for all terms");
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (c->term[i] == FM_TENSOR_NONE) continue;
        report.term[report.n_term++] = fm_tape_data(last, c->term[i]);
    }
    t->recording.options.kernels->report(stream, &report);
}

/* Computes the gradient of the sample; on ranks that share it, the sum over them. */
static void queue_backward(fm_trainer *t, fm_stream *stream) {
    const fm_groups *groups = t->options.groups;
    const fm_recording *r = &t->recording;
    if (groups) fm_tape_clear_unwritten(&t->recording.tape[FM_TRAINER_LAST], stream);
    fm_tape_backward(&t->recording.tape[FM_TRAINER_LAST], stream);
    if (groups) {
        fm_comm_sum(groups->sample, r->params.n_element, r->params.gradient, r->scratch,
                    r->options.scratch_elements, stream);
    }
}

static void queue_last(void *context, fm_stream *stream) {
    fm_trainer *t = context;
    fm_optimizer *optimizer = &t->recording.optimizer;
    fm_recording_queue_stamp(&t->recording, FM_STAMP_BEGIN, stream);
    fm_cycles_take_packet(&t->cycles, stream);
    fm_tape_forward(&t->recording.tape[FM_TRAINER_LAST], stream);
    queue_backward(t, stream);
    fm_optimizer_queue_norm(optimizer, stream);
    /* Before the sum and the update: it marks a loss that is not finite, and then both do nothing.
     * The update may also overwrite the norm with that of the sum. */
    queue_report(t, stream);
    fm_optimizer_queue_sum(optimizer, stream);
    fm_recording_queue_stamp(&t->recording, FM_STAMP_SUMMED, stream);
    fm_optimizer_queue_update(optimizer, stream, true);
    fm_recording_queue_stamp(&t->recording, FM_STAMP_UPDATED, stream);
}

static fm_status build_queues(fm_trainer *t, fm_error *reterr) {
    const fm_kernels *kernels = t->recording.options.kernels;
    const fm_device *device = kernels->device;
    fm_recording_add_pass(&t->recording, queue_cycle, t);
    fm_recording_add_pass(&t->recording, queue_last, t);
    bool made = true;
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        made = made && device->event_create(&t->flight[i].done);
    t->record = device->host_alloc(FM_MOST_QUEUED * sizeof *t->record);
    t->n_made = kernels->alloc(sizeof *t->n_made);
    if (!made || !t->record || !t->n_made) {
        return fm_fail(reterr, FM_ERR_NOMEM, "events or memory for results were refused");
    }
    uint64_t none = 0;
    kernels->upload(NULL, t->n_made, &none, sizeof none);
    kernels->synchronize(NULL);
    return fm_cycles_open(&t->cycles, reterr);
}

static void release_queues(fm_trainer *t) {
    const fm_kernels *kernels = t->recording.options.kernels;
    fm_cycles_close(&t->cycles);
    kernels->release(t->n_made);
    kernels->device->host_release(t->record);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        kernels->device->event_destroy(t->flight[i].done);
}

fm_status fm_trainer_stamp(fm_trainer *t, fm_error *reterr) {
    assert(fm_trainer_n_queued(t) == 0);
    return fm_recording_stamp(&t->recording, FM_STAMPS, reterr);
}

/* -- creating */

static fm_recording_options recording_options(const fm_trainer_options *options,
                                              const fm_kernels *kernels) {
    return (fm_recording_options){.kernels = kernels,
                                  .groups = options->groups,
                                  .n_tape = FM_TRAINER_TAPES,
                                  .with_gradient = 1u << FM_TRAINER_LAST,
                                  .first_of_second = FM_TRAINER_TAPES,
                                  .seed = options->seed,
                                  .spoils = options->spoils,
                                  .direct = options->direct};
}

/* Does everything up to the memory plan. */
static fm_status prepare(fm_trainer *t, fm_error *reterr) {
    fm_recording *r = &t->recording;
    fm_model_config *model = &t->options.model;
    const fm_kernels *kernels;
    fm_status status =
        fm_cycles_find_kernels(model, t->options.kernels, t->options.element, &kernels, reterr);
    if (status) return status;
    const fm_recording_options recording = recording_options(&t->options, kernels);
    status = fm_recording_init(r, &recording, FM_MAX_PARAM, reterr);
    if (status) return status;
    t->cycles = (fm_cycles){
        .recording = r, .model = model, .weight = t->options.weight, .n_slot = FM_RING_SLOTS};
    fm_model_add_parameters(&r->params, &r->arena, model, &t->cycles.weights);
    status = fm_params_allocate(&r->params, kernels, reterr);
    if (status) return status;
    fm_params_draw(&r->params, t->options.seed);
    fm_cycles_declare(&t->cycles, 1);
    status = fm_cycles_take_state(&t->cycles, reterr);
    if (!status) {
        status = fm_optimizer_init(&r->optimizer, &r->params, &t->options.optimizer, reterr);
    }
    return status ? status : plan_memory(t, reterr);
}

fm_status fm_trainer_check_layout(const fm_model_config *model, const fm_layout *layout,
                                  fm_error *reterr) {
    if (layout->bp > 1 && model->order == FM_ORDER_ORIGINAL) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "bp = 2 needs a block with two branches: order = opm_first or parallel, "
                       "not original");
    }
    if (layout->bp > 1 && model->recompute == FM_RECOMPUTE_AUTO) {
        return fm_fail(reterr, FM_ERR_USAGE,
                       "bp = 2 needs both ranks to recompute the same blocks: recompute = none, "
                       "hidden, projections, operands or block, not auto");
    }
    return FM_OK;
}

fm_status fm_trainer_create(const fm_trainer_options *options, fm_trainer **ret_trainer,
                            fm_error *reterr) {
    fm_trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer) return fm_fail(reterr, FM_ERR_NOMEM, "the trainer's own memory was refused");
    trainer->options = *options;
    trainer->options.model = fm_cycles_pad(&options->model, options->groups, options->kernels);
    fm_status status = prepare(trainer, reterr);
    if (!status) status = fm_recording_bind(&trainer->recording, reterr);
    if (!status) status = build_queues(trainer, reterr);
    if (status) {
        fm_trainer_destroy(trainer);
        return status;
    }
    *ret_trainer = trainer;
    return FM_OK;
}

fm_status fm_trainer_make_plan(const fm_trainer_options *options, fm_trainer_plan *ret_plan,
                               fm_error *reterr) {
    fm_trainer *trainer = calloc(1, sizeof *trainer);
    if (!trainer) return fm_fail(reterr, FM_ERR_NOMEM, "the trainer's own memory was refused");
    trainer->options = *options;
    trainer->options.model = fm_cycles_pad(&options->model, options->groups, options->kernels);
    fm_status status = prepare(trainer, reterr);
    if (!status) {
        const fm_params *params = &trainer->recording.params;
        const size_t element = fm_element_bytes(params->kernels->acc);
        *ret_plan = (fm_trainer_plan){fm_recording_bytes(&trainer->recording),
                                      params->n_element * (int64_t)element};
    }
    fm_trainer_destroy(trainer);
    return status;
}

void fm_trainer_destroy(fm_trainer *trainer) {
    if (!trainer) return;
    fm_recording_fini(&trainer->recording);
    if (trainer->recording.options.kernels) release_queues(trainer);
    free(trainer);
}

static void describe_recompute(const fm_model_config *config, char *out, size_t out_bytes) {
    static const char *const words[] = {"hidden layers in", "hidden layers, projections in",
                                        "hidden layers, projections, operands in",
                                        "hidden layers, projections, operands, all of"};
    int32_t n = fm_model_config_blocks(config), before = config->recompute_steps - 1;
    if (config->recompute == FM_RECOMPUTE_AUTO) {
        snprintf(out, out_bytes, "%s %d of %d blocks", words[before / n], (int)(before % n + 1),
                 (int)n);
    } else if (config->norm_blocks > 0) {
        snprintf(out, out_bytes, "%s, normalised rows made again in %d of %d blocks",
                 fm_recompute_policy_words(config->recompute), (int)config->norm_blocks, (int)n);
    } else {
        snprintf(out, out_bytes, "%s", fm_recompute_policy_words(config->recompute));
    }
}

void fm_trainer_describe(const fm_trainer *t, char *out, size_t out_bytes) {
    char recompute[80];
    describe_recompute(&t->options.model, recompute, sizeof recompute);
    fm_recording_describe(&t->recording, FM_TRAINER_LAST, NULL, recompute, out, out_bytes);
}
