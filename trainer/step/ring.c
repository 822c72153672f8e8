/* ring.c: see ring.h. */
#include "trainer/step/ring.h"

#include <assert.h>
#include <string.h>

enum { DATA_ALIGN = 16, SLOT_ALIGN = 256 };

static int64_t round_to(int64_t bytes, int64_t unit) {
    return (bytes + unit - 1) / unit * unit;
}

static fm_status create_events(fm_ring *ring, fm_error *reterr) {
    const fm_device *device = ring->kernels->device;
    bool made = device->stream_create(&ring->copy);
    for (int i = 0; i < ring->n_slot; i++) {
        made =
            made && device->event_create(&ring->sent[i]) && device->event_create(&ring->taken[i]);
    }
    return made ? FM_OK : fm_fail(reterr, FM_ERR_NOMEM, "a stream for copies was refused");
}

static int32_t slots_of(const fm_kernels *kernels, int32_t n_slot) {
    return kernels->device->is_asynchronous ? n_slot : 1;
}

static int64_t slot_bytes_of(int64_t data_bytes) {
    return round_to(round_to((int64_t)sizeof(fm_packet), DATA_ALIGN) + data_bytes, SLOT_ALIGN);
}

int64_t fm_ring_bytes(const fm_kernels *kernels, int32_t n_slot, int64_t data_bytes) {
    return slots_of(kernels, n_slot) * slot_bytes_of(data_bytes);
}

fm_status fm_ring_create(fm_ring *ring, const fm_kernels *kernels, int32_t n_slot,
                         int64_t data_bytes, fm_error *reterr) {
    assert(n_slot >= 2 && n_slot <= FM_RING_SLOTS);
    const fm_device *device = kernels->device;
    *ring = (fm_ring){.kernels = kernels,
                      .n_slot = slots_of(kernels, n_slot),
                      .slot_bytes = slot_bytes_of(data_bytes)};
    fm_status status = create_events(ring, reterr);
    if (status) return status;
    size_t bytes = (size_t)fm_ring_bytes(kernels, n_slot, data_bytes);
    ring->host = device->host_alloc(bytes);
    ring->memory = device->is_asynchronous ? kernels->alloc(bytes) : ring->host;
    ring->n_taken = kernels->alloc(sizeof *ring->n_taken);
    if (!ring->host || !ring->memory || !ring->n_taken) {
        return fm_fail(reterr, FM_ERR_NOMEM, "%.1f MiB for samples on their way were refused",
                       (double)bytes / (1 << 20));
    }
    uint64_t none = 0;
    kernels->upload(NULL, ring->n_taken, &none, sizeof none);
    kernels->synchronize(NULL);
    return FM_OK;
}

void fm_ring_destroy(fm_ring *ring) {
    if (!ring->kernels) return;
    const fm_device *device = ring->kernels->device;
    for (int i = 0; i < ring->n_slot; i++) {
        device->event_destroy(ring->sent[i]);
        device->event_destroy(ring->taken[i]);
    }
    ring->kernels->release(ring->n_taken);
    if (ring->memory != ring->host) ring->kernels->release(ring->memory);
    device->host_release(ring->host);
    device->stream_destroy(ring->copy);
    *ring = (fm_ring){0};
}

static int slot_of(const fm_ring *ring) {
    return (int)(ring->n_put % (uint64_t)ring->n_slot);
}

static uint8_t *host_of(const fm_ring *ring) {
    return ring->host + slot_of(ring) * ring->slot_bytes;
}

fm_packet *fm_ring_begin(fm_ring *ring) {
    ring->kernels->device->event_wait(ring->sent[slot_of(ring)]);
    ring->used_bytes = round_to((int64_t)sizeof(fm_packet), DATA_ALIGN);
    return memset(host_of(ring), 0, sizeof(fm_packet));
}

void *fm_ring_data(fm_ring *ring, int64_t bytes, int64_t *ret_at) {
    *ret_at = ring->used_bytes;
    ring->used_bytes += round_to(bytes, DATA_ALIGN);
    assert(ring->used_bytes <= ring->slot_bytes);
    return host_of(ring) + *ret_at;
}

void fm_ring_send(fm_ring *ring, fm_stream *compute) {
    const fm_device *device = ring->kernels->device;
    int slot = slot_of(ring);
    if (ring->memory != ring->host) {
        device->stream_wait(ring->copy, ring->taken[slot]);
        ring->kernels->upload(ring->copy, ring->memory + slot * ring->slot_bytes, host_of(ring),
                              (size_t)ring->used_bytes);
        device->event_record(ring->sent[slot], ring->copy);
        device->stream_wait(compute, ring->sent[slot]);
    }
}

void fm_ring_taken(fm_ring *ring, fm_stream *compute) {
    ring->kernels->device->event_record(ring->taken[slot_of(ring)], compute);
    ring->n_put++;
}
