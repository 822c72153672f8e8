/* compress.c: see compress.h. */
#include "proto/base/compress.h"

#include <libdeflate.h>
#include <zstd.h>

enum {
    ZSTD_WINDOW_LOG_MAX_ALLOWED = 27
}; /* what zstd itself accepts by default; more would be a memory attack */

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
    if (ZSTD_isError(got))
        return fm_fail(reterr, FM_ERR_CORRUPT, "zstd: %s", ZSTD_getErrorName(got));
    if (got != size) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "zstd frame gave %zu bytes, expected %zu", got,
                       size);
    }
    return FM_OK;
}

bool fm_gzip_is(const void *data, size_t size) {
    const uint8_t *bytes = data;
    return size >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

/* Inflates one member into out[0..room-1]; *ret_in and *ret_out are what it took and gave. */
static fm_status inflate_member(struct libdeflate_decompressor *inflater, const uint8_t *in,
                                size_t in_bytes, uint8_t *out, size_t room, size_t *ret_in,
                                size_t *ret_out, fm_error *reterr) {
    switch (libdeflate_gzip_decompress_ex(inflater, in, in_bytes, out, room, ret_in, ret_out)) {
    case LIBDEFLATE_SUCCESS: return FM_OK;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
        return fm_fail(reterr, FM_ERR_LIMIT, "gzip content is larger than the %zu bytes allowed",
                       room);
    default: return fm_fail(reterr, FM_ERR_CORRUPT, "gzip data is broken or cut off");
    }
}

fm_status fm_gzip_inflate(fm_arena *arena, const void *data, size_t size, size_t max_bytes,
                          fm_bytes *ret_content, fm_error *reterr) {
    /* The arena's pages become memory only when written, so room for the worst case is free until
     * it is used. */
    size_t free_bytes = arena->max - arena->used;
    free_bytes -= free_bytes < 64 ? free_bytes : 64; /* the allocation's own alignment */
    size_t room = max_bytes < free_bytes ? max_bytes : free_bytes;
    uint8_t *out = fm_arena_alloc(arena, room);
    if (!out) return fm_arena_full(arena, reterr);
    struct libdeflate_decompressor *inflater = libdeflate_alloc_decompressor();
    if (!inflater) return fm_fail(reterr, FM_ERR_NOMEM, "no memory for a gzip decompressor");

    const uint8_t *in = data;
    size_t in_at = 0, out_at = 0;
    fm_status status = FM_OK;
    while (status == FM_OK && in_at < size) {
        size_t took = 0, gave = 0;
        status = inflate_member(inflater, in + in_at, size - in_at, out + out_at, room - out_at,
                                &took, &gave, reterr);
        if (status == FM_OK) {
            in_at += took;
            out_at += gave;
        }
    }
    libdeflate_free_decompressor(inflater);
    fm_arena_trim(arena, out, status == FM_OK ? out_at : 0);
    if (status == FM_OK) *ret_content = (fm_bytes){.data = out, .size = out_at};
    return status;
}

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
