/* match.h: the inner loops of the alignment parsers: text of a row in, its match columns and
 * deletion counts out.
 *
 *     A3M text      A C d e F - g G          a-z are deletions, every other byte a match column
 *     letters       A C     F -   G
 *     deletion      0 0     2 0   1          counted before the column that follows them
 *
 * In Stockholm text the query decides: its own letters are the match columns, and another row's
 * letters in the query's gaps are deletions. Text comes in pieces, a row's state is the cursor.
 *
 * Each loop exists twice: plain, written to be read and the oracle of the other, and for AVX2,
 * which classifies 32 bytes at a time. They give the same values for every input (tests/featurizer
 * and the fuzzers hold them together). Nothing is allocated; no byte outside the stated ranges is
 * read, and only letters[0 .. n_col + FM_MATCH_SLACK) and deletion[0 .. n_col) are written. */
#ifndef FM_PARSE_MATCH_H
#define FM_PARSE_MATCH_H

#include "proto/base/bytes.h"

#include <stdbool.h>

/* Bytes behind a row's letters that a loop may overwrite. */
enum { FM_MATCH_SLACK = 32 };

/* One row being read. */
typedef struct fm_match_row {
    uint8_t *letters;   /* [N_col] of this row */
    uint16_t *deletion; /* [N_col] of this row, zero where nothing is to be counted */
    size_t n_col;       /* columns there is room for */
    size_t at;          /* match columns seen; those past n_col are counted, not stored */
    uint64_t pending;   /* letters deleted since the last match column */
    uint64_t
        max_deletion; /* largest count so far: more than a u16 holds is the caller's to refuse */
} fm_match_row;

/* A piece of A3M text. `text` has `size` bytes of the row; `readable` >= size bytes may be read.
 * Bytes equal to `padding` stand for nothing (0 = there are none such). */
typedef void fm_match_a3m_fn(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                             uint8_t padding);

/* The columns of a Stockholm alignment: bit k % 8 of byte k / 8 is set when the query has a letter
 * in column k. 8 zero bytes follow the last. */
typedef struct fm_match_columns {
    const uint8_t *keep;
    size_t n_column;
    bool plain; /* '.' is a gap too, and stored letters become upper case and '-' */
} fm_match_columns;

/* A piece of a Stockholm row: the bytes of columns [column, column + size), all below n_column. */
typedef void fm_match_stockholm_fn(fm_match_row *row, const uint8_t *text, size_t size,
                                   size_t readable, const fm_match_columns *columns, size_t column);

typedef struct fm_match_kernel {
    const char *name;
    fm_match_a3m_fn *a3m;
    fm_match_stockholm_fn *stockholm;
} fm_match_kernel;

extern const fm_match_kernel fm_match_scalar, fm_match_avx2;

/* The fastest that this processor runs. */
const fm_match_kernel *fm_match_best(void);

#endif
