/* record_entities.c: encodes and decodes the entities part (docs/reference/record.md). */
#include "proto/record_complex.h"
#include "proto/record_part.h"

#include <assert.h>
#include <string.h>

enum { ENTITIES_N, ENTITIES_N_WORD };

bool fm_entity_has_part(const fm_sha256 *identity) {
    static const fm_sha256 none;
    return memcmp(identity, &none, sizeof none) != 0;
}

fm_status fm_part_entities_encode(const fm_part_entities *part, fm_arena *arena,
                                  fm_bytes *ret_bytes, fm_error *reterr) {
    const uint32_t word[FM_PART_N_WORD] = {[ENTITIES_N] = part->n_entity};
    size_t size = (size_t)part->n_entity * sizeof *part->inputs;
    fm_writer writer;
    fm_status status = fm_part_begin(arena, FM_PART_ENTITIES, FM_PART_ENTITIES_FORMAT,
                                     FM_PART_HEADER_BYTES + size, word, &writer, reterr);
    if (status) return status;
    fm_write_bytes(&writer, part->inputs, size);
    *ret_bytes = (fm_bytes){writer.data, writer.at};
    return FM_OK;
}

fm_status fm_part_entities_decode(fm_bytes bytes, fm_arena *arena, fm_part_entities *ret_part,
                                  fm_error *reterr) {
    fm_reader reader;
    uint32_t word[FM_PART_N_WORD];
    (void)arena; /* everything is borrowed */
    fm_status status = fm_part_read_header(bytes, FM_PART_ENTITIES, FM_PART_ENTITIES_FORMAT,
                                           &reader, word, reterr);
    if (!status) status = fm_part_check_zero_words(word, ENTITIES_N_WORD, FM_PART_ENTITIES, reterr);
    if (status) return status;
    const uint8_t *inputs =
        fm_part_section(&reader, (uint64_t)word[ENTITIES_N] * sizeof(fm_part_entity_inputs));
    status = fm_part_finish(&reader, FM_PART_ENTITIES, reterr);
    if (status) return status;
    *ret_part =
        (fm_part_entities){word[ENTITIES_N], (const fm_part_entity_inputs *)(const void *)inputs};
    return FM_OK;
}
static_assert(sizeof(fm_part_entity_inputs) == 3 * FM_SHA256_BYTES, "borrowed in place");
