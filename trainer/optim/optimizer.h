/* optimizer.h: clipping, Adam and the moving average over the flat parameter buffers.
 *
 * Per sample (AlphaFold's way): the norm of one sample's gradient is measured, the gradient scaled
 * to at most clip_norm and added to the batch's sum; after the last sample Adam takes the mean.
 * Norm, scale and step live in device memory; nothing waits for the host.
 *
 * Per batch (FM_CLIP_BATCH, other trainers' way): samples are added as they are, and the mean is
 * scaled to at most clip_norm.
 *
 * Rates follow samples seen, so that they mean the same at any batch size: linear warm-up, then a
 * factor at one point. The step's exponent of Adam's bias correction is counted here and belongs to
 * checkpoints with m, v and ema. */
#ifndef FM_TRAINER_OPTIMIZER_H
#define FM_TRAINER_OPTIMIZER_H

#include "trainer/tensor/params.h"

typedef enum fm_clip_policy {
    FM_CLIP_SAMPLE, /* each sample's gradient, before the average */
    FM_CLIP_BATCH   /* the average */
} fm_clip_policy;

typedef struct fm_optimizer_options {
    double rate;              /* 1e-3 */
    double beta1, beta2, eps; /* 0.9, 0.999, 1e-6 */
    double ema_decay;         /* 0.999 */
    fm_clip_policy clip;
    double clip_norm;          /* 0.1 */
    uint64_t warmup_samples;   /* 128,000 = 1,000 steps of 128 */
    uint64_t decay_at_samples; /* 6,400,000 = 50,000 steps of 128; 0 = never */
    double decay_factor;       /* 0.95 */
} fm_optimizer_options;

/* AlphaFold2's initial training. */
fm_optimizer_options fm_optimizer_defaults(void);

/* The rate of a step whose batch ends at `samples` samples seen (>= 1). */
double fm_optimizer_rate(const fm_optimizer_options *options, uint64_t samples);

typedef struct fm_optimizer {
    fm_optimizer_options options;
    fm_params *params;
    const fm_kernels *kernels;
    void *memory; /* device: sum of (clipped) gradients | norm's workspace | fm_step_state */
    int64_t memory_bytes;
    void *sum, *workspace;
    fm_step_state *state;
    uint64_t step, samples; /* taken so far */
    uint32_t pending;       /* samples in the sum */
} fm_optimizer;

/* The flat buffers' second half: 4 bytes a parameter more (8 in f64). FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_optimizer_init(fm_optimizer *optimizer, fm_params *params,
                                        const fm_optimizer_options *options, fm_error *reterr);
void fm_optimizer_fini(fm_optimizer *optimizer);

/* What a captured pass queues; step, rate, pending and holds are in the device's scalars by then.
 * sample: measures the flat gradient and takes it, clipped, into the batch's sum. update: Adam and
 * EMA with the mean of the sum, or with the flat gradient where the sample is its batch's only one
 * and `only` is set. Both do nothing once a gradient was not finite; update, while samples of the
 * step are to come. */
void fm_optimizer_queue_sample(fm_optimizer *optimizer, fm_stream *stream);
void fm_optimizer_queue_update(fm_optimizer *optimizer, fm_stream *stream, bool only);

/* One at a time, waiting. Takes the flat gradient of one sample into the batch's sum. False, and
 * nothing is taken, when the gradient is not finite. */
FM_MUST_USE bool fm_optimizer_add_sample(fm_optimizer *optimizer, fm_stream *stream);

/* The sum has become that of `n` optimisers, each of as many samples. */
void fm_optimizer_count_others(fm_optimizer *optimizer, int32_t n);

/* One Adam step with the mean over the samples added since the last. */
void fm_optimizer_step(fm_optimizer *optimizer, fm_stream *stream);

/* Forgets that a gradient was not finite. */
void fm_optimizer_clear_nonfinite(fm_optimizer *optimizer, fm_stream *stream);

/* The device's scalars as they are now (waits for the stream). */
fm_step_state fm_optimizer_get_state(const fm_optimizer *optimizer, fm_stream *stream);

#endif
