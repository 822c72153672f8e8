/* match.h: the inner loops of the alignment parsers: they turn a row's text into match columns and
 * deletion counts.
 *
 *     A3M text      A C d e F - g G          a-z are deletions, every other byte is a match column
 *     letters       A C     F -   G
 *     deletion      0 0     2 0   1          counted before the column that follows them
 *
 * In Stockholm text the query decides: its letters are the match columns, and another row's letters
 * in the query's gaps are deletions. Text arrives in pieces, and fm_match_row holds the state of a
 * row between pieces.
 *
 * Each loop exists three times. The scalar one is written to be read. The one for AVX2
 * classifies 32 bytes at a time, and the one for AVX-512 with VBMI2 takes 64. All give the same
 * values for every input; tests/featurizer and the fuzzers compare them. The loops allocate
 * nothing and read no byte outside the stated ranges. They write only letters[0 .. n_col +
 * FM_MATCH_SLACK) and deletion[0 .. n_col). */
#ifndef FM_PARSE_MATCH_H
#define FM_PARSE_MATCH_H

#include "proto/base/bytes.h"

#include <stdbool.h>

/* Bytes behind a row's letters that a loop may overwrite. */
enum { FM_MATCH_SLACK = 32 };

/* The state of one row while it is read. */
typedef struct fm_match_row {
    uint8_t *letters;   /* [N_col] of this row */
    uint16_t *deletion; /* [N_col] of this row; the caller zeroes it */
    size_t n_col;       /* columns that fit */
    size_t at;          /* match columns seen so far; those past n_col are counted but not stored */
    uint64_t pending;   /* letters deleted since the last match column */
    /* Largest deletion count so far. The caller must refuse a row in which it exceeds a u16. */
    uint64_t max_deletion;
} fm_match_row;

/* Takes a piece of A3M text. The row owns `size` bytes at `text`; `readable` >= size bytes may be
 * read. Bytes equal to `padding` are ignored (0: no byte is padding). */
typedef void fm_match_a3m_fn(fm_match_row *row, const uint8_t *text, size_t size, size_t readable,
                             uint8_t padding);

/* The columns of a Stockholm alignment: bit k % 8 of byte k / 8 is set when the query has a letter
 * in column k. 8 zero bytes follow the last byte. */
typedef struct fm_match_columns {
    const uint8_t *keep;
    size_t n_column;
    bool plain; /* '.' is a gap too, and letters are stored in upper case, gaps as '-' */
} fm_match_columns;

/* Takes a piece of a Stockholm row: the bytes of columns [column, column + size), all below
 * n_column. */
typedef void fm_match_stockholm_fn(fm_match_row *row, const uint8_t *text, size_t size,
                                   size_t readable, const fm_match_columns *columns, size_t column);

typedef struct fm_match_kernel {
    const char *name;
    fm_match_a3m_fn *a3m;
    fm_match_stockholm_fn *stockholm;
} fm_match_kernel;

extern const fm_match_kernel fm_match_scalar, fm_match_avx2, fm_match_avx512;

/* All kernels, each faster than the one before it; NULL ends the list. Public so that tests compare
 * them. */
extern const fm_match_kernel *const fm_match_kernels[];

/* Returns whether this processor has the instructions of a kernel. */
bool fm_match_runs(const fm_match_kernel *kernel);

/* Returns the fastest kernel that this processor runs. */
const fm_match_kernel *fm_match_best(void);

#endif
