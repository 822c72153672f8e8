/* sample_features.h: a received sample as the step takes it. */
#ifndef FM_TRAINER_FEATURES_OF_H
#define FM_TRAINER_FEATURES_OF_H

#include "proto/batch.h"
#include "trainer/step/step_features.h"

/* The sample's tensors, borrowed; decoding has checked shapes against each other. FM_ERR_DATA names
 * a tensor that a step needs and the sample does not have; FM_ERR_LIMIT: too many cycles. */
FM_MUST_USE fm_status fm_features_of(const fm_sample *sample, fm_features *ret_features,
                                     fm_error *reterr);

#endif
