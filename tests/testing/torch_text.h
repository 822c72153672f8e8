/* torch_text.h: writes small files as torch.save does, for tests: a pickle, instruction by
 * instruction, and a zip archive of stored members. */
#ifndef FM_TESTING_TORCH_TEXT_H
#define FM_TESTING_TORCH_TEXT_H

#include "proto/base/bytes.h"
#include "proto/base/compress.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { FM_TEST_TORCH_BYTES = 1 << 16 };

/* Bytes under construction. */
typedef struct fm_test_torch {
    uint8_t bytes[FM_TEST_TORCH_BYTES];
    fm_writer out;
    /* Of an archive: its directory. */
    uint8_t directory[FM_TEST_TORCH_BYTES];
    fm_writer entries;
    uint16_t n_entry;
} fm_test_torch;

static inline void fm_test_torch_begin(fm_test_torch *t) {
    t->out = fm_writer_of(t->bytes, sizeof t->bytes);
    t->entries = fm_writer_of(t->directory, sizeof t->directory);
    t->n_entry = 0;
}

static inline void fm_test_torch_put(fm_writer *out, const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        fm_write_u8(out, ((const uint8_t *)bytes)[i]);
    assert(!out->failed);
}

/* Instructions that have no argument, or whose argument is in the text. */
static inline void fm_test_torch_code(fm_test_torch *t, const char *codes) {
    fm_test_torch_put(&t->out, codes, strlen(codes));
}

static inline void fm_test_torch_text(fm_test_torch *t, const char *text) {
    fm_write_u8(&t->out, 'X');
    fm_write_u32(&t->out, (uint32_t)strlen(text));
    fm_test_torch_put(&t->out, text, strlen(text));
}

static inline void fm_test_torch_integer(fm_test_torch *t, uint32_t number) {
    fm_write_u8(&t->out, 'J');
    fm_write_u32(&t->out, number);
}

/* A tensor of two dimensions. `type` is "FloatStorage", ... */
static inline void fm_test_torch_tensor(fm_test_torch *t, const char *type, const char *key,
                                        uint32_t count, uint32_t offset, const uint32_t shape[2],
                                        const uint32_t stride[2]) {
    fm_test_torch_code(t, "ctorch._utils\n_rebuild_tensor_v2\n((");
    fm_test_torch_text(t, "storage");
    fm_test_torch_code(t, "ctorch\n");
    fm_test_torch_code(t, type);
    fm_test_torch_code(t, "\n");
    fm_test_torch_text(t, key);
    fm_test_torch_text(t, "cpu");
    fm_test_torch_integer(t, count);
    fm_test_torch_code(t, "tQ");
    fm_test_torch_integer(t, offset);
    for (int k = 0; k < 2; k++) {
        fm_test_torch_integer(t, k ? stride[0] : shape[0]);
        fm_test_torch_integer(t, k ? stride[1] : shape[1]);
        fm_test_torch_code(t, "\x86");
    }
    fm_test_torch_code(t, "\x89"
                          "ccollections\nOrderedDict\n)RtR");
}

/* Adds a stored member. Method 8 says that it is deflated, which it is not. */
static inline void fm_test_torch_member(fm_test_torch *t, const char *name, const void *bytes,
                                        uint32_t n, uint16_t method) {
    const uint16_t name_bytes = (uint16_t)strlen(name);
    const uint32_t at = (uint32_t)t->out.at;
    for (int is_entry = 0; is_entry < 2; is_entry++) {
        fm_writer *out = is_entry ? &t->entries : &t->out;
        fm_write_u32(out, is_entry ? 0x02014b50u : 0x04034b50u);
        if (is_entry) fm_write_u16(out, 0);
        fm_write_u16(out, 0);
        fm_write_u16(out, 0); /* flags */
        fm_write_u16(out, method);
        fm_write_u32(out, 0); /* time */
        fm_write_u32(out, fm_crc32(0, bytes, n));
        fm_write_u32(out, n);
        fm_write_u32(out, n);
        fm_write_u16(out, name_bytes);
        fm_write_u16(out, 0); /* extra field */
        if (is_entry) {
            fm_write_u16(out, 0);
            fm_write_u64(out, 0); /* disk, attributes */
            fm_write_u32(out, at);
        }
        fm_test_torch_put(out, name, name_bytes);
    }
    fm_test_torch_put(&t->out, bytes, n);
    t->n_entry++;
}

static inline void fm_test_torch_end(fm_test_torch *t) {
    const uint32_t at = (uint32_t)t->out.at;
    fm_test_torch_put(&t->out, t->directory, t->entries.at);
    fm_write_u32(&t->out, 0x06054b50u);
    fm_write_u32(&t->out, 0);
    fm_write_u16(&t->out, t->n_entry);
    fm_write_u16(&t->out, t->n_entry);
    fm_write_u32(&t->out, (uint32_t)t->entries.at);
    fm_write_u32(&t->out, at);
    fm_write_u16(&t->out, 0);
    assert(!t->out.failed);
}

#endif
