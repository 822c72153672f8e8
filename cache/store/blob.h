/* blob.h: one part as a shard stores it: a header of 24 bytes, then one zstd frame.
 *
 *      0  u32  magic "FMBL"        8  u64  bytes of the part, decoded
 *      4  u16  codec, 1 = zstd    16  u64  XXH3 of the frame
 *      6  u16  fm_part_kind       24  the frame
 *
 * The key of a blob is the SHA-256 of the decoded bytes. The XXH3 finds damage without
 * decompressing. It also identifies a frame whose content was checked before. Compressed bytes are
 * not canonical: another version of zstd may compress the same content differently.
 * docs/reference/store.md. */
#ifndef FM_CACHE_BLOB_H
#define FM_CACHE_BLOB_H

#include "proto/record.h"

enum { FM_BLOB_HEADER_BYTES = 24, FM_BLOB_ZSTD_LEVEL = 3 };

typedef struct fm_blob {
    fm_part_kind kind;
    uint64_t decoded_bytes;
    uint64_t xxh3;  /* of the frame */
    fm_bytes frame; /* borrowed */
} fm_blob;

/* Compresses an encoded part into the arena, with its header. FM_ERR_LIMIT when the arena is too
 * small. */
FM_MUST_USE fm_status fm_blob_pack(fm_bytes part, fm_part_kind kind, fm_arena *arena,
                                   fm_bytes *ret_packed, fm_error *reterr);

/* Reads what a blob's first FM_BLOB_HEADER_BYTES say, without the frame. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_blob_read_header(fm_bytes head, fm_part_kind *ret_kind,
                                          uint32_t *ret_decoded_bytes, fm_error *reterr);

/* Reads the header and checks the frame's XXH3. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_blob_open(fm_bytes packed, fm_blob *ret_blob, fm_error *reterr);

/* Decompresses into out[blob->decoded_bytes] and checks that the SHA-256 of the result is `hash`;
 * `hash` is NULL if the content of this frame was checked before. zstd's checksum of the content is
 * always checked. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_blob_unpack(const fm_blob *blob, const fm_sha256 *hash, uint8_t *out,
                                     fm_error *reterr);

#endif
