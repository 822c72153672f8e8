/* a3m.c: see a3m.h.
 *
 * Lines decide what happens: a '>' line ends the open record and starts another, and every other
 * line is a piece of the open record's sequence. The kernel (match.h) writes pieces directly into
 * the alignment's next row. finish_row() then checks the row's number of columns and makes the row
 * part of the alignment. To measure, the reader runs without an alignment and stops at the second
 * row. */
#include "featurizer/parse/a3m.h"

#include "featurizer/parse/lines.h"
#include "proto/base/utf8.h"
#include "proto/limits.h"

#include <assert.h>
#include <string.h>

enum { PADDING = '.', STOP = '*' };

typedef enum record_kind { RECORD_NONE, RECORD_ROW, RECORD_ANNOTATION } record_kind;

typedef struct a3m_reader {
    fm_bytes text; /* one of the text's alignments */
    fm_lines lines;
    bool compat;
    uint8_t padding;
    const fm_match_kernel *kernel;
    fm_alignment *alignment; /* NULL when only the first row is measured */
    record_kind record;
    size_t n_row; /* finished rows of this text */
    fm_alignment_row place;
    bool has_sequence; /* the open record has a line of sequence */
    bool has_stop;     /* row 0 ends with the mark of a stop, which is no column of any row */
    uint8_t last;      /* of the open record, the last column past those that fit */
    fm_match_row row;
} a3m_reader;

static const fm_a3m_options defaults;

/* Returns the offset of the first NUL byte at or after `at`, or the text's end. */
static size_t next_nul(fm_bytes text, size_t at) {
    if (at >= text.size) return text.size;
    const uint8_t *nul = memchr(text.data + at, 0, text.size - at);
    return nul ? (size_t)(nul - text.data) : text.size;
}

static bool is_blank(fm_bytes text, size_t at) {
    for (; at < text.size; at++) {
        if (!fm_blank_at(text, at, text.size, false)) return false;
    }
    return true;
}

bool fm_a3m_next(fm_bytes text, bool compat_openfold, size_t begin, size_t *ret_begin) {
    size_t end = compat_openfold ? text.size : next_nul(text, begin);
    if (end >= text.size || is_blank(text, end + 1)) return false;
    *ret_begin = end + 1;
    return true;
}

static uint64_t count_lines(fm_bytes text, size_t end) {
    uint64_t count = 0;
    fm_lines lines = fm_lines_of((fm_bytes){text.data, end}, false, 0, 1);
    fm_line line;
    while (fm_lines_next(&lines, &line))
        count++;
    return count;
}

/* Checks that a NUL byte, which ends an alignment, is at the start of a line or at the text's
 * end. */
static fm_status check_nul(fm_bytes text, size_t at, fm_error *reterr) {
    if (at >= text.size || at == 0 || is_blank(text, at + 1)) return FM_OK;
    uint8_t before = text.data[at - 1];
    if (before == '\n' || before == '\r' || before == 0) return FM_OK;
    uint64_t line = count_lines(text, at);
    if (line == 0) line = 1; /* behind a byte order mark only */
    size_t start = at;
    while (start > 0 && text.data[start - 1] != '\n')
        start--;
    return fm_fail_at(reterr, FM_ERR_FORMAT, line, at - start + 1, at,
                      "found a NUL byte inside a line, expected it only at the start of a line, "
                      "where it ends an alignment");
}

static fm_status check_text(fm_bytes text, const fm_a3m_options *options, size_t end,
                            fm_error *reterr) {
    if (text.size > FM_LIMIT_INPUT_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the text has %zu bytes, the limit is %zu", text.size,
                       FM_LIMIT_INPUT_BYTES);
    }
    if (options->compat_openfold) return fm_text_check_utf8(text, reterr);
    fm_status status = fm_text_check_kind(text, reterr);
    return status ? status : check_nul(text, end, reterr);
}

static fm_status open_reader(a3m_reader *reader, fm_bytes text, const fm_a3m_options *options,
                             fm_error *reterr) {
    if (!options) options = &defaults;
    size_t begin = options->begin;
    assert(begin <= text.size);
    size_t end = options->compat_openfold ? text.size : next_nul(text, begin);
    fm_status status = check_text(text, options, end, reterr);
    if (status) return status;
    uint64_t line = options->line;
    if (!line) line = begin ? count_lines(text, begin - 1) + 1 : 1;
    fm_bytes section = {text.data, end};
    *reader = (a3m_reader){
        .text = section,
        .lines = fm_lines_of(section, options->compat_openfold, begin, line),
        .compat = options->compat_openfold,
        .padding = options->compat_openfold ? 0 : PADDING,
        .kernel = options->kernel ? options->kernel : fm_match_best(),
    };
    return FM_OK;
}

/* Recognises hh-suite's predicted or observed structure, one character per residue. */
static bool is_annotation(fm_bytes text, size_t begin, size_t end) {
    static const char *const names[] = {"ss_pred", "ss_conf", "ss_dssp", "sa_pred", "sa_dssp"};
    const size_t n = 7;
    if (end - begin < n || (end - begin > n && !fm_blank_at(text, begin + n, end, false))) {
        return false;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (memcmp(text.data + begin, names[i], n) == 0) return true;
    }
    return false;
}

static fm_status fail_row(const a3m_reader *reader, fm_status kind, size_t found, size_t expected,
                          fm_error *reterr) {
    const char *plural = found == 1 ? "" : "s", *why = "";
    if (reader->n_row == 0) {
        const bool has_lower = reader->row.pending || reader->row.max_deletion;
        why = has_lower ? "; write a query in upper case, as lower-case letters are insertions"
                        : "; the alignment is of another sequence";
    }
    if (reader->has_stop && found == expected) why = " and a '*' behind them";
    if (kind == FM_ERR_LIMIT) {
        return fm_fail_at(reterr, kind, reader->place.line, 1, reader->place.sequence,
                          "row %zu has %zu deletions before one column, the limit is %zu",
                          reader->n_row, found, expected);
    }
    return fm_fail_at(reterr, kind, reader->place.line, 1, reader->place.sequence,
                      "row %zu has %zu match column%s, the query has %zu%s", reader->n_row, found,
                      plural, expected, why);
}

/* Returns whether the open row is one column longer than the chain because of a '*' behind its last
 * residue. Programs write one for the end of translation. The other rows of such an alignment have
 * a '*' or a gap there. */
static bool has_stop_column(a3m_reader *reader) {
    if (reader->compat || reader->row.at != (size_t)reader->alignment->n_col + 1) return false;
    if (reader->n_row == 0) reader->has_stop = reader->last == STOP;
    return reader->has_stop && (reader->last == STOP || reader->last == '-');
}

/* Checks the open row and makes it the alignment's newest. */
static fm_status finish_row(a3m_reader *reader, fm_error *reterr) {
    fm_alignment *alignment = reader->alignment;
    fm_match_row *row = &reader->row;
    if ((row->at != alignment->n_col || reader->has_stop) && !has_stop_column(reader)) {
        return fail_row(reader, FM_ERR_FORMAT, row->at, alignment->n_col, reterr);
    }
    if (row->max_deletion > FM_LIMIT_DELETION) {
        return fail_row(reader, FM_ERR_LIMIT, row->max_deletion, FM_LIMIT_DELETION, reterr);
    }
    alignment->row[alignment->n_seq++] = reader->place;
    reader->n_row++;
    return FM_OK;
}

static fm_status start_row(a3m_reader *reader, const fm_line *line, fm_error *reterr) {
    fm_alignment *alignment = reader->alignment;
    reader->place = (fm_alignment_row){
        .description = (uint32_t)line->begin + 1,
        .description_bytes = (uint32_t)(line->end - line->begin - 1),
        .sequence = (uint32_t)line->start,
        .line = (uint32_t)line->number,
    };
    reader->has_sequence = false;
    reader->last = 0;
    reader->row = (fm_match_row){0};
    if (!alignment) return FM_OK;
    if (alignment->n_seq >= alignment->max_seq) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, line->number, 1, line->start,
                          "the alignment has more rows than the %u that fit", alignment->max_seq);
    }
    size_t base = (size_t)alignment->n_seq * alignment->n_col;
    reader->row.letters = alignment->letters + base;
    reader->row.deletion = alignment->deletion + base;
    reader->row.n_col = alignment->n_col;
    memset(reader->row.deletion, 0, alignment->n_col * sizeof *reader->row.deletion);
    return FM_OK;
}

/* Takes a '>' line, which ends the open record and starts another. Sets *ret_stop when only the
 * first row is needed and is complete. */
static fm_status take_description(a3m_reader *reader, const fm_line *line, bool *ret_stop,
                                  fm_error *reterr) {
    if (reader->record == RECORD_ROW) {
        if (!reader->alignment) {
            *ret_stop = true;
            return FM_OK;
        }
        fm_status status = finish_row(reader, reterr);
        if (status) return status;
    }
    if (!reader->compat && is_annotation(reader->text, line->begin + 1, line->end)) {
        reader->record = RECORD_ANNOTATION;
        return FM_OK;
    }
    reader->record = RECORD_ROW;
    return start_row(reader, line, reterr);
}

static void note_last_column(a3m_reader *reader, const fm_line *line) {
    for (size_t i = line->end; i > line->begin; i--) {
        const uint8_t byte = reader->text.data[i - 1];
        if ((byte >= 'a' && byte <= 'z') || byte == reader->padding) continue;
        reader->last = byte;
        return;
    }
}

static fm_status take_sequence(a3m_reader *reader, const fm_line *line, fm_error *reterr) {
    if (reader->record == RECORD_ANNOTATION) return FM_OK;
    if (reader->record == RECORD_NONE) {
        if (!reader->compat && reader->text.data[line->begin] == ';') return FM_OK;
        bool is_mark = fm_utf8_mark(reader->text.data + line->begin, line->end - line->begin) > 0;
        return fm_fail_at(reterr, FM_ERR_FORMAT, line->number, line->begin - line->start + 1,
                          line->begin, "%s",
                          is_mark ? "found a byte order mark, which OpenFold does not skip, before "
                                    "the first '>' line"
                                  : "found sequence data before the first '>' line");
    }
    if (!reader->has_sequence) {
        reader->has_sequence = true;
        reader->place.sequence = (uint32_t)line->start;
        reader->place.line = (uint32_t)line->number;
    }
    reader->kernel->a3m(&reader->row, reader->text.data + line->begin, line->end - line->begin,
                        reader->text.size - line->begin, reader->padding);
    const size_t fits = reader->alignment ? reader->alignment->n_col : 0;
    if (reader->row.at > fits) note_last_column(reader, line);
    return FM_OK;
}

/* Reads records. The caller finishes the record that is open at the end. */
static fm_status read_records(a3m_reader *reader, fm_error *reterr) {
    fm_line line;
    fm_status status = FM_OK;
    bool stop = false;
    while (!stop && !status && fm_lines_next(&reader->lines, &line)) {
        if (line.begin == line.end || reader->text.data[line.begin] == '#') continue;
        if (reader->text.data[line.begin] == '>') {
            status = take_description(reader, &line, &stop, reterr);
        } else {
            status = take_sequence(reader, &line, reterr);
        }
    }
    return status;
}

fm_status fm_a3m_measure(fm_bytes text, const fm_a3m_options *options, size_t *ret_n_col,
                         fm_error *reterr) {
    a3m_reader reader;
    fm_status status = open_reader(&reader, text, options, reterr);
    if (!status) status = read_records(&reader, reterr);
    if (status) return status;
    if (reader.record != RECORD_ROW) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                          "the alignment has no sequences, expected at least one");
    }
    if (!reader.compat && reader.row.at > 0 && reader.last == STOP) reader.row.at--;
    if (reader.row.at == 0 && !reader.compat) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, reader.place.line, 1, reader.place.sequence,
                          "the query (row 0) has no residues");
    }
    if (reader.row.at > FM_LIMIT_N_RES) {
        return fm_fail_at(reterr, FM_ERR_LIMIT, reader.place.line, 1, reader.place.sequence,
                          "the query has %zu match columns, the limit is %u", reader.row.at,
                          FM_LIMIT_N_RES);
    }
    *ret_n_col = reader.row.at;
    return FM_OK;
}

fm_status fm_a3m_append(fm_bytes text, const fm_a3m_options *options, fm_alignment *alignment,
                        fm_error *reterr) {
    a3m_reader reader;
    fm_status status = open_reader(&reader, text, options, reterr);
    if (status) return status;
    reader.alignment = alignment;
    status = read_records(&reader, reterr);
    if (!status && reader.record == RECORD_ROW) status = finish_row(&reader, reterr);
    return status;
}

fm_status fm_a3m_parse(fm_bytes text, const fm_a3m_options *options, fm_arena *arena,
                       fm_alignment *ret_alignment, fm_error *reterr) {
    size_t n_col, mark = fm_arena_mark(arena);
    fm_alignment alignment;
    fm_status status = fm_a3m_measure(text, options, &n_col, reterr);
    if (status) return status;
    status = fm_alignment_init(&alignment, arena, n_col, fm_alignment_max_rows(text.size, n_col),
                               reterr);
    if (!status) status = fm_a3m_append(text, options, &alignment, reterr);
    if (status) {
        fm_arena_rewind(arena, mark);
        return status;
    }
    *ret_alignment = alignment;
    return FM_OK;
}

bool fm_a3m_find_insertion(fm_bytes text, const fm_a3m_options *options, fm_text_place *ret_place) {
    a3m_reader reader;
    fm_line line;
    if (open_reader(&reader, text, options, NULL) || read_records(&reader, NULL)) return false;
    if (!reader.has_sequence) return false;
    fm_lines lines =
        fm_lines_of(reader.text, reader.compat, reader.place.sequence, reader.place.line);
    while (fm_lines_next(&lines, &line)) {
        const uint8_t first = line.begin < line.end ? reader.text.data[line.begin] : '#';
        if (first == '>') return false;
        for (size_t i = line.begin; i < line.end && first != '#'; i++) {
            if (reader.text.data[i] < 'a' || reader.text.data[i] > 'z') continue;
            *ret_place = (fm_text_place){line.number, i - line.start + 1, i};
            return true;
        }
    }
    return false;
}

fm_text_place fm_a3m_locate(fm_bytes text, const fm_a3m_options *options,
                            const fm_alignment_row *row, size_t column) {
    bool compat = options && options->compat_openfold;
    fm_lines lines = fm_lines_of(text, compat, row->sequence, row->line);
    fm_line line;
    size_t at = 0;
    while (fm_lines_next(&lines, &line)) {
        for (size_t i = line.begin; i < line.end; i++) {
            uint8_t c = text.data[i];
            if (i == line.begin && (c == '>' || c == '#')) break;
            if ((c >= 'a' && c <= 'z') || (!compat && c == PADDING)) continue;
            if (at++ == column) return (fm_text_place){line.number, i - line.start + 1, i};
        }
    }
    return (fm_text_place){row->line, 1, row->sequence};
}
