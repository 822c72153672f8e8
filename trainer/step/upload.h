/* upload.h: samples into the state, padded to the recorded shape. */
#ifndef FM_TRAINER_UPLOAD_H
#define FM_TRAINER_UPLOAD_H

#include "trainer/step/step.h"

/* Samples come from outside: FM_ERR_LIMIT when one is larger than the recorded shape, FM_ERR_DATA
 * when an id, an index or a cluster's size is out of its range. */
FM_MUST_USE fm_status fm_upload_check(const fm_trainer *trainer, const fm_features *features,
                                      fm_error *reterr);

/* What all cycles share: residues, coordinates, templates, pair mask, loss factors. */
void fm_upload_sample(fm_trainer *trainer, const fm_features *features);

/* One cycle's MSA tensors and mask, and the clock. */
void fm_upload_cycle(fm_trainer *trainer, const fm_features *features, uint32_t cycle);

#endif
