/* mirror.c: see mirror.h. */
#include "trainer/step/af3/mirror.h"

#include "trainer/backend/cpu_threads.h"
#include "trainer/tensor/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { ZEROED_BYTES = 1 << 20 }; /* of a tensor, from which on threads share it */

void fm_mirror_add(fm_mirror *mirror, const int32_t *tensor, int n) {
    assert(!mirror->state);
    for (int i = 0; i < n; i++)
        if (tensor[i] >= 0) mirror->holds[tensor[i]] = true;
}

int64_t fm_mirror_bytes(const fm_mirror *mirror, const fm_state *state) {
    int64_t bytes = 0;
    for (int32_t t = 0; t < state->n_tensor; t++)
        if (mirror->holds[t]) bytes += fm_plan_round(fm_tensor_local_bytes(&state->tensor[t]));
    return bytes;
}

void fm_mirror_declare_room(fm_mirror *mirror, fm_state *state, const fm_kernels *kernels) {
    const int64_t bytes = fm_mirror_bytes(mirror, state);
    if (!kernels->device->is_asynchronous) return;
    mirror->room = fm_state_add(state, "early features", FM_ELEMENT_U8, 1, &bytes);
}

/* Makes what early uploads need. */
static bool make_stream(fm_mirror *mirror, const fm_device *device) {
    if (!mirror->room) return true;
    return device->stream_create(&mirror->stream) && device->event_create(&mirror->arrived);
}

fm_status fm_mirror_allocate(fm_mirror *mirror, const fm_state *state, fm_error *reterr) {
    const fm_device *device = state->kernels->device;
    mirror->state = state;
    for (int32_t t = 0; t < state->n_tensor; t++) {
        if (!mirror->holds[t]) continue;
        mirror->count[t] = fm_tensor_local_count(&state->tensor[t]);
        mirror->offset[t] = mirror->bytes;
        mirror->bytes += fm_plan_round(fm_tensor_local_bytes(&state->tensor[t]));
    }
    const size_t bytes = (size_t)mirror->bytes + 1;
    /* On a CPU, pages that are never written shall take no memory. */
    mirror->host = device->is_asynchronous ? device->host_alloc(bytes) : calloc(1, bytes);
    if (mirror->host && device->event_create(&mirror->sent) && make_stream(mirror, device)) {
        return FM_OK;
    }
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the host's copy of a sample");
}

void fm_mirror_fini(fm_mirror *mirror) {
    if (!mirror->state) return;
    const fm_device *device = mirror->state->kernels->device;
    if (mirror->stream) mirror->state->kernels->synchronize(mirror->stream);
    device->event_destroy(mirror->sent);
    device->event_destroy(mirror->arrived);
    device->stream_destroy(mirror->stream);
    (device->is_asynchronous ? device->host_release : free)(mirror->host);
    *mirror = (fm_mirror){.state = NULL};
}

void fm_mirror_begin(fm_mirror *m) {
    const fm_device *device = m->state->kernels->device;
    device->event_wait(m->sent);
    if (m->stream) device->event_wait(m->arrived);
}

/* The nearest bf16; ties go to the even one. */
static uint16_t bf16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float f32_of(uint16_t bf16) {
    uint32_t bits = (uint32_t)bf16 << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

void fm_mirror_put(void *context, int32_t tensor, int64_t at, double value) {
    fm_mirror *m = context;
    const fm_tensor *to = &m->state->tensor[tensor];
    void *data = m->host + m->offset[tensor];
    assert(m->holds[tensor] && at >= 0 && at < m->count[tensor]);
    switch (to->element) {
    case FM_ELEMENT_F64: ((double *)data)[at] = value; break;
    case FM_ELEMENT_F32: ((float *)data)[at] = (float)value; break;
    case FM_ELEMENT_BF16: ((uint16_t *)data)[at] = bf16_of((float)value); break;
    case FM_ELEMENT_U8: ((uint8_t *)data)[at] = (uint8_t)value; break;
    case FM_ELEMENT_U32: ((uint32_t *)data)[at] = (uint32_t)value; break;
    case FM_ELEMENT_I32: ((int32_t *)data)[at] = (int32_t)value; break;
    default: assert(!"a type of an input");
    }
    if (!m->written[tensor]) m->written[tensor] = true;
}

/* Zeroes memory on the threads, a part each. */
typedef struct zeroing {
    uint8_t *at;
    int64_t bytes;
    int n_part;
} zeroing;

static void zero_part(void *context, int part) {
    const zeroing *z = context;
    const int64_t begin = fm_cpu_part_begin(z->bytes, ZEROED_BYTES, part, z->n_part);
    const int64_t end = fm_cpu_part_begin(z->bytes, ZEROED_BYTES, part + 1, z->n_part);
    memset(z->at + begin, 0, (size_t)(end - begin));
}

void fm_mirror_clear(fm_mirror *m, int32_t tensor) {
    assert(m->holds[tensor]);
    zeroing z = {.at = m->host + m->offset[tensor],
                 .bytes = fm_tensor_local_bytes(&m->state->tensor[tensor])};
    z.n_part = z.bytes < ZEROED_BYTES ? 1 : fm_cpu_threads();
    fm_cpu_run_parts(zero_part, &z, z.n_part);
    m->written[tensor] = true;
}

void fm_mirror_clear_all(fm_mirror *m) {
    for (int32_t t = 0; t < m->state->n_tensor; t++)
        if (m->holds[t]) fm_mirror_clear(m, t);
}

/* The place of a tensor in the mirror's memory on the device. */
static char *early_place(const fm_mirror *m, int32_t t) {
    return (char *)fm_state_data(m->state, m->room) + m->offset[t];
}

/* Copies a tensor that has arrived early. The kernel counts elements of the act type; both places
 * have room for a rounded number of bytes. */
static void take_early(const fm_mirror *m, int32_t t, fm_stream *stream) {
    const fm_kernels *kernels = m->state->kernels;
    int64_t bytes = fm_plan_round(fm_tensor_local_bytes(&m->state->tensor[t]));
    kernels->copy(stream, bytes / (int64_t)fm_element_bytes(kernels->act), early_place(m, t),
                  fm_state_data(m->state, t));
}

static void upload(const fm_mirror *m, int32_t t, void *to, fm_stream *stream) {
    m->state->kernels->upload(stream, to, m->host + m->offset[t],
                              (size_t)fm_tensor_local_bytes(&m->state->tensor[t]));
}

void fm_mirror_send(fm_mirror *m, fm_stream *stream) {
    const fm_device *device = m->state->kernels->device;
    if (m->stream) device->stream_wait(stream, m->arrived);
    for (int32_t t = 0; t < m->state->n_tensor; t++) {
        if (m->written[t]) {
            upload(m, t, fm_state_data(m->state, t), stream);
        } else if (m->early[t]) {
            take_early(m, t, stream);
        }
        m->written[t] = m->early[t] = false;
    }
    device->event_record(m->sent, stream);
}

/* The memory is free: fm_mirror_begin has waited for the copies from it. */
void fm_mirror_send_early(fm_mirror *m) {
    if (!m->stream) return;
    for (int32_t t = 0; t < m->state->n_tensor; t++) {
        if (!m->written[t]) continue;
        upload(m, t, early_place(m, t), m->stream);
        m->written[t] = false;
        m->early[t] = true;
    }
    m->state->kernels->device->event_record(m->arrived, m->stream);
}

void fm_mirror_fetch(const fm_kernels *kernels, fm_stream *stream, const void *from,
                     fm_element element, int64_t count, void *raw, double *out) {
    kernels->download(stream, raw, from, (size_t)count * fm_element_bytes(element));
    kernels->synchronize(stream);
    for (int64_t i = 0; i < count; i++) {
        switch (element) {
        case FM_ELEMENT_F64: out[i] = ((const double *)raw)[i]; break;
        case FM_ELEMENT_BF16: out[i] = (double)f32_of(((const uint16_t *)raw)[i]); break;
        default: out[i] = (double)((const float *)raw)[i];
        }
    }
}
