/* document_json.c: JSON (RFC 8259) as a tree with places; see document.h.
 *
 * The parser keeps no stack of its own: the document knows what is open. */
#include "featurizer/job/document.h"

#include "featurizer/parse/lines.h"
#include "proto/base/utf8.h"

#include <string.h>

typedef struct json_reader {
    fm_bytes text;
    size_t at, line_start;
    uint32_t line;
    fm_document document;
} json_reader;

static bool has(const json_reader *r) {
    return r->at < r->text.size;
}
static uint8_t peek(const json_reader *r) {
    return has(r) ? r->text.data[r->at] : 0;
}
static uint32_t column_of(const json_reader *r, size_t at) {
    size_t column = at - r->line_start + 1;
    return column < UINT32_MAX ? (uint32_t)column : UINT32_MAX;
}

static fm_status fail_here(json_reader *r, const char *expected) {
    char found[16] = "the end";
    if (has(r)) {
        found[0] = '\'';
        found[1] = (char)peek(r);
        found[2] = '\'';
        found[3] = '\0';
        if (peek(r) < ' ' || peek(r) > '~') memcpy(found, "another byte", 13);
    }
    return fm_fail_at(r->document.reterr, FM_ERR_FORMAT, r->line, column_of(r, r->at), r->at,
                      "found %s, expected %s", found, expected);
}

static void skip_blanks(json_reader *r) {
    for (; has(r); r->at++) {
        uint8_t c = peek(r);
        if (c == '\n') {
            r->line++;
            r->line_start = r->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

/* -- texts */

static bool read_hex(const json_reader *r, size_t at, uint32_t *ret_code) {
    uint32_t code = 0;
    if (r->text.size - at < 4) return false;
    for (size_t i = 0; i < 4; i++) {
        uint8_t c = r->text.data[at + i];
        uint32_t digit = c >= '0' && c <= '9'   ? c - '0' + 0u
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10u
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10u
                                                : 16;
        if (digit == 16) return false;
        code = code * 16 + digit;
    }
    *ret_code = code;
    return true;
}

static size_t put_utf8(uint32_t code, uint8_t *out) {
    if (code < 0x80) {
        out[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (uint8_t)(0xc0 | code >> 6);
        out[1] = (uint8_t)(0x80 | (code & 0x3f));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (uint8_t)(0xe0 | code >> 12);
        out[1] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
        out[2] = (uint8_t)(0x80 | (code & 0x3f));
        return 3;
    }
    out[0] = (uint8_t)(0xf0 | code >> 18);
    out[1] = (uint8_t)(0x80 | (code >> 12 & 0x3f));
    out[2] = (uint8_t)(0x80 | (code >> 6 & 0x3f));
    out[3] = (uint8_t)(0x80 | (code & 0x3f));
    return 4;
}

/* Reads what follows a backslash. A character beyond U+FFFF is written as two surrogates. */
static fm_status read_escape(json_reader *r, uint8_t *out, size_t *n) {
    static const char names[] = "\"\\/bfnrt";
    static const char values[] = "\"\\/\b\f\n\r\t";
    const char *found = peek(r) ? strchr(names, peek(r)) : NULL;
    uint32_t code = 0, low = 0;
    if (found) {
        out[(*n)++] = (uint8_t)values[found - names];
        r->at++;
        return FM_OK;
    }
    if (peek(r) != 'u') return fail_here(r, "an escape of JSON");
    if (!read_hex(r, r->at + 1, &code) || code == 0 || (code >= 0xdc00 && code < 0xe000)) {
        return fail_here(r, "four hexadecimal digits of a character");
    }
    r->at += 5;
    if (code >= 0xd800 && code < 0xdc00) {
        bool is_pair = r->text.size - r->at >= 6 && r->text.data[r->at] == '\\' &&
                       r->text.data[r->at + 1] == 'u' && read_hex(r, r->at + 2, &low) &&
                       low >= 0xdc00 && low < 0xe000;
        if (!is_pair) return fail_here(r, "the second half of a character");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        r->at += 6;
    }
    *n += put_utf8(code, out + *n);
    return FM_OK;
}

/* Reads a text, which is no longer than it is written. r->at is at its first quote. */
static fm_status read_text(json_reader *r, fm_bytes *ret_text) {
    size_t end = ++r->at, n = 0;
    while (end < r->text.size && r->text.data[end] != '"')
        end += r->text.data[end] == '\\' ? 2 : 1;
    size_t room = (end < r->text.size ? end : r->text.size) - r->at + 1;
    uint8_t *out = fm_arena_alloc(r->document.arena, room);
    if (!out) return fm_arena_full(r->document.arena, r->document.reterr);
    while (has(r) && peek(r) != '"') {
        if (peek(r) < ' ') return fail_here(r, "a text without control characters");
        if (peek(r) != '\\') {
            out[n++] = r->text.data[r->at++];
            continue;
        }
        r->at++;
        fm_status status = read_escape(r, out, &n);
        if (status) return status;
    }
    if (!has(r)) return fail_here(r, "'\"'");
    r->at++;
    out[n] = '\0';
    *ret_text = (fm_bytes){out, n};
    return FM_OK;
}

/* -- values */

static size_t digits(const json_reader *r, size_t at) {
    size_t n = 0;
    while (at + n < r->text.size && r->text.data[at + n] >= '0' && r->text.data[at + n] <= '9')
        n++;
    return n;
}

static fm_status read_number(json_reader *r, fm_bytes *ret_text) {
    size_t at = r->at + (peek(r) == '-'), n = digits(r, at);
    bool is_number = n > 0 && (n == 1 || r->text.data[at] != '0');
    at += n;
    if (is_number && at < r->text.size && r->text.data[at] == '.') {
        n = digits(r, at + 1);
        is_number = n > 0;
        at += n + 1;
    }
    if (is_number && at < r->text.size && (r->text.data[at] | 32) == 'e') {
        at++;
        if (at < r->text.size && (r->text.data[at] == '-' || r->text.data[at] == '+')) at++;
        n = digits(r, at);
        is_number = n > 0;
        at += n;
    }
    if (!is_number) return fail_here(r, "a value of JSON");
    char *out = fm_arena_alloc(r->document.arena, at - r->at + 1);
    if (!out) return fm_arena_full(r->document.arena, r->document.reterr);
    memcpy(out, r->text.data + r->at, at - r->at);
    out[at - r->at] = '\0';
    *ret_text = (fm_bytes){(uint8_t *)out, at - r->at};
    r->at = at;
    return FM_OK;
}

static bool take_word(json_reader *r, const char *word) {
    size_t n = strlen(word);
    if (r->text.size - r->at < n || memcmp(r->text.data + r->at, word, n) != 0) return false;
    r->at += n;
    return true;
}

/* Reads a value up to its end, or a list or map up to its first bracket. */
static fm_status read_value(json_reader *r) {
    fm_value node = {.line = r->line, .column = column_of(r, r->at), .offset = r->at};
    fm_status status = FM_OK;
    if (peek(r) == '{' || peek(r) == '[') {
        node.kind = peek(r) == '{' ? FM_DOCUMENT_MAP : FM_DOCUMENT_LIST;
        r->at++;
    } else if (peek(r) == '"') {
        node.kind = FM_DOCUMENT_TEXT;
        status = read_text(r, &node.text);
    } else if (take_word(r, "null")) {
        node.kind = FM_DOCUMENT_NULL;
    } else if (take_word(r, "true") || take_word(r, "false")) {
        node.kind = FM_DOCUMENT_BOOL;
        node.is_true = r->text.data[node.offset] == 't';
    } else {
        node.kind = FM_DOCUMENT_NUMBER;
        status = read_number(r, &node.text);
    }
    return status ? status : fm_document_add(&r->document, node);
}

static fm_status read_key(json_reader *r) {
    uint32_t line = r->line, column = column_of(r, r->at);
    size_t offset = r->at;
    fm_bytes key = {0};
    if (peek(r) != '"') return fail_here(r, "a key in quotes");
    fm_status status = read_text(r, &key);
    if (!status) status = fm_document_set_key(&r->document, key, line, column, offset);
    if (status) return status;
    skip_blanks(r);
    if (peek(r) != ':') return fail_here(r, "':'");
    r->at++;
    skip_blanks(r);
    return FM_OK;
}

/* Reads on from behind a value or an opening bracket to the begin of the next value. Sets *ret_end
 * where the whole text ends. */
static fm_status read_between(json_reader *r, bool *ret_end) {
    for (;;) {
        fm_document *document = &r->document;
        skip_blanks(r);
        if (!document->open) break;
        bool is_map = document->open->kind == FM_DOCUMENT_MAP;
        if (peek(r) == (is_map ? '}' : ']')) {
            r->at++;
            fm_document_close(document);
            continue;
        }
        if (document->open->n) {
            if (peek(r) != ',') return fail_here(r, is_map ? "',' or '}'" : "',' or ']'");
            r->at++;
            skip_blanks(r);
        }
        return is_map ? read_key(r) : FM_OK;
    }
    if (has(r)) return fail_here(r, "the end of the text");
    *ret_end = true;
    return FM_OK;
}

fm_status fm_document_parse_json(fm_bytes text, fm_arena *arena, const fm_value **ret_root,
                                 fm_error *reterr) {
    json_reader r = {.text = text, .line = 1, .document = {.arena = arena, .reterr = reterr}};
    fm_status status = fm_text_check_utf8(text, reterr);
    bool is_end = false;
    r.at = r.line_start = fm_utf8_mark(text.data, text.size);
    skip_blanks(&r);
    while (!status && !is_end) {
        status = read_value(&r);
        if (!status) status = read_between(&r, &is_end);
    }
    if (!status) *ret_root = r.document.root;
    return status;
}
