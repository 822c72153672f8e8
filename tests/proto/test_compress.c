/* test_compress.c: valid, damaged and hostile compressed bytes. zlib writes the gzip inputs, so
 * that the two libraries check each other. */
#include "proto/base/compress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lzma.h>
#include <zlib.h>
#include <zstd.h>

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
    /* a frame of another size than asked for is never unpacked */
    assert_int_equal(fm_zstd_decompress(out, sizeof text - 1, packed, bytes, &error),
                     FM_ERR_CORRUPT);
    assert_int_equal(fm_zstd_decompress(out, sizeof text + 1, packed, bytes, &error),
                     FM_ERR_CORRUPT);
    for (size_t cut = 0; cut < bytes; cut++)
        assert_int_equal(fm_zstd_decompress(out, sizeof text, packed, cut, &error), FM_ERR_CORRUPT);
    /* the frame's own checksum finds a changed byte, or the change breaks its form */
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

/* -- gzip, xz and zstd of users */

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

/* One xz stream with a dictionary of `dictionary` bytes. */
static size_t xz_of(uint8_t *out, size_t room, const void *data, size_t size, uint32_t dictionary) {
    lzma_options_lzma options;
    size_t bytes = 0;
    assert_false(lzma_lzma_preset(&options, 0));
    options.dict_size = dictionary;
    lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, NULL}};
    assert_int_equal(
        lzma_stream_buffer_encode(filters, LZMA_CHECK_CRC64, NULL, data, size, out, &bytes, room),
        LZMA_OK);
    return bytes;
}

static size_t xz(uint8_t *out, size_t room, const void *data, size_t size) {
    return xz_of(out, room, data, size, 1 << 16);
}

/* One zstd frame that does not declare its content's size, as a pipe makes it. */
static size_t zstd(uint8_t *out, size_t room, const void *data, size_t size) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
    size_t bytes = ZSTD_compress2(context, out, room, data, size);
    ZSTD_freeCCtx(context);
    assert_false(ZSTD_isError(bytes));
    return bytes;
}

/* The same tests for each of the three. */
static const struct {
    fm_compression is;
    size_t (*pack)(uint8_t *out, size_t room, const void *data, size_t size);
    size_t n_magic; /* fewer bytes are no known format */
} formats[] = {
    {FM_COMPRESSION_GZIP, gzip, 2}, {FM_COMPRESSION_XZ, xz, 6}, {FM_COMPRESSION_ZSTD, zstd, 4}};
enum { N_FORMAT = sizeof formats / sizeof formats[0] };

static fm_status unpack(const uint8_t *data, size_t size, size_t max, fm_bytes *content) {
    fm_error error = {.message = ""};
    fm_status status = fm_unpack(&arena, (fm_bytes){data, size}, max, content, &error);
    assert_int_equal(!status, error.message[0] == '\0');
    return status;
}

static void members_are_joined(void **state) {
    (void)state;
    uint8_t packed[1024];
    for (size_t i = 0; i < N_FORMAT; i++) {
        fm_bytes content;
        size_t bytes = formats[i].pack(packed, 256, "hello ", 6);
        bytes += formats[i].pack(packed + bytes, 256, "", 0);
        bytes += formats[i].pack(packed + bytes, 256, "world", 5);
        assert_int_equal(fm_compression_of_content(packed, bytes), formats[i].is);
        assert_int_equal(fm_compression_of_content(packed, formats[i].n_magic - 1), 0);
        assert_int_equal(unpack(packed, bytes, 11, &content), FM_OK);
        assert_int_equal(content.size, 11);
        assert_memory_equal(content.data, "hello world", 11);
        assert_int_equal(unpack(packed, bytes, 10, &content), FM_ERR_LIMIT);
        assert_int_equal(unpack(packed, bytes, 0, &content), FM_ERR_LIMIT);
        assert_int_equal(content.size, 11); /* outputs are written on success only */
    }
}

static void plain_bytes_stay(void **state) {
    (void)state;
    static const uint8_t text[] = ">query\nMKV\n";
    fm_bytes content;
    size_t used = arena.used;
    assert_int_equal(unpack(text, sizeof text, 3, &content), FM_OK);
    assert_ptr_equal(content.data, text);
    assert_int_equal(content.size, sizeof text);
    assert_int_equal(arena.used, used);
    assert_int_equal(unpack(text, 0, 3, &content), FM_OK);
    assert_int_equal(content.size, 0);
}

static void broken_members(void **state) {
    (void)state;
    uint8_t packed[512];
    fm_bytes content;
    for (size_t i = 0; i < N_FORMAT; i++) {
        size_t bytes = formats[i].pack(packed, 256, "MKVLAAGIVGLLLAQPSFA", 19);
        for (size_t cut = formats[i].n_magic; cut < bytes; cut++)
            assert_int_equal(unpack(packed, cut, 1000, &content), FM_ERR_CORRUPT);
        for (size_t cut = formats[i].n_magic; cut < bytes; cut++) /* and with no room to spare */
            assert_int_equal(unpack(packed, cut, 19, &content), FM_ERR_CORRUPT);
        memcpy(packed + bytes, "garbage", 7);
        assert_int_equal(unpack(packed, bytes + 7, 1000, &content), FM_ERR_CORRUPT);
        packed[bytes - 1] ^= 1; /* gzip: its length; xz: its end; zstd: its checksum */
        assert_int_equal(unpack(packed, bytes, 1000, &content), FM_ERR_CORRUPT);
        packed[bytes - 1] ^= 1;
        packed[bytes - 6] ^= 1; /* gzip: its CRC; xz: its index's place; zstd: its content */
        assert_int_equal(unpack(packed, bytes, 1000, &content), FM_ERR_CORRUPT);
    }
}

/* 32 MiB of zeros in a few KiB: refused at the limit, and the arena stays as it was. */
static void bombs(void **state) {
    (void)state;
    uint8_t *zeros = calloc(32, MEBI), *packed = malloc(MEBI);
    for (size_t i = 0; i < N_FORMAT; i++) {
        size_t bytes = formats[i].pack(packed, MEBI, zeros, (size_t)32 * MEBI), used = arena.used;
        fm_bytes content;
        assert_true(bytes < 64 * 1024);
        assert_int_equal(unpack(packed, bytes, MEBI, &content), FM_ERR_LIMIT);
        assert_true(arena.used <= used + 64);
        fm_arena small;
        assert_int_equal(fm_arena_init(&small, MEBI, NULL), FM_OK);
        assert_int_equal(fm_unpack(&small, (fm_bytes){packed, bytes}, SIZE_MAX, &content, NULL),
                         FM_ERR_LIMIT);
        fm_arena_fini(&small);
        size_t mark = fm_arena_mark(&arena);
        assert_int_equal(unpack(packed, bytes, (size_t)32 * MEBI, &content), FM_OK);
        assert_int_equal(content.size, (size_t)32 * MEBI);
        fm_arena_rewind(&arena, mark);
    }
    free(zeros);
    free(packed);
}

/* A header may ask for a dictionary of 1.5 GiB to unpack 19 bytes. */
static void xz_dictionaries_have_a_limit(void **state) {
    (void)state;
    uint8_t packed[256];
    fm_bytes content;
    fm_error error;
    size_t bytes = xz_of(packed, sizeof packed, "MKVLAAGIVGLLLAQPSFA", 19, 64u << 20);
    assert_int_equal(unpack(packed, bytes, 1000, &content), FM_OK); /* what xz -9 asks for */
    bytes = xz_of(packed, sizeof packed, "MKVLAAGIVGLLLAQPSFA", 19, 128u << 20);
    assert_int_equal(unpack(packed, bytes, 1000, &content), FM_OK);
    /* The block's header begins after 12 bytes and ends in its own CRC. In it, after the filter
     * 0x21 and the length 1, one byte is the dictionary's size: 30 is 128 MiB, 31 is 192, 37 is 1.5
     * GiB. */
    size_t at = 12, header = (size_t)(packed[12] + 1) * 4;
    while (packed[at - 2] != 0x21 || packed[at - 1] != 1)
        at++;
    assert_int_equal(packed[at], 30);
    for (uint8_t code = 31; code <= 37; code += 6) {
        packed[at] = code;
        uint32_t crc = fm_crc32(0, packed + 12, header - 4);
        for (int i = 0; i < 4; i++)
            packed[12 + header - 4 + (size_t)i] = (uint8_t)(crc >> 8 * i);
        assert_int_equal(fm_unpack(&arena, (fm_bytes){packed, bytes}, 1000, &content, &error),
                         FM_ERR_LIMIT);
        assert_non_null(strstr(error.message, "dictionary of more than the 128 MiB"));
    }
}

/* pzstd begins its files with a skippable frame. */
static void zstd_skippable_frames(void **state) {
    (void)state;
    uint8_t packed[256] = {0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 'a', 'b', 'c', 'd'};
    fm_bytes content;
    size_t bytes = 12 + zstd(packed + 12, sizeof packed - 12, "hello", 5);
    assert_int_equal(fm_compression_of_content(packed, bytes), FM_COMPRESSION_ZSTD);
    assert_int_equal(unpack(packed, bytes, 100, &content), FM_OK);
    assert_int_equal(content.size, 5);
    assert_memory_equal(content.data, "hello", 5);
}

static void endings_of_names(void **state) {
    (void)state;
    static const struct {
        const char *name;
        fm_compression is;
        size_t bare;
    } cases[] = {{"x.a3m", FM_COMPRESSION_NONE, 5},  {"x.a3m.gz", FM_COMPRESSION_GZIP, 5},
                 {"x.a3m.xz", FM_COMPRESSION_XZ, 5}, {"x.a3m.zst", FM_COMPRESSION_ZSTD, 5},
                 {"x.gz.xz", FM_COMPRESSION_XZ, 4},  {"x.GZ", FM_COMPRESSION_NONE, 4},
                 {".gz", FM_COMPRESSION_NONE, 3},    {"gz", FM_COMPRESSION_NONE, 2},
                 {"", FM_COMPRESSION_NONE, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        size_t bare = 99;
        assert_int_equal(fm_compression_of_name(cases[i].name, &bare), cases[i].is);
        assert_int_equal(bare, cases[i].bare);
        assert_int_equal(fm_compression_of_name(cases[i].name, NULL), cases[i].is);
    }
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
        cmocka_unit_test(zstd_round_trip),
        cmocka_unit_test(zstd_lies),
        cmocka_unit_test(members_are_joined),
        cmocka_unit_test(plain_bytes_stay),
        cmocka_unit_test(broken_members),
        cmocka_unit_test(bombs),
        cmocka_unit_test(xz_dictionaries_have_a_limit),
        cmocka_unit_test(zstd_skippable_frames),
        cmocka_unit_test(endings_of_names),
        cmocka_unit_test(crc_known_answers),
        cmocka_unit_test(deflate_sizes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
