/* optimizer.h: gradient clipping, Adam and the moving average over the flat parameter buffers.
 *
 * Clipping per sample (FM_CLIP_SAMPLE, as AlphaFold does): each sample's gradient is scaled to a
 * norm of at most clip_norm and added to the batch's sum. After the last sample, Adam takes the
 * mean. Norm, scale and step are in device memory; nothing waits for the host.
 *
 * Clipping per batch (FM_CLIP_BATCH, as most other trainers do): samples are added unscaled, and
 * the mean is scaled to a norm of at most clip_norm.
 *
 * The learning rate is a function of the samples seen, so it means the same at any batch size.
 * It has a linear warm-up, then one factor from a given sample on, or one after every given
 * number of samples. The step count, which is the exponent of Adam's bias correction, is kept
 * here. Checkpoints store it with m, v and ema. */
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
    double l2;                /* 0; AlphaFold 3: 1e-8, added to the clipped gradient */
    fm_clip_policy clip;
    double clip_norm;          /* 0.1 */
    uint64_t warmup_samples;   /* 128,000 = 1,000 steps of 128 */
    uint64_t decay_at_samples; /* 6,400,000 = 50,000 steps of 128; 0 = never */
    double decay_factor;       /* 0.95 */
    /* For AlphaFold 3. The factor applies again after every decay_every_samples; 0: only once. The
     * schedule counts behind_samples fewer. With the size of a batch, the first step has the rate
     * 0. */
    uint64_t decay_every_samples; /* 12,800,000 = 50,000 steps of 256 */
    uint64_t behind_samples;      /* 256 */
} fm_optimizer_options;

/* The options of AlphaFold2's initial training. */
fm_optimizer_options fm_optimizer_defaults(void);

/* The learning rate of a step whose batch ends at `samples` samples seen (>= 1). */
double fm_optimizer_rate(const fm_optimizer_options *options, uint64_t samples);

typedef struct fm_optimizer {
    fm_optimizer_options options;
    fm_params *params;
    const fm_kernels *kernels;
    void *memory; /* device: sum of (clipped) gradients | workspace of the norm | fm_step_state */
    int64_t memory_bytes;
    void *sum, *workspace;
    fm_step_state *state;
    uint64_t step, samples; /* steps made and samples added so far */
    uint32_t pending;       /* samples in the sum */
} fm_optimizer;

/* Allocates the sum of gradients and the scalars on the device: 4 bytes per parameter (8 in f64).
 * FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_optimizer_init(fm_optimizer *optimizer, fm_params *params,
                                        const fm_optimizer_options *options, fm_error *reterr);
/* Only the scalars, for passes that make no gradient. */
FM_MUST_USE fm_status fm_optimizer_init_scalars(fm_optimizer *optimizer, fm_params *params,
                                                fm_error *reterr);
void fm_optimizer_fini(fm_optimizer *optimizer);

/* The kernels that a captured pass queues. The caller has put step, rate, pending and holds into
 * the device's scalars by the time they run.
 *
 * queue_norm measures the flat gradient, and queue_sum adds it, clipped, to the batch's sum.
 * queue_update runs Adam and the moving average with the mean of the sum. If `only` is set and the
 * sample is the only one of its batch, it uses the flat gradient directly. queue_sum and
 * queue_update change nothing while the scalars say that a value was not finite, and queue_update
 * does nothing while samples of the step are still to come. */
void fm_optimizer_queue_norm(fm_optimizer *optimizer, fm_stream *stream);
void fm_optimizer_queue_sum(fm_optimizer *optimizer, fm_stream *stream);
void fm_optimizer_queue_update(fm_optimizer *optimizer, fm_stream *stream, bool only);

/* Adds the flat gradient of one sample to the batch's sum and waits for the device. Returns false
 * and adds nothing if the gradient is not finite. */
FM_MUST_USE bool fm_optimizer_add_sample(fm_optimizer *optimizer, fm_stream *stream);

/* Sets the sum of gradients to zero, where no sample is pending. */
void fm_optimizer_clear_sum(fm_optimizer *optimizer, fm_stream *stream);

/* Tells the optimiser that its sum now covers `n` samples, those of other optimisers included. */
void fm_optimizer_count_others(fm_optimizer *optimizer, uint32_t n);

/* Makes one Adam step with the mean over the samples added since the last step. Waits for the
 * device. */
void fm_optimizer_step(fm_optimizer *optimizer, fm_stream *stream);

/* Clears the mark that a gradient was not finite. */
void fm_optimizer_clear_nonfinite(fm_optimizer *optimizer, fm_stream *stream);

/* Returns the device's scalars; waits for the stream. */
fm_step_state fm_optimizer_get_state(const fm_optimizer *optimizer, fm_stream *stream);

#endif
