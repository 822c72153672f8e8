/* setup.h: a step's options as a preset and its changes say them. */
#ifndef FM_TRAINER_SETUP_H
#define FM_TRAINER_SETUP_H

#include "trainer/app/train_config.h"
#include "trainer/step/step.h"

fm_trainer_options fm_trainer_options_of(const fm_train_config *config, const fm_kernels *kernels,
                                         uint64_t seed);

#endif
