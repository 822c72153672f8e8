/* setup.c: see setup.h. */
#include "trainer/app/setup.h"

#include <string.h>

static const double GIB = 1 << 30;

fm_trainer_options fm_trainer_options_of(const fm_train_config *config, const fm_kernels *kernels,
                                         uint64_t seed) {
    fm_trainer_options options = {
        .model = config->model,
        .optimizer = {.rate = config->optimizer.learning_rate,
                      .beta1 = config->optimizer.beta1,
                      .beta2 = config->optimizer.beta2,
                      .eps = config->optimizer.eps,
                      .ema_decay = config->optimizer.ema_decay,
                      .clip = config->optimizer.clip,
                      .clip_norm = config->optimizer.clip_norm,
                      .warmup_samples = (uint64_t)config->optimizer.warmup_samples,
                      .decay_at_samples = (uint64_t)config->optimizer.decay_at_samples,
                      .decay_factor = config->optimizer.decay_factor},
        .kernels = kernels,
        .element = FM_ELEMENT_F32,
        .seed = seed,
        .memory_budget_bytes = (int64_t)(config->memory_budget_gib * GIB),
    };
    memcpy(options.weight, config->loss, sizeof options.weight);
    return options;
}
