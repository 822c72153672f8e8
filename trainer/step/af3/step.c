/* step.c: creates and records a step of AlphaFold 3; see step.h. Its parts run in step_run.c. */
#include "trainer/step/af3/step.h"

#include "trainer/step/af3/step_internal.h"

#include "trainer/ops/cast.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t SCRATCH_BYTES = (size_t)1 << 32; /* address space */

/* -- the state */

static void declare_state(fm_af3_trainer *t) {
    const fm_af3_config *c = &t->options.model;
    const fm_kernels *kernels = t->options.kernels;
    const int64_t one[] = {1}, clocks[] = {c->n_rollout_step, FM_CLOCK_WORDS};
    const bool given = t->options.given;
    fm_af3_declare_inputs(&t->recording.state, c, kernels, &t->inputs);
    fm_af3_declare_rollout(&t->recording.state, c, kernels, 1, c->n_rollout_step, given,
                           &t->rollout);
    fm_af3_declare_training_noise(&t->recording.state, c, kernels, given, &t->noise);
    fm_complex_declare_targets(&t->recording.state, kernels, c->n_token, c->n_atom,
                               t->options.n_bond, c->n_sample, &t->targets);
    t->seed_gradient =
        fm_state_add(&t->recording.state, "gradient of the loss", kernels->acc, 1, one);
    fm_recording_declare_clock(&t->recording);
    t->clocks =
        fm_state_add(&t->recording.state, "clocks of the rollout", FM_ELEMENT_U32, 2, clocks);
    fm_af3_trainer_choose_mirrored(t);
    fm_mirror_declare_room(&t->mirror, &t->recording.state, kernels);
    fm_mirror_declare_room(&t->shared, &t->recording.state, kernels);
}

/* -- the tapes */

/* The tapes with a gradient, as bits. */
static unsigned with_gradient(const fm_af3_trainer_options *options) {
    if (options->forward_only) return 0;
    return 1u << FM_AF3_CONFIDENCE | (unsigned)!options->confidence_only << FM_AF3_LAST;
}

static void keep_outputs(fm_af3_trainer *t) {
    const fm_tensor_ref out[] = {t->out.s_inputs, t->out.s, t->out.z, t->out.x_denoised,
                                 t->out.distogram};
    const fm_tensor_ref logits[] = {t->logits.plddt, t->logits.pae, t->logits.pde,
                                    t->logits.resolved};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        fm_tape_keep(&t->recording.tape[FM_AF3_LAST], out[i]);
    for (size_t i = 0; i < sizeof logits / sizeof logits[0]; i++)
        fm_tape_keep(&t->recording.tape[FM_AF3_CONFIDENCE], logits[i]);
}

/* Records the losses behind both passes with gradients. */
static void record_losses(fm_af3_trainer *t) {
    const fm_complex_logits logits = {t->logits.plddt, t->logits.pde, t->logits.resolved,
                                      t->logits.pae};
    fm_tape *last = &t->recording.tape[FM_AF3_LAST];
    fm_tape *confidence = &t->recording.tape[FM_AF3_CONFIDENCE];
    fm_tape_enter_island(last);
    fm_tensor_ref distogram = fm_op_cast(last, "distogram", t->out.distogram);
    t->structure_total =
        fm_complex_record_structure(last, t->out.x_denoised, distogram, &t->targets, t->term);
    fm_tape_leave_island(last);
    fm_tape_enter_island(confidence);
    t->confidence_total = fm_complex_record_confidence(confidence, &logits, &t->targets, t->term);
    fm_tape_leave_island(confidence);
    fm_tape_keep(last, t->structure_total);
    fm_tape_keep(confidence, t->confidence_total);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_tape_keep(i < FM_COMPLEX_STRUCTURE_TERMS ? last : confidence, t->term[i]);
    if (t->options.forward_only) return;
    if (!t->options.confidence_only) {
        fm_tape_seed_gradient(last, t->structure_total, t->seed_gradient);
    }
    fm_tape_seed_gradient(confidence, t->confidence_total, t->seed_gradient);
}

/* Records and plans all tapes, with the config as it is. */
static fm_status record(void *context, fm_error *reterr) {
    fm_af3_trainer *t = context;
    const fm_af3_config *config = &t->options.model;
    fm_tape *tape = t->recording.tape;
    fm_status status = fm_recording_begin_tapes(&t->recording, reterr);
    if (status) return status;
    fm_af3_record_cycle(&tape[FM_AF3_CYCLE], config, &t->weights, &t->inputs);
    t->out = fm_af3_record_last(&tape[FM_AF3_LAST], config, t->recording.state.room_bytes,
                                &t->weights, &t->inputs);
    t->logits = fm_af3_record_confidence(&tape[FM_AF3_CONFIDENCE], config, &t->weights, &t->inputs,
                                         t->rollout.x);
    fm_af3_record_prepare(&tape[FM_AF3_PREPARE], config, &t->weights, &t->inputs);
    fm_af3_record_modulations(&tape[FM_AF3_PREPARE], config, &t->weights, &t->inputs, &t->rollout);
    fm_af3_record_rollout_step(&tape[FM_AF3_DENOISE], config, &t->weights, &t->inputs, &t->rollout,
                               FM_DRAW_ROLLOUT);
    fm_af3_record_training_structures(&tape[FM_AF3_STRUCTURES], config, &t->inputs,
                                      t->targets.position, t->targets.mask, &t->noise);
    if (t->options.keeps_outputs) keep_outputs(t);
    record_losses(t);
    return fm_recording_plan_tapes(&t->recording, reterr);
}

/* -- memory */

int64_t fm_af3_trainer_memory_bytes(const fm_af3_trainer *t) {
    return fm_recording_bytes(&t->recording);
}

static int64_t memory_bytes(const void *context) {
    return fm_af3_trainer_memory_bytes(context);
}

static fm_status plan_memory(fm_af3_trainer *t, fm_error *reterr) {
    fm_af3_config *model = &t->options.model;
    const fm_recompute_order order = fm_af3_config_order(model);
    const fm_memory_budget budget = {.bytes = &t->options.memory_budget_bytes,
                                     .policy = &model->recompute,
                                     .steps = &model->recompute_steps,
                                     .most_steps = fm_recompute_order_steps(&order),
                                     .context = t,
                                     .record = record,
                                     .memory_bytes = memory_bytes};
    return fm_recording_plan(&t->recording, &budget, reterr);
}

/* -- creating */

static fm_recording_options recording_options(const fm_af3_trainer_options *options) {
    return (fm_recording_options){.kernels = options->kernels,
                                  .groups = options->model.groups,
                                  .n_tape = FM_AF3_TAPES,
                                  .with_gradient = with_gradient(options),
                                  .first_of_second = FM_AF3_PREPARE,
                                  .scratch_elements =
                                      options->model.groups ? FM_AF3_SUM_ELEMENTS : 0,
                                  .seed = options->seed,
                                  .spoils = options->spoils,
                                  .rounds = options->rounds,
                                  .direct = options->direct};
}

static fm_status make_parameters(fm_af3_trainer *t, fm_error *reterr) {
    fm_recording *r = &t->recording;
    const fm_kernels *kernels = t->options.kernels;
    fm_af3_add_parameters(&r->params, &r->arena, &t->options.model, &t->weights);
    fm_status status = t->options.forward_only
                           ? fm_params_allocate_values(&r->params, kernels, reterr)
                           : fm_params_allocate(&r->params, kernels, reterr);
    if (!status) status = fm_af3_draw_parameters(&r->params, t->options.seed, reterr);
    if (!status && t->options.confidence_only) {
        r->params.first_trained = r->params.block[t->weights.confidence_at].offset;
    }
    return status;
}

static fm_status prepare(fm_af3_trainer *t, fm_error *reterr) {
    fm_recording *r = &t->recording;
    const fm_recording_options options = recording_options(&t->options);
    fm_status status = fm_recording_init(r, &options, FM_AF3_MAX_PARAM, reterr);
    if (!status) status = fm_arena_init(&t->scratch, SCRATCH_BYTES, reterr);
    if (!status) status = make_parameters(t, reterr);
    if (status) return status;
    declare_state(t);
    status = fm_state_allocate(&r->state, t->options.kernels, reterr);
    if (!status && !t->options.forward_only) {
        status = fm_optimizer_init(&r->optimizer, &r->params, &t->options.optimizer, reterr);
    }
    if (!status) status = fm_mirror_allocate(&t->mirror, &r->state, reterr);
    if (!status) status = fm_mirror_allocate(&t->shared, &r->state, reterr);
    if (!status) status = plan_memory(t, reterr);
    if (!status) status = fm_recording_bind(r, reterr);
    if (status) return status;
    r->state.room = fm_tape_room(&r->tape[FM_AF3_LAST], t->out.trunk_end);
    const size_t n_x = (size_t)(3 * t->options.model.n_atom);
    t->x = fm_arena_alloc_array(&r->arena, n_x, sizeof *t->x);
    t->raw = fm_arena_alloc_array(&r->arena, n_x, sizeof *t->raw);
    if (!t->x || !t->raw) return fm_arena_full(&r->arena, reterr);
    fm_af3_trainer_make_parts(t);
    return FM_OK;
}

fm_status fm_af3_trainer_create(const fm_af3_trainer_options *options, fm_af3_trainer **ret_trainer,
                                fm_error *reterr) {
    fm_af3_trainer *t = calloc(1, sizeof *t);
    if (!t) return fm_fail(reterr, FM_ERR_NOMEM, "the step's own memory was refused");
    t->options = *options;
    t->options.model = fm_af3_split_pad(&options->model);
    if (options->forward_only) {
        t->options.model.dropout_msa = t->options.model.dropout_pair = 0;
        t->options.model.recompute = FM_RECOMPUTE_NONE; /* nothing is kept for a backward */
    }
    fm_status status = fm_af3_check_products(&t->options.model, options->kernels, reterr);
    if (!status) status = prepare(t, reterr);
    if (status) {
        fm_af3_trainer_destroy(t);
        return status;
    }
    *ret_trainer = t;
    return FM_OK;
}

void fm_af3_trainer_destroy(fm_af3_trainer *t) {
    if (!t) return;
    t->options.kernels->synchronize(t->recording.stream);
    fm_mirror_fini(&t->mirror);
    fm_mirror_fini(&t->shared);
    fm_recording_fini(&t->recording);
    fm_arena_fini(&t->scratch);
    free(t);
}

/* How many blocks of a stack have a policy. */
static int32_t count_blocks(const fm_af3_config *config, int32_t stack,
                            fm_recompute_policy policy) {
    const fm_recompute_order order = fm_af3_config_order(config);
    int32_t n = 0;
    for (int32_t i = 0; i < order.n_block[stack]; i++)
        n += fm_af3_config_policy(config, stack, i) == policy;
    return n;
}

/* For example "all of 2 template, 12 pairformer; projections of 36 pairformer, 4 msa blocks". */
static void describe_recompute(const fm_af3_config *config, char *out, size_t out_bytes) {
    static const char *const what[] = {[FM_RECOMPUTE_HIDDEN] = "hidden layers of",
                                       [FM_RECOMPUTE_PROJECTIONS] = "projections of",
                                       [FM_RECOMPUTE_OPERANDS] = "operands of",
                                       [FM_RECOMPUTE_BLOCK] = "all of"};
    static const char *const stacks[FM_AF3_STACKS] = {[FM_AF3_STACK_TEMPLATE] = "template",
                                                      [FM_AF3_STACK_MSA] = "msa",
                                                      [FM_AF3_STACK_PAIRFORMER] = "pairformer",
                                                      [FM_AF3_STACK_INPUT] = "input",
                                                      [FM_AF3_STACK_ATOM] = "atom",
                                                      [FM_AF3_STACK_DIFFUSION] = "diffusion",
                                                      [FM_AF3_STACK_CONFIDENCE] = "confidence"};
    if (config->recompute != FM_RECOMPUTE_AUTO) {
        snprintf(out, out_bytes, "%s", fm_recompute_policy_words(config->recompute));
        return;
    }
    size_t at = 0;
    for (int policy = FM_RECOMPUTE_BLOCK; policy > FM_RECOMPUTE_NONE; policy--) {
        bool begins = true;
        for (int32_t stack = 0; stack < FM_AF3_STACKS; stack++) {
            int32_t n = count_blocks(config, stack, (fm_recompute_policy)policy);
            if (n == 0) continue;
            at += (size_t)snprintf(out + at, out_bytes - at, "%s%s %d %s",
                                   !begins  ? ","
                                   : at > 0 ? "; "
                                            : "",
                                   begins ? what[policy] : "", (int)n, stacks[stack]);
            assert(at < out_bytes);
            begins = false;
        }
    }
    (void)snprintf(out + at, out_bytes - at, " blocks");
}

void fm_af3_trainer_describe(const fm_af3_trainer *t, char *out, size_t out_bytes) {
    char recompute[320];
    describe_recompute(&t->options.model, recompute, sizeof recompute);
    fm_recording_describe(&t->recording, FM_AF3_LAST, "rollout", recompute, out, out_bytes);
}
