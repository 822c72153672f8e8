/* stockholm.c: see stockholm.h.
 *
 * A row's text is scattered over the file's blocks. The first pass (stockholm_rows.h) lists every
 * piece and links it to its row. The query's pieces then say which columns are match columns:
 * mark_columns() stores one bit per column. The second pass takes the rows in order of first
 * appearance and feeds each row's pieces, with these bits, to the kernel (match.h). */
#include "featurizer/parse/stockholm.h"

#include "featurizer/parse/stockholm_rows.h"
#include "proto/limits.h"

#include <string.h>

static bool is_compat(const fm_stockholm_options *options) {
    return options && options->compat_openfold;
}

static bool is_gap(uint8_t c, bool compat) {
    return c == '-' || (!compat && c == '.');
}

static fm_status check_text(fm_bytes text, bool compat, fm_error *reterr) {
    if (text.size > FM_LIMIT_INPUT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the text has %zu bytes, the limit is %zu", text.size,
                       FM_LIMIT_INPUT_BYTES);
    }
    return compat ? fm_text_check_utf8(text, reterr) : fm_text_check_kind(text, reterr);
}

static size_t count_letters(fm_bytes text, size_t begin, size_t size, bool compat) {
    size_t n = 0;
    for (size_t i = begin; i < begin + size; i++)
        n += !is_gap(text.data[i], compat);
    return n;
}

static fm_status fail_empty(fm_error *reterr) {
    return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                      "the alignment has no sequences, expected at least one");
}

static fm_status check_query(const fm_alignment_row *query, bool compat, size_t n_col,
                             fm_error *reterr) {
    if (n_col == 0 && !compat) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, query->line, 1, query->sequence,
                          "the query (row 0) has no residues");
    }
    if (n_col > FM_LIMIT_N_RES) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, query->line, 1, query->sequence,
                          "the query has %zu match columns, the limit is %u", n_col,
                          FM_LIMIT_N_RES);
    }
    return FM_OK;
}

fm_status fm_stockholm_measure(fm_bytes text, const fm_stockholm_options *options,
                               size_t *ret_n_col, fm_error *reterr) {
    fm_stockholm_pieces reader = fm_stockholm_pieces_of(text, is_compat(options));
    fm_stockholm_piece next, first = {0};
    bool found, any = false;
    size_t n_col = 0;
    fm_status status = check_text(text, reader.compat, reterr);
    while (!status && !(status = fm_stockholm_pieces_next(&reader, &next, &found, reterr)) &&
           found) {
        if (!any) first = next;
        any = true;
        if (!fm_stockholm_same_name(text, &next, first.name, first.name_bytes)) continue;
        n_col += count_letters(text, next.begin, next.size, reader.compat);
    }
    if (status) return status;
    if (!any) return fail_empty(reterr);
    fm_alignment_row query = {.sequence = (uint32_t)first.start, .line = (uint32_t)first.line};
    status = check_query(&query, reader.compat, n_col, reterr);
    if (!status) *ret_n_col = n_col;
    return status;
}

/* Counts the query's match columns and checks that the alignment has as many. */
static fm_status check_columns(const fm_stockholm_rows *index, fm_bytes text, bool compat,
                               const fm_alignment *alignment, fm_error *reterr) {
    if (index->n_row == 0) return fail_empty(reterr);
    const fm_stockholm_row *query = &index->rows[0];
    size_t n_col = 0;
    for (uint32_t at = query->first; at != FM_STOCKHOLM_NONE; at = index->links[at].next)
        n_col += count_letters(text, index->links[at].begin, index->links[at].size, compat);
    fm_status status = check_query(&query->place, compat, n_col, reterr);
    if (status || n_col == alignment->n_col) return status;
    return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                      "row 0 has %zu match column%s, the query has %u; the alignment is of another "
                      "sequence",
                      n_col, n_col == 1 ? "" : "s", alignment->n_col);
}

/* Writes the query's match columns as a bit set. */
static fm_status mark_columns(const fm_stockholm_rows *index, fm_bytes text, bool compat,
                              fm_arena *arena, fm_match_columns *ret_columns, fm_error *reterr) {
    const fm_stockholm_row *query = &index->rows[0];
    uint8_t *keep = fm_arena_calloc(arena, query->n_column / 8 + 16, 1);
    if (!keep) return fm_arena_full(arena, reterr);
    size_t column = 0;
    for (uint32_t at = query->first; at != FM_STOCKHOLM_NONE; at = index->links[at].next) {
        const fm_stockholm_link *link = &index->links[at];
        for (size_t i = 0; i < link->size; i++, column++) {
            if (is_gap(text.data[link->begin + i], compat)) continue;
            keep[column / 8] = (uint8_t)(keep[column / 8] | 1u << column % 8);
        }
    }
    *ret_columns = (fm_match_columns){keep, column, !compat};
    return FM_OK;
}

/* Returns the number of the query's columns up to its last match column. */
static size_t needed_columns(const fm_match_columns *columns) {
    size_t n = columns->n_column;
    while (n > 0 && !(columns->keep[(n - 1) / 8] >> (n - 1) % 8 & 1))
        n--;
    return n;
}

static fm_status append_row(const fm_stockholm_rows *index, size_t at, fm_bytes text,
                            const fm_match_columns *columns, const fm_match_kernel *kernel,
                            fm_alignment *alignment, fm_error *reterr) {
    const fm_stockholm_row *entry = &index->rows[at];
    size_t base = (size_t)alignment->n_seq * alignment->n_col, column = 0;
    fm_match_row row = {.letters = alignment->letters + base,
                        .deletion = alignment->deletion + base,
                        .n_col = alignment->n_col};
    memset(row.deletion, 0, row.n_col * sizeof *row.deletion);
    for (uint32_t i = entry->first; i != FM_STOCKHOLM_NONE && column < columns->n_column;
         i = index->links[i].next) {
        const fm_stockholm_link *link = &index->links[i];
        size_t size = link->size, room = columns->n_column - column;
        if (size > room) size = room;
        kernel->stockholm(&row, text.data + link->begin, size, text.size - link->begin, columns,
                          column);
        column += size;
    }
    if (row.max_deletion > FM_LIMIT_DELETION) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, entry->place.line, 1, entry->place.sequence,
                          "row %zu has %zu deletions before one column, the limit is %u", at,
                          (size_t)row.max_deletion, FM_LIMIT_DELETION);
    }
    alignment->row[alignment->n_seq++] = entry->place;
    return FM_OK;
}

static fm_status append_rows(const fm_stockholm_rows *index, fm_bytes text,
                             const fm_stockholm_options *options, const fm_match_columns *columns,
                             fm_alignment *alignment, fm_error *reterr) {
    bool compat = is_compat(options);
    const fm_match_kernel *kernel = options && options->kernel ? options->kernel : fm_match_best();
    size_t least = compat ? needed_columns(columns) : columns->n_column;
    size_t most = compat ? SIZE_MAX : columns->n_column;
    for (size_t i = 0; i < index->n_row; i++) {
        const fm_stockholm_row *row = &index->rows[i];
        if (row->n_column < least || row->n_column > most) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, row->place.line, 1, row->place.sequence,
                              "row %zu has %zu column%s, the query has %zu", i,
                              (size_t)row->n_column, row->n_column == 1 ? "" : "s",
                              columns->n_column);
        }
        if (alignment->n_seq >= alignment->max_seq) {
            return fm_fail_at(reterr, FM_ERR_LIMIT, row->place.line, 1, row->place.sequence,
                              "the alignment has more rows than the %u that fit",
                              alignment->max_seq);
        }
        fm_status status = append_row(index, i, text, columns, kernel, alignment, reterr);
        if (status) return status;
    }
    return FM_OK;
}

fm_status fm_stockholm_append(fm_bytes text, const fm_stockholm_options *options, fm_arena *arena,
                              fm_alignment *alignment, fm_error *reterr) {
    size_t mark = fm_arena_mark(arena);
    fm_stockholm_rows index;
    fm_match_columns columns;
    bool compat = is_compat(options);
    fm_status status = check_text(text, compat, reterr);
    if (!status) status = fm_stockholm_rows_read(text, compat, arena, &index, reterr);
    if (!status) status = check_columns(&index, text, compat, alignment, reterr);
    if (!status) status = mark_columns(&index, text, compat, arena, &columns, reterr);
    if (!status) status = append_rows(&index, text, options, &columns, alignment, reterr);
    fm_arena_rewind(arena, mark);
    return status;
}

fm_status fm_stockholm_parse(fm_bytes text, const fm_stockholm_options *options, fm_arena *arena,
                             fm_alignment *ret_alignment, fm_error *reterr) {
    size_t n_col, mark = fm_arena_mark(arena);
    fm_alignment alignment;
    fm_status status = fm_stockholm_measure(text, options, &n_col, reterr);
    if (status) return status;
    status = fm_alignment_init(&alignment, arena, n_col, fm_alignment_max_rows(text.size, n_col),
                               reterr);
    if (!status) status = fm_stockholm_append(text, options, arena, &alignment, reterr);
    if (status) {
        fm_arena_rewind(arena, mark);
        return status;
    }
    *ret_alignment = alignment;
    return FM_OK;
}

/* Returns the alignment's column that is match column `column`. */
static size_t absolute_column(fm_bytes text, const fm_stockholm_options *options, size_t column) {
    fm_stockholm_pieces reader = fm_stockholm_pieces_of(text, is_compat(options));
    fm_stockholm_piece next, first = {0};
    bool found, any = false;
    size_t at = 0;
    while (!fm_stockholm_pieces_next(&reader, &next, &found, NULL) && found) {
        if (!any) first = next;
        any = true;
        if (!fm_stockholm_same_name(text, &next, first.name, first.name_bytes)) continue;
        for (size_t i = 0; i < next.size; i++, at++) {
            if (!is_gap(text.data[next.begin + i], reader.compat) && column-- == 0) return at;
        }
    }
    return at;
}

fm_text_place fm_stockholm_locate(fm_bytes text, const fm_stockholm_options *options,
                                  const fm_alignment_row *row, size_t column) {
    size_t wanted = absolute_column(text, options, column), at = 0;
    fm_stockholm_pieces reader = fm_stockholm_pieces_of(text, is_compat(options));
    fm_stockholm_piece next;
    bool found;
    while (!fm_stockholm_pieces_next(&reader, &next, &found, NULL) && found) {
        if (!fm_stockholm_same_name(text, &next, row->description, row->description_bytes)) {
            continue;
        }
        if (wanted < at + next.size) {
            size_t offset = next.begin + (wanted - at);
            return (fm_text_place){next.line, offset - next.start + 1, offset};
        }
        at += next.size;
    }
    return (fm_text_place){row->line, 1, row->sequence};
}
