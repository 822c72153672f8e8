/* complex_features.h: passes the tensors of a received sample of a complex to a training step. */
#ifndef FM_TRAINER_COMPLEX_FEATURES_H
#define FM_TRAINER_COMPLEX_FEATURES_H

#include "proto/batch.h"
#include "trainer/step/af3/features.h"

/* Expands the first n_cycle cycles of a sample into the arena and checks it as a stored one
 * (step/af3/stored.h). The features have the MSA rows that the server drew for each cycle. They
 * borrow from the sample, and their slot is left to the caller. FM_ERR_PROTOCOL if the sample has
 * fewer cycles; FM_ERR_DATA if it is not one of a complex or does not fit the format; FM_ERR_LIMIT
 * when the arena is full. */
FM_MUST_USE fm_status fm_complex_features_of(const fm_sample *sample, uint32_t n_cycle,
                                             fm_arena *arena, fm_af3_features *ret_features,
                                             fm_error *reterr);

#endif
