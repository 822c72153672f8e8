/* recording.c: see recording.h. */
#include "trainer/step/recording.h"

#include "trainer/dist/sum.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const size_t TABLE_BYTES = (size_t)1 << 32; /* address space */

fm_status fm_recording_init(fm_recording *r, const fm_recording_options *options,
                            int32_t most_param, fm_error *reterr) {
    assert(options->n_tape <= FM_RECORDING_TAPES);
    r->options = *options;
    fm_status status = fm_arena_init(&r->arena, TABLE_BYTES, reterr);
    return status ? status : fm_params_init(&r->params, most_param, &r->arena, reterr);
}

void fm_recording_declare_clock(fm_recording *r) {
    const int64_t one[] = {1}, clock[] = {FM_CLOCK_WORDS};
    r->clock = fm_state_add(&r->state, "clock", FM_ELEMENT_U32, 1, clock);
    r->flag = fm_state_add(&r->state, "not finite", FM_ELEMENT_U32, 1, one);
}

/* -- tapes */

static void release_tapes(fm_recording *r) {
    for (int i = r->options.n_tape - 1; i >= 0; i--)
        fm_tape_fini(&r->tape[i]);
}

fm_status fm_recording_begin_tapes(fm_recording *r, fm_error *reterr) {
    const fm_recording_options *o = &r->options;
    release_tapes(r);
    for (int i = 0; i < o->n_tape; i++) {
        fm_tape *tape = &r->tape[i];
        fm_status status = fm_tape_init(tape, o->kernels, &r->params, &r->state,
                                        o->with_gradient >> i & 1, reterr);
        if (status) return status;
        tape->seed = o->seed;
        tape->spoils = o->spoils;
        tape->rounds = o->rounds;
        tape->chunk_bytes = o->chunk_bytes;
        tape->chunks_triangles = o->chunks_triangles;
        if (r->state.memory) tape->clock = fm_state_data(&r->state, r->clock);
    }
    return FM_OK;
}

fm_status fm_recording_plan_tapes(fm_recording *r, fm_error *reterr) {
    fm_status status = FM_OK;
    for (int i = 0; i < r->options.n_tape && !status; i++)
        status = fm_tape_plan(&r->tape[i], reterr);
    return status;
}

/* -- memory */

/* The arena of a tape. */
static int arena_of(const fm_recording *r, int tape) {
    return tape >= r->options.first_of_second;
}

int64_t fm_recording_arena_bytes(const fm_recording *r, int arena) {
    int64_t most = 0;
    for (int i = 0; i < r->options.n_tape; i++) {
        const int64_t bytes = r->tape[i].size.arena_bytes;
        if (arena_of(r, i) == arena && bytes > most) most = bytes;
    }
    return most;
}

static int64_t scratch_bytes(const fm_recording *r) {
    return r->options.scratch_elements * (int64_t)fm_element_bytes(r->params.element);
}

/* Device memory that is taken before the tapes are planned. */
static int64_t taken_bytes(const fm_recording *r) {
    return r->params.memory_bytes + r->state.bytes + r->optimizer.memory_bytes;
}

int64_t fm_recording_bytes(const fm_recording *r) {
    return taken_bytes(r) + scratch_bytes(r) + fm_recording_arena_bytes(r, 0) +
           fm_recording_arena_bytes(r, 1);
}

fm_status fm_recording_plan(fm_recording *r, const fm_memory_budget *budget, fm_error *reterr) {
    fm_memory_budget whole = *budget;
    whole.device = r->options.kernels->device;
    whole.groups = r->options.groups;
    whole.taken_bytes = taken_bytes(r);
    return fm_memory_budget_record(&whole, reterr);
}

/* Lets the other ranks read everything that exchanges may send. */
static fm_status share_memory(fm_recording *r, fm_error *reterr) {
    const fm_groups_memory shared[] = {{r->params.memory, r->params.memory_bytes},
                                       {r->state.memory, r->state.bytes},
                                       {r->optimizer.memory, r->optimizer.memory_bytes},
                                       {r->memory[0], fm_recording_arena_bytes(r, 0)},
                                       {r->memory[1], fm_recording_arena_bytes(r, 1)},
                                       {r->scratch, scratch_bytes(r)}};
    return fm_groups_share(r->options.groups, shared, sizeof shared / sizeof shared[0], reterr);
}

/* Takes memory, unless there is nothing to hold in it. */
static bool take(const fm_recording *r, int64_t bytes, void **ret_memory) {
    if (bytes > 0) *ret_memory = r->options.kernels->alloc((size_t)bytes);
    return bytes == 0 || *ret_memory;
}

fm_status fm_recording_bind(fm_recording *r, fm_error *reterr) {
    const int64_t first = fm_recording_arena_bytes(r, 0), second = fm_recording_arena_bytes(r, 1);
    if (!take(r, first, &r->memory[0]) || !take(r, second, &r->memory[1]) ||
        !take(r, scratch_bytes(r), &r->scratch)) {
        return fm_fail(reterr, FM_ERR_NOMEM, "a step arena of %.1f MiB was refused",
                       (double)(first + second) / (1 << 20));
    }
    for (int i = 0; i < r->options.n_tape; i++)
        fm_tape_bind(&r->tape[i], r->memory[arena_of(r, i)]);
    fm_status status = share_memory(r, reterr);
    if (status || r->options.kernels->device->stream_create(&r->stream)) return status;
    return fm_fail(reterr, FM_ERR_NOMEM, "a stream was refused");
}

void fm_recording_fini(fm_recording *r) {
    const fm_kernels *kernels = r->options.kernels;
    if (!kernels) return;
    if (r->stream) kernels->synchronize(r->stream);
    for (int i = 0; i < r->n_pass; i++)
        fm_pass_forget(&r->pass[i]);
    if (r->stream) kernels->device->stream_destroy(r->stream);
    fm_groups_unshare(r->options.groups);
    release_tapes(r);
    kernels->release(r->stamp);
    kernels->release(r->scratch);
    for (int i = 0; i < FM_RECORDING_ARENAS; i++)
        kernels->release(r->memory[i]);
    fm_optimizer_fini(&r->optimizer);
    fm_state_release(&r->state);
    fm_params_release(&r->params);
    fm_arena_fini(&r->arena);
}

/* -- passes */

/* Only the ranks of a sample run a pass together: groups of DP have other samples, with other
 * numbers of cycles, or none. */
static bool all_captured(void *context, bool captured) {
    const fm_recording *r = context;
    return fm_comm_agree(r->options.groups->sample, captured, r->scratch, r->stream);
}

void fm_recording_add_pass(fm_recording *r, void (*queue)(void *context, fm_stream *stream),
                           void *context) {
    assert(r->n_pass < FM_RECORDING_PASSES);
    const fm_device *device = r->options.kernels->device;
    const bool agrees = r->options.groups && device->is_asynchronous;
    r->pass[r->n_pass++] = (fm_pass){.queue = queue,
                                     .context = context,
                                     .agree = agrees ? all_captured : NULL,
                                     .agree_context = r,
                                     .device = device,
                                     .direct = r->options.direct};
}

fm_status fm_recording_stamp(fm_recording *r, size_t n_own, fm_error *reterr) {
    const fm_kernels *kernels = r->options.kernels;
    size_t n = n_own;
    for (int i = 0; i < r->options.n_tape; i++)
        n += (size_t)r->tape[i].n_step + 1;
    if (!r->stamp) r->stamp = kernels->alloc(n * sizeof *r->stamp);
    if (!r->stamp) {
        return fm_fail(reterr, FM_ERR_NOMEM, "device memory for time stamps was refused");
    }
    uint64_t *at = r->stamp + n_own;
    for (int i = 0; i < r->options.n_tape; i++) {
        r->tape[i].stamp = at;
        at += r->tape[i].n_step + 1;
    }
    kernels->synchronize(r->stream);
    for (int i = 0; i < r->n_pass; i++)
        fm_pass_forget(&r->pass[i]);
    return FM_OK;
}

void fm_recording_queue_stamp(const fm_recording *r, int at, fm_stream *stream) {
    if (r->stamp) r->options.kernels->device->stamp(stream, &r->stamp[at]);
}

/* -- results */

double fm_recording_read_scalar(const fm_recording *r, int tape, fm_tensor_ref tensor) {
    const fm_kernels *kernels = r->options.kernels;
    const fm_element element = fm_tape_tensor(&r->tape[tape], tensor)->element;
    double wide = 0;
    float narrow = 0;
    const bool is_wide = element == FM_ELEMENT_F64;
    assert(is_wide || element == FM_ELEMENT_F32);
    kernels->download(r->stream, is_wide ? (void *)&wide : &narrow,
                      fm_tape_data(&r->tape[tape], tensor), fm_element_bytes(element));
    kernels->synchronize(r->stream);
    return is_wide ? wide : (double)narrow;
}

static float f32_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

fm_status fm_recording_download(const fm_recording *r, int tape, fm_tensor_ref tensor, size_t first,
                                size_t count, fm_arena *arena, float **ret_values,
                                fm_error *reterr) {
    const fm_kernels *kernels = r->options.kernels;
    const fm_tape *from = &r->tape[tape];
    fm_element element = fm_tape_tensor(from, tensor)->element;
    size_t bytes = count * fm_element_bytes(element);
    float *values = fm_arena_alloc_array(arena, count, sizeof *values);
    if (!values) return fm_arena_full(arena, reterr);
    size_t mark = fm_arena_mark(arena);
    void *raw = element == FM_ELEMENT_F32 ? values : fm_arena_alloc(arena, bytes);
    if (!raw) return fm_arena_full(arena, reterr);
    kernels->synchronize(r->stream);
    kernels->download(NULL, raw, fm_run_at(fm_tape_data(from, tensor), (int64_t)first, element),
                      bytes);
    kernels->synchronize(NULL);
    for (size_t i = 0; i < count && element != FM_ELEMENT_F32; i++) {
        values[i] = element == FM_ELEMENT_BF16 ? f32_of(((const uint16_t *)raw)[i])
                                               : (float)((const double *)raw)[i];
    }
    fm_arena_rewind(arena, mark);
    *ret_values = values;
    return FM_OK;
}

/* -- messages */

void fm_recording_describe(const fm_recording *r, int tape, const char *second,
                           const char *recompute, char *out, size_t out_bytes) {
    const double mib = 1 << 20;
    const fm_tape_size *size = &r->tape[tape].size;
    char other[64] = "";
    if (second) {
        snprintf(other, sizeof other, ", %s %.1f MiB", second,
                 (double)fm_recording_arena_bytes(r, 1) / mib);
    }
    snprintf(out, out_bytes,
             "%.2f M parameters (%.1f MiB with moments and average), batch %.1f MiB, step arena "
             "%.1f MiB (saved %.1f, transient %.1f)%s, %d nodes, recompute %s",
             (double)r->params.n_value / 1e6, (double)r->params.memory_bytes / mib,
             (double)r->state.bytes / mib, (double)fm_recording_arena_bytes(r, 0) / mib,
             (double)size->saved_bytes / mib, (double)size->transient_bytes / mib, other,
             (int)size->n_node, recompute);
}
