/* cif.h: the tokens of CIF 1.1 text, and the rows of its loops.
 *
 * CIF is a stream of tokens between white space: `data_NAME` opens a block, `_name value` is a
 * pair, `loop_ _name ... value ...` a table. A value is bare, stands between ' or " on one line
 * (the closing quote is followed by white space), or is a text block: from a ';' in column 1 to the
 * next line that starts with ';'. '#' where a token could start opens a comment. There is no
 * nesting, so nothing here recurses.
 *
 * Rows of loops are read fast: white space is found 64 bytes at a time, and a row whose tokens are
 * all bare is cut at those places. A row with anything else in it goes through the token reader.
 *
 * With compat_openfold the reader keeps the reference's reading (Biopython's MMCIF2Dict): no token
 * but loop_ is a keyword, quotes do not protect names, odd bytes are bytes.
 *
 * Memory: tokens are offsets into the caller's bytes, nothing is copied or allocated. */
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

/* Bytes start..end-1 of the input. Quotes and the semicolons of text blocks lie outside. */
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

/* One row's values; entries behind the row's columns are scratch, but the last: it is never
 * written, and an initialised row has an empty view there to stand for a column that is not. */
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

/* Starts at the first byte (behind a byte order mark). FM_ERR_FORMAT for an empty file or control
 * bytes; FM_ERR_LIMIT. With compat_openfold control bytes pass and what is not UTF-8 is refused. */
FM_MUST_USE fm_status fm_cif_init(fm_cif *cif, fm_bytes bytes, bool compat_openfold,
                                  fm_error *reterr);

/* The next token; FM_CIF_END again and again at the end. FM_ERR_FORMAT: a quote or text block that
 * does not end, text right behind a text block. */
FM_MUST_USE fm_status fm_cif_next(fm_cif *cif, fm_cif_kind *ret_kind, fm_cif_view *ret_view,
                                  fm_error *reterr);

/* The next row of a loop of n_column (1..FM_LIMIT_CIF_COLUMN) columns. *ret_n is n_column, or 0
 * when the loop has ended (what ended it is not consumed), or less for a row cut short. Inside a
 * row a token with a leading underscore is a value. */
FM_MUST_USE fm_status fm_cif_next_row(fm_cif *cif, uint32_t n_column, fm_cif_row *row,
                                      uint32_t *ret_n, fm_error *reterr);

static inline const uint8_t *fm_cif_text(const fm_cif *cif, fm_cif_view view) {
    return cif->data + view.start;
}
static inline size_t fm_cif_size(fm_cif_view view) {
    return view.end - view.start;
}

/* Whether the bytes of a view are those of `text`. */
bool fm_cif_equals(const fm_cif *cif, fm_cif_view view, const char *text);

/* Whether the value is '.' or '?': not given. */
static inline bool fm_cif_is_unset(const fm_cif *cif, fm_cif_view view) {
    return view.end - view.start == 1 &&
           (cif->data[view.start] == '.' || cif->data[view.start] == '?');
}

/* fm_fail_at for the byte at `offset`: finds its line and column (1-based, in bytes). */
fm_status fm_cif_fail(const fm_cif *cif, fm_error *reterr, fm_status status, uint32_t offset,
                      const char *format, ...) FM_PRINTF(5, 6);
#define fm_cif_fail(cif, reterr, status, ...)                                                      \
    fm_failed(fm_cif_fail(cif, reterr, status, __VA_ARGS__), status)

#endif
