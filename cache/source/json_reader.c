/* json_reader.c: see json_reader.h. */
#include "cache/source/json_reader.h"

#include "proto/base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The tokens that may come next. */
enum {
    NEXT_VALUE,        /* the one value of the text, or what follows a ':' */
    NEXT_ITEM_OR_END,  /* after '[' */
    NEXT_ITEM,         /* after ',' in an array */
    NEXT_KEY_OR_END,   /* after '{' */
    NEXT_KEY,          /* after ',' in an object */
    NEXT_COMMA_OR_END, /* after a value in an object or array */
    NEXT_NOTHING,      /* after the one value */
};

void fm_json_init(fm_json_reader *reader, fm_json_input input) {
    reader->input = input;
    reader->at = reader->end = 0;
    reader->line = reader->column = 1;
    reader->offset = 0;
    reader->depth = 0;
    reader->next = NEXT_VALUE;
    reader->token_line = reader->token_column = 1;
    reader->token_offset = 0;
    reader->text_bytes = 0;
    reader->text_cut = false;
    reader->text[0] = '\0';
}

fm_status fm_json_fail(const fm_json_reader *reader, fm_status status, const char *message,
                       fm_error *reterr) {
    return fm_fail_at(reterr, status, reader->token_line, reader->token_column,
                      reader->token_offset, "%s", message);
}

static fm_status fail_here(const fm_json_reader *reader, const char *message, fm_error *reterr) {
    return fm_fail_at(reterr, FM_ERR_FORMAT, reader->line, reader->column, reader->offset, "%s",
                      message);
}

/* -- bytes */

enum { AT_END = -1, FAILED = -2 };

/* Returns the next byte without consuming it; AT_END, or FAILED with *reterr. */
static int peek(fm_json_reader *reader, fm_error *reterr) {
    if (reader->at == reader->end) {
        size_t got = 0;
        if (reader->input.read(reader->input.context, reader->block, sizeof reader->block, &got,
                               reterr)) {
            return FAILED;
        }
        reader->at = reader->offset == 0 ? fm_utf8_mark(reader->block, got) : 0;
        reader->offset += reader->at;
        reader->end = got;
        if (reader->at == got) return AT_END; /* also behind a byte order mark */
    }
    return reader->block[reader->at];
}

static void step(fm_json_reader *reader) {
    bool is_newline = reader->block[reader->at++] == '\n';
    reader->offset++;
    reader->line += is_newline;
    reader->column = is_newline ? 1 : reader->column + 1;
}

static int skip_blanks(fm_json_reader *reader, fm_error *reterr) {
    int c;
    while ((c = peek(reader, reterr)) == ' ' || c == '\n' || c == '\t' || c == '\r')
        step(reader);
    return c;
}

/* The error for an unexpected byte, or for what `peek` returned. */
static fm_status refuse(const fm_json_reader *reader, int c, const char *message,
                        fm_error *reterr) {
    if (c == FAILED) return reterr && reterr->status ? reterr->status : FM_ERR_IO;
    return fail_here(reader, c == AT_END ? "the JSON text ends early" : message, reterr);
}

/* -- strings, numbers and words */

static void put(fm_json_reader *reader, int byte) {
    if (reader->text_bytes < FM_JSON_TEXT_BYTES) {
        reader->text[reader->text_bytes] = (char)byte;
    } else {
        reader->text_cut = true;
    }
    reader->text_bytes++;
}

static void end_text(fm_json_reader *reader) {
    reader->text[reader->text_cut ? FM_JSON_TEXT_BYTES : reader->text_bytes] = '\0';
}

static void put_code_point(fm_json_reader *reader, uint32_t code) {
    if (code < 0x80) {
        put(reader, (int)code);
    } else if (code < 0x800) {
        put(reader, (int)(0xc0 | code >> 6));
        put(reader, (int)(0x80 | (code & 0x3f)));
    } else if (code < 0x10000) {
        put(reader, (int)(0xe0 | code >> 12));
        put(reader, (int)(0x80 | (code >> 6 & 0x3f)));
        put(reader, (int)(0x80 | (code & 0x3f)));
    } else {
        put(reader, (int)(0xf0 | code >> 18));
        put(reader, (int)(0x80 | (code >> 12 & 0x3f)));
        put(reader, (int)(0x80 | (code >> 6 & 0x3f)));
        put(reader, (int)(0x80 | (code & 0x3f)));
    }
}

static int hex_value(int c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static fm_status read_hex4(fm_json_reader *reader, uint32_t *ret_code, fm_error *reterr) {
    uint32_t code = 0;
    for (int i = 0; i < 4; i++) {
        int c = peek(reader, reterr), value = c < 0 ? -1 : hex_value(c);
        if (value < 0) return refuse(reader, c, "\\u needs four hex digits", reterr);
        code = code << 4 | (uint32_t)value;
        step(reader);
    }
    *ret_code = code;
    return FM_OK;
}

/* Reads the digits after "\u", and a second escape for a surrogate pair. */
static fm_status read_code_point(fm_json_reader *reader, fm_error *reterr) {
    uint32_t code, low;
    fm_status status = read_hex4(reader, &code, reterr);
    if (status) return status;
    if (code == 0) return fail_here(reader, "a string with a NUL", reterr);
    if (code >= 0xdc00 && code < 0xe000) return fail_here(reader, "a lone surrogate", reterr);
    if (code >= 0xd800 && code < 0xdc00) {
        for (const char *want = "\\u"; *want; want++) {
            int c = peek(reader, reterr);
            if (c != *want) return refuse(reader, c, "a lone surrogate", reterr);
            step(reader);
        }
        status = read_hex4(reader, &low, reterr);
        if (status) return status;
        if (low < 0xdc00 || low >= 0xe000) return fail_here(reader, "a lone surrogate", reterr);
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_code_point(reader, code);
    return FM_OK;
}

static fm_status read_escape(fm_json_reader *reader, fm_error *reterr) {
    static const char letters[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
    int c = peek(reader, reterr);
    if (c == 'u') {
        step(reader);
        return read_code_point(reader, reterr);
    }
    const char *found = c > 0 ? strchr(letters, c) : NULL;
    if (!found) return refuse(reader, c, "an escape that JSON does not know", reterr);
    put(reader, values[found - letters]);
    step(reader);
    return FM_OK;
}

/* Reads a string, from its opening quote. */
static fm_status read_string(fm_json_reader *reader, fm_error *reterr) {
    step(reader);
    for (;;) {
        int c = peek(reader, reterr);
        if (c < 0x20) return refuse(reader, c, "a control byte in a string", reterr);
        step(reader);
        if (c == '"') break;
        if (c != '\\') {
            put(reader, c);
            continue;
        }
        fm_status status = read_escape(reader, reterr);
        if (status) return status;
    }
    end_text(reader);
    return FM_OK;
}

static fm_status read_digits(fm_json_reader *reader, fm_error *reterr) {
    int c = peek(reader, reterr);
    if (c < '0' || c > '9') return refuse(reader, c, "a number lacks a digit", reterr);
    while (c >= '0' && c <= '9') {
        put(reader, c);
        step(reader);
        c = peek(reader, reterr);
    }
    return c == FAILED ? refuse(reader, c, "", reterr) : FM_OK;
}

static bool take(fm_json_reader *reader, const char *letters, fm_error *reterr) {
    int c = peek(reader, reterr);
    if (c <= 0 || !strchr(letters, c)) return false;
    put(reader, c);
    step(reader);
    return true;
}

/* -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)? */
static fm_status read_number(fm_json_reader *reader, fm_error *reterr) {
    fm_status status = FM_OK;
    (void)take(reader, "-", reterr);
    if (take(reader, "0", reterr)) {
        int c = peek(reader, reterr);
        if (c >= '0' && c <= '9') return fail_here(reader, "a number begins with 0", reterr);
    } else {
        status = read_digits(reader, reterr);
    }
    if (!status && take(reader, ".", reterr)) status = read_digits(reader, reterr);
    if (!status && take(reader, "eE", reterr)) {
        (void)take(reader, "+-", reterr);
        status = read_digits(reader, reterr);
    }
    end_text(reader);
    return status;
}

static fm_status read_word(fm_json_reader *reader, const char *word, fm_error *reterr) {
    for (; *word; word++) {
        int c = peek(reader, reterr);
        if (c != *word) {
            return refuse(reader, c,
                          "found what is neither object, array, string, number, true, "
                          "false nor null",
                          reterr);
        }
        step(reader);
    }
    return FM_OK;
}

/* -- tokens */

static void after_value(fm_json_reader *reader) {
    reader->next = reader->depth ? NEXT_COMMA_OR_END : NEXT_NOTHING;
}

static fm_status begin(fm_json_reader *reader, bool object, fm_error *reterr) {
    if (reader->depth == FM_JSON_DEPTH) {
        return fm_json_fail(reader, FM_ERR_LIMIT, "nested more than 32 deep", reterr);
    }
    step(reader);
    reader->in_object[reader->depth++] = object;
    reader->next = object ? NEXT_KEY_OR_END : NEXT_ITEM_OR_END;
    return FM_OK;
}

static fm_status read_value(fm_json_reader *reader, int c, fm_json_token *token, fm_error *reterr) {
    fm_status status;
    switch (c) {
    case '{': *token = FM_JSON_OBJECT; return begin(reader, true, reterr);
    case '[': *token = FM_JSON_ARRAY; return begin(reader, false, reterr);
    case '"':
        *token = FM_JSON_STRING;
        status = read_string(reader, reterr);
        break;
    case 't':
        *token = FM_JSON_TRUE;
        status = read_word(reader, "true", reterr);
        break;
    case 'f':
        *token = FM_JSON_FALSE;
        status = read_word(reader, "false", reterr);
        break;
    case 'n':
        *token = FM_JSON_NULL;
        status = read_word(reader, "null", reterr);
        break;
    case 'N':
    case 'I':
        return fail_here(reader,
                         "found NaN or Infinity, which JSON does not know, expected a "
                         "number or null",
                         reterr);
    default:
        if (c != '-' && (c < '0' || c > '9')) return read_word(reader, "true", reterr);
        *token = FM_JSON_NUMBER;
        status = read_number(reader, reterr);
        if (!status && reader->text_cut) {
            status = fm_json_fail(reader, FM_ERR_LIMIT, "a number of thousands of digits", reterr);
        }
    }
    if (!status) after_value(reader);
    return status;
}

static fm_status read_key(fm_json_reader *reader, int c, fm_error *reterr) {
    if (c != '"') return refuse(reader, c, "expected a key in quotes", reterr);
    fm_status status = read_string(reader, reterr);
    if (status) return status;
    if (reader->text_cut) {
        return fm_json_fail(reader, FM_ERR_LIMIT, "a key of more than 4096 bytes", reterr);
    }
    c = skip_blanks(reader, reterr);
    if (c != ':') return refuse(reader, c, "expected ':' after a key", reterr);
    step(reader);
    reader->next = NEXT_VALUE;
    return FM_OK;
}

/* Consumes the comma that must separate values; *c = the next byte. */
static fm_status pass_comma(fm_json_reader *reader, int *c, fm_error *reterr) {
    bool object = reader->in_object[reader->depth - 1];
    if (reader->next != NEXT_COMMA_OR_END || *c == (object ? '}' : ']')) return FM_OK;
    if (*c != ',') {
        return refuse(reader, *c, object ? "expected ',' or '}'" : "expected ',' or ']'", reterr);
    }
    step(reader);
    reader->next = object ? NEXT_KEY : NEXT_ITEM;
    *c = skip_blanks(reader, reterr);
    return FM_OK;
}

fm_status fm_json_next(fm_json_reader *reader, fm_json_token *ret_token, fm_error *reterr) {
    fm_error local = {0};
    fm_error *error = reterr ? reterr : &local;
    int c = skip_blanks(reader, error);
    if (reader->next == NEXT_NOTHING) {
        while (c == 0) {
            step(reader);
            c = peek(reader, error);
        }
        *ret_token = FM_JSON_END;
        return c == AT_END ? FM_OK : refuse(reader, c, "more after the end", error);
    }
    if (reader->depth) {
        fm_status status = pass_comma(reader, &c, error);
        if (status) return status;
    }
    reader->token_line = reader->line;
    reader->token_column = reader->column;
    reader->token_offset = reader->offset;
    reader->text_bytes = 0;
    reader->text_cut = false;
    bool may_end = reader->next == NEXT_COMMA_OR_END || reader->next == NEXT_KEY_OR_END ||
                   reader->next == NEXT_ITEM_OR_END;
    if (may_end && c == (reader->in_object[reader->depth - 1] ? '}' : ']')) {
        step(reader);
        *ret_token = c == '}' ? FM_JSON_OBJECT_END : FM_JSON_ARRAY_END;
        reader->depth--;
        after_value(reader);
        return FM_OK;
    }
    if (reader->next == NEXT_KEY_OR_END || reader->next == NEXT_KEY) {
        *ret_token = FM_JSON_KEY;
        return read_key(reader, c, error);
    }
    return read_value(reader, c, ret_token, error);
}

fm_status fm_json_skip(fm_json_reader *reader, fm_json_token token, fm_error *reterr) {
    if (token != FM_JSON_OBJECT && token != FM_JSON_ARRAY) return FM_OK;
    uint32_t outside = reader->depth - 1;
    while (reader->depth > outside) {
        fm_status status = fm_json_next(reader, &token, reterr);
        if (status) return status;
    }
    return FM_OK;
}

bool fm_json_u64(const fm_json_reader *reader, uint64_t *ret_value) {
    uint64_t value = 0;
    for (const char *c = reader->text; *c; c++) {
        if (*c < '0' || *c > '9') return false;
        uint64_t digit = (uint64_t)(*c - '0');
        if (value > (UINT64_MAX - digit) / 10) return false;
        value = value * 10 + digit;
    }
    *ret_value = value;
    return reader->text[0] != '\0';
}

/* -- inputs */

static fm_status read_bytes(void *context, uint8_t *out, size_t max, size_t *ret_bytes,
                            fm_error *reterr) {
    (void)reterr;
    fm_json_bytes *bytes = context;
    size_t n = bytes->size - bytes->at < max ? bytes->size - bytes->at : max;
    if (n) memcpy(out, bytes->data + bytes->at, n);
    bytes->at += n;
    *ret_bytes = n;
    return FM_OK;
}

fm_json_input fm_json_of_bytes(fm_json_bytes *bytes) {
    return (fm_json_input){bytes, read_bytes};
}

static fm_status read_file(void *context, uint8_t *out, size_t max, size_t *ret_bytes,
                           fm_error *reterr) {
    ssize_t got;
    do {
        got = read(*(int *)context, out, max);
    } while (got < 0 && errno == EINTR);
    if (got < 0) return fm_fail(reterr, FM_ERR_IO, "cannot read: %s", strerror(errno));
    *ret_bytes = (size_t)got;
    return FM_OK;
}

fm_json_input fm_json_of_file(int *fd) {
    return (fm_json_input){fd, read_file};
}
