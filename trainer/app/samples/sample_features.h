/* sample_features.h: passes the tensors of a received sample to a training step. */
#ifndef FM_TRAINER_SAMPLE_FEATURES_H
#define FM_TRAINER_SAMPLE_FEATURES_H

#include "proto/batch.h"
#include "trainer/step/step_features.h"

/* Fills in *ret_features with pointers into the sample, which must outlive it. Decoding has checked
 * all shapes against each other. FM_ERR_DATA names a tensor that a step needs and the sample does
 * not have. FM_ERR_LIMIT if the sample has too many cycles. */
FM_MUST_USE fm_status fm_features_of(const fm_sample *sample, fm_features *ret_features,
                                     fm_error *reterr);

/* Moves the features to the place where their sample is used: they take its slot and the first
 * n_cycle cycles. FM_ERR_PROTOCOL if the sample has fewer. */
FM_MUST_USE fm_status fm_features_use(fm_features *features, uint32_t slot, uint32_t n_cycle,
                                      fm_error *reterr);

#endif
