/* tape_run.c: runs the schedule and hands ops their pointers; see tape.h.
 *
 * A step names a node and a phase; fm_tape_run_step calls the op's forward or backward function
 * with an fm_run that carries the step number. The op asks for pointers by position (input 0,
 * output 0, ...). fm_tape_place turns a tensor into an address: state memory plus offset, or the
 * step arena plus the offset of the buffer's life at that step. A dropped buffer uses its second
 * life from the first backward step on. In a dry run every pointer is a dummy that must not be
 * read, and only the workspace requests count. */
#include "trainer/autograd/tape_internal.h"
#include "trainer/backend/where.h"

#include <assert.h>
#include <math.h>

void fm_tape_bind(fm_tape *tape, void *memory) {
    tape->memory = memory;
}

/* Adds the residual's gradient if it is not passed in place: dx += dy. */
static void add_residual_gradient(const fm_run *run, const fm_node *node) {
    const fm_tensor *x = &run->tape->tensor[node->input[node->residual]];
    fm_out dx = fm_run_gradient(run, node, node->residual);
    dx.beta = FM_ADD; /* the op has already written dx */
    run->kernels->axpy(run->stream, fm_tensor_local_count(x), 1.0,
                       fm_run_output_gradient(run, node, 0), dx);
}

int64_t fm_tape_run_step(fm_tape *tape, int32_t at, fm_stream *stream, bool dry) {
    fm_step *step = &tape->step[at];
    const fm_node *node = &tape->node[step->node];
    fm_run run = {.tape = tape,
                  .kernels = node->kernels,
                  .stream = stream,
                  .step = at,
                  .dry = dry,
                  .wants_output = step->wants_output};
    fm_backend_name_op(node->op->name, node->name);
    switch (step->phase) {
    case FM_PHASE_FORWARD:
    case FM_PHASE_RECOMPUTE: node->op->forward(&run, node); break;
    case FM_PHASE_DERIVE: node->derive(&run, node); break;
    case FM_PHASE_BACKWARD:
        node->op->backward(&run, node);
        if (node->residual_adds && !dry) add_residual_gradient(&run, node);
        break;
    }
    fm_backend_name_op(NULL, NULL);
    step->flops = run.flops;
    return run.workspace_peak_bytes;
}

static void stamp(const fm_tape *tape, int32_t at, fm_stream *stream) {
    if (tape->stamp) tape->kernels->device->stamp(stream, &tape->stamp[at]);
}

/* -- memory that nothing has written */

/* Writes NaN of the act type. A pair of bf16 NaNs is a NaN in an f32 island too. */
static void spoil(const fm_tape *tape, void *memory, int64_t bytes, fm_stream *stream) {
    const fm_kernels *kernels = tape->main_kernels;
    kernels->fill(stream, bytes / (int64_t)fm_element_bytes(kernels->act), NAN, memory);
}

/* Spoils the gradients that their first writer overwrites. */
static void spoil_parameter_gradients(const fm_tape *tape, fm_stream *stream) {
    const fm_params *params = tape->params;
    for (int32_t b = 0; b < params->n_block; b++) {
        const fm_param_block *block = &params->block[b];
        if (tape->param_written[b]) {
            spoil(tape, fm_params_at(params, params->gradient, block->offset),
                  block->count * (int64_t)fm_element_bytes(params->element), stream);
        }
    }
}

void fm_tape_spoil(const fm_tape *tape, int32_t at, fm_stream *stream) {
    for (int32_t b = 0; b < tape->n_buffer; b++) {
        const fm_buffer *buffer = &tape->buffer[b];
        for (int i = 0; i < 2 && buffer->state_offset < 0; i++) {
            if (buffer->life[i].first == at) {
                spoil(tape, (char *)tape->memory + buffer->life[i].offset,
                      fm_plan_round(buffer->bytes), stream);
            }
        }
    }
    const fm_step *step = &tape->step[at];
    spoil(tape, (char *)tape->memory + step->workspace_at, fm_plan_round(step->workspace_bytes),
          stream);
    if (at == tape->n_forward) spoil_parameter_gradients(tape, stream);
}

/* -- the rounding of bf16 */

static void round_tensor(const fm_tape *tape, fm_tensor_ref ref, int32_t at) {
    const fm_tensor *tensor = ref == FM_TENSOR_NONE ? NULL : &tape->tensor[ref];
    if (!tensor || tensor->element != FM_ELEMENT_F32) return;
    uint32_t *bits = fm_tape_place(tape, ref, at);
    int64_t n = fm_tensor_local_count(tensor);
    for (int64_t i = 0; i < n; i++)
        bits[i] = (bits[i] + 0x7fff + (bits[i] >> 16 & 1)) & 0xffff0000u;
}

/* Rounds the values that a step has written, to the nearest, ties to even. */
static void round_step(const fm_tape *tape, int32_t at) {
    const fm_step *step = &tape->step[at];
    const fm_node *node = &tape->node[step->node];
    if (node->kernels != tape->main_kernels) return;
    for (int i = 0; i < node->n_output; i++)
        if (step->wants_output || step->derived >> i & 1) round_tensor(tape, node->output[i], at);
    for (int i = 0; i < node->n_input && step->phase == FM_PHASE_BACKWARD; i++)
        if (node->input_written >> i & 1) {
            round_tensor(tape, tape->tensor[node->input[i]].gradient, at);
        }
}

/* -- walks over the steps */

static void walk(fm_tape *tape, int32_t first, int32_t end, fm_stream *stream) {
    assert(tape->memory || tape->size.arena_bytes == 0);
    if (first == 0) stamp(tape, 0, stream);
    for (int32_t at = first; at < end; at++) {
        if (tape->spoils) fm_tape_spoil(tape, at, stream);
        int64_t used = fm_tape_run_step(tape, at, stream, false);
        tape->step[at].touched = used > 0;
        assert(used == tape->step[at].workspace_bytes && "the dry run asked for another workspace");
        if (tape->rounds) round_step(tape, at);
        stamp(tape, at + 1, stream);
    }
}

void fm_tape_forward(fm_tape *tape, fm_stream *stream) {
    walk(tape, 0, tape->n_forward, stream);
}

void fm_tape_forward_nodes(fm_tape *tape, int32_t first, int32_t end, fm_stream *stream) {
    assert(first <= end && end <= tape->n_forward); /* each node has one forward step, in order */
    walk(tape, first, end, stream);
}

void fm_tape_backward(fm_tape *tape, fm_stream *stream) {
    const fm_params *params = tape->params;
    const fm_kernels *kernels = tape->main_kernels;
    if (tape->sums_bytes > 0) {
        kernels->put_off_sums(stream, (char *)tape->memory + tape->sums_at, params->gradient,
                              fm_params_at(params, params->gradient, params->n_element));
    }
    walk(tape, tape->n_forward, tape->n_step, stream);
    kernels->finish_sums(stream);
}

void fm_tape_clear_unwritten(const fm_tape *tape, fm_stream *stream) {
    const fm_params *params = tape->params;
    const fm_kernels *kernels = tape->kernels;
    int64_t ratio = (int64_t)(fm_element_bytes(kernels->acc) / fm_element_bytes(kernels->act));
    for (int32_t b = 0; b < params->n_block; b++) {
        if (!tape->param_written[b]) {
            const fm_param_block *block = &params->block[b];
            kernels->fill(stream, block->count * ratio, 0.0,
                          fm_params_at(params, params->gradient, block->offset));
        }
    }
}

/* The pointer that ops see in a dry run. It is not NULL, because workspace queries of kernels may
 * ask whether an optional operand is present, and it is never read. */
static void *dry_place(void) {
    return (void *)(uintptr_t)FM_PLAN_ALIGN_BYTES;
}

/* -- addresses of tensors */

void *fm_tape_place(const fm_tape *tape, fm_tensor_ref ref, int32_t step) {
    if (ref == FM_TENSOR_NONE) return NULL;
    const fm_tensor *tensor = &tape->tensor[ref];
    fm_buffer *buffer = &tape->buffer[tensor->buffer];
    if (buffer->state_offset >= 0) {
        int64_t row = tape->row * buffer->row_bytes;
        return (char *)fm_state_at(tape->state, buffer->state_offset) + row + tensor->offset;
    }
    int life = buffer->dropped && step >= tape->n_forward;
    assert(step >= buffer->life[life].first && step <= buffer->life[life].last);
    buffer->life[life].touched = true;
    return (char *)tape->memory + buffer->life[life].offset + tensor->offset;
}

void *fm_tape_data(const fm_tape *tape, fm_tensor_ref tensor) {
    return fm_tape_place(tape, tensor, tape->n_step - 1);
}

void *fm_tape_gradient(const fm_tape *tape, fm_tensor_ref tensor) {
    return fm_tape_place(tape, tape->tensor[tensor].gradient, tape->n_step - 1);
}

static int64_t most(int64_t a, int64_t b) {
    return a > b ? a : b;
}

/* Sum of both ends' reach at one step, over the places that a real run used. */
static int64_t used_at(const fm_tape *tape, int32_t at) {
    int64_t low = 0, high = 0, arena_bytes = tape->size.arena_bytes;
    for (int32_t b = 0; b < tape->n_buffer; b++) {
        const fm_buffer *buffer = &tape->buffer[b];
        for (int i = 0; i < 2; i++) {
            bool alive = buffer->life[i].first >= 0 && buffer->life[i].first <= at &&
                         buffer->life[i].last >= at;
            if (buffer->state_offset < 0 && alive && buffer->life[i].touched) {
                int64_t offset = buffer->life[i].offset;
                if (buffer->life[i].high) {
                    high = most(high, arena_bytes - offset);
                } else {
                    low = most(low, offset + fm_plan_round(buffer->bytes));
                }
            }
        }
    }
    if (tape->step[at].touched) high = most(high, arena_bytes - tape->step[at].workspace_at);
    if (tape->sums_bytes > 0 && at >= tape->n_forward) {
        high = most(high, arena_bytes - tape->sums_at);
    }
    return low + high;
}

int64_t fm_tape_used_bytes(const fm_tape *tape) {
    int64_t used = 0;
    for (int32_t at = 0; at < tape->n_step; at++)
        used = most(used, used_at(tape, at));
    return used;
}

static void *run_place(const fm_run *run, fm_tensor_ref ref) {
    if (run->dry) return ref == FM_TENSOR_NONE ? NULL : dry_place();
    return fm_tape_place(run->tape, ref, run->step);
}

/* -- functions for ops */

void *fm_run_workspace(fm_run *run, int64_t bytes) {
    if (bytes == 0) return NULL;
    const fm_step *step = &run->tape->step[run->step];
    int64_t at = run->workspace_used_bytes;
    run->workspace_used_bytes += fm_plan_round(bytes);
    run->workspace_peak_bytes = most(run->workspace_peak_bytes, run->workspace_used_bytes);
    if (run->dry) return dry_place();
    assert(run->workspace_used_bytes <= step->workspace_bytes);
    return (char *)run->tape->memory + step->workspace_at + at;
}

void *fm_run_workspace_act(fm_run *run, int64_t count) {
    return fm_run_workspace(run, count * (int64_t)fm_element_bytes(run->kernels->act));
}

void *fm_run_workspace_acc(fm_run *run, int64_t count) {
    return fm_run_workspace(run, count * (int64_t)fm_element_bytes(run->kernels->acc));
}

void *fm_run_input(const fm_run *run, const fm_node *node, int i) {
    assert(i < node->n_input);
    bool backward = run->tape->step[run->step].phase == FM_PHASE_BACKWARD;
    assert(!backward || node->input[i] == FM_TENSOR_NONE || node->reads_again >> i & 1);
    (void)backward;
    return run_place(run, node->input[i]);
}

void *fm_run_output(const fm_run *run, const fm_node *node, int i) {
    assert(i < node->n_output);
    return run_place(run, node->output[i]);
}

void *fm_run_saved(const fm_run *run, const fm_node *node, int i) {
    assert(i < node->n_saved);
    return run_place(run, node->saved[i]);
}

bool fm_run_drops_saved(const fm_run *run, const fm_node *node, int i) {
    const fm_tape *tape = run->tape;
    return run->step < tape->n_forward && tape->buffer[tape->tensor[node->saved[i]].buffer].dropped;
}

bool fm_run_has_saved(const fm_run *run, const fm_node *node, int i) {
    const fm_tape *tape = run->tape;
    return run->step >= tape->n_forward &&
           !tape->buffer[tape->tensor[node->saved[i]].buffer].dropped;
}

bool fm_run_derives(const fm_run *run, int i) {
    return run->tape->step[run->step].derived >> i & 1;
}

void *fm_run_param(const fm_run *run, const fm_node *node, int j) {
    const fm_params *params = run->tape->params;
    assert(j < node->n_param);
    if (node->param[j] == FM_PARAM_NONE) return NULL;
    int64_t offset = params->block[node->param[j]].offset;
    bool narrow = params->copy && run->kernels->act != params->element;
    const void *flat = narrow ? params->copy : params->master;
    return run->dry ? dry_place() : fm_run_at(flat, offset, run->kernels->act);
}

void *fm_run_output_gradient(const fm_run *run, const fm_node *node, int i) {
    return run_place(run, run->tape->tensor[node->output[i]].gradient);
}

fm_out fm_run_gradient(const fm_run *run, const fm_node *node, int i) {
    if (!(node->input_written >> i & 1)) return (fm_out){0};
    return (fm_out){.data = run_place(run, run->tape->tensor[node->input[i]].gradient),
                    .beta = node->input_beta >> i & 1 ? FM_ADD : FM_WRITE};
}

fm_out fm_run_completed_gradient(const fm_run *run, const fm_node *node) {
    assert(node->completes);
    return (fm_out){.data = fm_run_output_gradient(run, node, 0),
                    .beta = node->gradient_is_zero ? FM_WRITE : FM_ADD};
}

fm_out fm_run_param_gradient(const fm_run *run, const fm_node *node, int j) {
    const fm_params *params = run->tape->params;
    assert(j < node->n_param);
    if (node->param[j] == FM_PARAM_NONE) return (fm_out){0};
    return (fm_out){.data = run->dry ? dry_place()
                                     : fm_params_at(params, params->gradient,
                                                    params->block[node->param[j]].offset),
                    .beta = node->param_beta >> j & 1 ? FM_ADD : FM_WRITE};
}

fm_draw fm_run_draw(const fm_run *run, const fm_node *node) {
    return (fm_draw){.seed = run->tape->seed,
                     .clock = run->tape->clock,
                     .layer = node->rng,
                     .purpose = FM_PURPOSE_DROPOUT};
}
