/* setup.h: makes the options of a trainer of either network from the settings of a run. */
#ifndef FM_TRAINER_SETUP_H
#define FM_TRAINER_SETUP_H

#include "trainer/app/settings/train_config.h"
#include "trainer/step/af3/step.h"
#include "trainer/step/step.h"

fm_trainer_options fm_trainer_options_of(const fm_train_config *config, const fm_kernels *kernels,
                                         uint64_t seed);
fm_af3_trainer_options fm_af3_trainer_options_of(const fm_train_config *config,
                                                 const fm_kernels *kernels, uint64_t seed);

#endif
