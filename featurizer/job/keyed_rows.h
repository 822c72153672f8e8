/* keyed_rows.h: alignments as tables of keys and sequences, as Boltz reads them:
 *
 *     key,sequence
 *     0,MKV
 *     7,MRV          rows of several chains with one key are paired
 *     -1,M-V         -1 or nothing: not paired
 *
 * The first row is the chain's own sequence, whatever its key is. */
#ifndef FM_JOB_KEYED_ROWS_H
#define FM_JOB_KEYED_ROWS_H

#include "proto/base/arena.h"
#include "proto/base/bytes.h"
#include "proto/base/status.h"

#include <stdbool.h>

/* Where the sequence of a row of an A3M text is in the table. */
typedef struct fm_keyed_place {
    uint64_t line, column, offset;
} fm_keyed_place;

/* Rows as A3M text, two lines each, and the first row is the chain's sequence. Keys stand where
 * UniRef's names have the species. */
typedef struct fm_keyed_text {
    fm_bytes a3m;
    const fm_keyed_place *places; /* [rows] */
    uint64_t n_row;
} fm_keyed_text;

typedef struct fm_keyed_rows {
    fm_keyed_text paired, unpaired;
} fm_keyed_rows;

/* Whether the name of a file ends in .csv, ignoring the ending of a compression. */
bool fm_keyed_rows_is_name(const char *file);

/* Splits a table into rows with and without a key. Everything is in the arena. Returns
 * FM_ERR_FORMAT with line and column, and FM_ERR_LIMIT when the arena is full. */
FM_MUST_USE fm_status fm_keyed_rows_split(fm_bytes table, fm_arena *arena, fm_keyed_rows *ret_rows,
                                          fm_error *reterr);

/* Moves an error in lines of such an A3M text to its place in the table. */
void fm_keyed_text_relocate(const fm_keyed_text *text, fm_error *error);

#endif
