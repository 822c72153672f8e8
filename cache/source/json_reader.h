/* json_reader.h: reads JSON (RFC 8259) token by token in bounded memory. Indices of alignment
 * databases have 150 MB of it, and lists of chains more.
 *
 * The reader holds one block of the input and one text. It checks the grammar as it goes, so a
 * caller sees only valid sequences of tokens; objects come as key, value, key, value. Strings come
 * as bytes with their escapes resolved. A lone surrogate, a byte below 0x20 and the escape of NUL
 * are refused; other bytes are passed on as they are. Numbers come as their text. */
#ifndef FM_CACHE_JSON_READER_H
#define FM_CACHE_JSON_READER_H

#include "proto/base/status.h"

#include <stdbool.h>

enum {
    FM_JSON_BLOCK_BYTES = 65536,
    FM_JSON_TEXT_BYTES = 65536, /* longest key or number; longer strings are cut */
    FM_JSON_DEPTH = 32,
};

typedef enum fm_json_token {
    FM_JSON_END, /* end of the input, after one whole value */
    FM_JSON_OBJECT,
    FM_JSON_OBJECT_END,
    FM_JSON_ARRAY,
    FM_JSON_ARRAY_END,
    FM_JSON_KEY,
    FM_JSON_STRING,
    FM_JSON_NUMBER,
    FM_JSON_TRUE,
    FM_JSON_FALSE,
    FM_JSON_NULL,
} fm_json_token;

/* The source of the bytes: writes up to `max` bytes to `out` and their count to *ret_bytes; 0 =
 * end. */
typedef struct fm_json_input {
    void *context;
    fm_status (*read)(void *context, uint8_t *out, size_t max, size_t *ret_bytes, fm_error *reterr);
} fm_json_input;

typedef struct fm_json_reader {
    fm_json_input input;
    size_t at, end; /* positions in block */
    uint64_t line, column, offset;
    uint32_t depth;
    uint32_t next; /* which tokens may come next; see json_reader.c */
    bool in_object[FM_JSON_DEPTH];
    /* Of the last token: */
    uint64_t token_line, token_column, token_offset;
    size_t text_bytes;                 /* length of a key, string or number */
    bool text_cut;                     /* the string was longer than `text` */
    char text[FM_JSON_TEXT_BYTES + 1]; /* terminated */
    uint8_t block[FM_JSON_BLOCK_BYTES];
} fm_json_reader; /* about 135 kB: keep it on the heap or in an arena */

void fm_json_init(fm_json_reader *reader, fm_json_input input);

/* Reads the next token. FM_ERR_FORMAT with the place; FM_ERR_LIMIT for nesting deeper than
 * FM_JSON_DEPTH, or a key or number longer than `text`; errors of the input. A longer string is no
 * error but cut: text_cut is set and text_bytes is its full length. After FM_JSON_END it returns
 * FM_JSON_END again. */
FM_MUST_USE fm_status fm_json_next(fm_json_reader *reader, fm_json_token *ret_token,
                                   fm_error *reterr);

/* Skips the value that `token`, the last one, began; does nothing for a plain value. */
FM_MUST_USE fm_status fm_json_skip(fm_json_reader *reader, fm_json_token token, fm_error *reterr);

/* The last number as a whole number below 2^64; false when it is not one. */
bool fm_json_u64(const fm_json_reader *reader, uint64_t *ret_value);

/* Fails at the place of the last token. */
fm_status fm_json_fail(const fm_json_reader *reader, fm_status status, const char *message,
                       fm_error *reterr);

/* An input of bytes in memory; *bytes must live as long as the reader. */
typedef struct fm_json_bytes {
    const uint8_t *data;
    size_t size, at;
} fm_json_bytes;
fm_json_input fm_json_of_bytes(fm_json_bytes *bytes);

/* An input of an open file, from its current offset; *fd must live as long as the reader. */
fm_json_input fm_json_of_file(int *fd);

#endif
