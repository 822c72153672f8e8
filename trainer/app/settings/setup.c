/* setup.c: see setup.h. */
#include "trainer/app/settings/setup.h"

#include <string.h>

static const double GIB = 1 << 30;

static fm_optimizer_options optimizer_of(const fm_train_config *config) {
    return (fm_optimizer_options){.rate = config->optimizer.learning_rate,
                                  .beta1 = config->optimizer.beta1,
                                  .beta2 = config->optimizer.beta2,
                                  .eps = config->optimizer.eps,
                                  .ema_decay = config->optimizer.ema_decay,
                                  .clip = config->optimizer.clip,
                                  .clip_norm = config->optimizer.clip_norm,
                                  .warmup_samples = (uint64_t)config->optimizer.warmup_samples,
                                  .decay_at_samples = (uint64_t)config->optimizer.decay_at_samples,
                                  .decay_factor = config->optimizer.decay_factor};
}

fm_trainer_options fm_trainer_options_of(const fm_train_config *config, const fm_kernels *kernels,
                                         uint64_t seed) {
    fm_trainer_options options = {
        .model = config->model,
        .optimizer = optimizer_of(config),
        .kernels = kernels,
        .element = FM_ELEMENT_F32,
        .seed = seed,
        .memory_budget_bytes = (int64_t)(config->memory_budget_gib * GIB),
    };
    memcpy(options.weight, config->loss, sizeof options.weight);
    return options;
}

fm_af3_trainer_options fm_af3_trainer_options_of(const fm_train_config *config,
                                                 const fm_kernels *kernels, uint64_t seed) {
    fm_af3_trainer_options options = {
        .model = config->af3,
        .optimizer = optimizer_of(config),
        .loss = config->af3_loss,
        .kernels = kernels,
        .seed = seed,
        .n_bond = config->af3.n_token, /* far more than the bonds of ligands to polymers */
        .memory_budget_bytes = (int64_t)(config->memory_budget_gib * GIB),
        .keeps_conformers = config->af3_conformers == FM_AF3_CONFORMERS_STORED,
        .confidence_only = config->af3_trains == FM_AF3_TRAINS_CONFIDENCE,
    };
    options.optimizer.l2 = config->optimizer.l2;
    options.optimizer.decay_every_samples = (uint64_t)config->optimizer.decay_every_samples;
    options.optimizer.behind_samples = (uint64_t)config->data.global_batch;
    return options;
}
