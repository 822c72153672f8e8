/* stockholm_rows.h: gathers the rows of a Stockholm text; for stockholm.c and hmmsearch.c only.
 *
 * A line is a name and a piece of that row, unless it is blank, a comment ('#') or "//". The reader
 * returns pieces in the text's order. The table gathers them into rows, in order of first
 * appearance, each with a linked list of its pieces. The table is in the caller's arena and takes
 * about 40 bytes per line; the text must outlive it. */
#ifndef FM_PARSE_STOCKHOLM_ROWS_H
#define FM_PARSE_STOCKHOLM_ROWS_H

#include "featurizer/parse/alignment.h"
#include "featurizer/parse/lines.h"

#include <stdbool.h>
#include <string.h>

/* One line's piece of a row: offsets into the text and lengths, in bytes. */
typedef struct fm_stockholm_piece {
    size_t name, name_bytes, begin, size;
    size_t start; /* offset of the line */
    uint64_t line;
} fm_stockholm_piece;

typedef struct fm_stockholm_pieces {
    fm_bytes text;
    fm_lines lines;
    bool compat; /* Python's line ends; "//" is a comment, not the end */
    bool headed; /* the head line was seen, "# STOCKHOLM" */
    bool ended;  /* a "//" was seen */
} fm_stockholm_pieces;

fm_stockholm_pieces fm_stockholm_pieces_of(fm_bytes text, bool compat);

/* Returns the next piece; *ret_found is false after the last. Returns FM_ERR_FORMAT for a line that
 * is not a name and a sequence, and FM_ERR_UNSUPPORTED for a second alignment, both with the
 * place. Except with compat, a text with the head line that ends without "//" was cut off:
 * FM_ERR_FORMAT. */
FM_MUST_USE fm_status fm_stockholm_pieces_next(fm_stockholm_pieces *pieces,
                                               fm_stockholm_piece *ret_piece, bool *ret_found,
                                               fm_error *reterr);

static inline bool fm_stockholm_same_name(fm_bytes text, const fm_stockholm_piece *piece,
                                          size_t name, size_t name_bytes) {
    return piece->name_bytes == name_bytes &&
           memcmp(text.data + piece->name, text.data + name, name_bytes) == 0;
}

#define FM_STOCKHOLM_NONE UINT32_MAX

/* A piece in its row's list. */
typedef struct fm_stockholm_link {
    uint32_t begin, size, next; /* next: a link, or FM_STOCKHOLM_NONE */
} fm_stockholm_link;

typedef struct fm_stockholm_row {
    fm_alignment_row place;
    uint32_t first, last; /* indices of links */
    uint64_t n_column;
} fm_stockholm_row;

typedef struct fm_stockholm_rows {
    fm_stockholm_link *links;
    fm_stockholm_row *rows;
    uint32_t *slots; /* open addressing: row + 1, 0 = free */
    size_t n_link, n_row, mask;
    uint32_t expected; /* the row after the last piece's, as blocks repeat the order of rows */
    bool headed;       /* the text has the head line */
} fm_stockholm_rows;

/* Reads all rows of a text of at most FM_LIMIT_INPUT_BYTES. Returns the reader's errors, and
 * FM_ERR_LIMIT for a larger text or a full arena. */
FM_MUST_USE fm_status fm_stockholm_rows_read(fm_bytes text, bool compat, fm_arena *arena,
                                             fm_stockholm_rows *ret_rows, fm_error *reterr);

/* Returns the row of that name, or FM_STOCKHOLM_NONE. */
uint32_t fm_stockholm_rows_find(const fm_stockholm_rows *rows, fm_bytes text, size_t name,
                                size_t name_bytes);

#endif
