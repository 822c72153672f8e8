/* record_assembly.c: encodes and decodes the assembly part (docs/reference/record.md, "assembly").
 *
 * Most of an assembly is columns of whole numbers. A column is stored as the differences of its
 * values, zigzag-coded and split into four byte planes, of which the upper ones are mostly zeros.
 * Floats are columns of thousandths; those that are no such decimals repeat the value before them,
 * and their bits are in a list of escapes. */
#include "proto/record_complex.h"

#include "proto/chem/element.h"
#include "proto/limits.h"
#include "proto/record_decimal.h"
#include "proto/record_part.h"

#include <assert.h>
#include <string.h>

/* The header's words: the numbers of rows of each table. */
enum {
    N_ENTITY,
    N_UNIT,
    N_RESIDUE,
    N_ATOM,
    N_COPY,
    N_OPERATION,
    N_STEP,
    N_OTHER,
    N_ABSENT,
    N_UNIT_BOND,
    N_COPY_BOND,
    N_PAIR,
};
static_assert(N_PAIR + 1 == FM_PART_N_WORD, "all words of the header are used");

enum { HEAD_BYTES = 64, N_AXIS = 3, SEQUENCE_FLAG = 0x80 };

/* Columns of whole numbers, in the order of their sections. */
typedef enum column_id {
    ENTITY_RESIDUES,
    UNIT_ENTITY,
    UNIT_RESIDUES,
    RESIDUE_NUMBER,
    RESIDUE_ATOMS,
    ATOM_IN_COMPONENT,
    OTHER_ATOM,
    COPY_UNIT,
    COPY_AGAIN,
    COPY_ASYM,
    COPY_ENTITY,
    COPY_SYM,
    COPY_MOL,
    COPY_ENTITY_MOL,
    COPY_UID,
    COPY_MOL_ATOM,
    COPY_STEPS,
    STEP,
    ABSENT,
    UNIT_BOND_A,
    UNIT_BOND_SPAN,
    COPY_BOND_A,
    COPY_BOND_SPAN,
    PAIR_A,
    PAIR_B,
    N_COLUMN,
} column_id;

static const uint8_t column_word[N_COLUMN] = {
    [ENTITY_RESIDUES] = N_ENTITY,
    [UNIT_ENTITY] = N_UNIT,
    [UNIT_RESIDUES] = N_UNIT,
    [RESIDUE_NUMBER] = N_RESIDUE,
    [RESIDUE_ATOMS] = N_RESIDUE,
    [ATOM_IN_COMPONENT] = N_ATOM,
    [OTHER_ATOM] = N_OTHER,
    [COPY_UNIT] = N_COPY,
    [COPY_AGAIN] = N_COPY,
    [COPY_ASYM] = N_COPY,
    [COPY_ENTITY] = N_COPY,
    [COPY_SYM] = N_COPY,
    [COPY_MOL] = N_COPY,
    [COPY_ENTITY_MOL] = N_COPY,
    [COPY_UID] = N_COPY,
    [COPY_MOL_ATOM] = N_COPY,
    [COPY_STEPS] = N_COPY,
    [STEP] = N_STEP,
    [ABSENT] = N_ABSENT,
    [UNIT_BOND_A] = N_UNIT_BOND,
    [UNIT_BOND_SPAN] = N_UNIT_BOND,
    [COPY_BOND_A] = N_COPY_BOND,
    [COPY_BOND_SPAN] = N_COPY_BOND,
    [PAIR_A] = N_PAIR,
    [PAIR_B] = N_PAIR,
};

/* Sections of bytes behind the columns, in their order. */
typedef enum blob_id {
    ENTITY_FLAGS, /* fm_polymer, and SEQUENCE_FLAG where it has a sequence */
    RESIDUE_NAMES,
    RESOLVED, /* one bit for each atom */
    OTHER_NAMES,
    OTHER_ELEMENTS,
    OPERATIONS,
    UNIT_BOND_ORDERS,
    COPY_BOND_ORDERS,
    N_BLOB,
} blob_id;

/* Floats: positions of resolved atoms, occupancies and B factors of all. */
typedef enum float_id { POSITIONS, OCCUPANCY, B_FACTOR, N_FLOAT } float_id;

typedef struct float_column {
    uint64_t n;
    uint32_t stride, n_escape;
    const uint8_t *planes;
    const uint32_t *escape_at, *escape_bits;
} float_column;

/* What the sizes of all sections follow from. */
typedef struct assembly_sizes {
    uint32_t word[FM_PART_N_WORD];
    uint32_t text_bytes, n_resolved;
    uint32_t n_escape[N_FLOAT];
} assembly_sizes;

static uint64_t bytes_of_blob(const assembly_sizes *sizes, blob_id blob) {
    const uint32_t *n = sizes->word;
    switch (blob) {
    case ENTITY_FLAGS: return n[N_ENTITY];
    case RESIDUE_NAMES: return (uint64_t)n[N_RESIDUE] * FM_PART_NAME_BYTES;
    case RESOLVED: return ((uint64_t)n[N_ATOM] + 7) / 8;
    case OTHER_NAMES: return (uint64_t)n[N_OTHER] * FM_PART_NAME_BYTES;
    case OTHER_ELEMENTS: return n[N_OTHER];
    case OPERATIONS: return (uint64_t)n[N_OPERATION] * sizeof(double[3][4]);
    case UNIT_BOND_ORDERS: return n[N_UNIT_BOND];
    case COPY_BOND_ORDERS: return n[N_COPY_BOND];
    default: return 0;
    }
}

static uint64_t count_floats(const assembly_sizes *sizes, float_id column) {
    return column == POSITIONS ? (uint64_t)sizes->n_resolved * N_AXIS : sizes->word[N_ATOM];
}

static uint64_t encoded_bytes(const assembly_sizes *sizes) {
    uint64_t at = FM_PART_HEADER_BYTES + HEAD_BYTES;
    at = fm_part_padded(at + sizes->text_bytes);
    for (int i = 0; i < N_COLUMN; i++)
        at = fm_part_padded(at + (uint64_t)sizes->word[column_word[i]] * 4);
    for (int i = 0; i < N_BLOB; i++)
        at = fm_part_padded(at + bytes_of_blob(sizes, (blob_id)i));
    for (int i = 0; i < N_FLOAT; i++) {
        at = fm_part_padded(at + count_floats(sizes, (float_id)i) * 4);
        at = fm_part_padded(at + (uint64_t)sizes->n_escape[i] * 4);
        at += (uint64_t)sizes->n_escape[i] * 4;
        if (i + 1 < N_FLOAT) at = fm_part_padded(at);
    }
    return at;
}

/* -- encode */

typedef struct assembly_encoder {
    const fm_part_assembly *part;
    assembly_sizes sizes;
} assembly_encoder;

static fm_status fail_value(const char *what, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_DATA, "the assembly cannot be kept: %s", what);
}

/* Returns the bytes of a text with its end, and writes them unless the writer is NULL. */
static uint64_t put_text(const char *text, fm_writer *writer) {
    size_t n = strlen(text) + 1;
    if (writer) fm_write_bytes(writer, text, n);
    return n;
}

/* The same for all texts, in their order. */
static uint64_t put_texts(const fm_part_assembly *part, fm_writer *writer) {
    uint64_t n = put_text(part->method, writer);
    for (uint32_t i = 0; i < part->n_entity; i++) {
        n += put_text(part->entities[i].id, writer);
        if (part->entities[i].sequence) n += put_text(part->entities[i].sequence, writer);
    }
    for (uint32_t i = 0; i < part->n_unit; i++) {
        n += put_text(part->units[i].label_asym_id, writer);
        n += put_text(part->units[i].auth_asym_id, writer);
    }
    return n;
}

static float float_at(const fm_part_assembly *part, float_id column, uint32_t atom, int axis) {
    if (column == POSITIONS) return part->positions[atom][axis];
    return column == OCCUPANCY ? part->occupancy[atom] : part->b_factor[atom];
}

static fm_status count_escapes(assembly_encoder *encoder, float_id column, fm_error *reterr) {
    const fm_part_assembly *part = encoder->part;
    int n_axis = column == POSITIONS ? N_AXIS : 1;
    for (uint32_t i = 0; i < part->n_atom; i++) {
        if (column == POSITIONS && !part->is_resolved[i]) continue;
        for (int axis = 0; axis < n_axis; axis++) {
            float value = float_at(part, column, i, axis);
            int32_t k;
            if (!isfinite(value)) return fail_value("a number is not finite", reterr);
            encoder->sizes.n_escape[column] += !fm_part_to_thousandths(value, &k);
        }
    }
    return FM_OK;
}

static fm_status measure(assembly_encoder *encoder, fm_error *reterr) {
    const fm_part_assembly *part = encoder->part;
    uint64_t n_text = put_texts(part, NULL);
    if (n_text > FM_LIMIT_PART_BYTES) return fail_value("its texts are too long", reterr);
    encoder->sizes = (assembly_sizes){.word = {part->n_entity, part->n_unit, part->n_residue,
                                               part->n_atom, part->n_copy, part->n_operation,
                                               part->n_step, part->n_other, part->n_absent,
                                               part->n_unit_bond, part->n_copy_bond, part->n_pair},
                                      .text_bytes = (uint32_t)n_text};
    for (uint32_t i = 0; i < part->n_atom; i++)
        encoder->sizes.n_resolved += part->is_resolved[i];
    fm_status status = FM_OK;
    for (int i = 0; i < N_FLOAT && !status; i++)
        status = count_escapes(encoder, (float_id)i, reterr);
    return status;
}

static uint32_t value_of_copy(const fm_part_copy *copy, column_id column) {
    switch (column) {
    case COPY_UNIT: return copy->unit;
    case COPY_AGAIN: return copy->again;
    case COPY_ASYM: return (uint32_t)copy->asym_id;
    case COPY_ENTITY: return (uint32_t)copy->entity_id;
    case COPY_SYM: return (uint32_t)copy->sym_id;
    case COPY_MOL: return (uint32_t)copy->mol_id;
    case COPY_ENTITY_MOL: return (uint32_t)copy->entity_mol_id;
    case COPY_UID: return copy->first_uid;
    case COPY_MOL_ATOM: return copy->mol_first_atom;
    default: return copy->n_step;
    }
}

static uint32_t value_of(const fm_part_assembly *part, column_id column, uint32_t i) {
    switch (column) {
    case ENTITY_RESIDUES: return part->entities[i].n_residue;
    case UNIT_ENTITY: return part->units[i].entity;
    case UNIT_RESIDUES: return part->units[i].n_residue;
    case RESIDUE_NUMBER: return (uint32_t)part->residue_number[i];
    case RESIDUE_ATOMS: return part->residue_n_atom[i];
    case ATOM_IN_COMPONENT: return (uint32_t)part->in_component[i];
    case OTHER_ATOM: return part->others[i].atom;
    case STEP: return part->steps[i];
    case ABSENT: return part->absent[i];
    case UNIT_BOND_A: return part->unit_bonds[i].a;
    case UNIT_BOND_SPAN: return part->unit_bonds[i].b - part->unit_bonds[i].a;
    case COPY_BOND_A: return part->copy_bonds[i].a;
    case COPY_BOND_SPAN: return part->copy_bonds[i].b - part->copy_bonds[i].a;
    case PAIR_A: return part->pairs[i][0];
    case PAIR_B: return part->pairs[i][1];
    default: return value_of_copy(&part->copies[i], column);
    }
}

/* Writes `coded` at place i of a column of n values in four planes. */
static void put_planes(uint8_t *planes, uint64_t n, uint64_t i, uint32_t coded) {
    for (int plane = 0; plane < 4; plane++)
        planes[(uint64_t)plane * n + i] = (uint8_t)(coded >> 8 * plane);
}

static uint32_t get_planes(const uint8_t *planes, uint64_t n, uint64_t i) {
    return planes[i] | (uint32_t)planes[n + i] << 8 | (uint32_t)planes[2 * n + i] << 16 |
           (uint32_t)planes[3 * n + i] << 24;
}

static void write_column(const assembly_encoder *encoder, column_id column, fm_writer *writer) {
    uint32_t n = encoder->sizes.word[column_word[column]], previous = 0;
    uint8_t *planes = fm_part_reserve(writer, (uint64_t)n * 4);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t value = value_of(encoder->part, column, i);
        put_planes(planes, n, i, fm_part_zigzag(value - previous));
        previous = value;
    }
}

static void write_blob(const assembly_encoder *encoder, blob_id blob, fm_writer *writer) {
    const fm_part_assembly *part = encoder->part;
    uint64_t size = bytes_of_blob(&encoder->sizes, blob);
    uint8_t *out = fm_part_reserve(writer, size);
    memset(out, 0, size);
    switch (blob) {
    case ENTITY_FLAGS:
        for (uint32_t i = 0; i < part->n_entity; i++)
            out[i] = (uint8_t)(part->entities[i].polymer |
                               (part->entities[i].sequence ? SEQUENCE_FLAG : 0));
        break;
    case RESIDUE_NAMES:
        if (size) memcpy(out, part->residue_name, size);
        break;
    case RESOLVED:
        for (uint32_t i = 0; i < part->n_atom; i++)
            out[i / 8] |= (uint8_t)(part->is_resolved[i] << i % 8);
        break;
    case OTHER_NAMES:
        for (uint32_t i = 0; i < part->n_other; i++)
            memcpy(out + (size_t)i * FM_PART_NAME_BYTES, part->others[i].name, FM_PART_NAME_BYTES);
        break;
    case OTHER_ELEMENTS:
        for (uint32_t i = 0; i < part->n_other; i++)
            out[i] = part->others[i].element;
        break;
    case OPERATIONS:
        if (size) memcpy(out, part->operations, size);
        break;
    case UNIT_BOND_ORDERS:
        for (uint32_t i = 0; i < part->n_unit_bond; i++)
            out[i] = part->unit_bonds[i].order;
        break;
    default:
        for (uint32_t i = 0; i < part->n_copy_bond; i++)
            out[i] = part->copy_bonds[i].order;
        break;
    }
}

static void write_floats(const assembly_encoder *encoder, float_id column, fm_writer *writer) {
    const fm_part_assembly *part = encoder->part;
    uint64_t n = count_floats(&encoder->sizes, column), at = 0;
    uint32_t n_escape = encoder->sizes.n_escape[column], escape = 0, previous[N_AXIS] = {0};
    int n_axis = column == POSITIONS ? N_AXIS : 1;
    uint8_t *planes = fm_part_reserve(writer, n * 4);
    uint8_t *index = fm_part_reserve(writer, (uint64_t)n_escape * 4);
    uint8_t *bits = fm_part_reserve(writer, (uint64_t)n_escape * 4);
    for (uint32_t i = 0; i < part->n_atom; i++) {
        if (column == POSITIONS && !part->is_resolved[i]) continue;
        for (int axis = 0; axis < n_axis; axis++, at++) {
            float value = float_at(part, column, i, axis);
            int32_t k = (int32_t)previous[axis];
            if (!fm_part_to_thousandths(value, &k)) {
                uint32_t place = (uint32_t)at, value_bits = fm_part_float_bits(value);
                memcpy(index + (size_t)4 * escape, &place, sizeof place);
                memcpy(bits + (size_t)4 * escape++, &value_bits, sizeof value_bits);
            }
            put_planes(planes, n, at, fm_part_zigzag((uint32_t)k - previous[axis]));
            previous[axis] = (uint32_t)k;
        }
    }
    assert(at == n && escape == n_escape);
}

static void write_head(const assembly_encoder *encoder, fm_writer *writer) {
    const fm_part_assembly *part = encoder->part;
    fm_write_bytes(writer, part->components.bytes, sizeof part->components.bytes);
    fm_write_f32(writer, part->resolution);
    fm_write_u32(writer, encoder->sizes.text_bytes);
    for (int i = 0; i < N_FLOAT; i++)
        fm_write_u32(writer, encoder->sizes.n_escape[i]);
    fm_write_bytes(writer, part->release_date, FM_PART_DATE_BYTES);
    fm_write_u16(writer, 0);
    put_texts(part, writer);
}
static_assert(FM_SHA256_BYTES + 4 * (2 + N_FLOAT) + FM_PART_DATE_BYTES + 2 == HEAD_BYTES, "");

fm_status fm_part_assembly_encode(const fm_part_assembly *part, fm_arena *arena,
                                  fm_bytes *ret_bytes, fm_error *reterr) {
    assembly_encoder encoder = {.part = part};
    fm_writer writer;
    fm_status status = measure(&encoder, reterr);
    if (!status) {
        status = fm_part_begin(arena, FM_PART_ASSEMBLY, FM_PART_ASSEMBLY_FORMAT,
                               encoded_bytes(&encoder.sizes), encoder.sizes.word, &writer, reterr);
    }
    if (status) return status;
    write_head(&encoder, &writer);
    for (int i = 0; i < N_COLUMN; i++)
        write_column(&encoder, (column_id)i, &writer);
    for (int i = 0; i < N_BLOB; i++)
        write_blob(&encoder, (blob_id)i, &writer);
    for (int i = 0; i < N_FLOAT; i++)
        write_floats(&encoder, (float_id)i, &writer);
    assert(!writer.failed && writer.at == writer.capacity);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

/* -- decode */

typedef struct assembly_decoder {
    fm_reader reader;
    fm_arena *arena;
    assembly_sizes sizes;
    const uint8_t *text;
    uint32_t *columns[N_COLUMN];
    const uint8_t *blobs[N_BLOB];
    float_column floats[N_FLOAT];
    fm_part_assembly part;
    fm_part_entity *entities;
    fm_part_unit *units;
    fm_part_copy *copies;
    fm_part_other_atom *others;
    uint64_t n_copy_atom; /* of all copies */
} assembly_decoder;

static fm_status fail_part(const char *what, fm_error *reterr) {
    return fm_fail(reterr, FM_ERR_CORRUPT, "the assembly part is broken: %s", what);
}

static fm_status read_head(assembly_decoder *decoder, fm_error *reterr) {
    fm_part_assembly *part = &decoder->part;
    const uint8_t *head = fm_part_section(&decoder->reader, HEAD_BYTES);
    if (!head) return fm_part_finish(&decoder->reader, FM_PART_ASSEMBLY, reterr);
    fm_reader reader = fm_reader_of(head, HEAD_BYTES);
    memcpy(part->components.bytes, fm_read_borrow(&reader, FM_SHA256_BYTES), FM_SHA256_BYTES);
    part->resolution = fm_read_f32(&reader);
    decoder->sizes.text_bytes = fm_read_u32(&reader);
    for (int i = 0; i < N_FLOAT; i++)
        decoder->sizes.n_escape[i] = fm_read_u32(&reader);
    memcpy(part->release_date, fm_read_borrow(&reader, FM_PART_DATE_BYTES), FM_PART_DATE_BYTES);
    part->release_date[FM_PART_DATE_BYTES] = '\0';
    bool is_length = isfinite(part->resolution) && part->resolution > 0;
    if (fm_read_u16(&reader) != 0 || !fm_part_is_date(part->release_date) ||
        (!is_length && part->resolution != -1)) {
        return fail_part("its date or its resolution is none", reterr);
    }
    decoder->text = fm_part_section(&decoder->reader, decoder->sizes.text_bytes);
    return FM_OK;
}

static fm_status check_counts(const uint32_t *n, fm_error *reterr) {
    bool good = n[N_ENTITY] >= 1 && n[N_UNIT] >= 1 && n[N_RESIDUE] >= n[N_UNIT] &&
                n[N_ATOM] >= n[N_RESIDUE] && n[N_ATOM] <= FM_LIMIT_N_COMPLEX_ATOM &&
                n[N_COPY] >= n[N_UNIT] && n[N_COPY] <= FM_LIMIT_N_COMPLEX_CHAIN &&
                n[N_UNIT_BOND] <= FM_LIMIT_N_COMPLEX_BOND &&
                n[N_COPY_BOND] <= FM_LIMIT_N_COMPLEX_BOND;
    return good ? FM_OK : fail_part("a table has too many rows or too few", reterr);
}

static fm_status read_columns(assembly_decoder *decoder, fm_error *reterr) {
    for (int c = 0; c < N_COLUMN; c++) {
        uint32_t n = decoder->sizes.word[column_word[c]], value = 0;
        const uint8_t *planes = fm_part_section(&decoder->reader, (uint64_t)n * 4);
        if (!planes) return fm_part_finish(&decoder->reader, FM_PART_ASSEMBLY, reterr);
        uint32_t *values = fm_arena_alloc_array(decoder->arena, n, sizeof *values);
        if (!values) return fm_arena_full(decoder->arena, reterr);
        for (uint32_t i = 0; i < n; i++)
            values[i] = value += fm_part_unzigzag(get_planes(planes, n, i));
        decoder->columns[c] = values;
    }
    return FM_OK;
}

static fm_status read_blobs(assembly_decoder *decoder, fm_error *reterr) {
    for (int b = 0; b < N_BLOB; b++) {
        uint64_t size = bytes_of_blob(&decoder->sizes, (blob_id)b);
        decoder->blobs[b] = fm_part_section(&decoder->reader, size);
        if (!decoder->blobs[b]) return fm_part_finish(&decoder->reader, FM_PART_ASSEMBLY, reterr);
    }
    return FM_OK;
}

static fm_status read_resolved(assembly_decoder *decoder, fm_error *reterr) {
    uint32_t n = decoder->sizes.word[N_ATOM];
    uint8_t *resolved = fm_arena_alloc(decoder->arena, n);
    if (!resolved) return fm_arena_full(decoder->arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        resolved[i] = decoder->blobs[RESOLVED][i / 8] >> i % 8 & 1;
        decoder->sizes.n_resolved += resolved[i];
    }
    decoder->part.is_resolved = resolved;
    if (n % 8 == 0 || decoder->blobs[RESOLVED][n / 8] >> n % 8 == 0) return FM_OK;
    return fail_part("it marks more atoms than it has", reterr);
}

static fm_status find_floats(assembly_decoder *decoder, fm_error *reterr) {
    for (int f = 0; f < N_FLOAT; f++) {
        float_column *column = &decoder->floats[f];
        uint64_t escape_bytes = (uint64_t)decoder->sizes.n_escape[f] * 4;
        column->n = count_floats(&decoder->sizes, (float_id)f);
        column->stride = f == POSITIONS ? N_AXIS : 1;
        column->n_escape = decoder->sizes.n_escape[f];
        column->planes = fm_part_section(&decoder->reader, column->n * 4);
        column->escape_at =
            (const uint32_t *)(const void *)fm_part_section(&decoder->reader, escape_bytes);
        column->escape_bits =
            (const uint32_t *)(const void *)fm_part_section(&decoder->reader, escape_bytes);
    }
    return fm_part_finish(&decoder->reader, FM_PART_ASSEMBLY, reterr);
}

/* Reads value i of a column of floats; false when its bytes are not canonical. */
static bool next_float(const float_column *column, uint64_t i, uint32_t previous[N_AXIS],
                       uint32_t *escape, float *ret_value) {
    uint32_t coded = get_planes(column->planes, column->n, i);
    uint32_t k = previous[i % column->stride] += fm_part_unzigzag(coded);
    int32_t again;
    if (*escape < column->n_escape && column->escape_at[*escape] == i) {
        *ret_value = fm_part_float_of_bits(column->escape_bits[(*escape)++]);
        return coded == 0 && isfinite(*ret_value) && !fm_part_to_thousandths(*ret_value, &again);
    }
    *ret_value = fm_part_of_thousandths((int32_t)k);
    return fm_part_to_thousandths(*ret_value, &again) && again == (int32_t)k;
}

static fm_status read_floats(assembly_decoder *decoder, fm_error *reterr) {
    uint32_t n = decoder->sizes.word[N_ATOM];
    float *values = fm_arena_calloc(decoder->arena, n, (N_AXIS + 2) * sizeof *values);
    if (!values) return fm_arena_full(decoder->arena, reterr);
    float *places[N_FLOAT] = {values, values + (size_t)N_AXIS * n,
                              values + (size_t)(N_AXIS + 1) * n};
    for (int f = 0; f < N_FLOAT; f++) {
        const float_column *column = &decoder->floats[f];
        uint32_t previous[N_AXIS] = {0}, escape = 0;
        uint64_t at = 0;
        bool good = true;
        for (uint32_t i = 0; i < n && good; i++) {
            if (f == POSITIONS && !decoder->part.is_resolved[i]) continue;
            for (uint32_t axis = 0; axis < column->stride && good; axis++)
                good = next_float(column, at++, previous, &escape,
                                  places[f] + (size_t)i * column->stride + axis);
        }
        if (!good || escape != column->n_escape) {
            return fail_part("its floats are not canonical", reterr);
        }
    }
    decoder->part.positions = (const float(*)[N_AXIS])(const void *)places[POSITIONS];
    decoder->part.occupancy = places[OCCUPANCY];
    decoder->part.b_factor = places[B_FACTOR];
    return FM_OK;
}

/* Returns the next text; NULL where none is left. */
static const char *next_text(assembly_decoder *decoder, size_t *at) {
    const uint8_t *text = decoder->text + *at;
    size_t left = decoder->sizes.text_bytes - *at;
    const uint8_t *end = left ? memchr(text, '\0', left) : NULL;
    if (!end) return NULL;
    *at += (size_t)(end - text) + 1;
    return (const char *)text;
}

static fm_status take_texts(assembly_decoder *decoder, fm_error *reterr) {
    const uint32_t *n = decoder->sizes.word;
    size_t at = 0;
    bool good = (decoder->part.method = next_text(decoder, &at)) != NULL;
    for (uint32_t i = 0; i < n[N_ENTITY] && good; i++) {
        uint8_t flags = decoder->blobs[ENTITY_FLAGS][i];
        fm_part_entity *entity = &decoder->entities[i];
        *entity = (fm_part_entity){.id = next_text(decoder, &at),
                                   .n_residue = decoder->columns[ENTITY_RESIDUES][i],
                                   .polymer = flags & (SEQUENCE_FLAG - 1)};
        good = entity->id && entity->polymer < FM_PART_N_POLYMER;
        if (!good || !(flags & SEQUENCE_FLAG)) continue;
        entity->sequence = next_text(decoder, &at);
        good = entity->sequence && entity->n_residue > 0 &&
               strlen(entity->sequence) == entity->n_residue;
    }
    for (uint32_t i = 0; i < n[N_UNIT] && good; i++) {
        fm_part_unit *unit = &decoder->units[i];
        *unit = (fm_part_unit){.label_asym_id = next_text(decoder, &at),
                               .auth_asym_id = next_text(decoder, &at),
                               .entity = decoder->columns[UNIT_ENTITY][i],
                               .n_residue = decoder->columns[UNIT_RESIDUES][i]};
        good = unit->label_asym_id && unit->auth_asym_id && unit->entity < n[N_ENTITY] &&
               unit->n_residue > 0;
    }
    if (good && at == decoder->sizes.text_bytes) return FM_OK;
    return fail_part("its texts are not those of its entities and chains", reterr);
}

/* -- checks of decoded tables */

static bool is_name(const uint8_t *name) {
    size_t n = strnlen((const char *)name, FM_PART_NAME_BYTES);
    if (n == 0 || n == FM_PART_NAME_BYTES) return false;
    for (size_t i = n; i < FM_PART_NAME_BYTES; i++)
        if (name[i]) return false;
    return true;
}

static fm_status check_units(const assembly_decoder *decoder, fm_error *reterr) {
    const uint32_t *n = decoder->sizes.word;
    uint64_t n_residue = 0, n_atom = 0;
    bool good = true;
    for (uint32_t i = 0; i < n[N_UNIT]; i++)
        n_residue += decoder->units[i].n_residue;
    for (uint32_t i = 0; i < n[N_RESIDUE] && good; i++) {
        n_atom += decoder->columns[RESIDUE_ATOMS][i];
        good = decoder->columns[RESIDUE_ATOMS][i] > 0 &&
               is_name(decoder->blobs[RESIDUE_NAMES] + (size_t)i * FM_PART_NAME_BYTES);
    }
    for (uint32_t i = 0; i < n[N_ATOM] && good; i++)
        good = (int32_t)decoder->columns[ATOM_IN_COMPONENT][i] >= -1;
    if (good && n_residue == n[N_RESIDUE] && n_atom == n[N_ATOM]) return FM_OK;
    return fail_part("its residues are not those of its chains", reterr);
}

static fm_status take_others(assembly_decoder *decoder, fm_error *reterr) {
    for (uint32_t i = 0; i < decoder->sizes.word[N_OTHER]; i++) {
        fm_part_other_atom *other = &decoder->others[i];
        const uint8_t *name = decoder->blobs[OTHER_NAMES] + (size_t)i * FM_PART_NAME_BYTES;
        other->atom = decoder->columns[OTHER_ATOM][i];
        other->element = decoder->blobs[OTHER_ELEMENTS][i];
        memcpy(other->name, name, sizeof other->name);
        if (!is_name(name) || other->element >= FM_N_ELEMENT ||
            other->atom >= decoder->sizes.word[N_ATOM] ||
            (i > 0 && other->atom <= other[-1].atom)) {
            return fail_part("a name or an element is of no atom", reterr);
        }
    }
    return FM_OK;
}

/* Copies name their units in the order of first use, and have steps. */
static fm_status take_copies(assembly_decoder *decoder, const uint32_t *unit_atoms,
                             fm_error *reterr) {
    const uint32_t *n = decoder->sizes.word;
    uint32_t *const *columns = decoder->columns;
    uint32_t n_used = 0;
    uint64_t n_step = 0, n_residue = 0;
    bool good = true;
    for (uint32_t i = 0; i < n[N_COPY] && good; i++) {
        fm_part_copy *copy = &decoder->copies[i];
        *copy = (fm_part_copy){.unit = columns[COPY_UNIT][i],
                               .again = columns[COPY_AGAIN][i],
                               .asym_id = (int32_t)columns[COPY_ASYM][i],
                               .entity_id = (int32_t)columns[COPY_ENTITY][i],
                               .sym_id = (int32_t)columns[COPY_SYM][i],
                               .mol_id = (int32_t)columns[COPY_MOL][i],
                               .entity_mol_id = (int32_t)columns[COPY_ENTITY_MOL][i],
                               .first_uid = columns[COPY_UID][i],
                               .mol_first_atom = columns[COPY_MOL_ATOM][i],
                               .n_step = columns[COPY_STEPS][i]};
        good = copy->unit <= n_used && copy->unit < n[N_UNIT] &&
               copy->again < FM_LIMIT_N_COMPLEX_CHAIN && copy->asym_id >= 0 &&
               copy->entity_id >= 0 && copy->sym_id >= 0 && copy->mol_id >= 0 &&
               copy->entity_mol_id >= 0 && copy->first_uid < FM_LIMIT_N_COMPLEX_ATOM &&
               copy->mol_first_atom < FM_LIMIT_N_COMPLEX_ATOM;
        if (!good) break;
        n_used += copy->unit == n_used;
        n_step += copy->n_step;
        n_residue += decoder->units[copy->unit].n_residue;
        decoder->n_copy_atom += unit_atoms[copy->unit];
    }
    for (uint32_t i = 0; i < n[N_STEP] && good; i++)
        good = columns[STEP][i] < n[N_OPERATION];
    if (good && n_used == n[N_UNIT] && n_step == n[N_STEP] &&
        n_residue <= FM_LIMIT_N_COMPLEX_ATOM && decoder->n_copy_atom <= FM_LIMIT_N_COMPLEX_ATOM) {
        return FM_OK;
    }
    return fail_part("its copies are not those of its chains", reterr);
}

static fm_status count_unit_atoms(const assembly_decoder *decoder, uint32_t **ret_counts,
                                  fm_error *reterr) {
    uint32_t *counts = fm_arena_calloc(decoder->arena, decoder->sizes.word[N_UNIT], sizeof *counts);
    if (!counts) return fm_arena_full(decoder->arena, reterr);
    for (uint32_t u = 0, r = 0; u < decoder->sizes.word[N_UNIT]; u++)
        for (uint32_t i = 0; i < decoder->units[u].n_residue; i++, r++)
            counts[u] += decoder->columns[RESIDUE_ATOMS][r];
    *ret_counts = counts;
    return FM_OK;
}

static fm_status take_bonds(assembly_decoder *decoder, bool is_copy, const fm_part_bond **ret_bonds,
                            fm_error *reterr) {
    uint32_t n = decoder->sizes.word[is_copy ? N_COPY_BOND : N_UNIT_BOND];
    uint64_t n_atom = is_copy ? decoder->n_copy_atom : decoder->sizes.word[N_ATOM];
    const uint32_t *a = decoder->columns[is_copy ? COPY_BOND_A : UNIT_BOND_A];
    const uint32_t *span = decoder->columns[is_copy ? COPY_BOND_SPAN : UNIT_BOND_SPAN];
    const uint8_t *order = decoder->blobs[is_copy ? COPY_BOND_ORDERS : UNIT_BOND_ORDERS];
    fm_part_bond *bonds = fm_arena_alloc_array(decoder->arena, n, sizeof *bonds);
    if (!bonds) return fm_arena_full(decoder->arena, reterr);
    for (uint32_t i = 0; i < n; i++) {
        bonds[i] = (fm_part_bond){.a = a[i], .b = a[i] + span[i], .order = order[i]};
        bool is_after = i == 0 || a[i] > a[i - 1] || (a[i] == a[i - 1] && span[i] > span[i - 1]);
        if (!is_after || span[i] == 0 || (uint64_t)a[i] + span[i] >= n_atom ||
            order[i] > FM_BOND_AROMATIC) {
            return fail_part("a bond is out of order or of no atoms", reterr);
        }
    }
    *ret_bonds = bonds;
    return FM_OK;
}

static fm_status take_pairs(assembly_decoder *decoder, fm_error *reterr) {
    const uint32_t *n = decoder->sizes.word;
    uint32_t(*pairs)[2] = fm_arena_alloc_array(decoder->arena, n[N_PAIR], sizeof *pairs);
    if (!pairs) return fm_arena_full(decoder->arena, reterr);
    bool good = true;
    for (uint32_t i = 0; i < n[N_PAIR]; i++) {
        pairs[i][0] = decoder->columns[PAIR_A][i];
        pairs[i][1] = decoder->columns[PAIR_B][i];
        good &= pairs[i][0] < n[N_COPY] && pairs[i][1] < n[N_COPY] && pairs[i][0] != pairs[i][1];
    }
    for (uint32_t i = 1; i < n[N_ABSENT]; i++)
        good &= decoder->columns[ABSENT][i - 1] < decoder->columns[ABSENT][i];
    decoder->part.pairs = (const uint32_t(*)[2])pairs;
    return good ? FM_OK : fail_part("its interfaces or bonds are out of range", reterr);
}

static fm_status check_operations(const assembly_decoder *decoder, fm_error *reterr) {
    const double *values = (const double *)(const void *)decoder->blobs[OPERATIONS];
    for (size_t i = 0; i < (size_t)decoder->sizes.word[N_OPERATION] * 12; i++)
        if (!isfinite(values[i])) return fail_part("an operation is not finite", reterr);
    return FM_OK;
}

static fm_status take_tables(assembly_decoder *decoder, fm_error *reterr) {
    const uint32_t *n = decoder->sizes.word;
    uint32_t *unit_atoms = NULL;
    decoder->entities =
        fm_arena_alloc_array(decoder->arena, n[N_ENTITY], sizeof *decoder->entities);
    decoder->units = fm_arena_alloc_array(decoder->arena, n[N_UNIT], sizeof *decoder->units);
    decoder->copies = fm_arena_alloc_array(decoder->arena, n[N_COPY], sizeof *decoder->copies);
    decoder->others = fm_arena_alloc_array(decoder->arena, n[N_OTHER], sizeof *decoder->others);
    if (!decoder->entities || !decoder->units || !decoder->copies || !decoder->others) {
        return fm_arena_full(decoder->arena, reterr);
    }
    fm_status status = take_texts(decoder, reterr);
    if (!status) status = check_units(decoder, reterr);
    if (!status) status = count_unit_atoms(decoder, &unit_atoms, reterr);
    if (!status) status = take_others(decoder, reterr);
    if (!status) status = take_copies(decoder, unit_atoms, reterr);
    if (!status) status = check_operations(decoder, reterr);
    if (!status) status = take_bonds(decoder, false, &decoder->part.unit_bonds, reterr);
    if (!status) status = take_bonds(decoder, true, &decoder->part.copy_bonds, reterr);
    return status ? status : take_pairs(decoder, reterr);
}

/* Gives the part the tables that it shares with the decoder. */
static void link_tables(assembly_decoder *decoder) {
    const uint32_t *n = decoder->sizes.word;
    fm_part_assembly *part = &decoder->part;
    part->n_entity = n[N_ENTITY];
    part->n_unit = n[N_UNIT];
    part->n_residue = n[N_RESIDUE];
    part->n_atom = n[N_ATOM];
    part->n_copy = n[N_COPY];
    part->n_operation = n[N_OPERATION];
    part->n_step = n[N_STEP];
    part->n_other = n[N_OTHER];
    part->n_absent = n[N_ABSENT];
    part->n_unit_bond = n[N_UNIT_BOND];
    part->n_copy_bond = n[N_COPY_BOND];
    part->n_pair = n[N_PAIR];
    part->entities = decoder->entities;
    part->units = decoder->units;
    part->copies = decoder->copies;
    part->others = decoder->others;
    part->residue_name =
        (const char(*)[FM_PART_NAME_BYTES])(const void *)decoder->blobs[RESIDUE_NAMES];
    part->residue_number = (const int32_t *)decoder->columns[RESIDUE_NUMBER];
    part->residue_n_atom = decoder->columns[RESIDUE_ATOMS];
    part->in_component = (const int32_t *)decoder->columns[ATOM_IN_COMPONENT];
    part->operations = (const double(*)[3][4])(const void *)decoder->blobs[OPERATIONS];
    part->steps = decoder->columns[STEP];
    part->absent = decoder->columns[ABSENT];
}

fm_status fm_part_assembly_decode(fm_bytes bytes, fm_arena *arena, fm_part_assembly *ret_part,
                                  fm_error *reterr) {
    assembly_decoder decoder = {.arena = arena};
    fm_status status = fm_part_read_header(bytes, FM_PART_ASSEMBLY, FM_PART_ASSEMBLY_FORMAT,
                                           &decoder.reader, decoder.sizes.word, reterr);
    if (!status) status = check_counts(decoder.sizes.word, reterr);
    if (!status) status = read_head(&decoder, reterr);
    if (!status) status = read_columns(&decoder, reterr);
    if (!status) status = read_blobs(&decoder, reterr);
    if (!status) status = read_resolved(&decoder, reterr);
    if (!status) status = find_floats(&decoder, reterr);
    if (!status) status = read_floats(&decoder, reterr);
    if (!status) status = take_tables(&decoder, reterr);
    if (status) return status;
    link_tables(&decoder);
    *ret_part = decoder.part;
    return FM_OK;
}
