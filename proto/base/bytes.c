/* bytes.c: see bytes.h. Only for little-endian hosts, which every supported machine is. */
#include "proto/base/bytes.h"

#include <assert.h>
#include <string.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
              "the formats are little-endian and read in place");

fm_reader fm_reader_of(const void *data, size_t size) {
    return (fm_reader){.data = data, .size = size};
}

size_t fm_reader_left(const fm_reader *reader) {
    return reader->size - reader->at;
}

const uint8_t *fm_read_borrow(fm_reader *reader, size_t size) {
    if (reader->failed || size > fm_reader_left(reader)) {
        reader->failed = true;
        return NULL;
    }
    const uint8_t *bytes = reader->data + reader->at;
    reader->at += size;
    return bytes;
}

static void read_into(fm_reader *reader, void *out, size_t size) {
    const uint8_t *bytes = fm_read_borrow(reader, size);
    if (bytes) {
        memcpy(out, bytes, size);
    } else {
        memset(out, 0, size);
    }
}

uint8_t fm_read_u8(fm_reader *reader) {
    uint8_t value;
    read_into(reader, &value, sizeof value);
    return value;
}

uint16_t fm_read_u16(fm_reader *reader) {
    uint16_t value;
    read_into(reader, &value, sizeof value);
    return value;
}

uint32_t fm_read_u32(fm_reader *reader) {
    uint32_t value;
    read_into(reader, &value, sizeof value);
    return value;
}

uint64_t fm_read_u64(fm_reader *reader) {
    uint64_t value;
    read_into(reader, &value, sizeof value);
    return value;
}

float fm_read_f32(fm_reader *reader) {
    float value;
    read_into(reader, &value, sizeof value);
    return value;
}

static size_t padding(size_t at, size_t alignment) {
    return (alignment - (at & (alignment - 1))) & (alignment - 1);
}

void fm_read_align(fm_reader *reader, size_t alignment) {
    size_t skip = padding(reader->at, alignment);
    const uint8_t *bytes = fm_read_borrow(reader, skip);
    for (size_t i = 0; bytes && i < skip; i++) {
        if (bytes[i] != 0) reader->failed = true;
    }
}

fm_writer fm_writer_of(void *data, size_t capacity) {
    return (fm_writer){.data = data, .capacity = capacity};
}

void fm_write_bytes(fm_writer *writer, const void *data, size_t size) {
    if (writer->at > writer->capacity || size > writer->capacity - writer->at) {
        writer->failed = true;
    } else if (size) {
        memcpy(writer->data + writer->at, data, size);
    }
    writer->at += size;
}

void fm_write_u8(fm_writer *writer, uint8_t value) {
    fm_write_bytes(writer, &value, sizeof value);
}

void fm_write_u16(fm_writer *writer, uint16_t value) {
    fm_write_bytes(writer, &value, sizeof value);
}

void fm_write_u32(fm_writer *writer, uint32_t value) {
    fm_write_bytes(writer, &value, sizeof value);
}

void fm_write_u64(fm_writer *writer, uint64_t value) {
    fm_write_bytes(writer, &value, sizeof value);
}

void fm_write_f32(fm_writer *writer, float value) {
    fm_write_bytes(writer, &value, sizeof value);
}

void fm_write_align(fm_writer *writer, size_t alignment) {
    static const uint8_t zeros[64];
    size_t left = padding(writer->at, alignment);
    while (left) {
        size_t now = left < sizeof zeros ? left : sizeof zeros;
        fm_write_bytes(writer, zeros, now);
        left -= now;
    }
}
