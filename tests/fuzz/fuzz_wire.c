/* fuzz_wire.c: decodes any bytes as a frame, and as the body of a frame of any kind with correct
 * checksums (byte 0: kind, byte 1: stream). What decodes must encode to the same bytes. */
#include "proto/wire.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_body(const fm_wire_header *header, fm_bytes body) {
    static fm_wire_message message; /* 9 KiB */
    fm_error error;
    fm_status status = fm_wire_decode(header, body, &message, &error);
    if (status) {
        assert(error.message[0] != '\0' && error.status == status);
        return;
    }
    uint8_t again[FM_WIRE_CONTROL_BYTES];
    size_t bytes = fm_wire_encode(&message, header->sequence, again, sizeof again);
    assert(bytes == FM_WIRE_HEADER_BYTES + body.size);
    assert(memcmp(again + FM_WIRE_HEADER_BYTES, body.data, body.size) == 0);
}

static void check_frame(const uint8_t *data, size_t size) {
    fm_wire_header header;
    if (size < FM_WIRE_HEADER_BYTES || fm_wire_header_decode(data, &header, NULL)) return;
    uint8_t again[FM_WIRE_HEADER_BYTES];
    fm_wire_header_encode(&header, again);
    assert(memcmp(again, data, sizeof again) == 0);
    bool whole = size - FM_WIRE_HEADER_BYTES == header.body_bytes;
    if (whole && header.kind != FM_WIRE_SAMPLE) {
        check_body(&header, (fm_bytes){data + FM_WIRE_HEADER_BYTES, header.body_bytes});
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    check_frame(data, size);
    if (size < 2 || size - 2 > UINT32_MAX) return 0;
    fm_wire_header header = {.kind = data[0],
                             .stream = data[1],
                             .body_bytes = (uint32_t)(size - 2),
                             .body_check = (uint32_t)fm_xxh3(data + 2, size - 2)};
    if (data[0] == FM_WIRE_SAMPLE) header.body_check = 0;
    uint8_t bytes[FM_WIRE_HEADER_BYTES];
    fm_wire_header_encode(&header, bytes);
    fm_wire_header got;
    if (fm_wire_header_decode(bytes, &got, NULL) || got.kind == FM_WIRE_SAMPLE) return 0;
    check_body(&got, (fm_bytes){data + 2, size - 2});
    return 0;
}
