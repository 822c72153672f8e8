/* step.c: creates and records a step of AlphaFold 3; see step.h. Its parts run in step_run.c. */
#include "trainer/step/af3/step.h"

#include "trainer/step/af3/step_internal.h"
#include "trainer/step/memory_budget.h"

#include "trainer/ops/cast.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

static const size_t TABLE_BYTES = (size_t)1 << 32; /* address space */

/* -- the state */

/* Declares the values of all denoising steps of a tensor that each step reads. */
static void add_row(fm_af3_trainer *t, int32_t now) {
    if (now < 0) return;
    assert(t->n_row < FM_AF3_STEP_ROWS);
    const fm_tensor *of = &t->state.tensor[now];
    const int64_t shape[] = {t->options.model.n_rollout_step, fm_tensor_local_count(of)};
    t->row[t->n_row++] = (fm_af3_trainer_row){
        fm_state_add(&t->state, "steps of the rollout", of->element, 2, shape), now};
}

static void declare_state(fm_af3_trainer *t) {
    const fm_af3_config *c = &t->options.model;
    const fm_kernels *kernels = t->options.kernels;
    const int64_t one[] = {1}, clock[] = {FM_CLOCK_WORDS};
    const bool given = t->options.given;
    fm_af3_declare_inputs(&t->state, c, kernels, &t->inputs);
    fm_af3_declare_rollout(&t->state, c, kernels, 1, given, &t->rollout);
    fm_af3_declare_training_noise(&t->state, c, kernels, given, &t->noise);
    fm_complex_declare_targets(&t->state, kernels, c->n_token, c->n_atom, t->options.n_bond,
                               c->n_sample, &t->targets);
    t->seed_gradient = fm_state_add(&t->state, "gradient of the loss", kernels->acc, 1, one);
    t->clock = fm_state_add(&t->state, "clock", FM_ELEMENT_U32, 1, clock);
    t->flag = fm_state_add(&t->state, "not finite", FM_ELEMENT_U32, 1, one);
    const fm_af3_rollout *r = &t->rollout;
    const int32_t rows[FM_AF3_STEP_ROWS] = {r->spread, r->keep,     r->minus_move, r->in,
                                            r->skip,   r->out,      r->log,        t->clock,
                                            r->offset, r->rotation, r->noise};
    for (int i = 0; i < FM_AF3_STEP_ROWS; i++)
        add_row(t, rows[i]);
}

/* -- the tapes */

static bool has_gradient(const fm_af3_trainer *t, int i) {
    if (t->options.forward_only) return false;
    return i == FM_AF3_CONFIDENCE || (i == FM_AF3_LAST && !t->options.confidence_only);
}

static bool is_second(int i) {
    return i >= FM_AF3_PREPARE;
}

static void keep_outputs(fm_af3_trainer *t) {
    const fm_tensor_ref out[] = {t->out.s_inputs, t->out.s, t->out.z, t->out.x_denoised,
                                 t->out.distogram};
    const fm_tensor_ref logits[] = {t->logits.plddt, t->logits.pae, t->logits.pde,
                                    t->logits.resolved};
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++)
        fm_tape_keep(&t->tape[FM_AF3_LAST], out[i]);
    for (size_t i = 0; i < sizeof logits / sizeof logits[0]; i++)
        fm_tape_keep(&t->tape[FM_AF3_CONFIDENCE], logits[i]);
}

/* Records the losses behind both passes with gradients. */
static void record_losses(fm_af3_trainer *t) {
    const fm_complex_logits logits = {t->logits.plddt, t->logits.pde, t->logits.resolved,
                                      t->logits.pae};
    fm_tape *last = &t->tape[FM_AF3_LAST], *confidence = &t->tape[FM_AF3_CONFIDENCE];
    fm_tape_enter_island(last);
    fm_tensor_ref distogram = fm_op_cast(last, "distogram", t->out.distogram);
    t->structure_total =
        fm_complex_record_structure(last, t->out.x_denoised, distogram, &t->targets, t->term);
    fm_tape_leave_island(last);
    fm_tape_enter_island(confidence);
    t->confidence_total = fm_complex_record_confidence(confidence, &logits, &t->targets, t->term);
    fm_tape_leave_island(confidence);
    fm_tape_keep(&t->tape[FM_AF3_LAST], t->structure_total);
    fm_tape_keep(&t->tape[FM_AF3_CONFIDENCE], t->confidence_total);
    for (int i = 0; i < FM_COMPLEX_TERMS; i++)
        fm_tape_keep(i < FM_COMPLEX_STRUCTURE_TERMS ? &t->tape[FM_AF3_LAST]
                                                    : &t->tape[FM_AF3_CONFIDENCE],
                     t->term[i]);
    if (t->options.forward_only) return;
    if (!t->options.confidence_only) {
        fm_tape_seed_gradient(&t->tape[FM_AF3_LAST], t->structure_total, t->seed_gradient);
    }
    fm_tape_seed_gradient(&t->tape[FM_AF3_CONFIDENCE], t->confidence_total, t->seed_gradient);
}

static fm_status record(fm_af3_trainer *t, fm_error *reterr) {
    const fm_af3_config *config = &t->options.model;
    fm_status status = FM_OK;
    for (int i = 0; i < FM_AF3_TAPES && !status; i++) {
        fm_tape *tape = &t->tape[i];
        status = fm_tape_init(tape, t->options.kernels, &t->params, &t->state, has_gradient(t, i),
                              reterr);
        tape->seed = t->options.seed;
        tape->spoils = t->options.spoils;
        tape->rounds = t->options.rounds;
        tape->clock = fm_state_data(&t->state, t->clock);
    }
    if (status) return status;
    fm_af3_record_cycle(&t->tape[FM_AF3_CYCLE], config, &t->weights, &t->inputs);
    t->out = fm_af3_record_last(&t->tape[FM_AF3_LAST], config, &t->weights, &t->inputs);
    t->logits = fm_af3_record_confidence(&t->tape[FM_AF3_CONFIDENCE], config, &t->weights,
                                         &t->inputs, t->rollout.x);
    fm_af3_record_prepare(&t->tape[FM_AF3_PREPARE], config, &t->weights, &t->inputs);
    fm_af3_record_rollout_step(&t->tape[FM_AF3_DENOISE], config, &t->weights, &t->inputs,
                               &t->rollout, FM_DRAW_ROLLOUT);
    fm_af3_record_training_structures(&t->tape[FM_AF3_STRUCTURES], config, &t->inputs,
                                      t->targets.position, t->targets.mask, &t->noise);
    if (t->options.keeps_outputs) keep_outputs(t);
    record_losses(t);
    for (int i = 0; i < FM_AF3_TAPES && !status; i++)
        status = fm_tape_plan(&t->tape[i], reterr);
    return status;
}

static void release_tapes(fm_af3_trainer *t) {
    for (int i = FM_AF3_TAPES - 1; i >= 0; i--)
        fm_tape_fini(&t->tape[i]);
}

/* -- memory */

static int64_t arena_bytes(const fm_af3_trainer *t, bool second) {
    int64_t most = 0;
    for (int i = 0; i < FM_AF3_TAPES; i++) {
        int64_t bytes = t->tape[i].size.arena_bytes;
        if (is_second(i) == second && bytes > most) most = bytes;
    }
    return most;
}

/* Returns the bytes of scratch memory for the sums over the ranks of a sample. */
static int64_t sum_bytes(const fm_af3_trainer *t) {
    return t->options.model.groups
               ? FM_AF3_SUM_ELEMENTS * (int64_t)fm_element_bytes(t->params.element)
               : 0;
}

int64_t fm_af3_trainer_memory_bytes(const fm_af3_trainer *t) {
    return t->params.memory_bytes + t->state.bytes + t->optimizer.memory_bytes +
           arena_bytes(t, false) + arena_bytes(t, true) + sum_bytes(t);
}

/* Records and plans again, with the config as it is. */
static fm_status record_anew(void *context, fm_error *reterr) {
    release_tapes(context);
    return record(context, reterr);
}

static int64_t memory_bytes(const void *context) {
    return fm_af3_trainer_memory_bytes(context);
}

static fm_status plan_memory(fm_af3_trainer *t, fm_error *reterr) {
    fm_af3_config *model = &t->options.model;
    const fm_recompute_order order = fm_af3_config_order(model);
    const fm_memory_budget budget = {.device = t->options.kernels->device,
                                     .groups = model->groups,
                                     .bytes = &t->options.memory_budget_bytes,
                                     .taken_bytes = t->params.memory_bytes + t->state.bytes +
                                                    t->optimizer.memory_bytes,
                                     .policy = &model->recompute,
                                     .steps = &model->recompute_steps,
                                     .most_steps = fm_recompute_order_steps(&order),
                                     .context = t,
                                     .record = record_anew,
                                     .memory_bytes = memory_bytes};
    return fm_memory_budget_record(&budget, reterr);
}

static fm_status bind_arenas(fm_af3_trainer *t, fm_error *reterr) {
    const fm_kernels *kernels = t->options.kernels;
    const int64_t first = arena_bytes(t, false), second = arena_bytes(t, true);
    t->memory = kernels->alloc((size_t)first + 1);
    t->second_memory = kernels->alloc((size_t)second + 1);
    if (!t->memory || !t->second_memory) {
        return fm_fail(reterr, FM_ERR_NOMEM, "step arenas of %.1f MiB were refused",
                       (double)(first + second) / (1 << 20));
    }
    for (int i = 0; i < FM_AF3_TAPES; i++)
        fm_tape_bind(&t->tape[i], is_second(i) ? t->second_memory : t->memory);
    if (sum_bytes(t) == 0) return FM_OK;
    t->sum_scratch = kernels->alloc((size_t)sum_bytes(t));
    if (!t->sum_scratch) {
        return fm_fail(reterr, FM_ERR_NOMEM, "memory for the sum over ranks was refused");
    }
    return FM_OK;
}

/* Lets the other ranks read everything that exchanges may send. */
static fm_status share_memory(fm_af3_trainer *t, fm_error *reterr) {
    const fm_groups_memory shared[] = {
        {t->params.memory, t->params.memory_bytes},       {t->state.memory, t->state.bytes},
        {t->optimizer.memory, t->optimizer.memory_bytes}, {t->memory, arena_bytes(t, false)},
        {t->second_memory, arena_bytes(t, true)},         {t->sum_scratch, sum_bytes(t)}};
    return fm_groups_share(t->options.model.groups, shared, sizeof shared / sizeof shared[0],
                           reterr);
}

/* -- creating */

static fm_status prepare(fm_af3_trainer *t, fm_error *reterr) {
    const fm_kernels *kernels = t->options.kernels;
    fm_status status = fm_arena_init(&t->arena, TABLE_BYTES, reterr);
    if (!status) status = fm_arena_init(&t->scratch, TABLE_BYTES, reterr);
    if (!status) status = fm_params_init(&t->params, FM_AF3_MAX_PARAM, &t->arena, reterr);
    if (status) return status;
    fm_af3_add_parameters(&t->params, &t->arena, &t->options.model, &t->weights);
    status = t->options.forward_only ? fm_params_allocate_values(&t->params, kernels, reterr)
                                     : fm_params_allocate(&t->params, kernels, reterr);
    if (!status) status = fm_af3_draw_parameters(&t->params, t->options.seed, reterr);
    if (status) return status;
    if (t->options.confidence_only) {
        t->params.first_trained = t->params.block[t->weights.confidence_at].offset;
    }
    declare_state(t);
    status = fm_state_allocate(&t->state, kernels, reterr);
    if (!status && !t->options.forward_only) {
        status = fm_optimizer_init(&t->optimizer, &t->params, &t->options.optimizer, reterr);
    }
    fm_af3_trainer_choose_mirrored(t);
    if (!status) status = fm_mirror_allocate(&t->mirror, &t->state, reterr);
    if (!status) status = fm_mirror_allocate(&t->shared, &t->state, reterr);
    if (!status) status = plan_memory(t, reterr);
    if (!status) status = bind_arenas(t, reterr);
    if (!status) status = share_memory(t, reterr);
    if (status) return status;
    const size_t n_x = (size_t)(3 * t->options.model.n_atom);
    t->x = fm_arena_alloc_array(&t->arena, n_x, sizeof *t->x);
    t->raw = fm_arena_alloc_array(&t->arena, n_x, sizeof *t->raw);
    if (!t->x || !t->raw) return fm_arena_full(&t->arena, reterr);
    if (!kernels->device->stream_create(&t->stream)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "a stream was refused");
    }
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
    const fm_kernels *kernels = t->options.kernels;
    for (int i = 0; i < FM_AF3_PARTS; i++)
        fm_pass_forget(&t->part[i]);
    if (t->stream) kernels->device->stream_destroy(t->stream);
    fm_groups_unshare(t->options.model.groups);
    release_tapes(t);
    kernels->release(t->stamp);
    kernels->release(t->memory);
    kernels->release(t->second_memory);
    kernels->release(t->sum_scratch);
    fm_mirror_fini(&t->mirror);
    fm_mirror_fini(&t->shared);
    fm_optimizer_fini(&t->optimizer);
    fm_state_release(&t->state);
    fm_params_release(&t->params);
    fm_arena_fini(&t->scratch);
    fm_arena_fini(&t->arena);
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
    const double mib = 1 << 20;
    const fm_tape_size *size = &t->tape[FM_AF3_LAST].size;
    char recompute[320];
    describe_recompute(&t->options.model, recompute, sizeof recompute);
    snprintf(out, out_bytes,
             "%.2f M parameters (%.1f MiB with moments and average), batch %.1f MiB, step arena "
             "%.1f MiB (saved %.1f, transient %.1f), rollout %.1f MiB, %d nodes, recompute %s",
             (double)t->params.n_value / 1e6, (double)t->params.memory_bytes / mib,
             (double)t->state.bytes / mib, (double)arena_bytes(t, false) / mib,
             (double)size->saved_bytes / mib, (double)size->transient_bytes / mib,
             (double)arena_bytes(t, true) / mib, (int)size->n_node, recompute);
}
