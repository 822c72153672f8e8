/* alignment.h: what the alignment parsers give: rows of match columns, with deletions and places.
 *
 *     letters   [N_seq, N_col]   the bytes of the match columns, as they stand in the file
 *     deletion  [N_seq, N_col]   letters deleted before each of them
 *     row       [N_seq]          where each row stands in its text
 *
 * An alignment is made for a number of columns and a largest number of rows, in the caller's arena;
 * parsers append to it, so the rows of several files of one chain lie one after the other without a
 * copy. The arrays are address space until rows are written. Every row of a text has N_col letters
 * there, which bounds the rows by the text's size before anything is read. */
#ifndef FM_PARSE_ALIGNMENT_H
#define FM_PARSE_ALIGNMENT_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"

/* A row's place. Offsets are into the text it was parsed from (below 4 GiB by
 * FM_LIMIT_INPUT_BYTES).
 */
typedef struct fm_alignment_row {
    uint32_t description, description_bytes; /* A3M: the line after '>'; Stockholm: the name */
    uint32_t sequence; /* offset of the first line of its sequence (or of its '>' line) */
    uint32_t line;     /* number of that line, from 1 */
} fm_alignment_row;

typedef struct fm_alignment {
    uint32_t n_seq, n_col;
    uint32_t max_seq;
    uint8_t *letters;      /* [N_seq, N_col], FM_MATCH_SLACK bytes behind the last row's room */
    uint16_t *deletion;    /* [N_seq, N_col] */
    fm_alignment_row *row; /* [N_seq] */
} fm_alignment;

/* Rows of n_col columns that can stand in a text of text_bytes, an unfinished one included. */
size_t fm_alignment_max_rows(size_t text_bytes, size_t n_col);

/* An empty alignment with room for max_seq rows. FM_ERR_LIMIT when the arena has not enough:
 * 16 + 3 * N_col bytes a row, which is 3 times the text for long rows, 3.5 times at 30 columns and
 * 10 times at one. */
FM_MUST_USE fm_status fm_alignment_init(fm_alignment *alignment, fm_arena *arena, size_t n_col,
                                        size_t max_seq, fm_error *reterr);

/* The place of a byte of a text, for messages. */
typedef struct fm_text_place {
    uint64_t line, column, offset;
} fm_text_place;

#endif
