/* record_msa.c: encodes and decodes the msa part (docs/reference/record.md, "msa").
 *
 * Rows are stored as they are used, one byte per cell, and are borrowed when decoded. Deletions are
 * rare (below 2 % of the cells of real alignments), so they are stored as a list. Each non-zero
 * cell, in row-major order, has the number of zero cells before it (its gap) and its count. The
 * list is split into three byte planes for the compressor: low bytes of the gaps, high bytes of the
 * gaps, and counts. A run of more than 65,534 zeros takes filler entries, and a count above 254 an
 * escape. Decoding clears the dense matrix once and scatters the counts. */
#include "proto/record_part.h"

#include "proto/limits.h"

#include <assert.h>
#include <string.h>

enum {
    WORD_N_SEQ,
    WORD_N_RES,
    WORD_N_SOURCE,
    WORD_SPECIES_BYTES,
    WORD_N_DELETION,
    WORD_N_ESCAPE,
    WORD_NAME_BYTES,
    N_WORD
};
enum {
    GAP_FILLER = 65535,   /* a gap of 65,535 zeros without a count after it */
    COUNT_ESCAPE = 255,   /* the count is the next escape; escapes are >= 255 */
    N_SOURCE_MAX = 65535, /* files of one chain */
};

static const fm_part_kind KIND = FM_PART_MSA;

typedef struct msa_sizes {
    uint32_t n_seq, n_res, n_source, species_bytes, n_deletion, n_escape, name_bytes;
    uint64_t n_cell;
} msa_sizes;

static uint64_t encoded_bytes(const msa_sizes *sizes) {
    uint64_t at = FM_PART_HEADER_BYTES;
    at = fm_part_padded(at + sizes->n_cell);
    at = fm_part_padded(at + (uint64_t)sizes->n_res * FM_N_HHBLITS * 4);
    at = fm_part_padded(at + sizes->n_seq);
    at = fm_part_padded(at + sizes->species_bytes);
    at = fm_part_padded(at + (uint64_t)sizes->n_source * 4);
    at = fm_part_padded(at + sizes->name_bytes);
    for (int plane = 0; plane < 3; plane++)
        at = fm_part_padded(at + sizes->n_deletion);
    return at + (uint64_t)sizes->n_escape * 2;
}

/* Returns the first cell at or after `at` with a deletion, or n_cell. It skips zeros four at a
 * time. */
static uint64_t next_deletion(const uint16_t *deletion, uint64_t at, uint64_t n_cell) {
    for (; at + 4 <= n_cell; at += 4) {
        uint64_t cells_4;
        memcpy(&cells_4, deletion + at, sizeof cells_4);
        if (cells_4) break;
    }
    while (at < n_cell && !deletion[at])
        at++;
    return at;
}

static fm_status count_deletions(const uint16_t *deletion, msa_sizes *sizes, fm_error *reterr) {
    uint64_t n_deletion = 0, n_escape = 0, after = 0;
    for (uint64_t at = next_deletion(deletion, 0, sizes->n_cell); at < sizes->n_cell;
         at = next_deletion(deletion, at + 1, sizes->n_cell)) {
        n_deletion += (at - after) / GAP_FILLER + 1;
        n_escape += deletion[at] >= COUNT_ESCAPE;
        after = at + 1;
    }
    if (n_deletion > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the msa part has more deletions than it can hold");
    }
    sizes->n_deletion = (uint32_t)n_deletion;
    sizes->n_escape = (uint32_t)n_escape;
    return FM_OK;
}

static void write_deletions(fm_writer *writer, const uint16_t *deletion, const msa_sizes *sizes) {
    uint8_t *gap_low = fm_part_reserve(writer, sizes->n_deletion);
    uint8_t *gap_high = fm_part_reserve(writer, sizes->n_deletion);
    uint8_t *count = fm_part_reserve(writer, sizes->n_deletion);
    uint64_t n = 0, after = 0;
    for (uint64_t at = next_deletion(deletion, 0, sizes->n_cell); at < sizes->n_cell;
         at = next_deletion(deletion, at + 1, sizes->n_cell)) {
        uint64_t gap = at - after;
        for (; gap >= GAP_FILLER; gap -= GAP_FILLER, n++) {
            gap_low[n] = gap_high[n] = 0xff;
            count[n] = 0;
        }
        gap_low[n] = (uint8_t)gap;
        gap_high[n] = (uint8_t)(gap >> 8);
        count[n++] = deletion[at] >= COUNT_ESCAPE ? COUNT_ESCAPE : (uint8_t)deletion[at];
        after = at + 1;
    }
    assert(n == sizes->n_deletion);
    fm_write_align(writer, FM_PART_ALIGN);
    for (uint64_t at = 0; sizes->n_escape && at < sizes->n_cell; at++) {
        at = next_deletion(deletion, at, sizes->n_cell);
        if (at < sizes->n_cell && deletion[at] >= COUNT_ESCAPE) fm_write_u16(writer, deletion[at]);
    }
}

static fm_status check_shape(uint32_t n_seq, uint32_t n_res, fm_status status, fm_error *reterr) {
    fm_status found = fm_part_check_n_res(n_res, KIND, status, reterr);
    if (found) return found;
    if (n_seq < 1 || n_seq > FM_LIMIT_N_SEQ || (uint64_t)n_seq * n_res > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, status,
                       "the msa part has %u rows of %u residues, which exceeds the limits", n_seq,
                       n_res);
    }
    return FM_OK;
}

/* Checks eight cells at a time: adding 106 sets the high bit of a byte above 21, unless it is set
 * already. */
static fm_status check_ids(const uint8_t *msa, uint64_t n_cell, fm_status status,
                           fm_error *reterr) {
    const uint64_t high = 0x8080808080808080u, add = 0x6a6a6a6a6a6a6a6au;
    uint64_t bad = 0, at = 0;
    for (; at + 8 <= n_cell; at += 8) {
        uint64_t cells_8;
        memcpy(&cells_8, msa + at, sizeof cells_8);
        bad |= (cells_8 | (cells_8 + add)) & high;
    }
    for (; at < n_cell; at++)
        bad |= msa[at] >= FM_N_HHBLITS;
    if (!bad) return FM_OK;
    return fm_fail(reterr, status, "the msa part has a letter id above %d", FM_N_HHBLITS - 1);
}

static fm_status check_profile_sums(const uint32_t *profile, uint32_t n_seq, uint32_t n_res,
                                    fm_status status, fm_error *reterr) {
    for (uint32_t i = 0; i < n_res; i++) {
        uint64_t sum = 0;
        for (int id = 0; id < FM_N_HHBLITS; id++)
            sum += profile[(size_t)i * FM_N_HHBLITS + id];
        if (sum != n_seq) {
            return fm_fail(reterr, status, "column %u of the msa's profile counts %llu of %u rows",
                           i + 1, (unsigned long long)sum, n_seq);
        }
    }
    return FM_OK;
}

static fm_status measure_sources(const fm_part_msa *part, msa_sizes *sizes, fm_error *reterr) {
    uint64_t rows = 0, name_bytes = 0;
    for (uint32_t i = 0; i < part->n_source; i++) {
        size_t length = strlen(part->source[i].name);
        if (length < 1 || length > FM_LIMIT_NAME_BYTES) {
            return fm_fail(reterr, FM_ERR_LIMIT,
                           "an alignment's name has %zu bytes; 1 to %u are "
                           "allowed",
                           length, FM_LIMIT_NAME_BYTES);
        }
        rows += part->source[i].n_row;
        name_bytes += length + 1;
    }
    if (part->n_source > N_SOURCE_MAX ||
        (part->n_source == 0 ? part->n_seq != 1 : rows != part->n_seq)) {
        return fm_fail(reterr, FM_ERR_DATA, "the %u alignments gave %llu rows, but the msa has %u",
                       part->n_source, (unsigned long long)rows, part->n_seq);
    }
    sizes->n_source = part->n_source;
    sizes->name_bytes = (uint32_t)name_bytes;
    return FM_OK;
}

static fm_status measure_species(const fm_part_msa *part, msa_sizes *sizes, fm_error *reterr) {
    uint32_t start = 0;
    for (uint32_t row = 0; row < part->n_seq; row++) {
        uint32_t end = part->species_end[row];
        if (end < start || end - start > 255) {
            return fm_fail(reterr, FM_ERR_LIMIT,
                           "the species identifier of row %u has more than 255 bytes", row + 1);
        }
        start = end;
    }
    sizes->species_bytes = start;
    return FM_OK;
}

static fm_status measure(const fm_part_msa *part, msa_sizes *ret_sizes, fm_error *reterr) {
    fm_status status = check_shape(part->n_seq, part->n_res, FM_ERR_LIMIT, reterr);
    if (status) return status;
    msa_sizes sizes = {
        .n_seq = part->n_seq, .n_res = part->n_res, .n_cell = (uint64_t)part->n_seq * part->n_res};
    status = check_ids(part->msa, sizes.n_cell, FM_ERR_DATA, reterr);
    if (!status) {
        status = check_profile_sums(part->profile, part->n_seq, part->n_res, FM_ERR_DATA, reterr);
    }
    if (!status) status = measure_sources(part, &sizes, reterr);
    if (!status) status = measure_species(part, &sizes, reterr);
    if (!status) status = count_deletions(part->deletion_matrix, &sizes, reterr);
    if (!status) *ret_sizes = sizes;
    return status;
}

static void write_sources(fm_writer *writer, const fm_part_msa *part) {
    fm_write_align(writer, FM_PART_ALIGN);
    for (uint32_t i = 0; i < part->n_source; i++)
        fm_write_u32(writer, part->source[i].n_row);
    fm_write_align(writer, FM_PART_ALIGN);
    for (uint32_t i = 0; i < part->n_source; i++)
        fm_write_bytes(writer, part->source[i].name, strlen(part->source[i].name) + 1);
}

fm_status fm_part_msa_encode(const fm_part_msa *part, fm_arena *arena, fm_bytes *ret_bytes,
                             fm_error *reterr) {
    msa_sizes sizes;
    fm_status status = measure(part, &sizes, reterr);
    if (status) return status;
    const uint32_t word[FM_PART_N_WORD] = {
        [WORD_N_SEQ] = sizes.n_seq,           [WORD_N_RES] = sizes.n_res,
        [WORD_N_SOURCE] = sizes.n_source,     [WORD_SPECIES_BYTES] = sizes.species_bytes,
        [WORD_N_DELETION] = sizes.n_deletion, [WORD_N_ESCAPE] = sizes.n_escape,
        [WORD_NAME_BYTES] = sizes.name_bytes,
    };
    fm_writer writer;
    status = fm_part_begin(arena, KIND, FM_PART_MSA_FORMAT, encoded_bytes(&sizes), word, &writer,
                           reterr);
    if (status) return status;
    fm_write_bytes(&writer, part->msa, sizes.n_cell);
    fm_write_align(&writer, FM_PART_ALIGN);
    fm_write_bytes(&writer, part->profile, (size_t)sizes.n_res * FM_N_HHBLITS * 4);
    uint8_t *species_length = fm_part_reserve(&writer, sizes.n_seq);
    for (uint32_t row = 0, start = 0; row < sizes.n_seq; start = part->species_end[row++])
        species_length[row] = (uint8_t)(part->species_end[row] - start);
    fm_write_align(&writer, FM_PART_ALIGN);
    fm_write_bytes(&writer, part->species, sizes.species_bytes);
    write_sources(&writer, part);
    write_deletions(&writer, part->deletion_matrix, &sizes);
    assert(!writer.failed && writer.at == writer.capacity);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

/* -- decode */

typedef struct msa_sections {
    const uint8_t *msa, *species_length, *gap_low, *gap_high, *count;
    const char *species, *name;
    const uint32_t *profile, *source_row;
    const uint16_t *escape;
} msa_sections;

static fm_status read_sections(fm_reader *reader, const msa_sizes *sizes,
                               msa_sections *ret_sections, fm_error *reterr) {
    msa_sections sections;
    sections.msa = fm_part_section(reader, sizes->n_cell);
    sections.profile = (const uint32_t *)(const void *)fm_part_section(
        reader, (uint64_t)sizes->n_res * FM_N_HHBLITS * 4);
    sections.species_length = fm_part_section(reader, sizes->n_seq);
    sections.species = (const char *)fm_part_section(reader, sizes->species_bytes);
    sections.source_row =
        (const uint32_t *)(const void *)fm_part_section(reader, (uint64_t)sizes->n_source * 4);
    sections.name = (const char *)fm_part_section(reader, sizes->name_bytes);
    sections.gap_low = fm_part_section(reader, sizes->n_deletion);
    sections.gap_high = fm_part_section(reader, sizes->n_deletion);
    sections.count = fm_part_section(reader, sizes->n_deletion);
    sections.escape =
        (const uint16_t *)(const void *)fm_part_section(reader, (uint64_t)sizes->n_escape * 2);
    fm_status status = fm_part_finish(reader, KIND, reterr);
    if (!status) *ret_sections = sections;
    return status;
}

static fm_status read_species(const msa_sizes *sizes, const msa_sections *sections, fm_arena *arena,
                              const uint32_t **ret_end, fm_error *reterr) {
    uint32_t *end = fm_arena_alloc_array(arena, sizes->n_seq, sizeof *end);
    if (!end) return fm_arena_full(arena, reterr);
    uint32_t at = 0;
    for (uint32_t row = 0; row < sizes->n_seq; row++)
        end[row] = at += sections->species_length[row];
    if (at != sizes->species_bytes) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the msa part's species lengths sum to %u of %u", at,
                       sizes->species_bytes);
    }
    *ret_end = end;
    return FM_OK;
}

static fm_status read_sources(const msa_sizes *sizes, const msa_sections *sections, fm_arena *arena,
                              const fm_msa_source **ret_source, fm_error *reterr) {
    fm_msa_source *source = fm_arena_alloc_array(arena, sizes->n_source, sizeof *source);
    if (!source) return fm_arena_full(arena, reterr);
    uint64_t rows = 0, at = 0;
    for (uint32_t i = 0; i < sizes->n_source; i++) {
        const char *end = memchr(sections->name + at, '\0', sizes->name_bytes - at);
        size_t length = end ? (size_t)(end - (sections->name + at)) : 0;
        if (length < 1 || length > FM_LIMIT_NAME_BYTES) {
            return fm_fail(reterr, FM_ERR_CORRUPT,
                           "name %u of the msa part's alignments is empty or too long", i + 1);
        }
        source[i] = (fm_msa_source){sections->name + at, sections->source_row[i]};
        rows += source[i].n_row;
        at += length + 1;
    }
    bool whole = sizes->n_source ? rows == sizes->n_seq : sizes->n_seq == 1;
    if (!whole || at != sizes->name_bytes || sizes->n_source > N_SOURCE_MAX) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the msa part's %u alignments gave %llu of %u rows",
                       sizes->n_source, (unsigned long long)rows, sizes->n_seq);
    }
    *ret_source = source;
    return FM_OK;
}

static fm_status read_deletions(const msa_sizes *sizes, const msa_sections *sections,
                                fm_arena *arena, const uint16_t **ret_deletion, fm_error *reterr) {
    uint16_t *deletion = fm_arena_calloc(arena, sizes->n_cell, sizeof *deletion);
    if (!deletion) return fm_arena_full(arena, reterr);
    uint64_t at = 0;
    uint32_t n_escape = 0;
    bool good = true, filler = false;
    for (uint32_t i = 0; i < sizes->n_deletion && good; i++) {
        uint32_t gap = (uint32_t)sections->gap_low[i] | (uint32_t)sections->gap_high[i] << 8;
        at += gap;
        filler = gap == GAP_FILLER;
        if (filler) {
            good = sections->count[i] == 0;
            continue;
        }
        uint16_t count = sections->count[i];
        if (count == COUNT_ESCAPE) {
            count = n_escape < sizes->n_escape ? sections->escape[n_escape] : 0;
            n_escape++;
            good = count >= COUNT_ESCAPE;
        }
        good = good && count && at < sizes->n_cell;
        if (good) deletion[at++] = count;
    }
    if (!good || filler || n_escape != sizes->n_escape) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the msa part's deletions are not canonical");
    }
    *ret_deletion = deletion;
    return FM_OK;
}

fm_status fm_part_msa_decode(fm_bytes bytes, fm_arena *arena, fm_part_msa *ret_part,
                             fm_error *reterr) {
    fm_reader reader;
    uint32_t word[FM_PART_N_WORD];
    fm_status status = fm_part_read_header(bytes, KIND, FM_PART_MSA_FORMAT, &reader, word, reterr);
    if (!status) status = fm_part_check_zero_words(word, N_WORD, KIND, reterr);
    if (!status) status = check_shape(word[WORD_N_SEQ], word[WORD_N_RES], FM_ERR_CORRUPT, reterr);
    if (status) return status;
    const msa_sizes sizes = {
        .n_seq = word[WORD_N_SEQ],
        .n_res = word[WORD_N_RES],
        .n_source = word[WORD_N_SOURCE],
        .species_bytes = word[WORD_SPECIES_BYTES],
        .n_deletion = word[WORD_N_DELETION],
        .n_escape = word[WORD_N_ESCAPE],
        .name_bytes = word[WORD_NAME_BYTES],
        .n_cell = (uint64_t)word[WORD_N_SEQ] * word[WORD_N_RES],
    };
    msa_sections sections;
    fm_part_msa part = {.n_seq = sizes.n_seq, .n_res = sizes.n_res, .n_source = sizes.n_source};
    status = read_sections(&reader, &sizes, &sections, reterr);
    if (!status) status = check_ids(sections.msa, sizes.n_cell, FM_ERR_CORRUPT, reterr);
    if (!status) {
        status =
            check_profile_sums(sections.profile, sizes.n_seq, sizes.n_res, FM_ERR_CORRUPT, reterr);
    }
    if (!status) status = read_species(&sizes, &sections, arena, &part.species_end, reterr);
    if (!status) status = read_sources(&sizes, &sections, arena, &part.source, reterr);
    if (!status) status = read_deletions(&sizes, &sections, arena, &part.deletion_matrix, reterr);
    if (status) return status;
    part.msa = sections.msa;
    part.profile = sections.profile;
    part.species = sections.species;
    *ret_part = part;
    return FM_OK;
}

fm_status fm_part_msa_check_profile(const fm_part_msa *part, fm_arena *arena, fm_error *reterr) {
    size_t n_count = (size_t)part->n_res * FM_N_HHBLITS;
    uint32_t *count = fm_arena_calloc(arena, n_count, sizeof *count);
    if (!count) return fm_arena_full(arena, reterr);
    for (size_t row = 0; row < part->n_seq; row++) {
        const uint8_t *ids = part->msa + row * part->n_res;
        for (size_t i = 0; i < part->n_res; i++)
            count[i * FM_N_HHBLITS + ids[i]]++;
    }
    if (memcmp(count, part->profile, n_count * sizeof *count) == 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the msa's profile does not match its rows");
}
