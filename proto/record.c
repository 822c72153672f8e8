/* record.c: the functions that all parts' encodings share, and the sequence part. See record.h,
 * record_part.h and docs/reference/record.md. */
#include "proto/record_part.h"

#include "proto/limits.h"

#include <assert.h>
#include <string.h>

const char *fm_part_name(fm_part_kind kind) {
    switch (kind) {
    case FM_PART_SEQUENCE: return "sequence";
    case FM_PART_MSA: return "msa";
    case FM_PART_HITS: return "hits";
    case FM_PART_STRUCTURE: return "structure";
    case FM_PART_ASSEMBLY: return "assembly";
    case FM_PART_ENTITIES: return "entities";
    case FM_PART_COMPONENTS: return "components";
    }
    return "unknown";
}

fm_status fm_part_begin(fm_arena *arena, fm_part_kind kind, uint16_t version, uint64_t total,
                        const uint32_t word[FM_PART_N_WORD], fm_writer *ret_writer,
                        fm_error *reterr) {
    if (total > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, FM_ERR_LIMIT, "the %s part has %llu bytes; the limit is %zu",
                       fm_part_name(kind), (unsigned long long)total, FM_LIMIT_PART_BYTES);
    }
    uint8_t *data = fm_arena_alloc(arena, (size_t)total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, (size_t)total);
    fm_write_u32(&writer, FM_PART_MAGIC);
    fm_write_u16(&writer, (uint16_t)kind);
    fm_write_u16(&writer, version);
    fm_write_u64(&writer, total);
    for (int i = 0; i < FM_PART_N_WORD; i++)
        fm_write_u32(&writer, word[i]);
    assert(writer.at == FM_PART_HEADER_BYTES);
    *ret_writer = writer;
    return FM_OK;
}

uint8_t *fm_part_reserve(fm_writer *writer, uint64_t size) {
    fm_write_align(writer, FM_PART_ALIGN);
    assert(!writer->failed && size <= writer->capacity - writer->at);
    uint8_t *section = writer->data + writer->at;
    writer->at += (size_t)size;
    return section;
}

fm_status fm_part_peek(fm_bytes bytes, fm_part_kind *ret_kind, fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    uint32_t magic = fm_read_u32(&reader);
    uint16_t kind = fm_read_u16(&reader);
    if (bytes.size < FM_PART_HEADER_BYTES || magic != FM_PART_MAGIC) {
        return fm_fail(reterr, FM_ERR_CORRUPT,
                       "found %zu bytes that are not a part: the magic is 0x%08x", bytes.size,
                       magic);
    }
    if (kind < 1 || kind >= FM_PART_COMPONENTS) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED, "the part has the unknown kind %u", kind);
    }
    *ret_kind = (fm_part_kind)kind;
    return FM_OK;
}

fm_status fm_part_read_header(fm_bytes bytes, fm_part_kind kind, uint16_t version,
                              fm_reader *ret_reader, uint32_t word[FM_PART_N_WORD],
                              fm_error *reterr) {
    assert((uintptr_t)bytes.data % FM_PART_ALIGN == 0);
    fm_part_kind found;
    fm_status status = fm_part_peek(bytes, &found, reterr);
    if (status) return status;
    if (found != kind) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "found a %s part, expected the %s part",
                       fm_part_name(found), fm_part_name(kind));
    }
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    (void)fm_read_u32(&reader);
    (void)fm_read_u16(&reader);
    uint16_t found_version = fm_read_u16(&reader);
    if (found_version != version) {
        return fm_fail(reterr, FM_ERR_UNSUPPORTED,
                       "the %s part has format version %u; this build reads version %u",
                       fm_part_name(kind), found_version, version);
    }
    uint64_t total = fm_read_u64(&reader);
    for (int i = 0; i < FM_PART_N_WORD; i++)
        word[i] = fm_read_u32(&reader);
    if (total != bytes.size || total > FM_LIMIT_PART_BYTES) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the %s part declares %llu bytes but has %zu",
                       fm_part_name(kind), (unsigned long long)total, bytes.size);
    }
    *ret_reader = reader;
    return FM_OK;
}

const uint8_t *fm_part_section(fm_reader *reader, uint64_t size) {
    fm_read_align(reader, FM_PART_ALIGN);
    if (size > FM_LIMIT_PART_BYTES) {
        reader->failed = true;
        return NULL;
    }
    return fm_read_borrow(reader, (size_t)size);
}

fm_status fm_part_finish(const fm_reader *reader, fm_part_kind kind, fm_error *reterr) {
    if (!reader->failed && fm_reader_left(reader) == 0) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT,
                   "the %s part's sizes do not add up to its %zu bytes with zero padding",
                   fm_part_name(kind), reader->size);
}

fm_status fm_part_check_n_res(uint32_t n_res, fm_part_kind kind, fm_status status,
                              fm_error *reterr) {
    if (n_res >= 1 && n_res <= FM_LIMIT_N_RES) return FM_OK;
    return fm_fail(reterr, status, "the %s part has %u residues; 1 to %u are allowed",
                   fm_part_name(kind), n_res, FM_LIMIT_N_RES);
}

fm_status fm_part_check_zero_words(const uint32_t word[FM_PART_N_WORD], int first,
                                   fm_part_kind kind, fm_error *reterr) {
    uint32_t any = 0;
    for (int i = first; i < FM_PART_N_WORD; i++)
        any |= word[i];
    if (!any) return FM_OK;
    return fm_fail(reterr, FM_ERR_CORRUPT, "unused header words of the %s part are not zero",
                   fm_part_name(kind));
}

bool fm_part_is_date(const char *date) {
    static const char none[FM_PART_DATE_BYTES] = {0};
    if (memcmp(date, none, sizeof none) == 0) return true;
    for (int i = 0; i < FM_PART_DATE_BYTES; i++) {
        bool dash = i == 4 || i == 7;
        if (dash ? date[i] != '-' : date[i] < '0' || date[i] > '9') return false;
    }
    return true;
}

bool fm_part_is_calendar_date(const char *date) {
    static const uint8_t days[] = {31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    uint32_t month = (uint32_t)(date[5] - '0') * 10 + (uint32_t)(date[6] - '0');
    uint32_t day = (uint32_t)(date[8] - '0') * 10 + (uint32_t)(date[9] - '0');
    uint32_t year = (uint32_t)(date[2] - '0') * 10 + (uint32_t)(date[3] - '0');
    uint32_t century = (uint32_t)(date[0] - '0') * 10 + (uint32_t)(date[1] - '0');
    if (month < 1 || month > 12 || day < 1 || day > days[month - 1]) return false;
    bool is_leap = year ? year % 4 == 0 : century % 4 == 0;
    return month != 2 || day < 29 || is_leap;
}

/* -- sequence */

static fm_status check_letters(const char *sequence, uint32_t n_res, fm_status status,
                               fm_error *reterr) {
    static const char letters[] = "ACDEFGHIKLMNPQRSTVWYX";
    bool known[256] = {false};
    for (const char *letter = letters; *letter; letter++)
        known[(uint8_t)*letter] = true;
    for (uint32_t i = 0; i < n_res; i++) {
        if (!known[(uint8_t)sequence[i]]) {
            return fm_fail(reterr, status, "residue %u of the sequence is 0x%02x, not one of %s",
                           i + 1, (uint8_t)sequence[i], letters);
        }
    }
    return FM_OK;
}

fm_status fm_part_sequence_encode(const fm_part_sequence *part, fm_arena *arena,
                                  fm_bytes *ret_bytes, fm_error *reterr) {
    fm_status status = fm_part_check_n_res(part->n_res, FM_PART_SEQUENCE, FM_ERR_LIMIT, reterr);
    if (!status) status = check_letters(part->sequence, part->n_res, FM_ERR_DATA, reterr);
    if (status) return status;
    const uint32_t word[FM_PART_N_WORD] = {part->n_res};
    fm_writer writer;
    status = fm_part_begin(arena, FM_PART_SEQUENCE, FM_PART_SEQUENCE_FORMAT,
                           FM_PART_HEADER_BYTES + (uint64_t)part->n_res, word, &writer, reterr);
    if (status) return status;
    fm_write_bytes(&writer, part->sequence, part->n_res);
    assert(!writer.failed && writer.at == writer.capacity);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

fm_status fm_part_sequence_decode(fm_bytes bytes, fm_arena *arena, fm_part_sequence *ret_part,
                                  fm_error *reterr) {
    (void)arena; /* everything is borrowed */
    fm_reader reader;
    uint32_t word[FM_PART_N_WORD];
    fm_status status = fm_part_read_header(bytes, FM_PART_SEQUENCE, FM_PART_SEQUENCE_FORMAT,
                                           &reader, word, reterr);
    if (!status) status = fm_part_check_n_res(word[0], FM_PART_SEQUENCE, FM_ERR_CORRUPT, reterr);
    if (!status) status = fm_part_check_zero_words(word, 1, FM_PART_SEQUENCE, reterr);
    if (status) return status;
    const char *sequence = (const char *)fm_part_section(&reader, word[0]);
    status = fm_part_finish(&reader, FM_PART_SEQUENCE, reterr);
    if (!status) status = check_letters(sequence, word[0], FM_ERR_CORRUPT, reterr);
    if (status) return status;
    *ret_part = (fm_part_sequence){.n_res = word[0], .sequence = sequence};
    return FM_OK;
}
