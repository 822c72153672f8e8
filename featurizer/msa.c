/* msa.c: see msa.h.
 *
 * The steps, in order:
 *   1. list_files         chooses the alignments among the inputs and sorts them canonically
 *   2. read_files         parses each into one common fm_alignment; every file keeps its row range
 *   3. remove_duplicates  keeps the first occurrence of each row, with a hash table of rows
 *   4. encode_rows        turns letters into HHblits ids in place and counts the profile
 *   5. write_species, write_sources
 *
 * Errors found after step 2 still name a line and column. Each row keeps the offset of its text,
 * and the parser walks the row again to find the place of a match column. */
#include "featurizer/msa.h"

#include "featurizer/parse/lines.h"
#include "proto/base/compress.h"
#include "proto/chem/residue.h"
#include "proto/limits.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum {
    ENCODE_ROWS = 128, /* rows encoded and then counted while they are in the cache */
    LOOK_AHEAD = 12,   /* rows to prefetch ahead; descriptions are far apart in the text */
};

/* One alignment file of the chain. */
typedef struct msa_file {
    const fm_msa_input *input;
    size_t name_bytes; /* length of the name without the ending of a compression */
    fm_msa_format format;
    fm_a3m_options how; /* to read it */
    int rank;
    uint32_t first_row, n_row; /* range of rows in the merged alignment */
    uint32_t n_taken;          /* NUL-terminated alignments of the query */
} msa_file;

typedef struct msa_builder {
    const fm_msa_options *options;
    const fm_msa_kernel *kernel;
    fm_arena *arena;
    fm_bytes query; /* size 0 when not known */
    msa_file *files;
    size_t n_file;
    uint32_t n_left_out; /* NUL-terminated alignments of other queries */
    fm_alignment rows;
} msa_builder;

static const fm_msa_options defaults;

static int rank_of(const char *name) {
    if (strstr(name, "uniref90")) return 0;
    if (strstr(name, "bfd") || strstr(name, "uniclust")) return 1;
    if (strstr(name, "mgnify")) return 2;
    /* Protenix's rows to pair come before its others. */
    bool is_paired = strncmp(name, "pairing.", 8) == 0 || strncmp(name, "uniref100_hits.", 15) == 0;
    return is_paired ? 3 : 4;
}

static int compare_files(const void *left, const void *right) {
    const msa_file *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    size_t n = a->name_bytes < b->name_bytes ? a->name_bytes : b->name_bytes;
    int order = memcmp(a->input->name, b->input->name, n);
    if (order) return order;
    if (a->name_bytes != b->name_bytes) return a->name_bytes < b->name_bytes ? -1 : 1;
    /* "x.a3m" beside "x.a3m.gz": order by content, so that the order of the inputs does not
     * matter */
    fm_bytes x = a->input->content, y = b->input->content;
    if (x.size != y.size) return x.size < y.size ? -1 : 1;
    return x.size ? memcmp(x.data, y.data, x.size) : 0;
}

static fm_status list_files(msa_builder *builder, const fm_msa_input *inputs, size_t n_input,
                            fm_error *reterr) {
    bool compat = builder->options->compat_openfold;
    builder->files = fm_arena_calloc(builder->arena, n_input, sizeof *builder->files);
    if (!builder->files) return fm_arena_full(builder->arena, reterr);
    for (size_t i = 0; i < n_input; i++) {
        fm_msa_format format =
            inputs[i].format ? inputs[i].format : fm_msa_format_of_name(inputs[i].name);
        if (format == FM_MSA_NONE) continue;
        size_t name_bytes;
        (void)fm_compression_of_name(inputs[i].name, &name_bytes);
        builder->files[builder->n_file++] = (msa_file){
            .input = &inputs[i],
            .name_bytes = name_bytes,
            .format = format,
            .how.compat_openfold = compat,
            .rank = compat ? 0 : rank_of(inputs[i].name),
        };
    }
    if (builder->n_file > 1) {
        qsort(builder->files, builder->n_file, sizeof *builder->files, compare_files);
    }
    return FM_OK;
}

/* Returns whether the first row of an A3M text is the query; X on either side matches any letter.
 */
static bool begins_with_query(fm_bytes text, fm_bytes query, fm_arena *arena) {
    size_t mark = fm_arena_mark(arena), n_col;
    fm_alignment first;
    bool same = false;
    if (!fm_a3m_measure(text, NULL, &n_col, NULL) && n_col == query.size &&
        !fm_alignment_init(&first, arena, n_col, 1, NULL)) {
        /* The alignment has room for one row, so parsing stops with FM_ERR_LIMIT at the second. */
        fm_status status = fm_a3m_append(text, NULL, &first, NULL);
        same = (!status || status == FM_ERR_LIMIT) && first.n_seq == 1;
        for (size_t i = 0; i < n_col && same; i++) {
            uint8_t here = first.letters[i], wanted = query.data[i];
            same = here == wanted || here == 'X' || wanted == 'X';
        }
    }
    fm_arena_rewind(arena, mark);
    return same;
}

/* Counts the lines of the text from `at` on. */
static uint64_t count_lines(fm_bytes text, size_t at) {
    fm_lines lines = fm_lines_of(text, false, at, 1);
    fm_line line;
    uint64_t n = 0;
    while (fm_lines_next(&lines, &line))
        n++;
    return n;
}

/* Appends all of a text's NUL-terminated alignments whose first row is the query. Where it is not
 * known, it is the first row of all. A text with none of the query gives its first alignment, whose
 * first row is then refused. */
static fm_status append_a3m(msa_builder *builder, msa_file *file, fm_error *reterr) {
    fm_bytes text = file->input->content, query = builder->query;
    const bool compat = file->how.compat_openfold;
    fm_alignment *rows = &builder->rows;
    uint32_t before = rows->n_seq, n_part = 0;
    size_t next = 0;
    uint64_t line = 1;
    fm_status status = FM_OK;
    bool is_one = !fm_a3m_next(text, compat, 0, &next), more = !is_one;
    for (size_t begin = 0; !status; begin = next) {
        if (!is_one) more = fm_a3m_next(text, compat, begin, &next);
        size_t end = more ? next - 1 : text.size;
        if (!query.size && rows->n_seq) query = (fm_bytes){rows->letters, rows->n_col};
        n_part++;
        if (is_one || !query.size ||
            begins_with_query((fm_bytes){text.data + begin, end - begin}, query, builder->arena)) {
            file->how.begin = begin;
            file->how.line = line;
            status = fm_a3m_append(text, &file->how, rows, reterr);
            file->n_taken++;
        }
        if (!more) break;
        line += count_lines((fm_bytes){text.data, next - 1}, begin);
    }
    if (status || rows->n_seq > before || file->n_taken) {
        builder->n_left_out += n_part - file->n_taken;
        return status;
    }
    file->how.begin = 0;
    file->how.line = 1;
    return fm_a3m_append(text, &file->how, rows, reterr);
}

static fm_status append_file(msa_builder *builder, msa_file *file, fm_error *reterr) {
    fm_bytes text = file->input->content;
    uint32_t before = builder->rows.n_seq;
    fm_status status = file->format == FM_MSA_A3M
                           ? append_a3m(builder, file, reterr)
                           : fm_msa_reader_of(file->format)
                                 ->append(text, &file->how, builder->arena, &builder->rows, reterr);
    if (status) return status;
    uint32_t most = builder->options->max_file_rows;
    if (most && builder->rows.n_seq - before > most) builder->rows.n_seq = before + most;
    file->first_row = before;
    file->n_row = builder->rows.n_seq - before;
    if (file->n_row > 0) return FM_OK;
    return fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0,
                      "the alignment has no sequences, expected at least one");
}

static fm_status name_source(fm_error *reterr, const msa_file *file, fm_status status) {
    if (reterr) fm_error_in(reterr, file->input->name);
    return status;
}

/* Puts the letters of options in place of those of the cells. */
static void translate(const msa_builder *builder, uint8_t *cells, size_t n) {
    const uint8_t *letters = builder->options->letters;
    for (size_t i = 0; letters && i < n; i++)
        cells[i] = letters[cells[i]];
}

/* Checks that the file's first row is the chain's sequence. Letters are compared as HHblits ids,
 * and an X on either side matches any letter. Bytes that are not residues pass here; encode_rows
 * reports them. */
static fm_status check_first_row(msa_builder *builder, const msa_file *file, fm_error *reterr) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWYX-";
    const fm_alignment *rows = &builder->rows;
    size_t n = rows->n_col, mark = fm_arena_mark(builder->arena);
    if (builder->options->compat_openfold || builder->query.size != n) return FM_OK;
    uint8_t *ids = fm_arena_alloc(builder->arena, 2 * n);
    if (!ids) return fm_arena_full(builder->arena, reterr);
    memcpy(ids, rows->letters + (size_t)file->first_row * n, n);
    memcpy(ids + n, builder->query.data, n);
    translate(builder, ids, 2 * n);
    (void)builder->kernel->encode(ids, 2 * n);
    fm_status status = FM_OK;
    for (size_t i = 0; i < n && !status; i++) {
        uint8_t here = ids[i], wanted = ids[n + i];
        if (here == wanted || here >= sizeof letters - 1 || wanted >= sizeof letters - 1) continue;
        if (letters[here] == 'X' || letters[wanted] == 'X') continue;
        fm_text_place place =
            fm_msa_reader_of(file->format)
                ->locate(file->input->content, &file->how, &rows->row[file->first_row], i);
        status = fm_fail_at(reterr, FM_ERR_DATA, place.line, place.column, place.offset,
                            "the alignment's query has %c at residue %zu, the chain's sequence "
                            "has %c; the alignment is of another sequence",
                            letters[here], i + 1, letters[wanted]);
    }
    fm_arena_rewind(builder->arena, mark);
    return status;
}

/* Reads all rows of all files, in canonical order, into one alignment. */
static fm_status read_files(msa_builder *builder, fm_error *reterr) {
    size_t n_col = builder->query.size, max_rows = 0;
    fm_status status;
    if (n_col == 0) {
        const msa_file *first = &builder->files[0];
        status = fm_msa_reader_of(first->format)
                     ->measure(first->input->content, &first->how, &n_col, reterr);
        if (status) return name_source(reterr, &builder->files[0], status);
    }
    if (n_col == 0) {
        status = fm_fail_at(reterr, FM_ERR_FORMAT, 1, 1, 0, "the query (row 0) has no residues");
        return name_source(reterr, &builder->files[0], status);
    }
    for (size_t i = 0; i < builder->n_file; i++)
        max_rows += fm_alignment_max_rows(builder->files[i].input->content.size, n_col);
    status = fm_alignment_init(&builder->rows, builder->arena, n_col, max_rows, reterr);
    for (size_t i = 0; !status && i < builder->n_file; i++) {
        status = append_file(builder, &builder->files[i], reterr);
        if (!status) status = check_first_row(builder, &builder->files[i], reterr);
        if (status) return name_source(reterr, &builder->files[i], status);
    }
    return status;
}

/* Without alignments, the msa is the query alone. */
static fm_status take_query(msa_builder *builder, fm_error *reterr) {
    fm_bytes query = builder->query;
    if (query.size == 0) {
        return fm_fail(reterr, FM_ERR_DATA, "there is neither an alignment nor a query sequence");
    }
    fm_status status = fm_alignment_init(&builder->rows, builder->arena, query.size, 1, reterr);
    if (status) return status;
    memcpy(builder->rows.letters, query.data, query.size);
    memset(builder->rows.deletion, 0, query.size * sizeof *builder->rows.deletion);
    builder->rows.row[0] = (fm_alignment_row){0};
    builder->rows.n_seq = 1;
    return FM_OK;
}

/* A slot of the open-addressing hash table of rows. `row` is the row's number + 1, and 0 marks a
 * free slot; `tag` is the upper half of the hash, which saves most comparisons of whole rows. */
typedef struct seen_slot {
    uint32_t row, tag;
} seen_slot;

typedef struct seen_rows {
    seen_slot *slots;
    size_t mask;
} seen_rows;

/* Returns true when none of the alignment's first n_kept rows equals `letters`, and then enters it
 * as row n_kept. */
static bool is_new(seen_rows *seen, const fm_alignment *rows, uint32_t n_kept,
                   const uint8_t *letters) {
    uint64_t hash = fm_xxh3(letters, rows->n_col);
    uint32_t tag = (uint32_t)(hash >> 32);
    size_t at = hash & seen->mask;
    for (; seen->slots[at].row; at = (at + 1) & seen->mask) {
        const uint8_t *other = rows->letters + (size_t)(seen->slots[at].row - 1) * rows->n_col;
        if (seen->slots[at].tag == tag && memcmp(other, letters, rows->n_col) == 0) return false;
    }
    seen->slots[at] = (seen_slot){n_kept + 1, tag};
    return true;
}

static void move_row(fm_alignment *rows, uint32_t to, uint32_t from) {
    size_t n = rows->n_col;
    if (to == from) return;
    memcpy(rows->letters + to * n, rows->letters + from * n, n);
    memcpy(rows->deletion + to * n, rows->deletion + from * n, n * sizeof *rows->deletion);
    rows->row[to] = rows->row[from];
}

/* Keeps the first occurrence of each row and the order of rows. Rows move down in place. */
static fm_status remove_duplicates(msa_builder *builder, fm_error *reterr) {
    fm_alignment *rows = &builder->rows;
    size_t mark = fm_arena_mark(builder->arena), n_slot = 16;
    while (n_slot < (size_t)rows->n_seq * 2)
        n_slot *= 2;
    seen_rows seen = {fm_arena_calloc(builder->arena, n_slot, sizeof *seen.slots), n_slot - 1};
    if (!seen.slots) return fm_arena_full(builder->arena, reterr);
    uint32_t n_kept = 0;
    for (size_t i = 0; i < builder->n_file; i++) {
        msa_file *file = &builder->files[i];
        uint32_t first = n_kept;
        for (uint32_t row = file->first_row; row < file->first_row + file->n_row; row++) {
            if (!is_new(&seen, rows, n_kept, rows->letters + (size_t)row * rows->n_col)) continue;
            move_row(rows, n_kept++, row);
        }
        file->first_row = first;
        file->n_row = n_kept - first;
    }
    if (builder->n_file > 0) rows->n_seq = n_kept;
    fm_arena_rewind(builder->arena, mark);
    return FM_OK;
}

static const msa_file *file_of_row(const msa_builder *builder, uint32_t row) {
    for (size_t i = 0; i < builder->n_file; i++) {
        const msa_file *file = &builder->files[i];
        if (row - file->first_row < file->n_row) return file;
    }
    return NULL;
}

/* Fails with the place of the first cell at or after `cell` that has no HHblits id. */
static fm_status fail_unknown(const msa_builder *builder, size_t cell, fm_error *reterr) {
    const fm_alignment *rows = &builder->rows;
    while (rows->letters[cell] != FM_HHBLITS_NONE)
        cell++;
    uint32_t row = (uint32_t)(cell / rows->n_col);
    size_t column = cell % rows->n_col;
    const msa_file *file = file_of_row(builder, row);
    if (!file) {
        return fm_fail(reterr, FM_ERR_DATA, "residue %zu of the query is not a residue letter",
                       column + 1);
    }
    fm_bytes text = file->input->content;
    fm_text_place place = fm_msa_reader_of(file->format)
                              ->locate(file->input->content, &file->how, &rows->row[row], column);
    uint8_t found = place.offset < text.size ? text.data[place.offset] : 0;
    fm_status status =
        found > ' ' && found < 0x7f
            ? fm_fail_at(reterr, FM_ERR_FORMAT, place.line, place.column, place.offset,
                         "found '%c' in match column %zu, expected a residue letter or '-'", found,
                         column + 1)
            : fm_fail_at(reterr, FM_ERR_FORMAT, place.line, place.column, place.offset,
                         "found byte 0x%02x in match column %zu, expected a residue letter or '-'",
                         found, column + 1);
    return name_source(reterr, file, status);
}

/* Turns letters into ids in place and counts them per column. */
static fm_status encode_rows(msa_builder *builder, uint32_t **ret_profile, fm_error *reterr) {
    fm_alignment *rows = &builder->rows;
    size_t n_res = rows->n_col;
    uint32_t *profile = fm_arena_calloc(builder->arena, n_res * FM_N_HHBLITS, sizeof *profile);
    if (!profile) return fm_arena_full(builder->arena, reterr);
    for (size_t row = 0; row < rows->n_seq; row += ENCODE_ROWS) {
        size_t n = rows->n_seq - row < ENCODE_ROWS ? rows->n_seq - row : ENCODE_ROWS;
        uint8_t *cells = rows->letters + row * n_res;
        translate(builder, cells, n * n_res);
        if (!builder->kernel->encode(cells, n * n_res)) {
            return fail_unknown(builder, row * n_res, reterr);
        }
        builder->kernel->count(cells, n, n_res, profile);
    }
    *ret_profile = profile;
    return FM_OK;
}

static bool is_alnum(uint8_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Returns the length of the run of letters and digits that begins at `at`. */
static size_t alnum_run(fm_bytes word, size_t at) {
    size_t n = 0;
    while (at + n < word.size && is_alnum(word.data[at + n]))
        n++;
    return n;
}

static bool is_digit_at(fm_bytes word, size_t at) {
    return at < word.size && word.data[at] >= '0' && word.data[at] <= '9';
}

static bool is_char_at(fm_bytes word, size_t at, char c) {
    return at < word.size && word.data[at] == (uint8_t)c;
}

/* Matches (tr|sp)|ACCESSION{6,10}(_d)?|NAME_SPECIES{1,5}(_d+)? and returns the species. */
static fm_bytes match_uniprot(fm_bytes word) {
    const fm_bytes none = {0};
    if (word.size < 3 || (memcmp(word.data, "tr|", 3) != 0 && memcmp(word.data, "sp|", 3) != 0)) {
        return none;
    }
    size_t at = 3, n = alnum_run(word, at);
    if (n < 6 || n > 10) return none;
    at += n;
    if (is_char_at(word, at, '_') && is_digit_at(word, at + 1)) at += 2;
    if (!is_char_at(word, at, '|')) return none;
    n = alnum_run(word, ++at);
    at += n;
    if (n == 0 || !is_char_at(word, at, '_')) return none;
    size_t species = ++at;
    n = alnum_run(word, at);
    if (n < 1 || n > 5) return none;
    at += n;
    if (is_char_at(word, at, '_') && is_digit_at(word, at + 1)) {
        for (at++; is_digit_at(word, at);)
            at++;
    }
    return at == word.size ? (fm_bytes){word.data + species, n} : none;
}

fm_bytes fm_msa_species(fm_bytes description, bool compat_openfold) {
    size_t begin = 0, end, blank;
    while ((blank = fm_blank_at(description, begin, description.size, compat_openfold)))
        begin += blank;
    for (end = begin; end < description.size && description.data[end] != '/'; end++) {
        uint8_t c = description.data[end];
        bool plain = c > ' ' && c < 0x80;
        if (!plain && fm_blank_at(description, end, description.size, compat_openfold)) break;
    }
    return match_uniprot((fm_bytes){description.data + begin, end - begin});
}

static fm_bytes species_of(const msa_builder *builder, fm_bytes description) {
    return builder->options->species
               ? builder->options->species(description)
               : fm_msa_species(description, builder->options->compat_openfold);
}

/* The most bytes that the species of all rows have. */
static size_t most_species(const msa_builder *builder) {
    enum { SPECIES_MAX = 5 };
    const fm_alignment *rows = &builder->rows;
    size_t n = 0;
    if (!builder->options->species) return (size_t)rows->n_seq * SPECIES_MAX;
    for (uint32_t row = 0; row < rows->n_seq; row++)
        n += rows->row[row].description_bytes;
    return n;
}

static fm_status write_species(msa_builder *builder, fm_part_msa *part, fm_error *reterr) {
    const fm_alignment *rows = &builder->rows;
    uint32_t *end = fm_arena_alloc_array(builder->arena, rows->n_seq, sizeof *end), at = 0;
    char *species = fm_arena_alloc(builder->arena, most_species(builder));
    if (!end || !species) return fm_arena_full(builder->arena, reterr);
    memset(end, 0, rows->n_seq * sizeof *end);
    for (size_t i = 0; i < builder->n_file; i++) {
        const msa_file *file = &builder->files[i];
        for (uint32_t row = file->first_row; row < file->first_row + file->n_row; row++) {
            const fm_alignment_row *place = &rows->row[row];
            if (row + LOOK_AHEAD < file->first_row + file->n_row) {
                __builtin_prefetch(file->input->content.data + place[LOOK_AHEAD].description);
            }
            fm_bytes description = {file->input->content.data + place->description,
                                    place->description_bytes};
            fm_bytes found = species_of(builder, description);
            if (found.size) memcpy(species + at, found.data, found.size);
            at += (uint32_t)found.size;
            end[row] = at;
        }
    }
    fm_arena_trim(builder->arena, species, at);
    part->species = species;
    part->species_end = end;
    return FM_OK;
}

static fm_status write_sources(msa_builder *builder, fm_part_msa *part, fm_error *reterr) {
    size_t n = builder->n_file ? builder->n_file : 1;
    fm_msa_source *source = fm_arena_alloc_array(builder->arena, n, sizeof *source);
    if (!source) return fm_arena_full(builder->arena, reterr);
    source[0] = (fm_msa_source){"query", 1};
    for (size_t i = 0; i < builder->n_file; i++) {
        const msa_file *file = &builder->files[i];
        char *name = fm_arena_calloc(builder->arena, file->name_bytes + 1, 1);
        if (!name) return fm_arena_full(builder->arena, reterr);
        memcpy(name, file->input->name, file->name_bytes);
        source[i] = (fm_msa_source){name, file->n_row};
    }
    part->source = source;
    part->n_source = (uint32_t)n;
    return FM_OK;
}

static fm_status build(msa_builder *builder, const fm_msa_input *inputs, size_t n_input,
                       fm_part_msa *part, fm_msa_report *report, fm_error *reterr) {
    uint32_t *profile = NULL;
    if (builder->query.size > FM_LIMIT_N_RES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the query has %zu residues, the limit is %u",
                       builder->query.size, FM_LIMIT_N_RES);
    }
    fm_status status = list_files(builder, inputs, n_input, reterr);
    if (!status) {
        status = builder->n_file ? read_files(builder, reterr) : take_query(builder, reterr);
    }
    report->n_file = (uint32_t)builder->n_file;
    report->n_row = builder->rows.n_seq;
    report->n_left_out = builder->n_left_out;
    if (!status) status = remove_duplicates(builder, reterr);
    if (!status) status = encode_rows(builder, &profile, reterr);
    if (!status) status = write_species(builder, part, reterr);
    if (!status) status = write_sources(builder, part, reterr);
    part->n_seq = builder->rows.n_seq;
    part->n_res = builder->rows.n_col;
    part->msa = builder->rows.letters;
    part->deletion_matrix = builder->rows.deletion;
    part->profile = profile;
    return status;
}

fm_status fm_msa_build(const fm_msa_input *inputs, size_t n_input, fm_bytes query,
                       const fm_msa_options *options, fm_arena *arena, fm_part_msa *ret_part,
                       fm_msa_report *ret_report, fm_error *reterr) {
    if (!options) options = &defaults;
    const fm_msa_kernel *best = __builtin_cpu_supports("avx2") ? &fm_msa_avx2 : &fm_msa_scalar;
    msa_builder builder = {.options = options,
                           .kernel = options->kernel ? options->kernel : best,
                           .arena = arena,
                           .query = query};
    fm_part_msa part = {0};
    fm_msa_report report = {0};
    size_t mark = fm_arena_mark(arena);
    fm_status status = build(&builder, inputs, n_input, &part, &report, reterr);
    if (status) {
        fm_arena_rewind(arena, mark);
        return status;
    }
    *ret_part = part;
    if (ret_report) *ret_report = report;
    return FM_OK;
}
