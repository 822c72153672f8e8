/* test_bytes.c: the cursors: little-endian values, and what happens past the end. */
#include "proto/base/bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t expected[24] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
                                     0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08, 0x00,
                                     0x00, 0x00, 0xc0, 0x3f, 'x',  0,    0,    0};

static void writes_little_endian(void **state) {
    (void)state;
    uint8_t out[24];
    memset(out, 0xff, sizeof out);
    fm_writer writer = fm_writer_of(out, sizeof out);
    fm_write_u8(&writer, 1);
    fm_write_u16(&writer, 0x0203);
    fm_write_u32(&writer, 0x04050607);
    fm_write_u64(&writer, 0x08090a0b0c0d0e0f);
    fm_write_align(&writer, 16);
    fm_write_f32(&writer, 1.5f);
    fm_write_bytes(&writer, "x", 1);
    fm_write_align(&writer, 8);
    assert_false(writer.failed);
    assert_int_equal(writer.at, 24);
    assert_memory_equal(out, expected, 24);
}

static void reads_its_own_files(void **state) {
    (void)state;
    fm_reader reader = fm_reader_of(expected, sizeof expected);
    assert_int_equal(fm_read_u8(&reader), 1);
    assert_int_equal(fm_read_u16(&reader), 0x0203);
    assert_int_equal(fm_read_u32(&reader), 0x04050607);
    assert_int_equal(fm_read_u64(&reader), 0x08090a0b0c0d0e0f);
    fm_read_align(&reader, 16);
    assert_true(fm_read_f32(&reader) == 1.5f);
    assert_ptr_equal(fm_read_borrow(&reader, 1), expected + 20);
    fm_read_align(&reader, 8);
    assert_int_equal(fm_reader_left(&reader), 0);
    assert_false(reader.failed);
}

/* A reader that ran out sets `failed`, returns zeros from then on, and never moves back. */
static void reading_past_the_end(void **state) {
    (void)state;
    fm_reader reader = fm_reader_of(expected, 3);
    assert_int_equal(fm_read_u32(&reader), 0);
    assert_true(reader.failed);
    assert_int_equal(fm_read_u8(&reader), 0); /* although one byte is left */
    assert_null(fm_read_borrow(&reader, 0));
    reader = fm_reader_of(expected, 3);
    assert_null(fm_read_borrow(&reader, SIZE_MAX));
    assert_true(reader.failed);
    reader = fm_reader_of(NULL, 0);
    assert_int_equal(fm_read_u64(&reader), 0);
    assert_true(reader.failed);
}

static void padding_must_be_zero(void **state) {
    (void)state;
    static const uint8_t dirty[8] = {1, 0, 0, 9};
    fm_reader reader = fm_reader_of(dirty, 8);
    fm_read_u8(&reader);
    fm_read_align(&reader, 4);
    assert_true(reader.failed);
    reader = fm_reader_of(dirty, 3);
    fm_read_u8(&reader);
    fm_read_align(&reader, 4); /* padding cut off */
    assert_true(reader.failed);
    reader = fm_reader_of(dirty, 8);
    fm_read_align(&reader, 4); /* aligned already */
    assert_int_equal(reader.at, 0);
    assert_false(reader.failed);
}

static void writing_past_the_end(void **state) {
    (void)state;
    uint8_t out[8];
    memset(out, 0xaa, sizeof out);
    fm_writer writer = fm_writer_of(out, 4);
    fm_write_u16(&writer, 0);
    fm_write_u32(&writer, 0); /* does not fit: nothing of it is written */
    assert_true(writer.failed);
    assert_int_equal(writer.at, 6);
    assert_int_equal(out[2], 0xaa);
    fm_write_u8(&writer, 1);
    assert_int_equal(out[2], 0xaa);
    assert_int_equal(out[4], 0xaa);
}

static void measuring(void **state) {
    (void)state;
    fm_writer writer = fm_writer_of(NULL, 0);
    fm_write_u64(&writer, 1);
    fm_write_bytes(&writer, "abc", 3);
    fm_write_align(&writer, 64);
    assert_int_equal(writer.at, 64);
    assert_true(writer.failed);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_little_endian), cmocka_unit_test(reads_its_own_files),
        cmocka_unit_test(reading_past_the_end), cmocka_unit_test(padding_must_be_zero),
        cmocka_unit_test(writing_past_the_end), cmocka_unit_test(measuring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
