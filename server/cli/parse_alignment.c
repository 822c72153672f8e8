/* parse_alignment.c: the kinds a3m, sto and msa of foldmill parse. */
#include "featurizer/msa.h"
#include "featurizer/parse/a3m.h"
#include "featurizer/parse/stockholm.h"
#include "proto/base/compress.h"
#include "proto/chem/residue.h"
#include "server/cli/parse.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Appends an [n_row, n_column] matrix as int32; it is given as u8 (`bytes`) or u16 (`words`). The
 * writer borrows the int32 values from the arena. */
static fm_status write_wide(fm_array_writer *writer, const char *key, fm_arena *arena,
                            const uint8_t *bytes, const uint16_t *words, size_t n_row,
                            size_t n_column, fm_error *reterr) {
    assert(bytes || words);
    size_t n = n_row * n_column;
    int32_t *wide = fm_arena_alloc_array(arena, n, sizeof *wide);
    if (!wide) return fm_arena_full(arena, reterr);
    for (size_t i = 0; i < n; i++)
        wide[i] = bytes ? bytes[i] : words[i];
    return fm_array_writer_append(writer, key, "<i4", 2, (uint64_t[]){n_row, n_column}, wide,
                                  reterr);
}

/* The numbers of a deletion matrix that the summaries show. */
typedef struct deletion_counts {
    uint64_t n_letter;
    size_t n_place;
    unsigned max;
} deletion_counts;

static deletion_counts count_deletions(const uint16_t *deletion, size_t n) {
    deletion_counts counts = {0};
    for (size_t i = 0; i < n; i++) {
        counts.n_place += deletion[i] > 0;
        counts.n_letter += deletion[i];
        if (deletion[i] > counts.max) counts.max = deletion[i];
    }
    return counts;
}

static void print_deletions(const deletion_counts *counts) {
    printf("  deletions   %llu letters before %zu columns, at most %u at one place\n",
           (unsigned long long)counts->n_letter, counts->n_place, counts->max);
}

static void write_deletions(fm_json_writer *json, const deletion_counts *counts) {
    fm_json_open_object(json, "deletions");
    fm_json_put_u64(json, "letters", counts->n_letter);
    fm_json_put_u64(json, "columns", counts->n_place);
    fm_json_put_u64(json, "max", counts->max);
    fm_json_close(json);
}

/* The share of `part` in `n`; 0 where n is. */
static double share_of(uint64_t part, uint64_t n) {
    return n ? (double)part / (double)n : 0.0;
}

/* -- a3m, sto */

typedef struct described_rows {
    fm_bytes text;
    const fm_alignment *alignment;
} described_rows;

static fm_bytes description_of(const void *context, size_t i) {
    const described_rows *rows = context;
    const fm_alignment_row *row = &rows->alignment->row[i];
    return (fm_bytes){rows->text.data + row->description, row->description_bytes};
}

static fm_status write_alignment(const fm_parse_request *request, const fm_alignment *alignment,
                                 fm_error *reterr) {
    fm_array_writer *writer;
    size_t n_seq = alignment->n_seq, n_col = alignment->n_col;
    const described_rows rows = {request->text, alignment};
    fm_status status = fm_array_writer_create(request->out, FM_ARRAY_NPZ, &writer, reterr);
    if (status) return status;
    status = fm_array_writer_append(writer, "seqs", "|u1", 2, (uint64_t[]){n_seq, n_col},
                                    alignment->letters, reterr);
    if (!status) {
        status = write_wide(writer, "deletion", request->arena, NULL, alignment->deletion, n_seq,
                            n_col, reterr);
    }
    if (!status) {
        status = fm_parse_write_strings(writer, "desc", request->arena, n_seq, description_of,
                                        &rows, reterr);
    }
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

static fm_status show_alignment(const fm_parse_request *request, const char *kind, size_t n_section,
                                const fm_alignment *alignment, fm_error *reterr) {
    size_t n = (size_t)alignment->n_seq * alignment->n_col, n_gap = 0;
    if (request->out) return write_alignment(request, alignment, reterr);
    for (size_t i = 0; i < n; i++)
        n_gap += alignment->letters[i] == '-';
    deletion_counts deletions = count_deletions(alignment->deletion, n);
    if (request->json) {
        fm_json_writer json;
        fm_parse_begin_json(request, kind, &json);
        fm_json_put_u64(&json, "rows", alignment->n_seq);
        fm_json_put_u64(&json, "columns", alignment->n_col);
        fm_json_put_u64(&json, "alignments", n_section);
        fm_json_put_f64(&json, "gaps", share_of(n_gap, n), 6);
        write_deletions(&json, &deletions);
        fm_json_end(&json);
        return FM_OK;
    }
    printf("%s: %s, %u rows of %u match columns\n", request->path, kind, alignment->n_seq,
           alignment->n_col);
    if (n_section > 1) {
        printf("  alignments  %zu, separated by NUL bytes; this is the first\n", n_section);
    }
    printf("  gaps        %.1f %% of %zu cells\n", 100.0 * share_of(n_gap, n), n);
    print_deletions(&deletions);
    return FM_OK;
}

fm_status fm_parse_kind_a3m(const fm_parse_request *request, fm_error *reterr) {
    fm_alignment alignment;
    const fm_a3m_options options = {.compat_openfold = request->compat_openfold};
    fm_status status = fm_a3m_parse(request->text, &options, request->arena, &alignment, reterr);
    if (status) return status;
    size_t n_section = 1;
    for (size_t at = 0; fm_a3m_next(request->text, options.compat_openfold, at, &at);)
        n_section++;
    return show_alignment(request, "A3M", n_section, &alignment, reterr);
}

fm_status fm_parse_kind_sto(const fm_parse_request *request, fm_error *reterr) {
    fm_alignment alignment;
    const fm_stockholm_options options = {.compat_openfold = request->compat_openfold};
    fm_status status =
        fm_stockholm_parse(request->text, &options, request->arena, &alignment, reterr);
    return status ? status : show_alignment(request, "Stockholm", 1, &alignment, reterr);
}

/* -- msa */

static fm_bytes species_of(const void *context, size_t i) {
    const fm_part_msa *part = context;
    uint32_t begin = i ? part->species_end[i - 1] : 0;
    return (fm_bytes){(const uint8_t *)part->species + begin, part->species_end[i] - begin};
}

static fm_status write_counts(fm_array_writer *writer, const fm_part_msa *part, fm_arena *arena,
                              fm_error *reterr) {
    int32_t *counts = fm_arena_alloc_array(arena, part->n_res, sizeof *counts);
    if (!counts) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < part->n_res; i++)
        counts[i] = (int32_t)part->n_seq;
    return fm_array_writer_append(writer, "num_alignments", "<i4", 1, (uint64_t[]){part->n_res},
                                  counts, reterr);
}

fm_status fm_parse_append_msa(fm_array_writer *writer, const fm_part_msa *part, fm_arena *arena,
                              fm_error *reterr) {
    fm_status status = write_wide(writer, "deletion_matrix_int", arena, NULL, part->deletion_matrix,
                                  part->n_seq, part->n_res, reterr);
    if (!status) {
        status =
            write_wide(writer, "msa", arena, part->msa, NULL, part->n_seq, part->n_res, reterr);
    }
    if (!status) status = write_counts(writer, part, arena, reterr);
    if (status) return status;
    return fm_parse_write_strings(writer, "msa_species_identifiers", arena, part->n_seq, species_of,
                                  part, reterr);
}

static fm_status write_msa(const fm_parse_request *request, const fm_part_msa *part,
                           fm_error *reterr) {
    fm_array_writer *writer;
    fm_status status = fm_array_writer_create(request->out, FM_ARRAY_NPZ, &writer, reterr);
    if (status) return status;
    status = fm_parse_append_msa(writer, part, request->arena, reterr);
    if (!status) return fm_array_writer_finish(writer, reterr);
    fm_array_writer_destroy(writer);
    return status;
}

static void print_msa(const fm_parse_request *request, const char *kind, const fm_part_msa *part,
                      const fm_msa_report *report) {
    size_t n = (size_t)part->n_seq * part->n_res, n_species = 0;
    uint64_t n_gap = 0;
    for (uint32_t i = 0; i < part->n_res; i++)
        n_gap += part->profile[(size_t)i * FM_N_HHBLITS + FM_RESTYPE_GAP];
    for (uint32_t i = 0; i < part->n_seq; i++)
        n_species += species_of(part, i).size > 0;
    deletion_counts deletions = count_deletions(part->deletion_matrix, n);
    if (request->json) {
        fm_json_writer json;
        fm_parse_begin_json(request, kind, &json);
        fm_json_put_u64(&json, "rows", report->n_row);
        fm_json_put_u64(&json, "alignments_left_out", report->n_left_out);
        fm_json_put_u64(&json, "distinct_rows", part->n_seq);
        fm_json_put_u64(&json, "residues", part->n_res);
        fm_json_put_f64(&json, "gaps", share_of(n_gap, n), 6);
        write_deletions(&json, &deletions);
        fm_json_put_u64(&json, "rows_with_species", n_species);
        fm_json_end(&json);
        return;
    }
    printf("%s: %s, %u distinct rows of %u residues\n", request->path, kind, part->n_seq,
           part->n_res);
    printf("  rows        %u read, %u of them duplicates\n", report->n_row,
           report->n_row - part->n_seq);
    if (report->n_left_out) {
        printf("  left out    %u alignment%s of other queries\n", report->n_left_out,
               report->n_left_out == 1 ? "" : "s");
    }
    printf("  gaps        %.1f %% of %zu cells\n", 100.0 * (double)n_gap / (double)n, n);
    print_deletions(&deletions);
    printf("  species     known for %zu rows\n", n_species);
}

static bool ends_with(const char *text, size_t size, const char *end) {
    size_t n = strlen(end);
    return size >= n && memcmp(text + size - n, end, n) == 0;
}

/* Recognises the format by the first line of the text, or by the file's name. */
static fm_msa_format format_of(const fm_parse_request *request) {
    static const char magic[] = "# STOCKHOLM";
    static const char *const names[] = {".sto", ".stk", ".sth", ".stockholm"};
    size_t n;
    (void)fm_compression_of_name(request->path, &n);
    bool stockholm = request->text.size >= sizeof magic - 1 &&
                     memcmp(request->text.data, magic, sizeof magic - 1) == 0;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        stockholm |= ends_with(request->path, n, names[i]);
    if (stockholm) return FM_MSA_STOCKHOLM;
    fm_msa_format by_name = fm_msa_format_of_name(request->path);
    return by_name ? by_name : FM_MSA_A3M;
}

fm_status fm_parse_kind_msa(const fm_parse_request *request, fm_error *reterr) {
    const fm_msa_input input = {request->path, request->text, format_of(request)};
    const fm_msa_options options = {.compat_openfold = request->compat_openfold};
    fm_part_msa part;
    fm_msa_report report;
    fm_status status =
        fm_msa_build(&input, 1, (fm_bytes){0}, &options, request->arena, &part, &report, reterr);
    if (status) return status;
    if (request->out) return write_msa(request, &part, reterr);
    print_msa(request, fm_msa_reader_of(input.format)->title, &part, &report);
    return FM_OK;
}
