/* fuzz_npz.c: arbitrary bytes as an .npz archive and as an .npy file. The checksums of a zip stop
 * most mutations early, so the .npy header is also reached directly. Accepted arrays must be as
 * large as they claim: every byte of every array is read. */
#include "proto/base/hash.h"
#include "proto/npz.h"

#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const fm_npy *array) {
    uint64_t count = 1;
    for (size_t i = 0; i < array->rank; i++)
        count *= array->shape[i];
    assert(count == array->count && array->item_bytes == fm_npz_item_bytes(array->dtype));
    assert((uintptr_t)array->data % 64 == 0 && strlen(array->name) < 256);
    fm_xxh3(array->data, (size_t)count * array->item_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fm_arena arena;
    fm_error error;
    fm_npz npz;
    fm_npy npy;
    if (fm_arena_init(&arena, (size_t)16 << 20, NULL)) return 0;
    fm_bytes bytes = {data, size};
    if (!fm_npz_parse(&arena, bytes, &npz, &error)) {
        for (size_t i = 0; i < npz.n_array; i++)
            check(&npz.arrays[i]);
    } else {
        assert(error.message[0] != '\0');
    }
    if (!fm_npy_parse(&arena, bytes, &npy, &error)) check(&npy);
    fm_arena_fini(&arena);
    return 0;
}
