/* ring.h: packets on their way to the device. The host fills a slot of page-locked memory; a stream
 * of its own copies it to the same slot in device memory, beside whatever is computed; the pass
 * that takes it waits for that copy, and the slot is filled again when that pass is through.
 *
 * One slot without a copy where the device is the host. Slots are for packets of at most the bytes
 * that the ring was made for; what is larger is our own fault (assert). */
#ifndef FM_TRAINER_STEP_RING_H
#define FM_TRAINER_STEP_RING_H

#include "proto/base/status.h"
#include "trainer/backend/kernels.h"

enum { FM_RING_SLOTS = 8 };

typedef struct fm_ring {
    const fm_kernels *kernels;
    fm_stream *copy;
    int32_t n_slot;
    int64_t slot_bytes, used_bytes; /* used: of the packet in hand */
    uint8_t *host, *memory;         /* [n_slot, slot_bytes] each */
    uint64_t *n_taken;              /* device memory: the ring's other end */
    fm_event *sent[FM_RING_SLOTS], *taken[FM_RING_SLOTS];
    uint64_t n_put;
} fm_ring;

/* data_bytes: the most behind a packet's header. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_ring_create(fm_ring *ring, const fm_kernels *kernels, int64_t data_bytes,
                                     fm_error *reterr);
void fm_ring_destroy(fm_ring *ring);

/* The next packet, all zero; waits until its slot is free. Asynchronous devices have
 * FM_RING_SLOTS of them. */
fm_packet *fm_ring_begin(fm_ring *ring);

/* `bytes` of the packet in hand, for the caller to fill before it is sent; *ret_at: bytes from the
 * packet's start. */
void *fm_ring_data(fm_ring *ring, int64_t bytes, int64_t *ret_at);

/* Starts the copy; what is queued on `compute` from now on finds the packet. */
void fm_ring_send(fm_ring *ring, fm_stream *compute);

/* The pass that takes the packet just sent has been queued on `compute`. */
void fm_ring_taken(fm_ring *ring, fm_stream *compute);

#endif
