/* lines.h: splits a text into stripped lines with their places.
 *
 * Plain mode: a line ends at \n, \r\n or \r; blanks are space, tab, \v and \f. Python mode gives
 * the reference's results. Lines end where str.splitlines() ends them in a file read as UTF-8 text
 * (also at \v \f \x1c \x1d \x1e U+0085 U+2028 U+2029). Blanks are the characters that str.strip()
 * strips. Nothing is copied or allocated, and every byte is read once or twice. A text without
 * unusual line ends costs one memchr per line. */
#ifndef FM_PARSE_LINES_H
#define FM_PARSE_LINES_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

typedef struct fm_line {
    size_t begin, end;  /* offsets of the stripped line in the text; equal when it is blank */
    size_t start, stop; /* the line without its line end, before stripping */
    uint64_t number;    /* from 1 */
} fm_line;

typedef struct fm_lines {
    fm_bytes text; /* borrowed */
    size_t at;     /* offset of the next line */
    uint64_t number;
    bool python;
    bool has_odd_breaks; /* the text has line ends other than \n and \r\n */
} fm_lines;

/* Starts at byte `at` of the text, where line `number` begins. In plain mode a byte order mark at
 * the text's beginning and NUL bytes at its end belong to no line. */
fm_lines fm_lines_of(fm_bytes text, bool python, size_t at, uint64_t number);

/* Returns the next line; false after the last. */
bool fm_lines_next(fm_lines *lines, fm_line *ret_line);

/* Returns the number of bytes of the blank that starts at `at`; 0 when there is no blank. */
size_t fm_blank_at(fm_bytes text, size_t at, size_t end, bool python);

/* Returns the offset of the first blank in [at, end), or end. */
size_t fm_blank_find(fm_bytes text, size_t at, size_t end, bool python);

/* Returns the offset of the first byte in [at, end) that is a blank, a control byte or not ASCII,
 * or else end. _space_end returns that of the first byte that is not a space. Both test many bytes
 * at a time. */
size_t fm_graphic_end(fm_bytes text, size_t at, size_t end);
size_t fm_space_end(fm_bytes text, size_t at, size_t end);

/* Returns FM_ERR_FORMAT for what often lies under the name of another file: text in UTF-16, a web
 * page or an XML message in place of a download, the pointer that Git LFS leaves, and a compression
 * that is not read. Line-based formats may take these for files without content. */
FM_MUST_USE fm_status fm_text_check_kind(fm_bytes text, fm_error *reterr);

/* Returns FM_ERR_FORMAT with the place of the first byte that is not well-formed UTF-8 (RFC 3629).
 * The reference cannot read such text. */
FM_MUST_USE fm_status fm_text_check_utf8(fm_bytes text, fm_error *reterr);

#endif
