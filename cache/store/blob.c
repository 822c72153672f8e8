/* blob.c: see blob.h. */
#include "cache/store/blob.h"

#include "proto/base/compress.h"
#include "proto/limits.h"

#include <string.h>

enum { CODEC_ZSTD = 1 };
#define BLOB_MAGIC 0x4c424d46u /* "FMBL" */

fm_status fm_blob_pack(fm_bytes part, fm_part_kind kind, fm_arena *arena, fm_bytes *ret_packed,
                       fm_error *reterr) {
    size_t capacity = FM_BLOB_HEADER_BYTES + fm_zstd_bound(part.size), frame_bytes;
    uint8_t *packed = fm_arena_alloc(arena, capacity);
    if (!packed) return fm_arena_full(arena, reterr);
    uint8_t *frame = packed + FM_BLOB_HEADER_BYTES;
    fm_status status = fm_zstd_compress(frame, capacity - FM_BLOB_HEADER_BYTES, part.data,
                                        part.size, FM_BLOB_ZSTD_LEVEL, &frame_bytes, reterr);
    if (status) return status;
    fm_writer writer = fm_writer_of(packed, FM_BLOB_HEADER_BYTES);
    fm_write_u32(&writer, BLOB_MAGIC);
    fm_write_u16(&writer, CODEC_ZSTD);
    fm_write_u16(&writer, (uint16_t)kind);
    fm_write_u64(&writer, part.size);
    fm_write_u64(&writer, fm_xxh3(frame, frame_bytes));
    fm_arena_trim(arena, packed, FM_BLOB_HEADER_BYTES + frame_bytes);
    *ret_packed = (fm_bytes){packed, FM_BLOB_HEADER_BYTES + frame_bytes};
    return FM_OK;
}

/* Reads a header; a new codec would need a new format of the manifest, so an unknown one is an
 * error. */
static fm_status read_header(fm_bytes head, fm_blob *ret_blob, fm_error *reterr) {
    fm_reader reader = fm_reader_of(head.data, head.size);
    uint32_t magic = fm_read_u32(&reader);
    uint16_t codec = fm_read_u16(&reader), kind = fm_read_u16(&reader);
    uint64_t decoded_bytes = fm_read_u64(&reader), xxh3 = fm_read_u64(&reader);
    if (reader.failed || magic != BLOB_MAGIC) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "%zu stored bytes are no blob: the magic is 0x%08x",
                       head.size, magic);
    }
    if (codec != CODEC_ZSTD || kind < 1 || kind > FM_PART_KIND_MAX ||
        decoded_bytes > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "a blob's header says codec %u, kind %u and %llu bytes", codec, kind,
                       (unsigned long long)decoded_bytes);
    }
    *ret_blob = (fm_blob){.kind = (fm_part_kind)kind, .decoded_bytes = decoded_bytes, .xxh3 = xxh3};
    return FM_OK;
}

fm_status fm_blob_read_header(fm_bytes head, fm_part_kind *ret_kind, uint32_t *ret_decoded_bytes,
                              fm_error *reterr) {
    fm_blob blob;
    fm_status status = read_header(head, &blob, reterr);
    if (status) return status;
    *ret_kind = blob.kind;
    *ret_decoded_bytes = (uint32_t)blob.decoded_bytes;
    return FM_OK;
}

fm_status fm_blob_open(fm_bytes packed, fm_blob *ret_blob, fm_error *reterr) {
    fm_blob blob;
    fm_status status = read_header(packed, &blob, reterr);
    if (status) return status;
    blob.frame = (fm_bytes){packed.data + FM_BLOB_HEADER_BYTES, packed.size - FM_BLOB_HEADER_BYTES};
    if (fm_xxh3(blob.frame.data, blob.frame.size) != blob.xxh3) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "a blob's checksum is not that of its %zu bytes",
                       blob.frame.size);
    }
    *ret_blob = blob;
    return FM_OK;
}

fm_status fm_blob_unpack(const fm_blob *blob, const fm_sha256 *hash, uint8_t *out,
                         fm_error *reterr) {
    fm_status status = fm_zstd_decompress(out, (size_t)blob->decoded_bytes, blob->frame.data,
                                          blob->frame.size, reterr);
    if (status || !hash) return status;
    fm_sha256 found = fm_sha256_of(out, (size_t)blob->decoded_bytes);
    if (memcmp(&found, hash, sizeof found) == 0) return FM_OK;
    char expected_hex[FM_SHA256_HEX], found_hex[FM_SHA256_HEX];
    fm_sha256_format(hash, expected_hex);
    fm_sha256_format(&found, found_hex);
    return fm_fail(reterr, FM_ERR_CORRUPT,
                   "a %s part has the content hash %.16s..., expected %.16s...",
                   fm_part_name(blob->kind), found_hex, expected_hex);
}
