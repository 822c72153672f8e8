/* keyed_rows.c: see keyed_rows.h. */
#include "featurizer/job/keyed_rows.h"

#include "featurizer/parse/lines.h"

#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 20, HEAD_BYTES = 48 };
static const char query_head[] = ">query\n";

bool fm_keyed_rows_is_name(const char *file) {
    static const char *const packed[] = {".gz", ".xz", ".zst"};
    size_t n = strlen(file);
    for (size_t i = 0; i < sizeof packed / sizeof packed[0]; i++) {
        const size_t ending = strlen(packed[i]);
        if (n < ending || memcmp(file + n - ending, packed[i], ending) != 0) continue;
        n -= ending;
        break;
    }
    return n > 4 && memcmp(file + n - 4, ".csv", 4) == 0;
}

typedef struct splitter {
    fm_bytes table;
    bool key_is_first;
    fm_error *reterr;
} splitter;

typedef struct row {
    fm_bytes key, sequence;
    fm_keyed_place place; /* of the sequence */
} row;

static fm_status fail_at(const splitter *s, const fm_line *line, size_t at, const char *found,
                         const char *expected) {
    return fm_fail_at(s->reterr, FM_ERR_FORMAT, line->number, at - line->start + 1, at,
                      "found %s, expected %s", found, expected);
}

static fm_bytes field_of(const splitter *s, size_t begin, size_t end) {
    while (end > begin && (s->table.data[end - 1] == ' ' || s->table.data[end - 1] == '\t'))
        end--;
    while (begin < end && (s->table.data[begin] == ' ' || s->table.data[begin] == '\t'))
        begin++;
    return (fm_bytes){s->table.data + begin, end - begin};
}

static bool is_word(fm_bytes field, const char *word) {
    return field.size == strlen(word) && memcmp(field.data, word, field.size) == 0;
}

/* Splits a line at its only comma. */
static fm_status cut(const splitter *s, const fm_line *line, fm_bytes field[2]) {
    const uint8_t *text = s->table.data;
    const uint8_t *comma = memchr(text + line->begin, ',', line->end - line->begin);
    const size_t at = comma ? (size_t)(comma - text) : line->begin;
    if (!comma || memchr(comma + 1, ',', line->end - at - 1)) {
        return fail_at(s, line, at, comma ? "more than two columns" : "one column",
                       "a key and a sequence");
    }
    const uint8_t *quote = memchr(text + line->begin, '"', line->end - line->begin);
    if (quote) return fail_at(s, line, (size_t)(quote - text), "a quote", "fields without quotes");
    field[0] = field_of(s, line->begin, at);
    field[1] = field_of(s, at + 1, line->end);
    return FM_OK;
}

static fm_status check_key(const splitter *s, const fm_line *line, fm_bytes *key) {
    if (is_word(*key, "-1")) key->size = 0;
    bool is_key = key->size <= KEY_BYTES;
    for (size_t i = 0; i < key->size; i++) {
        const uint8_t c = key->data[i];
        is_key = is_key && ((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'));
    }
    if (is_key) return FM_OK;
    return fail_at(s, line, (size_t)(key->data - s->table.data), "a key with other characters",
                   "at most 20 letters and digits, -1 or nothing");
}

/* Reads the line of a row. */
static fm_status read_row(const splitter *s, const fm_line *line, row *ret_row) {
    fm_bytes field[2];
    fm_status status = cut(s, line, field);
    if (status) return status;
    ret_row->key = field[!s->key_is_first];
    ret_row->sequence = field[s->key_is_first];
    const size_t at = (size_t)(ret_row->sequence.data - s->table.data);
    ret_row->place = (fm_keyed_place){line->number, at - line->start + 1, at};
    if (ret_row->sequence.size == 0) return fail_at(s, line, at, "no sequence", "letters");
    return check_key(s, line, &ret_row->key);
}

static fm_status read_head(splitter *s, fm_lines *lines) {
    fm_line line = {0};
    fm_bytes field[2];
    if (!fm_lines_next(lines, &line)) {
        return fm_fail_at(s->reterr, FM_ERR_FORMAT, 1, 1, 0,
                          "found nothing, expected the columns key and sequence");
    }
    fm_status status = cut(s, &line, field);
    if (status) return status;
    s->key_is_first = is_word(field[0], "key") && is_word(field[1], "sequence");
    if (s->key_is_first || (is_word(field[1], "key") && is_word(field[0], "sequence"))) {
        return FM_OK;
    }
    return fail_at(s, &line, line.begin, "other columns", "key and sequence");
}

/* -- A3M text */

typedef struct text_builder {
    uint8_t *text;
    fm_keyed_place *places;
    size_t used;
    uint64_t n_row;
} text_builder;

static fm_status reserve(text_builder *b, size_t bytes, uint64_t n_row, fm_arena *arena,
                         fm_error *reterr) {
    *b = (text_builder){.text = fm_arena_alloc(arena, bytes),
                        .places = fm_arena_alloc_array(arena, n_row, sizeof *b->places)};
    return b->text && b->places ? FM_OK : fm_arena_full(arena, reterr);
}

static void append(text_builder *b, const char *head, const row *r) {
    const size_t n = strlen(head);
    memcpy(b->text + b->used, head, n);
    memcpy(b->text + b->used + n, r->sequence.data, r->sequence.size);
    b->used += n + r->sequence.size;
    b->text[b->used++] = '\n';
    b->places[b->n_row++] = r->place;
}

static fm_keyed_text text_of(const text_builder *b) {
    return (fm_keyed_text){{b->text, b->used}, b->places, b->n_row};
}

fm_status fm_keyed_rows_split(fm_bytes table, fm_arena *arena, fm_keyed_rows *ret_rows,
                              fm_error *reterr) {
    splitter s = {.table = table, .reterr = reterr};
    fm_lines lines = fm_lines_of(table, false, 0, 1);
    text_builder paired, unpaired;
    uint64_t n_line = 2;
    fm_line line;
    row r;
    for (size_t i = 0; i < table.size; i++)
        n_line += table.data[i] == '\n' || table.data[i] == '\r';
    const size_t bytes = table.size + n_line * HEAD_BYTES;
    fm_status status = fm_text_check_kind(table, reterr);
    if (!status) status = reserve(&paired, bytes, n_line, arena, reterr);
    if (!status) status = reserve(&unpaired, bytes, n_line, arena, reterr);
    if (!status) status = read_head(&s, &lines);
    while (!status && fm_lines_next(&lines, &line)) {
        if (line.begin == line.end) continue;
        status = read_row(&s, &line, &r);
        if (status) break;
        if (paired.n_row == 0) {
            append(&paired, query_head, &r);
            append(&unpaired, query_head, &r);
        } else if (r.key.size == 0) {
            append(&unpaired, ">row\n", &r);
        } else {
            char head[HEAD_BYTES];
            snprintf(head, sizeof head, ">UniRef100_row_%.*s\n", (int)r.key.size,
                     (const char *)r.key.data);
            append(&paired, head, &r);
        }
    }
    if (status) return status;
    if (paired.n_row == 0) {
        return fm_fail(reterr, FM_ERR_FORMAT, "found no rows, expected the chain's sequence");
    }
    *ret_rows = (fm_keyed_rows){text_of(&paired), text_of(&unpaired)};
    return FM_OK;
}

void fm_keyed_text_relocate(const fm_keyed_text *text, fm_error *error) {
    const uint64_t i = (error->line - 1) / 2;
    if (error->line == 0 || i >= text->n_row) return;
    const fm_keyed_place *place = &text->places[i];
    const uint64_t before = error->line % 2 == 0 && error->column > 0 ? error->column - 1 : 0;
    error->line = place->line;
    error->column = place->column + before;
    error->offset = place->offset + before;
}
