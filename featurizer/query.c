/* query.c: see query.h. */
#include "featurizer/query.h"

#include "featurizer/parse/a3m.h"
#include "featurizer/parse/lines.h"
#include "featurizer/parse/stockholm.h"
#include "proto/base/compress.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char one_chain[] =
    "foldmill predicts single chains: give each chain a separate file with its alignments";

fm_query_format fm_query_format_of_name(const char *name, size_t *ret_bare) {
    static const struct {
        const char *ending;
        fm_query_format format;
    } endings[] = {{".fasta", FM_QUERY_FASTA},  {".fa", FM_QUERY_FASTA},  {".fas", FM_QUERY_FASTA},
                   {".faa", FM_QUERY_FASTA},    {".seq", FM_QUERY_FASTA}, {".a3m", FM_QUERY_A3M},
                   {".sto", FM_QUERY_STOCKHOLM}};
    size_t bare;
    (void)fm_compression_of_name(name, &bare);
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        size_t length = strlen(endings[i].ending);
        if (bare <= length || strncasecmp(name + bare - length, endings[i].ending, length) != 0) {
            continue;
        }
        if (ret_bare) *ret_bare = bare - length;
        return endings[i].format;
    }
    return FM_QUERY_NONE;
}

/* -- letters */

static bool is_residue(char letter) {
    return letter == 'X' || (letter && strchr("ARNDCQEGHILKMFPSTWYV", letter));
}

static fm_status refuse_letter(uint8_t found, fm_text_place place, fm_error *reterr) {
    char text[16];
    bool is_gap = found == '-' || found == '.', is_text = found > ' ' && found <= '~';
    snprintf(text, sizeof text, is_text ? "'%c'" : "the byte 0x%02x", found);
    if (is_gap) {
        return fm_fail_at(
            reterr, FM_ERR_FORMAT, place.line, place.column, place.offset,
            "found a gap %s in the sequence, expected the letters of the whole chain; "
            "remove the gaps",
            text);
    }
    return fm_fail_at(reterr, FM_ERR_FORMAT, place.line, place.column, place.offset,
                      "found %s in the sequence, expected one of the 20 amino acids "
                      "(ACDEFGHIKLMNPQRSTVWY) or X; write X for a residue that has no letter",
                      text);
}

static fm_status refuse_second(uint64_t line, uint64_t column, uint64_t offset, const char *what,
                               fm_error *reterr) {
    return fm_fail_at(reterr, FM_ERR_DATA, line, column, offset, "found %s; %s", what, one_chain);
}

/* -- FASTA */

/* Appends the letters of a line to out[0..*n-1]. */
static fm_status take_line(fm_bytes text, const fm_line *line, char *out, uint32_t *n, bool *ended,
                           fm_error *reterr) {
    for (size_t at = line->begin; at < line->end; at++) {
        uint8_t byte = text.data[at];
        const fm_text_place place = {line->number, at - line->start + 1, at};
        if (byte == ' ' || byte == '\t') continue;
        if (byte == ':' || byte == '/') {
            return refuse_second(place.line, place.column, at,
                                 "a separator of chains in the sequence", reterr);
        }
        if (*ended) {
            return fm_fail_at(reterr, FM_ERR_FORMAT, place.line, place.column, at,
                              "found more of the sequence behind '*', expected its end there; "
                              "write X for a residue that has no letter");
        }
        if (byte == '*') {
            *ended = true;
            continue;
        }
        char letter = (char)toupper(byte);
        if (!is_residue(letter)) return refuse_letter(byte, place, reterr);
        if (*n == FM_LIMIT_N_RES) {
            return fm_fail_at(reterr, FM_ERR_LIMIT, place.line, place.column, at,
                              "the sequence has more than %u residues", FM_LIMIT_N_RES);
        }
        out[(*n)++] = letter;
    }
    return FM_OK;
}

static fm_status parse_fasta(fm_bytes text, fm_arena *arena, fm_part_sequence *ret_sequence,
                             fm_error *reterr) {
    size_t room = text.size < FM_LIMIT_N_RES ? text.size : FM_LIMIT_N_RES;
    char *letters = fm_arena_alloc(arena, room + 1);
    if (!letters) return fm_arena_full(arena, reterr);
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    uint32_t n = 0, n_record = 0;
    bool ended = false;
    while (fm_lines_next(&lines, &line)) {
        if (line.begin == line.end) continue;
        uint8_t first = text.data[line.begin];
        if (first == ';' && n == 0) continue; /* a comment */
        if (first == '>') {
            if (n_record++ || n) {
                return refuse_second(line.number, 1, line.begin, "a second record", reterr);
            }
            continue;
        }
        fm_status status = take_line(text, &line, letters, &n, &ended, reterr);
        if (status) return status;
    }
    if (n == 0) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, lines.number, 1, text.size,
                          "the file has no sequence; expected a line '>NAME' and lines of letters");
    }
    *ret_sequence = (fm_part_sequence){.n_res = n, .sequence = letters};
    return FM_OK;
}

/* -- the first row of an alignment */

/* ColabFold's alignments begin with "#LENGTHS<tab>COPIES": lengths of several chains have commas,
 * and copies other than 1 mean a homomer. */
static fm_status check_colabfold_header(fm_bytes text, fm_error *reterr) {
    fm_lines lines = fm_lines_of(text, false, 0, 1);
    fm_line line;
    do {
        if (!fm_lines_next(&lines, &line)) return FM_OK;
    } while (line.begin == line.end);
    const char *at = (const char *)text.data + line.begin, *end = at + (line.end - line.begin);
    if (*at++ != '#' || at == end || !isdigit((unsigned char)*at)) return FM_OK;
    while (at < end && isdigit((unsigned char)*at))
        at++;
    bool is_many = at < end && *at == ',';
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (end - at > 1 || (end - at == 1 && *at != '1')) is_many = true;
    if (!is_many) return FM_OK;
    return refuse_second(line.number, 1, line.begin,
                         "ColabFold's header of an alignment of several chains or copies", reterr);
}

static fm_text_place locate(fm_bytes text, fm_query_format format, const fm_alignment_row *row,
                            size_t column) {
    return format == FM_QUERY_A3M ? fm_a3m_locate(text, NULL, row, column)
                                  : fm_stockholm_locate(text, NULL, row, column);
}

static fm_status take_first_row(fm_bytes text, fm_query_format format, fm_arena *arena,
                                fm_part_sequence *ret_sequence, fm_error *reterr) {
    fm_alignment alignment;
    fm_text_place place;
    if (format == FM_QUERY_A3M && fm_a3m_find_insertion(text, NULL, &place)) {
        return fm_fail_at(reterr, FM_ERR_FORMAT, place.line, place.column, place.offset,
                          "found '%c' in the sequence, which is an insertion in an A3M file, "
                          "expected upper-case letters in the first row; write it in upper case",
                          text.data[place.offset]);
    }
    fm_status status = format == FM_QUERY_A3M
                           ? fm_a3m_parse(text, NULL, arena, &alignment, reterr)
                           : fm_stockholm_parse(text, NULL, arena, &alignment, reterr);
    if (status) return status;
    for (uint32_t i = 0; i < alignment.n_col; i++) {
        char letter = (char)alignment.letters[i];
        if (is_residue(letter)) continue;
        return refuse_letter(alignment.letters[i], locate(text, format, &alignment.row[0], i),
                             reterr);
    }
    *ret_sequence = (fm_part_sequence){alignment.n_col, (const char *)alignment.letters};
    return FM_OK;
}

fm_status fm_query_parse(fm_bytes text, fm_query_format format, fm_arena *arena,
                         fm_part_sequence *ret_sequence, fm_error *reterr) {
    fm_status kind = fm_text_check_kind(text, reterr);
    if (kind) return kind;
    if (format == FM_QUERY_FASTA) return parse_fasta(text, arena, ret_sequence, reterr);
    fm_status status = format == FM_QUERY_A3M ? check_colabfold_header(text, reterr) : FM_OK;
    return status ? status : take_first_row(text, format, arena, ret_sequence, reterr);
}

fm_status fm_query_structure(const fm_part_sequence *sequence, fm_arena *arena,
                             fm_part_structure *ret_structure, fm_error *reterr) {
    size_t n_atom = (size_t)sequence->n_res * FM_N_ATOM37;
    float *positions = fm_arena_calloc(arena, n_atom, 3 * sizeof *positions);
    uint8_t *mask = fm_arena_calloc(arena, n_atom, sizeof *mask);
    if (!positions || !mask) return fm_arena_full(arena, reterr);
    *ret_structure = (fm_part_structure){.n_res = sequence->n_res,
                                         .all_atom_positions = positions,
                                         .all_atom_mask = mask,
                                         .is_distillation = 1};
    return FM_OK;
}
