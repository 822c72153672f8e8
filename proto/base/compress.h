/* compress.h: zstd for what foldmill stores, and gzip, xz and zstd for the files that users bring.
 *
 * No declared size is trusted: every output has a limit, and so has a decoder's memory. compress.c
 * alone includes the headers of zstd, libdeflate and liblzma. */
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

/* How a file is compressed, in order of preference: of "x.a3m" and "x.a3m.gz" the former is read.
 */
typedef enum fm_compression {
    FM_COMPRESSION_NONE,
    FM_COMPRESSION_GZIP, /* .gz */
    FM_COMPRESSION_XZ,   /* .xz */
    FM_COMPRESSION_ZSTD, /* .zst */
} fm_compression;

/* What the ending of a file's name says. *ret_bare_bytes (may be NULL): length of the name without
 * that ending. A name that is nothing but an ending has none. */
fm_compression fm_compression_of_name(const char *name, size_t *ret_bare_bytes);

/* What the first bytes of a content say. This, not the name, decides how a file is read. */
fm_compression fm_compression_of_content(const void *data, size_t size);

/* Unpacks a whole content: all gzip members, xz streams or zstd frames in it. Plain bytes are
 * returned as they are, borrowed; unpacked ones are in the arena. FM_ERR_LIMIT for more than
 * max_bytes of output, or an xz dictionary of more than 128 MiB; FM_ERR_CORRUPT for broken or
 * truncated data and for trailing bytes that belong to no member; FM_ERR_NOMEM. */
FM_MUST_USE fm_status fm_unpack(fm_arena *arena, fm_bytes data, size_t max_bytes,
                                fm_bytes *ret_content, fm_error *reterr);

/* CRC-32 as zip and gzip use it. Start with 0. */
uint32_t fm_crc32(uint32_t crc, const void *data, size_t size);

/* Raw deflate (as zip stores it) that must give exactly `size` bytes. FM_ERR_CORRUPT otherwise. */
FM_MUST_USE fm_status fm_deflate_decompress(void *out, size_t size, const void *data,
                                            size_t data_bytes, fm_error *reterr);

#endif
