/* fuzz_batch.c: arbitrary bytes as an encoded sample, with corrected length and header checksum so
 * that mutations get past them. What decodes without the data's checksums must encode to a sample
 * that decodes with them and encodes to the same bytes. */
#include "proto/batch.h"
#include "tests/fuzz/seal_sample.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint8_t *aligned(size_t size) {
    uint8_t *out = aligned_alloc(64, (size + 64) & ~(size_t)63);
    assert(out);
    return out;
}

static void check_accepted(const fm_sample *sample, const uint8_t *bytes, size_t size,
                           fm_arena *arena) {
    assert(fm_sample_encoded_bytes(sample) == size);
    uint8_t *again = aligned(size);
    fm_sample_encode(sample, again);
    fm_sample got;
    fm_status status = fm_sample_decode((fm_bytes){again, size}, true, arena, &got, NULL);
    assert(!status && got.n_tensor == sample->n_tensor);
    for (uint32_t i = 0; i < got.n_tensor; i++)
        assert(memcmp(sample->tensor[i].data, got.tensor[i].data, got.tensor[i].bytes) == 0);
    size_t head = fm_fuzz_sample_head(bytes, size);
    assert(head > 0 && memcmp(bytes + head, again + head, size - head) == 0);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_sample sample;
    fm_error error = {0};
    if (fm_arena_init(&arena, ((size_t)1 << 20) + 16 * size, NULL)) return 0;
    uint8_t *bytes = aligned(size);
    memcpy(bytes, data, size);
    if (!fm_sample_decode((fm_bytes){bytes, size}, true, &arena, &sample, &error)) {
        check_accepted(&sample, bytes, size, &arena);
    } else {
        assert(error.message[0] != '\0');
    }
    if (fm_fuzz_seal_sample(bytes, size) &&
        !fm_sample_decode((fm_bytes){bytes, size}, false, &arena, &sample, NULL)) {
        check_accepted(&sample, bytes, size, &arena);
    }
    free(bytes);
    fm_arena_fini(&arena);
    return 0;
}
