/* out_ring.c: see out_ring.h. */
#include "server/out_ring.h"

#include <assert.h>

enum { WRITE_BYTES = 4 << 20 /* a write takes entries until it has so many bytes */ };

static_assert(2 * FM_OUT_N_WRITE <= FM_CHANNEL_N_RUN, "a write is one of the channel's");

fm_out_frame *fm_out_push(fm_out_ring *ring) {
    assert(ring->n < FM_OUT_N);
    fm_out_frame *frame = &ring->frames[(ring->first + ring->n++) % FM_OUT_N];
    frame->work = NULL;
    return frame;
}

bool fm_out_begin(fm_out_ring *ring, fm_bytes runs[FM_CHANNEL_N_RUN], size_t *ret_n) {
    if (ring->n_writing || ring->n == 0) return false;
    size_t n_run = 0, bytes = 0;
    uint32_t n = 0;
    for (; n < ring->n && n < FM_OUT_N_WRITE && bytes < WRITE_BYTES; n++) {
        const fm_out_frame *frame = &ring->frames[(ring->first + n) % FM_OUT_N];
        runs[n_run++] = (fm_bytes){frame->head, frame->head_bytes};
        if (frame->work) runs[n_run++] = (fm_bytes){frame->work->job.out, frame->work->job.bytes};
        bytes += frame->head_bytes + (frame->work ? frame->work->job.bytes : 0);
    }
    ring->n_writing = n;
    ring->writing_bytes = bytes;
    *ret_n = n_run;
    return true;
}

static void pop(fm_out_ring *ring, uint32_t n) {
    for (; n; n--) {
        fm_out_frame *frame = &ring->frames[ring->first];
        if (frame->work) fm_server_stream_release(frame->work->stream, frame->work);
        ring->first = (ring->first + 1) % FM_OUT_N;
        ring->n--;
    }
}

size_t fm_out_end(fm_out_ring *ring) {
    size_t bytes = ring->writing_bytes;
    uint32_t n = ring->n_writing;
    ring->n_writing = 0;
    ring->writing_bytes = 0;
    pop(ring, n);
    return bytes;
}

void fm_out_drop(fm_out_ring *ring) {
    pop(ring, ring->n);
}
