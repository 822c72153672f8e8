/* Compressed bytes that tell the truth, and those that lie. Gzip inputs are written by zlib, so
 * that the two libraries check each other. */
#include "proto/base/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <zlib.h>

enum { MEBI = 1 << 20 };

static fm_arena arena;

static int setup(void **state) {
    (void)state;
    return fm_arena_init(&arena, (size_t)64 * MEBI, NULL);
}
static int teardown(void **state) {
    (void)state;
    fm_arena_fini(&arena);
    return 0;
}

/* -- zstd */

static void zstd_round_trip(void **state) {
    (void)state;
    uint8_t *packed = fm_arena_alloc(&arena, fm_zstd_bound(100000));
    uint8_t *data = fm_arena_alloc(&arena, 100000), *back = fm_arena_alloc(&arena, 100000);
    size_t bytes;
    for (size_t i = 0; i < 100000; i++)
        data[i] = (uint8_t)(i % 251);
    for (int level = 1; level <= 19; level += 6) {
        for (size_t size = 0; size <= 100000; size = size * 10 + 10) {
            assert_int_equal(
                fm_zstd_compress(packed, fm_zstd_bound(size), data, size, level, &bytes, NULL),
                FM_OK);
            memset(back, 0, size);
            assert_int_equal(fm_zstd_decompress(back, size, packed, bytes, NULL), FM_OK);
            assert_memory_equal(back, data, size);
        }
    }
    fm_error error;
    assert_int_equal(fm_zstd_compress(packed, 5, data, 1000, 3, &bytes, &error), FM_ERR_LIMIT);
}

static void zstd_lies(void **state) {
    (void)state;
    static const char text[] =
        "MKVLAAGIVGLLLAQPSFAATTNDWERKSTFGQ MKVLAAGIVGLLLAQPSFAATTNDWERKSTFGQ";
    uint8_t packed[256], out[256];
    size_t bytes;
    fm_error error;
    assert_int_equal(fm_zstd_compress(packed, sizeof packed, text, sizeof text, 3, &bytes, NULL),
                     FM_OK);
    /* a frame of another size than asked for, larger or smaller, is never unpacked */
    assert_int_equal(fm_zstd_decompress(out, sizeof text - 1, packed, bytes, &error),
                     FM_ERR_CORRUPT);
    assert_int_equal(fm_zstd_decompress(out, sizeof text + 1, packed, bytes, &error),
                     FM_ERR_CORRUPT);
    for (size_t cut = 0; cut < bytes; cut++) {
        assert_int_equal(fm_zstd_decompress(out, sizeof text, packed, cut, &error), FM_ERR_CORRUPT);
    }
    /* the frame's own checksum sees a changed byte, or the change breaks its form */
    for (size_t at = 0; at < bytes; at++) {
        packed[at] ^= 0x41;
        assert_int_equal(fm_zstd_decompress(out, sizeof text, packed, bytes, NULL), FM_ERR_CORRUPT);
        packed[at] ^= 0x41;
    }
    /* declares the size asked for, holds less */
    static const uint8_t lying[] = {0x28, 0xb5, 0x2f, 0xfd, 0x20, 200, 0x09, 0, 0, 'a'};
    assert_int_equal(fm_zstd_decompress(out, 200, lying, sizeof lying, &error), FM_ERR_CORRUPT);
    /* bytes after the frame */
    packed[bytes] = 0;
    assert_int_equal(fm_zstd_decompress(out, sizeof text, packed, bytes + 1, &error),
                     FM_ERR_CORRUPT);
}

/* -- gzip */

/* One gzip member by zlib; returns its bytes. */
static size_t gzip(uint8_t *out, size_t room, const void *data, size_t size) {
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    stream.next_in = (Bytef *)(uintptr_t)data;
    stream.avail_in = (uInt)size;
    stream.next_out = out;
    stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    size_t bytes = stream.total_out;
    deflateEnd(&stream);
    return bytes;
}

static void gzip_members(void **state) {
    (void)state;
    uint8_t packed[512];
    fm_bytes content;
    size_t bytes = gzip(packed, 256, "hello ", 6);
    bytes += gzip(packed + bytes, 128, "", 0);
    bytes += gzip(packed + bytes, 128, "world", 5);
    assert_true(fm_gzip_is(packed, bytes));
    assert_false(fm_gzip_is(packed, 1));
    assert_false(fm_gzip_is(">query", 6));
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, 11, &content, NULL), FM_OK);
    assert_int_equal(content.size, 11);
    assert_memory_equal(content.data, "hello world", 11);
    fm_error error;
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, 10, &content, &error), FM_ERR_LIMIT);
    assert_int_equal(content.size, 11); /* outputs are written on success only */
}

static void gzip_broken(void **state) {
    (void)state;
    uint8_t packed[512];
    fm_bytes content;
    fm_error error;
    size_t bytes = gzip(packed, 256, "MKVLAAGIVGLLLAQPSFA", 19);
    for (size_t cut = 1; cut < bytes; cut++) {
        assert_int_equal(fm_gzip_inflate(&arena, packed, cut, 1000, &content, &error),
                         FM_ERR_CORRUPT);
    }
    memcpy(packed + bytes, "garbage", 7);
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes + 7, 1000, &content, &error),
                     FM_ERR_CORRUPT);
    packed[bytes - 8] ^= 1; /* the CRC */
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, 1000, &content, &error),
                     FM_ERR_CORRUPT);
    packed[bytes - 8] ^= 1;
    packed[bytes - 4] ^= 1; /* the length */
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, 1000, &content, &error),
                     FM_ERR_CORRUPT);
}

/* 32 MiB of zeros in 32 KiB: refused at the limit, and the arena is as it was. */
static void gzip_bomb(void **state) {
    (void)state;
    uint8_t *zeros = calloc(32, MEBI), *packed = malloc(MEBI);
    size_t bytes = gzip(packed, MEBI, zeros, (size_t)32 * MEBI), used = arena.used;
    fm_bytes content;
    fm_error error;
    assert_true(bytes < 64 * 1024);
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, MEBI, &content, &error), FM_ERR_LIMIT);
    assert_true(arena.used <= used + 64);
    fm_arena small;
    assert_int_equal(fm_arena_init(&small, MEBI, NULL), FM_OK);
    assert_int_equal(fm_gzip_inflate(&small, packed, bytes, SIZE_MAX, &content, &error),
                     FM_ERR_LIMIT);
    fm_arena_fini(&small);
    assert_int_equal(fm_gzip_inflate(&arena, packed, bytes, (size_t)32 * MEBI, &content, NULL),
                     FM_OK);
    assert_int_equal(content.size, (size_t)32 * MEBI);
    free(zeros);
    free(packed);
}

/* -- deflate, CRC */

static void crc_known_answers(void **state) {
    (void)state;
    assert_int_equal(fm_crc32(0, "123456789", 9), 0xcbf43926u);
    assert_int_equal(fm_crc32(fm_crc32(0, "1234", 4), "56789", 5), 0xcbf43926u);
    assert_int_equal(fm_crc32(0, "", 0), 0);
}

static void deflate_sizes(void **state) {
    (void)state;
    uint8_t packed[256], out[64];
    fm_error error;
    size_t bytes = gzip(packed, sizeof packed, "deletion_matrix", 15);
    const uint8_t *raw = packed + 10; /* without zlib's ten-byte gzip header and the trailer */
    assert_int_equal(fm_deflate_decompress(out, 15, raw, bytes - 18, NULL), FM_OK);
    assert_memory_equal(out, "deletion_matrix", 15);
    assert_int_equal(fm_deflate_decompress(out, 14, raw, bytes - 18, &error), FM_ERR_CORRUPT);
    assert_int_equal(fm_deflate_decompress(out, 16, raw, bytes - 18, &error), FM_ERR_CORRUPT);
    assert_int_equal(fm_deflate_decompress(out, 15, raw, 3, &error), FM_ERR_CORRUPT);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zstd_round_trip), cmocka_unit_test(zstd_lies),
        cmocka_unit_test(gzip_members),    cmocka_unit_test(gzip_broken),
        cmocka_unit_test(gzip_bomb),       cmocka_unit_test(crc_known_answers),
        cmocka_unit_test(deflate_sizes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
