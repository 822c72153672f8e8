/* cif_tables.c: see cif_tables.h. */
#include "featurizer/complex/cif_tables.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

typedef struct tables_reader {
    fm_cif *cif;
    fm_cif_table *tables;
    uint32_t n_table;
    fm_arena *arena;
    fm_error *reterr;
} tables_reader;

static int shown(fm_cif_view view) {
    return (int)(fm_cif_size(view) < 40 ? fm_cif_size(view) : 40);
}

/* Shows a table's category with "%.*s": its prefix without the point. */
#define CATEGORY(table) (int)(strlen((table)->prefix) - 1), (table)->prefix

/* Returns the table that the name belongs to and sets *ret_column; NULL for other names. */
static fm_cif_table *find_column(const tables_reader *reader, fm_cif_view name,
                                 uint32_t *ret_column) {
    const char *text = (const char *)fm_cif_text(reader->cif, name);
    size_t size = fm_cif_size(name);
    for (uint32_t i = 0; i < reader->n_table; i++) {
        fm_cif_table *table = &reader->tables[i];
        size_t prefix = strlen(table->prefix);
        if (size <= prefix || strncasecmp(text, table->prefix, prefix) != 0) continue;
        for (uint32_t k = 0; k < table->n_column; k++) {
            if (strlen(table->columns[k]) != size - prefix) continue;
            if (strncasecmp(text + prefix, table->columns[k], size - prefix) != 0) continue;
            *ret_column = k;
            return table;
        }
        return NULL;
    }
    return NULL;
}

static fm_status open_column(tables_reader *reader, fm_cif_table *table, uint32_t column,
                             fm_cif_view name) {
    if (fm_cif_table_has(table, column)) {
        return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, name.start,
                           "%.*s occurs a second time in its block", shown(name),
                           (const char *)fm_cif_text(reader->cif, name));
    }
    table->has |= UINT32_C(1) << column;
    return FM_OK;
}

static fm_status keep_row(tables_reader *reader, fm_cif_table *table, const fm_cif_row *row,
                          const uint32_t *at) {
    if (table->n_row == table->max_row) {
        if (table->n_row >= FM_LIMIT_N_POLY_RES) {
            return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_LIMIT, reader->cif->at,
                               "%.*s has more than %u rows", CATEGORY(table), FM_LIMIT_N_POLY_RES);
        }
        uint32_t max = table->max_row ? table->max_row * 2 : 16;
        size_t width = table->n_column * sizeof *table->values;
        fm_cif_view *values = fm_arena_alloc_array(reader->arena, max, width);
        if (!values) return fm_arena_full(reader->arena, reader->reterr);
        if (table->n_row) memcpy(values, table->values, table->n_row * width);
        table->values = values;
        table->max_row = max;
    }
    fm_cif_view *values = table->values + (size_t)table->n_row * table->n_column;
    for (uint32_t i = 0; i < table->n_column; i++)
        values[i] = fm_cif_row_at(row, at[i]);
    return FM_OK;
}

static fm_status take_row(tables_reader *reader, fm_cif_table *table, const fm_cif_row *row,
                          const uint32_t *at) {
    fm_status status = table->take_row ? table->take_row(table->context, row, at, reader->reterr)
                                       : keep_row(reader, table, row, at);
    if (!status) table->n_row++;
    return status;
}

/* -- loops */

typedef struct loop_shape {
    uint32_t at; /* offset of its loop_ */
    uint32_t n_column;
    fm_cif_table *table; /* NULL: not needed */
    uint32_t place[FM_CIF_TABLE_COLUMN];
} loop_shape;

static fm_status note_column(tables_reader *reader, loop_shape *loop, fm_cif_view name) {
    uint32_t column = 0;
    fm_cif_table *table = find_column(reader, name, &column);
    if (!table) return FM_OK;
    if (loop->table && loop->table != table) {
        return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, name.start,
                           "the loop has columns of %.*s and of %.*s", CATEGORY(loop->table),
                           CATEGORY(table));
    }
    loop->table = table;
    loop->place[column] = loop->n_column;
    return open_column(reader, table, column, name);
}

static fm_status read_loop_names(tables_reader *reader, loop_shape *loop, bool is_wanted) {
    for (uint32_t i = 0; i < FM_CIF_TABLE_COLUMN; i++)
        loop->place[i] = FM_CIF_ABSENT;
    for (;;) {
        uint32_t before = reader->cif->at;
        fm_cif_kind kind;
        fm_cif_view name;
        fm_status status = fm_cif_next(reader->cif, &kind, &name, reader->reterr);
        if (status) return status;
        if (kind != FM_CIF_NAME) {
            reader->cif->at = before;
            if (loop->n_column > 0) return FM_OK;
            return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, loop->at,
                               "found loop_ without data names");
        }
        if (loop->n_column == FM_LIMIT_CIF_COLUMN) {
            return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_LIMIT, name.start,
                               "the loop has more than %u columns", FM_LIMIT_CIF_COLUMN);
        }
        if (is_wanted) status = note_column(reader, loop, name);
        if (status) return status;
        loop->n_column++;
    }
}

static fm_status read_loop(tables_reader *reader, uint32_t at, bool is_wanted) {
    loop_shape loop = {.at = at};
    fm_status status = read_loop_names(reader, &loop, is_wanted);
    if (status) return status;
    fm_cif_row row;
    fm_cif_row_init(&row);
    for (;;) {
        uint32_t n;
        status = fm_cif_next_row(reader->cif, loop.n_column, &row, &n, reader->reterr);
        if (status || n == 0) return status;
        if (n < loop.n_column) {
            return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, row.start[0],
                               "the row of a loop ends after %u values, but the loop has %u "
                               "columns",
                               n, loop.n_column);
        }
        if (loop.table) status = take_row(reader, loop.table, &row, loop.place);
        if (status) return status;
    }
}

/* -- pairs */

static fm_status read_pair(tables_reader *reader, fm_cif_view name, bool is_wanted) {
    fm_cif_kind kind;
    fm_cif_view value;
    fm_status status = fm_cif_next(reader->cif, &kind, &value, reader->reterr);
    if (status) return status;
    if (kind != FM_CIF_VALUE) {
        return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, name.start,
                           "%.*s has no value", shown(name),
                           (const char *)fm_cif_text(reader->cif, name));
    }
    uint32_t column = 0;
    fm_cif_table *table = is_wanted ? find_column(reader, name, &column) : NULL;
    if (!table) return FM_OK;
    status = open_column(reader, table, column, name);
    table->single[column] = value;
    table->is_single = true;
    return status;
}

/* Takes the pairs of each category as its row, unless it has rows already. */
static fm_status take_pairs(tables_reader *reader) {
    fm_cif_row row;
    fm_cif_row_init(&row);
    for (uint32_t i = 0; i < reader->n_table; i++) {
        fm_cif_table *table = &reader->tables[i];
        if (!table->is_single || table->n_row > 0) continue;
        uint32_t place[FM_CIF_TABLE_COLUMN];
        for (uint32_t k = 0; k < table->n_column; k++) {
            place[k] = fm_cif_table_has(table, k) ? k : FM_CIF_ABSENT;
            row.start[k] = table->single[k].start;
            row.end[k] = table->single[k].end;
        }
        fm_status status = take_row(reader, table, &row, place);
        if (status) return status;
    }
    return FM_OK;
}

/* -- blocks */

static void forget_block(tables_reader *reader) {
    for (uint32_t i = 0; i < reader->n_table; i++) {
        fm_cif_table *table = &reader->tables[i];
        table->has = table->n_row = 0;
        table->is_single = false;
        memset(table->single, 0, sizeof table->single);
    }
}

/* Save frames do not belong to the block. */
static fm_status read_block(tables_reader *reader) {
    bool in_block = false, in_save = false;
    for (;;) {
        fm_cif_kind kind;
        fm_cif_view view;
        fm_status status = fm_cif_next(reader->cif, &kind, &view, reader->reterr);
        if (status) return status;
        if (!in_block && kind != FM_CIF_DATA) {
            return fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, view.start,
                               "expected data_ at the start of a CIF file");
        }
        switch (kind) {
        case FM_CIF_END: return FM_OK;
        case FM_CIF_DATA:
            if (reader->tables[0].n_row > 0 || reader->tables[0].is_single) return FM_OK;
            forget_block(reader);
            in_block = true;
            in_save = false;
            break;
        case FM_CIF_SAVE: in_save = fm_cif_size(view) > 5; break;
        case FM_CIF_LOOP: status = read_loop(reader, view.start, !in_save); break;
        case FM_CIF_NAME: status = read_pair(reader, view, !in_save); break;
        case FM_CIF_VALUE:
            status = fm_cif_fail(reader->cif, reader->reterr, FM_ERR_FORMAT, view.start,
                                 "found '%.*s', expected a data name", shown(view),
                                 (const char *)fm_cif_text(reader->cif, view));
        }
        if (status) return status;
    }
}

fm_status fm_cif_tables_read(fm_cif *cif, fm_cif_table *tables, uint32_t n_table, fm_arena *arena,
                             fm_error *reterr) {
    tables_reader reader = {cif, tables, n_table, arena, reterr};
    for (uint32_t i = 0; i < n_table; i++) {
        fm_cif_table *table = &tables[i];
        while (table->n_column < FM_CIF_TABLE_COLUMN && table->columns[table->n_column])
            table->n_column++;
        assert(table->n_column > 0);
    }
    fm_status status = read_block(&reader);
    return status ? status : take_pairs(&reader);
}
