/* mirror.c: see mirror.h. */
#include "trainer/step/af3/mirror.h"

#include "trainer/tensor/plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void fm_mirror_add(fm_mirror *mirror, const int32_t *tensor, int n) {
    assert(!mirror->state);
    for (int i = 0; i < n; i++)
        if (tensor[i] >= 0) mirror->holds[tensor[i]] = true;
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
    if (mirror->host && device->event_create(&mirror->sent)) return FM_OK;
    return fm_fail(reterr, FM_ERR_NOMEM, "no memory for the host's copy of a sample");
}

void fm_mirror_fini(fm_mirror *mirror) {
    if (!mirror->state) return;
    const fm_device *device = mirror->state->kernels->device;
    device->event_destroy(mirror->sent);
    (device->is_asynchronous ? device->host_release : free)(mirror->host);
    *mirror = (fm_mirror){.state = NULL};
}

void fm_mirror_begin(fm_mirror *m) {
    m->state->kernels->device->event_wait(m->sent);
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
    m->written[tensor] = true;
}

void fm_mirror_clear(fm_mirror *m, int32_t tensor) {
    assert(m->holds[tensor]);
    memset(m->host + m->offset[tensor], 0,
           (size_t)fm_tensor_local_bytes(&m->state->tensor[tensor]));
    m->written[tensor] = true;
}

void fm_mirror_clear_all(fm_mirror *m) {
    for (int32_t t = 0; t < m->state->n_tensor; t++)
        if (m->holds[t]) fm_mirror_clear(m, t);
}

void fm_mirror_send(fm_mirror *m, fm_stream *stream) {
    const fm_kernels *kernels = m->state->kernels;
    for (int32_t t = 0; t < m->state->n_tensor; t++) {
        if (!m->written[t]) continue;
        kernels->upload(stream, fm_state_data(m->state, t), m->host + m->offset[t],
                        (size_t)fm_tensor_local_bytes(&m->state->tensor[t]));
        m->written[t] = false;
    }
    kernels->device->event_record(m->sent, stream);
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
