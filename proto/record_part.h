/* record_part.h: functions that the encodings of all parts share; for proto/record*.c only.
 *
 * A part's bytes are a header of 64 bytes and then its sections. Each section starts at a multiple
 * of 64 from the start, with zero bytes in between:
 *
 *      offset  type     content
 *       0      u32      magic "FMPT"
 *       4      u16      fm_part_kind
 *       6      u16      version
 *       8      u64      bytes of the whole encoding
 *      16      u32[12]  sizes and scalars, by kind; unused ones are zero
 *      64               sections */
#ifndef FM_RECORD_PART_H
#define FM_RECORD_PART_H

#include "proto/record.h"

#include <assert.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "decoded arrays are borrowed in place");

enum { FM_PART_N_WORD = 12, FM_PART_HEADER_BYTES = 64, FM_PART_ALIGN = 64 };
enum { FM_PART_DATE_BYTES = FM_RELEASE_DATE - 1 }; /* "YYYY-MM-DD", or zeros */

#define FM_PART_MAGIC 0x54504d46u /* "FMPT" */

/* Returns `size` with the padding up to the next section. */
static inline uint64_t fm_part_padded(uint64_t size) {
    return (size + FM_PART_ALIGN - 1) / FM_PART_ALIGN * FM_PART_ALIGN;
}

/* Takes `total` bytes of the arena and writes the header. Returns FM_ERR_LIMIT when they exceed
 * FM_LIMIT_PART_BYTES or the arena. */
FM_MUST_USE fm_status fm_part_begin(fm_arena *arena, fm_part_kind kind, uint16_t version,
                                    uint64_t total, const uint32_t word[FM_PART_N_WORD],
                                    fm_writer *ret_writer, fm_error *reterr);

/* Pads to the next section and returns its `size` bytes for the caller to fill. */
uint8_t *fm_part_reserve(fm_writer *writer, uint64_t size);

/* Checks the header and leaves the reader at the first section. Returns FM_ERR_CORRUPT for another
 * kind of part or a wrong size, and FM_ERR_UNSUPPORTED for another version. */
FM_MUST_USE fm_status fm_part_read_header(fm_bytes bytes, fm_part_kind kind, uint16_t version,
                                          fm_reader *ret_reader, uint32_t word[FM_PART_N_WORD],
                                          fm_error *reterr);

/* Skips the padding, then borrows `size` bytes; fails the reader when there are fewer. */
const uint8_t *fm_part_section(fm_reader *reader, uint64_t size);

/* Returns FM_ERR_CORRUPT unless all sections were complete and nothing follows. */
FM_MUST_USE fm_status fm_part_finish(const fm_reader *reader, fm_part_kind kind, fm_error *reterr);

/* Returns `status` (FM_ERR_LIMIT or FM_ERR_CORRUPT) unless 1 <= n_res <= FM_LIMIT_N_RES. */
FM_MUST_USE fm_status fm_part_check_n_res(uint32_t n_res, fm_part_kind kind, fm_status status,
                                          fm_error *reterr);

/* Returns FM_ERR_CORRUPT unless the header words from `first` on are zero. */
FM_MUST_USE fm_status fm_part_check_zero_words(const uint32_t word[FM_PART_N_WORD], int first,
                                               fm_part_kind kind, fm_error *reterr);

/* Returns whether the FM_PART_DATE_BYTES at `date` are "YYYY-MM-DD", digits and dashes, or all
 * zero. */
bool fm_part_is_date(const char *date);

/* Returns whether the "YYYY-MM-DD" at `date` is a day of the calendar. */
bool fm_part_is_calendar_date(const char *date);

#endif
