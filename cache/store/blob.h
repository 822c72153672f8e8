/* blob.h: one part as a shard stores it: 24 bytes of header, then one zstd frame.
 *
 *      0  u32  magic "FMBL"        8  u64  bytes of the part, decoded
 *      4  u16  codec, 1 = zstd    16  u64  XXH3 of the frame
 *      6  u16  fm_part_kind       24  the frame
 *
 * The key of a blob is the SHA-256 of the decoded bytes. The XXH3 finds damage without
 * decompressing; the SHA-256 is checked on every load. Compressed bytes are not canonical: another
 * zstd may pack the same content otherwise. docs/formats/store.md. */
#ifndef FM_CACHE_BLOB_H
#define FM_CACHE_BLOB_H

#include "proto/record.h"

enum { FM_BLOB_HEADER_BYTES = 24, FM_BLOB_ZSTD_LEVEL = 3 };

typedef struct fm_blob {
    fm_part_kind kind;
    uint64_t decoded_bytes;
    fm_bytes frame; /* borrowed */
} fm_blob;

/* Packs an encoded part into the arena. FM_ERR_LIMIT when it does not fit. */
FM_MUST_USE fm_status fm_blob_pack(fm_bytes part, fm_part_kind kind, fm_arena *arena,
                                   fm_bytes *ret_packed, fm_error *reterr);

/* Reads the header and checks the frame's XXH3. FM_ERR_CORRUPT. */
FM_MUST_USE fm_status fm_blob_open(fm_bytes packed, fm_blob *ret_blob, fm_error *reterr);

/* Decompresses into out[blob->decoded_bytes] and checks that its SHA-256 is `hash`. FM_ERR_CORRUPT.
 */
FM_MUST_USE fm_status fm_blob_unpack(const fm_blob *blob, const fm_sha256 *hash, uint8_t *out,
                                     fm_error *reterr);

#endif
