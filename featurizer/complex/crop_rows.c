/* crop_rows.c: reads a table of recorded crops; see crop_rows.h. */
#include "featurizer/complex/crop_rows.h"

#include "featurizer/parse/decimal.h"
#include "featurizer/parse/lines.h"
#include "proto/limits.h"

#include <assert.h>
#include <string.h>

enum { N_COLUMN = 8, DRAW_VALUES = 4 };

static const char *const column_names[N_COLUMN] = {"id",       "crop",        "method",   "size",
                                                   "complete", "ref_asym_id", "n_tokens", "draws"};

typedef struct rows_reader {
    fm_bytes text;
    fm_arena *arena;
    fm_error *reterr;
    fm_line line;
    size_t begin[N_COLUMN], end[N_COLUMN]; /* of the values of the line */
} rows_reader;

static fm_status fail_at(const rows_reader *reader, size_t at, const char *what, size_t size,
                         const char *expected) {
    return fm_fail_at(reader->reterr, FM_ERR_FORMAT, reader->line.number,
                      at - reader->line.start + 1, at, "%s is '%.*s', expected %s", what,
                      (int)(size < 40 ? size : 40), (const char *)reader->text.data + at, expected);
}

static fm_status cut_columns(rows_reader *reader) {
    size_t at = reader->line.start;
    for (int i = 0; i < N_COLUMN; i++) {
        size_t left = reader->line.stop - at;
        const uint8_t *tab = left ? memchr(reader->text.data + at, '\t', left) : NULL;
        reader->begin[i] = at;
        reader->end[i] = tab ? (size_t)(tab - reader->text.data) : reader->line.stop;
        if (!tab != (i == N_COLUMN - 1)) {
            return fm_fail_at(reader->reterr, FM_ERR_FORMAT, reader->line.number, 1,
                              reader->line.start, "a row of %s %d values, expected %d",
                              tab ? "more than" : "only", tab ? N_COLUMN : i + 1, N_COLUMN);
        }
        at = reader->end[i] + 1;
    }
    return FM_OK;
}

static fm_status read_number(const rows_reader *reader, int column, size_t begin, size_t end,
                             int32_t least, int32_t *ret_value) {
    int32_t value;
    if (fm_integer_parse(reader->text.data + begin, end - begin, &value) && value >= least) {
        *ret_value = value;
        return FM_OK;
    }
    return fail_at(reader, begin, column_names[column], end - begin,
                   least == 1   ? "a number of at least 1"
                   : least == 0 ? "a number of at least 0"
                                : "a whole number");
}

static fm_status read_column(const rows_reader *reader, int column, int32_t least,
                             int32_t *ret_value) {
    return read_number(reader, column, reader->begin[column], reader->end[column], least,
                       ret_value);
}

/* Returns the end of the value of a list that starts at `at`: the next separator or the end. */
static size_t value_end(const rows_reader *reader, size_t at, size_t end) {
    while (at < end && reader->text.data[at] != ',' && reader->text.data[at] != ';')
        at++;
    return at;
}

static uint32_t count_values(const rows_reader *reader, int column) {
    uint32_t n = reader->begin[column] < reader->end[column];
    for (size_t at = reader->begin[column]; at < reader->end[column]; at++)
        n += reader->text.data[at] == ',' || reader->text.data[at] == ';';
    return n;
}

/* Reads the values of a list column into out[n]. A semicolon must come after every fourth value
 * and nowhere else. */
static fm_status read_list(const rows_reader *reader, int column, uint32_t n, int32_t least,
                           int32_t *out) {
    size_t at = reader->begin[column], end = reader->end[column];
    for (uint32_t i = 0; i < n; i++) {
        size_t stop = value_end(reader, at, end);
        fm_status status = read_number(reader, column, at, stop, least, &out[i]);
        if (status) return status;
        bool is_last = (i + 1) % DRAW_VALUES == 0;
        if (stop < end && reader->text.data[stop] != (is_last ? ';' : ',')) {
            return fail_at(reader, stop, "a separator", 1, is_last ? "';'" : "','");
        }
        at = stop + 1;
    }
    return FM_OK;
}

static fm_status read_references(const rows_reader *reader, fm_crop_request *request) {
    enum { COLUMN = 5 };
    uint32_t n = count_values(reader, COLUMN);
    if (n > 2) {
        return fail_at(reader, reader->begin[COLUMN], column_names[COLUMN],
                       reader->end[COLUMN] - reader->begin[COLUMN], "at most two chains");
    }
    request->n_reference = n;
    return read_list(reader, COLUMN, n, 0, request->reference);
}

static fm_status read_draws(const rows_reader *reader, fm_crop_row *row) {
    enum { COLUMN = 7 };
    static_assert(sizeof(fm_crop_draw) == DRAW_VALUES * sizeof(int32_t), "four values in order");
    uint32_t n = count_values(reader, COLUMN);
    if (n % DRAW_VALUES) {
        return fail_at(reader, reader->begin[COLUMN], column_names[COLUMN],
                       reader->end[COLUMN] - reader->begin[COLUMN],
                       "kind,low,high,value of each draw");
    }
    int32_t *values = fm_arena_alloc_array(reader->arena, n, sizeof *values);
    if (!values) return fm_arena_full(reader->arena, reader->reterr);
    fm_status status = read_list(reader, COLUMN, n, INT32_MIN, values);
    if (status) return status;
    row->n_draw = n / DRAW_VALUES;
    fm_crop_draw *draws = fm_arena_alloc_array(reader->arena, row->n_draw, sizeof *draws);
    if (!draws) return fm_arena_full(reader->arena, reader->reterr);
    for (uint32_t i = 0; i < row->n_draw; i++) {
        const int32_t *v = values + (size_t)i * DRAW_VALUES;
        draws[i] = (fm_crop_draw){.kind = v[0], .low = v[1], .high = v[2], .value = v[3]};
    }
    row->draws = draws;
    return FM_OK;
}

static fm_status read_row(rows_reader *reader, fm_crop_row *row) {
    int32_t crop = 0, method = 0, size = 0, is_complete = 0, n_token = 0;
    fm_status status = cut_columns(reader);
    if (status) return status;
    size_t id_bytes = reader->end[0] - reader->begin[0];
    if (id_bytes == 0 || id_bytes >= sizeof row->id) {
        return fail_at(reader, reader->begin[0], "id", id_bytes, "1 to 31 letters");
    }
    memset(row, 0, sizeof *row);
    memcpy(row->id, reader->text.data + reader->begin[0], id_bytes);
    status = read_column(reader, 1, 0, &crop);
    if (!status && (uint32_t)crop >= FM_LIMIT_N_CROP_ROW) {
        status = fail_at(reader, reader->begin[1], column_names[1],
                         reader->end[1] - reader->begin[1], "a number below 65536");
    }
    if (!status) status = read_column(reader, 2, 0, &method);
    if (!status && method >= FM_N_CROP_METHOD) {
        status = fail_at(reader, reader->begin[2], column_names[2],
                         reader->end[2] - reader->begin[2], "0, 1 or 2");
    }
    if (!status) status = read_column(reader, 3, 1, &size);
    if (!status) status = read_column(reader, 4, 0, &is_complete);
    if (!status && is_complete > 1) {
        status = fail_at(reader, reader->begin[4], column_names[4],
                         reader->end[4] - reader->begin[4], "0 or 1");
    }
    if (!status) status = read_references(reader, &row->request);
    if (!status) status = read_column(reader, 6, 0, &n_token);
    if (!status) status = read_draws(reader, row);
    row->crop = (uint32_t)crop;
    row->request.method = (fm_crop_method)method;
    row->request.size = (uint32_t)size;
    row->request.is_complete = is_complete != 0;
    row->n_token = (uint32_t)n_token;
    row->line = reader->line.number;
    return status;
}

static uint32_t count_lines(fm_bytes text) {
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    uint32_t n = 0;
    while (n <= FM_LIMIT_N_CROP_ROW && fm_lines_next(&lines, &line))
        n++;
    return n;
}

fm_status fm_crop_rows_parse(fm_bytes text, fm_arena *arena, const fm_crop_row **ret_rows,
                             uint32_t *ret_n, fm_error *reterr) {
    rows_reader reader = {.text = text, .arena = arena, .reterr = reterr};
    uint32_t n = 0, n_line = count_lines(text);
    if (n_line > FM_LIMIT_N_CROP_ROW) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the table has more than %u rows",
                       FM_LIMIT_N_CROP_ROW);
    }
    fm_crop_row *rows = fm_arena_alloc_array(arena, n_line, sizeof *rows);
    if (!rows) return fm_arena_full(arena, reterr);
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    while (fm_lines_next(&lines, &reader.line)) {
        size_t bytes = reader.line.stop - reader.line.start;
        if (reader.line.begin == reader.line.end) continue;
        bool is_head = reader.line.number == 1 && bytes >= 3 &&
                       memcmp(text.data + reader.line.start, "id\t", 3) == 0;
        if (is_head) continue;
        fm_status status = read_row(&reader, &rows[n]);
        if (status) return status;
        n++;
    }
    *ret_rows = rows;
    *ret_n = n;
    return FM_OK;
}

fm_status fm_crop_row_replay(const fm_crop_row *row, const fm_assembly *assembly, fm_arena *arena,
                             fm_complex_crop *ret_crop, fm_error *reterr) {
    fm_crop_replay replay = {.draws = row->draws, .n = row->n_draw};
    fm_draws draws = fm_crop_replay_draws(&replay);
    fm_complex_crop crop = {0};
    fm_error why = {0};
    fm_status status = fm_complex_crop_make(assembly, &row->request, &draws, arena, &crop, &why);
    if (status && status != FM_ERR_DATA) {
        if (reterr) *reterr = why;
        return status;
    }
    if (!fm_crop_replay_is_whole(&replay)) {
        return fm_fail_at(reterr, FM_ERR_DATA, row->line, 0, 0,
                          "crop %u of %s asks for other draws than the %u recorded ones, from draw "
                          "%u on",
                          row->crop, row->id, row->n_draw, replay.at + 1);
    }
    if (status) return fm_fail_at(reterr, FM_ERR_DATA, row->line, 0, 0, "%s", why.message);
    if (crop.n_token != row->n_token && assembly->n_token != row->n_token) {
        return fm_fail_at(reterr, FM_ERR_DATA, row->line, 0, 0,
                          "crop %u of %s has %u tokens, expected %u", row->crop, row->id,
                          crop.n_token, row->n_token);
    }
    *ret_crop = crop;
    return FM_OK;
}
