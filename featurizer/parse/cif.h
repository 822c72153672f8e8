/* cif.h: reads the tokens of CIF 1.1 text and the rows of its loops.
 *
 * CIF is a stream of tokens separated by white space: `data_NAME` opens a block, `_name value` is a
 * pair, and `loop_ _name ... value ...` is a table. A value has one of three forms:
 *   - bare;
 *   - between ' or " on one line, where white space follows the closing quote;
 *   - a text block, from a ';' in column 1 to the next line that starts with ';'.
 * A '#' where a token could start opens a comment. There is no nesting and therefore no recursion
 * here.
 *
 * Rows of loops are read fast: white space is found 64 bytes at a time, and a row whose tokens are
 * all bare is cut at these places. A row with any other token goes through the token reader.
 *
 * With compat_openfold the reader imitates the reference (Biopython's MMCIF2Dict). Then loop_ is
 * the only keyword, a quoted token with a leading underscore is still a name, and control bytes are
 * accepted.
 *
 * Tokens are offsets into the caller's bytes; nothing is copied or allocated. */
#ifndef FM_PARSE_CIF_H
#define FM_PARSE_CIF_H

#include "proto/base/bytes.h"
#include "proto/base/status.h"
#include "proto/limits.h"

#include <stdbool.h>

typedef enum fm_cif_kind {
    FM_CIF_END,
    FM_CIF_DATA, /* data_NAME */
    FM_CIF_SAVE, /* save_NAME, or save_ */
    FM_CIF_LOOP,
    FM_CIF_NAME,
    FM_CIF_VALUE,
} fm_cif_kind;

/* Bytes start..end-1 of the input, without quotes or the semicolons of text blocks. */
typedef struct fm_cif_view {
    uint32_t start, end;
} fm_cif_view;

typedef struct fm_cif {
    const uint8_t *data; /* borrowed */
    uint32_t size;       /* bytes, at most FM_LIMIT_INPUT_BYTES */
    uint32_t at;
    bool compat_openfold;
    bool is_plain;  /* no control bytes but tab, CR and LF */
    uint8_t n_slow; /* rows to read token by token before the fast way is tried again */
} fm_cif;

/* The values of one row. Entries behind the row's columns are scratch space, except the last one.
 * That one is never written; fm_cif_row_init makes it an empty view, which represents a column that
 * the loop does not have. */
enum { FM_CIF_ABSENT = FM_LIMIT_CIF_COLUMN + 64 };
typedef struct fm_cif_row {
    uint32_t start[FM_CIF_ABSENT + 1];
    uint32_t end[FM_CIF_ABSENT + 1];
} fm_cif_row;

static inline void fm_cif_row_init(fm_cif_row *row) {
    row->start[FM_CIF_ABSENT] = row->end[FM_CIF_ABSENT] = 0;
}
static inline fm_cif_view fm_cif_row_at(const fm_cif_row *row, uint32_t column) {
    return (fm_cif_view){row->start[column], row->end[column]};
}

/* Starts at the first byte, after a byte order mark. Returns FM_ERR_FORMAT for an empty file or a
 * control byte, and FM_ERR_LIMIT. With compat_openfold control bytes are accepted and bytes that
 * are not UTF-8 are refused. */
FM_MUST_USE fm_status fm_cif_init(fm_cif *cif, fm_bytes bytes, bool compat_openfold,
                                  fm_error *reterr);

/* Returns the next token; at the end, FM_CIF_END on every call. Returns FM_ERR_FORMAT for a quote
 * or text block that is not closed, and for text directly behind a text block. */
FM_MUST_USE fm_status fm_cif_next(fm_cif *cif, fm_cif_kind *ret_kind, fm_cif_view *ret_view,
                                  fm_error *reterr);

/* Returns the next row of a loop of n_column (1..FM_LIMIT_CIF_COLUMN) columns. *ret_n is n_column;
 * or 0 when the loop has ended, without consuming the token that ended it; or less than n_column
 * for a row cut short. Inside a row, a token with a leading underscore is a value. */
FM_MUST_USE fm_status fm_cif_next_row(fm_cif *cif, uint32_t n_column, fm_cif_row *row,
                                      uint32_t *ret_n, fm_error *reterr);

static inline const uint8_t *fm_cif_text(const fm_cif *cif, fm_cif_view view) {
    return cif->data + view.start;
}
static inline size_t fm_cif_size(fm_cif_view view) {
    return view.end - view.start;
}

/* Returns whether the bytes of a view equal `text`. */
bool fm_cif_equals(const fm_cif *cif, fm_cif_view view, const char *text);

/* Returns whether the value is '.' or '?', which means "not given". */
static inline bool fm_cif_is_unset(const fm_cif *cif, fm_cif_view view) {
    return view.end - view.start == 1 &&
           (cif->data[view.start] == '.' || cif->data[view.start] == '?');
}

/* Like fm_fail_at for the byte at `offset`: finds its line and column (from 1, in bytes). */
fm_status fm_cif_fail(const fm_cif *cif, fm_error *reterr, fm_status status, uint32_t offset,
                      const char *format, ...) FM_PRINTF(5, 6);
#define fm_cif_fail(cif, reterr, status, ...)                                                      \
    fm_failed(fm_cif_fail(cif, reterr, status, __VA_ARGS__), status)

#endif
