/* sequence_rows.c: see sequence_rows.h.
 *
 * Two readers give rows: the project's parsers, which refuse what no alignment may have, and for
 * compat_protenix a scan that takes every text as the reference does. Both hand over letters and
 * deletions; what follows is common. */
#include "featurizer/complex/sequence_rows.h"

#include "featurizer/msa_format.h"
#include "proto/limits.h"

#include <assert.h>
#include <string.h>

/* One row as a reader gives it. */
typedef struct raw_row {
    fm_bytes description;
    fm_bytes key; /* what makes rows duplicates: all but insertions */
    const uint8_t *letters;
    const uint16_t *deletion;
    size_t n; /* letters, of which at most n_col count */
} raw_row;

typedef struct rows_builder {
    fm_arena *arena;
    fm_bytes sequence;
    fm_polymer polymer;
    bool compat, keeps_duplicates, has_no_limit;
    uint8_t class_of[256];
    uint32_t n_row, max_row;
    size_t n_col;
    uint8_t *ids, *deletion;
    uint64_t *hash;
    fm_bytes *species;
    char *names; /* where species are copied to */
    size_t n_name;
    uint64_t *deleted; /* [n_col] sum of the whole counts */
    struct seen_key {
        fm_bytes key; /* data is NULL in a free slot */
        uint64_t hash;
    } * seen;
    size_t mask;
} rows_builder;

uint8_t fm_class_of_letter(char letter, fm_polymer polymer) {
    static const char *const alphabet[] = {"ARNDCQEGHILKMFPSTWYV", "AGCU", "AGCT"};
    static const uint8_t first[] = {0, FM_RESTYPE32_RNA, FM_RESTYPE32_DNA};
    static const uint8_t other[] = {FM_RESTYPE32_UNK, FM_RESTYPE32_RNA_N, FM_RESTYPE32_DNA_N};
    int kind = polymer == FM_POLYMER_RNA ? 1 : polymer == FM_POLYMER_DNA ? 2 : 0;
    if (letter == '-') return FM_RESTYPE32_GAP;
    const char *found = letter ? strchr(alphabet[kind], letter) : NULL;
    if (found) return (uint8_t)(first[kind] + (found - alphabet[kind]));
    if (kind == 0) {
        switch (letter) {
        case 'B': return 3; /* aspartate */
        case 'Z': return 6; /* glutamate */
        case 'U': return 4; /* cysteine */
        }
    }
    return other[kind];
}

static bool is_capital_or_digit(uint8_t c) {
    return (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static size_t run_of(fm_bytes text, size_t at, size_t most) {
    size_t n = 0;
    while (n < most && at + n < text.size && is_capital_or_digit(text.data[at + n]))
        n++;
    return n;
}

static bool has_at(fm_bytes text, size_t at, const char *word) {
    size_t n = strlen(word);
    return text.size >= n && at <= text.size - n && memcmp(text.data + at, word, n) == 0;
}

/* (tr|sp)|ACC{6,10}[_digits]|NAME{1,10}_SPECIES{1,5} */
static fm_bytes match_uniprot(fm_bytes text) {
    const fm_bytes none = {0};
    if (!has_at(text, 0, "tr|") && !has_at(text, 0, "sp|")) return none;
    size_t at = 3, n = run_of(text, at, 10);
    if (n < 6) return none;
    at += n;
    if (has_at(text, at, "_")) {
        size_t digit = at + 1;
        while (digit < text.size && text.data[digit] >= '0' && text.data[digit] <= '9')
            digit++;
        if (digit == at + 1) return none;
        at = digit;
    }
    if (!has_at(text, at, "|")) return none;
    n = run_of(text, ++at, 10);
    at += n;
    if (n == 0 || !has_at(text, at, "_")) return none;
    n = run_of(text, ++at, 5);
    return (fm_bytes){text.data + at, n};
}

fm_bytes fm_sequence_species(fm_bytes description) {
    fm_bytes found = match_uniprot(description);
    size_t at = strlen("UniRef100_");
    if (found.size || !has_at(description, 0, "UniRef100_")) return found;
    size_t accession = at;
    while (at < description.size && description.data[at] != '_')
        at++;
    if (at == accession || at == description.size) return found;
    size_t begin = ++at;
    while (at < description.size && description.data[at] != '_' && description.data[at] != '/')
        at++;
    return (fm_bytes){description.data + begin, at - begin};
}

/* Returns true when no earlier row has this key, and then enters it. */
static bool is_new(rows_builder *builder, fm_bytes key) {
    uint64_t hash = fm_xxh3(key.data, key.size);
    size_t at = hash & builder->mask;
    for (; builder->seen[at].key.data; at = (at + 1) & builder->mask) {
        fm_bytes other = builder->seen[at].key;
        if (builder->seen[at].hash == hash && other.size == key.size &&
            memcmp(other.data, key.data, key.size) == 0) {
            return false;
        }
    }
    builder->seen[at].key = key;
    builder->seen[at].hash = hash;
    return true;
}

/* Encodes a row, unless an earlier one is equal. Files that are each within the limit may have too
 * many rows together. */
static fm_status add_row(rows_builder *builder, const raw_row *row, fm_error *reterr) {
    if (!builder->keeps_duplicates && !is_new(builder, row->key)) return FM_OK;
    if (builder->n_row == builder->max_row) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the alignments have more than %u different rows",
                       builder->max_row);
    }
    size_t n_col = builder->n_col, n = row->n < n_col ? row->n : n_col;
    uint32_t i = builder->n_row++;
    uint8_t *ids = builder->ids + i * n_col, *deletion = builder->deletion + i * n_col;
    for (size_t k = 0; k < n; k++) {
        uint16_t deleted = row->deletion[k];
        ids[k] = builder->class_of[row->letters[k]];
        deletion[k] = (uint8_t)(deleted < FM_DELETION_LIMIT ? deleted : FM_DELETION_LIMIT);
        builder->deleted[k] += deleted;
    }
    memset(ids + n, 0, n_col - n);
    memset(deletion + n, 0, n_col - n);
    builder->hash[i] = fm_xxh3(ids, n_col);
    fm_bytes species = fm_sequence_species(row->description);
    for (size_t k = 0; k < species.size; k++)
        builder->names[builder->n_name + k] = (char)species.data[k];
    builder->species[i] = (fm_bytes){(uint8_t *)builder->names + builder->n_name, species.size};
    builder->n_name += species.size;
    return FM_OK;
}

/* -- rows as the reference takes them */

/* Cuts the next line off `text`, without its end. */
static fm_bytes next_line(fm_bytes *text) {
    const uint8_t *end = memchr(text->data, '\n', text->size);
    size_t n = end ? (size_t)(end - text->data) : text->size, used = end ? n + 1 : n;
    fm_bytes line = {text->data, n};
    *text = (fm_bytes){text->data + used, text->size - used};
    while (line.size && line.data[line.size - 1] <= ' ')
        line.size--;
    while (line.size && line.data[0] <= ' ')
        line = (fm_bytes){line.data + 1, line.size - 1};
    return line;
}

/* Room for one row of the scan. It is kept where the row is new, since the key is borrowed. */
typedef struct scan {
    raw_row row;
    uint8_t *key, *letters;
    uint16_t *deletion;
    size_t n_key;
    uint32_t pending; /* insertions before the next letter */
    bool is_open;
} scan;

static void scan_letters(scan *at, fm_bytes line) {
    for (size_t i = 0; i < line.size; i++) {
        uint8_t c = line.data[i];
        if (c < 'a' || c > 'z') at->key[at->n_key++] = c;
        if ((c < 'A' || c > 'Z') && c != '-') {
            at->pending++;
            continue;
        }
        at->letters[at->row.n] = c;
        at->deletion[at->row.n++] =
            (uint16_t)(at->pending < FM_LIMIT_DELETION ? at->pending : FM_LIMIT_DELETION);
        at->pending = 0;
    }
}

static fm_status end_row(rows_builder *builder, scan *at, fm_error *reterr) {
    if (!at->is_open) return FM_OK;
    at->row.key = (fm_bytes){at->key, at->n_key};
    at->row.letters = at->letters;
    at->row.deletion = at->deletion;
    fm_status status = add_row(builder, &at->row, reterr);
    at->key += at->n_key; /* the key stays; letters and deletions are written over */
    at->n_key = 0;
    at->pending = 0;
    at->row.n = 0;
    return status;
}

static fm_status scan_file(rows_builder *builder, fm_bytes text, uint32_t most, fm_error *reterr) {
    scan at = {.key = fm_arena_alloc(builder->arena, text.size),
               .letters = fm_arena_alloc(builder->arena, text.size),
               .deletion = fm_arena_alloc_array(builder->arena, text.size, sizeof *at.deletion)};
    if (!at.key || !at.letters || !at.deletion) return fm_arena_full(builder->arena, reterr);
    for (uint32_t n = 0; text.size;) {
        fm_bytes line = next_line(&text);
        if (!line.size || line.data[0] == '#') continue;
        if (line.data[0] != '>') {
            if (at.is_open) scan_letters(&at, line);
            continue;
        }
        fm_status status = end_row(builder, &at, reterr);
        at.is_open = n++ < most;
        if (status || !at.is_open) return status;
        at.row.description = (fm_bytes){line.data + 1, line.size - 1};
    }
    return end_row(builder, &at, reterr);
}

/* -- rows by the project's parsers */

static bool is_any(uint8_t letter, fm_polymer polymer) {
    return letter == (polymer == FM_POLYMER_PEPTIDE_L ? 'X' : 'N');
}

static fm_status fail_other(const rows_builder *builder, const fm_alignment *rows,
                            fm_text_place place, size_t column, fm_error *reterr) {
    return fm_fail_at(reterr, FM_ERR_DATA, place.line, place.column, place.offset,
                      "the alignment's query has %c at residue %zu, the chain's sequence has %c; "
                      "the alignment is of another sequence",
                      rows->letters[column], column + 1, builder->sequence.data[column]);
}

static fm_status check_query(const rows_builder *builder, const fm_msa_input *input,
                             const fm_msa_reader *reader, const fm_alignment *rows,
                             fm_error *reterr) {
    for (size_t k = 0; k < builder->n_col; k++) {
        uint8_t here = rows->letters[k], wanted = builder->sequence.data[k];
        if (builder->class_of[here] == builder->class_of[wanted]) continue;
        if (is_any(here, builder->polymer) || is_any(wanted, builder->polymer)) continue;
        fm_text_place place = reader->locate(input->content, NULL, rows->row, k);
        return fail_other(builder, rows, place, k, reterr);
    }
    return FM_OK;
}

static fm_status parse_file(rows_builder *builder, const fm_msa_input *input, uint32_t most,
                            fm_error *reterr) {
    fm_msa_format format = input->format ? input->format : fm_msa_format_of_name(input->name);
    fm_alignment rows;
    if (format == FM_MSA_NONE) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the name tells no format, expected .a3m or .sto");
    }
    const fm_msa_reader *reader = fm_msa_reader_of(format);
    size_t max_rows = fm_alignment_max_rows(input->content.size, builder->n_col);
    fm_status status = fm_alignment_init(&rows, builder->arena, builder->n_col, max_rows, reterr);
    if (!status) status = reader->append(input->content, NULL, builder->arena, &rows, reterr);
    if (!status && rows.n_seq > 0) status = check_query(builder, input, reader, &rows, reterr);
    for (uint32_t i = 0; i < rows.n_seq && i < most && !status; i++) {
        size_t first = (size_t)i * builder->n_col;
        const fm_alignment_row *place = &rows.row[i];
        const raw_row row = {
            .description = {input->content.data + place->description, place->description_bytes},
            .key = {rows.letters + first, builder->n_col},
            .letters = rows.letters + first,
            .deletion = rows.deletion + first,
            .n = builder->n_col,
        };
        status = add_row(builder, &row, reterr);
    }
    return status;
}

/* -- everything */

/* The largest number of rows of a text: one for each '>' in compat, else what the parsers allow. */
static size_t most_rows(const rows_builder *builder, fm_bytes text) {
    if (!builder->compat) return fm_alignment_max_rows(text.size, builder->n_col);
    size_t n = 0;
    for (size_t i = 0; i < text.size; i++)
        n += text.data[i] == '>';
    return n;
}

static fm_status reserve(rows_builder *builder, const fm_msa_input *inputs, size_t n_input,
                         fm_error *reterr) {
    fm_arena *arena = builder->arena;
    size_t n = 1, n_name = 0;
    for (size_t i = 0; i < n_input; i++) {
        n += most_rows(builder, inputs[i].content);
        n_name += inputs[i].content.size;
    }
    if (n > FM_LIMIT_N_SEQ) n = FM_LIMIT_N_SEQ;
    builder->max_row = (uint32_t)n;
    builder->ids = fm_arena_alloc_array(arena, n, builder->n_col);
    builder->deletion = fm_arena_alloc_array(arena, n, builder->n_col);
    builder->hash = fm_arena_alloc_array(arena, n, sizeof *builder->hash);
    builder->species = fm_arena_alloc_array(arena, n, sizeof *builder->species);
    builder->names = fm_arena_alloc(arena, n_name);
    if (!builder->ids || !builder->deletion || !builder->hash || !builder->species ||
        !builder->names) {
        return fm_arena_full(arena, reterr);
    }
    return FM_OK;
}

static fm_status start_counts(rows_builder *builder, fm_error *reterr) {
    size_t n_slot = 16;
    while (n_slot < (size_t)builder->max_row * 2)
        n_slot *= 2;
    builder->mask = n_slot - 1;
    builder->seen = fm_arena_calloc(builder->arena, n_slot, sizeof *builder->seen);
    builder->deleted = fm_arena_calloc(builder->arena, builder->n_col, sizeof *builder->deleted);
    return builder->seen && builder->deleted ? FM_OK : fm_arena_full(builder->arena, reterr);
}

static fm_status read_files(rows_builder *builder, const fm_msa_input *inputs, size_t n_input,
                            fm_error *reterr) {
    bool is_cut = builder->polymer == FM_POLYMER_RNA && !builder->has_no_limit;
    uint32_t most = is_cut ? FM_LIMIT_RNA_ROWS : FM_LIMIT_N_SEQ;
    for (size_t i = 0; i < n_input; i++) {
        fm_status status = builder->compat ? scan_file(builder, inputs[i].content, most, reterr)
                                           : parse_file(builder, &inputs[i], most, reterr);
        if (status) return reterr ? fm_error_in(reterr, inputs[i].name) : status;
    }
    return FM_OK;
}

/* The sequence itself, as the only row. */
static fm_status take_sequence(rows_builder *builder, fm_error *reterr) {
    uint16_t *none = fm_arena_calloc(builder->arena, builder->n_col, sizeof *none);
    if (!none) return fm_arena_full(builder->arena, reterr);
    const raw_row row = {.description = {(const uint8_t *)"", 0},
                         .key = builder->sequence,
                         .letters = builder->sequence.data,
                         .deletion = none,
                         .n = builder->n_col};
    return add_row(builder, &row, reterr);
}

static void count_columns(const rows_builder *builder, uint32_t *count, float *profile,
                          double *deletion_mean) {
    size_t n_col = builder->n_col;
    for (uint32_t i = 0; i < builder->n_row; i++) {
        const uint8_t *ids = builder->ids + i * n_col;
        for (size_t k = 0; k < n_col; k++)
            count[k * FM_N_RESTYPE32 + ids[k]]++;
    }
    for (size_t i = 0; i < n_col * FM_N_RESTYPE32; i++)
        profile[i] = (float)((double)count[i] / builder->n_row);
    for (size_t k = 0; k < n_col; k++)
        deletion_mean[k] = (double)builder->deleted[k] / builder->n_row;
}

static void init_classes(rows_builder *builder) {
    for (int c = 0; c < 256; c++) {
        bool is_rna_t = c == 'T' && builder->polymer == FM_POLYMER_RNA && !builder->compat;
        builder->class_of[c] = fm_class_of_letter(is_rna_t ? 'U' : (char)c, builder->polymer);
    }
}

fm_status fm_sequence_rows_read(const fm_msa_input *inputs, size_t n_input, fm_bytes sequence,
                                fm_polymer polymer, const fm_sequence_rows_options *options,
                                fm_arena *arena, fm_sequence_rows *ret_rows, fm_error *reterr) {
    assert(sequence.size > 0);
    rows_builder builder = {.arena = arena,
                            .sequence = sequence,
                            .polymer = polymer,
                            .compat = options && options->compat_protenix,
                            .keeps_duplicates = options && options->keeps_duplicates,
                            .has_no_limit = options && options->has_no_limit,
                            .n_col = sequence.size};
    bool reads = (polymer == FM_POLYMER_PEPTIDE_L || polymer == FM_POLYMER_RNA) &&
                 sequence.size >= FM_SHORTEST_SEARCHED;
    if (!reads) n_input = 0;
    init_classes(&builder);
    size_t start = fm_arena_mark(arena);
    fm_status status = reserve(&builder, inputs, n_input, reterr);
    float *profile = fm_arena_alloc_array(arena, builder.n_col, FM_N_RESTYPE32 * sizeof *profile);
    double *mean = fm_arena_alloc_array(arena, builder.n_col, sizeof *mean);
    if (!status && (!profile || !mean)) status = fm_arena_full(arena, reterr);
    size_t scratch = fm_arena_mark(arena);
    if (!status) status = start_counts(&builder, reterr);
    if (!status) status = read_files(&builder, inputs, n_input, reterr);
    if (!status && builder.n_row == 0) status = take_sequence(&builder, reterr);
    uint32_t *count =
        status ? NULL : fm_arena_calloc(arena, builder.n_col, FM_N_RESTYPE32 * sizeof *count);
    if (!status && !count) status = fm_arena_full(arena, reterr);
    if (!status) count_columns(&builder, count, profile, mean);
    fm_arena_rewind(arena, status ? start : scratch);
    if (status) return status;
    *ret_rows =
        (fm_sequence_rows){builder.n_row, (uint32_t)builder.n_col, builder.ids, builder.deletion,
                           builder.hash,  builder.species,         profile,     mean};
    return FM_OK;
}
