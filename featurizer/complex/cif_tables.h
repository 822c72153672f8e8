/* cif_tables.h: reads chosen categories of a CIF file into tables of values.
 *
 * The caller names the categories and the columns that it needs. Small categories are kept whole;
 * a large one may be handed over row by row instead. A category may be a loop, or pairs, which are
 * one row. All other categories are checked for their form and skipped. */
#ifndef FM_COMPLEX_CIF_TABLES_H
#define FM_COMPLEX_CIF_TABLES_H

#include "featurizer/parse/cif.h"
#include "proto/base/arena.h"

enum { FM_CIF_TABLE_COLUMN = 24 };

/* Takes one row: the value of column i is fm_cif_row_at(row, at[i]), an empty view where the file
 * does not have the column. */
typedef fm_status fm_cif_take_row(void *context, const fm_cif_row *row, const uint32_t *at,
                                  fm_error *reterr);

typedef struct fm_cif_table {
    const char *prefix;                       /* "_atom_site." */
    const char *columns[FM_CIF_TABLE_COLUMN]; /* names without the prefix, NULL behind the last */
    fm_cif_take_row *take_row;                /* NULL: the rows are kept in `values` */
    void *context;                            /* for take_row */

    uint32_t n_column;   /* of `columns` */
    uint32_t has;        /* bit i: the file has column i */
    uint32_t n_row;      /* rows that were kept or handed over */
    uint32_t max_row;    /* for which `values` has room */
    fm_cif_view *values; /* [n_row, n_column]; start == end where the file lacks the column */
    fm_cif_view single[FM_CIF_TABLE_COLUMN]; /* values of pairs, until the block's end */
    bool is_single;
} fm_cif_table;

static inline fm_cif_view fm_cif_table_at(const fm_cif_table *table, uint32_t row,
                                          uint32_t column) {
    return table->values[(size_t)row * table->n_column + column];
}
static inline bool fm_cif_table_has(const fm_cif_table *table, uint32_t column) {
    return table->has >> column & 1;
}

/* Reads the first data block in which tables[0] has rows. The tables' fields up to `context` are
 * the caller's, and the others are zero. Returns FM_ERR_FORMAT for text that is not valid CIF and
 * for a column that comes twice, FM_ERR_LIMIT, and what take_row returns. Without such a block
 * tables[0].n_row stays 0. */
FM_MUST_USE fm_status fm_cif_tables_read(fm_cif *cif, fm_cif_table *tables, uint32_t n_table,
                                         fm_arena *arena, fm_error *reterr);

#endif
