/* upload.h: samples into packets: what each cycle's pass takes first (backend/kernels.h, packets).
 *
 * Ids, deletions and counts travel as the sample has them; padding, masks and conversions are made
 * on the device. Ground truth and template features, which are made of coordinates on the host,
 * travel as f32. */
#ifndef FM_TRAINER_UPLOAD_H
#define FM_TRAINER_UPLOAD_H

#include "trainer/step/step.h"

/* Samples come from outside: FM_ERR_LIMIT when one is larger than the recorded shape, FM_ERR_DATA
 * when an id, an index or a cluster's size is out of its range. */
FM_MUST_USE fm_status fm_upload_check(const fm_trainer *trainer, const fm_features *features,
                                      fm_error *reterr);

/* The most bytes of data that a packet of this trainer's shape can have. */
int64_t fm_upload_most_bytes(const fm_trainer *trainer);

/* Fills a packet that fm_ring_begin began: the cycle's MSA tensors and the clock (the optimiser's
 * step is `step`), and with the first cycle what all share: residues, coordinates, templates, pair
 * mask, loss factors, and zeros where the last cycle's results will lie. The scalars of
 * fm_step_state are left to the caller. */
void fm_upload_pack(fm_trainer *trainer, const fm_features *features, uint32_t cycle, uint64_t step,
                    fm_packet *packet);

/* Queues the taking of the next packet: what every pass begins with. */
void fm_trainer_take_packet(fm_trainer *trainer, fm_stream *stream);

#endif
