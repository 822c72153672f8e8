/* ring.h: the packets on their way to the device. The host fills a slot of page-locked memory. A
 * separate stream copies the slot to device memory while other work is computed. The pass that
 * takes the packet waits for that copy, and the host fills the slot again when that pass has ended.
 *
 * Where the device is the host, there is one slot and no copy. A packet that is larger than the
 * ring was created for is an error of the program (assert). */
#ifndef FM_TRAINER_STEP_RING_H
#define FM_TRAINER_STEP_RING_H

#include "proto/base/status.h"
#include "trainer/backend/kernels.h"

enum { FM_RING_SLOTS = 8 }; /* at most */

typedef struct fm_ring {
    const fm_kernels *kernels;
    fm_stream *copy;
    int32_t n_slot;
    int64_t slot_bytes, used_bytes; /* used: by the current packet */
    uint8_t *host, *memory;         /* [n_slot, slot_bytes] each */
    uint64_t *n_taken;              /* device memory: packets taken, the other end of the ring */
    fm_event *sent[FM_RING_SLOTS], *taken[FM_RING_SLOTS];
    uint64_t n_put;
} fm_ring;

/* The bytes of all slots of a ring that is created with the same arguments. The device has them
 * once; an asynchronous device also has them in the host's page-locked memory. */
int64_t fm_ring_bytes(const fm_kernels *kernels, int32_t n_slot, int64_t data_bytes);

/* n_slot: 2 to FM_RING_SLOTS, for asynchronous devices; data_bytes: the largest size of the data
 * behind a packet's header. FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_ring_create(fm_ring *ring, const fm_kernels *kernels, int32_t n_slot,
                                     int64_t data_bytes, fm_error *reterr);
void fm_ring_destroy(fm_ring *ring);

/* Returns the next packet, all zero, after waiting until its slot is free. */
fm_packet *fm_ring_begin(fm_ring *ring);

/* Returns `bytes` of space in the current packet, for the caller to fill before it is sent.
 * *ret_at: offset in bytes from the start of the packet. */
void *fm_ring_data(fm_ring *ring, int64_t bytes, int64_t *ret_at);

/* Starts the copy. Work that is queued on `compute` afterwards finds the packet in device memory.
 */
void fm_ring_send(fm_ring *ring, fm_stream *compute);

/* Call it when the pass that takes the packet just sent has been queued on `compute`. */
void fm_ring_taken(fm_ring *ring, fm_stream *compute);

#endif
