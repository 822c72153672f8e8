/* compress.h: zstd for what we store, gzip for what users bring. Both trust no declared size.
 *
 * The only includer of zstd and libdeflate is compress.c. */
#ifndef FM_BASE_COMPRESS_H
#define FM_BASE_COMPRESS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

/* Largest zstd output for `size` input bytes. */
size_t fm_zstd_bound(size_t size);

/* One zstd frame with its content size declared and a checksum. FM_ERR_LIMIT when `capacity` is too
 * small. Deterministic for one version of the library, so hashes are taken of the content, never of
 * compressed bytes. */
FM_MUST_USE fm_status fm_zstd_compress(void *out, size_t capacity, const void *data, size_t size,
                                       int level, size_t *ret_bytes, fm_error *reterr);

/* Decompresses a frame that must give exactly `size` bytes, with a window of at most 2^27.
 * FM_ERR_CORRUPT otherwise. */
FM_MUST_USE fm_status fm_zstd_decompress(void *out, size_t size, const void *data,
                                         size_t data_bytes, fm_error *reterr);

/* True when the bytes start with the gzip magic. */
bool fm_gzip_is(const void *data, size_t size);

/* Inflates all gzip members into the arena. FM_ERR_LIMIT past max_bytes; FM_ERR_CORRUPT for broken
 * data, truncation and for trailing bytes that are not a gzip member. */
FM_MUST_USE fm_status fm_gzip_inflate(fm_arena *arena, const void *data, size_t size,
                                      size_t max_bytes, fm_bytes *ret_content, fm_error *reterr);

/* CRC-32 as zip and gzip use it. Start with 0. */
uint32_t fm_crc32(uint32_t crc, const void *data, size_t size);

/* Raw deflate (as zip stores it) that must give exactly `size` bytes. FM_ERR_CORRUPT otherwise. */
FM_MUST_USE fm_status fm_deflate_decompress(void *out, size_t size, const void *data,
                                            size_t data_bytes, fm_error *reterr);

#endif
