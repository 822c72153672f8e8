/* bytes.h: bounded little-endian reading and writing.
 *
 * A cursor that runs out of bytes sets `failed`. From then on a reader returns zeros and a writer
 * drops bytes, so a decoder can read a whole header and check once. No pointer arithmetic happens
 * outside these functions. */
#ifndef FM_BASE_BYTES_H
#define FM_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A borrowed range of bytes. */
typedef struct fm_bytes {
    const uint8_t *data;
    size_t size;
} fm_bytes;

typedef struct fm_reader {
    const uint8_t *data; /* borrowed */
    size_t size;         /* bytes */
    size_t at;           /* <= size */
    bool failed;
} fm_reader;

fm_reader fm_reader_of(const void *data, size_t size);
size_t fm_reader_left(const fm_reader *reader);
uint8_t fm_read_u8(fm_reader *reader);
uint16_t fm_read_u16(fm_reader *reader);
uint32_t fm_read_u32(fm_reader *reader);
uint64_t fm_read_u64(fm_reader *reader);
float fm_read_f32(fm_reader *reader);
/* Returns the next `size` bytes in place, borrowed from the reader's data; NULL when there are
 * fewer. */
const uint8_t *fm_read_borrow(fm_reader *reader, size_t size);
/* Skips to the next multiple of `alignment` (a power of two) from the start. The reader fails
 * unless the skipped bytes are zero. */
void fm_read_align(fm_reader *reader, size_t alignment);

typedef struct fm_writer {
    uint8_t *data;   /* the caller's; NULL with capacity 0 only measures */
    size_t capacity; /* bytes */
    size_t at;       /* bytes needed so far; failed is set once they exceed capacity */
    bool failed;
} fm_writer;

fm_writer fm_writer_of(void *data, size_t capacity);
void fm_write_u8(fm_writer *writer, uint8_t value);
void fm_write_u16(fm_writer *writer, uint16_t value);
void fm_write_u32(fm_writer *writer, uint32_t value);
void fm_write_u64(fm_writer *writer, uint64_t value);
void fm_write_f32(fm_writer *writer, float value);
void fm_write_bytes(fm_writer *writer, const void *data, size_t size);
/* Writes zero bytes up to the next multiple of `alignment` (a power of two). */
void fm_write_align(fm_writer *writer, size_t alignment);

#endif
