/* cif.c: see cif.h.
 *
 * fm_cif_next() is the plain token reader. fm_cif_next_row() has a fast path for the rows of
 * _atom_site, which make up most of a file. It reduces each block of 64 bytes to a 64-bit mask with
 * a 1 for every byte above 0x20 (`solid`). A token starts at a 1 that follows a 0 and ends at a 0
 * that follows a 1. Shifting the mask by one bit finds all starts and ends of a block at once. When
 * enough ends are known, all_bare() checks the first bytes of the row's tokens. A quote, comment,
 * text block or possible keyword sends the row to the token reader, and so do the next SLOW_ROWS
 * rows, which most likely are of the same kind. */
#include "featurizer/parse/cif.h"

#include "featurizer/parse/lines.h"
#include "proto/base/utf8.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    BLOCK = 64,     /* bytes per step of the fast row reader */
    SLOW_ROWS = 16, /* rows to read token by token after one that needed it */
};

static bool is_space(uint8_t byte) {
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

static bool is_line_end(uint8_t byte) {
    return byte == '\n' || byte == '\r';
}

fm_status(fm_cif_fail)(const fm_cif *cif, fm_error *reterr, fm_status status, uint32_t offset,
                       const char *format, ...) {
    uint64_t line = 1;
    uint32_t line_start = 0;
    for (uint32_t i = 0; i < offset; i++) {
        bool ends = cif->data[i] == '\n' ||
                    (cif->data[i] == '\r' && (i + 1 >= cif->size || cif->data[i + 1] != '\n'));
        if (!ends) continue;
        line++;
        line_start = i + 1;
    }
    char message[FM_ERROR_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    return fm_fail_at(reterr, status, line, offset - line_start + 1, offset, "%s", message);
}

bool fm_cif_equals(const fm_cif *cif, fm_cif_view view, const char *text) {
    size_t size = strlen(text);
    return fm_cif_size(view) == size && memcmp(fm_cif_text(cif, view), text, size) == 0;
}

static uint64_t load_8(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Returns the offset of the first control byte other than tab, LF and CR, or size. */
static uint32_t find_control_byte(const uint8_t *data, uint32_t size) {
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    for (uint32_t i = 0; i < size;) {
        if (size - i >= 8) {
            /* A byte below 0x20 has none of the bits 5..7 set. If the 8 bytes contain one, check
             * each. */
            uint64_t word = load_8(data + i);
            uint64_t upper = (word | word << 1 | word << 2) & high;
            if (upper == high) {
                i += 8;
                continue;
            }
        }
        uint32_t stop = size - i >= 8 ? i + 8 : size;
        for (; i < stop; i++) {
            if (data[i] < 0x20 && !is_space(data[i])) return i;
        }
    }
    return size;
}

static uint32_t find_not_utf8(const uint8_t *data, uint32_t size) {
    uint32_t i = 0;
    while (i < size) {
        if (size - i >= 8 && (load_8(data + i) & UINT64_C(0x8080808080808080)) == 0) {
            i += 8;
            continue;
        }
        uint32_t n = (uint32_t)fm_utf8_size(data + i, size - i);
        if (n == 0) return i;
        i += n;
    }
    return size;
}

fm_status fm_cif_init(fm_cif *cif, fm_bytes bytes, bool compat_openfold, fm_error *reterr) {
    if (bytes.size > FM_LIMIT_INPUT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the file has %zu bytes, the limit is %zu", bytes.size,
                       FM_LIMIT_INPUT_BYTES);
    }
    while (!compat_openfold && bytes.size > 0 && bytes.data[bytes.size - 1] == 0)
        bytes.size--;
    fm_cif fresh = {
        .data = bytes.data, .size = (uint32_t)bytes.size, .compat_openfold = compat_openfold};
    if (fresh.size == 0) return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0, "the file is empty");
    fm_status kind = compat_openfold ? FM_OK : fm_text_check_kind(bytes, reterr);
    if (kind) return kind;
    uint32_t bad_at = find_control_byte(fresh.data, fresh.size);
    fresh.is_plain = bad_at == fresh.size;
    if (!fresh.is_plain && !compat_openfold) {
        return fm_cif_fail(&fresh, reterr, FM_ERR_FORMAT, bad_at,
                           "found byte 0x%02x, expected the text of a CIF file",
                           fresh.data[bad_at]);
    }
    if (compat_openfold) {
        bad_at = find_not_utf8(fresh.data, fresh.size);
        if (bad_at < fresh.size) {
            return fm_cif_fail(&fresh, reterr, FM_ERR_FORMAT, bad_at, "byte 0x%02x is not UTF-8",
                               fresh.data[bad_at]);
        }
    } else {
        fresh.at = (uint32_t)fm_utf8_mark(fresh.data, fresh.size);
    }
    *cif = fresh;
    return FM_OK;
}

/* -- tokens */

static bool starts_with(const fm_cif *cif, fm_cif_view view, const char *word) {
    size_t size = strlen(word);
    return fm_cif_size(view) >= size &&
           strncasecmp((const char *)fm_cif_text(cif, view), word, size) == 0;
}

static fm_cif_kind kind_of(const fm_cif *cif, fm_cif_view view, bool bare) {
    if (!bare && !cif->compat_openfold) return FM_CIF_VALUE;
    if (fm_cif_size(view) == 0) return FM_CIF_VALUE;
    if (cif->data[view.start] == '_') return FM_CIF_NAME;
    if (fm_cif_size(view) < 5 || cif->data[view.start + 4] != '_') return FM_CIF_VALUE;
    if (fm_cif_size(view) == 5 && starts_with(cif, view, "loop_")) return FM_CIF_LOOP;
    if (cif->compat_openfold) return FM_CIF_VALUE;
    if (starts_with(cif, view, "data_")) return FM_CIF_DATA;
    return starts_with(cif, view, "save_") ? FM_CIF_SAVE : FM_CIF_VALUE;
}

/* Reads a text block; cif->at is at the opening semicolon. */
static fm_status read_text_block(fm_cif *cif, fm_cif_view *ret_view, fm_error *reterr) {
    const uint8_t *data = cif->data;
    uint32_t open = cif->at;
    for (uint32_t i = open + 1; i < cif->size; i++) {
        if (data[i] != ';' || !is_line_end(data[i - 1])) continue;
        if (i + 1 < cif->size && !is_space(data[i + 1])) {
            return fm_cif_fail(cif, reterr, FM_ERR_FORMAT, i + 1,
                               "expected white space after the ';' that closes a text block");
        }
        uint32_t end = i;
        while (end > open + 1 && is_space(data[end - 1]))
            end--;
        *ret_view = (fm_cif_view){open + 1, end};
        cif->at = i + 1;
        return FM_OK;
    }
    return fm_cif_fail(cif, reterr, FM_ERR_FORMAT, open,
                       "the text block has no closing ';' at the start of a line");
}

/* Reads a quoted value; cif->at is at the opening quote. */
static fm_status read_quoted(fm_cif *cif, fm_cif_view *ret_view, fm_error *reterr) {
    const uint8_t *data = cif->data;
    uint32_t open = cif->at;
    for (uint32_t i = open + 1; i < cif->size && !is_line_end(data[i]); i++) {
        if (data[i] != data[open]) continue;
        if (i + 1 < cif->size && !is_space(data[i + 1])) continue;
        *ret_view = (fm_cif_view){open + 1, i};
        cif->at = i + 1;
        return FM_OK;
    }
    return fm_cif_fail(cif, reterr, FM_ERR_FORMAT, open, "the quote %c is not closed on its line",
                       data[open]);
}

static void skip_space_and_comments(fm_cif *cif) {
    const uint8_t *data = cif->data;
    uint32_t at = cif->at;
    for (;;) {
        while (at < cif->size && is_space(data[at]))
            at++;
        if (at >= cif->size || data[at] != '#') break;
        const uint8_t *newline = memchr(data + at, '\n', cif->size - at);
        const uint8_t *end = newline ? newline : data + cif->size;
        const uint8_t *carriage_return = memchr(data + at, '\r', (size_t)(end - data) - at);
        at = (uint32_t)((carriage_return ? carriage_return : end) - data);
    }
    cif->at = at;
}

fm_status fm_cif_next(fm_cif *cif, fm_cif_kind *ret_kind, fm_cif_view *ret_view, fm_error *reterr) {
    skip_space_and_comments(cif);
    if (cif->at >= cif->size) {
        *ret_kind = FM_CIF_END;
        *ret_view = (fm_cif_view){cif->size, cif->size};
        return FM_OK;
    }
    const uint8_t *data = cif->data;
    uint32_t at = cif->at;
    fm_cif_view view;
    bool bare = false;
    if (data[at] == ';' && (at == 0 || is_line_end(data[at - 1]))) {
        fm_status status = read_text_block(cif, &view, reterr);
        if (status) return status;
    } else if (data[at] == '\'' || data[at] == '"') {
        fm_status status = read_quoted(cif, &view, reterr);
        if (status) return status;
    } else {
        bare = true;
        view.start = at;
        while (at < cif->size && !is_space(data[at]))
            at++;
        view.end = cif->at = at;
    }
    *ret_kind = kind_of(cif, view, bare);
    *ret_view = view;
    if (*ret_kind == FM_CIF_LOOP) cif->n_slow = 0;
    return FM_OK;
}

/* -- rows */

/* Returns a byte whose bit i is set when byte i of the 8 is above 0x20. The sum and the OR set a
 * byte's top bit when the byte is above 0x20; the multiplication gathers the eight top bits in the
 * highest byte. It needs byte 0 in the low bits. */
static inline uint64_t solid_bits(const uint8_t *at) {
    const uint64_t ones = UINT64_C(0x0101010101010101), high = ones << 7;
    uint64_t word;
    memcpy(&word, at, sizeof word);
    uint64_t solid = (((word & ~high) + ones * 0x5f) | word) & high;
    return (solid >> 7) * UINT64_C(0x0102040810204080) >> 56;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "solid_bits wants byte 0 lowest");

static inline uint64_t solid_bits_64(const uint8_t *at) {
    uint64_t bits = 0;
    for (unsigned i = 0; i < 8; i++)
        bits |= solid_bits(at + 8 * i) << 8 * i;
    return bits;
}

/* Returns whether a first byte makes, or may make, a token other than a bare value. */
static bool is_special_start(uint8_t byte) {
    return byte == '\'' || byte == '"' || byte == '#' || byte == ';' || byte == '_';
}

/* Returns whether all tokens of a row are bare values. Keywords (data_, save_, loop_) have an
 * underscore as their fifth byte. */
static bool all_bare(const uint8_t *data, const fm_cif_row *row, uint32_t n) {
    bool special = false;
    for (uint32_t i = 0; i < n; i++) {
        const uint8_t *token = data + row->start[i];
        special |= is_special_start(token[0]);
        special |= row->end[i] - row->start[i] >= 5 && token[4] == '_';
    }
    return !special;
}

/* Reads the row in steps of 64 bytes. Returns false when the file ends too soon or the row is not
 * plain. */
static bool read_row_fast(fm_cif *cif, uint32_t n_column, fm_cif_row *row) {
    const uint8_t *data = cif->data;
    uint32_t n_start = 0, n_end = 0;
    uint64_t before = 0; /* whether the byte before the block is solid */
    for (uint32_t at = cif->at; cif->size - at >= BLOCK; at += BLOCK) {
        uint64_t solid = solid_bits_64(data + at);
        uint64_t shifted = solid << 1 | before;
        uint64_t starts = solid & ~shifted, ends = ~solid & shifted;
        before = solid >> 63;
        for (; starts; starts &= starts - 1)
            row->start[n_start++] = at + (uint32_t)__builtin_ctzll(starts);
        for (; ends; ends &= ends - 1)
            row->end[n_end++] = at + (uint32_t)__builtin_ctzll(ends);
        if (n_end < n_column) continue;
        if (!all_bare(data, row, n_column)) return false;
        cif->at = row->end[n_column - 1];
        return true;
    }
    return false;
}

static fm_status read_row_slow(fm_cif *cif, uint32_t n_column, fm_cif_row *row, uint32_t *ret_n,
                               fm_error *reterr) {
    for (uint32_t i = 0; i < n_column; i++) {
        uint32_t before = cif->at;
        fm_cif_kind kind;
        fm_cif_view view;
        fm_status status = fm_cif_next(cif, &kind, &view, reterr);
        if (status) return status;
        if (kind != FM_CIF_VALUE && !(kind == FM_CIF_NAME && i > 0)) {
            cif->at = before;
            *ret_n = i;
            return FM_OK;
        }
        row->start[i] = view.start;
        row->end[i] = view.end;
    }
    *ret_n = n_column;
    return FM_OK;
}

fm_status fm_cif_next_row(fm_cif *cif, uint32_t n_column, fm_cif_row *row, uint32_t *ret_n,
                          fm_error *reterr) {
    assert(n_column > 0 && n_column <= FM_LIMIT_CIF_COLUMN);
    if (cif->n_slow > 0) {
        cif->n_slow--;
    } else if (cif->is_plain) {
        if (read_row_fast(cif, n_column, row)) {
            *ret_n = n_column;
            return FM_OK;
        }
        cif->n_slow = SLOW_ROWS;
    }
    return read_row_slow(cif, n_column, row, ret_n, reterr);
}
