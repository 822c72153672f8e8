/* upload.h: packs samples into packets, which the pass of each cycle takes first
 * (backend/kernels.h, packets).
 *
 * Ids, deletions and counts travel as the sample has them; the device makes padding, masks and
 * conversions. The host makes ground truth and template features from coordinates; they travel as
 * f32. */
#ifndef FM_TRAINER_UPLOAD_H
#define FM_TRAINER_UPLOAD_H

#include "trainer/step/cycles.h"

/* Checks a sample, which is outside input. FM_ERR_LIMIT when it is larger than the recorded shape,
 * FM_ERR_DATA when an id, an index or the size of a cluster is out of its range. */
FM_MUST_USE fm_status fm_upload_check(const fm_cycles *cycles, const fm_features *features,
                                      fm_error *reterr);

/* The largest number of bytes of data that a packet of the recorded shape can have. */
int64_t fm_upload_most_bytes(const fm_cycles *cycles);

/* Fills a packet that fm_ring_begin has returned: the MSA tensors of the cycle and the clock (the
 * number of the update is `step`). With the first cycle it also sends what all cycles share:
 * residues, coordinates, templates, pair mask, loss factors, and zeros for the results of the last
 * cycle. The caller fills the scalars of fm_step_state. */
void fm_upload_pack(fm_cycles *cycles, const fm_features *features, uint32_t cycle, uint64_t step,
                    fm_packet *packet);

#endif
