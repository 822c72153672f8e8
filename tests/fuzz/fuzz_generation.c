/* fuzz_generation.c: arbitrary bytes as one of the files of a generation, selected by the first
 * byte. The hashes that precede these decoders in a cache are omitted or corrected. What decodes
 * must encode to the same bytes. */
#include "cache/store/generation_files.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Writes the correct hash into the "end" line. */
static void mend_manifest(uint8_t *text, size_t size) {
    size_t tail = strlen("end ") + FM_SHA256_HEX - 1 + 1;
    if (size < tail) return;
    char hex[FM_SHA256_HEX];
    fm_sha256 hash = fm_sha256_of(text, size - tail);
    fm_sha256_format(&hash, hex);
    memcpy(text + size - tail + strlen("end "), hex, FM_SHA256_HEX - 1);
}

static uint64_t manifest_number(fm_bytes text) {
    static const char front[] = "foldmill generation 2\nnumber "; /* or 1 */
    uint64_t number = 0;
    for (size_t i = sizeof front - 1; i < text.size && i < 45; i++) {
        if (text.data[i] < '0' || text.data[i] > '9') break;
        number = number * 10 + (uint64_t)(text.data[i] - '0');
    }
    return number;
}

/* Returns a generation with the shards and counts against which an index or a list of refusals is
 * checked. */
static fm_generation context_of(fm_bytes bytes, const fm_shard_info *shard, uint32_t n_shard) {
    fm_generation generation = {.shard = shard, .n_shard = n_shard};
    if (bytes.size >= 12) memcpy(&generation.n_chain, bytes.data + 8, 4);
    generation.n_complex = bytes.size >= 8 && bytes.data[4] == 2; /* an index of that format */
    for (size_t i = 0; i < bytes.size; i++)
        generation.n_refused += bytes.data[i] == '\n';
    return generation;
}

static fm_status recode(uint8_t which, fm_bytes bytes, fm_arena *arena, fm_bytes *ret_again) {
    const fm_shard_info shard[2] = {{.bytes = 1 << 20}, {.bytes = UINT64_MAX / 2}};
    fm_generation generation = context_of(bytes, shard, 2);
    fm_sha256 index_hash;
    fm_error error;
    fm_status status;
    const fm_chain_facts *facts;
    const fm_complex_row *rows;
    uint32_t n_row;
    switch (which % 6) {
    case 0:
        status = fm_manifest_decode(bytes, manifest_number(bytes), arena, &generation, &index_hash,
                                    &error);
        if (status) return status;
        return fm_manifest_encode(&generation, &index_hash, arena, ret_again, &error);
    case 1:
        status = fm_index_decode(bytes, &generation, &error);
        return status ? status : fm_index_encode(&generation, arena, ret_again, &error);
    case 4:
        if (bytes.size < 12) return FM_ERR_CORRUPT;
        memcpy(&generation.n_chain, bytes.data + 8, 4);
        status = fm_facts_decode(bytes, generation.n_chain, arena, &facts, &error);
        if (status) return status;
        return fm_facts_encode(facts, generation.n_chain, arena, ret_again, &error);
    case 5:
        status = fm_complex_rows_decode(bytes, 3, arena, &rows, &n_row, &error);
        return status ? status : fm_complex_rows_encode(rows, n_row, arena, ret_again, &error);
    case 2:
        status = fm_notes_decode(bytes, arena, &generation, &error);
        return status ? status : fm_notes_encode(&generation, arena, ret_again, &error);
    default:
        status = fm_refusals_decode(bytes, arena, &generation, &error);
        return status ? status : fm_refusals_encode(&generation, arena, ret_again, &error);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    void *copy = NULL;
    if (size == 0 || fm_arena_init(&arena, (size_t)256 << 20, NULL)) return 0;
    if (posix_memalign(&copy, 64, size) == 0) {
        fm_bytes bytes = {copy, size - 1}, again;
        memcpy(copy, data + 1, size - 1);
        if (data[0] % 6 == 0) mend_manifest(copy, size - 1);
        if (!recode(data[0], bytes, &arena, &again)) {
            assert(again.size == bytes.size && memcmp(again.data, copy, bytes.size) == 0);
        }
    }
    free(copy);
    fm_arena_fini(&arena);
    return 0;
}
