/* hmmsearch.c: see hmmsearch.h. The first pass gathers the rows, the second their descriptions, and
 * the third makes the hits row by row in two pools. */
#include "featurizer/parse/hmmsearch.h"

#include "featurizer/parse/stockholm_rows.h"
#include "proto/limits.h"

#include <math.h>

/* Offsets of a description in the text; 0, 0 when there is none. */
typedef struct description {
    uint32_t begin, end;
} description;

typedef struct parser {
    fm_bytes text, query;
    bool compat;
    fm_error *reterr;
    fm_stockholm_rows rows;
    description *described; /* [n_row] */
    int32_t *query_index;   /* [query.size] */
    /* The pools; n_letter and n_index entries are in use. */
    char *letters;
    int32_t *index;
    size_t n_letter, n_index;
} parser;

/* -- descriptions */

/* Finds the line's next word at or after *at; false when there is none. */
static bool next_word(const parser *p, const fm_line *line, size_t *at, size_t *ret_begin) {
    size_t blank;
    while ((blank = fm_blank_at(p->text, *at, line->end, p->compat)))
        *at += blank;
    *ret_begin = *at;
    while (*at < line->end && !fm_blank_at(p->text, *at, line->end, p->compat))
        (*at)++;
    return *at > *ret_begin;
}

/* Takes "#=GS name DE text" and gives the row of that name its description. A later description
 * replaces an earlier one, but the scan stops as soon as every row has one. */
static fm_status read_description(parser *p, const fm_line *line, size_t *n_described) {
    size_t at = line->start, mark, name = at, feature, value, blank;
    bool named = next_word(p, line, &at, &mark) && next_word(p, line, &at, &name);
    size_t name_bytes = at - name;
    if (!named || !next_word(p, line, &at, &feature)) {
        return fm_fail_at(
            p->reterr, FM_ERR_FORMAT, line->number, at - line->start + 1, at,
            "found an annotation without a name and a feature, expected '#=GS name DE text'");
    }
    if (at - feature != 2 || memcmp(p->text.data + feature, "DE", 2) != 0) return FM_OK;
    value = at;
    while ((blank = fm_blank_at(p->text, value, line->end, p->compat)))
        value += blank;
    uint32_t row = fm_stockholm_rows_find(&p->rows, p->text, name, name_bytes);
    if (row == FM_STOCKHOLM_NONE) return FM_OK;
    *n_described += p->described[row].end == 0;
    p->described[row] = (description){(uint32_t)value, (uint32_t)line->end};
    return FM_OK;
}

static fm_status read_descriptions(parser *p) {
    fm_lines lines = fm_lines_of(p->text, p->compat, 0, 1);
    fm_line line;
    size_t n_described = 0;
    while (n_described < p->rows.n_row && fm_lines_next(&lines, &line)) {
        size_t left = p->text.size - line.start;
        if (left < 4 || memcmp(p->text.data + line.start, "#=GS", 4) != 0) continue;
        fm_status status = read_description(p, &line, &n_described);
        if (status) return status;
    }
    return FM_OK;
}

static bool contains(fm_bytes text, size_t begin, size_t end, const char *word) {
    return end > begin && memmem(text.data + begin, end - begin, word, strlen(word));
}

/* Returns whether "protein length:" followed by a digit occurs in the range. */
static bool has_length(fm_bytes text, size_t begin, size_t end) {
    static const char word[] = "protein length:";
    const size_t n = sizeof word - 1;
    while (begin < end) {
        const uint8_t *at = memmem(text.data + begin, end - begin, word, n);
        if (!at) return false;
        begin = (size_t)(at - text.data) + n;
        if (begin < end && text.data[begin] >= '0' && text.data[begin] <= '9') return true;
    }
    return false;
}

/* -- names */

static bool is_digit(uint8_t c) {
    return c >= '0' && c <= '9';
}

static bool is_id(uint8_t c, bool compat) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (!compat && c >= 'A' && c <= 'Z');
}

static bool is_word(uint8_t c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/* Reads digits at *at; returns -1 when there are none or the value exceeds int32. */
static int64_t read_number(const uint8_t *data, size_t *at, size_t end) {
    int64_t value = 0;
    size_t start = *at;
    for (; *at < end && is_digit(data[*at]); (*at)++) {
        if (value <= INT32_MAX) value = value * 10 + (data[*at] - '0');
    }
    return *at > start && value <= INT32_MAX ? value : -1;
}

/* Splits `id_chain/first-last`: fills the hit's name and returns the positions and the offset
 * behind the '-'. Returns false for any other form. */
static bool split_name(const parser *p, const fm_alignment_row *place, fm_hit *hit,
                       int64_t *ret_first, int64_t *ret_last, size_t *ret_end) {
    const uint8_t *data = p->text.data;
    size_t end = place->description + place->description_bytes;
    size_t start = place->description + (data[place->description] == '>'), at = start;
    while (at < end && is_id(data[at], p->compat))
        at++;
    if (at == start || at == end || data[at] != '_') return false;
    size_t chain = ++at;
    while (at < end && is_word(data[at]))
        at++;
    if (at == chain || at == end || data[at] != '/') return false;
    hit->name = (fm_bytes){data + start, at - start};
    at++;
    *ret_first = read_number(data, &at, end);
    if (*ret_first < (p->compat ? 0 : 1) || at == end || data[at] != '-') return false;
    at++;
    *ret_end = at;
    *ret_last = read_number(data, &at, end);
    return *ret_last >= 0;
}

/* -- rows */

static fm_status fail_row(const parser *p, const fm_alignment_row *place, const char *message) {
    int shown = place->description_bytes < 60 ? (int)place->description_bytes : 60;
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, place->line, 1, place->sequence, "row '%.*s': %s",
                      shown, (const char *)p->text.data + place->description, message);
}

/* Decides whether the row is a hit. A row that should be one but cannot be read is refused. */
static fm_status check_row(const parser *p, size_t row, fm_hit *hit, int64_t *ret_first,
                           int64_t *ret_last, bool *ret_is_hit) {
    const fm_alignment_row *place = &p->rows.rows[row].place;
    description d = p->described[row];
    size_t name_end = place->description + place->description_bytes, end;
    *ret_is_hit = contains(p->text, d.begin, d.end, "mol:protein") ||
                  contains(p->text, place->description, name_end, "mol:protein");
    if (!*ret_is_hit) return FM_OK;
    if (!split_name(p, place, hit, ret_first, ret_last, &end)) {
        return fail_row(p, place, "a protein's name must be id_chain/first-last");
    }
    bool names_length = has_length(p->text, end, name_end) || has_length(p->text, d.begin, d.end);
    if (p->compat && !names_length) {
        return fail_row(p, place, "its description has no 'protein length:' with a number");
    }
    return FM_OK;
}

/* Appends a piece's letters, in upper case, and the positions of its columns. */
static fm_status append_piece(parser *p, const fm_alignment_row *place,
                              const fm_stockholm_link *link, fm_hit *hit, int64_t *position) {
    for (uint32_t i = 0; i < link->size; i++) {
        uint8_t c = p->text.data[link->begin + i];
        bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
        if (c == '.') continue;
        if (c >= 0x80 || (!p->compat && !lower && !upper && c != '-')) {
            return fail_row(p, place, "its sequence has a byte other than letters, '-' and '.'");
        }
        p->letters[p->n_letter++] = (char)(lower ? c - 32 : c);
        hit->n_hit++;
        hit->aligned_cols += upper;
        if (!lower) {
            p->index[p->n_index++] = c == '-' ? -1 : (int32_t)*position;
            hit->n_column++;
        }
        *position += c != '-';
    }
    return FM_OK;
}

static fm_status make_hit(parser *p, size_t row, fm_hit *hit, bool *ret_is_hit) {
    const fm_stockholm_row *entry = &p->rows.rows[row];
    int64_t position = 0, last = 0;
    fm_hit made = {.index = (int32_t)row + 1,
                   .sum_probs = NAN,
                   .n_query = (uint32_t)p->query.size,
                   .query = (const char *)p->query.data,
                   .hit = p->letters + p->n_letter,
                   .indices_query = p->query_index,
                   .indices_hit = p->index + p->n_index};
    fm_status status = check_row(p, row, &made, &position, &last, ret_is_hit);
    if (status || !*ret_is_hit) return status;
    position--;
    if (position + (int64_t)entry->n_column > INT32_MAX) {
        return fail_row(p, &entry->place, "its positions exceed 2147483647");
    }
    for (uint32_t at = entry->first; at != FM_STOCKHOLM_NONE && !status;
         at = p->rows.links[at].next)
        status = append_piece(p, &entry->place, &p->rows.links[at], &made, &position);
    if (!status && !p->compat && position != last) {
        return fail_row(p, &entry->place,
                        "its letters end at another position than its name says; the file was cut "
                        "off or changed");
    }
    if (!status) *hit = made;
    return status;
}

/* A text of something else has lines that look like rows, but none of a protein. Compat takes it
 * for a search without hits. */
static fm_status check_kind(const parser *p, uint32_t n_hit) {
    if (p->compat || n_hit > 0 || p->rows.headed || p->rows.n_row == 0) return FM_OK;
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, 1, 1, 0,
                      "the file has no row of a protein and is no result of hmmsearch, expected a "
                      "first line \"# STOCKHOLM 1.0\"");
}

static fm_status make_pools(parser *p, fm_arena *arena) {
    /* There are no more columns than bytes of text; untouched pages cost nothing. */
    p->described = fm_arena_calloc(arena, p->rows.n_row, sizeof *p->described);
    p->query_index = fm_arena_alloc_array(arena, p->query.size, sizeof *p->query_index);
    p->letters = fm_arena_alloc(arena, p->text.size);
    p->index = fm_arena_alloc_array(arena, p->text.size, sizeof *p->index);
    if (!p->described || !p->query_index || !p->letters || !p->index) {
        return fm_arena_full(arena, p->reterr);
    }
    for (size_t i = 0; i < p->query.size; i++)
        p->query_index[i] = (int32_t)i;
    return FM_OK;
}

fm_status fm_hmmsearch_parse(fm_bytes text, fm_bytes query, bool compat_openfold, fm_arena *arena,
                             fm_hits *ret_hits, fm_error *reterr) {
    parser p = {.text = text, .query = query, .compat = compat_openfold, .reterr = reterr};
    if (query.size > FM_LIMIT_N_RES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the query has %zu residues, the limit is %u",
                       query.size, FM_LIMIT_N_RES);
    }
    fm_status status =
        compat_openfold ? fm_text_check_utf8(text, reterr) : fm_text_check_kind(text, reterr);
    if (!status) status = fm_stockholm_rows_read(text, compat_openfold, arena, &p.rows, reterr);
    if (!status) status = make_pools(&p, arena);
    if (!status) status = read_descriptions(&p);
    if (status) return status;
    fm_hit *hit = fm_arena_alloc_array(arena, p.rows.n_row, sizeof *hit);
    if (!hit) return fm_arena_full(arena, reterr);
    uint32_t n_hit = 0;
    for (size_t row = 0; row < p.rows.n_row; row++) {
        bool is_hit;
        status = make_hit(&p, row, &hit[n_hit], &is_hit);
        if (status) return status;
        n_hit += is_hit;
    }
    status = check_kind(&p, n_hit);
    if (status) return status;
    *ret_hits = (fm_hits){.n_hit = n_hit, .hit = hit};
    return FM_OK;
}
