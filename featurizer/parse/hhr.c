/* hhr.c: see hhr.h. One pass over the lines; the columns of all hits are stored in four common
 * pools. */
#include "featurizer/parse/hhr.h"

#include "featurizer/parse/lines.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_COLUMNS = 17, MAX_NUMBER_BYTES = 32 };

/* A line without its line end. */
typedef struct line {
    const char *at;
    size_t size;
} line;

/* How far the lines of one sequence of a hit have come. */
typedef struct row_end {
    int64_t last, length; /* both 0 before the first line */
} row_end;

/* What the head of the file says of its hits. */
typedef struct result_table {
    bool found;    /* the line "No Hit" was seen */
    bool is_whole; /* a blank line ends the table */
    uint32_t n_row;
    line command; /* the line "Command", empty when there is none */
} result_table;

typedef struct parser {
    const char *text;
    fm_lines lines;
    uint64_t number; /* of the current line, from 1 */
    line line;       /* the current line */
    bool compat_openfold;
    fm_error *reterr;
    fm_hit *hit;
    uint32_t n_hit;
    /* The pools; n_query and n_hit_column entries are in use. */
    char *query_pool, *hit_pool;
    int32_t *query_index_pool, *hit_index_pool;
    size_t n_query, n_hit_column;
    uint32_t block_columns; /* letters of the last Q line; its T line must have the same number */
    row_end query_end, template_end; /* of the open hit */
    result_table table;
} parser;

static fm_status fail(const parser *p, size_t column, const char *message) {
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, column + 1,
                      (uint64_t)(p->line.at - p->text) + column, "%s", message);
}

static bool starts_with(line l, const char *prefix) {
    size_t n = strlen(prefix);
    return l.size >= n && memcmp(l.at, prefix, n) == 0;
}

/* Moves to the next line; false at the end. */
static bool next_line(parser *p) {
    fm_line found;
    if (!fm_lines_next(&p->lines, &found)) return false;
    p->line = (line){p->text + found.start, found.stop - found.start};
    p->number = found.number;
    return true;
}

static bool is_blank(char c) {
    return c == ' ' || c == '\t';
}

/* -- the summary line */

/* Returns the number after `key` in the line, or NaN when there is no key or no number. */
static double value_after(line l, const char *key, size_t *ret_column) {
    const char *at = memmem(l.at, l.size, key, strlen(key));
    if (!at) return NAN;
    at += strlen(key);
    *ret_column = (size_t)(at - l.at);
    char number[MAX_NUMBER_BYTES];
    size_t n = 0, left = l.size - *ret_column;
    while (n < left && n + 1 < sizeof number && !is_blank(at[n]) && at[n] != '%') {
        number[n] = at[n];
        n++;
    }
    number[n] = '\0';
    char *end;
    double value = strtod(number, &end);
    return n > 0 && *end == '\0' ? value : NAN;
}

static fm_status parse_summary(parser *p, fm_hit *hit) {
    static const char *const keys[] = {
        "Probab=",     "E-value=",    "Score=",     "Aligned_cols=",
        "Identities=", "Similarity=", "Sum_probs=", "Template_Neff="};
    enum { N_KEY = 8, ALIGNED_COLS = 3, SUM_PROBS = 6 };
    double value[N_KEY];
    size_t column = 0;
    for (size_t k = 0; k < N_KEY; k++) {
        value[k] = value_after(p->line, keys[k], &column);
        bool needed = p->compat_openfold || k == ALIGNED_COLS || k == SUM_PROBS;
        if (needed && isnan(value[k])) {
            return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, 1,
                              (uint64_t)(p->line.at - p->text),
                              "the hit's summary line has no number after '%s'", keys[k]);
        }
    }
    if (!(fabs(value[ALIGNED_COLS]) < 1e9)) return fail(p, 0, "Aligned_cols is out of range");
    hit->aligned_cols = (int32_t)value[ALIGNED_COLS];
    hit->sum_probs = value[SUM_PROBS];
    return FM_OK;
}

/* -- blocks */

/* Reads digits at *at; returns -1 when there are none or the value exceeds int32. */
static int64_t read_number(line l, size_t *at) {
    int64_t value = 0;
    size_t start = *at;
    while (*at < l.size && l.at[*at] >= '0' && l.at[*at] <= '9' && value < INT32_MAX)
        value = value * 10 + (l.at[(*at)++] - '0');
    return *at > start && value <= INT32_MAX ? value : -1;
}

static void skip_blanks(line l, size_t *at) {
    while (*at < l.size && is_blank(l.at[*at]))
        (*at)++;
}

/* One sequence line: its letters and the positions around them. */
typedef struct segment {
    const char *letters;
    uint32_t n;
    int64_t first, last, length;
} segment;

static fm_status parse_segment(parser *p, segment *ret_segment) {
    line l = p->line;
    size_t at = NAME_COLUMNS;
    skip_blanks(l, &at);
    segment s = {.first = read_number(l, &at)};
    if (s.first < 0) return fail(p, at, "expected the first position of the line");
    if (at >= l.size || l.at[at] != ' ') {
        return fail(p, at, "expected a space after the first position");
    }
    size_t start = ++at;
    while (at < l.size && ((l.at[at] >= 'A' && l.at[at] <= 'Z') || l.at[at] == '-'))
        at++;
    s.letters = l.at + start;
    s.n = (uint32_t)(at - start);
    skip_blanks(l, &at);
    s.last = read_number(l, &at);
    if (s.last < 0) {
        return fail(p, at, "expected letters A-Z and '-', then the last position of the line");
    }
    if (l.size - at < 4 || l.at[at] != ' ' || l.at[at + 1] != '(') {
        return fail(p, at, "expected ' (length)' after the last position");
    }
    at += 2;
    s.length = read_number(l, &at);
    if (s.length < 0 || at >= l.size || l.at[at] != ')') {
        return fail(p, at, "expected a length in parentheses");
    }
    *ret_segment = s;
    return FM_OK;
}

/* Appends the letters and their positions, which are -1 at gaps and count from the line's own first
 * position. */
static fm_status append(parser *p, const segment *s, char *letters, int32_t *index) {
    int64_t position = s->first - 1;
    for (uint32_t i = 0; i < s->n; i++) {
        letters[i] = s->letters[i];
        index[i] = s->letters[i] == '-' ? -1 : (int32_t)position++;
    }
    if (position != s->last) {
        return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, NAME_COLUMNS + 1,
                          (uint64_t)(p->line.at - p->text) + NAME_COLUMNS,
                          "the letters end at position %lld, but the line says %lld",
                          (long long)position, (long long)s->last);
    }
    return FM_OK;
}

/* Checks that a line goes on where the sequence's last one of the hit ended. */
static fm_status follow(parser *p, const segment *s, row_end *end) {
    const uint64_t offset = (uint64_t)(p->line.at - p->text) + NAME_COLUMNS;
    if (!p->compat_openfold && end->length > 0 && s->first != end->last + 1) {
        return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, NAME_COLUMNS + 1, offset,
                          "found first position %lld, expected %lld, as the line before ends at "
                          "%lld",
                          (long long)s->first, (long long)end->last + 1, (long long)end->last);
    }
    if (!p->compat_openfold && (s->last > s->length || (end->length && s->length != end->length))) {
        return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, NAME_COLUMNS + 1, offset,
                          "found length %lld, expected that of the hit's other lines and at least "
                          "the last position, %lld",
                          (long long)s->length, (long long)s->last);
    }
    *end = (row_end){s->last, s->length};
    return FM_OK;
}

static fm_status parse_query_line(parser *p, fm_hit *hit) {
    segment s;
    fm_status status = parse_segment(p, &s);
    if (!status) status = follow(p, &s, &p->query_end);
    if (status) return status;
    status = append(p, &s, p->query_pool + p->n_query, p->query_index_pool + p->n_query);
    p->n_query += s.n;
    hit->n_query += s.n;
    p->block_columns = s.n;
    return status;
}

static fm_status parse_template_line(parser *p, fm_hit *hit) {
    segment s;
    fm_status status = parse_segment(p, &s);
    if (!status) status = follow(p, &s, &p->template_end);
    if (status) return status;
    if (s.n != p->block_columns) {
        return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, NAME_COLUMNS + 1,
                          (uint64_t)(p->line.at - p->text) + NAME_COLUMNS,
                          "the template line has %u columns, but its query line has %u", s.n,
                          p->block_columns);
    }
    status = append(p, &s, p->hit_pool + p->n_hit_column, p->hit_index_pool + p->n_hit_column);
    p->n_hit_column += s.n;
    hit->n_hit += s.n;
    hit->n_column += s.n;
    return status;
}

/* Whether a line is one of the rows that are no sequence. A sequence may be called like one of
 * them, "Consensus_1", which the reference skips. */
static bool is_annotation(const parser *p) {
    static const char *const names[] = {"ss_dssp", "ss_pred", "Consensus"};
    const line l = {p->line.at + 2, p->line.size - 2};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i]);
        if (!starts_with(l, names[i])) continue;
        if (p->compat_openfold || l.size == n || is_blank(l.at[n])) return true;
    }
    return false;
}

static fm_status parse_block_line(parser *p, fm_hit *hit) {
    bool query = starts_with(p->line, "Q "), template = starts_with(p->line, "T ");
    if ((!query && !template) || is_annotation(p)) return FM_OK;
    return query ? parse_query_line(p, hit) : parse_template_line(p, hit);
}

/* -- the table */

/* Takes a line of the head: the command, or a line of the table of hits. */
static void read_head_line(parser *p) {
    if (p->table.is_whole) return;
    if (p->table.found) {
        p->table.is_whole = p->line.size == 0;
        p->table.n_row += !p->table.is_whole;
    } else if (starts_with(p->line, " No Hit")) {
        p->table.found = true;
    } else if (starts_with(p->line, "Command ")) {
        p->table.command = p->line;
    }
}

/* Returns whether `option` is a word of the command; *ret_value is the number after it, or -1. */
static bool has_option(const parser *p, const char *option, int64_t *ret_value) {
    line l = p->table.command;
    for (size_t at = 0, start, n; at < l.size; at += n) {
        skip_blanks(l, &at);
        start = at;
        for (n = 0; at + n < l.size && !is_blank(l.at[at + n]); n++) {
        }
        if (n != strlen(option) || memcmp(l.at + start, option, n) != 0) continue;
        at += n;
        skip_blanks(l, &at);
        *ret_value = read_number(l, &at);
        return true;
    }
    return false;
}

/* Checks that the file has the hits of its table. The options -z, -Z, -b and -B of the programs
 * limit the lines of the table and the hits apart from one another. */
static fm_status check_table(parser *p) {
    int64_t value;
    uint32_t n_row = p->table.n_row;
    if (p->compat_openfold || !p->table.found || p->n_hit == n_row) return FM_OK;
    if (has_option(p, "-z", &value) || has_option(p, "-b", &value)) return FM_OK;
    if (has_option(p, "-B", &value) && value == p->n_hit) return FM_OK;
    if (p->n_hit > n_row && has_option(p, "-Z", &value)) return FM_OK;
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, p->line.size + 1,
                      (uint64_t)(p->line.at - p->text) + p->line.size,
                      "the file ends after %u hit%s, its table lists %u%s", p->n_hit,
                      p->n_hit == 1 ? "" : "s", n_row,
                      p->n_hit < n_row ? "; the file was cut off" : "");
}

/* -- hits */

/* Checks that a hit has the columns that its summary promises. A hit of one pair may have no lines:
 * hh-suite writes it so. */
static fm_status check_columns(parser *p, const fm_hit *hit, uint64_t number, size_t offset) {
    int32_t n_pair = 0;
    uint32_t n = hit->n_query < hit->n_hit ? hit->n_query : hit->n_hit;
    for (uint32_t i = 0; i < n; i++)
        n_pair += hit->query[i] != '-' && hit->hit[i] != '-';
    bool is_whole = hit->n_query == hit->n_hit && n_pair == hit->aligned_cols;
    bool is_bare = hit->n_query + hit->n_hit == 0 && hit->aligned_cols == 1;
    if (p->compat_openfold || is_whole || is_bare) return FM_OK;
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, number, 1, offset,
                      "the summary says Aligned_cols=%d, but the hit's lines pair %d residues; the "
                      "file was cut off or changed",
                      hit->aligned_cols, n_pair);
}

/* Reads "No 12": the number is the line's last word. */
static fm_status parse_number_line(parser *p, fm_hit *hit) {
    size_t end = p->line.size;
    while (end > 0 && is_blank(p->line.at[end - 1]))
        end--;
    size_t start = end;
    while (start > 0 && !is_blank(p->line.at[start - 1]))
        start--;
    size_t at = start;
    int64_t number = read_number((line){p->line.at, end}, &at);
    if (number < 0 || at != end) return fail(p, start, "expected 'No' and the number of a hit");
    hit->index = (int32_t)number;
    if (p->compat_openfold || !p->table.found || number == (int64_t)p->n_hit + 1) return FM_OK;
    return fm_fail_at(p->reterr, FM_ERR_FORMAT, p->number, start + 1,
                      (uint64_t)(p->line.at - p->text) + start, "found hit %lld, expected hit %u",
                      (long long)number, p->n_hit + 1);
}

/* Reads one hit, beginning at its "No" line, and stops before the next one. *ret_more says whether
 * there is one. */
static fm_status parse_hit(parser *p, fm_hit *hit, bool *ret_more) {
    fm_status status = parse_number_line(p, hit);
    if (status) return status;
    if (!next_line(p)) {
        return fail(p, p->line.size, "the file ends after a hit's number, expected its name");
    }
    size_t marker_bytes = p->line.size && (p->compat_openfold || p->line.at[0] == '>') ? 1 : 0;
    hit->name = (fm_bytes){(const uint8_t *)p->line.at + marker_bytes, p->line.size - marker_bytes};
    if (!next_line(p)) {
        return fail(p, p->line.size, "the file ends after a hit's name, expected its summary line");
    }
    status = parse_summary(p, hit);
    uint64_t summary = p->number;
    size_t offset = (size_t)(p->line.at - p->text);
    hit->query = p->query_pool + p->n_query;
    hit->indices_query = p->query_index_pool + p->n_query;
    hit->hit = p->hit_pool + p->n_hit_column;
    hit->indices_hit = p->hit_index_pool + p->n_hit_column;
    p->block_columns = 0;
    p->query_end = p->template_end = (row_end){0};
    while (!status && (*ret_more = next_line(p)) && !starts_with(p->line, "No "))
        status = parse_block_line(p, hit);
    return status ? status : check_columns(p, hit, summary, offset);
}

/* Returns an upper bound of the number of hits: the lines that start with "No ". */
static uint32_t count_hits(const parser *p) {
    uint32_t n = 0;
    parser scan = *p;
    while (next_line(&scan))
        n += starts_with(scan.line, "No ");
    return n;
}

/* Goes to the first hit; *ret_more says whether there is one. A file without hits must begin as
 * HHsearch and HHblits begin theirs, and have their table. Otherwise any other file with such a
 * name, or one that was cut off in its head, would pass as an empty search. */
static fm_status find_first_hit(parser *p, bool *ret_more) {
    parser first = {0}; /* at the first line that is not empty */
    while ((*ret_more = next_line(p)) && !starts_with(p->line, "No ")) {
        if (first.number == 0 && p->line.size > 0) first = *p;
        read_head_line(p);
    }
    if (*ret_more || p->compat_openfold || first.number == 0) return FM_OK;
    if (!starts_with(first.line, "Query")) {
        return fail(&first, 0,
                    "the file has no hit and is no result of HHsearch or HHblits, expected a first "
                    "line that begins with 'Query'");
    }
    if (p->table.is_whole) return FM_OK;
    return fail(p, p->line.size,
                "the file ends before its table of hits does, which a blank line ends; it was cut "
                "off");
}

fm_status fm_hhr_parse(fm_bytes text, bool compat_openfold, fm_arena *arena, fm_hits *ret_hits,
                       fm_error *reterr) {
    const char *start = text.size ? (const char *)text.data : "";
    parser p = {.text = start,
                .lines = fm_lines_of(text, compat_openfold, 0, 1),
                .compat_openfold = compat_openfold,
                .reterr = reterr};
    fm_status kind =
        compat_openfold ? fm_text_check_utf8(text, reterr) : fm_text_check_kind(text, reterr);
    if (kind) return kind;
    uint32_t n = count_hits(&p);
    p.hit = fm_arena_calloc(arena, n, sizeof *p.hit);
    /* There are no more columns than bytes of text; untouched pages cost nothing. */
    p.query_pool = fm_arena_alloc(arena, text.size);
    p.hit_pool = fm_arena_alloc(arena, text.size);
    p.query_index_pool = fm_arena_alloc_array(arena, text.size, sizeof *p.query_index_pool);
    p.hit_index_pool = fm_arena_alloc_array(arena, text.size, sizeof *p.hit_index_pool);
    if (!p.hit || !p.query_pool || !p.hit_pool || !p.query_index_pool || !p.hit_index_pool) {
        return fm_arena_full(arena, reterr);
    }
    bool more;
    fm_status status = find_first_hit(&p, &more);
    while (!status && more) {
        status = parse_hit(&p, &p.hit[p.n_hit], &more);
        p.n_hit += !status;
    }
    if (!status) status = check_table(&p);
    if (status) return status;
    *ret_hits = (fm_hits){.n_hit = p.n_hit, .hit = p.hit};
    return FM_OK;
}
