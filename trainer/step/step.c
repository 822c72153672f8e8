/* step.c: creates and records a trainer; see step.h. Queueing and collecting samples is in
 * step_run.c, packing a sample into packets in upload.c. */
#include "trainer/step/step.h"

#include "trainer/dist/gather.h"
#include "trainer/dist/sum.h"
#include "trainer/ops/widen.h"
#include "trainer/step/memory_budget.h"
#include "trainer/step/upload.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

/* -- building */

static void declare_state(fm_trainer *t, const fm_kernels *kernels) {
    const fm_model_config *c = &t->options.model;
    fm_state *s = &t->state;
    const int64_t msa[] = {c->n_seq, c->n_res}, one[] = {1}, terms[] = {FM_LOSS_TERMS};
    const int64_t clock[] = {FM_CLOCK_WORDS}, n_res[] = {c->n_res}, points[] = {c->n_res, 3};
    fm_model_declare_inputs(s, c, kernels, &t->inputs);
    if (t->options.n_draw > 1) fm_model_declare_draws(s, t->options.n_draw, &t->inputs);
    t->true_msa = t->bert_mask = t->pseudo_beta = t->pseudo_beta_mask = -1;
    if (!t->options.predicts) {
        t->true_msa = fm_state_add(s, "true_msa", FM_ELEMENT_I32, 2, msa);
        t->bert_mask = fm_state_add(s, "bert_mask", kernels->act, 2, msa);
        t->pseudo_beta = fm_state_add(s, "pseudo_beta", FM_ELEMENT_F32, 2, points);
        t->pseudo_beta_mask = fm_state_add(s, "pseudo_beta_mask", FM_ELEMENT_F32, 1, n_res);
        if (c->structure.n_iteration > 0) fm_structure_declare_truth(s, c->n_res, &t->truth);
    }
    t->factors = fm_state_add(s, "loss factors", FM_ELEMENT_F64, 1, terms);
    t->seed_gradient = fm_state_add(s, "gradient of the loss", kernels->acc, 1, one);
    t->clock = fm_state_add(s, "clock", FM_ELEMENT_U32, 1, clock);
    t->flag = fm_state_add(s, "not finite", FM_ELEMENT_U32, 1, one);
}

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
static void record_heads(fm_trainer *t, const fm_loss_inputs *in) {
    fm_tape *tape = &t->last;
    const unsigned wanted = t->options.heads;
    const fm_groups *groups = t->options.groups;
    for (int i = 0; i < FM_HEADS; i++)
        t->head[i] = FM_TENSOR_NONE;
    if (wanted & 1u << FM_HEAD_PLDDT && in->has_structure) {
        t->head[FM_HEAD_PLDDT] = fm_op_plddt_logits(tape, in->s, &in->plddt_head);
    }
    if (wanted & 1u << FM_HEAD_DISTOGRAM) {
        t->head[FM_HEAD_DISTOGRAM] =
            record_pair_head(tape, groups, "distogram head", in, &in->distogram_head);
    }
    if (wanted & 1u << FM_HEAD_ALIGNED_ERROR && in->n_aligned_error_bin > 0) {
        t->head[FM_HEAD_ALIGNED_ERROR] =
            record_pair_head(tape, groups, "aligned error head", in, &in->aligned_error_head);
    }
    for (int i = 0; i < FM_HEADS; i++)
        if (t->head[i] != FM_TENSOR_NONE) fm_tape_keep(tape, t->head[i]);
}

/* Records a cycle of a prediction, with its last draw; one recording serves every cycle. */
static void record_prediction(fm_trainer *t) {
    const fm_model_config *config = &t->options.model;
    fm_model_outputs out =
        fm_model_record_cycle(&t->last, config, &t->weights, &t->inputs, FM_CYCLE_PREDICTS);
    const fm_loss_inputs heads = fm_loss_inputs_of(config, &t->weights, &out);
    for (int i = 0; i < FM_LOSS_TERMS; i++)
        t->term[i] = FM_TENSOR_NONE;
    t->total = FM_TENSOR_NONE;
    t->atoms = heads.has_structure ? heads.atoms : FM_TENSOR_NONE;
    if (heads.has_structure) fm_tape_keep(&t->last, t->atoms);
    fm_tape_enter_island(&t->last);
    record_heads(t, &heads);
    fm_tape_leave_island(&t->last);
}

static void record_last_cycle(fm_trainer *t) {
    const fm_model_config *config = &t->options.model;
    fm_tape *tape = &t->last;
    fm_model_outputs out =
        fm_model_record_cycle(tape, config, &t->weights, &t->inputs, FM_CYCLE_OUTPUTS);
    fm_tape_enter_island(tape);
    fm_loss_inputs loss = fm_loss_inputs_of(config, &t->weights, &out);
    loss.true_msa = fm_tape_state(tape, t->true_msa, false);
    loss.bert_mask = fm_tape_state(tape, t->bert_mask, false);
    loss.pseudo_beta = fm_tape_state(tape, t->pseudo_beta, false);
    loss.pseudo_beta_mask = fm_tape_state(tape, t->pseudo_beta_mask, false);
    t->atoms = FM_TENSOR_NONE;
    if (loss.has_structure) {
        fm_structure_add_truth(tape, &t->truth, &t->inputs, &loss);
        t->atoms = loss.atoms;
        fm_tape_keep(tape, t->atoms);
    }
    t->total = fm_loss_record(tape, &loss, fm_tape_state(tape, t->factors, false), t->term);
    record_heads(t, &loss);
    fm_tape_leave_island(tape);
    if (!t->options.forward_only) fm_tape_seed_gradient(tape, t->total, t->seed_gradient);
    fm_tape_keep(tape, t->total);
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (t->term[i] != FM_TENSOR_NONE) fm_tape_keep(tape, t->term[i]);
    }
}

static fm_status record(fm_trainer *t, fm_error *reterr) {
    fm_tape *tapes[] = {&t->cycle, &t->last};
    for (int i = 0; i < 2; i++) {
        bool with_gradient = i == 1 && !t->options.forward_only;
        fm_status status =
            fm_tape_init(tapes[i], t->params.kernels, &t->params, &t->state, with_gradient, reterr);
        if (status) return status;
        tapes[i]->seed = t->options.seed;
        tapes[i]->spoils = t->options.spoils;
        tapes[i]->chunk_bytes = t->options.chunk_bytes;
        tapes[i]->chunks_triangles = t->options.chunks_triangles;
        if (t->state.memory) tapes[i]->clock = fm_state_data(&t->state, t->clock);
    }
    if (t->options.predicts) {
        record_prediction(t);
        fm_status status = fm_tape_plan(&t->last, reterr);
        if (status || t->inputs.n_draw == 1) return status;
        fm_model_record_draw(&t->cycle, &t->options.model, &t->weights, &t->inputs);
        return fm_tape_plan(&t->cycle, reterr);
    }
    fm_model_record_cycle(&t->cycle, &t->options.model, &t->weights, &t->inputs, FM_CYCLE_STORES);
    record_last_cycle(t);
    fm_status status = fm_tape_plan(&t->cycle, reterr);
    return status ? status : fm_tape_plan(&t->last, reterr);
}

static int64_t arena_bytes(const fm_trainer *t) {
    int64_t a = t->cycle.size.arena_bytes, b = t->last.size.arena_bytes;
    return a > b ? a : b;
}

int64_t fm_trainer_scratch_count(const fm_trainer *t) {
    enum { PIECE = 1 << 24 }; /* elements that a rank sums at a time: 64 MiB in f32 */
    int64_t n = t->params.n_element + FM_COMM_SUM_ALIGN;
    return !t->options.groups ? 0 : n < PIECE ? n : PIECE;
}

static int64_t scratch_bytes(const fm_trainer *t) {
    return fm_trainer_scratch_count(t) * (int64_t)fm_element_bytes(t->params.element);
}

/* Device memory that is taken before the tapes are planned. */
static int64_t taken_bytes(const fm_trainer *t) {
    return t->params.memory_bytes + t->state.bytes + t->optimizer.memory_bytes;
}

/* Whole chains are large, and a second slot already hides the copy. */
static int32_t ring_slots(const fm_trainer *t) {
    return t->options.forward_only ? 2 : FM_RING_SLOTS;
}

static int64_t ring_bytes(const fm_trainer *t) {
    return fm_ring_bytes(t->params.kernels, ring_slots(t), fm_upload_most_bytes(t));
}

int64_t fm_trainer_memory_bytes(const fm_trainer *t) {
    return taken_bytes(t) + scratch_bytes(t) + arena_bytes(t) + ring_bytes(t);
}

int64_t fm_trainer_locked_bytes(const fm_trainer *t) {
    return t->params.kernels->device->is_asynchronous ? ring_bytes(t) : 0;
}

/* Records and plans again, with the config as it is. */
static fm_status record_anew(void *context, fm_error *reterr) {
    fm_trainer *t = context;
    fm_tape_fini(&t->last);
    fm_tape_fini(&t->cycle);
    return record(t, reterr);
}

static int64_t memory_bytes(const void *context) {
    return fm_trainer_memory_bytes(context);
}

static fm_status plan_memory(fm_trainer *t, fm_error *reterr) {
    fm_model_config *model = &t->options.model;
    const fm_recompute_order order = fm_model_config_order(model);
    /* Split arrays keep what is normalised, and without backward nothing is kept. */
    bool has_norms = !t->options.forward_only && !(model->groups && model->groups->dap);
    const fm_memory_budget budget = {.device = t->params.kernels->device,
                                     .groups = t->options.groups,
                                     .bytes = &t->options.memory_budget_bytes,
                                     .taken_bytes = taken_bytes(t),
                                     .policy = &model->recompute,
                                     .steps = &model->recompute_steps,
                                     .most_steps = fm_recompute_order_steps(&order),
                                     .norm_blocks = has_norms ? &model->norm_blocks : NULL,
                                     .most_norm_blocks = fm_model_config_blocks(model),
                                     .context = t,
                                     .record = record_anew,
                                     .memory_bytes = memory_bytes};
    return fm_memory_budget_record(&budget, reterr);
}

static fm_status bind_arena(fm_trainer *t, const fm_kernels *kernels, fm_error *reterr) {
    t->memory = kernels->alloc((size_t)arena_bytes(t));
    if (t->memory && t->options.groups) t->scratch = kernels->alloc((size_t)scratch_bytes(t));
    if (!t->memory || (t->options.groups && !t->scratch)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "a step arena of %.1f MiB was refused",
                       (double)arena_bytes(t) / (1 << 20));
    }
    fm_tape_bind(&t->cycle, t->memory);
    fm_tape_bind(&t->last, t->memory);
    /* The host makes only small tensors in it, and pages that are never touched take no memory. */
    t->host = calloc(1, (size_t)t->state.bytes);
    return t->host ? FM_OK
                   : fm_fail(reterr, FM_ERR_NOMEM, "the host's copy of a batch was refused");
}

/* Lets the other ranks read everything that exchanges may send. */
static fm_status share_memory(fm_trainer *t, fm_error *reterr) {
    const fm_groups_memory shared[] = {{t->params.memory, t->params.memory_bytes},
                                       {t->state.memory, t->state.bytes},
                                       {t->optimizer.memory, t->optimizer.memory_bytes},
                                       {t->memory, arena_bytes(t)},
                                       {t->scratch, scratch_bytes(t)}};
    return fm_groups_share(t->options.groups, shared, sizeof shared / sizeof shared[0], reterr);
}

/* -- queues */

/* Only the ranks of a sample run a pass together: groups of DP have other samples, with other
 * numbers of cycles, or none. */
static bool all_captured(void *context, bool captured) {
    const fm_trainer *t = context;
    return fm_comm_agree(t->options.groups->sample, captured, t->scratch, t->stream);
}

void fm_trainer_take_packet(fm_trainer *t, fm_stream *stream) {
    const fm_take take = {.ring = t->ring.memory,
                          .slot_bytes = t->ring.slot_bytes,
                          .n_slot = t->ring.n_slot,
                          .n_taken = t->ring.n_taken,
                          .state = t->state.memory,
                          .clock = fm_state_data(&t->state, t->clock),
                          .step = t->optimizer.state};
    t->params.kernels->take_packet(stream, &take);
}

static void stamp(const fm_trainer *t, int at, fm_stream *stream) {
    if (t->stamp) t->params.kernels->device->stamp(stream, &t->stamp[at]);
}

static void queue_cycle(void *context, fm_stream *stream) {
    fm_trainer *t = context;
    stamp(t, FM_STAMP_BEGIN, stream);
    fm_trainer_take_packet(t, stream);
    fm_tape_forward(&t->cycle, stream);
}

static void queue_report(fm_trainer *t, fm_stream *stream) {
    fm_report report = {.n_term = 1,
                        .n_record = FM_MOST_QUEUED,
                        .term = {fm_tape_data(&t->last, t->total)},
                        .step = t->optimizer.state,
                        .n_made = t->n_made,
                        .record = t->record};
    static_assert(1 + FM_LOSS_TERMS <= FM_STEP_RECORD_TERMS, "a record has room for all terms");
    for (int i = 0; i < FM_LOSS_TERMS; i++) {
        if (t->term[i] != FM_TENSOR_NONE) {
            report.term[report.n_term++] = fm_tape_data(&t->last, t->term[i]);
        }
    }
    t->params.kernels->report(stream, &report);
}

/* Computes the gradient of the sample; on ranks that share it, the sum over them. */
static void queue_backward(fm_trainer *t, fm_stream *stream) {
    const fm_groups *groups = t->options.groups;
    if (groups) fm_tape_clear_unwritten(&t->last, stream);
    fm_tape_backward(&t->last, stream);
    if (groups) {
        fm_comm_sum(groups->sample, t->params.n_element, t->params.gradient, t->scratch,
                    fm_trainer_scratch_count(t), stream);
    }
}

static void queue_last(void *context, fm_stream *stream) {
    fm_trainer *t = context;
    stamp(t, FM_STAMP_BEGIN, stream);
    fm_trainer_take_packet(t, stream);
    fm_tape_forward(&t->last, stream);
    if (t->options.predicts) return;
    if (t->options.forward_only) {
        queue_report(t, stream);
        return;
    }
    queue_backward(t, stream);
    fm_optimizer_queue_norm(&t->optimizer, stream);
    /* Before the sum and the update: it marks a loss that is not finite, and then both do nothing.
     * The update may also overwrite the norm with that of the sum. */
    queue_report(t, stream);
    fm_optimizer_queue_sum(&t->optimizer, stream);
    stamp(t, FM_STAMP_SUMMED, stream);
    fm_optimizer_queue_update(&t->optimizer, stream, true);
    stamp(t, FM_STAMP_UPDATED, stream);
}

static fm_status build_queues(fm_trainer *t, fm_error *reterr) {
    const fm_kernels *kernels = t->params.kernels;
    const fm_device *device = kernels->device;
    const fm_pass pass = {.context = t, .device = device, .direct = t->options.direct};
    t->cycle_pass = t->last_pass = pass;
    if (t->options.groups && device->is_asynchronous) {
        t->cycle_pass.agree = t->last_pass.agree = all_captured;
    }
    t->cycle_pass.queue = queue_cycle;
    t->last_pass.queue = queue_last;
    bool made = device->stream_create(&t->stream);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        made = made && device->event_create(&t->flight[i].done);
    t->record = device->host_alloc(FM_MOST_QUEUED * sizeof *t->record);
    t->n_made = kernels->alloc(sizeof *t->n_made);
    if (!made || !t->record || !t->n_made) {
        return fm_fail(reterr, FM_ERR_NOMEM, "a stream, events or memory for results were refused");
    }
    uint64_t none = 0;
    kernels->upload(NULL, t->n_made, &none, sizeof none);
    kernels->synchronize(NULL);
    return fm_ring_create(&t->ring, kernels, ring_slots(t), fm_upload_most_bytes(t), reterr);
}

static void release_queues(fm_trainer *t) {
    const fm_kernels *kernels = t->params.kernels;
    const fm_device *device = kernels->device;
    kernels->synchronize(t->stream);
    fm_pass_forget(&t->cycle_pass);
    fm_pass_forget(&t->last_pass);
    fm_ring_destroy(&t->ring);
    kernels->release(t->stamp);
    kernels->release(t->n_made);
    device->host_release(t->record);
    for (int i = 0; i < FM_MOST_QUEUED; i++)
        device->event_destroy(t->flight[i].done);
    device->stream_destroy(t->stream);
}

fm_status fm_trainer_stamp(fm_trainer *t, fm_error *reterr) {
    const fm_kernels *kernels = t->params.kernels;
    assert(fm_trainer_n_queued(t) == 0);
    size_t n_cycle = (size_t)t->cycle.n_step + 1, n_last = (size_t)t->last.n_step + 1;
    uint64_t *memory =
        t->stamp ? t->stamp : kernels->alloc((FM_STAMPS + n_cycle + n_last) * sizeof *t->stamp);
    if (!memory) return fm_fail(reterr, FM_ERR_NOMEM, "device memory for time stamps was refused");
    t->stamp = memory;
    t->cycle.stamp = memory + FM_STAMPS;
    t->last.stamp = t->cycle.stamp + n_cycle;
    kernels->synchronize(t->stream);
    fm_pass_forget(&t->cycle_pass);
    fm_pass_forget(&t->last_pass);
    return FM_OK;
}

/* -- creating */

static fm_status take_parameters(fm_trainer *t, const fm_kernels *kernels, fm_error *reterr) {
    if (t->options.params) {
        fm_params_borrow(&t->params, t->options.params);
        return FM_OK;
    }
    fm_status status = t->options.forward_only
                           ? fm_params_allocate_values(&t->params, kernels, reterr)
                           : fm_params_allocate(&t->params, kernels, reterr);
    if (!status) fm_params_draw(&t->params, t->options.seed);
    return status;
}

/* Takes the state's memory. */
static fm_status take_state(fm_trainer *t, const fm_kernels *kernels, fm_error *reterr) {
    fm_status status = fm_state_allocate(&t->state, kernels, reterr);
    if (!status && t->options.model.structure.n_iteration > 0) {
        fm_structure_upload_tables(&t->state, &t->inputs.tables);
    }
    return status;
}

/* Does everything up to the memory plan. With only_plans the state gets no memory. */
static fm_status prepare(fm_trainer *t, bool only_plans, fm_error *reterr) {
    const fm_kernels *kernels =
        t->options.kernels ? t->options.kernels : fm_kernels_cpu(t->options.element);
    if (!kernels) return fm_fail(reterr, FM_ERR_UNSUPPORTED, "the CPU computes in f32 or f64");
    const fm_kernels *island = kernels->wide ? kernels->wide : kernels;
    if (t->options.model.structure.n_iteration > 0 && !island->ipa) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the structure module does not run on %s yet; [model] "
                       "n_structure_iteration = 0 leaves it out",
                       island->name);
    }
    const size_t tables_bytes = (size_t)1 << 32; /* address space */
    fm_status status = fm_arena_init(&t->arena, tables_bytes, reterr);
    if (!status) status = fm_params_init(&t->params, FM_MAX_PARAM, &t->arena, reterr);
    if (!status) {
        fm_model_add_parameters(&t->params, &t->arena, &t->options.model, &t->weights);
        status = take_parameters(t, kernels, reterr);
    }
    if (!status) {
        declare_state(t, kernels);
        if (!only_plans) status = take_state(t, kernels, reterr);
    }
    if (!status) {
        status = t->options.forward_only
                     ? fm_optimizer_init_scalars(&t->optimizer, &t->params, reterr)
                     : fm_optimizer_init(&t->optimizer, &t->params, &t->options.optimizer, reterr);
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

static void plan_forward_only(fm_trainer_options *options) {
    fm_model_config *model = &options->model;
    if (!options->keeps_dropout) {
        model->dropout_msa = model->dropout_pair = model->structure.dropout = 0;
    }
    model->recompute = FM_RECOMPUTE_NONE; /* nothing is kept for a backward */
}

/* Creates and prepares a trainer, which the caller destroys also on failure. */
static fm_status prepare_new(const fm_trainer_options *options, bool only_plans,
                             fm_trainer **ret_trainer, fm_error *reterr) {
    fm_trainer *trainer = calloc(1, sizeof *trainer);
    *ret_trainer = trainer;
    if (!trainer) return fm_fail(reterr, FM_ERR_NOMEM, "the trainer's own memory was refused");
    trainer->options = *options;
    trainer->options.model.groups = options->groups;
    trainer->options.model.axis_multiple = options->kernels ? options->kernels->axis_multiple : 1;
    trainer->options.model = fm_split_pad(&trainer->options.model);
    if (options->forward_only) plan_forward_only(&trainer->options);
    return prepare(trainer, only_plans, reterr);
}

fm_status fm_trainer_create(const fm_trainer_options *options, fm_trainer **ret_trainer,
                            fm_error *reterr) {
    fm_trainer *trainer;
    fm_status status = prepare_new(options, false, &trainer, reterr);
    if (!status) status = bind_arena(trainer, trainer->params.kernels, reterr);
    if (!status) status = share_memory(trainer, reterr);
    if (!status) status = build_queues(trainer, reterr);
    if (status) {
        fm_trainer_destroy(trainer);
        return status;
    }
    *ret_trainer = trainer;
    return FM_OK;
}

fm_status fm_trainer_plan(const fm_trainer_options *options, fm_trainer_need *ret_need,
                          fm_error *reterr) {
    fm_trainer *trainer;
    fm_status status = prepare_new(options, true, &trainer, reterr);
    *ret_need = (fm_trainer_need){0};
    if (!status) {
        *ret_need = (fm_trainer_need){.device_bytes = fm_trainer_memory_bytes(trainer),
                                      .locked_bytes = fm_trainer_locked_bytes(trainer)};
    }
    fm_trainer_destroy(trainer);
    return status;
}

void fm_trainer_destroy(fm_trainer *trainer) {
    if (!trainer) return;
    if (trainer->params.kernels) {
        release_queues(trainer);
        fm_groups_unshare(trainer->options.groups);
        trainer->params.kernels->release(trainer->scratch);
        trainer->params.kernels->release(trainer->memory);
    }
    fm_optimizer_fini(&trainer->optimizer);
    fm_tape_fini(&trainer->last);
    fm_tape_fini(&trainer->cycle);
    fm_state_release(&trainer->state);
    fm_params_release(&trainer->params);
    free(trainer->host);
    fm_arena_fini(&trainer->arena);
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
    const double mib = 1 << 20;
    const fm_tape_size *size = &t->last.size;
    char recompute[80];
    describe_recompute(&t->options.model, recompute, sizeof recompute);
    snprintf(out, out_bytes,
             "%.2f M parameters (%.1f MiB with moments and average), batch %.1f MiB, step arena "
             "%.1f MiB (saved %.1f, transient %.1f), %d nodes, recompute %s",
             (double)t->params.n_value / 1e6, (double)t->params.memory_bytes / mib,
             (double)t->state.bytes / mib, (double)arena_bytes(t) / mib,
             (double)size->saved_bytes / mib, (double)size->transient_bytes / mib,
             (int)size->n_node, recompute);
}
