/* alignment.h: the output of the alignment parsers: rows of match columns, with deletions and
 * places in the text.
 *
 *     letters   [N_seq, N_col]   the bytes of the match columns, as in the file
 *     deletion  [N_seq, N_col]   number of letters deleted before each of them
 *     row       [N_seq]          where each row is in its text
 *
 * An alignment is created in the caller's arena for a number of columns and a largest number of
 * rows. Parsers append to it, so the rows of several files of one chain follow each other without a
 * copy. The arrays are only address space until rows are written. Every row has N_col letters in
 * its text, so the text's size bounds the number of rows before anything is read. */
#ifndef FM_PARSE_ALIGNMENT_H
#define FM_PARSE_ALIGNMENT_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

/* The place of a row. Offsets are into the text it was parsed from, which is below 4 GiB by
 * FM_LIMIT_INPUT_BYTES. */
typedef struct fm_alignment_row {
    uint32_t description, description_bytes; /* A3M: the line after '>'; Stockholm: the name */
    uint32_t sequence; /* offset of the first line of its sequence, or of its '>' line */
    uint32_t line;     /* number of that line, from 1 */
} fm_alignment_row;

typedef struct fm_alignment {
    uint32_t n_seq, n_col;
    uint32_t max_seq;
    uint8_t *letters;      /* [N_seq, N_col], then FM_MATCH_SLACK spare bytes */
    uint16_t *deletion;    /* [N_seq, N_col] */
    fm_alignment_row *row; /* [N_seq] */
} fm_alignment;

/* Returns the largest number of rows of n_col columns that a text of text_bytes can hold, including
 * an unfinished one. */
size_t fm_alignment_max_rows(size_t text_bytes, size_t n_col);

/* Creates an empty alignment with room for max_seq rows. It takes 16 + 3 * N_col bytes per row.
 * That is 3 times the text for long rows, 3.5 times for rows of 30 columns, and 10 times for
 * rows of one. Returns FM_ERR_LIMIT when the arena has less. */
FM_MUST_USE fm_status fm_alignment_init(fm_alignment *alignment, fm_arena *arena, size_t n_col,
                                        size_t max_seq, fm_error *reterr);

/* The place of a byte in a text, for error messages: line and column from 1. */
typedef struct fm_text_place {
    uint64_t line, column, offset;
} fm_text_place;

#endif
