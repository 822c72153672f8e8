/* json_reader.h: JSON (RFC 8259) read token by token in bounded memory: indices of alignment
 * databases are 150 MB of it, lists of chains longer still.
 *
 * The reader holds one block of the input and one text; what lies behind is gone. It checks the
 * grammar as it goes: whoever asks for tokens sees lawful sequences only, objects as key, value,
 * key, value. Strings come as bytes with escapes undone; a surrogate that stands alone, a byte
 * below 0x20 and the escape of NUL are refused, other bytes are taken as they are. Numbers are
 * handed over as their letters. */
#ifndef FM_CACHE_JSON_READER_H
#define FM_CACHE_JSON_READER_H

#include "proto/base/status.h"

#include <stdbool.h>

enum {
    FM_JSON_BLOCK_BYTES = 65536,
    FM_JSON_TEXT_BYTES = 4096, /* of a key, a string that is asked for, or a number */
    FM_JSON_DEPTH = 32,
};

typedef enum fm_json_token {
    FM_JSON_END, /* of the input, after one whole value */
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

/* Where the bytes come from: fills out[0..max-1], says how many; 0 = the end. */
typedef struct fm_json_input {
    void *context;
    fm_status (*read)(void *context, uint8_t *out, size_t max, size_t *ret_bytes, fm_error *reterr);
} fm_json_input;

typedef struct fm_json_reader {
    fm_json_input input;
    size_t at, end; /* in block */
    uint64_t line, column, offset;
    uint32_t depth;
    uint32_t next; /* what may come; json_reader.c */
    bool in_object[FM_JSON_DEPTH];
    /* Of the token handed out last: */
    uint64_t token_line, token_column, token_offset;
    size_t text_bytes;                 /* of a key, string or number */
    bool text_cut;                     /* the string was longer than text holds */
    char text[FM_JSON_TEXT_BYTES + 1]; /* terminated */
    uint8_t block[FM_JSON_BLOCK_BYTES];
} fm_json_reader; /* about 70 kB: for the heap or an arena */

void fm_json_init(fm_json_reader *reader, fm_json_input input);

/* The next token. FM_ERR_FORMAT with the place; FM_ERR_LIMIT: deeper than FM_JSON_DEPTH, or a key
 * or number that text does not hold (strings are cut, and text_cut says so: read their length from
 * text_bytes); what the input fails with. After FM_JSON_END it is FM_JSON_END again. */
FM_MUST_USE fm_status fm_json_next(fm_json_reader *reader, fm_json_token *ret_token,
                                   fm_error *reterr);

/* Reads to the end of the value that `token`, just handed out, began; nothing for plain values. */
FM_MUST_USE fm_status fm_json_skip(fm_json_reader *reader, fm_json_token token, fm_error *reterr);

/* The number handed out last as a whole number below 2^64: false when it is not one. */
bool fm_json_u64(const fm_json_reader *reader, uint64_t *ret_value);

/* A failure at the place of the token handed out last. */
fm_status fm_json_fail(const fm_json_reader *reader, fm_status status, const char *message,
                       fm_error *reterr);

/* An input of bytes in memory; the struct must live as long as the reader. */
typedef struct fm_json_bytes {
    const uint8_t *data;
    size_t size, at;
} fm_json_bytes;
fm_json_input fm_json_of_bytes(fm_json_bytes *bytes);

/* An input of an open file, read from where it stands; *fd must live as long as the reader. */
fm_json_input fm_json_of_file(int *fd);

#endif
