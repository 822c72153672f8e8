/* optimizer.c: see optimizer.h.
 *
 * All numbers that change from step to step (rate, step, pending samples, norm, the mark for a
 * value that is not finite) are in one fm_step_state on the device. The queue functions only
 * submit kernels that read it, so a captured CUDA graph can be replayed with other numbers. The
 * functions that wait write this state, queue the same kernels, and read it back. */
#include "trainer/optim/optimizer.h"

#include "trainer/tensor/plan.h"

#include <assert.h>
#include <math.h>

fm_optimizer_options fm_optimizer_defaults(void) {
    return (fm_optimizer_options){.rate = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-6,
                                  .ema_decay = 0.999,
                                  .clip_norm = 0.1,
                                  .warmup_samples = 128000,
                                  .decay_at_samples = 6400000,
                                  .decay_factor = 0.95};
}

double fm_optimizer_rate(const fm_optimizer_options *options, uint64_t samples) {
    double rate = options->rate;
    samples -= samples < options->behind_samples ? samples : options->behind_samples;
    if (options->decay_every_samples) {
        rate *= pow(options->decay_factor, (double)(samples / options->decay_every_samples));
    }
    if (samples < options->warmup_samples) {
        rate *= (double)samples / (double)options->warmup_samples;
    }
    if (options->decay_at_samples && samples >= options->decay_at_samples) {
        rate *= options->decay_factor;
    }
    return rate;
}

/* Takes the memory of the sum, of the workspace and of the scalars. */
static fm_status allocate(fm_optimizer *optimizer, int64_t sum_bytes, int64_t work_bytes,
                          fm_error *reterr) {
    const fm_kernels *kernels = optimizer->kernels;
    int64_t state_bytes = fm_plan_round((int64_t)sizeof(fm_step_state));
    optimizer->memory_bytes = sum_bytes + work_bytes + state_bytes;
    optimizer->memory = kernels->alloc((size_t)optimizer->memory_bytes);
    if (!optimizer->memory) {
        return fm_fail(reterr, FM_ERR_NOMEM,
                       "cannot allocate %.1f MiB of device memory for gradients",
                       (double)sum_bytes / (1 << 20));
    }
    optimizer->sum = optimizer->memory;
    optimizer->workspace = (char *)optimizer->memory + sum_bytes;
    optimizer->state = (fm_step_state *)((char *)optimizer->workspace + work_bytes);
    fm_step_state empty = {0};
    kernels->upload(NULL, optimizer->state, &empty, sizeof empty);
    kernels->synchronize(NULL);
    return FM_OK;
}

fm_status fm_optimizer_init(fm_optimizer *optimizer, fm_params *params,
                            const fm_optimizer_options *options, fm_error *reterr) {
    const fm_kernels *kernels = params->kernels;
    *optimizer = (fm_optimizer){.options = *options, .params = params, .kernels = kernels};
    int64_t sum_bytes = params->n_element * (int64_t)fm_element_bytes(params->element);
    int64_t work_bytes = (int64_t)kernels->grad_norm_workspace(params->n_element);
    return allocate(optimizer, fm_plan_round(sum_bytes), fm_plan_round(work_bytes), reterr);
}

fm_status fm_optimizer_init_scalars(fm_optimizer *optimizer, fm_params *params, fm_error *reterr) {
    *optimizer = (fm_optimizer){.params = params, .kernels = params->kernels};
    return allocate(optimizer, 0, 0, reterr);
}

void fm_optimizer_fini(fm_optimizer *optimizer) {
    if (optimizer->kernels) optimizer->kernels->release(optimizer->memory);
    *optimizer = (fm_optimizer){0};
}

/* Waits for the upload, because `state` is on the caller's stack. */
static void set_state(const fm_optimizer *optimizer, fm_stream *stream, fm_step_state state) {
    optimizer->kernels->upload(stream, optimizer->state, &state, sizeof state);
    optimizer->kernels->synchronize(stream);
}

void fm_optimizer_clear_nonfinite(fm_optimizer *optimizer, fm_stream *stream) {
    fm_step_state state = fm_optimizer_get_state(optimizer, stream);
    state.nonfinite = 0;
    set_state(optimizer, stream, state);
}

/* The elements of a flat buffer that are trained, and how many they are. */
static void *trained_of(const fm_optimizer *optimizer, void *flat) {
    const fm_params *params = optimizer->params;
    return flat ? fm_params_at(params, flat, params->first_trained) : NULL;
}

static int64_t count_trained(const fm_optimizer *optimizer) {
    return fm_params_trained(optimizer->params) - optimizer->params->first_trained;
}

void fm_optimizer_queue_norm(fm_optimizer *optimizer, fm_stream *stream) {
    bool each = optimizer->options.clip == FM_CLIP_SAMPLE;
    optimizer->kernels->grad_norm(stream, count_trained(optimizer),
                                  trained_of(optimizer, optimizer->params->gradient),
                                  each ? optimizer->options.clip_norm : (double)INFINITY, false,
                                  optimizer->state, optimizer->workspace);
}

void fm_optimizer_queue_sum(fm_optimizer *optimizer, fm_stream *stream) {
    bool whole = optimizer->options.clip == FM_CLIP_BATCH;
    optimizer->kernels->accumulate(stream, count_trained(optimizer), optimizer->state, whole,
                                   trained_of(optimizer, optimizer->params->gradient),
                                   trained_of(optimizer, optimizer->sum));
}

void fm_optimizer_queue_update(fm_optimizer *optimizer, fm_stream *stream, bool only) {
    fm_params *params = optimizer->params;
    bool whole = optimizer->options.clip == FM_CLIP_BATCH;
    const int64_t n = count_trained(optimizer);
    int64_t copied = params->first_trained * (int64_t)fm_element_bytes(optimizer->kernels->act);
    if (whole) {
        optimizer->kernels->grad_norm(stream, n, trained_of(optimizer, optimizer->sum),
                                      optimizer->options.clip_norm, true, optimizer->state,
                                      optimizer->workspace);
    }
    optimizer->kernels->adam(
        stream, &(fm_adam){.n = n,
                           .beta1 = optimizer->options.beta1,
                           .beta2 = optimizer->options.beta2,
                           .eps = optimizer->options.eps,
                           .ema_decay = optimizer->options.ema_decay,
                           .grad_scale = 1,
                           .clip = whole,
                           .state = optimizer->state,
                           .grad = trained_of(optimizer, optimizer->sum),
                           .only = only && !whole ? trained_of(optimizer, params->gradient) : NULL,
                           .param = trained_of(optimizer, params->master),
                           .m = trained_of(optimizer, params->moment1),
                           .v = trained_of(optimizer, params->moment2),
                           .ema = trained_of(optimizer, params->ema),
                           .copy = params->copy ? (char *)params->copy + copied : NULL,
                           .l2 = optimizer->options.l2});
}

bool fm_optimizer_add_sample(fm_optimizer *optimizer, fm_stream *stream) {
    fm_step_state state = fm_optimizer_get_state(optimizer, stream);
    state.pending = optimizer->pending;
    state.holds = 1;
    set_state(optimizer, stream, state);
    fm_optimizer_queue_norm(optimizer, stream);
    fm_optimizer_queue_sum(optimizer, stream);
    if (fm_optimizer_get_state(optimizer, stream).nonfinite) {
        fm_optimizer_clear_nonfinite(optimizer, stream);
        return false;
    }
    optimizer->pending++;
    optimizer->samples++;
    return true;
}

void fm_optimizer_clear_sum(fm_optimizer *optimizer, fm_stream *stream) {
    const fm_params *params = optimizer->params;
    assert(optimizer->pending == 0);
    /* `fill` counts elements of the act type */
    int64_t n = params->n_element * (int64_t)(fm_element_bytes(params->element) /
                                              fm_element_bytes(optimizer->kernels->act));
    optimizer->kernels->fill(stream, n, 0.0, optimizer->sum);
}

void fm_optimizer_count_others(fm_optimizer *optimizer, uint32_t n) {
    assert(n >= 1 && n >= optimizer->pending);
    optimizer->samples += n - optimizer->pending;
    optimizer->pending = n;
}

void fm_optimizer_step(fm_optimizer *optimizer, fm_stream *stream) {
    assert(optimizer->pending > 0);
    fm_step_state state = fm_optimizer_get_state(optimizer, stream);
    state.lr = fm_optimizer_rate(&optimizer->options, optimizer->samples);
    state.step = ++optimizer->step;
    state.pending = optimizer->pending - 1;
    state.holds = 0;
    set_state(optimizer, stream, state);
    fm_optimizer_queue_update(optimizer, stream, false);
    optimizer->kernels->synchronize(stream);
    optimizer->pending = 0;
}

fm_step_state fm_optimizer_get_state(const fm_optimizer *optimizer, fm_stream *stream) {
    fm_step_state state;
    optimizer->kernels->download(stream, &state, optimizer->state, sizeof state);
    optimizer->kernels->synchronize(stream);
    return state;
}
