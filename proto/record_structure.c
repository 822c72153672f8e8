/* record_structure.c: encodes and decodes the structure part (docs/reference/record.md,
 * "structure").
 *
 * Coordinates in PDB files are decimals with three places. A present atom's coordinate is therefore
 * stored as its thousandths: the integer k for which (float)(k / 1000.0) equals it bit for bit.
 * The file has the difference from the previous present atom's k of the same axis (modulo 2^32). It
 * is zigzag-coded, so that small differences of either sign are small numbers, and split into four
 * byte planes. Neighbouring atoms are Ångströms apart, so the upper planes are zeros and compress
 * well. A coordinate that is not such a decimal repeats the previous k, and its float bits go into
 * a list of escapes. */
#include "proto/record_decimal.h"
#include "proto/record_part.h"

#include "proto/limits.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum {
    WORD_N_RES,
    WORD_N_ATOM,
    WORD_N_ESCAPE,
    WORD_FLAGS,
    WORD_RESOLUTION, /* float bits */
    N_WORD
};
enum { FLAG_DISTILLATION = 1, FLAG_CONFIDENCE = 2 };
enum {
    MASK_BYTES = 5, /* per residue: 37 bits; bits 37..39 are zero */
    N_AXIS = 3,
};

static const fm_part_kind KIND = FM_PART_STRUCTURE;

typedef struct structure_sizes {
    uint32_t n_res, n_atom, n_escape;
    bool confidence;
} structure_sizes;

static uint64_t encoded_bytes(const structure_sizes *sizes) {
    uint64_t at = FM_PART_HEADER_BYTES;
    at = fm_part_padded(at + FM_PART_DATE_BYTES);
    at = fm_part_padded(at + (uint64_t)sizes->n_res * MASK_BYTES);
    for (int plane = 0; plane < 4; plane++)
        at = fm_part_padded(at + (uint64_t)sizes->n_atom * N_AXIS);
    at = fm_part_padded(at + (uint64_t)sizes->n_escape * 4);
    at = fm_part_padded(at + (uint64_t)sizes->n_escape * 4);
    return at + (sizes->confidence ? (uint64_t)sizes->n_res * 4 : 0);
}

/* -- checks of values and of decoded bytes */

static fm_status check_scalars(float resolution, const char *date, fm_status status,
                               fm_error *reterr) {
    if (!isfinite(resolution) || signbit(resolution)) {
        return fm_fail(reterr, status, "the structure's resolution is %g, not a length in Å",
                       (double)resolution);
    }
    if (!fm_part_is_date(date)) {
        return fm_fail(reterr, status, "the structure's release date is '%.10s', not YYYY-MM-DD",
                       date);
    }
    return FM_OK;
}

static fm_status check_confidence(const float *confidence, uint32_t n_res, fm_status status,
                                  fm_error *reterr) {
    for (uint32_t i = 0; confidence && i < n_res; i++) {
        if (!(confidence[i] >= 0.0f && confidence[i] <= 100.0f) || signbit(confidence[i])) {
            return fm_fail(reterr, status, "the confidence of residue %u is %g, not 0..100", i + 1,
                           (double)confidence[i]);
        }
    }
    return FM_OK;
}

/* -- encode */

static fm_status measure_atom(const float *xyz, bool present, size_t cell, structure_sizes *sizes,
                              fm_error *reterr) {
    for (int axis = 0; axis < N_AXIS; axis++) {
        int32_t k;
        if (present ? !isfinite(xyz[axis]) : fm_part_float_bits(xyz[axis]) != 0) {
            return fm_fail(reterr, FM_ERR_DATA, "atom %zu of residue %zu has the coordinate %g%s",
                           cell % FM_N_ATOM37, cell / FM_N_ATOM37 + 1, (double)xyz[axis],
                           present ? "" : " but is not present");
        }
        if (present && !fm_part_to_thousandths(xyz[axis], &k)) sizes->n_escape++;
    }
    sizes->n_atom += present;
    return FM_OK;
}

static fm_status measure(const fm_part_structure *part, structure_sizes *ret_sizes,
                         fm_error *reterr) {
    fm_status status = fm_part_check_n_res(part->n_res, KIND, FM_ERR_LIMIT, reterr);
    if (!status) status = check_scalars(part->resolution, part->release_date, FM_ERR_DATA, reterr);
    if (!status) status = check_confidence(part->confidence, part->n_res, FM_ERR_DATA, reterr);
    if (status) return status;
    structure_sizes sizes = {.n_res = part->n_res, .confidence = part->confidence != NULL};
    for (size_t cell = 0; cell < (size_t)part->n_res * FM_N_ATOM37; cell++) {
        if (part->all_atom_mask[cell] > 1) {
            return fm_fail(reterr, FM_ERR_DATA, "the mask of an atom is %u, not 0 or 1",
                           part->all_atom_mask[cell]);
        }
        status = measure_atom(part->all_atom_positions + cell * N_AXIS, part->all_atom_mask[cell],
                              cell, &sizes, reterr);
        if (status) return status;
    }
    *ret_sizes = sizes;
    return FM_OK;
}

static void write_mask(fm_writer *writer, const uint8_t *mask, uint32_t n_res) {
    uint8_t *out = fm_part_reserve(writer, (uint64_t)n_res * MASK_BYTES);
    memset(out, 0, (size_t)n_res * MASK_BYTES);
    for (size_t i = 0; i < n_res; i++) {
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
            uint8_t bit = (uint8_t)(mask[i * FM_N_ATOM37 + atom] << atom % 8);
            out[i * MASK_BYTES + atom / 8] |= bit;
        }
    }
}

static void write_coordinates(fm_writer *writer, const fm_part_structure *part,
                              const structure_sizes *sizes) {
    size_t n_value = (size_t)sizes->n_atom * N_AXIS, n = 0, n_escape = 0;
    uint8_t *plane[4];
    for (int i = 0; i < 4; i++)
        plane[i] = fm_part_reserve(writer, n_value);
    uint8_t *index = fm_part_reserve(writer, (uint64_t)sizes->n_escape * 4);
    uint8_t *bits = fm_part_reserve(writer, (uint64_t)sizes->n_escape * 4);
    uint32_t previous[N_AXIS] = {0};
    for (size_t cell = 0; cell < (size_t)part->n_res * FM_N_ATOM37; cell++) {
        if (!part->all_atom_mask[cell]) continue;
        for (int axis = 0; axis < N_AXIS; axis++, n++) {
            float value = part->all_atom_positions[cell * N_AXIS + (size_t)axis];
            int32_t k = (int32_t)previous[axis];
            if (!fm_part_to_thousandths(value, &k)) {
                uint32_t at = (uint32_t)n, value_bits = fm_part_float_bits(value);
                memcpy(index + 4 * n_escape, &at, sizeof at);
                memcpy(bits + 4 * n_escape++, &value_bits, sizeof value_bits);
            }
            uint32_t coded = fm_part_zigzag((uint32_t)k - previous[axis]);
            for (int i = 0; i < 4; i++)
                plane[i][n] = (uint8_t)(coded >> 8 * i);
            previous[axis] = (uint32_t)k;
        }
    }
    assert(n == n_value && n_escape == sizes->n_escape);
}

fm_status fm_part_structure_encode(const fm_part_structure *part, fm_arena *arena,
                                   fm_bytes *ret_bytes, fm_error *reterr) {
    structure_sizes sizes;
    fm_status status = measure(part, &sizes, reterr);
    if (status) return status;
    const uint32_t word[FM_PART_N_WORD] = {
        [WORD_N_RES] = sizes.n_res,
        [WORD_N_ATOM] = sizes.n_atom,
        [WORD_N_ESCAPE] = sizes.n_escape,
        [WORD_FLAGS] = (part->is_distillation ? FLAG_DISTILLATION : 0u) |
                       (sizes.confidence ? FLAG_CONFIDENCE : 0u),
        [WORD_RESOLUTION] = fm_part_float_bits(part->resolution),
    };
    fm_writer writer;
    status = fm_part_begin(arena, KIND, FM_PART_STRUCTURE_FORMAT, encoded_bytes(&sizes), word,
                           &writer, reterr);
    if (status) return status;
    fm_write_bytes(&writer, part->release_date, FM_PART_DATE_BYTES);
    write_mask(&writer, part->all_atom_mask, sizes.n_res);
    write_coordinates(&writer, part, &sizes);
    fm_write_align(&writer, FM_PART_ALIGN);
    if (sizes.confidence) fm_write_bytes(&writer, part->confidence, (size_t)sizes.n_res * 4);
    assert(!writer.failed && writer.at == writer.capacity);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

/* -- decode */

typedef struct structure_sections {
    const char *date;
    const uint8_t *mask, *plane[4];
    const uint32_t *escape_index, *escape_bits;
    const float *confidence;
} structure_sections;

static fm_status read_sections(fm_reader *reader, const structure_sizes *sizes,
                               structure_sections *ret_sections, fm_error *reterr) {
    structure_sections sections = {0};
    sections.date = (const char *)fm_part_section(reader, FM_PART_DATE_BYTES);
    sections.mask = fm_part_section(reader, (uint64_t)sizes->n_res * MASK_BYTES);
    for (int i = 0; i < 4; i++)
        sections.plane[i] = fm_part_section(reader, (uint64_t)sizes->n_atom * N_AXIS);
    uint64_t escape_bytes = (uint64_t)sizes->n_escape * 4;
    sections.escape_index = (const uint32_t *)(const void *)fm_part_section(reader, escape_bytes);
    sections.escape_bits = (const uint32_t *)(const void *)fm_part_section(reader, escape_bytes);
    uint64_t confidence_bytes = sizes->confidence ? (uint64_t)sizes->n_res * 4 : 0;
    const uint8_t *confidence = fm_part_section(reader, confidence_bytes);
    if (sizes->confidence) sections.confidence = (const float *)(const void *)confidence;
    fm_status status = fm_part_finish(reader, KIND, reterr);
    if (!status) *ret_sections = sections;
    return status;
}

static fm_status read_mask(const structure_sizes *sizes, const uint8_t *bits, uint8_t *mask,
                           fm_error *reterr) {
    uint32_t n_atom = 0;
    uint8_t beyond = 0;
    for (size_t i = 0; i < sizes->n_res; i++) {
        for (size_t atom = 0; atom < FM_N_ATOM37; atom++) {
            uint8_t present = bits[i * MASK_BYTES + atom / 8] >> atom % 8 & 1;
            mask[i * FM_N_ATOM37 + atom] = present;
            n_atom += present;
        }
        beyond |= bits[i * MASK_BYTES + 4] >> 5;
    }
    if (n_atom == sizes->n_atom && !beyond) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the structure part's mask has %u atoms, not %u", n_atom,
                   sizes->n_atom);
}

/* State of the pass over the present atoms' coordinates. */
typedef struct coordinate_reader {
    const structure_sections *sections;
    uint32_t n_escape, at, escape; /* at: value index; escape: next in the list */
    uint32_t previous[N_AXIS];
} coordinate_reader;

/* Returns the next coordinate; false when its bytes are not canonical. */
static bool next_coordinate(coordinate_reader *reader, int axis, float *ret_value) {
    const structure_sections *sections = reader->sections;
    uint32_t at = reader->at++, coded = 0;
    for (int i = 0; i < 4; i++)
        coded |= (uint32_t)sections->plane[i][at] << 8 * i;
    uint32_t k = reader->previous[axis] += fm_part_unzigzag(coded);
    int32_t again;
    if (reader->escape < reader->n_escape && sections->escape_index[reader->escape] == at) {
        *ret_value = fm_part_float_of_bits(sections->escape_bits[reader->escape++]);
        return coded == 0 && isfinite(*ret_value) && !fm_part_to_thousandths(*ret_value, &again);
    }
    *ret_value = fm_part_of_thousandths((int32_t)k);
    return fm_part_to_thousandths(*ret_value, &again) && again == (int32_t)k;
}

static fm_status read_coordinates(const structure_sizes *sizes, const structure_sections *sections,
                                  const uint8_t *mask, float *positions, fm_error *reterr) {
    coordinate_reader reader = {.sections = sections, .n_escape = sizes->n_escape};
    bool good = true;
    for (size_t cell = 0; cell < (size_t)sizes->n_res * FM_N_ATOM37 && good; cell++) {
        for (int axis = 0; mask[cell] && axis < N_AXIS; axis++)
            good &= next_coordinate(&reader, axis, positions + cell * N_AXIS + axis);
    }
    if (good && reader.escape == reader.n_escape) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "the structure part's coordinates are not canonical");
}

fm_status fm_part_structure_decode(fm_bytes bytes, fm_arena *arena, fm_part_structure *ret_part,
                                   fm_error *reterr) {
    fm_reader reader;
    uint32_t word[FM_PART_N_WORD];
    fm_status status =
        fm_part_read_header(bytes, KIND, FM_PART_STRUCTURE_FORMAT, &reader, word, reterr);
    if (!status) status = fm_part_check_zero_words(word, N_WORD, KIND, reterr);
    if (!status) status = fm_part_check_n_res(word[WORD_N_RES], KIND, FM_ERR_CORRUPT, reterr);
    if (status) return status;
    if (word[WORD_FLAGS] & ~(uint32_t)(FLAG_DISTILLATION | FLAG_CONFIDENCE)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the structure part has unknown flags 0x%x",
                       word[WORD_FLAGS]);
    }
    const structure_sizes sizes = {word[WORD_N_RES], word[WORD_N_ATOM], word[WORD_N_ESCAPE],
                                   word[WORD_FLAGS] & FLAG_CONFIDENCE};
    structure_sections sections;
    status = read_sections(&reader, &sizes, &sections, reterr);
    if (status) return status;
    float resolution = fm_part_float_of_bits(word[WORD_RESOLUTION]);
    status = check_scalars(resolution, sections.date, FM_ERR_CORRUPT, reterr);
    if (!status) {
        status = check_confidence(sections.confidence, sizes.n_res, FM_ERR_CORRUPT, reterr);
    }
    if (status) return status;
    size_t n_cell = (size_t)sizes.n_res * FM_N_ATOM37;
    uint8_t *mask = fm_arena_alloc(arena, n_cell);
    float *positions = fm_arena_calloc(arena, n_cell * N_AXIS, sizeof *positions);
    if (!mask || !positions) return fm_arena_full(arena, reterr);
    status = read_mask(&sizes, sections.mask, mask, reterr);
    if (!status) status = read_coordinates(&sizes, &sections, mask, positions, reterr);
    if (status) return status;
    fm_part_structure part = {.n_res = sizes.n_res,
                              .all_atom_positions = positions,
                              .all_atom_mask = mask,
                              .resolution = resolution,
                              .is_distillation = (word[WORD_FLAGS] & FLAG_DISTILLATION) != 0,
                              .confidence = sections.confidence};
    memcpy(part.release_date, sections.date, FM_PART_DATE_BYTES);
    *ret_part = part;
    return FM_OK;
}
