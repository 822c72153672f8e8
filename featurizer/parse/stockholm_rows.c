/* stockholm_rows.c: see stockholm_rows.h.
 *
 * A hash table maps names to rows. Most look-ups never reach it: every block lists the rows in the
 * same order, so the row after the last piece's row is tried first. */
#include "featurizer/parse/stockholm_rows.h"

#include "proto/base/hash.h"
#include "proto/limits.h"

fm_stockholm_pieces fm_stockholm_pieces_of(fm_bytes text, bool compat) {
    fm_lines lines = fm_lines_of(text, compat, 0, 1);
    return (fm_stockholm_pieces){.text = lines.text, .lines = lines, .compat = compat};
}

static fm_status split_line(const fm_stockholm_pieces *pieces, const fm_line *line,
                            fm_stockholm_piece *ret_piece, fm_error *reterr) {
    size_t name_end = fm_blank_find(pieces->text, line->begin, line->end, pieces->compat),
           begin = name_end, blank;
    while ((blank = fm_blank_at(pieces->text, begin, line->end, pieces->compat)))
        begin += blank;
    if (begin == line->end) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, line->number, line->end - line->start + 1,
                          line->end,
                          "found a name without a sequence, expected a name and a sequence");
    }
    size_t end = fm_blank_find(pieces->text, begin, line->end, pieces->compat);
    if (end != line->end) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, line->number, end - line->start + 1, end,
                          "found a blank inside the sequence, expected a name and a sequence");
    }
    *ret_piece = (fm_stockholm_piece){.name = line->begin,
                                      .name_bytes = name_end - line->begin,
                                      .begin = begin,
                                      .size = end - begin,
                                      .start = line->start,
                                      .line = line->number};
    return FM_OK;
}

/* Reads the next line in one pass when it has the form that every program writes: a name, spaces,
 * letters and a line feed, all in ASCII. For any other line it returns false and does not move. */
static bool read_common_line(fm_stockholm_pieces *pieces, fm_stockholm_piece *ret_piece) {
    fm_bytes text = pieces->text;
    const uint8_t *data = text.data;
    size_t start = pieces->lines.at;
    if (pieces->ended || start >= text.size || data[start] == '#' || data[start] == '/') {
        return false;
    }
    size_t name_end = fm_graphic_end(text, start, text.size);
    size_t begin = fm_space_end(text, name_end, text.size);
    size_t end = fm_graphic_end(text, begin, text.size);
    if (name_end == start || begin == name_end || end == begin) return false;
    if (end == text.size || data[end] != '\n') return false;
    *ret_piece = (fm_stockholm_piece){start, name_end - start,    begin, end - begin,
                                      start, pieces->lines.number};
    pieces->lines.at = end + 1;
    pieces->lines.number++;
    return true;
}

/* Notes the head line among the notes. */
static void take_note(fm_stockholm_pieces *pieces, const fm_line *line) {
    static const char head[] = "# STOCKHOLM";
    const size_t n = sizeof head - 1;
    if (line->end - line->begin < n) return;
    pieces->headed |= memcmp(pieces->text.data + line->begin, head, n) == 0;
}

/* Checks at the end of the text that it is the end of an alignment. */
static fm_status check_end(const fm_stockholm_pieces *pieces, fm_error *reterr) {
    if (pieces->compat || !pieces->headed || pieces->ended) return FM_OK;
    size_t size = pieces->text.size, start = size;
    while (start > 0 && pieces->text.data[start - 1] != '\n')
        start--;
    return fm_fail_at(reterr, FM_ERR_FORMAT, pieces->lines.number - (start < size),
                      size - start + 1, size,
                      "found the end of the file, expected \"//\", which ends an alignment; the "
                      "file was cut off");
}

fm_status fm_stockholm_pieces_next(fm_stockholm_pieces *pieces, fm_stockholm_piece *ret_piece,
                                   bool *ret_found, fm_error *reterr) {
    const uint8_t *data = pieces->text.data;
    fm_line line;
    *ret_found = !pieces->lines.has_odd_breaks && read_common_line(pieces, ret_piece);
    if (*ret_found) return FM_OK;
    while (fm_lines_next(&pieces->lines, &line)) {
        size_t size = line.end - line.begin;
        if (size > 0 && data[line.begin] == '#') take_note(pieces, &line);
        if (size == 0 || data[line.begin] == '#') continue;
        if (size >= 2 && data[line.begin] == '/' && data[line.begin + 1] == '/') {
            pieces->ended = !pieces->compat;
            continue;
        }
        if (pieces->ended) {
            return fm_fail_at(
                reterr, FM_ERR_UNSUPPORTED, line.number, line.begin - line.start + 1, line.begin,
                "found a second alignment after \"//\", expected one alignment per file");
        }
        *ret_found = true;
        return split_line(pieces, &line, ret_piece, reterr);
    }
    return check_end(pieces, reterr);
}

/* Returns at least the number of lines that are not comments. */
static size_t bound_lines(fm_lines lines) {
    const uint8_t *p = lines.text.data, *end = p + lines.text.size;
    fm_line line;
    size_t n = 1;
    if (lines.has_odd_breaks) {
        while (fm_lines_next(&lines, &line))
            n++;
        return n;
    }
    for (; p < end; p++, n++) {
        bool comment = *p == '#';
        if (!(p = memchr(p, '\n', (size_t)(end - p)))) break;
        n -= comment;
    }
    return n;
}

static fm_status init_rows(fm_stockholm_rows *rows, const fm_lines *lines, fm_arena *arena,
                           fm_error *reterr) {
    size_t n = bound_lines(*lines);
    size_t n_slot = 16;
    while (n_slot < 2 * n)
        n_slot *= 2;
    *rows = (fm_stockholm_rows){.mask = n_slot - 1};
    rows->links = fm_arena_alloc_array(arena, n, sizeof *rows->links);
    rows->rows = fm_arena_alloc_array(arena, n, sizeof *rows->rows);
    rows->slots = fm_arena_calloc(arena, n_slot, sizeof *rows->slots);
    if (!rows->links || !rows->rows || !rows->slots) return fm_arena_full(arena, reterr);
    return FM_OK;
}

/* Returns the slot of a name: its row's slot, or the free one where it belongs. */
static size_t find_slot(const fm_stockholm_rows *rows, fm_bytes text, size_t name,
                        size_t name_bytes) {
    size_t slot = fm_xxh3(text.data + name, name_bytes) & rows->mask;
    for (; rows->slots[slot]; slot = (slot + 1) & rows->mask) {
        const fm_alignment_row *place = &rows->rows[rows->slots[slot] - 1].place;
        if (place->description_bytes == name_bytes &&
            memcmp(text.data + place->description, text.data + name, name_bytes) == 0) {
            break;
        }
    }
    return slot;
}

uint32_t fm_stockholm_rows_find(const fm_stockholm_rows *rows, fm_bytes text, size_t name,
                                size_t name_bytes) {
    uint32_t found = rows->slots[find_slot(rows, text, name, name_bytes)];
    return found ? found - 1 : FM_STOCKHOLM_NONE;
}

/* Returns the row of a piece's name, and creates it when it is new. */
static uint32_t find_row(fm_stockholm_rows *rows, fm_bytes text, const fm_stockholm_piece *piece) {
    if (rows->expected < rows->n_row) {
        const fm_alignment_row *place = &rows->rows[rows->expected].place;
        if (fm_stockholm_same_name(text, piece, place->description, place->description_bytes)) {
            return rows->expected;
        }
    }
    size_t slot = find_slot(rows, text, piece->name, piece->name_bytes);
    if (rows->slots[slot]) return rows->slots[slot] - 1;
    uint32_t row = (uint32_t)rows->n_row++;
    rows->slots[slot] = row + 1;
    rows->rows[row] = (fm_stockholm_row){
        .place = {.description = (uint32_t)piece->name,
                  .description_bytes = (uint32_t)piece->name_bytes,
                  .sequence = (uint32_t)piece->start,
                  .line = (uint32_t)piece->line},
        .first = FM_STOCKHOLM_NONE,
        .last = FM_STOCKHOLM_NONE,
    };
    return row;
}

static fm_status fill_rows(fm_stockholm_rows *rows, fm_stockholm_pieces *pieces, fm_error *reterr) {
    fm_bytes text = pieces->text;
    fm_stockholm_piece piece;
    bool found;
    fm_status status;
    while (!(status = fm_stockholm_pieces_next(pieces, &piece, &found, reterr)) && found) {
        uint32_t at = find_row(rows, text, &piece), added = (uint32_t)rows->n_link++;
        fm_stockholm_row *row = &rows->rows[at];
        rows->links[added] =
            (fm_stockholm_link){(uint32_t)piece.begin, (uint32_t)piece.size, FM_STOCKHOLM_NONE};
        *(row->last == FM_STOCKHOLM_NONE ? &row->first : &rows->links[row->last].next) = added;
        row->last = added;
        row->n_column += piece.size;
        rows->expected = at + 1 == rows->n_row && row->first != added ? 0 : at + 1;
    }
    rows->headed = pieces->headed;
    return status;
}

fm_status fm_stockholm_rows_read(fm_bytes text, bool compat, fm_arena *arena,
                                 fm_stockholm_rows *ret_rows, fm_error *reterr) {
    fm_stockholm_rows rows;
    if (text.size > FM_LIMIT_INPUT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the text has %zu bytes, the limit is %zu", text.size,
                       FM_LIMIT_INPUT_BYTES);
    }
    fm_stockholm_pieces pieces = fm_stockholm_pieces_of(text, compat);
    fm_status status = init_rows(&rows, &pieces.lines, arena, reterr);
    if (!status) status = fill_rows(&rows, &pieces, reterr);
    if (!status) *ret_rows = rows;
    return status;
}
