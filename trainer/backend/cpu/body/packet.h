/* body/packet.h: takes the next packet of a ring, and reports the results of a sample. */
#include "trainer/backend/cpu/body/real.h"

/* Element i of the source of an item, an unsigned integer or f32. */
static double packed_value(const fm_item *item, const uint8_t *x, int64_t i) {
    switch (item->x_element) {
    case FM_ELEMENT_U8: return x[i];
    case FM_ELEMENT_U16: return ((const uint16_t *)(const void *)x)[i];
    case FM_ELEMENT_F32: return (double)((const float *)(const void *)x)[i];
    default: return ((const uint32_t *)(const void *)x)[i];
    }
}

static void put_value(const fm_item *item, uint8_t *y, int64_t i, double value) {
    switch (item->y_element) {
    case FM_ELEMENT_U8: y[i] = (uint8_t)value; break;
    case FM_ELEMENT_U16: ((uint16_t *)(void *)y)[i] = (uint16_t)value; break;
    case FM_ELEMENT_U32:
    case FM_ELEMENT_I32: ((uint32_t *)(void *)y)[i] = (uint32_t)value; break;
    case FM_ELEMENT_F64: ((double *)(void *)y)[i] = value; break;
    default: ((float *)(void *)y)[i] = (float)value;
    }
}

static void expand_item(const fm_item *item, const uint8_t *x, uint8_t *y) {
    int64_t per_row = item->rows * item->c;
    for (int64_t at = 0; at < item->n; at++) {
        int64_t i = at / per_row, j = at % per_row / item->c, k = at % item->c;
        int64_t from = (i * item->n1 + j) * item->c + k;
        double value = item->padding;
        if (i < item->n0 && j < item->n1) {
            value = item->kind == FM_ITEM_VALUES ? packed_value(item, x, from)
                    : item->kind == FM_ITEM_BITS ? x[from / 8] >> from % 8 & 1
                                                 : 1;
        }
        put_value(item, y, at, value);
    }
}

static void take_packet(fm_stream *stream, const fm_take *args) {
    (void)stream;
    const uint8_t *bytes =
        args->ring + (int64_t)(*args->n_taken % (uint64_t)args->n_slot) * args->slot_bytes;
    const fm_packet *packet = (const void *)bytes;
    for (uint32_t i = 0; i < packet->n_item; i++) {
        const fm_item *item = &packet->item[i];
        uint8_t *y = (uint8_t *)args->state + item->y;
        size_t whole = ((size_t)item->n + 15) & ~(size_t)15;
        if (item->kind == FM_ITEM_BYTES) {
            memcpy(y, bytes + item->x, whole);
        } else if (item->kind == FM_ITEM_ZERO) {
            memset(y, 0, whole);
        } else {
            expand_item(item, bytes + item->x, y);
        }
    }
    memcpy(args->clock, packet->clock, sizeof packet->clock);
    args->step->lr = packet->lr;
    args->step->step = packet->step;
    args->step->pending = packet->pending;
    args->step->holds = packet->holds;
    ++*args->n_taken;
}

static void report(fm_stream *stream, const fm_report *args) {
    (void)stream;
    fm_step_record *record = &args->record[*args->n_made % (uint64_t)args->n_record];
    for (int32_t i = 0; i < args->n_term; i++) {
        record->term[i] = (double)*(const real *)args->term[i];
        if (!isfinite(record->term[i])) args->step->nonfinite |= FM_NONFINITE_SAMPLE;
    }
    record->norm_squared = args->step->norm_squared;
    record->nonfinite = args->step->nonfinite;
    fm_cpu_device.stamp(NULL, &record->done_ns);
    ++*args->n_made;
}
