/* out_ring.h: the frames of a connection that wait to be sent, in a ring of fixed entries.
 *
 * An entry is a whole control frame, or the header of a sample together with the block that holds
 * its body. The entries of one write stay until it has ended, when the blocks of its samples go
 * back to their streams. */
#ifndef FM_SERVER_OUT_RING_H
#define FM_SERVER_OUT_RING_H

#include "server/channel.h"
#include "server/stream.h"

enum {
    FM_OUT_N = 128,      /* entries of the ring */
    FM_OUT_N_WRITE = 64, /* entries of one write */
};

typedef struct fm_out_frame {
    uint8_t head[FM_WIRE_SMALL_BYTES]; /* a whole control frame, or a sample's header */
    size_t head_bytes;
    fm_work *work; /* the sample to release after the write; NULL for a control frame */
} fm_out_frame;

typedef struct fm_out_ring {
    uint32_t first, n;  /* entries first .. first + n - 1 are in use */
    uint32_t n_writing; /* the first so many are in the write; 0 = there is none */
    size_t writing_bytes;
    fm_out_frame frames[FM_OUT_N];
} fm_out_ring;

/* Adds an entry without a sample. The ring must not be full. */
fm_out_frame *fm_out_push(fm_out_ring *ring);

/* Begins a write of the first entries; fills runs[0..*ret_n-1]. False when there is nothing to
 * write, or a write is under way. */
bool fm_out_begin(fm_out_ring *ring, fm_bytes runs[FM_CHANNEL_N_RUN], size_t *ret_n);
/* The write has ended: releases its samples. Returns its bytes. */
size_t fm_out_end(fm_out_ring *ring);
/* Releases everything. */
void fm_out_drop(fm_out_ring *ring);

#endif
