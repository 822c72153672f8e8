/* facts.c: see facts.h. */
#include "cache/store/facts.h"

#include "proto/record_part.h"

#include <assert.h>
#include <math.h>
#include <string.h>

enum { MAGIC = 'F' | 'M' << 8 | 'F' << 16 | 'C' << 24, FORMAT = 1, HEADER_BYTES = 16 };

static void count_letters(const fm_part_sequence *sequence, fm_chain_facts *facts) {
    uint32_t count[26] = {0};
    for (uint32_t i = 0; i < sequence->n_res; i++) {
        uint32_t *here = &count[(sequence->sequence[i] - 'A') % 26];
        if (++*here > facts->n_most) facts->n_most = *here;
    }
    facts->n_unknown = count['X' - 'A'];
}

fm_chain_facts fm_facts_of(const fm_part_sequence *sequence, const fm_part_structure *structure) {
    fm_chain_facts facts = {.flags = FM_FACTS_KNOWN, .n_res = sequence->n_res};
    count_letters(sequence, &facts);
    if (!structure) return facts;
    facts.resolution = structure->resolution;
    if (structure->is_distillation) facts.flags |= FM_FACTS_PREDICTED;
    memcpy(facts.release_date, structure->release_date, sizeof facts.release_date);
    return facts;
}

fm_sha256 fm_facts_key(const fm_sha256 *sequence, const fm_sha256 *structure) {
    static const char title[] = "foldmill key 1\nfacts\0\1\0\0\0\0";
    static_assert(FM_FACTS_STAGE == 1, "the title has it");
    fm_sha256_state *key = fm_sha256_create();
    fm_sha256_update(key, title, sizeof title - 1);
    fm_sha256_update(key, sequence->bytes, sizeof sequence->bytes);
    fm_sha256_update(key, structure->bytes, sizeof structure->bytes);
    fm_sha256 hash = fm_sha256_digest(key);
    fm_sha256_destroy(key);
    return hash;
}

void fm_facts_encode_row(const fm_chain_facts *facts, uint8_t ret_bytes[FM_FACTS_BYTES]) {
    fm_writer writer = fm_writer_of(ret_bytes, FM_FACTS_BYTES);
    fm_write_u32(&writer, facts->flags);
    fm_write_u32(&writer, facts->n_res);
    fm_write_u32(&writer, facts->n_unknown);
    fm_write_u32(&writer, facts->n_most);
    fm_write_u32(&writer, facts->cluster_size);
    fm_write_f32(&writer, facts->resolution);
    fm_write_bytes(&writer, facts->release_date, FM_PART_DATE_BYTES);
    fm_write_u16(&writer, 0);
    assert(!writer.failed && writer.at == FM_FACTS_BYTES);
}

static bool is_good(const fm_chain_facts *facts) {
    if (!(facts->flags & FM_FACTS_KNOWN)) {
        return !facts->flags && !facts->n_res && !facts->n_unknown && !facts->n_most &&
               !facts->cluster_size && facts->resolution == 0.0f && !signbit(facts->resolution) &&
               !facts->release_date[0] && fm_part_is_date(facts->release_date);
    }
    bool is_complex = facts->flags & FM_FACTS_COMPLEX;
    return facts->flags <= FM_FACTS_FLAGS && facts->n_res >= 1 &&
           facts->n_unknown <= facts->n_most && (facts->n_most == 0) == is_complex &&
           facts->n_most <= facts->n_res && isfinite(facts->resolution) &&
           !signbit(facts->resolution) && fm_part_is_date(facts->release_date);
}

static bool read_row(fm_reader *reader, fm_chain_facts *facts) {
    memset(facts, 0, sizeof *facts);
    facts->flags = fm_read_u32(reader);
    facts->n_res = fm_read_u32(reader);
    facts->n_unknown = fm_read_u32(reader);
    facts->n_most = fm_read_u32(reader);
    facts->cluster_size = fm_read_u32(reader);
    facts->resolution = fm_read_f32(reader);
    const uint8_t *date = fm_read_borrow(reader, FM_PART_DATE_BYTES);
    if (date) memcpy(facts->release_date, date, FM_PART_DATE_BYTES);
    bool is_zero = fm_read_u16(reader) == 0;
    return !reader->failed && is_zero && is_good(facts);
}

fm_status fm_facts_decode_row(fm_bytes bytes, fm_chain_facts *ret_facts, fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    fm_chain_facts facts;
    if (!read_row(&reader, &facts) || fm_reader_left(&reader)) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the facts of a chain are broken");
    }
    *ret_facts = facts;
    return FM_OK;
}

fm_status fm_facts_encode(const fm_chain_facts *facts, uint32_t n_chain, fm_arena *arena,
                          fm_bytes *ret_bytes, fm_error *reterr) {
    size_t total = HEADER_BYTES + (size_t)n_chain * FM_FACTS_BYTES;
    uint8_t *data = fm_arena_alloc(arena, total);
    if (!data) return fm_arena_full(arena, reterr);
    fm_writer writer = fm_writer_of(data, HEADER_BYTES);
    fm_write_u32(&writer, MAGIC);
    fm_write_u32(&writer, FORMAT);
    fm_write_u64(&writer, n_chain);
    for (uint32_t i = 0; i < n_chain; i++)
        fm_facts_encode_row(&facts[i], data + HEADER_BYTES + (size_t)i * FM_FACTS_BYTES);
    *ret_bytes = (fm_bytes){data, total};
    return FM_OK;
}

fm_status fm_facts_decode(fm_bytes bytes, uint32_t n_chain, fm_arena *arena,
                          const fm_chain_facts **ret_facts, fm_error *reterr) {
    fm_reader reader = fm_reader_of(bytes.data, bytes.size);
    uint32_t magic = fm_read_u32(&reader), format = fm_read_u32(&reader);
    uint64_t n = fm_read_u64(&reader);
    if (reader.failed || magic != MAGIC || format != FORMAT || n != n_chain ||
        fm_reader_left(&reader) != (size_t)n_chain * FM_FACTS_BYTES) {
        return fm_fail(reterr, FM_ERR_CORRUPT, "the facts' header is not that of %u chains",
                       n_chain);
    }
    fm_chain_facts *facts = fm_arena_alloc_array(arena, n_chain, sizeof *facts);
    if (!facts) return fm_arena_full(arena, reterr);
    for (uint32_t i = 0; i < n_chain; i++) {
        if (!read_row(&reader, &facts[i])) {
            return fm_fail(reterr, FM_ERR_CORRUPT, "the facts of chain %u are broken", i);
        }
    }
    *ret_facts = facts;
    return FM_OK;
}
