/* compress.c: see compress.h. */
#include "proto/base/compress.h"

#include <libdeflate.h>
#include <lzma.h>
#include <string.h>
#include <zstd.h>
#include <zstd_errors.h>

enum {
    /* What zstd itself accepts by default; more would let a frame ask for any amount of memory. */
    ZSTD_WINDOW_LOG_MAX_ALLOWED = 27,
    XZ_DICTIONARY_MIB_MAX = 128,                             /* xz -9 writes 64 */
    XZ_MEMORY_BYTES_MAX = (XZ_DICTIONARY_MIB_MAX + 1) << 20, /* with the decoder's own tables */
};

/* -- stored blobs */

size_t fm_zstd_bound(size_t size) {
    return ZSTD_compressBound(size);
}

fm_status fm_zstd_compress(void *out, size_t capacity, const void *data, size_t size, int level,
                           size_t *ret_bytes, fm_error *reterr) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (!context) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a zstd context");
    ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t written = ZSTD_compress2(context, out, capacity, data, size);
    ZSTD_freeCCtx(context);
    if (ZSTD_isError(written)) {
        return fm_fail(reterr, FM_ERR_LIMIT, "zstd: %s", ZSTD_getErrorName(written));
    }
    *ret_bytes = written;
    return FM_OK;
}

fm_status fm_zstd_decompress(void *out, size_t size, const void *data, size_t data_bytes,
                             fm_error *reterr) {
    unsigned long long declared = ZSTD_getFrameContentSize(data, data_bytes);
    if (declared != size) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "zstd frame does not declare the expected %zu bytes",
                       size);
    }
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!context) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a zstd context");
    ZSTD_DCtx_setParameter(context, ZSTD_d_windowLogMax, ZSTD_WINDOW_LOG_MAX_ALLOWED);
    size_t got = ZSTD_decompressDCtx(context, out, size, data, data_bytes);
    ZSTD_freeDCtx(context);
    if (ZSTD_isError(got)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "zstd: %s", ZSTD_getErrorName(got));
    }
    if (got != size) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "zstd frame gave %zu bytes, expected %zu", got,
                       size);
    }
    return FM_OK;
}

/* -- files of users */

fm_compression fm_compression_of_name(const char *name, size_t *ret_bare_bytes) {
    static const char *const endings[] = {
        [FM_COMPRESSION_GZIP] = ".gz", [FM_COMPRESSION_XZ] = ".xz", [FM_COMPRESSION_ZSTD] = ".zst"};
    size_t length = strlen(name), bare = length;
    fm_compression found = FM_COMPRESSION_NONE;
    for (int i = FM_COMPRESSION_GZIP; i <= FM_COMPRESSION_ZSTD; i++) {
        size_t bytes = strlen(endings[i]);
        if (length <= bytes || strcmp(name + length - bytes, endings[i]) != 0) continue;
        found = (fm_compression)i;
        bare = length - bytes;
    }
    if (ret_bare_bytes) *ret_bare_bytes = bare;
    return found;
}

fm_compression fm_compression_of_content(const void *data, size_t size) {
    static const uint8_t xz[] = {0xfd, '7', 'z', 'X', 'Z', 0}, zstd[] = {0x28, 0xb5, 0x2f, 0xfd};
    static const uint8_t skippable[] = {0x2a, 0x4d, 0x18}; /* after a byte 0x50..0x5f */
    const uint8_t *bytes = data;
    if (size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b) return FM_COMPRESSION_GZIP;
    if (size >= sizeof xz && memcmp(bytes, xz, sizeof xz) == 0) return FM_COMPRESSION_XZ;
    if (size < sizeof zstd) return FM_COMPRESSION_NONE;
    bool is_frame = memcmp(bytes, zstd, sizeof zstd) == 0;
    bool is_skippable =
        (bytes[0] & 0xf0) == 0x50 && memcmp(bytes + 1, skippable, sizeof skippable) == 0;
    return is_frame || is_skippable ? FM_COMPRESSION_ZSTD : FM_COMPRESSION_NONE;
}

static fm_status fail_room(const char *format, size_t room, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_LIMIT, "%s content is larger than the %zu bytes allowed", format,
                   room);
}

static fm_status fail_broken(const char *format, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_CORRUPT, "%s data is broken or cut off", format);
}

/* The three below unpack `in` into out[0..room-1] and write the bytes they gave to *ret_bytes. */

static fm_status unpack_gzip(fm_bytes in, uint8_t *out, size_t room, size_t *ret_bytes,
                             fm_error *reterr) {
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a gzip decompressor");
    size_t in_at = 0, out_at = 0;
    enum libdeflate_result result = LIBDEFLATE_SUCCESS;
    while (result == LIBDEFLATE_SUCCESS && in_at < in.size) {
        size_t took = 0, gave = 0;
        result = libdeflate_gzip_decompress_ex(inflater, in.data + in_at, in.size - in_at,
                                               out + out_at, room - out_at, &took, &gave);
        in_at += took;
        out_at += gave;
    }
    libdeflate_free_decompressor(inflater);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE) return fail_room("gzip", room, reterr);
    if (result != LIBDEFLATE_SUCCESS) return fail_broken("gzip", reterr);
    *ret_bytes = out_at;
    return FM_OK;
}

/* The decoder allocates the dictionary that the data ask for, so its memory has a limit. */
static fm_status unpack_xz(fm_bytes in, uint8_t *out, size_t room, size_t *ret_bytes,
                           fm_error *reterr) {
    lzma_stream stream = LZMA_STREAM_INIT;
    lzma_ret result = lzma_stream_decoder(&stream, XZ_MEMORY_BYTES_MAX, LZMA_CONCATENATED);
    stream.next_in = in.data;
    stream.avail_in = in.size;
    stream.next_out = out;
    stream.avail_out = room;
    while (result == LZMA_OK)
        result = lzma_code(&stream, LZMA_FINISH);
    bool is_full = stream.avail_out == 0 && stream.avail_in > 0;
    size_t bytes = room - stream.avail_out;
    lzma_end(&stream);
    switch (result) {
    case LZMA_STREAM_END: *ret_bytes = bytes; return FM_OK;
    case LZMA_MEM_ERROR: return fm_fail(reterr, FM_ERR_NOMEM, "no memory for an xz decompressor");
    case LZMA_MEMLIMIT_ERROR:
        return fm_fail(reterr, FM_ERR_LIMIT,
                       "xz data needs a dictionary of more than the %d MiB allowed",
                       XZ_DICTIONARY_MIB_MAX);
    case LZMA_BUF_ERROR: return is_full ? fail_room("xz", room, reterr) : fail_broken("xz", reterr);
    default: return fail_broken("xz", reterr);
    }
}

/* In one piece: the output is the window, so the window that a frame declares costs nothing. */
static fm_status unpack_zstd(fm_bytes in, uint8_t *out, size_t room, size_t *ret_bytes,
                             fm_error *reterr) {
    ZSTD_DCtx *context = ZSTD_createDCtx();
    if (!context) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a zstd context");
    size_t got = ZSTD_decompressDCtx(context, out, room, in.data, in.size);
    ZSTD_freeDCtx(context);
    if (ZSTD_isError(got) && ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall) {
        return fail_room("zstd", room, reterr);
    }
    if (ZSTD_isError(got)) return fail_broken("zstd", reterr);
    *ret_bytes = got;
    return FM_OK;
}

fm_status fm_unpack(fm_arena *arena, fm_bytes data, size_t max_bytes, fm_bytes *ret_content,
                    fm_error *reterr) {
    fm_compression compression = fm_compression_of_content(data.data, data.size);
    if (compression == FM_COMPRESSION_NONE) {
        *ret_content = data;
        return FM_OK;
    }
    /* The arena's pages become memory only when they are written, so room for the worst case costs
     * nothing. */
    size_t free_bytes = arena->max - arena->used;
    free_bytes -= free_bytes < 64 ? free_bytes : 64; /* the allocation's own alignment */
    size_t room = max_bytes < free_bytes ? max_bytes : free_bytes, bytes = 0;
    uint8_t *out = fm_arena_alloc(arena, room);
    if (!out) return fm_arena_full(arena, reterr);
    fm_status status =
        compression == FM_COMPRESSION_GZIP ? unpack_gzip(data, out, room, &bytes, reterr)
        : compression == FM_COMPRESSION_XZ ? unpack_xz(data, out, room, &bytes, reterr)
                                           : unpack_zstd(data, out, room, &bytes, reterr);
    fm_arena_trim(arena, out, status ? 0 : bytes);
    if (status) return status;
    *ret_content = (fm_bytes){.data = out, .size = bytes};
    return FM_OK;
}

/* -- pieces of zip */

uint32_t fm_crc32(uint32_t crc, const void *data, size_t size) {
    return libdeflate_crc32(crc, data, size);
}

fm_status fm_deflate_decompress(void *out, size_t size, const void *data, size_t data_bytes,
                                fm_error *reterr) {
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a deflate decompressor");
    enum libdeflate_result result =
        libdeflate_deflate_decompress(inflater, data, data_bytes, out, size, NULL);
    libdeflate_free_decompressor(inflater);
    if (result == LIBDEFLATE_SUCCESS) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT,
                   "deflate data is broken or does not give the expected %zu bytes", size);
}
