/* fuzz_record.c: arbitrary bytes as an encoded part. Decoded parts must encode to the same bytes. A
 * decoded msa must be safe to count, and an assembly safe to unpack, whatever set of components it
 * names. */
#include "featurizer/complex/complex.h"
#include "tests/featurizer/complex_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void unpack(const fm_part_assembly *part, fm_arena *arena) {
    static const char known[] = COMPLEX_COMPONENTS;
    fm_components components;
    fm_assembly assembly;
    fm_error error;
    fm_status status = fm_components_parse((fm_bytes){(const uint8_t *)known, sizeof known - 1},
                                           arena, &components, &error);
    assert(!status);
    components.hash = part->components;
    if (fm_assembly_unpack(part, &components, arena, &assembly, &error)) return;
    for (uint32_t i = 0; i < assembly.n_bond; i++)
        assert(assembly.bonds[i].a < assembly.bonds[i].b && assembly.bonds[i].b < assembly.n_atom);
    for (uint32_t i = 0; i < assembly.n_token; i++)
        assert(assembly.tokens[i].centre < assembly.n_atom);
}

static fm_status recode(fm_bytes bytes, fm_part_kind kind, fm_arena *arena, fm_bytes *ret_again) {
    fm_error error;
    fm_status status;
    if (kind == FM_PART_SEQUENCE) {
        fm_part_sequence part;
        if (fm_part_sequence_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        status = fm_part_sequence_encode(&part, arena, ret_again, &error);
    } else if (kind == FM_PART_MSA) {
        fm_part_msa part;
        if (fm_part_msa_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        (void)!fm_part_msa_check_profile(&part, arena, &error);
        status = fm_part_msa_encode(&part, arena, ret_again, &error);
    } else if (kind == FM_PART_HITS) {
        fm_part_hits part;
        if (fm_part_hits_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        status = fm_part_hits_encode(&part, arena, ret_again, &error);
    } else if (kind == FM_PART_STRUCTURE) {
        fm_part_structure part;
        if (fm_part_structure_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        status = fm_part_structure_encode(&part, arena, ret_again, &error);
    } else if (kind == FM_PART_ASSEMBLY) {
        fm_part_assembly part;
        if (fm_part_assembly_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        size_t mark = fm_arena_mark(arena);
        unpack(&part, arena);
        fm_arena_rewind(arena, mark); /* copies may have filled it */
        status = fm_part_assembly_encode(&part, arena, ret_again, &error);
    } else if (kind == FM_PART_ENTITIES) {
        fm_part_entities part;
        if (fm_part_entities_decode(bytes, arena, &part, &error)) return FM_ERR_CORRUPT;
        status = fm_part_entities_encode(&part, arena, ret_again, &error);
    } else {
        return FM_ERR_UNSUPPORTED;
    }
    assert(!status); /* what decodes can be encoded */
    return FM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_error error;
    if (fm_arena_init(&arena, (size_t)256 << 20, &error)) return 0;
    /* Aligned as decoders require, and of its exact size for the sanitizer. */
    void *copy = NULL;
    if (posix_memalign(&copy, 64, size ? size : 1) == 0) {
        fm_bytes bytes = {copy, size}, again;
        fm_part_kind kind;
        memcpy(copy, data, size);
        if (!fm_part_peek(bytes, &kind, &error) && !recode(bytes, kind, &arena, &again)) {
            assert(again.size == size && memcmp(again.data, copy, size) == 0);
        }
    }
    free(copy);
    fm_arena_fini(&arena);
    return 0;
}
